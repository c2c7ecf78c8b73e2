/*
 * Measurements: what the machine reaches, and what teng reaches on it. Each function does real work on values
 * drawn from a seed (no data, no preparation, no files left behind) and answers with figures or with a JSON
 * object: medians with spread, the machine, the version. It prints nothing, and judges nothing: thresholds
 * and comparisons with other programs are for whoever reads the figures.
 */
#ifndef TG_BENCH_BENCH_H
#define TG_BENCH_BENCH_H

#include "base/json.h"
#include "config/config.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "teng/tensor.h"

/* ---- figures (bench_stat.c) ---- */
typedef struct tg_bench_stat {
    double median, min, max;
    int64_t n; /* values; 0: nothing was measured */
} tg_bench_stat;
/* Sorts the values. */
tg_bench_stat tg_bench_stat_of(double *values, int64_t n);
/* {"median":…, "min":…, "max":…, "n":…}; null when n is 0. New reference. */
json_t *tg_bench_stat_json(tg_bench_stat stat);
/* The machine as the current settings use it: {"line", "cpu", "cores", "threads", "isa", "gemm",
 * "memory_bytes"}. */
json_t *tg_bench_machine_json(void);
/* Puts "version" and "machine" at the end of an answer and gives it to *out. A NULL answer is TENG_MEMORY. */
teng_status tg_bench_answer(json_t *answer, json_t **out);

/* ---- the machine (bench_peak.c) ---- */
typedef struct tg_bench_peak_options {
    int64_t threads; /* 0: all cores; one thread is measured too */
    double seconds;  /* spent on each figure */
} tg_bench_peak_options;
/* "peaks": one object for each number of threads, with {f32,bf16,f16}_gflops (null: no instructions for it),
 * read_gb_s, copy_gb_s and triad_gb_s, each with spread. */
teng_status tg_bench_peak(const tg_bench_peak_options *options, json_t **out);
/* Rates of products of that dtype with the threads now set, in GFLOP/s. A dtype without instructions is
 * measured as it runs. */
teng_status tg_bench_matmul_peak(teng_dtype dtype, double seconds, tg_bench_stat *gflops);

/* ---- operators (bench_op.c) ---- */
typedef struct tg_bench_op_options {
    const char *const *ops; /* none: every operator */
    int n_ops;
    const char *const *dtypes; /* "f32", "bf16", "f16"; none: f32, and bf16 where it has instructions */
    int n_dtypes;
    int threads;      /* 0: all */
    int64_t elements; /* the operands of a case grow up to so many in all */
    double seconds;   /* spent on each line */
    bool all;         /* every case and every kernel of every instruction set, not the first case's best */
    void (*progress)(void *user, const char *op);
    void *user;
} tg_bench_op_options;
/* "ops": op, case, dtype, input (its shape), kernel, isa, us with spread, gflops, gb_s, roofline (the time
 * that the machine's peaks allow ÷ the median; above 1 where operands stay in a cache). */
teng_status tg_bench_op(const tg_bench_op_options *options, json_t **out);

/* ---- a training step (bench_step.c) ---- */
/* The configuration of a benchmark: file (NULL or "default": the small GPT of TG_BENCH_DEFAULT;
 * "middle": that of TG_BENCH_MIDDLE), then key=value words. A
 * batch size among the words is one micro-batch unless train.micro_batches is among them too: the file's cut
 * belongs to the file's batch. *misused: a word is wrong, not the file. Checked for the ranks of the world
 * that is open, or one. */
teng_status tg_bench_config(const char *path, const char *const *words, int n_words, bool *misused,
                            tg_config **out);
extern const char *const TG_BENCH_DEFAULT; /* 0.8M parameters, 12 sequences of 64 */
extern const char *const TG_BENCH_MIDDLE;  /* 11M parameters, 4 sequences of 128 */

/* A training that is ready to make steps on drawn tokens. Several may be open, to be measured in turn. */
typedef struct tg_bench_step tg_bench_step;
/* cfg is borrowed until close. With the ranks of a world that is open (tg_comm_current) all of them call. */
teng_status tg_bench_step_open(const tg_config *cfg, tg_bench_step **out);
void tg_bench_step_close(tg_bench_step **step);
/* Makes n steps; their times are kept when `timed`. TENG_INTERRUPTED before the next one after
 * tg_bench_stop. */
teng_status tg_bench_step_run(tg_bench_step *step, int64_t n, bool timed);
/* May be called from a signal handler: what makes steps ends, and removes what it made. Holds for the
 * process. */
void tg_bench_stop(void);
bool tg_bench_stopped(void); /* and the error is pending */
/* Bytes that the steps hold: planned, or in PYNATIVE what parameters, states and values took at most. */
uint64_t tg_bench_step_bytes(tg_bench_step *step);
/* The training itself, for measurements around it (bench_checkpoint.c). */
struct tg_core *tg_bench_step_core(tg_bench_step *step);
/* Measures the rate of products in the dtype of this configuration, now. The median of all calls counts: what
 * the machine gave while the steps were made. */
teng_status tg_bench_step_peak(tg_bench_step *step);
typedef struct tg_bench_step_figures {
    tg_bench_stat step_ms;
    double tokens_per_s, steps_per_s; /* of the median step */
    double flops_per_token, gflops;   /* achieved */
    double matmul_peak_gflops, mfu;   /* 0: the peak was not measured */
    double matmul_best_gflops;        /* of the fastest single product */
    uint64_t peak_rss_bytes;          /* of this process, up to the last step */
    uint64_t base_rss_bytes;          /* resident before the model was made: program, libraries */
    uint64_t planned_bytes;           /* 0: PYNATIVE plans nothing */
    double startup_ms;                /* start of the process to the end of this step's first */
    double load_ms, model_ms, plan_ms,
        init_ms;          /* parts of it: until open, cells and device, trace to plan, … */
    double first_step_ms; /* … initial weights, and the first step with its memory */
    double first_step_at; /* tg_clock_seconds() at its end */
    double wait_ms;       /* a step's median wait for its batch */
    double first_loss, last_loss;
    int64_t tokens_per_step, parameters, micro_batches, dropped; /* dropped: steps that were not finite */
    int threads;
    const char *mode, *precision,
        *dtype; /* "graph" or "pynative"; "O0" …; of products: "f32", "bf16", "f16" */
    int ranks;
    double communication_ms, exposed_ms; /* of a step, rank 0; exposed: computation waited */
    uint64_t sent[1 << TG_AXES];         /* bytes of all timed steps by axes (tg_comm_bytes), rank 0 */
} tg_bench_step_figures;
tg_bench_step_figures tg_bench_step_get(tg_bench_step *step);
/* All figures, as members; new reference. */
json_t *tg_bench_step_json(const tg_config *cfg, const tg_bench_step_figures *figures);
typedef struct tg_bench_step_options {
    int64_t steps, warmup;
    bool peak; /* measure the rate of products, after warmup, between long steps and after the last one */
} tg_bench_step_options;
/* Open, warmup, steps, close. */
teng_status tg_bench_step_measure(const tg_config *cfg, const tg_bench_step_options *options,
                                  tg_bench_step_figures *out);

/* ---- levers (bench_levers.c) ---- */
typedef struct tg_bench_levers_options {
    const char *config; /* NULL: two models, of 0.8 and 11 M parameters */
    const char *const *words;
    int n_words;
    const char *const *only; /* names of levers; none: all of them */
    int n_only;
    const char
        *dir; /* a new folder in here holds drawn tokens, runs and what is offloaded; removed at the end */
    int64_t steps;  /* of each side, in turn */
    double seconds; /* spent on each lever at least: small models make more steps */
    void (*progress)(void *user, const char *what);
    void *user;
} tg_bench_levers_options;
/* "levers": name, model, baseline and with ({"words", "step_ms", "memory_bytes"}; null: not measured),
 * speedup (baseline ÷ with, of the medians), speedup_pairs (of one step each), memory_ratio (with ÷
 * baseline), article (what it claims), note. */
teng_status tg_bench_levers(const tg_bench_levers_options *options, json_t **out);

/* A run's own loop on a file of drawn tokens (bench_loop.c): loader, prefetch, data sink and metrics are what
 * they are in a training; no console, evaluation or checkpoint. Several may be open. */
typedef struct tg_bench_loop tg_bench_loop;
/* cfg is borrowed until close; its data, run folder and number of steps are set here. All files go to dir. */
teng_status tg_bench_loop_open(tg_config *cfg, const char *dir, tg_bench_loop **out);
void tg_bench_loop_close(tg_bench_loop **loop);
/* n steps, and all that is written of them. */
teng_status tg_bench_loop_run(tg_bench_loop *loop, int64_t n);

/* ---- ranks (bench_ranks.c) ---- */
struct tg_comm;
/* Latency and bandwidth of all pairs of the world, versions, hosts, clocks. Collective; *out is the answer on
 * rank 0, NULL on the others. */
teng_status tg_bench_ranks(struct tg_comm *comm, json_t **out);

/* ---- others: each answers with an object ---- */
typedef struct tg_bench_tokenizer_options {
    const char *tokenizer; /* NULL: one is trained on the text */
    const char *file;      /* NULL: a text is drawn */
    uint64_t seed, drawn_bytes;
    int64_t passes;
    uint32_t train_vocab; /* 0: training is not measured */
} tg_bench_tokenizer_options;
/* bytes, tokens, vocab_size, ids_hash (XXH3 of the ids as 32-bit little-endian numbers), encode_s with
 * spread, mb_per_s; train_s, train_mb_per_s, train_vocab. Uses the OpenMP threads now set. */
teng_status tg_bench_tokenizer(const tg_bench_tokenizer_options *options, json_t **out);

typedef struct tg_bench_checkpoint_options {
    const char *dir; /* checkpoints go to a new folder in here, removed at the end */
    int64_t saves;
} tg_bench_checkpoint_options;
/* step_ms without a save; stall_ms (what a save keeps the loop) and stall_share of a step, the first save,
 * which gets memory for its copy, apart as first_stall_ms; step_ms_while_writing; bytes, write_gb_s
 * (background), disk_gb_s (plain write and fsync of as many). */
teng_status tg_bench_checkpoint(const tg_config *cfg, const tg_bench_checkpoint_options *options,
                                json_t **out);

typedef struct tg_bench_startup_options {
    const char *config;       /* NULL: the default model */
    const char *const *words; /* key=value */
    int n_words;
    int64_t runs;
} tg_bench_startup_options;
/* startup_ms from the start of a process of this program to the end of its first step, and its parts. */
teng_status tg_bench_startup(const tg_bench_startup_options *options, json_t **out);

typedef struct tg_bench_generate_options {
    const char *model_dir; /* NULL: initial weights of cfg's model */
    const tg_config *cfg;
    teng_dtype dtype; /* of cfg's weights: TENG_F32, TENG_BF16, TENG_F16; arithmetic is f32 */
    int64_t prompt_tokens, tokens, passes;
    const char *device;
    int threads;
} tg_bench_generate_options;
/* tokens_per_s of one sequence, prompt_s, weight_bytes_per_token, read_gb_s (memory, measured in the same
 * process) and bandwidth_share. */
teng_status tg_bench_generate(const tg_bench_generate_options *options, json_t **out);

#endif
