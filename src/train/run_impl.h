/* Inside of a run, shared by run_open.c (making and reopening), run.c (the loop), run_books.c (what people
 * see of it) and plan_text.c. */
#ifndef TG_TRAIN_RUN_IMPL_H
#define TG_TRAIN_RUN_IMPL_H

#include "base/file.h"
#include "ckpt/hf_folder.h"
#include "device/cpu_info.h"
#include "monitor/metrics.h"
#include "train/core.h"
#include "train/profiler.h"
#include "train/saver.h"

typedef struct tg_run_books tg_run_books;

struct tg_run {
    tg_config *owned; /* of a resumed run */
    const tg_config *cfg;
    tg_lock *lock;
    tg_tokenizer *tokenizer;
    teng_cell *lm;
    tg_lm_info info;
    tg_core *core;
    tg_loader *train, *val; /* val NULL: nothing is held back */
    int64_t data_hash;      /* of the training data; 0: it has none */
    char *no_val;           /* why val is NULL; NULL when that was asked for */
    tg_source source;
    tg_team *team; /* of one or many ranks */
    tg_parallel_options split;
    tg_saver *saver;
    tg_metrics *metrics; /* rank 0 alone keeps books; NULL on others */
    double peak_flops;   /* of products in the dtype of the run on all ranks, measured; 0: unknown */
    bool peak_again;     /* it was measured anew during this run */
    tg_run_sink *sink;
    void *user;
    bool stopped;          /* somebody asked for it; agreed by all ranks */
    bool out_of_time;      /* train.max_seconds */
    bool save_by_time;     /* checkpoint.seconds */
    int64_t saved_step;    /* of the last checkpoint submitted, -1: none */
    double saved_at;       /* clock seconds */
    tg_profiler *profiler; /* NULL: none */
    uint64_t base_bytes;   /* resident beside the parameters before the first step */
    tg_run_books *books;   /* of the data sink that runs; NULL: steps are told at once */
};

/* ---- the loop (run.c) ---- */
/* Steps of the loop alone, for measurements: no evaluation, no checkpoint, no end. With data.sink whole
 * sinks, as many as it takes; none goes beyond train.steps, which must be larger. */
teng_status tg_run_more_steps(tg_run *run, int64_t steps, tg_run_sink *sink, void *user);

double tg_run_peak_flops(const tg_run *run, const tg_cpu_peak *peak); /* of all ranks (run_open.c) */

/* Into a checkpoint's state: "data", what tells the training data from other data (run_open.c). */
teng_status tg_run_note_data(const tg_run *run, json_t *state);

/* ---- what people see (run_books.c) ---- */
void tg_run_tell(tg_run *run, const tg_run_event *event);
void tg_run_tell_text(tg_run *run, tg_run_event_kind kind, int64_t step, const char *text);
/* A failure to write metrics is told as a note, and the run goes on. */
void tg_run_keep_books(tg_run *run, int64_t step, teng_status status);

typedef struct tg_run_record { /* one try of a step */
    tg_metrics_step line;
    tg_run_event event;
    bool counts; /* false: the batch is tried again, only the note is told */
    char *note;  /* heap, taken over; NULL: none */
    bool profiled;
} tg_run_record;
/* Tells a step: at once, or between open and close by a thread that tells them in order. close waits until
 * all are told. */
void tg_run_put_record(tg_run *run, const tg_run_record *record);
teng_status tg_run_open_books(tg_run *run);
void tg_run_close_books(tg_run *run);

/* ---- memory (run_memory.c): when memory.* asks for something, what is planned, and after the last step what
 * was measured ---- */
void tg_run_tell_forecast(tg_run *run);
void tg_run_tell_measured(tg_run *run, double seconds, int64_t steps);

/* ---- the tokenizer (run_tokenizer.c) ---- */
/* data.tokenizer; not given, that of model.from. */
teng_status tg_run_open_tokenizer(const tg_config *cfg, tg_tokenizer **out);
/* Into the run folder: with the files beside it when it is that of model.from. And out of it. */
teng_status tg_run_write_tokenizer(const tg_config *cfg, const tg_tokenizer *tokenizer);
teng_status tg_run_remove_tokenizer(const tg_config *cfg);

/* Pieces that planning shares with training. */
/* The cell of model.*: config.json of model.from, overridden by the keys that are given; vocab_size unset is
 * the tokenizer's (which may be NULL when it is set). Checks the sequence length against hard positions. */
teng_status tg_run_open_model(const tg_config *cfg, const tg_tokenizer *tokenizer, teng_cell **out,
                              tg_lm_info *info);
tg_step_options tg_run_step_options(const tg_config *cfg);
/* parallel.* for one rank of a mesh. */
void tg_run_parallel_options(const tg_config *cfg, const tg_mesh *mesh, int rank, tg_parallel_options *out);
/* memory.offload (offload_fit.c) as tg_offload bits, `auto` as none; as its words. choose: sets what auto
 * comes to for this model; with other words nothing. */
bool tg_run_offload_is_auto(const tg_config *cfg);
unsigned tg_run_offload(const tg_config *cfg);
void tg_run_offload_text(unsigned mask, tg_strbuf *out);
teng_status tg_run_choose_offload(const tg_config *cfg, teng_cell *lm, tg_device *dev,
                                  tg_step_options *options);
/* Training and evaluation of the configuration stay within memory.budget. */
bool tg_run_plan_fits(const tg_config *cfg, tg_step *step, const tg_plan **out);
/* Of a step of all its micro-batches. */
tg_plan_traffic tg_run_traffic(const tg_config *cfg, const tg_plan *plan);
/* Of a step: computing, and waiting for a disk of a nominal rate; 0 without rates. */
double tg_run_forecast_seconds(const tg_config *cfg, const tg_plan *plan);
/* Shapes of a micro-batch, one of `pieces` of the configuration's batch; desc must live as long. */
tg_step_feed tg_run_shapes(const tg_config *cfg, int64_t pieces, teng_desc desc[2]);
/* The plan of one micro-batch (NULL in pynative). Over memory.budget: an error that says what would fit. */
teng_status tg_run_plan_micro_batch(const tg_config *cfg, tg_step *step, const tg_plan **out);
/* ---- context.products (run_products.c) ---- */
/* Collective of the team; with products=sizes nothing. recorded: the ways that a resumed run began with, NULL
 * for a new one. What was measured is a line of said (rank 0's), NULL: of the log. */
teng_status tg_run_choose_products(const tg_config *cfg, teng_cell *lm, tg_device *dev,
                                   const tg_step_options *options, tg_team *team, const char *recorded,
                                   tg_strbuf *said);
teng_status tg_run_keep_products(const tg_config *cfg, const char *path); /* for resume */
/* Lists the products of a planned step; then text and JSON can be had. peak NULL: nothing was measured. */
teng_status tg_run_note_products(const tg_config *cfg, const tg_step *step, const tg_plan *plan);
void tg_run_print_products(const tg_config *cfg, const tg_cpu_peak *peak, tg_strbuf *out);
json_t *tg_run_products_json(const tg_cpu_peak *peak);
/* context.cpu_isa, context.plugins; products go by sizes. */
teng_status tg_run_prepare_context(const tg_config *cfg);

#endif
