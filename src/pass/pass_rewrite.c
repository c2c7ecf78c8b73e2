/* Passes that rewrite neighbouring nodes: casts that undo each other, affine operators in a row. */
#include "pass/pass_list.h"

#include "op/op_list.h"
#include "op/unary/unary.h"

/* Every value of `narrow` is exact in `wide`. */
static bool widens(teng_dtype narrow, teng_dtype wide)
{
    return (wide == TENG_F32 && (narrow == TENG_BF16 || narrow == TENG_F16)) ||
           (wide == TENG_F64 && (narrow == TENG_F32 || narrow == TENG_BF16 || narrow == TENG_F16));
}

teng_status tg_pass_casts(tg_graph *g, int *changed)
{
    for (size_t k = 0; k < g->nodes.len; k++) {
        tg_node *node = g->nodes.data[k];
        if (node->op != &tg_op_cast) continue;
        teng_tensor *in = tg_value_resolve(node->in[0]);
        const tg_node *before = in->node;
        teng_tensor *origin = before && before->op == &tg_op_cast ? tg_value_resolve(before->in[0]) : NULL;
        const teng_dtype to = node->out[0]->desc.dtype;
        if (in->desc.dtype == to)
            node->out[0]->replaced = in;
        else if (origin && origin->desc.dtype == to && widens(to, in->desc.dtype))
            node->out[0]->replaced = origin;
        else
            continue;
        node->dead = true;
        ++*changed;
    }
    return TENG_OK;
}

/* c·(a·x + b) + d = (c·a)·x + (c·b + d) */
teng_status tg_pass_scales(tg_graph *g, int *changed)
{
    for (size_t k = 0; k < g->nodes.len; k++) {
        tg_node *node = g->nodes.data[k];
        if (node->op != &tg_op_affine) continue;
        const teng_tensor *in = tg_value_resolve(node->in[0]);
        if (!in->node || in->node->op != &tg_op_affine || in->desc.dtype != TENG_F32) continue;
        const tg_affine_attr *first = in->node->attr;
        tg_affine_attr *second = node->attr;
        *second =
            (tg_affine_attr){second->factor * first->factor, second->factor * first->offset + second->offset};
        node->in[0] = in->node->in[0];
        ++*changed;
    }
    return TENG_OK;
}
