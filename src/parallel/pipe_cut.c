/*
 * The cut: layers become pieces, values that cross become edges. A gradient of a parameter that several
 * pieces read (tied embeddings) is not carried to one place: each piece adds its part to an accumulator of
 * its own, and the stages add those up once a step.
 */
#include "base/fail.h"
#include "op/op_list.h"
#include "parallel/pipe_impl.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tg_node *node_at(const tg_pipe_cut *c, size_t k)
{
    return c->whole->nodes.data[k];
}

bool tg_pipe_is_accumulate(const tg_node *node)
{
    return node->op == &tg_op_accumulate && node->phase == TG_BACKWARD;
}

void tg_pipe_edge_name(char *name, int id)
{
    snprintf(name, TG_PIPE_NAME, "pipe.%d", id);
}

static teng_status place(tg_pipe_cut *c)
{
    const tg_graph *g = c->whole;
    const size_t n = g->nodes.len + 1;
    c->at = tg_arena_alloc(c->arena, sizeof *c->at * (g->values.len + 1));
    c->piece = tg_arena_alloc(c->arena, sizeof *c->piece * n);
    c->later = tg_arena_alloc(c->arena, n);
    c->parted = tg_arena_alloc(c->arena, n);
    c->copied = tg_arena_alloc(c->arena, n);
    c->held = tg_arena_alloc(c->arena, (g->values.len + 1) * (size_t)c->stages);
    c->costs = tg_arena_alloc(c->arena, sizeof *c->costs * (size_t)c->layers->pieces);
    if (!c->at || !c->piece || !c->later || !c->parted || !c->copied || !c->held || !c->costs)
        return TENG_MEMORY;
    memset(c->later, 0, n);
    memset(c->parted, 0, n);
    memset(c->copied, 0, n);
    memset(c->held, 0, (g->values.len + 1) * (size_t)c->stages);
    memset(c->costs, 0, sizeof *c->costs * (size_t)c->layers->pieces);
    TG_TRY(tg_pipe_place_nodes(g, c->layers, c->piece));
    for (size_t i = 0; i < g->values.len; i++)
        c->at[i] = -1;
    for (size_t k = 0; k < g->nodes.len; k++) {
        if (c->piece[k] >= 0) c->piece[k] = c->layers->list.data[c->piece[k]].piece;
        for (int o = 0; o < node_at(c, k)->n_out; o++)
            c->at[node_at(c, k)->out[o]->id] = (int)k;
    }
    return TENG_OK;
}

/* ---- sums of several pieces ---- */
/* The piece that makes v, or SEVERAL, following sums and linear steps that nothing else reads; ANYWHERE: none
 * in particular. mark: what is made by several is parted, what is made by one lies there. */
enum { SEVERAL = -3 };
static int piece_of_sum(tg_pipe_cut *c, const int *readers, const teng_tensor *v, bool mark)
{
    const int k = c->at[v->id];
    if (k < 0 || c->piece[k] < 0) return TG_PIPE_ANYWHERE;
    const tg_node *node = node_at(c, (size_t)k);
    const bool sum = node->op == &tg_op_add;
    if ((!sum && !tg_pipe_is_linear(node)) || node->phase != TG_BACKWARD || readers[v->id] != 1)
        return c->piece[k];
    int piece = piece_of_sum(c, readers, node->in[0], false);
    const int other = sum ? piece_of_sum(c, readers, node->in[1], false) : piece;
    if (piece == TG_PIPE_ANYWHERE || other == TG_PIPE_ANYWHERE) return c->piece[k];
    if (other != piece) piece = SEVERAL;
    if (!mark) return piece;
    c->parted[k] = piece == SEVERAL;
    if (piece >= 0) c->piece[k] = piece;
    for (int i = 0; i < (sum ? 2 : 1); i++)
        piece_of_sum(c, readers, node->in[i], true);
    return piece;
}

static teng_status part_sums(tg_pipe_cut *c)
{
    const tg_graph *g = c->whole;
    int *readers = tg_calloc(g->values.len + 1, sizeof *readers);
    if (!readers) return TENG_MEMORY;
    for (size_t k = 0; k < g->nodes.len; k++)
        for (int i = 0; i < node_at(c, k)->n_in; i++)
            readers[node_at(c, k)->in[i]->id]++;
    for (size_t i = 0; i < g->outputs.len; i++)
        readers[g->outputs.data[i].value->id]++;
    for (size_t k = 0; k < g->nodes.len; k++) {
        if (!tg_pipe_is_accumulate(node_at(c, k))) continue;
        const int piece = piece_of_sum(c, readers, node_at(c, k)->in[1], true);
        if (piece == SEVERAL)
            c->parted[k] = true;
        else if (piece >= 0)
            c->piece[k] = piece;
    }
    tg_free(readers);
    return TENG_OK;
}

/* ---- edges ---- */
static teng_status against_the_stream(const tg_node *from, const tg_node *to, int a, int b)
{
    tg_strbuf x = {0}, y = {0};
    tg_node_where(from, &x);
    tg_node_where(to, &y);
    tg_fail(
        TENG_UNSUPPORTED,
        "parallel.pipeline: %s of piece %d gives a value to %s of piece %d, against the order of the layers "
        "in the %s pass; a layer that is used twice cannot lie on two stages: give fewer stages",
        tg_strbuf_str(&x), a, tg_strbuf_str(&y), b, tg_phase_name(to->phase));
    tg_strbuf_free(&x);
    tg_strbuf_free(&y);
    return TENG_UNSUPPORTED;
}

static teng_status note_edge(tg_pipe_cut *c, const tg_node *node, const teng_tensor *v, int to)
{
    const int k = c->at[v->id];
    if (k < 0 || c->piece[k] < 0 || c->piece[k] == to) return TENG_OK;
    const int from = c->piece[k];
    const tg_node *maker = node_at(c, (size_t)k);
    if ((node->phase == TG_FORWARD && from > to) || (maker->phase == TG_BACKWARD && from < to))
        return against_the_stream(maker, node, from, to);
    tg_pipe_edge e = {.value = v->id, .from = from, .to = to, .bytes = tg_desc_bytes(&v->desc)};
    tg_pipe_edge_name(e.name, v->id);
    return tg_vec_push(&c->edges, e) ? TENG_OK : TENG_MEMORY;
}

static int by_value(const void *a, const void *b)
{
    const tg_pipe_edge *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static teng_status find_edges(tg_pipe_cut *c)
{
    const tg_graph *g = c->whole;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = node_at(c, k);
        for (int i = 0; c->piece[k] >= 0 && !c->parted[k] && i < node->n_in; i++)
            TG_TRY(note_edge(c, node, node->in[i], c->piece[k]));
    }
    for (size_t i = 0; i < g->outputs.len; i++) { /* they are told by the last piece */
        const teng_tensor *v = g->outputs.data[i].value;
        if (v->node && v->node->phase != TG_UPDATE) TG_TRY(note_edge(c, v->node, v, c->layers->pieces - 1));
    }
    if (c->edges.len) qsort(c->edges.data, c->edges.len, sizeof *c->edges.data, by_value);
    size_t kept = 0;
    for (size_t i = 0; i < c->edges.len; i++)
        if (!kept || by_value(&c->edges.data[kept - 1], &c->edges.data[i]) != 0)
            c->edges.data[kept++] = c->edges.data[i];
    c->edges.len = kept;
    return TENG_OK;
}

/* A backward node may come later when neither an edge nor a node that may not reads it. */
static teng_status find_later(tg_pipe_cut *c)
{
    const tg_graph *g = c->whole;
    bool *wanted = tg_calloc(g->values.len + 1, 1); /* by value id */
    if (!wanted) return TENG_MEMORY;
    for (size_t i = 0; i < c->edges.len; i++)
        if (c->edges.data[i].from > c->edges.data[i].to) wanted[c->edges.data[i].value] = true;
    for (size_t k = g->nodes.len; k-- > 0;) {
        const tg_node *node = node_at(c, k);
        if (c->piece[k] < 0 || node->phase != TG_BACKWARD) continue;
        bool now = false;
        for (int o = 0; o < node->n_out; o++)
            now = now || wanted[node->out[o]->id];
        c->later[k] = !now;
        for (int i = 0; now && i < node->n_in; i++)
            wanted[node->in[i]->id] = true;
    }
    tg_free(wanted);
    return TENG_OK;
}

static void count_costs(tg_pipe_cut *c)
{
    for (size_t k = 0; k < c->whole->nodes.len; k++) {
        if (c->piece[k] < 0 || c->parted[k]) continue;
        tg_pipe_cost *cost = &c->costs[c->piece[k]];
        const double seconds = tg_pipe_seconds(c->layers, node_at(c, k));
        *(node_at(c, k)->phase == TG_FORWARD ? &cost->forward
          : c->later[k]                      ? &cost->weight_grad
                                             : &cost->input_grad) += seconds;
    }
}

/* ---- parameters ---- */
static unsigned char *held(const tg_pipe_cut *c, int stage, int value)
{
    return &c->held[(size_t)stage * c->whole->values.len + (size_t)value];
}

/* Reads of a stage, through what is made anew wherever it is read. */
static void find_held(tg_pipe_cut *c, int stage)
{
    for (size_t k = c->whole->nodes.len; k-- > 0;) {
        const tg_node *node = node_at(c, k);
        bool mine = c->piece[k] >= 0 && c->piece[k] % c->stages == stage && !c->parted[k];
        for (int o = 0; c->piece[k] == TG_PIPE_ANYWHERE && o < node->n_out; o++)
            mine = mine || *held(c, stage, node->out[o]->id);
        for (int i = 0; mine && i < node->n_in; i++)
            *held(c, stage, node->in[i]->id) = 1;
    }
}

/* Whether one of the stage's pieces adds to the parameter's accumulator. */
static bool adds(const tg_pipe_cut *c, const tg_node *accumulate, size_t k, int stage)
{
    if (!c->parted[k]) return c->piece[k] % c->stages == stage;
    for (int piece = stage; piece < c->layers->pieces; piece += c->stages)
        if (tg_pipe_has_part(c, accumulate->in[1], piece)) return true;
    return false;
}

bool tg_pipe_has_part(const tg_pipe_cut *c, const teng_tensor *v, int piece)
{
    const int k = c->at[v->id];
    if (k < 0 || !c->parted[k]) return k >= 0 && c->piece[k] == piece;
    const tg_node *node = node_at(c, (size_t)k);
    for (int i = 0; i < node->n_in; i++)
        if (tg_pipe_has_part(c, node->in[i], piece)) return true;
    return false;
}

const char *tg_pipe_param_of(const tg_node *accumulate)
{
    return accumulate->in[0]->name + strlen("grad.");
}

static teng_status find_shared(tg_pipe_cut *c)
{
    const tg_graph *g = c->whole;
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        int n = 0;
        for (int s = 0; s < c->stages; s++)
            n += *held(c, s, v->id);
        if (v->kind != TG_VALUE_PARAM || n < 2) continue;
        const size_t stages = (size_t)c->stages;
        tg_pipe_shared shared = {v->name, tg_arena_alloc(c->arena, stages), tg_arena_alloc(c->arena, stages)};
        if (!shared.on || !shared.adds || !tg_vec_push(&c->shared, shared)) return TENG_MEMORY;
        for (int s = 0; s < c->stages; s++) {
            shared.on[s] = *held(c, s, v->id);
            shared.adds[s] = false;
        }
        for (size_t k = 0; k < g->nodes.len; k++)
            if (tg_pipe_is_accumulate(node_at(c, k)) && strcmp(tg_pipe_param_of(node_at(c, k)), v->name) == 0)
                for (int s = 0; s < c->stages; s++)
                    shared.adds[s] = adds(c, node_at(c, k), k, s);
    }
    return TENG_OK;
}

bool tg_pipe_cut_holds(const tg_pipe_cut *cut, int stage, const char *param)
{
    const teng_tensor *v = tg_graph_find(cut->whole, param);
    bool any = false;
    for (int s = 0; v && s < cut->stages; s++)
        any = any || *held(cut, s, v->id);
    return any ? *held(cut, stage, v->id) : stage == 0; /* what nothing reads lies on the first */
}

static teng_status make(tg_pipe_cut *c)
{
    TG_TRY(place(c));
    TG_TRY(part_sums(c));
    TG_TRY(find_edges(c));
    TG_TRY(find_later(c));
    count_costs(c);
    for (int stage = 0; stage < c->stages; stage++)
        find_held(c, stage);
    return find_shared(c);
}

teng_status tg_pipe_cut_make(tg_graph *whole, const tg_pipe_layers *layers, int stages, tg_pipe_cut **out)
{
    tg_pipe_cut *c = tg_calloc(1, sizeof *c);
    if (!c) {
        tg_graph_destroy(&whole);
        return TENG_MEMORY;
    }
    *c = (tg_pipe_cut){.whole = whole, .layers = layers, .stages = stages, .arena = tg_arena_create()};
    const teng_status status = c->arena ? make(c) : TENG_MEMORY;
    if (status != TENG_OK) {
        tg_pipe_cut_destroy(&c);
        return status;
    }
    *out = c;
    return TENG_OK;
}

void tg_pipe_cut_destroy(tg_pipe_cut **cut)
{
    tg_pipe_cut *c = *cut;
    if (!c) return;
    tg_vec_free(&c->edges);
    tg_vec_free(&c->shared);
    tg_arena_destroy(&c->arena);
    tg_graph_destroy(&c->whole);
    tg_free(c);
    *cut = NULL;
}

void tg_pipe_cut_print(const tg_pipe_cut *c, tg_strbuf *out)
{
    const tg_pipe_layers *l = c->layers;
    double all = 0;
    char text[32];
    for (size_t i = 0; i < l->list.len; i++)
        all += l->list.data[i].cost;
    for (int piece = 0; piece < l->pieces; piece++) {
        double cost = 0, sent[2] = {0, 0};
        const char *first = NULL, *last = NULL;
        for (size_t i = 0; i < l->list.len; i++) {
            if (l->list.data[i].piece != piece) continue;
            const char *name = i == 0                 ? "embedding"
                               : i + 1 == l->list.len ? "head and loss"
                                                      : l->list.data[i].name;
            cost += l->list.data[i].cost;
            if (!first) first = name;
            last = name;
        }
        for (size_t i = 0; i < c->edges.len; i++)
            if (c->edges.data[i].from == piece)
                sent[c->edges.data[i].to < piece] += (double)c->edges.data[i].bytes;
        tg_strbuf_printf(out, "piece %-3d on stage %-3d %s%s%s, %.1f %% of the cost; a micro-batch sends ",
                         piece, piece % c->stages, first, first == last ? "" : " … ",
                         first == last ? "" : last, all > 0 ? 100 * cost / all : 0);
        tg_strbuf_printf(out, "%s forward", tg_format_bytes(text, sent[0]));
        tg_strbuf_printf(out, ", %s backward\n", tg_format_bytes(text, sent[1]));
    }
    for (size_t i = 0; i < c->shared.len; i++)
        tg_strbuf_printf(out, "shared by stages        %s\n", c->shared.data[i].name);
}
