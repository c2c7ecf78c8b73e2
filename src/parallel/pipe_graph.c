/*
 * Graphs of the cut: a piece's forward and backward, a stage's update. Nodes are copied in the order of the
 * whole graph; what another piece makes becomes an input.
 */
#include "base/fail.h"
#include "op/op_list.h"
#include "parallel/pipe_impl.h"
#include "tensor/desc.h"
#include "teng/ops.h"

#include <stdio.h>
#include <string.h>

typedef struct copier {
    const tg_pipe_cut *c;
    tg_graph *g;
    teng_tensor **map; /* by id of the whole graph */
    int piece;
    bool *wanted; /* by position: of nodes that are made anew wherever they are read */
} copier;

static teng_tensor *named(copier *p, const teng_tensor *v)
{
    return v->kind == TG_VALUE_INPUT   ? tg_graph_input(p->g, v->name, &v->desc)
           : v->kind == TG_VALUE_PARAM ? tg_graph_param(p->g, v->name, &v->desc)
                                       : tg_graph_state(p->g, v->name, &v->desc);
}

/* The copy of v; made when it is a named value, an input when another piece makes it. */
static teng_tensor *copy_of(copier *p, const teng_tensor *v)
{
    teng_tensor **at = &p->map[v->id];
    char name[TG_PIPE_NAME];
    tg_pipe_edge_name(name, v->id);
    if (!*at) *at = v->kind == TG_VALUE_COMPUTED ? tg_graph_input(p->g, name, &v->desc) : named(p, v);
    return *at;
}

static teng_status copy_node(copier *p, const tg_node *node, teng_tensor **in, int n_in, tg_phase phase)
{
    tg_node *mine = tg_graph_append(p->g, node->op, node->attr, n_in, in, node->scope, node->frame, phase);
    if (!mine) return teng_error_status();
    mine->recomputed = node->recomputed;
    p->c->copied[p->c->at[node->out[0]->id]] = true;
    for (int o = 0; o < node->n_out; o++)
        p->map[node->out[o]->id] = mine->out[o];
    return TENG_OK;
}

static teng_status copy_whole_node(copier *p, const tg_node *node, tg_phase phase)
{
    teng_tensor **in = tg_alloc(sizeof *in * (size_t)(node->n_in + 1));
    teng_status status = in ? TENG_OK : TENG_MEMORY;
    for (int i = 0; i < node->n_in && status == TENG_OK; i++)
        if (!(in[i] = copy_of(p, node->in[i]))) status = teng_error_status();
    if (status == TENG_OK) status = copy_node(p, node, in, node->n_in, phase);
    tg_free(in);
    return status;
}

/* This piece's part of a sum; *part NULL: it has none. */
static teng_status copy_part(copier *p, const teng_tensor *v, tg_phase phase, teng_tensor **part)
{
    const int k = p->c->at[v->id];
    *part = NULL;
    if (!tg_pipe_has_part(p->c, v, p->piece)) return TENG_OK;
    if (!p->c->parted[k]) return (*part = copy_of(p, v)) ? TENG_OK : teng_error_status();
    const tg_node *node = p->c->whole->nodes.data[k];
    teng_tensor *in[2] = {NULL, NULL};
    int n = 0;
    for (int i = 0; i < node->n_in; i++) {
        TG_TRY(copy_part(p, node->in[i], phase, &in[n]));
        n += in[n] != NULL;
    }
    *part = in[0];
    if (node->op == &tg_op_add && n < 2) return TENG_OK;
    TG_TRY(copy_node(p, node, in, n, phase));
    *part = p->map[v->id];
    return TENG_OK;
}

static teng_status copy_parted(copier *p, const tg_node *accumulate, tg_phase phase)
{
    teng_tensor *in[3] = {NULL, NULL, NULL};
    TG_TRY(copy_part(p, accumulate->in[1], phase, &in[1]));
    if (!in[1]) return TENG_OK;
    in[0] = copy_of(p, accumulate->in[0]);
    in[2] = copy_of(p, accumulate->in[2]);
    return in[0] && in[2] ? copy_node(p, accumulate, in, 3, phase) : teng_error_status();
}

static void find_wanted(copier *p)
{
    const tg_pipe_cut *c = p->c;
    for (size_t k = c->whole->nodes.len; k-- > 0;) {
        const tg_node *node = c->whole->nodes.data[k];
        const bool mine =
            c->piece[k] == TG_PIPE_ANYWHERE ? p->wanted[k] : c->piece[k] == p->piece || c->parted[k];
        for (int i = 0; mine && i < node->n_in; i++)
            if (c->at[node->in[i]->id] >= 0) p->wanted[c->at[node->in[i]->id]] = true;
    }
    for (size_t i = 0; i < c->whole->outputs.len && p->piece == c->layers->pieces - 1; i++)
        if (c->at[c->whole->outputs.data[i].value->id] >= 0)
            p->wanted[c->at[c->whole->outputs.data[i].value->id]] = true;
}

/* What is made anew wherever it is read stands in the phase that reads it first: with split, what only later
 * nodes read might as well stand there, but it is as right before. */
static tg_phase phase_of(const copier *p, size_t k, bool split)
{
    const tg_phase phase = p->c->whole->nodes.data[k]->phase;
    return phase == TG_BACKWARD && split && (p->c->later[k] || p->c->parted[k]) ? TG_UPDATE : phase;
}

static teng_status copy_phase(copier *p, tg_phase phase, bool split)
{
    const tg_pipe_cut *c = p->c;
    for (size_t k = 0; k < c->whole->nodes.len; k++) {
        const tg_node *node = c->whole->nodes.data[k];
        if (c->piece[k] == TG_PIPE_UPDATE || phase_of(p, k, split) != phase) continue;
        if (c->parted[k]) {
            if (node->op == &tg_op_accumulate) TG_TRY(copy_parted(p, node, phase));
        } else if (c->piece[k] == p->piece || (c->piece[k] == TG_PIPE_ANYWHERE && p->wanted[k])) {
            TG_TRY(copy_whole_node(p, node, phase));
        }
    }
    return TENG_OK;
}

static teng_status add_outputs(copier *p)
{
    const tg_pipe_cut *c = p->c;
    const tg_graph *g = c->whole;
    for (size_t i = 0; i < c->edges.len; i++) {
        const tg_pipe_edge *e = &c->edges.data[i];
        if (e->from == p->piece && !tg_graph_output_find(p->g, e->name))
            TG_TRY(tg_graph_output(p->g, e->name, p->map[e->value]));
    }
    for (size_t i = 0; i < g->outputs.len && p->piece == c->layers->pieces - 1; i++) {
        const teng_tensor *v = g->outputs.data[i].value;
        if (v->node && v->node->phase == TG_UPDATE) continue;
        teng_tensor *mine = copy_of(p, v);
        if (!mine) return teng_error_status();
        TG_TRY(tg_graph_output(p->g, g->outputs.data[i].name, mine));
    }
    return TENG_OK;
}

static teng_status begin(copier *p, const tg_pipe_cut *c, const char *name, int piece)
{
    *p = (copier){.c = c,
                  .g = tg_graph_create(name),
                  .map = tg_calloc(c->whole->values.len + 1, sizeof *p->map),
                  .piece = piece,
                  .wanted = tg_calloc(c->whole->nodes.len + 1, 1)};
    return p->g && p->map && p->wanted ? TENG_OK : TENG_MEMORY;
}

static teng_status end(copier *p, teng_status status, tg_graph **out)
{
    tg_free(p->map);
    tg_free(p->wanted);
    if (status != TENG_OK) tg_graph_destroy(&p->g);
    *out = p->g;
    return status;
}

teng_status tg_pipe_piece_graph(const tg_pipe_cut *cut, int piece, bool split, tg_graph **out)
{
    copier p;
    char name[64];
    snprintf(name, sizeof name, "%s.piece%d", cut->whole->name, piece);
    teng_status status = begin(&p, cut, name, piece);
    if (status == TENG_OK) find_wanted(&p);
    for (int phase = TG_FORWARD; phase < TG_PHASE_COUNT && status == TENG_OK; phase++)
        status = copy_phase(&p, (tg_phase)phase, split);
    if (status == TENG_OK) status = add_outputs(&p);
    return end(&p, status, out);
}

/* ---- the update ---- */
/* Accumulators are states here; those of parameters that other stages hold have no copy. */
static teng_status map_accumulators(copier *p, int stage)
{
    const tg_graph *g = p->c->whole;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        if (!tg_pipe_is_accumulate(node)) continue;
        if (!tg_pipe_cut_holds(p->c, stage, tg_pipe_param_of(node))) continue;
        if (!(p->map[node->out[0]->id] = named(p, node->in[0]))) return teng_error_status();
    }
    return TENG_OK;
}

static bool has_copy(const copier *p, const teng_tensor *v, int stage)
{
    if (v->kind == TG_VALUE_PARAM) return tg_pipe_cut_holds(p->c, stage, v->name);
    return v->kind != TG_VALUE_COMPUTED || p->map[v->id];
}

/* Whether the squares of v, an accumulator or what follows from one, count on this stage. */
static bool counts(const copier *p, const teng_tensor *v, int stage)
{
    while (v->node && v->node->op != &tg_op_accumulate && v->node->n_in > 0)
        v = v->node->in[0];
    if (!v->node || v->node->op != &tg_op_accumulate) return true;
    const char *param = tg_pipe_param_of(v->node);
    for (int s = 0; s < stage; s++)
        if (tg_pipe_cut_holds(p->c, s, param)) return false;
    return true;
}

/* A sum of squares over what there is, an addition of what there is: nothing when there is nothing. */
static teng_status copy_some(copier *p, const tg_node *node, int stage)
{
    teng_tensor **in = tg_alloc(sizeof *in * (size_t)(node->n_in + 1));
    int n = 0;
    if (!in) return TENG_MEMORY;
    for (int i = 0; i < node->n_in; i++)
        if (has_copy(p, node->in[i], stage) &&
            (node->op != &tg_op_sum_squares || counts(p, node->in[i], stage)))
            in[n++] = copy_of(p, node->in[i]);
    teng_status status = TENG_OK;
    if (n == 1 && node->op == &tg_op_add)
        p->map[node->out[0]->id] = in[0];
    else if (n > 0)
        status = copy_node(p, node, in, n, TG_BACKWARD);
    tg_free(in);
    return status;
}

static teng_status copy_clip(copier *p, const tg_node *node)
{
    const teng_desc scalar = tg_desc_make(TENG_F32, 0, NULL);
    teng_tensor *sum = p->map[node->in[0]->id];
    if (!sum) { /* nothing of this stage is trained */
        tg_trace trace;
        tg_trace_begin(&trace, p->g);
        trace.phase = TG_BACKWARD;
        trace.scope = node->scope;
        sum = teng_fill_at((teng_src){0}, TENG_F32, (teng_dims){0}, 0.0);
        tg_trace_end(&trace);
        if (!sum) return teng_error_status();
    }
    TG_TRY(tg_graph_output(p->g, TG_PIPE_SUM, sum));
    teng_tensor *in[2] = {tg_graph_input(p->g, TG_PIPE_TOTAL, &scalar), copy_of(p, node->in[1])};
    return in[0] && in[1] ? copy_node(p, node, in, 2, TG_UPDATE) : teng_error_status();
}

/* A node of the update is the stage's when all that it reads is. */
static bool is_ours(const copier *p, const tg_node *node, int stage)
{
    for (int i = 0; i < node->n_in; i++)
        if (!has_copy(p, node->in[i], stage)) return false;
    return true;
}

/* Every parameter of the stage that the whole graph updates is updated here too. */
static teng_status check_update(const copier *p, int stage)
{
    const tg_graph *g = p->c->whole;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        if (node->phase != TG_UPDATE || !node->op->updates[0]) continue;
        const teng_tensor *v = node->in[node->op->updates[0] - 1];
        while (v->node && v->node->n_in)
            v = v->node->in[0];
        if (v->kind == TG_VALUE_PARAM && tg_pipe_cut_holds(p->c, stage, v->name) && !p->map[node->out[0]->id])
            return tg_fail(TENG_STATE, "pipeline: the update of %s reads what another stage has", v->name);
    }
    return TENG_OK;
}

static teng_status copy_update(copier *p, int stage)
{
    const tg_graph *g = p->c->whole;
    tg_phase phase = TG_BACKWARD; /* until the sum is known */
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        if (node->phase != TG_UPDATE) continue;
        if (node->op == &tg_op_sum_squares || (node->op == &tg_op_add && node->out[0]->desc.ndim == 0)) {
            TG_TRY(copy_some(p, node, stage));
        } else if (node->op == &tg_op_clip_coef) {
            TG_TRY(copy_clip(p, node));
            phase = TG_UPDATE;
        } else if (is_ours(p, node, stage)) {
            TG_TRY(copy_whole_node(p, node, phase));
        }
    }
    for (size_t i = 0; i < g->outputs.len; i++) {
        const teng_tensor *v = g->outputs.data[i].value;
        if (v->node && v->node->phase == TG_UPDATE)
            TG_TRY(tg_graph_output(p->g, g->outputs.data[i].name, p->map[v->id]));
    }
    return TENG_OK;
}

teng_status tg_pipe_update_graph(const tg_pipe_cut *cut, int stage, tg_graph **out)
{
    copier p;
    teng_status status = begin(&p, cut, "update", -1);
    if (status == TENG_OK) status = map_accumulators(&p, stage);
    if (status == TENG_OK) status = copy_update(&p, stage);
    if (status == TENG_OK) status = check_update(&p, stage);
    return end(&p, status, out);
}
