/*
 * Schedules of a pipeline as data: for each stage what it does in which order, and the messages that this
 * implies. Pure arithmetic on sizes: no graph, no communication. The model is cut into stages × chunks pieces
 * in the order of its layers; piece k lies on stage k % stages as its chunk k / stages.
 *
 * gpipe: Huang et al. 2019. 1f1b: Narayanan et al. 2019 (PipeDream-Flush). interleaved: Narayanan et al.
 * 2021, "Efficient large-scale language model training", section 2.2. zero_bubble: Qi et al. 2023, "Zero
 * bubble pipeline parallelism", ZB-H1.
 */
#ifndef TG_PARALLEL_PIPE_SCHEDULE_H
#define TG_PARALLEL_PIPE_SCHEDULE_H

#include "base/strbuf.h"
#include "teng/status.h"

#include <stdbool.h>

typedef enum tg_pipe_kind {
    TG_PIPE_1F1B,
    TG_PIPE_GPIPE,
    TG_PIPE_INTERLEAVED,
    TG_PIPE_ZERO_BUBBLE,
    TG_PIPE_KINDS
} tg_pipe_kind;
const char *tg_pipe_kind_name(tg_pipe_kind kind); /* as parallel.schedule */

typedef enum tg_pipe_work {
    TG_PIPE_FORWARD,
    TG_PIPE_BACKWARD,    /* all of it */
    TG_PIPE_INPUT_GRAD,  /* zero_bubble: what the stage before waits for */
    TG_PIPE_WEIGHT_GRAD, /* and the rest */
} tg_pipe_work;
typedef struct tg_pipe_action {
    tg_pipe_work work;
    int micro_batch, chunk;
} tg_pipe_action;

typedef struct tg_pipe_schedule {
    tg_pipe_kind kind;
    int stages, micro_batches, chunks;
    int per_stage;           /* actions of each stage */
    tg_pipe_action *actions; /* [stages][per_stage] */
} tg_pipe_schedule;

/* Errors name the keys parallel.* and train.micro_batches, and why there is no such schedule. In every
 * schedule each chunk sees its micro-batches in their order, forward and backward: sums of gradients are
 * those of one rank. */
teng_status tg_pipe_schedule_make(tg_pipe_kind kind, int stages, int micro_batches, int chunks,
                                  tg_pipe_schedule **out);
void tg_pipe_schedule_destroy(tg_pipe_schedule **schedule);
const tg_pipe_action *tg_pipe_actions(const tg_pipe_schedule *schedule, int stage); /* [per_stage] */

/* Pieces of micro-batches whose activations a stage holds at once (from the forward pass until the last part
 * of the backward pass is over). bound: as the schedule promises; held: counted; chunk -1: of all chunks.
 * gpipe m; 1f1b min(m, p - s); interleaved min(m v, 2 (p - s - 1) + (v - 1) p + 1); zero_bubble min(m, p). */
int tg_pipe_bound(const tg_pipe_schedule *schedule, int stage);
int tg_pipe_held(const tg_pipe_schedule *schedule, int stage, int chunk);

/* Proves it: every piece of every micro-batch once; backward after its forward, weight gradients after input
 * gradients; micro-batches in order; run with receives that wait and sends that are buffered it ends; never
 * more held than the bound. The error says what is wrong where. */
teng_status tg_pipe_check(const tg_pipe_schedule *schedule);

/* Seconds of each piece, the whole backward pass being input_grad + weight_grad. */
typedef struct tg_pipe_cost {
    double forward, input_grad, weight_grad;
} tg_pipe_cost;
typedef struct tg_pipe_times {
    double *begin, *end; /* [stages][per_stage] seconds */
    double step;         /* until all are done */
    double busy;         /* summed over stages */
    double bubble;       /* share of stages × step in which a stage waits */
} tg_pipe_times;
/* Runs the schedule with costs[stages × chunks] of the pieces and `message` seconds from one stage to
 * another. TENG_STATE when it locks. Free with tg_pipe_times_free. */
teng_status tg_pipe_simulate(const tg_pipe_schedule *schedule, const tg_pipe_cost *costs, double message,
                             tg_pipe_times *out);
void tg_pipe_times_free(tg_pipe_times *times);

/* A picture of the simulated step: a row a stage, forward, backward and weight gradients in three colours,
 * micro-batch numbers inside. unit: seconds, false: the costs are relative. */
teng_status tg_pipe_svg(const tg_pipe_schedule *schedule, const tg_pipe_times *times, bool seconds,
                        tg_strbuf *out);

#endif
