/*
 * Nodes that are written otherwise before they are placed: losses, which must know how many labels are valid
 * on all ranks; a product whose sums are partial, whose bias comes after the sum; attention whose keys and
 * values have fewer heads than there are tensor ranks.
 */
#include "parallel/parallel_impl.h"

#include "base/fail.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "op/matmul/matmul.h"
#include "op/reduce/reduce.h"
#include "op/ring_attention/ring_attention.h"
#include "tensor/desc.h"

#include <string.h>

static tg_axis_set batch_axes(const par *p)
{
    return p->split_axes & ~(tg_axis_set)(1u << TG_AXIS_TENSOR);
}

/* ---- losses ---- */
static int labels_of(const teng_op_spec *op)
{
    if (op == &tg_op_cross_entropy || op == &tg_op_cross_entropy_grad) return 1;
    if (op == &tg_op_linear_cross_entropy || op == &tg_op_linear_cross_entropy_grad ||
        op == &tg_op_linear_cross_entropy_with_grad)
        return 2;
    return -1;
}

static teng_tensor *valid_of(par *p, teng_tensor *labels, int64_t ignore_index)
{
    if (p->valid_of == labels && p->ignore_index == ignore_index) return p->valid;
    const tg_placement whole = tg_mesh_replicated();
    const tg_node *count = par_rewrite(p, &tg_op_count_valid, &ignore_index, 1, &labels);
    if (!count || par_settle(p, count->out[0], &whole) != TENG_OK) return NULL;
    p->valid_of = labels;
    p->ignore_index = ignore_index;
    return p->valid = count->out[0];
}

/* Whether the ranks have a piece of the vocabulary each. */
static bool by_vocabulary(par *p, const tg_node *node)
{
    const bool logits = node->op == &tg_op_cross_entropy;
    if (!logits && node->op != &tg_op_linear_cross_entropy &&
        node->op != &tg_op_linear_cross_entropy_with_grad)
        return false;
    const par_value *x = par_of(p, node->in[logits ? 0 : 1]); /* logits, or the weights that make them */
    return p->split_axes >> TG_AXIS_TENSOR & 1u &&
           x->at.on[TG_AXIS_TENSOR] == (logits ? x->whole.ndim - 1 : 0);
}

/* What the ranks along the tensor axis tell each other within linear_cross_entropy_by_vocabulary. */
static teng_status record_rows(par *p, teng_tensor *labels)
{
    tg_node *local = p->g->nodes.data[p->g->nodes.len - 1];
    const int64_t rows = tg_desc_numel(&local->in[2]->desc);
    const double bytes = (p->o->mesh.size[TG_AXIS_TENSOR] - 1) * tg_linear_ce_row_bytes(rows);
    return par_record(p, labels, local, 1u << TG_AXIS_TENSOR, bytes) ? TENG_OK : TENG_MEMORY;
}

static teng_status loss(par *p, const tg_node *node, int labels)
{
    teng_tensor *in[8], *out[TENG_MAX_OUT];
    int n = node->n_in;
    memcpy(in, node->in, sizeof *in * (size_t)n);
    if (batch_axes(p) && n < node->op->max_in) {
        in[n] = valid_of(p, node->in[labels], *(const int64_t *)node->attr);
        if (!in[n++]) return teng_error_status();
    }
    if (by_vocabulary(p, node)) {
        const size_t first = p->global->nodes.len;
        TG_TRY(tg_linear_ce_by_vocabulary(p->global, node, n, in, 1 << TG_AXIS_TENSOR,
                                          p->o->mesh.size[TG_AXIS_TENSOR], out));
        TG_TRY(par_place_from(p, first));
        if (node->op == &tg_op_linear_cross_entropy_with_grad) TG_TRY(record_rows(p, in[2]));
    } else {
        const tg_node *other = par_rewrite(p, node->op, node->attr, n, in);
        if (!other) return teng_error_status();
        memcpy(out, other->out, sizeof *out * (size_t)node->n_out);
    }
    for (int o = 0; o < node->n_out; o++)
        par_replace(p, node->out[o], out[o]);
    return TENG_OK;
}

/* ---- y = x · w + bias with x and w split along the inner dimension ---- */
static bool sums_are_partial(par *p, const tg_node *node)
{
    const tg_matmul_attr *attr = node->attr;
    const par_value *w = par_of(p, node->in[1]);
    return p->split_axes >> TG_AXIS_TENSOR & 1u &&
           w->at.on[TG_AXIS_TENSOR] == w->whole.ndim - (attr->trans_b ? 1 : 2);
}

static teng_status bias_after(par *p, const tg_node *node)
{
    const tg_node *product = par_rewrite(p, node->op, node->attr, 2, node->in);
    if (!product) return teng_error_status();
    teng_tensor *in[] = {product->out[0], node->in[2]};
    if (in[1]->desc.dtype != in[0]->desc.dtype) {
        const int64_t to = in[0]->desc.dtype;
        const tg_node *cast = par_rewrite(p, &tg_op_cast, &to, 1, &in[1]);
        if (!cast) return teng_error_status();
        in[1] = cast->out[0];
    }
    const tg_node *sum = par_rewrite(p, &tg_op_add, NULL, 2, in);
    if (!sum) return teng_error_status();
    par_replace(p, node->out[0], sum->out[0]);
    return TENG_OK;
}

/* ---- attention with fewer heads of keys than ranks: as many as ranks, each repeated ---- */
static bool few_heads(par *p, const tg_node *node)
{
    if (node->op != &tg_op_attention && node->op != &tg_op_attention_grad) return false;
    const par_value *q = par_of(p, node->in[0]), *k = par_of(p, node->in[1]);
    const int64_t parts = p->o->mesh.size[TG_AXIS_TENSOR], groups = k->whole.dims[2];
    return p->split_axes >> TG_AXIS_TENSOR & 1u && q->at.on[TG_AXIS_TENSOR] == 2 &&
           k->at.on[TG_AXIS_TENSOR] != 2 && groups > 1 && groups < parts;
}

static teng_tensor *reshaped(par *p, teng_tensor *x, teng_dims dims)
{
    const tg_node *node = x ? par_rewrite(p, &tg_op_reshape, &dims, 1, &x) : NULL;
    return node ? node->out[0] : NULL;
}

static teng_dims dims_of(const teng_desc *d, int64_t heads, int64_t repeats)
{
    return repeats ? (teng_dims){5, {d->dims[0], d->dims[1], heads, repeats, d->dims[3]}}
                   : (teng_dims){4, {d->dims[0], d->dims[1], heads, d->dims[3]}};
}

static teng_tensor *repeat_heads(par *p, teng_tensor *k, int64_t repeats)
{
    const int64_t heads = k->desc.dims[2];
    const teng_dims more = dims_of(&k->desc, heads, repeats);
    teng_tensor *x = reshaped(p, k, dims_of(&k->desc, heads, 1));
    const tg_node *wide = x ? par_rewrite(p, &tg_op_broadcast, &more, 1, &x) : NULL;
    return wide ? reshaped(p, wide->out[0], dims_of(&k->desc, heads * repeats, 0)) : NULL;
}

/* The gradients of the repeated heads added up. */
static teng_tensor *add_heads(par *p, teng_tensor *dk, int64_t heads, int64_t repeats)
{
    const tg_reduce_attr attr = {.axes = {1, {3}}};
    teng_tensor *x = reshaped(p, dk, dims_of(&dk->desc, heads, repeats));
    const tg_node *sum = x ? par_rewrite(p, &tg_op_sum, &attr, 1, &x) : NULL;
    return sum ? sum->out[0] : NULL;
}

static teng_status attention(par *p, const tg_node *node)
{
    teng_tensor *in[6];
    const int64_t heads = node->in[1]->desc.dims[2], repeats = p->o->mesh.size[TG_AXIS_TENSOR] / heads;
    memcpy(in, node->in, sizeof *in * (size_t)node->n_in);
    for (int i = 1; i < 3; i++) {
        tg_placement whole = par_of(p, node->in[i])->at;
        whole.on[TG_AXIS_TENSOR] = TENG_REPLICATED; /* before there are more heads to gather */
        TG_TRY(par_settle(p, node->in[i], &whole));
        if (!(in[i] = repeat_heads(p, node->in[i], repeats))) return teng_error_status();
    }
    const tg_node *n = par_rewrite(p, node->op, node->attr, node->n_in, in);
    if (!n) return teng_error_status();
    for (int o = 0; o < node->n_out; o++) {
        teng_tensor *v = n->out[o];
        if (node->op == &tg_op_attention_grad && o > 0) v = add_heads(p, v, heads, repeats);
        if (!v) return teng_error_status();
        par_replace(p, node->out[o], v);
    }
    return TENG_OK;
}

/* ---- attention of a sequence that the context axis splits: keys and values go round ---- */
static bool goes_round(par *p, const tg_node *node)
{
    return (node->op == &tg_op_attention || node->op == &tg_op_attention_grad) &&
           p->split_axes >> TG_AXIS_CONTEXT & 1u && par_of(p, node->in[0])->at.on[TG_AXIS_CONTEXT] == 1;
}

/* Keys and values pass on n - 1 times; backward their gradients, in f32, once more round. */
static double ring_bytes(const tg_node *local, int parts)
{
    const teng_desc *k = &local->in[1]->desc;
    const double keys = 2.0 * (double)tg_desc_bytes(k), sums = 2.0 * 4 * (double)tg_desc_numel(k);
    return (parts - 1) * keys + (local->op == &tg_op_ring_attention ? 0 : parts * sums);
}

static teng_status ring(par *p, const tg_node *node)
{
    const tg_ring_attr attr = {.options = *(const teng_attention_options *)node->attr,
                               .axes = 1 << TG_AXIS_CONTEXT,
                               .parts = p->o->mesh.size[TG_AXIS_CONTEXT],
                               .index = p->coord[TG_AXIS_CONTEXT]};
    if (!attr.options.causal)
        return tg_fail(TENG_UNSUPPORTED,
                       "parallel.context = %d balances causal attention, and this one sees all keys; leave "
                       "parallel.context at 1",
                       p->o->mesh.size[TG_AXIS_CONTEXT]);
    const tg_node *n =
        par_rewrite(p, node->op == &tg_op_attention ? &tg_op_ring_attention : &tg_op_ring_attention_grad,
                    &attr, node->n_in, node->in);
    if (!n) return teng_error_status();
    tg_node *local = p->g->nodes.data[p->g->nodes.len - 1];
    if (!par_record(p, node->in[1], local, 1u << TG_AXIS_CONTEXT, ring_bytes(local, (int)attr.parts)))
        return TENG_MEMORY;
    for (int o = 0; o < node->n_out; o++)
        par_replace(p, node->out[o], n->out[o]);
    return TENG_OK;
}

teng_status par_special(par *p, tg_node *node, bool *done)
{
    const int labels = labels_of(node->op);
    *done = true;
    if (labels >= 0 && ((batch_axes(p) && node->n_in < node->op->max_in) || by_vocabulary(p, node)))
        return loss(p, node, labels);
    if (node->op == &tg_op_matmul && node->n_in == 3 && sums_are_partial(p, node)) return bias_after(p, node);
    if (few_heads(p, node)) return attention(p, node);
    if (goes_round(p, node)) return ring(p, node);
    *done = false;
    return TENG_OK;
}
