/*
 * Training: a model is a cell tree (teng/nn.h) with values, an optimizer and a schedule. The same model runs
 * in GRAPH mode (traced, planned, then run) or in PYNATIVE mode (each operator at once, values readable): one
 * option decides. Callbacks watch, save and stop.
 *
 * Not thread-safe: a model belongs to one thread at a time. Nothing here prints, but for the monitors, to the
 * stream they are given.
 *
 * Signals: teng handles none. A handler of the program must not run on the stack of a thread that is within a
 * call of teng, nor of OpenMP's threads: oneDNN's fp32 products for AVX-512 hold the address of a heap block
 * in the stack pointer, and the handler's frame would be written over it. Block the signals before the first
 * call and wait for them in a thread (sigwait), or take them on alternate stacks (SA_ONSTACK, sigaltstack in
 * each of these threads).
 */
#ifndef TENG_TRAIN_H
#define TENG_TRAIN_H

#include "teng/data.h"
#include "teng/nn.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum teng_mode { TENG_GRAPH, TENG_PYNATIVE } teng_mode;
typedef enum teng_optimizer_kind {
    TENG_ADAMW, /* Loshchilov & Hutter 2019: decay decoupled from the gradient */
    TENG_SGD,   /* with momentum */
} teng_optimizer_kind;
typedef enum teng_schedule_kind {
    TENG_CONSTANT,
    TENG_LINEAR,
    TENG_COSINE, /* Loshchilov & Hutter 2017 */
    TENG_WSD,    /* warmup, stable, decay: Hu et al. 2024 */
} teng_schedule_kind;

typedef struct teng_optimizer {
    teng_optimizer_kind kind;
    double beta1, beta2, eps; /* AdamW */
    double momentum;          /* SGD */
    bool nesterov;
    double weight_decay; /* times the learning rate; on weights, and by request on … */
    bool decay_norms, decay_biases, decay_embeddings;
    double clip_norm; /* gradients are scaled down to this global norm; 0 clips nothing */
} teng_optimizer;

typedef struct teng_schedule {
    teng_schedule_kind kind;
    double lr;            /* highest */
    int64_t steps;        /* the fall ends here; 0: the steps of teng_model_train */
    int64_t warmup_steps; /* of linear rise */
    int64_t decay_steps;  /* WSD: the last steps, which fall */
    double min_lr_ratio;  /* at the end, as a share of lr */
} teng_schedule;

/* fp16 only; zeros take the defaults. DYNAMIC (default of fp16): starts at 2^24, an overflow divides it by
 * factor (2) down to minimum (1) and the batch is tried again, window (2000) steps without one multiply it.
 * FIXED: 128. */
typedef enum teng_loss_scale_mode {
    TENG_LOSS_SCALE_DEFAULT, /* dynamic with fp16, else none */
    TENG_LOSS_SCALE_NONE,
    TENG_LOSS_SCALE_FIXED,
    TENG_LOSS_SCALE_DYNAMIC,
} teng_loss_scale_mode;
typedef struct teng_loss_scale {
    teng_loss_scale_mode mode;
    double initial, factor, minimum;
    int64_t window, max_overflows; /* max_overflows: dropped steps in a row that end the training (1000) */
} teng_loss_scale;

/* What the backward pass of GRAPH mode computes again instead of keeping it, bit for bit: the configuration
 * key memory.recompute. AUTO fits the step into memory_budget. */
typedef enum teng_recompute {
    TENG_RECOMPUTE_NONE,
    TENG_RECOMPUTE_SELECTIVE, /* what is cheap, never a product */
    TENG_RECOMPUTE_FULL,      /* all inside a layer: a cell whose name is a number, as in "layers.0" */
    TENG_RECOMPUTE_AUTO
} teng_recompute;

typedef struct teng_model_options {
    teng_mode mode;
    const char *device;    /* "cpu" */
    int threads;           /* 0: every core this process may use */
    uint64_t seed;         /* of initial values and dropout */
    int64_t micro_batches; /* pieces of each batch, their gradients accumulated: less memory, the same step */
    teng_optimizer optimizer;
    teng_schedule schedule;
    teng_precision precision;   /* O0: f32; patterns are borrowed until the model is destroyed */
    teng_loss_scale loss_scale; /* of fp16 */
    size_t memory_budget;       /* bytes; a plan that needs more is refused; 0: no limit */
    teng_recompute recompute;
    const char *const *recompute_layers; /* patterns of paths, borrowed like the above; none: every layer */
    int n_recompute_layers;
    const char
        *offload_optimizer;    /* folder to keep optimizer states in, GRAPH mode; NULL: in memory. Borrowed */
    const char *const *passes; /* of GRAPH mode, as the configuration key graph.passes */
    int n_passes;
} teng_model_options;
/* GRAPH on all cores of the CPU, seed 1; AdamW (0.9, 0.95, 1e-8), decay 0.1 on weights, clip 1; constant
 * 3e-4; the standard passes. */
TENG_API teng_model_options teng_model_options_default(void);

typedef struct teng_model teng_model;
/* net returns its loss, an f32 scalar, when it is called with all inputs of a dataset. It is borrowed:
 * destroy the model first. options may be NULL. NULL on failure. */
TENG_API teng_model *teng_model_create(teng_cell *net, const teng_model_options *options);
TENG_API void teng_model_destroy(teng_model **model);

/* ---- callbacks ---- */
typedef struct teng_train_info { /* a training as callbacks see it */
    teng_model *model;
    teng_dataset *dataset;
    int64_t step, steps;        /* done, by all calls and resumed trainings together; where this call ends */
    double epoch;               /* passes over the data */
    double loss, lr, grad_norm; /* of the last step; grad_norm before clipping */
    bool finite; /* false: loss or gradient was not finite, and the step changed nothing; teng_model_overflow
                    says where; with a dynamic loss scale the step is then tried again and not counted */
    double loss_scale;            /* of the last step; 1 without one */
    int64_t step_tokens, tokens;  /* labels (or rows) trained on: in this step, in all */
    double seconds, tokens_per_s; /* of this step */
    teng_status status;           /* in on_end: how the training ended */
    bool stop;                    /* set it to end the training after this step */
} teng_train_info;

typedef struct teng_callback teng_callback;
/* A status other than TENG_OK ends the training with it. on_end of every callback whose on_begin succeeded is
 * called, however the training ends. Functions may be NULL. */
struct teng_callback {
    teng_status (*on_begin)(teng_callback *self, teng_train_info *info);
    teng_status (*on_step)(teng_callback *self, teng_train_info *info);
    teng_status (*on_end)(teng_callback *self, teng_train_info *info);
    void *user; /* yours */
    /* What the callbacks below are made of. */
    int64_t every;
    int keep_max;
    const char *dir;
    FILE *out;
    void *state;
    double time;
};
/* A line every so many steps (and after the first and last): step, loss, learning rate, gradient norm. out
 * NULL: stdout. */
TENG_API teng_callback teng_loss_monitor(int64_t every, FILE *out);
/* A line every so many steps with milliseconds a step and tokens a second since the last line, and the total
 * at the end. every 0: only that. */
TENG_API teng_callback teng_time_monitor(int64_t every, FILE *out);
/* A checkpoint in dir/step-XXXXXXXX every so many steps (0: none) and at the end: parameters, optimizer
 * state, counters, place in the dataset. Written beside the training; the keep_max newest stay (0: all). A
 * save that fails is a warning in the log and is tried again; only the last one's failure is the training's.
 * dir is borrowed, made when absent, and refused while another process saves to it. */
TENG_API teng_callback teng_checkpoint(const char *dir, int64_t every, int keep_max);

/* ---- what a model does ---- */
/* Trains until the model has made `steps` steps, those before a resume included. Parameters that nothing has
 * loaded get their initial values first. */
TENG_API teng_status teng_model_train(teng_model *model, teng_dataset *dataset, int64_t steps,
                                      teng_callback *callbacks, int n_callbacks);
/* Goes on where the newest checkpoint in dir was: parameters, optimizer, counters, and dataset (may be NULL)
 * at its place. No checkpoint there: nothing happens, teng_model_step tells. Another seed or dataset than the
 * checkpoint's is refused. */
TENG_API teng_status teng_model_resume(teng_model *model, teng_dataset *dataset, const char *dir);
TENG_API int64_t teng_model_step(const teng_model *model); /* steps made */
/* Where the last step that was dropped went wrong: pass, layer, operator, your line, tensor, how many values
 * and the first; "" when none was. Valid until the next step. */
TENG_API const char *teng_model_overflow(const teng_model *model);

typedef struct teng_eval_info {
    double loss;           /* mean over valid labels */
    int64_t tokens, bytes; /* labels that counted; their bytes of text, 0 when not known */
} teng_eval_info;
/* Mean loss over a pass of the dataset, from its beginning, at most max_batches (0: all). The dataset's place
 * is kept. */
TENG_API teng_status teng_model_eval(teng_model *model, teng_dataset *dataset, int64_t max_batches,
                                     teng_eval_info *out);
/* The value of net called with inputs[n] (without labels), no dropout, into out[n_out] floats. */
TENG_API teng_status teng_model_forward(teng_model *model, const teng_input *inputs, const void *const *data,
                                        int n, float *out, int64_t n_out);
/* Copies a parameter, by its full name, to out[n] floats. */
TENG_API teng_status teng_model_read(teng_model *model, const char *name, float *out, int64_t n);
/* path "….safetensors": the parameters alone. Else a folder in Hugging Face's layout, for models made by
 * teng_lm_create, with the tokenizer of dataset (may be NULL): what `teng generate` and other programs read.
 */
TENG_API teng_status teng_model_save(teng_model *model, const char *path, const teng_dataset *dataset);
/* Parameters from a .safetensors file, an index or a folder; each must be there in its shape. */
TENG_API teng_status teng_model_load(teng_model *model, const char *path);

#ifdef __cplusplus
}
#endif
#endif
