/*
 * A training step of one stage: the actions of its schedule in order, values from and to the other stages
 * around each, then gradients of shared parameters and the squares of all summed over the stages, and the
 * update of the stage's own parameters. Sends are buffered, receives wait: schedules are proven to end so.
 */
#include "train/step_pipeline.h"

#include "base/fail.h"
#include "comm/comm.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <string.h>

typedef struct runner { /* of one step */
    tg_step *s;
    tg_pipe_program *program;
    tg_group *group;
    int64_t step;
    const tg_step_feed *feeds; /* [micro_batches] */
    int64_t first;             /* number of feeds[0] */
    double total;              /* weighted losses, on the last stage */
    tg_node_watch *watch;      /* NULL: none */
    void *user;
} runner;

static teng_status begin(tg_step *s, const tg_step_feed *feeds, tg_step_kind kind, runner *r)
{
    *r = (runner){.s = s, .feeds = feeds};
    r->group = tg_comm_along(tg_comm_current(), 1u << TG_AXIS_PIPELINE);
    if (!r->group) return teng_error_status();
    return tg_step_pipe_program(s, &feeds[0], kind, true, &r->program);
}

/* ---- inputs ---- */
/* Feeds what the phase is the first to read. */
static teng_status feed(const runner *r, const tg_pipe_piece *piece, tg_exec *e, int64_t m, tg_phase phase)
{
    const tg_step_feed *f = &r->feeds[m - r->first];
    const float weight = tg_step_seed(r->s, f->weight), keep = m && r->s->pipe->chunks == 1 ? 1.0F : 0.0F;
    const float always = 1.0F;
    uint64_t rng[2];
    tg_step_rng(r->s, r->step, m, rng);
    for (int i = 0; i < piece->n_in; i++) {
        const char *name = piece->in_name[i];
        const void *data = NULL;
        if (piece->in_phase[i] != phase) continue;
        if (strcmp(name, TG_STEP_WEIGHT) == 0) data = &weight;
        if (strcmp(name, TG_STEP_RNG) == 0) data = rng;
        if (strcmp(name, TG_OPTIM_KEEP) == 0) data = r->s->pipe->chunks > 1 ? &always : &keep;
        for (int k = 0; k < f->n_in && !data; k++)
            if (strcmp(name, f->in_name[k]) == 0) data = f->in[k];
        if (!data) return tg_fail(TENG_INVALID, "the graph's input %s is not fed", name);
        TG_TRY(tg_exec_feed(e, name, data));
    }
    return TENG_OK;
}

/* ---- messages ---- */
/* Values between two pieces have an order of their own for each pass that makes them. */
static int tag_of(const runner *r, const tg_pipe_edge *e)
{
    const tg_graph *g = r->program->cut->whole;
    const int pieces = r->program->cut->layers->pieces;
    return (e->from * pieces + e->to) * 2 + (g->values.data[e->value]->node->phase == TG_BACKWARD);
}

static teng_status receive(const runner *r, const tg_pipe_piece *piece, tg_exec *e, bool forward)
{
    const tg_pipe_cut *cut = r->program->cut;
    for (size_t i = 0; i < cut->edges.len; i++) {
        const tg_pipe_edge *edge = &cut->edges.data[i];
        if (edge->to != piece->piece || (edge->from < edge->to) != forward) continue;
        void *at = tg_exec_at(e, edge->name);
        if (!at) return tg_fail(TENG_STATE, "pipeline: nothing of piece %d reads %s", edge->to, edge->name);
        TG_TRY(tg_comm_receive(r->group, edge->from % cut->stages, tag_of(r, edge), at, edge->bytes));
    }
    return TENG_OK;
}

static teng_status send(const runner *r, const tg_pipe_piece *piece, tg_exec *e, tg_phase made)
{
    const tg_pipe_cut *cut = r->program->cut;
    for (size_t i = 0; i < cut->edges.len; i++) {
        const tg_pipe_edge *edge = &cut->edges.data[i];
        if (edge->from != piece->piece || cut->whole->values.data[edge->value]->node->phase != made) continue;
        const void *at = tg_exec_at(e, edge->name);
        if (!at) return tg_fail(TENG_STATE, "pipeline: piece %d does not make %s", edge->from, edge->name);
        TG_TRY(tg_comm_send(r->group, edge->to % cut->stages, tag_of(r, edge), at, edge->bytes));
    }
    return TENG_OK;
}

/* ---- actions ---- */
static teng_status run_phases(const runner *r, tg_exec *e, tg_phase first, tg_phase last)
{
    bool stopped;
    return r->watch ? tg_exec_run_watched(e, first, last, r->watch, r->user, &stopped)
                    : tg_exec_run(e, first, last);
}

static teng_status run_forward(runner *r, const tg_pipe_piece *piece, tg_exec *e, int64_t m)
{
    TG_TRY(feed(r, piece, e, m, TG_FORWARD));
    TG_TRY(receive(r, piece, e, true));
    TG_TRY(run_phases(r, e, TG_FORWARD, TG_FORWARD));
    TG_TRY(send(r, piece, e, TG_FORWARD));
    float loss;
    if (!tg_graph_output_find(piece->plan->graph, "loss")) return TENG_OK;
    TG_TRY(tg_exec_fetch(e, "loss", &loss, sizeof loss));
    r->total += r->feeds[m - r->first].weight * (double)loss;
    return TENG_OK;
}

static teng_status run_backward(runner *r, const tg_pipe_piece *piece, tg_exec *e, int64_t m)
{
    TG_TRY(feed(r, piece, e, m, TG_BACKWARD));
    TG_TRY(receive(r, piece, e, false));
    TG_TRY(run_phases(r, e, TG_BACKWARD, TG_BACKWARD));
    return send(r, piece, e, TG_BACKWARD);
}

static teng_status run_action(runner *r, const tg_pipe_action *a)
{
    const tg_pipe_piece *piece = &r->program->pieces[a->chunk];
    tg_exec *e = piece->exec[a->micro_batch % piece->slots];
    switch (a->work) {
    case TG_PIPE_FORWARD:
        return run_forward(r, piece, e, a->micro_batch);
    case TG_PIPE_BACKWARD:
    case TG_PIPE_INPUT_GRAD:
        return run_backward(r, piece, e, a->micro_batch);
    case TG_PIPE_WEIGHT_GRAD:
        break;
    }
    TG_TRY(feed(r, piece, e, a->micro_batch, TG_UPDATE));
    return run_phases(r, e, TG_UPDATE, TG_UPDATE);
}

/* Several pieces of a stage may add to one accumulator, in an order of their own: they begin at zero. */
static void clear_accumulators(const tg_step *s)
{
    for (size_t i = 0; s->pipe->chunks > 1 && i < tg_store_count(s->store); i++) {
        const tg_store_entry *e = tg_store_at(s->store, i);
        if (e->kind == TG_STORE_STATE && strncmp(e->name, "grad.", 5) == 0)
            memset(e->data, 0, tg_desc_bytes(&e->desc));
    }
}

/* ---- over the stages ---- */
enum { SUM_TAG = 30000, BACK_TAG };

static void add(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* The first stage that holds the parameter adds up what the others send, in their order, and sends the sum
 * back: all have the same bits. */
static teng_status sum_one(const runner *r, const tg_pipe_shared *shared, float *mine, int64_t n)
{
    const int stages = r->s->pipe->stages, stage = r->s->pipe->stage;
    const size_t bytes = sizeof(float) * (size_t)n;
    int first = 0;
    while (!shared->on[first])
        first++;
    if (stage != first) {
        if (shared->adds[stage]) TG_TRY(tg_comm_send(r->group, first, SUM_TAG, mine, bytes));
        return tg_comm_receive(r->group, first, BACK_TAG, mine, bytes);
    }
    float *theirs = tg_alloc(bytes + 1);
    teng_status status = theirs ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && !shared->adds[stage]) memset(mine, 0, bytes);
    for (int from = first + 1; from < stages && status == TENG_OK; from++) {
        if (!shared->adds[from]) continue;
        status = tg_comm_receive(r->group, from, SUM_TAG, theirs, bytes);
        if (status == TENG_OK) add(mine, theirs, n);
    }
    for (int to = first + 1; to < stages && status == TENG_OK; to++)
        if (shared->on[to]) status = tg_comm_send(r->group, to, BACK_TAG, mine, bytes);
    tg_free(theirs);
    return status;
}

static teng_status sum_shared(const runner *r)
{
    const tg_pipe_cut *cut = r->program->cut;
    for (size_t i = 0; i < cut->shared.len; i++) {
        const tg_pipe_shared *shared = &cut->shared.data[i];
        bool any = false;
        for (int stage = 0; stage < cut->stages; stage++)
            any = any || shared->adds[stage];
        if (!any || !shared->on[r->s->pipe->stage]) continue;
        char name[TG_NAME_MAX];
        snprintf(name, sizeof name, "grad.%s", shared->name);
        const tg_store_entry *e = tg_store_find(r->s->store, name);
        if (!e || e->desc.dtype != TENG_F32)
            return tg_fail(TENG_STATE, "pipeline: the shared gradient %s has no accumulator", name);
        TG_TRY(sum_one(r, shared, e->data, tg_desc_numel(&e->desc)));
    }
    return TENG_OK;
}

static teng_status update(const runner *r, double lr, double loss, float *norm)
{
    tg_exec *e = r->program->update;
    float scalars[4], sum;
    const float unscale = tg_step_unscale(r->s, loss);
    tg_step_scalars(r->s, r->step, lr, scalars);
    if (tg_exec_has_input(e, TG_OPTIM_SCALARS)) TG_TRY(tg_exec_feed(e, TG_OPTIM_SCALARS, scalars));
    TG_TRY(tg_exec_feed(e, TG_OPTIM_UNSCALE, &unscale));
    TG_TRY(tg_exec_run(e, TG_FORWARD, TG_BACKWARD));
    TG_TRY(tg_exec_fetch(e, TG_PIPE_SUM, &sum, sizeof sum));
    TG_TRY(tg_comm_all_reduce(r->group, TG_REDUCE_SUM, TENG_F32, &sum, &sum, 1));
    TG_TRY(tg_exec_feed(e, TG_PIPE_TOTAL, &sum));
    TG_TRY(tg_exec_run(e, TG_UPDATE, TG_UPDATE));
    return tg_exec_fetch(e, "grad_norm", norm, sizeof *norm);
}

teng_status tg_step_pipe_train(tg_step *s, int64_t step, double lr, const tg_step_feed *feeds,
                               tg_step_result *out)
{
    const tg_pipe_schedule *schedule = s->pipe->schedule;
    runner r;
    float norm;
    for (int64_t m = 1; m < s->options.micro_batches; m++)
        if (!tg_step_same_shapes(feeds[m].in_desc, feeds[m].n_in, &feeds[0]))
            return tg_fail(TENG_INVALID,
                           "micro-batches of a pipeline must have one shape: number %lld of "
                           "this step is another",
                           (long long)m);
    TG_TRY(begin(s, feeds, TG_STEP_TRAIN, &r));
    r.step = step;
    clear_accumulators(s);
    for (int k = 0; k < schedule->per_stage; k++)
        TG_TRY(run_action(&r, &tg_pipe_actions(schedule, s->pipe->stage)[k]));
    TG_TRY(tg_comm_broadcast(r.group, s->pipe->stages - 1, &r.total, sizeof r.total));
    TG_TRY(sum_shared(&r));
    TG_TRY(update(&r, lr, r.total, &norm));
    *out = tg_step_result_of(r.total, norm);
    return TENG_OK;
}

teng_status tg_step_pipe_forward(tg_step *s, const tg_step_feed *feeds, tg_step_kind kind, void *out,
                                 size_t bytes)
{
    runner r;
    TG_TRY(begin(s, feeds, kind, &r));
    for (int c = 0; c < s->pipe->chunks; c++)
        TG_TRY(run_forward(&r, &r.program->pieces[c], r.program->pieces[c].exec[0], 0));
    const tg_pipe_piece *last = &r.program->pieces[s->pipe->chunks - 1];
    if (s->pipe->stage == s->pipe->stages - 1)
        TG_TRY(tg_exec_fetch(last->exec[0], kind == TG_STEP_FORWARD ? "value" : "loss", out, bytes));
    return tg_comm_broadcast(r.group, s->pipe->stages - 1, out, bytes);
}

teng_status tg_step_pipe_passes(tg_step *s, int64_t step, int64_t m, const tg_step_feed *f,
                                tg_node_watch *watch, void *user, int64_t *order)
{
    const int pieces = s->pipe->stages * s->pipe->chunks;
    runner r;
    TG_TRY(begin(s, f, TG_STEP_TRAIN, &r));
    r.step = step;
    r.first = m;
    r.watch = watch;
    r.user = user;
    for (int c = 0; c < s->pipe->chunks; c++) {
        const tg_pipe_piece *piece = &r.program->pieces[c];
        *order = (int64_t)piece->piece << 20;
        TG_TRY(run_forward(&r, piece, piece->exec[0], m));
    }
    for (int c = s->pipe->chunks; c-- > 0;) {
        const tg_pipe_piece *piece = &r.program->pieces[c];
        *order = (int64_t)(2 * pieces - piece->piece) << 20;
        TG_TRY(run_backward(&r, piece, piece->exec[0], m));
        TG_TRY(
            feed(&r, piece, piece->exec[0], m, TG_UPDATE)); /* zero_bubble: weight gradients; else nothing */
        TG_TRY(run_phases(&r, piece->exec[0], TG_UPDATE, TG_UPDATE));
    }
    return TENG_OK;
}
