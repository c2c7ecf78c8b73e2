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

/* Indices of rows, or numbers of rows, that are the rank's own along the axis. */
static bool own(par *p, const teng_tensor *v, tg_axis axis)
{
    const par_value *x = par_of(p, v);
    return x->maker && x->maker->op == &tg_op_moe_sort && x->at.on[axis] != R;
}

/* In the place of all other rules: these indices mean nothing to another rank. */
static void only(teng_place_rules *rules, const teng_place *in, const teng_place *out)
{
    const int n_in = rules->n_in, n_out = rules->n_out;
    tg_place_rules_free(rules);
    *rules = (teng_place_rules){.n_in = n_in, .n_out = n_out};
    teng_place_add(rules, in, out);
}

void par_own_rows(par *p, const tg_node *node, tg_axis axis, teng_place_rules *rules)
{
    const teng_op_spec *op = node->op;
    teng_tensor *const *in = node->in;
    if (op == &tg_op_moe_sort)
        teng_place_add(rules, (teng_place[]){0}, (teng_place[]){0, 0, P});
    else if (op == &tg_op_embedding && own(p, in[1], axis))
        only(rules, (teng_place[]){0, 0}, (teng_place[]){0});
    else if (op == &tg_op_embedding_grad && own(p, in[1], axis))
        only(rules, (teng_place[]){0, 0}, (teng_place[]){0});
    else if (op == &tg_op_grouped_matmul && own(p, in[2], axis))
        only(rules, (teng_place[]){0, R, P}, (teng_place[]){0});
    else if (op == &tg_op_grouped_outer && own(p, in[2], axis))
        only(rules, (teng_place[]){0, 0, P}, (teng_place[]){P});
    else if (op == &tg_op_cast && own(p, in[0], axis)) /* of whole numbers */
        teng_place_add(rules, (teng_place[]){P}, (teng_place[]){P});
}

void par_localize_rows(const tg_node *node, const teng_place *in, const teng_place *out, int64_t parts,
                       void *attr)
{
    if (node->op == &tg_op_embedding_grad && in[1] >= 0 && out[0] == 0)
        ((tg_embedding_grad_attr *)attr)->vocab /= parts;
}
