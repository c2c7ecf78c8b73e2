/*
 * Which layer each node of a graph belongs to. Inside a layer its scope says so. Between and around layers a
 * forward node belongs to the layer before it, or to the front or the end; a backward node to where the
 * forward nodes of its scope are, and when they are in several places, to where its gradients come from.
 */
#include "parallel/pipe_impl.h"

#include "base/strmap.h"
#include "op/op_list.h"

#include <string.h>

enum { NOWHERE = -3, SEVERAL = -4 };

typedef struct placer {
    const tg_graph *g;
    const tg_pipe_layers *layers;
    int *layer;        /* result */
    int *of;           /* by value id: the layer of its node; NOWHERE: it has none */
    char *source;      /* by value id: what it follows from, bits */
    tg_strmap *scopes; /* of forward nodes that are in no layer */
} placer;
enum { FROM_PARAMS = 1, FROM_INPUTS = 2, FROM_MORE = 4 };

bool tg_pipe_is_linear(const tg_node *node)
{
    static const teng_op_spec *const ops[] = {&tg_op_cast,       &tg_op_reshape,        &tg_op_transpose,
                                              &tg_op_all_reduce, &tg_op_reduce_scatter, &tg_op_piece};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (node->op == ops[i]) return true;
    return false;
}

/* Cheap to have wherever it is wanted: weights cast or gathered, tables of positions, numbers of labels. */
static bool is_anywhere(placer *p, const tg_node *node)
{
    char from = 0;
    bool updates = false;
    for (int i = 0; i < node->n_in; i++)
        from = (char)(from | p->source[node->in[i]->id]);
    for (int o = 0; o < node->n_out; o++)
        updates = updates || node->op->updates[o];
    if (from & FROM_MORE || from == (FROM_PARAMS | FROM_INPUTS) || updates) from = FROM_MORE;
    for (int o = 0; o < node->n_out; o++)
        p->source[node->out[o]->id] = from;
    return from != FROM_MORE;
}

static bool note_scope(placer *p, const char *scope, int layer)
{
    int64_t old;
    if (tg_strmap_get(p->scopes, scope, strlen(scope), &old) && old != layer) layer = SEVERAL;
    return tg_strmap_set(p->scopes, scope, strlen(scope), layer, NULL);
}

/* Least layer of the operands that backward made, else the greatest of those that forward made. */
static int by_operands(const placer *p, const tg_node *node)
{
    int least = (int)p->layers->list.len, most = -1;
    for (int i = 0; i < node->n_in; i++) {
        const teng_tensor *v = node->in[i];
        const int l = p->of[v->id];
        if (l < 0 || !v->node) continue;
        if (v->node->phase == TG_BACKWARD && l < least) least = l;
        if (v->node->phase == TG_FORWARD && l > most) most = l;
    }
    return least < (int)p->layers->list.len ? least : most >= 0 ? most : (int)p->layers->list.len - 1;
}

static bool place_one(placer *p, size_t k, size_t last, int *current)
{
    const tg_node *node = p->g->nodes.data[k];
    int *at = &p->layer[k];
    const int end = (int)p->layers->list.len - 1;
    if (node->phase == TG_UPDATE) {
        *at = TG_PIPE_UPDATE;
    } else if (is_anywhere(p, node)) {
        *at = TG_PIPE_ANYWHERE;
    } else if ((*at = tg_pipe_layer_find(p->layers, node->scope)) >= 0) {
        if (node->phase == TG_FORWARD) *current = *at;
    } else if (node->phase == TG_FORWARD) {
        *at = k > last ? end : *current;
        if (!note_scope(p, node->scope, *at)) return false;
    } else {
        int64_t known;
        const bool found = tg_strmap_get(p->scopes, node->scope, strlen(node->scope), &known);
        *at = found && known >= 0 ? (int)known : by_operands(p, node);
    }
    for (int o = 0; o < node->n_out; o++)
        p->of[node->out[o]->id] = *at >= 0 ? *at : NOWHERE;
    return true;
}

teng_status tg_pipe_place_nodes(const tg_graph *g, const tg_pipe_layers *layers, int *layer)
{
    placer p = {.g = g,
                .layers = layers,
                .layer = layer,
                .of = tg_alloc(sizeof(int) * (g->values.len + 1)),
                .source = tg_calloc(g->values.len + 1, 1),
                .scopes = tg_strmap_create()};
    bool ok = p.of && p.source && p.scopes;
    size_t last = 0; /* forward node of a layer */
    for (size_t k = 0; k < g->nodes.len; k++)
        if (g->nodes.data[k]->phase == TG_FORWARD && tg_pipe_layer_find(layers, g->nodes.data[k]->scope) > 0)
            last = k;
    for (size_t i = 0; ok && i < g->values.len; i++) {
        const tg_value_kind kind = g->values.data[i]->kind;
        p.of[i] = NOWHERE;
        p.source[i] = kind == TG_VALUE_PARAM ? FROM_PARAMS : kind == TG_VALUE_INPUT ? FROM_INPUTS : FROM_MORE;
    }
    int current = 0;
    for (size_t k = 0; ok && k < g->nodes.len; k++)
        ok = place_one(&p, k, last, &current);
    tg_free(p.of);
    tg_free(p.source);
    tg_strmap_destroy(&p.scopes);
    return ok ? TENG_OK : TENG_MEMORY;
}
