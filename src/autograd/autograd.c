/*
 * Reverse walk over the nodes of a graph. A node is visited when all its consumers have been, because program
 * order is a topological order; only nodes between wrt and loss are visited.
 */
#include "autograd/autograd.h"

#include "base/fail.h"
#include "teng/ops.h"

#include <string.h>

typedef struct walk {
    tg_graph *g;
    size_t n_values;       /* when the walk began */
    unsigned char *wanted; /* by value id: the gradient of this value is needed */
    teng_tensor **grad;    /* by value id */
} walk;

/* Adds a contribution to a value's gradient. */
static teng_status contribute(walk *w, const teng_tensor *v, teng_tensor *grad)
{
    teng_tensor **slot = &w->grad[v->id];
    if (*slot && (*slot)->desc.dtype != grad->desc.dtype) { /* one of them was summed in f32 */
        *slot = teng_cast_at((teng_src){0}, *slot, TENG_F32);
        grad = teng_cast_at((teng_src){0}, grad, TENG_F32);
    }
    *slot = *slot ? teng_add_at((teng_src){0}, *slot, grad) : grad;
    return *slot ? TENG_OK : teng_error_status();
}

static teng_status visit(walk *w, tg_node *node, teng_tensor **in_grad, bool *need)
{
    teng_tensor *out_grad[TENG_MAX_OUT];
    bool flows = false;
    for (int o = 0; o < node->n_out; o++) {
        out_grad[o] = w->grad[node->out[o]->id];
        flows = flows || out_grad[o];
    }
    bool any = false;
    for (int i = 0; i < node->n_in; i++) {
        need[i] = w->wanted[node->in[i]->id];
        in_grad[i] = NULL;
        any = any || need[i];
    }
    if (!flows || !any) return TENG_OK;
    tg_trace *trace = tg_trace_current();
    trace->scope = node->scope;
    trace->frame = node->frame;
    if (!node->op->grad) {
        tg_fail(TENG_UNSUPPORTED, "%s has no gradient: %s", node->op->name, node->op->no_grad);
    } else {
        teng_grad_ctx ctx = {.attr = node->attr,
                             .n_in = node->n_in,
                             .n_out = node->n_out,
                             .in = node->in,
                             .out = node->out,
                             .out_grad = out_grad,
                             .need = need,
                             .in_grad = in_grad};
        if (node->op->grad(&ctx) != TENG_OK && teng_error_status() == TENG_OK)
            tg_fail(TENG_STATE, "the gradient rule failed without a message");
    }
    if (teng_error_status() != TENG_OK) {
        tg_strbuf where = {0};
        tg_node_where(node, &where);
        tg_fail_context("backward of %s", tg_strbuf_str(&where));
        tg_strbuf_free(&where);
        return teng_error_status();
    }
    for (int i = 0; i < node->n_in; i++)
        if (need[i] && in_grad[i]) TG_TRY(contribute(w, node->in[i], in_grad[i]));
    return TENG_OK;
}

/* A value is wanted when it is one of wrt or is computed from a wanted one. Returns the widest operand list.
 */
static int mark_wanted(walk *w, size_t n_nodes, teng_tensor *const *wrt, int n)
{
    int widest = 1;
    for (int i = 0; i < n; i++)
        w->wanted[wrt[i]->id] = 1;
    for (size_t k = 0; k < n_nodes; k++) {
        const tg_node *node = w->g->nodes.data[k];
        bool any = false;
        if (node->n_in > widest) widest = node->n_in;
        for (int i = 0; i < node->n_in && !any; i++)
            any = w->wanted[node->in[i]->id];
        for (int o = 0; any && o < node->n_out; o++)
            w->wanted[node->out[o]->id] = 1;
    }
    return widest;
}

teng_status tg_autograd_backward(tg_graph *g, teng_tensor *loss, teng_tensor *seed, teng_tensor *const *wrt,
                                 int n, teng_tensor **grads)
{
    if (!loss) return tg_fail(TENG_INVALID, "backward: the loss is NULL");
    if (loss->desc.ndim != 0 || loss->desc.dtype != TENG_F32)
        return tg_fail(TENG_INVALID, "backward: the loss must be an f32 scalar (reduce it with teng_mean)");
    walk w = {.g = g, .n_values = g->values.len};
    const size_t n_nodes = g->nodes.len;
    tg_trace trace;
    tg_trace_begin(&trace, g);
    trace.phase = TG_BACKWARD;
    w.wanted = tg_calloc(w.n_values, sizeof *w.wanted);
    w.grad = tg_calloc(w.n_values, sizeof(teng_tensor *));
    bool *need = NULL;
    teng_tensor **in_grad = NULL;
    teng_status status = w.wanted && w.grad ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) {
        const size_t widest = (size_t)mark_wanted(&w, n_nodes, wrt, n);
        need = tg_alloc(widest * sizeof *need);
        in_grad = tg_alloc(widest * sizeof(teng_tensor *));
        if (!need || !in_grad) status = TENG_MEMORY;
    }
    if (status == TENG_OK) {
        if (!seed) seed = teng_fill_at((teng_src){0}, TENG_F32, (teng_dims){0}, 1.0);
        w.grad[loss->id] = seed;
        if (!seed) status = teng_error_status();
    }
    for (size_t k = n_nodes; k-- > 0 && status == TENG_OK;)
        status = visit(&w, g->nodes.data[k], in_grad, need);
    for (int i = 0; i < n && status == TENG_OK; i++)
        grads[i] = w.grad[wrt[i]->id];
    tg_free(w.wanted);
    tg_free(w.grad);
    tg_free(need);
    tg_free(in_grad);
    tg_trace_end(&trace);
    return status;
}
