/* Inside of a step: how its graphs are built, shared by compiled and eager execution. */
#ifndef TG_TRAIN_STEP_H
#define TG_TRAIN_STEP_H

#include "eager/eager.h"
#include "exec/exec.h"
#include "optim/optim.h"
#include "pass/recompute.h"
#include "train/trainer.h"

typedef enum tg_step_kind { TG_STEP_TRAIN, TG_STEP_EVAL, TG_STEP_FORWARD, TG_STEP_GRADS } tg_step_kind;

/* A plan for one kind and one set of input shapes, bound and ready. */
typedef struct tg_compiled {
    tg_step_kind kind;
    int n_in;
    teng_desc *in;
    tg_plan *plan;
    tg_exec *exec;
    tg_parallel *parallel; /* how the graph became this rank's; NULL: one rank */
} tg_compiled;

typedef struct tg_step_pipe tg_step_pipe;
struct tg_step {
    teng_cell *root;
    tg_store *store;
    tg_step_options options;
    tg_parallel_options split; /* options.parallel points here, or is NULL */
    tg_parallel *parallel;     /* of the plan that was made last, until its owner takes it */
    tg_step_pipe *pipe;        /* NULL: no pipeline (step_pipeline.h) */
    tg_parallel *layout; /* pynative and pipelines, which have no one plan: NULL until it is asked for */
    int isa;
    const tg_param_info *params;
    size_t n_params;
    tg_optim_param *work; /* [n_params] scratch */
    teng_tensor **wrt, **grads;
    tg_exec_block *block;
    TG_VEC(tg_compiled) compiled;
    tg_eager *eager;
    tg_store *whole;   /* pynative: what the passes read; with ZeRO 3 a store of its own, else store */
    tg_eager *updates; /* pynative of many ranks: the update, on store */
    tg_strbuf report;
    uint64_t dropout_key;
    double loss_scale; /* of the step that runs */
};

/* Traces the root on inputs shaped like the feed and, for TRAIN and GRADS, appends backward (TRAIN also
 * accumulation into persistent gradients when there are several micro-batches). s->work[0 … *n) then holds
 * parameters and gradients, in the order of s->params. *value is the root's value. */
teng_status tg_step_build(tg_step *s, tg_graph *g, const tg_step_feed *shapes, tg_step_kind kind,
                          teng_status (*feed)(void *user, teng_tensor *input, int index), void *user,
                          teng_tensor **value, int *n);
/* With the update of TRAIN and all outputs: the graph of a step, as of one rank. */
teng_status tg_step_build_whole(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, tg_graph *g);
tg_optim_options tg_step_optim(const tg_step *s);
/* The graph of all ranks becomes that of this one (step_split.c); *g is taken over, also on failure. One
 * rank: nothing happens. */
teng_status tg_step_split(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, tg_graph **g,
                          tg_parallel **out);

/* Host values of the inputs that the optimizer and dropout read at optimizer step `step`, micro-batch m. */
void tg_step_scalars(const tg_step *s, int64_t step, double lr, float out[4]);
/* The seed of backward: a micro-batch's weight times the loss scale; and what undoes the scale, NaN for a
 * loss that is not finite: the norm is then NaN too, which drops the update. */
float tg_step_seed(const tg_step *s, double weight);
float tg_step_unscale(const tg_step *s, double loss);
tg_step_result tg_step_result_of(double loss, float norm);
/* GRAPH: the executor of a training micro-batch, compiled if need be and fed. */
teng_status tg_step_ready_micro_batch(tg_step *s, int64_t step, int64_t m, const tg_step_feed *feed,
                                      tg_exec **exec);
void tg_step_rng(const tg_step *s, int64_t step, int64_t m, uint64_t out[2]);

/* Recompute (recompute_fit.c): one way to plan a step, and the search for AUTO's. */
typedef struct tg_recompute_try {
    int moves;                  /* AUTO: how many to take */
    bool any_size;              /* the budget is not held against the plan */
    tg_recompute_result result; /* what came of it */
} tg_recompute_try;
teng_status tg_step_check_recompute(const tg_step_options *options); /* what goes together */
teng_status tg_step_recompute(tg_step *s, tg_graph *g, tg_recompute_try *again);
/* The graph of this rank after all rewrites; s->parallel says how it became that. */
teng_status tg_step_make_graph(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind,
                               tg_recompute_try *again, tg_graph **out);
bool tg_step_same_shapes(const teng_desc *in, int n, const tg_step_feed *feed);
/* Of a plan on the step's device, without a budget. */
tg_plan_options tg_step_plan_options(const tg_step *s);
teng_status tg_step_make_plan(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind,
                              tg_recompute_try *again, tg_plan **out);
/* The rates of this machine, unless they are given; a step that recomputes nothing waits for no measurement.
 */
void tg_step_measure_rates(tg_step_options *options);
/* The training plan with the fewest moves that fits into the budget. */
teng_status tg_step_fit(tg_step *s, const tg_step_feed *shapes, tg_plan **out);

/* Eager twins (step_eager.c). */
teng_status tg_step_eager_train(tg_step *s, int64_t step, double lr, const tg_step_feed *feeds,
                                tg_step_result *out);
/* The forward and backward passes of a training step alone, for a watch. */
teng_status tg_step_eager_passes(tg_step *s, int64_t step, const tg_step_feed *feed, int64_t m);
teng_status tg_step_eager_run(tg_step *s, const tg_step_feed *feed, tg_step_kind kind, void *out,
                              size_t bytes);
teng_status tg_step_eager_grads(tg_step *s, const tg_step_feed *feed, double *loss, float *const *grads);

/* Pynative on data ranks (step_ranks.c): parameters before a pass; gradients and loss, weighted by each
 * rank's share, summed in place; the update of work[n]. */
bool tg_step_is_split(const tg_step *s); /* ZeRO 3 */
teng_status tg_step_gather_params(tg_step *s);
teng_status tg_step_sum_gradients(tg_step *s, int n, double *loss);
teng_status tg_step_update_ranks(tg_step *s, int n, int64_t step, double lr, double loss, float *norm);

#define TG_STEP_WEIGHT "loss.weight" /* f32[]: weight of the micro-batch, the seed of backward */
#define TG_STEP_RNG "rng"

#endif
