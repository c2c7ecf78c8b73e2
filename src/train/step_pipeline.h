/* A step on the stages of a pipeline (step_pipeline.c, step_stage.c): what the rest of a step asks of it. */
#ifndef TG_TRAIN_STEP_PIPELINE_H
#define TG_TRAIN_STEP_PIPELINE_H

#include "parallel/pipe_cut.h"
#include "train/step.h"

/* One of this stage's pieces. */
typedef struct tg_pipe_piece {
    int piece;
    tg_plan *plan;
    int slots;
    tg_exec **exec; /* [slots]: micro-batch m runs in slot m % slots */
    int n_in;       /* graph inputs that the host feeds, and the first phase that reads each */
    const char **in_name;
    tg_phase *in_phase;
} tg_pipe_piece;
/* The stage's graphs for one kind of step and one set of input shapes. */
typedef struct tg_pipe_program {
    tg_step_kind kind;
    int n_in;
    teng_desc *in;
    tg_pipe_cut *cut;
    tg_parallel *parallel;
    tg_pipe_piece *pieces; /* [chunks] */
    tg_plan *update_plan;  /* TRAIN */
    tg_exec *update;
} tg_pipe_program;

struct tg_step_pipe {
    tg_pipe_kind kind;
    int stages, stage, chunks;
    tg_pipe_layers *layers; /* made of the first training graph */
    tg_pipe_schedule *schedule;
    tg_exec_block **slots; /* [chunks][most] */
    int most;
    TG_VEC(tg_pipe_program *) programs;
};

/* NULL where options.parallel has no pipeline. */
teng_status tg_step_pipe_create(tg_step *s);
void tg_step_pipe_destroy(tg_step *s);
/* Deals out the layers of a whole training graph, once. */
teng_status tg_step_pipe_deal(tg_step *s, const tg_graph *whole);
/* Takes the entries of other stages out of a layout of g, this rank's graph. */
teng_status tg_step_pipe_keep_own(tg_step *s, tg_graph *g, tg_parallel *layout);
/* Made when absent; bind: ready to run. */
teng_status tg_step_pipe_program(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, bool bind,
                                 tg_pipe_program **out);

/* Bytes of this stage: parameters, states, block and slots. */
size_t tg_step_pipe_bytes(const tg_step *s, const tg_pipe_program *program);

teng_status tg_step_pipe_train(tg_step *s, int64_t step, double lr, const tg_step_feed *feeds,
                               tg_step_result *out);
/* The loss, or of FORWARD the root's value, on every stage. */
teng_status tg_step_pipe_forward(tg_step *s, const tg_step_feed *feed, tg_step_kind kind, void *out,
                                 size_t bytes);
/* Forward and backward of one micro-batch alone, for a watch that counts in *order: it is set before each
 * piece, so that nodes are in one order over all stages. */
teng_status tg_step_pipe_passes(tg_step *s, int64_t step, int64_t m, const tg_step_feed *feed,
                                tg_node_watch *watch, void *user, int64_t *order);
/* Stages, pieces, schedule, forecast; the picture. Every figure of a training micro-batch of these shapes. */
teng_status tg_step_pipe_print(tg_step *s, const tg_step_feed *shapes, tg_strbuf *out);
teng_status tg_step_pipe_svg(tg_step *s, const tg_step_feed *shapes, tg_strbuf *out);

#endif
