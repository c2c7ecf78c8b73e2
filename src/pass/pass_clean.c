/* Passes that remove work: unused nodes, equal calls, reshapes that change nothing. None changes a bit. */
#include "pass/pass_list.h"

#include "base/fail.h"
#include "base/strmap.h"
#include "graph/op_table.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <string.h>

static bool has_updates(const tg_node *node)
{
    for (int o = 0; o < node->n_out; o++)
        if (node->op->updates[o]) return true;
    return false;
}

teng_status tg_pass_dce(tg_graph *g, int *changed)
{
    bool *used = tg_calloc(g->values.len + 1, sizeof *used);
    if (!used) return TENG_MEMORY;
    for (size_t i = 0; i < g->outputs.len; i++)
        used[g->outputs.data[i].value->id] = true;
    for (size_t k = g->nodes.len; k-- > 0;) {
        tg_node *node = g->nodes.data[k];
        bool alive = has_updates(node);
        for (int o = 0; o < node->n_out; o++)
            alive = alive || used[node->out[o]->id];
        if (!alive) {
            node->dead = true;
            ++*changed;
            continue;
        }
        for (int i = 0; i < node->n_in; i++)
            used[node->in[i]->id] = true;
    }
    tg_free(used);
    return TENG_OK;
}

teng_status tg_pass_views(tg_graph *g, int *changed)
{
    for (size_t k = 0; k < g->nodes.len; k++) {
        tg_node *node = g->nodes.data[k];
        if (node->op != &tg_op_reshape) continue;
        teng_tensor *in = tg_value_resolve(node->in[0]);
        const tg_node *before = in->node;
        if (before && before->op == &tg_op_reshape) {
            in = tg_value_resolve(before->in[0]);
            node->in[0] = in;
            ++*changed;
        }
        if (tg_desc_equal(&in->desc, &node->out[0]->desc)) {
            node->out[0]->replaced = in;
            node->dead = true;
            ++*changed;
        }
    }
    return TENG_OK;
}

/* Equal calls have equal operators, attributes and operands, and stand in the same phase; what is recomputed
 * is only equal to what is. Random operators are pure functions of their operands too. */
static uint64_t node_hash(const tg_node *node)
{
    uint64_t h = tg_hash64(&node->op, sizeof(void *), (uint64_t)node->phase);
    for (int i = 0; i < node->n_in; i++) {
        const int id = tg_value_resolve(node->in[i])->id;
        h = tg_hash64(&id, sizeof id, h);
    }
    return h;
}

static bool same_node(const tg_node *a, const tg_node *b)
{
    if (a->op != b->op || a->phase != b->phase || a->recomputed != b->recomputed || a->n_in != b->n_in ||
        !tg_attr_equal(a->op, a->attr, b->attr))
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (tg_value_resolve(a->in[i]) != tg_value_resolve(b->in[i])) return false;
    return true;
}

teng_status tg_pass_cse(tg_graph *g, int *changed)
{
    size_t n = 64;
    while (n < g->nodes.len * 2)
        n *= 2;
    tg_node **table = tg_calloc(n, sizeof(tg_node *));
    if (!table) return TENG_MEMORY;
    for (size_t k = 0; k < g->nodes.len; k++) {
        tg_node *node = g->nodes.data[k];
        if (has_updates(node) || node->n_in == 0) continue;
        size_t at = node_hash(node) & (n - 1);
        while (table[at] && !same_node(table[at], node))
            at = (at + 1) & (n - 1);
        if (!table[at]) {
            table[at] = node;
            continue;
        }
        for (int o = 0; o < node->n_out; o++)
            node->out[o]->replaced = table[at]->out[o];
        node->dead = true;
        ++*changed;
    }
    tg_free(table);
    return TENG_OK;
}
