/*
 * Mixtures of experts on ranks that have rows of the batch of their own. Each sorts its own tokens: what
 * moe_sort gives are indices of its rows, and how many of them each expert gets, a part of the sum over the
 * ranks. That is no placement rule of the operators, since the pieces put together are not what one rank
 * would have; it is right because these indices are only ever used on rows of the same rank.
 *
 * Where the expert axis splits the experts, rows go to the ranks that have them before the first product and
 * come back after the last; between them they are PAR_THERE, and the gradients of the experts' weights are
 * whole without a sum along this axis.
 */
#include "base/fail.h"
#include "op/embedding/embedding.h"
#include "op/expert_dispatch/expert_dispatch.h"
#include "op/op_list.h"
#include "parallel/parallel_impl.h"
#include "tensor/desc.h"

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

static bool is_there(par *p, const teng_tensor *v)
{
    return par_of(p, v)->at.on[TG_AXIS_EXPERT] == PAR_THERE;
}

/* What works row by row does so wherever the rows are. */
static bool by_rows(const tg_node *node)
{
    static const teng_op_spec *const ops[] = {&tg_op_swiglu, &tg_op_swiglu_grad, &tg_op_mul,    &tg_op_add,
                                              &tg_op_cast,   &tg_op_unary_grad,  &tg_op_concat, &tg_op_silu,
                                              &tg_op_gelu,   &tg_op_gelu_tanh,   &tg_op_relu,   &tg_op_split};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (node->op == ops[i]) return true;
    return false;
}

/* Each rule for operands that are all split by rows, once more for rows that are with their experts. */
static void add_by_rows(const tg_node *node, teng_place_rules *rules)
{
    const int n = rules->n;
    for (int r = 0; r < n; r++) {
        teng_place from[8], to[TENG_MAX_OUT];
        bool rows = node->n_in <= 8;
        for (int i = 0; i < node->n_in && rows; i++) {
            from[i] = PAR_THERE;
            rows = rules->rules[r].in[i] == 0;
        }
        for (int o = 0; o < node->n_out && rows; o++) {
            to[o] = PAR_THERE;
            rows = rules->rules[r].out[o] == 0;
        }
        if (rows) teng_place_add(rules, from, to);
    }
}

/* Rules along the expert axis for operands that are, or should be, with their experts. */
static void add_there(par *p, const tg_node *node, teng_place_rules *rules)
{
    enum { T = PAR_THERE };
    teng_tensor *const *in = node->in;
    bool any = false;
    for (int i = 0; i < node->n_in; i++)
        any = any || is_there(p, in[i]);
    if (node->op == &tg_op_grouped_matmul && own(p, in[2], TG_AXIS_EXPERT) &&
        par_of(p, in[1])->at.on[TG_AXIS_EXPERT] == 0)
        only(rules, (teng_place[]){T, 0, T}, (teng_place[]){T});
    else if (node->op == &tg_op_grouped_outer && par_of(p, in[2])->own_counts)
        only(rules, (teng_place[]){T, T, T}, (teng_place[]){0});
    else if (any && by_rows(node))
        add_by_rows(node, rules);
}

static tg_expert_attr attr_of(const par *p)
{
    return (tg_expert_attr){.axes = 1 << TG_AXIS_EXPERT, .parts = p->o->mesh.size[TG_AXIS_EXPERT]};
}

/* What a rank sends when its rows are shared out evenly. */
static double bytes_sent(const tg_expert_attr *attr, const teng_tensor *rows)
{
    return (double)tg_desc_bytes(&rows->desc) * (double)(attr->parts - 1) / (double)attr->parts;
}

/* Rows of this rank's tokens to the ranks of their experts. */
static teng_tensor *dispatch(par *p, teng_tensor *global, teng_tensor *rows, teng_tensor *counts)
{
    const tg_expert_attr attr = attr_of(p);
    teng_tensor *in[] = {rows, par_of(p, counts)->local};
    tg_node *node = par_append(p, &tg_op_expert_dispatch, &attr, 2, in);
    if (!par_record(p, global, node, 1u << TG_AXIS_EXPERT, bytes_sent(&attr, rows))) return NULL;
    par_value *c = par_of(p, counts);
    if (!c->own_counts) {
        c->own_counts = node->out[1];
        c->received = node->out[2];
    }
    return node->out[0];
}

static teng_tensor *back(par *p, teng_tensor *global, teng_tensor *rows)
{
    const tg_expert_attr attr = attr_of(p);
    const par_value *c = par_of(p, par_of(p, global)->counts);
    teng_tensor *in[] = {rows, c->local, c->received};
    tg_node *node = par_append(p, &tg_op_expert_return, &attr, 3, in);
    if (!node) return NULL;
    node = par_record(p, global, node, 1u << TG_AXIS_EXPERT, bytes_sent(&attr, node->out[0]));
    return node ? node->out[0] : NULL;
}

teng_tensor *par_get_there(par *p, teng_tensor *global, const tg_placement *want)
{
    const tg_node *node = p->node;
    const bool go = want->on[TG_AXIS_EXPERT] == PAR_THERE;
    tg_placement near = *want;
    near.on[TG_AXIS_EXPERT] = go ? 0 : PAR_THERE;
    if (go && par_of(p, global)->own_counts) return par_of(p, global)->own_counts;
    const bool product = node->op == &tg_op_grouped_matmul || node->op == &tg_op_grouped_outer;
    if (go ? !product : want->on[TG_AXIS_EXPERT] != 0) {
        tg_fail(TENG_UNSUPPORTED, "%s cannot take rows that are on their way between ranks of experts",
                node->op->name);
        return NULL;
    }
    teng_tensor *rows = par_get(p, global, &near); /* moves along other axes */
    if (!rows) return NULL;
    return go ? dispatch(p, global, rows, node->in[2]) : back(p, global, rows);
}

void par_keep_counts(par *p, const tg_node *node)
{
    for (int o = 0; o < node->n_out; o++) {
        if (!is_there(p, node->out[o])) continue;
        par_value *y = par_of(p, node->out[o]);
        y->counts = node->op == &tg_op_grouped_matmul ? node->in[2] : NULL;
        for (int i = 0; i < node->n_in && !y->counts; i++)
            y->counts = par_of(p, node->in[i])->counts;
    }
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
    if (axis == TG_AXIS_EXPERT) add_there(p, node, rules);
}

void par_localize_rows(const tg_node *node, const teng_place *in, const teng_place *out, int64_t parts,
                       void *attr)
{
    if (node->op == &tg_op_embedding_grad && in[1] >= 0 && out[0] == 0)
        ((tg_embedding_grad_attr *)attr)->vocab /= parts;
}
