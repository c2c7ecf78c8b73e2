/*
 * The kind of every live byte at every step. A buffer may change kind in its life, when a value takes the
 * place of a dying one of another kind; it has the kind of the value that was written to it last.
 */
#include "plan/plan_kinds.h"

#include "base/fail.h"
#include "tensor/desc.h"

#include <string.h>

const char *tg_memory_kind_name(tg_memory_kind kind)
{
    static const char *const names[TG_MEMORY_KINDS] = {
        "parameters",  "optimizer",          "parameter gradients",  "16-bit and packed weights",
        "activations", "recomputed",         "activation gradients", "inputs",
        "workspace",   "other micro-batches"};
    return names[kind];
}

static tg_memory_kind kind_of_stored(const teng_tensor *v)
{
    if (v->kind == TG_VALUE_PARAM) return TG_MEMORY_PARAMETERS;
    return strncmp(v->name, "grad.", 5) == 0 ? TG_MEMORY_GRADIENTS : TG_MEMORY_OPTIMIZER;
}

/* for_update: by value id, read in the update phase. */
static tg_memory_kind kind_of_value(const teng_tensor *v, const bool *for_update)
{
    const tg_node *node = v->node;
    if (!node) return v->kind == TG_VALUE_INPUT ? TG_MEMORY_INPUTS : kind_of_stored(v);
    bool copy = node->n_in > 0;
    for (int i = 0; i < node->n_in; i++)
        copy = copy && node->in[i]->kind == TG_VALUE_PARAM;
    if (copy && node->phase != TG_UPDATE) return TG_MEMORY_COPIES;
    if (node->phase == TG_FORWARD) return TG_MEMORY_ACTIVATIONS;
    if (node->phase == TG_UPDATE) return TG_MEMORY_WORKSPACE;
    if (node->recomputed) return TG_MEMORY_RECOMPUTED;
    return for_update[v->id] ? TG_MEMORY_GRADIENTS : TG_MEMORY_BACKWARD;
}

/* Read by the update, or added to what the update reads; not what a product that adds up multiplies. */
static void mark_for_update(const tg_plan *plan, bool *for_update)
{
    for (size_t k = plan->steps.len; k-- > 0;) {
        const tg_node *node = plan->steps.data[k].node;
        bool updates =
            node->phase == TG_UPDATE || (node->op->traits & TENG_OP_VIEW && for_update[node->out[0]->id]);
        for (int i = 0; i < node->n_in; i++) {
            bool added = false;
            for (int o = 0; o < node->n_out; o++)
                added =
                    added || (node->op->updates[o] && tg_desc_equal(&node->in[i]->desc, &node->out[o]->desc));
            for_update[node->in[i]->id] |= updates || added;
        }
    }
}

/* A walk over the steps: which buffers are live now, and what each is. */
typedef struct walk {
    const tg_plan *plan;
    bool *for_update;
    tg_memory_kind *kind;    /* by buffer */
    const tg_node **written; /* by buffer: who wrote it last */
    bool *live;              /* by buffer */
    tg_memory_use now;
} walk;

static void walk_free(walk *w)
{
    tg_free(w->for_update);
    tg_free(w->kind);
    tg_free(w->written);
    tg_free(w->live);
}

static teng_status walk_begin(const tg_plan *plan, walk *w)
{
    const tg_graph *g = plan->graph;
    *w = (walk){.plan = plan,
                .for_update = tg_calloc(g->values.len + 1, sizeof(bool)),
                .kind = tg_calloc(plan->buffers.len + 1, sizeof(tg_memory_kind)),
                .written = tg_calloc(plan->buffers.len + 1, sizeof(tg_node *)),
                .live = tg_calloc(plan->buffers.len + 1, sizeof(bool))};
    if (!w->for_update || !w->kind || !w->written || !w->live) {
        walk_free(w);
        return TENG_MEMORY;
    }
    mark_for_update(plan, w->for_update);
    for (size_t i = 0; i < plan->buffers.len; i++) {
        const int value = plan->buffers.data[i].value;
        w->kind[i] = value < 0 ? TG_MEMORY_WORKSPACE : kind_of_value(g->values.data[value], w->for_update);
        if (value >= 0) w->written[i] = g->values.data[value]->node;
    }
    if (plan->options.slots > 1)
        w->now.bytes[TG_MEMORY_UNDER_WAY] = plan->memory.slot * (size_t)(plan->options.slots - 1);
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (plan->values[i].where == TG_AT_STORE && !v->node)
            w->now.bytes[kind_of_stored(v)] += tg_desc_bytes(&v->desc);
    }
    return TENG_OK;
}

static void set_kind(walk *w, const teng_tensor *v, int k)
{
    const tg_plan_value *at = &w->plan->values[v->id];
    if (at->where != TG_AT_BLOCK || v->node->op->traits & TENG_OP_VIEW || v->node->op->updates[v->index])
        return;
    const int buffer = tg_plan_buffer(w->plan, v->id, k);
    const size_t bytes = w->plan->buffers.data[buffer].bytes;
    tg_memory_kind *kind = &w->kind[buffer];
    if (w->live[buffer]) w->now.bytes[*kind] -= bytes;
    *kind = kind_of_value(v, w->for_update);
    w->written[buffer] = v->node;
    if (w->live[buffer]) w->now.bytes[*kind] += bytes;
}

/* Brings `now` to what is live while step k runs; k rises by one from call to call. */
static void walk_to(walk *w, int k)
{
    const tg_plan *plan = w->plan;
    for (size_t i = 0; i < plan->buffers.len; i++) {
        const tg_buffer *b = &plan->buffers.data[i];
        const bool live = b->first <= k && k <= b->last;
        if (live == w->live[i]) continue;
        w->live[i] = live;
        if (live)
            w->now.bytes[w->kind[i]] += b->bytes;
        else
            w->now.bytes[w->kind[i]] -= b->bytes;
    }
    const tg_node *node = plan->steps.data[k].node;
    for (int o = 0; o < node->n_out; o++)
        set_kind(w, node->out[o], k);
}

static size_t total(const tg_memory_use *use)
{
    size_t sum = 0;
    for (int i = 0; i < TG_MEMORY_KINDS; i++)
        sum += use->bytes[i];
    return sum;
}

teng_status tg_memory_timeline_make(const tg_plan *plan, tg_memory_timeline *out)
{
    walk w;
    TG_TRY(walk_begin(plan, &w));
    *out = (tg_memory_timeline){.n = plan->steps.len, .at = tg_calloc(plan->steps.len + 1, sizeof *out->at)};
    size_t most = 0;
    for (size_t k = 0; k < out->n && out->at; k++) {
        walk_to(&w, (int)k);
        out->at[k] = w.now;
        if (total(&w.now) <= most) continue;
        most = total(&w.now);
        out->peak = (int)k;
    }
    walk_free(&w);
    return out->at ? TENG_OK : TENG_MEMORY;
}

void tg_memory_timeline_free(tg_memory_timeline *t)
{
    tg_free(t->at);
    *t = (tg_memory_timeline){0};
}

/* ---- at the peak ---- */
typedef struct peak {
    tg_memory_use use;
    int step;
    TG_VEC(size_t) bytes; /* of activations and what is recomputed, by layer */
    json_t *layers;       /* name → index in bytes */
} peak;

static teng_status add_to_layer(peak *p, const tg_node *node, size_t bytes)
{
    char path[256];
    const char *scope = node ? node->scope : "";
    size_t n = tg_scope_layer(scope);
    if (n == 0) n = strlen(scope);
    if (n >= sizeof path) n = sizeof path - 1;
    memcpy(path, scope, n);
    path[n] = '\0';
    if (n == 0) strcpy(path, "model");
    json_t *at = json_object_get(p->layers, path);
    if (!at) {
        at = json_integer((json_int_t)p->bytes.len);
        if (json_object_set_new(p->layers, path, at) != 0 || !tg_vec_push(&p->bytes, 0)) return TENG_MEMORY;
    }
    p->bytes.data[json_integer_value(at)] += bytes;
    return TENG_OK;
}

static void peak_free(peak *p)
{
    tg_vec_free(&p->bytes);
    json_decref(p->layers);
}

static teng_status find_peak(const tg_plan *plan, peak *p)
{
    tg_memory_timeline t;
    walk w;
    *p = (peak){0};
    TG_TRY(tg_memory_timeline_make(plan, &t));
    p->step = t.peak;
    p->use = t.n ? t.at[t.peak] : (tg_memory_use){0};
    tg_memory_timeline_free(&t);
    TG_TRY(walk_begin(plan, &w));
    p->layers = json_object();
    teng_status status = p->layers ? TENG_OK : TENG_MEMORY;
    for (int k = 0; k <= p->step && k < (int)plan->steps.len; k++)
        walk_to(&w, k);
    for (size_t i = 0; i < plan->buffers.len && status == TENG_OK; i++)
        if (w.live[i] && (w.kind[i] == TG_MEMORY_ACTIVATIONS || w.kind[i] == TG_MEMORY_RECOMPUTED))
            status = add_to_layer(p, w.written[i], plan->buffers.data[i].bytes);
    walk_free(&w);
    if (status != TENG_OK) peak_free(p);
    return status;
}

static void print_layers(const peak *p, tg_strbuf *out)
{
    const char *name, *first = NULL, *last = NULL;
    json_t *index;
    size_t bytes = 0, run = 0;
    char text[32];
    json_object_foreach(p->layers, name, index)
    {
        const size_t b = p->bytes.data[json_integer_value(index)];
        if (first && b == bytes) {
            last = name;
            run++;
            continue;
        }
        if (first)
            tg_strbuf_printf(out, "  %-26s %s%s%s\n", tg_format_bytes(text, (double)bytes), first,
                             run > 1 ? " … " : "", run > 1 ? last : "");
        first = last = name;
        bytes = b;
        run = 1;
    }
    if (first)
        tg_strbuf_printf(out, "  %-26s %s%s%s\n", tg_format_bytes(text, (double)bytes), first,
                         run > 1 ? " … " : "", run > 1 ? last : "");
}

teng_status tg_plan_print_kinds(const tg_plan *plan, tg_strbuf *out)
{
    peak p;
    char text[32];
    TG_TRY(find_peak(plan, &p));
    const size_t sum = total(&p.use), all = tg_plan_bytes(plan);
    tg_strbuf_printf(out, "at the peak, step %d of %zu: ", p.step, plan->steps.len);
    if (plan->steps.len) tg_node_where(plan->steps.data[p.step].node, out);
    tg_strbuf_putc(out, '\n');
    for (int i = 0; i < TG_MEMORY_KINDS; i++)
        if (p.use.bytes[i])
            tg_strbuf_printf(out, "  %-26s %-12s %5.1f %%\n", tg_memory_kind_name((tg_memory_kind)i),
                             tg_format_bytes(text, (double)p.use.bytes[i]),
                             100.0 * (double)p.use.bytes[i] / (double)(all ? all : 1));
    if (all > sum)
        tg_strbuf_printf(out, "  %-26s %-12s %5.1f %%\n", "gaps between buffers",
                         tg_format_bytes(text, (double)(all - sum)),
                         100.0 * (double)(all - sum) / (double)all);
    tg_strbuf_puts(out, "activations then, by layer\n");
    print_layers(&p, out);
    peak_free(&p);
    return TENG_OK;
}

json_t *tg_plan_kinds_json(const tg_plan *plan)
{
    peak p;
    if (find_peak(plan, &p) != TENG_OK) return NULL;
    json_t *out = json_object(), *layers = json_object(), *index;
    tg_strbuf where = {0};
    const char *name;
    for (int i = 0; i < TG_MEMORY_KINDS; i++)
        json_object_set_new(out, tg_memory_kind_name((tg_memory_kind)i),
                            json_integer((json_int_t)p.use.bytes[i]));
    json_object_foreach(p.layers, name, index)
        json_object_set_new(layers, name, json_integer((json_int_t)p.bytes.data[json_integer_value(index)]));
    if (plan->steps.len) tg_node_where(plan->steps.data[p.step].node, &where);
    json_object_set_new(out, "layers", layers);
    json_object_set_new(out, "node", json_string(tg_strbuf_str(&where)));
    tg_strbuf_free(&where);
    peak_free(&p);
    return out;
}
