/*
 * Recompute, first and last part: which layers there are and what their values cost to keep and to make; then
 * the rewrite. What a layer keeps is decided in between (recompute_cut.c, recompute_auto.c).
 */
#include "pass/recompute.h"

#include "base/fail.h"
#include "base/strmap.h"
#include "graph/op_table.h"
#include "pass/pass_list.h"
#include "pass/recompute_impl.h"
#include "tensor/desc.h"

#include <fnmatch.h>
#include <string.h>

enum { NO_LAYER = -1, MAX_PATH = 768 };

typedef struct work {
    tg_graph *g;
    const tg_recompute_options *o;
    size_t n_values;
    tg_arena *arena;
    TG_VEC(tg_layer) layers;
    tg_strmap *by_path;
    int *layer_of;   /* by node id: of forward nodes, else NO_LAYER */
    int *root;       /* by value id: the value whose bytes it is */
    bool *updated;   /* by root id: forward or backward changes it in place */
    bool *border;    /* by root id: read outside its layer, not counting backward */
    bool *needed;    /* by root id: backward reads it */
    bool *dropped;   /* by root id */
    int *local;      /* by root id: index in its layer, -1 */
    tg_node **clone; /* by node id */
    int clones;
} work;

/* ---- layers ---- */

static bool numbered_layer(const char *scope, char *path)
{
    const size_t n = tg_scope_layer(scope);
    if (n == 0 || n >= MAX_PATH) return false;
    memcpy(path, scope, n);
    path[n] = '\0';
    return true;
}

/* The shortest part of a scope that the pattern matches. */
static bool matched_part(const char *scope, const char *pattern, char *path)
{
    if (strlen(scope) >= MAX_PATH) return false;
    for (const char *p = scope; *p;) {
        p += strcspn(p, ".");
        memcpy(path, scope, (size_t)(p - scope));
        path[p - scope] = '\0';
        if (fnmatch(pattern, path, 0) == 0) return true;
        p += *p == '.';
    }
    return false;
}

static int add_layer(work *w, const char *path)
{
    int64_t at;
    if (tg_strmap_get(w->by_path, path, strlen(path), &at)) return (int)at;
    const tg_layer layer = {.path = tg_arena_strdup(w->arena, path)};
    at = (int64_t)w->layers.len;
    if (!layer.path || !tg_vec_push(&w->layers, layer) ||
        !tg_strmap_set(w->by_path, path, strlen(path), at, NULL))
        return NO_LAYER;
    return (int)at;
}

static teng_status no_match(const work *w, const char *pattern)
{
    const char **names = tg_calloc(w->g->nodes.len + 1, sizeof *names);
    if (!names) return TENG_MEMORY;
    int n = 0;
    char path[MAX_PATH];
    for (size_t k = 0; k < w->g->nodes.len; k++) {
        if (!numbered_layer(w->g->nodes.data[k]->scope, path)) continue;
        if (n && strcmp(names[n - 1], path) == 0) continue;
        names[n] = tg_arena_strdup(w->arena, path);
        if (names[n]) n++;
    }
    const char *near = tg_nearest_name(pattern, names, n);
    const teng_status status =
        near ? tg_fail(
                   TENG_INVALID,
                   "memory.recompute_layers: \"%s\" matches no layer; did you mean \"%s\"? The layers are %s "
                   "and so on",
                   pattern, near, names[0])
        : n ? tg_fail(TENG_INVALID,
                      "memory.recompute_layers: \"%s\" matches no layer; the layers are %s and so on",
                      pattern, names[0])
            : tg_fail(TENG_INVALID, "memory.recompute_layers: \"%s\" matches no part of the model", pattern);
    tg_free(names);
    return status;
}

/* Gives every forward node inside a part of the model that the pattern matches, and in no layer yet, its
 * layer: numbered layers, or (parts) the shortest matching part of its scope. */
static teng_status assign(work *w, const char *pattern, bool parts, int *matched)
{
    char path[MAX_PATH];
    for (size_t k = 0; k < w->g->nodes.len; k++) {
        const tg_node *node = w->g->nodes.data[k];
        if (node->phase != TG_FORWARD) break;
        const bool fits =
            parts ? matched_part(node->scope, pattern, path)
                  : numbered_layer(node->scope, path) && (!pattern || fnmatch(pattern, path, 0) == 0);
        if (!fits) continue;
        ++*matched;
        if (w->layer_of[node->id] != NO_LAYER) continue;
        w->layer_of[node->id] = add_layer(w, path);
        if (w->layer_of[node->id] == NO_LAYER) return TENG_MEMORY;
    }
    return TENG_OK;
}

static teng_status find_layers(work *w)
{
    const tg_recompute_options *o = w->o;
    int matched = 0;
    if (o->n_layers == 0) {
        TG_TRY(assign(w, NULL, false, &matched));
        if (matched) return TENG_OK;
        return tg_fail(
            TENG_INVALID,
            "memory.recompute: the model has no numbered layers (as in model.layers.0); name the parts to "
            "recompute by memory.recompute_layers");
    }
    for (int parts = 0; parts < 2; parts++)
        for (size_t i = 0; i < o->n_layers; i++) {
            int numbered = 0;
            matched = 0;
            TG_TRY(assign(w, o->layers[i], false, &numbered));
            if (parts && !numbered) {
                TG_TRY(assign(w, o->layers[i], true, &matched));
                if (!matched) return no_match(w, o->layers[i]);
            }
        }
    return TENG_OK;
}

/* ---- values ---- */

static void find_roots(work *w)
{
    const tg_graph *g = w->g;
    for (size_t i = 0; i < w->n_values; i++)
        w->root[i] = (int)i;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        if (node->op->traits & TENG_OP_VIEW) w->root[node->out[0]->id] = w->root[node->in[0]->id];
        for (int o = 0; o < node->n_out; o++) {
            if (!node->op->updates[o]) continue;
            const int r = w->root[node->in[node->op->updates[o] - 1]->id];
            w->root[node->out[o]->id] = r;
            if (node->phase != TG_UPDATE) w->updated[r] = true;
        }
    }
}

static int layer_of_value(const work *w, const teng_tensor *root)
{
    return root->node ? w->layer_of[root->node->id] : NO_LAYER;
}

static void find_readers(work *w)
{
    const tg_graph *g = w->g;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        for (int i = 0; i < node->n_in; i++) {
            const int r = w->root[node->in[i]->id];
            if (node->phase == TG_BACKWARD)
                w->needed[r] = true;
            else if (layer_of_value(w, g->values.data[r]) != w->layer_of[node->id])
                w->border[r] = true;
        }
    }
    for (size_t i = 0; i < g->outputs.len; i++)
        w->border[w->root[g->outputs.data[i].value->id]] = true;
}

static teng_status add_op(work *w, tg_layer *layer, tg_node *node)
{
    teng_desc in[64], out[TENG_MAX_OUT];
    if (node->n_in > 64) /* wide operators are kept */
        return tg_vec_push(&layer->ops, ((tg_layer_op){.node = node})) ? TENG_OK : TENG_MEMORY;
    const teng_op_call call = tg_node_call(node, in, out);
    teng_cost cost = {0};
    tg_op_cost(&call, &cost);
    tg_layer_op op = {.node = node,
                      .pure = true,
                      .seconds = tg_cost_seconds(&cost, w->o->flops_per_s > 0 ? w->o->flops_per_s : 1e11,
                                                 w->o->bytes_per_s > 0 ? w->o->bytes_per_s : 2e10)};
    if (node->op->traits & TENG_OP_VIEW) op.seconds = 0;
    double bytes = 1;
    for (int o = 0; o < node->n_out; o++) {
        bytes += (double)tg_desc_bytes(&node->out[o]->desc);
        op.pure = op.pure && !node->op->updates[o] && !w->updated[w->root[node->out[o]->id]];
    }
    for (int i = 0; i < node->n_in; i++)
        op.pure = op.pure && !w->updated[w->root[node->in[i]->id]];
    op.per_byte = op.seconds / bytes;
    op.cheap = node->op->precision != TENG_PRECISION_PRODUCT && !(node->op->traits & TENG_OP_COMMUNICATES) &&
               cost.flops <= 64 * (cost.bytes_read + cost.bytes_written);
    return tg_vec_push(&layer->ops, op) ? TENG_OK : TENG_MEMORY;
}

/* Local values that a node reads. */
static teng_status list_operands(work *w, const tg_node *node, tg_cut_value *v)
{
    int *from = tg_arena_alloc(w->arena, ((size_t)node->n_in + 1) * sizeof *from);
    if (!from) return TENG_MEMORY;
    for (int i = 0; i < node->n_in; i++) {
        const int r = w->root[node->in[i]->id];
        if (w->local[r] >= 0 && layer_of_value(w, w->g->values.data[r]) == w->layer_of[node->id])
            from[v->n_from++] = w->local[r];
    }
    v->from = from;
    return TENG_OK;
}

static teng_status add_values(work *w, tg_layer *layer, const tg_node *node)
{
    for (int o = 0; o < node->n_out; o++) {
        const int id = node->out[o]->id;
        if (w->root[id] != id || w->border[id]) continue;
        tg_cut_value v = {.bytes = (int64_t)tg_desc_bytes(&node->out[o]->desc), .needed = w->needed[id]};
        TG_TRY(list_operands(w, node, &v));
        w->local[id] = (int)layer->values.len;
        if (!tg_vec_push(&layer->values, node->out[o]) || !tg_vec_push(&layer->cut, v) ||
            !tg_vec_push(&layer->op_of, (int)layer->ops.len - 1) || !tg_vec_push(&layer->keep, v.needed))
            return TENG_MEMORY;
        if (v.needed) layer->needed += v.bytes;
    }
    return TENG_OK;
}

static teng_status fill_layers(work *w)
{
    for (size_t i = 0; i < w->n_values; i++)
        w->local[i] = -1;
    for (size_t k = 0; k < w->g->nodes.len; k++) {
        tg_node *node = w->g->nodes.data[k];
        if (w->layer_of[node->id] == NO_LAYER) continue;
        tg_layer *layer = &w->layers.data[w->layer_of[node->id]];
        TG_TRY(add_op(w, layer, node));
        TG_TRY(add_values(w, layer, node));
    }
    return TENG_OK;
}

static teng_status choose(work *w, tg_recompute_result *result)
{
    if (w->o->kind == TG_RECOMPUTE_AUTO)
        TG_TRY(tg_layers_auto(w->layers.data, w->layers.len, w->o->moves, &result->moves));
    for (size_t i = 0; i < w->layers.len; i++) {
        tg_layer *layer = &w->layers.data[i];
        int64_t kept;
        double seconds;
        if (w->o->kind != TG_RECOMPUTE_AUTO)
            TG_TRY(tg_layer_cut(layer, w->o->kind, 0, layer->keep.data, &kept, &seconds));
        for (size_t k = 0; k < layer->values.len; k++) {
            w->dropped[layer->values.data[k]->id] = !layer->keep.data[k];
            if (layer->keep.data[k]) result->kept += layer->cut.data[k].bytes;
        }
        result->before += layer->needed;
    }
    result->layers = (int)w->layers.len;
    return TENG_OK;
}

/* ---- rewrite ---- */

static double seconds_of(const work *w, const tg_node *node)
{
    const tg_layer *layer = &w->layers.data[w->layer_of[node->id]];
    for (size_t i = 0; i < layer->ops.len; i++)
        if (layer->ops.data[i].node == node) return layer->ops.data[i].seconds;
    return 0;
}

/* The value to read in the backward phase instead of v; clones what it takes, operands first. NULL when
 * memory is out. */
static teng_tensor *again(work *w, teng_tensor *v, tg_recompute_result *result)
{
    if ((size_t)v->id >= w->n_values || !w->dropped[w->root[v->id]]) return v;
    if (v->node->phase != TG_FORWARD) return v; /* a view that backward makes: it reads the clone */
    const tg_node *node = v->node;
    tg_node **clone = &w->clone[node->id];
    if (!*clone) {
        teng_tensor **in = tg_arena_alloc(w->arena, ((size_t)node->n_in + 1) * sizeof(teng_tensor *));
        if (!in) return NULL;
        for (int i = 0; i < node->n_in; i++) {
            in[i] = again(w, node->in[i], result);
            if (!in[i]) return NULL;
        }
        *clone = tg_graph_append(w->g, node->op, node->attr, node->n_in, in, node->scope, node->frame,
                                 TG_BACKWARD);
        if (!*clone) return NULL;
        (*clone)->recomputed = true;
        if (w->o->flops_per_s > 0) result->seconds += seconds_of(w, node);
        result->clones++;
    }
    return (*clone)->out[v->index];
}

/* The list of nodes is written anew, clones before the backward node that reads them first. */
static teng_status rewrite(work *w, tg_recompute_result *result)
{
    tg_graph *g = w->g;
    const size_t n = g->nodes.len;
    tg_node **old = tg_arena_alloc(w->arena, (n + 1) * sizeof(tg_node *));
    if (!old) return TENG_MEMORY;
    memcpy(old, g->nodes.data, n * sizeof(tg_node *));
    g->nodes.len = 0;
    for (size_t k = 0; k < n; k++) {
        tg_node *node = old[k];
        for (int i = 0; i < node->n_in && node->phase == TG_BACKWARD; i++) {
            node->in[i] = again(w, node->in[i], result);
            if (!node->in[i]) return teng_error_status();
        }
        if (!tg_vec_push(&g->nodes, node)) return TENG_MEMORY;
    }
    int unread = 0;
    TG_TRY(tg_pass_dce(g, &unread));
    tg_graph_sweep(g);
    return tg_graph_check(g) == TENG_OK ? TENG_OK : tg_fail_context("after recompute");
}

static void say(const work *w, const tg_recompute_result *r, tg_strbuf *report)
{
    static const char *const names[] = {"none", "selective", "full", "auto"};
    char kept[32], before[32];
    tg_strbuf_printf(report,
                     "recompute %s: %d layers, %d operators run again, kept inside the layers %s of %s\n",
                     names[w->o->kind], r->layers, r->clones, tg_format_bytes(kept, (double)r->kept),
                     tg_format_bytes(before, (double)r->before));
}

static teng_status run(work *w, tg_recompute_result *result, tg_strbuf *report)
{
    TG_TRY(find_layers(w));
    find_roots(w);
    find_readers(w);
    TG_TRY(fill_layers(w));
    TG_TRY(choose(w, result));
    TG_TRY(rewrite(w, result));
    if (report) say(w, result, report);
    return TENG_OK;
}

static void destroy_work(work *w)
{
    for (size_t i = 0; i < w->layers.len; i++) {
        tg_layer *layer = &w->layers.data[i];
        tg_vec_free(&layer->ops);
        tg_vec_free(&layer->values);
        tg_vec_free(&layer->op_of);
        tg_vec_free(&layer->cut);
        tg_vec_free(&layer->keep);
    }
    tg_vec_free(&w->layers);
    tg_strmap_destroy(&w->by_path);
    tg_arena_destroy(&w->arena);
}

teng_status tg_recompute(tg_graph *g, const tg_recompute_options *options, tg_recompute_result *result,
                         tg_strbuf *report)
{
    *result = (tg_recompute_result){0};
    if (options->kind == TG_RECOMPUTE_NONE) return TENG_OK;
    work w = {.g = g,
              .o = options,
              .n_values = g->values.len,
              .arena = tg_arena_create(),
              .by_path = tg_strmap_create()};
    teng_status status = TENG_MEMORY;
    if (w.arena && w.by_path) {
        const size_t nv = w.n_values + 1, nn = (size_t)g->next_node + 1;
        w.layer_of = tg_arena_alloc(w.arena, nn * sizeof(int));
        w.clone = tg_arena_alloc(w.arena, nn * sizeof(tg_node *));
        w.root = tg_arena_alloc(w.arena, nv * sizeof(int));
        w.local = tg_arena_alloc(w.arena, nv * sizeof(int));
        bool *flags = tg_arena_alloc(w.arena, 4 * nv * sizeof(bool));
        if (w.layer_of && w.clone && w.root && w.local && flags) {
            w.updated = flags;
            w.border = flags + nv;
            w.needed = flags + 2 * nv;
            w.dropped = flags + 3 * nv;
            for (size_t i = 0; i < nn; i++)
                w.layer_of[i] = NO_LAYER;
            status = run(&w, result, report);
        }
    }
    destroy_work(&w);
    return status;
}
