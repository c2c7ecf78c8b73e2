/*
 * Building and rewriting a graph. Everything lives in the graph's arena except the growing arrays; destroying
 * the graph frees all. Not here: printing (graph_print.c), parsing (graph_parse.c), what operators mean
 * (op_table.c).
 */
#include "graph/graph.h"

#include "base/fail.h"
#include "base/strmap.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

#include <string.h>

tg_graph *tg_graph_create(const char *name)
{
    tg_graph *g = tg_calloc(1, sizeof *g);
    if (!g) return NULL;
    g->arena = tg_arena_create();
    g->names = tg_strmap_create();
    if (g->arena) g->name = tg_arena_strdup(g->arena, name);
    if (!g->arena || !g->names || !g->name) tg_graph_destroy(&g);
    return g;
}

void tg_graph_destroy(tg_graph **graph)
{
    tg_graph *g = *graph;
    if (!g) return;
    tg_vec_free(&g->nodes);
    tg_vec_free(&g->values);
    tg_vec_free(&g->outputs);
    tg_strmap_destroy(&g->names);
    tg_arena_destroy(&g->arena);
    tg_free(g);
    *graph = NULL;
}

static teng_tensor *new_value(tg_graph *g, tg_value_kind kind, const teng_desc *desc)
{
    teng_tensor *v = tg_arena_alloc(g->arena, sizeof *v);
    if (!v) return NULL;
    *v = (teng_tensor){.graph = g, .id = (int)g->values.len, .kind = kind, .desc = *desc};
    if (!tg_vec_push(&g->values, v)) return NULL;
    return v;
}

/* The text form could not hold other names. */
static teng_status check_name(const tg_graph *g, const char *name)
{
    if (*name && strlen(name) <= TG_NAME_MAX && !name[strcspn(name, " \t\r\n,()")]) return TENG_OK;
    return tg_fail(
        TENG_INVALID,
        "graph %s: \"%.64s\" cannot be a name: 1 to %d bytes without blanks, commas and parentheses", g->name,
        name, TG_NAME_MAX);
}

static teng_tensor *new_named(tg_graph *g, tg_value_kind kind, const char *name, const teng_desc *desc)
{
    int64_t old;
    if (check_name(g, name) != TENG_OK) return NULL;
    if (tg_op_check_size(desc, name) != TENG_OK) return NULL;
    if (tg_strmap_get(g->names, name, strlen(name), &old)) {
        tg_fail(TENG_INVALID, "graph %s: the name \"%s\" is used by two values", g->name, name);
        return NULL;
    }
    teng_tensor *v = new_value(g, kind, desc);
    if (!v) return NULL;
    v->name = tg_arena_strdup(g->arena, name);
    v->requires_grad = kind == TG_VALUE_PARAM;
    if (!v->name || !tg_strmap_set(g->names, name, strlen(name), v->id, NULL)) return NULL;
    return v;
}

teng_tensor *tg_graph_input(tg_graph *g, const char *name, const teng_desc *desc)
{
    return new_named(g, TG_VALUE_INPUT, name, desc);
}

teng_tensor *tg_graph_param(tg_graph *g, const char *name, const teng_desc *desc)
{
    return new_named(g, TG_VALUE_PARAM, name, desc);
}

teng_tensor *tg_graph_state(tg_graph *g, const char *name, const teng_desc *desc)
{
    return new_named(g, TG_VALUE_STATE, name, desc);
}

teng_tensor *tg_graph_find(const tg_graph *g, const char *name)
{
    int64_t id;
    return tg_strmap_get(g->names, name, strlen(name), &id) ? g->values.data[id] : NULL;
}

teng_status tg_graph_output(tg_graph *g, const char *name, teng_tensor *value)
{
    if (!value) return tg_fail(TENG_INVALID, "graph %s: output %s has no value", g->name, name);
    TG_TRY(check_name(g, name));
    if (tg_graph_output_find(g, name))
        return tg_fail(TENG_INVALID, "graph %s: two outputs named %s", g->name, name);
    tg_output out = {tg_arena_strdup(g->arena, name), value};
    if (!out.name || !tg_vec_push(&g->outputs, out)) return TENG_MEMORY;
    return TENG_OK;
}

teng_tensor *tg_graph_output_find(const tg_graph *g, const char *name)
{
    for (size_t i = 0; i < g->outputs.len; i++)
        if (strcmp(g->outputs.data[i].name, name) == 0) return g->outputs.data[i].value;
    return NULL;
}

/* Prepends where the failing call stands to the pending error. */
static void fail_at(const tg_node *node)
{
    tg_strbuf where = {0};
    tg_node_where(node, &where);
    tg_fail_context("%s", tg_strbuf_str(&where));
    tg_strbuf_free(&where);
}

tg_node *tg_graph_append(tg_graph *g, const teng_op_spec *op, const void *attr, int n_in,
                         teng_tensor *const *in, const char *scope, const tg_frame *frame, tg_phase phase)
{
    tg_node *node = tg_arena_alloc(g->arena, sizeof *node);
    teng_desc *in_desc = tg_arena_alloc(g->arena, sizeof *in_desc * (size_t)(n_in + 1));
    if (!node || !in_desc) return NULL;
    bool grad = false;
    for (int i = 0; i < n_in; i++) {
        in_desc[i] = in[i]->desc;
        grad = grad || in[i]->requires_grad;
    }
    *node = (tg_node){
        .op = op, .n_in = n_in, .scope = scope, .frame = frame, .phase = phase, .id = g->next_node++};
    if (op->attr_size) {
        node->attr = tg_arena_alloc(g->arena, op->attr_size);
        if (!node->attr) return NULL;
        if (attr) memcpy(node->attr, attr, op->attr_size);
    }
    teng_desc out[TENG_MAX_OUT];
    if (tg_op_infer(op, node->attr, n_in, in_desc, out, &node->n_out) != TENG_OK) {
        fail_at(node);
        return NULL;
    }
    node->in = tg_arena_alloc(g->arena, sizeof *node->in * (size_t)(n_in + 1));
    node->out = tg_arena_alloc(g->arena, sizeof *node->out * (size_t)node->n_out);
    if (!node->in || !node->out) return NULL;
    for (int i = 0; i < n_in; i++)
        node->in[i] = in[i];
    for (int o = 0; o < node->n_out; o++) {
        teng_tensor *v = new_value(g, TG_VALUE_COMPUTED, &out[o]);
        if (!v) return NULL;
        v->node = node;
        v->index = o;
        v->requires_grad = grad && op->grad && phase == TG_FORWARD;
        node->out[o] = v;
    }
    if (!tg_vec_push(&g->nodes, node)) return NULL;
    if (g->on_node && g->on_node(g->on_node_user, node) != TENG_OK) {
        fail_at(node);
        return NULL;
    }
    return node;
}

teng_tensor *tg_value_resolve(teng_tensor *v)
{
    while (v->replaced)
        v = v->replaced;
    return v;
}

int tg_graph_sweep(tg_graph *g)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        tg_node *node = g->nodes.data[i];
        if (node->dead) continue;
        for (int k = 0; k < node->n_in; k++)
            node->in[k] = tg_value_resolve(node->in[k]);
        g->nodes.data[kept++] = node;
    }
    const int dropped = (int)(g->nodes.len - kept);
    g->nodes.len = kept;
    for (size_t i = 0; i < g->outputs.len; i++)
        g->outputs.data[i].value = tg_value_resolve(g->outputs.data[i].value);
    return dropped;
}

/* Of a node to be hoisted: how many of the `first` nodes stand before it then. place: by node id, 1 + where
 * the first nodes stand. */
static size_t hoist_to(const tg_graph *g, const tg_node *node, size_t first, const size_t *place)
{
    size_t at = 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->node && place[node->in[i]->node->id] > at) at = place[node->in[i]->node->id];
    while (at < first && g->nodes.data[at]->phase < node->phase)
        at++;
    return at;
}

teng_status tg_graph_hoist(tg_graph *g, size_t first)
{
    const size_t n = g->nodes.len;
    size_t *place = tg_calloc((size_t)g->next_node + 1, sizeof *place);
    size_t *end =
        tg_calloc(first + 2, sizeof *end); /* of the moved behind so many nodes: their end in order */
    tg_node **order = tg_alloc((n + 1) * sizeof *order);
    const bool room = place && end && order;
    for (size_t k = 0; k < n && room; k++) {
        tg_node *node = g->nodes.data[k];
        place[node->id] = k < first ? k + 1 : hoist_to(g, node, first, place);
        if (k >= first) end[place[node->id] + 1]++;
    }
    for (size_t k = 1; k < first + 2 && room; k++)
        end[k] += end[k - 1] + 1; /* the one is the node before them */
    for (size_t k = first; k < n && room; k++)
        order[end[place[g->nodes.data[k]->id]]++] = g->nodes.data[k];
    for (size_t k = 0; k < first && room; k++)
        order[end[k]] = g->nodes.data[k];
    if (room && n) memcpy(g->nodes.data, order, n * sizeof *order);
    tg_free(place);
    tg_free(end);
    tg_free(order);
    return room ? TENG_OK : TENG_MEMORY;
}

static teng_status check_node(const tg_graph *g, const tg_node *node, const unsigned char *defined)
{
    teng_desc in[64], out[TENG_MAX_OUT];
    teng_desc *in_desc = node->n_in <= 64 ? in : tg_calloc((size_t)node->n_in, sizeof *in_desc);
    if (!in_desc) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (int i = 0; i < node->n_in && status == TENG_OK; i++) {
        const teng_tensor *v = node->in[i];
        in_desc[i] = v->desc;
        if (v->graph != g || v->replaced || (v->kind == TG_VALUE_COMPUTED && !defined[v->id]))
            status = tg_fail(TENG_STATE, "graph %s: node %d (%s) uses value %%%d before it is computed",
                             g->name, node->id, node->op->name, v->id);
    }
    int n_out = 0;
    if (status == TENG_OK) status = tg_op_infer(node->op, node->attr, node->n_in, in_desc, out, &n_out);
    if (status == TENG_OK && n_out != node->n_out)
        status = tg_fail(TENG_STATE, "graph %s: node %d (%s) has %d outputs, its rule gives %d", g->name,
                         node->id, node->op->name, node->n_out, n_out);
    for (int o = 0; o < node->n_out && status == TENG_OK; o++)
        if (!tg_desc_equal(&node->out[o]->desc, &out[o]))
            status =
                tg_fail(TENG_STATE, "graph %s: output %d of node %d (%s) is not of the shape its rule gives",
                        g->name, o, node->id, node->op->name);
    if (in_desc != in) tg_free(in_desc);
    return status;
}

teng_status tg_graph_check(const tg_graph *g)
{
    unsigned char *defined = tg_calloc(g->values.len + 1, 1);
    if (!defined) return TENG_MEMORY;
    teng_status status = TENG_OK;
    tg_phase phase = TG_FORWARD;
    for (size_t i = 0; i < g->nodes.len && status == TENG_OK; i++) {
        const tg_node *node = g->nodes.data[i];
        status = check_node(g, node, defined);
        if (status == TENG_OK && node->phase < phase)
            status = tg_fail(TENG_STATE, "graph %s: node %d (%s) stands after a later phase", g->name,
                             node->id, node->op->name);
        phase = node->phase;
        for (int o = 0; o < node->n_out; o++)
            defined[node->out[o]->id] = 1;
    }
    for (size_t i = 0; i < g->outputs.len && status == TENG_OK; i++) {
        const teng_tensor *v = g->outputs.data[i].value;
        if (v->kind == TG_VALUE_COMPUTED && !defined[v->id])
            status = tg_fail(TENG_STATE, "graph %s: output %s is never computed", g->name,
                             g->outputs.data[i].name);
    }
    tg_free(defined);
    return status;
}

teng_op_call tg_node_call(const tg_node *node, teng_desc *in, teng_desc *out)
{
    for (int i = 0; i < node->n_in; i++)
        in[i] = node->in[i]->desc;
    for (int o = 0; o < node->n_out; o++)
        out[o] = node->out[o]->desc;
    return (teng_op_call){
        .op = node->op, .attr = node->attr, .n_in = node->n_in, .n_out = node->n_out, .in = in, .out = out};
}

size_t tg_scope_layer(const char *scope)
{
    for (const char *p = scope; *p;) {
        const size_t n = strcspn(p, "."), digits = strspn(p, "0123456789");
        p += n;
        if (digits == n && n > 0) return (size_t)(p - scope);
        p += *p == '.';
    }
    return 0;
}

void tg_node_where(const tg_node *node, tg_strbuf *out)
{
    tg_strbuf_puts(out, *node->scope ? node->scope : "model");
    tg_strbuf_printf(out, " (%s%s", node->op->name, node->recomputed ? ", recomputed" : "");
    for (const tg_frame *f = node->frame; f; f = f->caller)
        tg_strbuf_printf(out, "%s%s:%d", f == node->frame ? ", " : " < ", f->at.file, f->at.line);
    tg_strbuf_putc(out, ')');
}
