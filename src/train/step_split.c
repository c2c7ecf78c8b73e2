/*
 * A step on many ranks: its graph is built as for one, and becomes this rank's here. What the store must hold
 * follows from the same walk over a training graph that nobody runs.
 */
#include "base/fail.h"
#include "train/step.h"

teng_status tg_step_split(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, tg_graph **g,
                          tg_parallel **out)
{
    *out = NULL;
    if (!s->options.parallel) return TENG_OK;
    tg_parallel_options o = s->split;
    tg_graph *whole = *g;
    o.batch = shapes->in_name;
    o.n_batch = kind == TG_STEP_FORWARD ? shapes->n_in - 1 : shapes->n_in;
    o.micro_batches = s->options.micro_batches;
    *g = NULL;
    return tg_parallel_apply(whole, &o, g, out);
}

/* g is taken over. */
static teng_status make_layout(tg_step *s, const tg_step_feed *shapes, tg_graph *g, tg_parallel **out)
{
    teng_tensor *value, *norm;
    int n = 0;
    const tg_optim_options optim = tg_step_optim(s);
    teng_status status = tg_step_build(s, g, shapes, TG_STEP_TRAIN, NULL, NULL, &value, &n);
    if (status == TENG_OK) status = tg_graph_output(g, "loss", value);
    if (status == TENG_OK) status = tg_optim_update(g, &optim, s->work, n, &norm);
    if (status == TENG_OK) status = tg_graph_output(g, "grad_norm", norm);
    if (status == TENG_OK) status = tg_step_split(s, shapes, TG_STEP_TRAIN, &g, out);
    tg_graph_destroy(&g);
    return status;
}

teng_status tg_step_layout(tg_step *s, const tg_step_feed *shapes, const tg_parallel **out)
{
    *out = NULL;
    if (!s->options.parallel) return TENG_OK;
    if (!s->layout) {
        tg_graph *g = tg_graph_create("layout");
        if (!g) return TENG_MEMORY;
        TG_TRY(make_layout(s, shapes, g, &s->layout));
    }
    *out = s->layout;
    return TENG_OK;
}
