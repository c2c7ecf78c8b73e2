/*
 * fuse: operators that follow on another over the same memory become one that goes over it once. It runs when
 * the graph is finished (after recompute), so that it sees what is computed again, and nothing asks the fused
 * operators for a gradient. They round where the single ones did: no bit changes.
 *
 *     add, layer_norm or rms_norm             add_layer_norm, add_rms_norm
 *     layer_norm_grad or rms_norm_grad, add   the gradient with `onto`
 *     embedding_grad, add                     the gradient with `onto`, which touches rows in use alone
 *     f again for backward, f's unary_grad    unary_with_grad
 */
#include "pass/pass_list.h"

#include "base/fail.h"
#include "op/op_list.h"
#include "op/unary/unary.h"
#include "tensor/desc.h"

#include <string.h>

typedef struct work {
    tg_graph *g;
    size_t n;        /* nodes before */
    tg_node **in;    /* by index of a node: the fused node that goes before it, NULL: none */
    size_t *at;      /* by node id: its index */
    size_t *first;   /* by value id: index of its first reader */
    int *readers;    /* by value id; outputs of the graph count */
    tg_node **again; /* by value id: the function of it that the backward phase computes */
    int *changed;
} work;

static const teng_op_spec *const functions[] = {
#define UNARY(name, formula, reads, flops) &tg_op_##name,
#include "op/unary/unary.def"
#undef UNARY
};
/* Whose derivative is a formula of the operand. */
static const bool of_operand[] = {
#define READS_IN true
#define READS_OUT false
#define UNARY(name, formula, reads, flops) READS_##reads,
#include "op/unary/unary.def"
#undef UNARY
};

static int function_of(const teng_op_spec *op)
{
    for (int fn = 0; fn < TG_UNARY_COUNT; fn++)
        if (functions[fn] == op) return of_operand[fn] ? fn : -1;
    return -1;
}

static void look(work *w)
{
    const tg_graph *g = w->g;
    for (size_t k = 0; k < w->n; k++) {
        tg_node *node = g->nodes.data[k];
        w->at[node->id] = k;
        for (int i = 0; i < node->n_in; i++)
            if (!w->readers[node->in[i]->id]++) w->first[node->in[i]->id] = k;
        if (node->phase == TG_BACKWARD && function_of(node->op) >= 0) w->again[node->in[0]->id] = node;
    }
    for (size_t i = 0; i < g->outputs.len; i++)
        w->readers[g->outputs.data[i].value->id]++;
}

/* The value is there before node k runs, now that some nodes stand elsewhere. */
static bool there_before(const work *w, teng_tensor *v, size_t k)
{
    v = tg_value_resolve(v);
    return !v->node || w->at[v->node->id] < k;
}

/* The operator in the place of node k, with the scope and phase of `like`; its outputs replace. */
static teng_status put(work *w, size_t k, const teng_op_spec *op, const void *attr, int n_in,
                       teng_tensor *const *in, tg_node *like, tg_node **out)
{
    teng_tensor *now[8];
    for (int i = 0; i < n_in; i++)
        now[i] = tg_value_resolve(in[i]);
    *out = tg_graph_append(w->g, op, attr, n_in, now, like->scope, like->frame, like->phase);
    if (!*out) return teng_error_status();
    (*out)->recomputed = like->recomputed;
    w->in[k] = *out;
    w->at[(*out)->id] = k;
    ++*w->changed;
    return TENG_OK;
}

static void replace(teng_tensor *old, teng_tensor *by)
{
    old->replaced = by;
    old->node->dead = true;
}

/* h = x + r, read by the norm first. */
static teng_status fuse_add_norm(work *w, size_t k, tg_node *norm)
{
    tg_node *add = norm->in[0]->node, *fused;
    const teng_op_spec *op = norm->op == &tg_op_layer_norm ? &tg_op_add_layer_norm : &tg_op_add_rms_norm;
    if (!add || add->op != &tg_op_add || add->dead || add->phase != norm->phase ||
        w->first[norm->in[0]->id] != k || !tg_desc_equal(&add->in[0]->desc, &add->in[1]->desc))
        return TENG_OK;
    teng_tensor *in[4] = {add->in[0], add->in[1], norm->in[1], norm->n_in > 2 ? norm->in[2] : NULL};
    TG_TRY(put(w, k, op, norm->attr, norm->n_in + 1, in, norm, &fused));
    replace(add->out[0], fused->out[0]);
    for (int o = 0; o < norm->n_out; o++)
        replace(norm->out[o], fused->out[o + 1]);
    return TENG_OK;
}

/* A gradient with room for `onto` behind its operands: where it would stand, or -1. */
static bool takes_onto(const tg_node *node)
{
    return node && !node->dead &&
           (node->op == &tg_op_layer_norm_grad || node->op == &tg_op_rms_norm_grad ||
            node->op == &tg_op_embedding_grad) &&
           node->n_in == node->op->max_in - 1;
}

/* The sum of a gradient that nothing else reads and of another value. */
static teng_status fuse_onto(work *w, size_t k, tg_node *add)
{
    for (int i = 0; i < 2; i++) {
        tg_node *grad = add->in[i]->node, *fused;
        teng_tensor *onto = add->in[1 - i], *in[8];
        if (!takes_onto(grad) || add->in[i]->index != 0 || w->readers[add->in[i]->id] != 1 ||
            grad->phase != add->phase || !tg_desc_equal(&onto->desc, &add->in[i]->desc))
            continue;
        /* Norms give more than dx, which others may read at once. */
        const size_t place = grad->n_out == 1 ? k : w->at[grad->id];
        if (place != k && !there_before(w, onto, place)) continue;
        for (int j = 0; j < grad->n_in; j++)
            in[j] = grad->in[j];
        in[grad->n_in] = onto;
        TG_TRY(put(w, place, grad->op, grad->attr, grad->n_in + 1, in, grad, &fused));
        replace(add->out[0], fused->out[0]);
        for (int o = 0; o < grad->n_out; o++)
            replace(grad->out[o], fused->out[o]);
        return TENG_OK;
    }
    return TENG_OK;
}

/* f computed again where dy is there already. */
static teng_status fuse_function(work *w, tg_node *grad)
{
    const tg_unary_attr *attr = grad->attr;
    tg_node *again = w->again[grad->in[0]->id], *fused;
    if (!again || again->dead || again->phase != grad->phase || again->op != functions[attr->fn] ||
        !of_operand[attr->fn] || w->in[w->at[again->id]] || !there_before(w, grad->in[1], w->at[again->id]))
        return TENG_OK;
    TG_TRY(put(w, w->at[again->id], &tg_op_unary_with_grad, attr, 2, grad->in, grad, &fused));
    replace(grad->out[0], fused->out[0]);
    replace(again->out[0], fused->out[1]);
    return TENG_OK;
}

static teng_status fuse_node(work *w, size_t k)
{
    tg_node *node = w->g->nodes.data[k];
    if (node->op == &tg_op_layer_norm || node->op == &tg_op_rms_norm) return fuse_add_norm(w, k, node);
    if (node->op == &tg_op_add && node->phase == TG_BACKWARD && !node->dead) return fuse_onto(w, k, node);
    if (node->op == &tg_op_unary_grad) return fuse_function(w, node);
    return TENG_OK;
}

/* Fused nodes, which were appended, go before the node whose place they have. */
static teng_status arrange(work *w)
{
    tg_graph *g = w->g;
    tg_node **old = tg_alloc((w->n + 1) * sizeof *old);
    if (!old) return TENG_MEMORY;
    memcpy(old, g->nodes.data, w->n * sizeof *old);
    g->nodes.len = 0;
    bool room = true;
    for (size_t k = 0; k < w->n && room; k++) {
        if (w->in[k]) room = tg_vec_push(&g->nodes, w->in[k]);
        room = room && tg_vec_push(&g->nodes, old[k]);
    }
    tg_free(old);
    return room ? TENG_OK : TENG_MEMORY;
}

teng_status tg_pass_fuse(tg_graph *g, int *changed)
{
    const size_t n = g->nodes.len, values = g->values.len + 1;
    work w = {.g = g,
              .n = n,
              .in = tg_calloc(n + 1, sizeof *w.in),
              .at = tg_calloc((size_t)g->next_node + n + 1, sizeof *w.at),
              .first = tg_calloc(values, sizeof *w.first),
              .readers = tg_calloc(values, sizeof *w.readers),
              .again = tg_calloc(values, sizeof *w.again),
              .changed = changed};
    teng_status status = TENG_MEMORY;
    if (w.in && w.at && w.first && w.readers && w.again) {
        status = TENG_OK;
        look(&w);
        for (size_t k = 0; k < n && status == TENG_OK; k++)
            status = fuse_node(&w, k);
        if (status == TENG_OK) status = arrange(&w);
    }
    tg_free(w.in);
    tg_free(w.at);
    tg_free(w.first);
    tg_free(w.readers);
    tg_free(w.again);
    return status;
}
