/*
 * A step on many ranks: its graph is built as for one, and becomes this rank's here. What the store must hold
 * follows from the same walk: that of the training plan, or, in pynative and for a pipeline,
 * over a graph that nobody runs.
 */
#include "base/fail.h"
#include "train/step_pipeline.h"

teng_status tg_step_split(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, tg_graph **g,
                          tg_parallel **out)
{
    *out = NULL;
    if (!s->options.parallel) return TENG_OK;
    tg_parallel_options o = s->split;
    tg_graph *whole = *g;
    o.batch = shapes->in_name;
    o.n_batch = kind == TG_STEP_FORWARD ? shapes->n_in - 1 : shapes->n_in;
    /* A pipeline adds up in accumulators, be it one micro-batch. */
    o.micro_batches = s->pipe && s->options.micro_batches < 2 ? 2 : s->options.micro_batches;
    if (s->pipe) o.fusion = 0; /* sums of several stages must not become one: each stage fuses its own */
    if (s->pipe && kind == TG_STEP_TRAIN) TG_TRY(tg_step_pipe_deal(s, whole));
    *g = NULL;
    return tg_parallel_apply(whole, &o, g, out);
}

/* Of a training graph that nobody runs. */
static teng_status make_layout(tg_step *s, const tg_step_feed *shapes)
{
    tg_graph *g = tg_graph_create("layout");
    if (!g) return TENG_MEMORY;
    teng_status status = tg_step_build_whole(s, shapes, TG_STEP_TRAIN, g);
    if (status == TENG_OK) status = tg_step_split(s, shapes, TG_STEP_TRAIN, &g, &s->layout);
    if (status == TENG_OK && s->pipe) {
        status = tg_step_pipe_keep_own(s, g, s->layout);
        g = NULL;
    }
    tg_graph_destroy(&g);
    return status;
}

teng_status tg_step_layout(tg_step *s, const tg_step_feed *shapes, const tg_parallel **out)
{
    *out = NULL;
    if (!s->options.parallel) return TENG_OK;
    if (!s->options.pynative && !s->pipe) {
        const tg_plan *plan;
        TG_TRY(tg_step_plan(s, shapes, true, &plan));
        *out = tg_step_parallel(s, plan);
        return TENG_OK;
    }
    if (!s->layout) TG_TRY(make_layout(s, shapes));
    *out = s->layout;
    return TENG_OK;
}
