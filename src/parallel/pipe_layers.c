/*
 * Layers of a model and how they are dealt out to pieces: contiguous runs, the most expensive one as cheap as
 * can be. Costs are roofline seconds of forward and backward, so that the embedding (bytes) and the head
 * (products with the whole vocabulary) count for what they are.
 */
#include "base/fail.h"
#include "graph/op_table.h"
#include "parallel/pipe_impl.h"

#include <float.h>
#include <string.h>

double tg_pipe_seconds(const tg_pipe_layers *layers, const tg_node *node)
{
    if (node->op->traits & TENG_OP_VIEW) return 0;
    teng_desc in[64], out[TENG_MAX_OUT];
    if (node->n_in > 64) return 0; /* sums over all gradients: of the update */
    const teng_op_call call = tg_node_call(node, in, out);
    teng_cost c;
    tg_op_cost(&call, &c);
    return tg_cost_seconds(&c, layers->flops_per_s, layers->bytes_per_s);
}

/* least[k][i]: the cheapest way to make k runs of the first i costs, by what `worst` asks: the largest run,
 * or (limit given) the sum of the runs' squares with no run above the limit. cut[k][i]: where the last
 * begins. */
typedef struct table {
    const double *before; /* [n + 1] sums */
    int n, pieces;
    double *least;
    int *cut;
} table;

static void fill(table *t, double limit)
{
    const int w = t->n + 1;
    for (int i = 0; i <= t->n; i++)
        t->least[i] = i ? DBL_MAX : 0;
    for (int k = 1; k <= t->pieces; k++)
        for (int i = 0; i <= t->n; i++) {
            double best = DBL_MAX;
            for (int j = k - 1; j < i; j++) {
                const double run = t->before[i] - t->before[j], rest = t->least[(k - 1) * w + j];
                if (rest == DBL_MAX || (limit > 0 && run > limit)) continue;
                const double value = limit > 0 ? rest + run * run : run > rest ? run : rest;
                if (value >= best) continue;
                best = value;
                t->cut[k * w + i] = j;
            }
            t->least[k * w + i] = best;
        }
}

teng_status tg_pipe_balance(const double *cost, int n, int pieces, int *piece)
{
    const size_t cells = (size_t)(n + 1) * (size_t)(pieces + 1);
    double *before = tg_calloc((size_t)n + 1, sizeof *before);
    table t = {.before = before,
               .n = n,
               .pieces = pieces,
               .least = tg_calloc(cells, sizeof(double)),
               .cut = tg_calloc(cells, sizeof(int))};
    teng_status status = before && t.least && t.cut ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && (pieces < 1 || pieces > n))
        status = tg_fail(TENG_INVALID, "%d layers cannot be cut into %d pieces", n, pieces);
    if (status == TENG_OK) {
        for (int i = 0; i < n; i++)
            before[i + 1] = before[i] + cost[i];
        fill(&t, 0);
        const double worst = t.least[(size_t)pieces * (size_t)(n + 1) + (size_t)n];
        if (worst > 0) fill(&t, worst * (1 + 1e-9));
        for (int k = pieces, i = n; k > 0; k--) {
            const int from = t.cut[(size_t)k * (size_t)(n + 1) + (size_t)i];
            while (i > from)
                piece[--i] = k - 1;
        }
    }
    tg_free(before);
    tg_free(t.least);
    tg_free(t.cut);
    return status;
}

/* Among those below `end`. */
static int find_below(const tg_pipe_layers *layers, size_t end, const char *scope)
{
    const size_t n = tg_scope_layer(scope);
    for (size_t i = 1; n && i < end; i++) {
        const char *name = layers->list.data[i].name;
        if (strncmp(name, scope, n) == 0 && !name[n]) return (int)i;
    }
    return -1;
}

int tg_pipe_layer_find(const tg_pipe_layers *layers, const char *scope)
{
    return find_below(layers, layers->list.len - 1, scope);
}

static teng_status add_layer(tg_pipe_layers *l, const char *scope, size_t n)
{
    const tg_pipe_layer layer = {.name = tg_arena_printf(l->arena, "%.*s", (int)n, scope)};
    return layer.name && tg_vec_push(&l->list, layer) ? TENG_OK : TENG_MEMORY;
}

static teng_status find_layers(const tg_graph *g, tg_pipe_layers *l)
{
    TG_TRY(add_layer(l, "", 0));
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        const size_t n = tg_scope_layer(node->scope);
        if (node->phase != TG_FORWARD || !n || find_below(l, l->list.len, node->scope) >= 0) continue;
        TG_TRY(add_layer(l, node->scope, n));
    }
    TG_TRY(add_layer(l, ".", 1));
    const int layers = (int)l->list.len - 2;
    if (layers == 0)
        return tg_fail(TENG_INVALID,
                       "parallel.pipeline: this model has no layers, cells in a list whose names "
                       "are numbers (\"layers.0\"), between which it could be cut");
    if (l->pieces > layers)
        return tg_fail(TENG_INVALID,
                       "parallel.pipeline × parallel.chunks = %d pieces are more than the %d layers of the "
                       "model; each piece needs one",
                       l->pieces, layers);
    return TENG_OK;
}

static teng_status deal_out(const tg_graph *g, tg_pipe_layers *l)
{
    const int n = (int)l->list.len;
    int *layer = tg_alloc(sizeof *layer * (g->nodes.len + 1)), *piece = tg_alloc(sizeof *piece * (size_t)n);
    double *cost = tg_alloc(sizeof *cost * (size_t)n);
    teng_status status = layer && piece && cost ? tg_pipe_place_nodes(g, l, layer) : TENG_MEMORY;
    for (size_t k = 0; k < g->nodes.len && status == TENG_OK; k++)
        if (layer[k] >= 0) l->list.data[layer[k]].cost += tg_pipe_seconds(l, g->nodes.data[k]);
    for (int i = 0; i < n && status == TENG_OK; i++)
        cost[i] = l->list.data[i].cost;
    if (status == TENG_OK) status = tg_pipe_balance(cost, n, l->pieces, piece);
    for (int i = 0; i < n && status == TENG_OK; i++)
        l->list.data[i].piece = piece[i];
    tg_free(layer);
    tg_free(piece);
    tg_free(cost);
    return status;
}

teng_status tg_pipe_layers_make(const tg_graph *graph, int pieces, double flops_per_s, double bytes_per_s,
                                tg_pipe_layers **out)
{
    tg_pipe_layers *l = tg_calloc(1, sizeof *l);
    if (!l) return TENG_MEMORY;
    const bool known = flops_per_s > 0 && bytes_per_s > 0;
    *l = (tg_pipe_layers){.pieces = pieces,
                          .flops_per_s = known ? flops_per_s : 1e11,
                          .bytes_per_s = known ? bytes_per_s : 1e10,
                          .arena = tg_arena_create()};
    teng_status status = l->arena ? find_layers(graph, l) : TENG_MEMORY;
    if (status == TENG_OK) status = deal_out(graph, l);
    if (status != TENG_OK) {
        tg_pipe_layers_destroy(&l);
        return status;
    }
    *out = l;
    return TENG_OK;
}

void tg_pipe_layers_destroy(tg_pipe_layers **layers)
{
    if (!*layers) return;
    tg_vec_free(&(*layers)->list);
    tg_arena_destroy(&(*layers)->arena);
    tg_free(*layers);
    *layers = NULL;
}
