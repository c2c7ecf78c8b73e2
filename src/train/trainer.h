/*
 * The trainer: the flow spelled out. Builds the step (model → graph → autograd → passes → plan → exec, or the
 * eager short way), feeds it, keeps the books (schedule, cursor, metrics), saves and resumes. The program's
 * commands and the public teng_model_train both stand on it.
 */
#ifndef TG_TRAIN_TRAINER_H
#define TG_TRAIN_TRAINER_H

#include "base/json.h"
#include "config/config.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "device/cpu_info.h"
#include "device/store.h"
#include "nn/cell.h"
#include "parallel/pipe_schedule.h"
#include "parallel/rank_graph.h"
#include "plan/plan.h"
#include "train/loss_scale.h"

/* ---- one step: compiled plans or eager execution behind one door (train/step.c) ---- */
typedef struct tg_step tg_step;
typedef struct tg_step_options {
    bool pynative;
    tg_cfg_optimizer optimizer;
    double beta1, beta2, eps, weight_decay, momentum, clip_norm;
    bool nesterov, decay_norms, decay_biases, decay_embeddings;
    int64_t micro_batches;
    const char *const *passes; /* as graph.passes */
    size_t n_passes;
    size_t memory_budget;
    tg_cfg_recompute recompute;
    const char *const *recompute_layers; /* as memory.recompute_layers */
    size_t n_recompute_layers;
    unsigned offload;         /* tg_offload */
    const char *offload_path; /* folder; borrowed until the step is destroyed */
    uint64_t seed;
    double flops_per_s, bytes_per_s; /* of this machine, for the plan's forecast; 0: none */
    bool no_dropout;                 /* train without it, as reference values were made */
    teng_precision precision;        /* its patterns are borrowed */
    tg_loss_scale_options loss_scale;
    /* Many ranks: mesh, rank and how tensors are split; inputs and micro_batches are the step's own. Borrowed
     * until the step is created. NULL: one rank. No communicator is needed to plan. */
    const tg_parallel_options *parallel;
    tg_pipe_kind pipe_kind; /* where parallel has a pipeline */
    int pipe_chunks;        /* pieces a stage; 0: one */
} tg_step_options;
/* What products of these options' dtype reach at most, FLOP/s. */
double tg_step_peak_flops(const tg_step_options *options, const tg_cpu_peak *peak);
typedef struct tg_step_feed { /* one micro-batch; host memory */
    const teng_desc *in_desc; /* [n_in] of all ranks together (pynative: of this rank) */
    const void *const *in;    /* this rank's part of it */
    const char *const *in_name;
    int n_in;
    double weight; /* of this micro-batch's mean loss in the step's loss: its valid labels / the step's */
} tg_step_feed;
typedef struct tg_step_result {
    double loss; /* Σ weight · loss, rounded to float */
    double grad_norm;
    bool finite, loss_finite; /* all; the forward pass alone */
} tg_step_result;
/* root and store are borrowed. Planning touches no parameter: the store gets entries when a step first runs.
 */
teng_status tg_step_create(teng_cell *root, tg_store *store, const tg_step_options *options, tg_step **out);
void tg_step_destroy(tg_step **step);
/* One optimizer step number `step` (from 1, for bias correction and dropout) over feeds[micro_batches]. A
 * loss or norm that is not finite leaves parameters and states as they were: result->finite is false.
 * Backward starts from loss_scale (1: none), which the update divides out of gradients and norm. */
teng_status tg_step_train(tg_step *s, int64_t step, double lr, double loss_scale, const tg_step_feed *feeds,
                          tg_step_result *out);
/* Forward only, no dropout: the loss of one batch; with logits (host f32, the size of the root's value) when
 * loss is NULL the root is called without its last operand. */
teng_status tg_step_eval(tg_step *s, const tg_step_feed *feed, double *loss);
teng_status tg_step_forward(tg_step *s, const tg_step_feed *feed, float *out, size_t out_bytes);
/* The loss of one batch without dropout and its gradients, of every parameter in the order of tg_nn_params:
 * grads[i] is host f32, times loss_scale, zeros where the loss does not depend on the parameter. Nothing is
 * updated. */
teng_status tg_step_grads(tg_step *s, const tg_step_feed *feed, double loss_scale, double *loss,
                          float *const *grads);
/* The plan for these input shapes (made when absent), for listings; train or eval. NULL in pynative. */
teng_status tg_step_plan(tg_step *s, const tg_step_feed *shapes, bool training, const tg_plan **out);
/* Where parameters and states lie on the mesh: what the store of this rank holds. Made for these shapes when
 * it is first asked for; NULL for one rank. */
teng_status tg_step_layout(tg_step *s, const tg_step_feed *shapes, const tg_parallel **out);
/* What became of the plan's graph on this rank (tg_step_plan has made it); NULL for one rank. */
const tg_parallel *tg_step_parallel(const tg_step *s, const tg_plan *plan);
/* Told of each node that steps run from now on (borrowed); NULL: none, and steps pay nothing. */
void tg_step_probe(tg_step *s, const tg_probe *probe);
/* Text of each pass run when that plan was made: "name: what it changed". */
const char *tg_step_pass_report(const tg_step *s);

/* ---- schedule (train/schedule.c): learning rate of step 1 … steps ---- */
typedef struct tg_schedule {
    tg_cfg_schedule kind;
    double lr, min_lr_ratio;
    int64_t steps, warmup_steps, decay_steps; /* decay_steps: wsd only */
} tg_schedule;
double tg_schedule_at(const tg_schedule *schedule, int64_t step);
double tg_schedule_lr(const tg_config *cfg, int64_t step); /* of the configuration's schedule */

/* ---- a run (train/run.c) ---- */
typedef struct tg_run tg_run;
typedef enum tg_run_event_kind {
    TG_RUN_STARTED,
    TG_RUN_STEP,
    TG_RUN_EVAL,
    TG_RUN_SAVED,
    TG_RUN_SAVE_FAILED,
    TG_RUN_SAMPLE,
    TG_RUN_NOTE,
    TG_RUN_DONE
} tg_run_event_kind;
typedef struct tg_run_event { /* what a run tells its owner; strings valid during the call */
    tg_run_event_kind kind;
    int64_t step, steps;
    double loss, lr, grad_norm, tokens_per_s, mfu, step_ms, seconds_left;
    int64_t tokens;                 /* in this step */
    double val_loss, bits_per_byte; /* EVAL */
    const char *text;               /* NOTE, SAMPLE, SAVED: path, SAVE_FAILED: reason */
} tg_run_event;
/* With data.sink, events of steps come from a thread of their own, in order; never two at a time. */
typedef void tg_run_sink(void *user, const tg_run_event *event);

/* Opens a new run folder: lock, resolved configuration, tokenizer, data, model, initial or loaded weights.
 * Refuses a folder that holds a run (unless run.overwrite). cfg is borrowed until close. */
teng_status tg_run_create(const tg_config *cfg, tg_run **out);
/* Reopens run_dir from its last checkpoint; cfg is read from the folder and owned by the run. overrides:
 * key=value that may change on resume (train.steps, checkpoint.*, context.threads, context.mode,
 * train.log_every …). */
teng_status tg_run_resume(const char *run_dir, const char *const *overrides, size_t n, tg_run **out);
/* Trains to train.steps or until tg_run_stop; saves at the end. TENG_INTERRUPTED after a stop (state saved).
 */
teng_status tg_run_train(tg_run *run, tg_run_sink *sink, void *user);
/* Evaluates on the held-back documents: nats a token and bits a byte. */
teng_status tg_run_eval(tg_run *run, double *loss, double *bits_per_byte);
void tg_run_close(tg_run **run);
/* May be called from a signal handler: the run stops after the current step, saves, returns TENG_INTERRUPTED.
 */
void tg_run_stop(void);
const tg_config *tg_run_config(const tg_run *run);
int64_t tg_run_step(const tg_run *run); /* steps done */
/* Figures for a banner; valid until close. */
const tg_lm_info *tg_run_lm_info(const tg_run *run);
const tg_device_info *tg_run_device_info(const tg_run *run);
/* Plan of a configuration without data or weights: parameters, FLOPs, passes, steps, memory. what: "summary",
 * "graph", "plan", "memory", "casts", "dot", "json", "memory-svg"; of a pipeline "schedule-svg". */
teng_status tg_run_plan_text(const tg_config *cfg, int64_t rank, const char *what, tg_strbuf *out);

/* ---- a model for use (train/generate.c) ---- */
typedef struct tg_lm tg_lm; /* an opened model folder: cells, weights, tokenizer, a forward step */
/* dir: a Hugging Face style folder, or a run folder (its newest checkpoint, or its model/). */
teng_status tg_lm_open(const char *dir, tg_device *dev, tg_lm **out);
void tg_lm_close(tg_lm **lm);
const tg_tokenizer *tg_lm_tokenizer(const tg_lm *lm);
teng_cell *tg_lm_cell(tg_lm *lm);
typedef struct tg_sampling {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
    int64_t max_tokens;
    bool no_cache; /* run the whole text again for each token instead of keeping keys and values */
} tg_sampling;
/* Called with each new piece of text as it comes; false stops. */
typedef bool tg_text_sink(void *user, const char *bytes, size_t n);
teng_status tg_lm_generate(tg_lm *lm, const char *prompt, size_t prompt_len, const tg_sampling *sampling,
                           tg_text_sink *sink, void *user);
typedef struct tg_eval_result {
    double nats_per_token, bits_per_byte, perplexity;
    int64_t tokens, bytes, windows, window_len;
} tg_eval_result;
/* Non-overlapping windows of seq_len tokens (0: the model's max), each token predicted once from its own
 * window. */
teng_status tg_lm_eval(tg_lm *lm, const char *const *files, size_t n, int64_t seq_len, tg_eval_result *out);

#endif
