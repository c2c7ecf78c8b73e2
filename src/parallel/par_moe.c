/*
 * Mixtures of experts on ranks that have rows of the batch of their own. Each sorts its own tokens: what
 * moe_sort gives are indices of its rows, and how many of them each expert gets, a part of the sum over the
 * ranks. That is no placement rule of the operators, since the pieces put together are not what one rank
 * would have; it is right because these indices are only ever used on rows of the same rank.
 */
#include "op/embedding/embedding.h"
#include "op/op_list.h"
#include "parallel/parallel_impl.h"

enum { R = TENG_REPLICATED, P = TENG_PARTIAL };

static bool from_sort(par *p, const teng_tensor *v)
{
    const tg_node *maker = par_of(p, v)->maker;
    return maker && maker->op == &tg_op_moe_sort;
}

void par_own_rows(par *p, const tg_node *node, teng_place_rules *rules)
{
    const teng_op_spec *op = node->op;
    if (op == &tg_op_moe_sort)
        teng_place_add(rules, (teng_place[]){0}, (teng_place[]){0, 0, P});
    else if (op == &tg_op_embedding && from_sort(p, node->in[1]))
        teng_place_add(rules, (teng_place[]){0, 0}, (teng_place[]){0});
    else if (op == &tg_op_embedding_grad && from_sort(p, node->in[1]))
        teng_place_add(rules, (teng_place[]){0, 0}, (teng_place[]){0});
    else if (op == &tg_op_grouped_matmul && from_sort(p, node->in[2]))
        teng_place_add(rules, (teng_place[]){0, R, P}, (teng_place[]){0});
    else if (op == &tg_op_grouped_outer && from_sort(p, node->in[2]))
        teng_place_add(rules, (teng_place[]){0, 0, P}, (teng_place[]){P});
    else if (op == &tg_op_cast && from_sort(p, node->in[0])) /* of whole numbers */
        teng_place_add(rules, (teng_place[]){P}, (teng_place[]){P});
}

void par_localize_rows(const tg_node *node, const teng_place *in, const teng_place *out, int64_t parts,
                       void *attr)
{
    if (node->op == &tg_op_embedding_grad && in[1] >= 0 && out[0] == 0)
        ((tg_embedding_grad_attr *)attr)->vocab /= parts;
}
