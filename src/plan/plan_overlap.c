/*
 * Collectives beside computation: one that is not needed at once is begun where it stands and awaited before
 * the first step that touches what it gives, or overwrites what it takes. Meanwhile its operands and
 * workspace keep their places. One whose result the next computation needs runs in its place: beside would
 * only cost.
 *
 * They end in the order in which they begin, so that a step waits for one, the last. Not here: moving a
 * collective to an earlier place (parallel).
 */
#include "plan/plan_impl.h"

#include "base/mem.h"

static void earlier(int *at, int step)
{
    if (step < *at) *at = step;
}

static void hold(struct tg_plan_builder *b, const tg_node *node, int join)
{
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const teng_tensor *v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        int *last = &b->last_use[tg_plan_root(b, v->id)];
        if (*last < join) *last = join;
    }
}

/* Where phases run by turns with those of other micro-batches, all is awaited at the end of one. */
static int last_of_run(const tg_plan *plan, tg_phase phase, int join)
{
    const int end = (int)plan->phase_begin[phase + 1] - 1;
    return plan->options.slots > 0 && join > end ? end : join;
}

/* The step at which collective k must be done: next_touch, next_write by root id, of the steps behind it. */
static int find_join(const struct tg_plan_builder *b, const tg_node *node, const int *next_touch,
                     const int *next_write)
{
    int join = (int)b->plan->graph->nodes.len;
    for (int o = 0; o < node->n_out; o++)
        earlier(&join, next_touch[tg_plan_root(b, node->out[o]->id)]);
    for (int i = 0; i < node->n_in; i++)
        earlier(&join, next_write[tg_plan_root(b, node->in[i]->id)]);
    return join;
}

teng_status tg_plan_overlap(struct tg_plan_builder *b)
{
    const tg_graph *g = b->plan->graph;
    tg_plan_step *steps = b->plan->steps.data;
    const int n = (int)g->nodes.len;
    int *next_touch = tg_alloc(sizeof(int) * (g->values.len + 1));
    int *next_write = tg_alloc(sizeof(int) * (g->values.len + 1));
    teng_status status = next_touch && next_write ? TENG_OK : TENG_MEMORY;
    for (size_t v = 0; status == TENG_OK && v < g->values.len; v++)
        next_touch[v] = next_write[v] = n;
    int computes = n; /* the next step that computes */
    for (int k = n - 1; k >= 0 && status == TENG_OK; k--) {
        const tg_node *node = g->nodes.data[k];
        if (node->op->traits & TENG_OP_COMMUNICATES) {
            const int join = find_join(b, node, next_touch, next_write);
            if (computes < join) {
                steps[k].join = join;
                hold(b, node, last_of_run(b->plan, node->phase, join));
            }
        } else if (!(node->op->traits & TENG_OP_VIEW)) {
            computes = k;
        }
        if (node->op->traits & TENG_OP_VIEW) continue; /* touches nothing by itself */
        for (int i = 0; i < node->n_in; i++)
            next_touch[tg_plan_root(b, node->in[i]->id)] = k;
        for (int o = 0; o < node->n_out; o++) {
            const int r = tg_plan_root(b, node->out[o]->id);
            next_touch[r] = next_write[r] = k;
        }
    }
    for (int k = 0; k < n && status == TENG_OK; k++)
        if (steps[k].join >= 0 && steps[k].join < n) steps[steps[k].join].waits = k; /* the last wins */
    tg_free(next_touch);
    tg_free(next_write);
    return status;
}
