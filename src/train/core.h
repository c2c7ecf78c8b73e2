/*
 * The heart of every training: a model (cell tree), its store, its step, and a source of batches. The
 * program's runs (run.c) and the library's teng_model (model.c) are two coats of it.
 */
#ifndef TG_TRAIN_CORE_H
#define TG_TRAIN_CORE_H

#include "ckpt/checkpoint.h"
#include "train/overflow.h"
#include "train/team.h"
#include "train/trainer.h"

#define TG_CORE_MAX_IN 8

/* One batch on the host, of all ranks or (source.shared) this rank's rows of it, micro-batch after
 * micro-batch: the core cuts it along dimension 0 of every input. */
typedef struct tg_source_batch {
    int n_in;
    teng_desc desc[TG_CORE_MAX_IN];
    const void *data[TG_CORE_MAX_IN];
    const char *name[TG_CORE_MAX_IN];
    int labels; /* index of an i32 input whose entries other than -100 count as valid; -1: all rows count the
                   same */
    double epoch;
} tg_source_batch;
typedef struct tg_source {
    void *user;
    teng_status (*next)(void *user, tg_source_batch *out); /* valid until the next call */
    uint64_t (*cursor)(void *user);                        /* what to save to go on after the last batch */
    teng_status (*seek)(void *user, uint64_t cursor);
    bool shared; /* batches hold this rank's rows alone */
} tg_source;
/* Batches of a token loader: inputs "tokens" and "labels", i32 [B, T], of this rank (tg_loader_options.rank).
 * The loader is borrowed. */
tg_source tg_source_of_loader(tg_loader *loader);

typedef struct tg_core {
    teng_cell *cell; /* borrowed */
    tg_device *dev;
    tg_store *store;
    tg_step *step;
    tg_step_options options;
    tg_team *team;             /* borrowed; NULL: one rank */
    const tg_parallel *layout; /* the step's; NULL: one rank */
    int32_t *stage;            /* [parameters] with a pipeline: the first stage that holds each */
    struct tg_core_cut *cuts;  /* [micro_batches] of the step that runs */
    tg_step_feed *feeds;
    int64_t done;    /* optimizer steps done, dropped ones included */
    int64_t applied; /* of which changed the weights: what bias correction counts */
    int64_t tokens;  /* trained on (elements of the labels input, or rows) */
    double epoch;
    uint64_t
        cursor; /* of the source, after the last step that was done: a batch whose step failed comes again */
    tg_loss_scale scale;
    bool again;           /* the last batch overflowed and comes again with a smaller loss scale */
    tg_overflow overflow; /* of the last step that was dropped */
} tg_core;

typedef struct tg_core_result {
    double loss, grad_norm;
    bool finite;    /* false: the step was dropped; core->overflow says where it went wrong */
    bool again;     /* and does not count: the next step takes the same batch */
    double scale;   /* the loss scale of this step */
    int64_t tokens; /* in this step */
    double wait_s;  /* waiting for the batch */
} tg_core_result;

/* device "cpu", threads 0: all. team: many ranks, with options->parallel of its mesh; parameters get their
 * memory when the layout is known (tg_core_lay_out). NULL: one rank. */
teng_status tg_core_create(teng_cell *cell, const char *device, int threads, const tg_step_options *options,
                           tg_team *team, tg_core **out);
/* Many ranks: finds what this rank holds of each parameter and state, for micro-batches of these shapes (of
 * all ranks together), and makes room for the parameters. Every rank calls. One rank: nothing happens. */
teng_status tg_core_lay_out(tg_core *core, const tg_step_feed *shapes);
/* Of a parameter or state: the whole, and what this rank holds of it. False: nothing. One rank: all. */
typedef struct tg_core_place {
    teng_desc whole;
    tg_box box;
    bool owner; /* this rank stands for all that hold the same */
} tg_core_place;
bool tg_core_find_place(const tg_core *core, const char *name, const teng_desc *whole, tg_core_place *out);
/* An entry for a parameter or an optimizer's state, in memory or where memory.offload puts it. */
teng_status tg_core_add(tg_core *core, tg_store_kind kind, const char *name, const teng_desc *desc,
                        tg_store_entry **out);
/* Parameter number i of tg_nn_params: its entry here and its place; false: it is not on this rank. */
bool tg_core_param(const tg_core *core, const tg_param_info *param, tg_store_entry **entry,
                   tg_core_place *place);
void tg_core_destroy(tg_core **core);
/* Initial values of every parameter that was not loaded: a function of (seed, name) alone. */
teng_status tg_core_init(tg_core *core, uint64_t seed);
/* Copies parameters from a set of weights (tg_weights_open): each must be there with its shape; float dtypes
 * are converted. Of language models the backbone's name may be left out, and a tied head may be there when it
 * is equal. All that is missing and all that the model lacks is named in one error before anything is
 * copied (load_weights.c). */
teng_status tg_core_load_weights(tg_core *core, const tg_weights *weights);
/* The same from a file, an index or a folder. */
teng_status tg_core_load_path(tg_core *core, const char *path);
/* Writes a language model as a Hugging Face style folder. tokenizer names the end token, tokenizer_dir holds
 * the tokenizer files to copy; either may be NULL. A model without a config.json is refused. */
teng_status tg_core_save_folder(tg_core *core, const char *dir, const tg_tokenizer *tokenizer,
                                const char *tokenizer_dir);
/* The same of many ranks, from a checkpoint that they have written, tensor by tensor; one rank calls. */
teng_status tg_core_save_folder_from(tg_core *core, const tg_ckpt *ck, const char *dir,
                                     const tg_tokenizer *tokenizer, const char *tokenizer_dir);
/* Parameters as tensors of a model folder (the names that load); appends, names are the arena's, values stay
 * in the store. Free with tg_vec_free. */
typedef TG_VEC(tg_ckpt_item) tg_folder_items;
teng_status tg_core_folder_items(tg_core *core, tg_arena *arena, tg_folder_items *out);
/* The same of a language model whose values stay in its files until they are fetched, as `dtype`: no more
 * than one of them is in memory. Checks the names and shapes of all, as tg_core_load_weights. The weights
 * must stay open, and lm must live, as long as the items do. */
teng_status tg_core_items_of_weights(teng_cell *lm, const tg_weights *weights, teng_dtype dtype,
                                     tg_arena *arena, tg_folder_items *out);
/* Copies what is in the box of a file's tensor, which is `whole` but for its float type, to device memory. */
teng_status tg_core_read_box(tg_core *core, const tg_st_tensor *t, const teng_desc *whole, const tg_box *box,
                             void *to);
/* Takes one batch from the source and makes one optimizer step. */
teng_status tg_core_train_step(tg_core *core, const tg_source *source, double lr, tg_core_result *out);
/* "step 12 was dropped: …" for people, after a result that is not finite. */
void tg_core_dropped_text(const tg_core *core, const tg_core_result *result, tg_strbuf *out);
/* TENG_NUMERIC when too many steps in a row were dropped. */
teng_status tg_core_check_dropped(const tg_core *core);

/* Mean loss over batches of a pass (max_batches 0: all), weighted by valid labels. next gives n_in == 0 at
 * the end. With tokenizer, *bytes is the text bytes of the scored labels (0 without one). */
typedef struct tg_core_eval_result {
    double loss;
    int64_t tokens, bytes;
} tg_core_eval_result;
teng_status tg_core_eval(tg_core *core, const tg_source *source, int64_t max_batches,
                         const tg_tokenizer *tokenizer, tg_core_eval_result *out);

/* Everything that a checkpoint holds: parameters (group "model") and states (group "optimizer"); host
 * pointers into the store (unified memory). Of many ranks what this one stands for, as parts. Free with
 * tg_free, which frees the parts too. */
teng_status tg_core_items(const tg_core *core, tg_ckpt_item **items, size_t *n);
/* Compares what several ranks hold in common (tg_team_same_copies). */
teng_status tg_core_same_copies(const tg_core *core, const char *when);
/* Counters, as members of a checkpoint's state object; and back, with parameters and states. A state tensor
 * missing in the file or of another shape is an error that names it. */
teng_status tg_core_state_json(const tg_core *core, json_t *state);
/* Gives a checkpoint to a writer: state holds what the caller adds. last: nothing will happen beside it, it
 * is written at once, without a copy of everything. */
teng_status tg_core_submit(const tg_core *core, tg_ckpt_writer *writer, json_t *state, bool last);
/* tg_ckpt_writer_prepare for what submit will give; once the optimizer has its states, after a step. */
void tg_core_prepare_saves(const tg_core *core, tg_ckpt_writer *writer);
teng_status tg_core_restore(tg_core *core, const tg_ckpt *ck, const tg_source *source);

#endif
