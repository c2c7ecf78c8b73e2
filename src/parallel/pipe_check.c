/*
 * A schedule is run: by a checker that asks whether it is one, and by a clock that asks how long it takes.
 * Both walk the stages round and round, each as far as what it waits for has been sent.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "parallel/pipe_schedule.h"

typedef struct runner {
    const tg_pipe_schedule *s;
    int pieces;      /* stages × chunks */
    double *forward; /* [pieces][micro_batches] when the output has arrived at the next piece; < 0: not yet */
    double *backward; /* the same of the gradient, at the piece before */
    int *next;        /* [stages] action */
    double *clock;    /* [stages] */
} runner;

static size_t at(const runner *r, int piece, int micro_batch)
{
    return (size_t)piece * (size_t)r->s->micro_batches + (size_t)micro_batch;
}

static teng_status begin(const tg_pipe_schedule *s, runner *r)
{
    *r = (runner){.s = s, .pieces = s->stages * s->chunks};
    const size_t n = (size_t)r->pieces * (size_t)s->micro_batches;
    r->forward = tg_alloc(n * sizeof *r->forward);
    r->backward = tg_alloc(n * sizeof *r->backward);
    r->next = tg_calloc((size_t)s->stages, sizeof *r->next);
    r->clock = tg_calloc((size_t)s->stages, sizeof *r->clock);
    if (!r->forward || !r->backward || !r->next || !r->clock) return TENG_MEMORY;
    for (size_t i = 0; i < n; i++)
        r->forward[i] = r->backward[i] = -1;
    return TENG_OK;
}

static void end(runner *r)
{
    tg_free(r->forward);
    tg_free(r->backward);
    tg_free(r->next);
    tg_free(r->clock);
}

/* When what the action receives has come, 0: it receives nothing; < 0: it has not been sent. */
static double arrival(const runner *r, int stage, const tg_pipe_action *a)
{
    const int piece = a->chunk * r->s->stages + stage;
    if (a->work == TG_PIPE_FORWARD) return piece > 0 ? r->forward[at(r, piece - 1, a->micro_batch)] : 0;
    if (a->work == TG_PIPE_WEIGHT_GRAD) return 0;
    return piece + 1 < r->pieces ? r->backward[at(r, piece + 1, a->micro_batch)] : 0;
}

/* Runs the stage's next action if it can. cost NULL: a second each. */
static bool advance(runner *r, int stage, const tg_pipe_cost *costs, double message, tg_pipe_times *out)
{
    const tg_pipe_schedule *s = r->s;
    if (r->next[stage] == s->per_stage) return false;
    const tg_pipe_action *a = &tg_pipe_actions(s, stage)[r->next[stage]];
    const double when = arrival(r, stage, a);
    if (when < 0) return false;
    const int piece = a->chunk * s->stages + stage;
    const tg_pipe_cost one = {1, 1, 1}, c = costs ? costs[piece] : one;
    const double start = when > r->clock[stage] ? when : r->clock[stage];
    const double takes = a->work == TG_PIPE_FORWARD       ? c.forward
                         : a->work == TG_PIPE_INPUT_GRAD  ? c.input_grad
                         : a->work == TG_PIPE_WEIGHT_GRAD ? c.weight_grad
                                                          : c.input_grad + c.weight_grad;
    const double done = start + takes, there = done + (s->stages > 1 ? message : 0);
    r->clock[stage] = done;
    if (a->work == TG_PIPE_FORWARD) r->forward[at(r, piece, a->micro_batch)] = there;
    if (a->work == TG_PIPE_BACKWARD || a->work == TG_PIPE_INPUT_GRAD)
        r->backward[at(r, piece, a->micro_batch)] = there;
    if (out) {
        const size_t k = (size_t)stage * (size_t)s->per_stage + (size_t)r->next[stage];
        out->begin[k] = start;
        out->end[k] = done;
        out->busy += takes;
        if (done > out->step) out->step = done;
    }
    r->next[stage]++;
    return true;
}

static const char *work_name(tg_pipe_work work)
{
    static const char *const texts[] = {"forward", "backward", "input gradient", "weight gradient"};
    return texts[work];
}

static teng_status run(runner *r, const tg_pipe_cost *costs, double message, tg_pipe_times *out)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int stage = 0; stage < r->s->stages; stage++)
            while (advance(r, stage, costs, message, out))
                moved = true;
    }
    for (int stage = 0; stage < r->s->stages; stage++) {
        if (r->next[stage] == r->s->per_stage) continue;
        const tg_pipe_action *a = &tg_pipe_actions(r->s, stage)[r->next[stage]];
        return tg_fail(TENG_STATE,
                       "pipeline schedule %s: stage %d waits for ever before its action %d, %s of "
                       "micro-batch %d, chunk %d",
                       tg_pipe_kind_name(r->s->kind), stage, r->next[stage], work_name(a->work),
                       a->micro_batch, a->chunk);
    }
    return TENG_OK;
}

/* One stage by itself: each chunk does each micro-batch once, in order, and each kind of work after the one
 * before it. done: [chunks][4]. */
static teng_status check_order(const tg_pipe_schedule *s, int stage, int *done)
{
    const tg_pipe_action *a = tg_pipe_actions(s, stage);
    for (int i = 0; i < s->chunks * 4; i++)
        done[i] = 0;
    for (int k = 0; k < s->per_stage; k++) {
        const bool split = s->kind == TG_PIPE_ZERO_BUBBLE;
        if (a[k].chunk < 0 || a[k].chunk >= s->chunks || (a[k].work == TG_PIPE_BACKWARD && split) ||
            (a[k].work > TG_PIPE_BACKWARD && !split))
            return tg_fail(TENG_STATE, "pipeline schedule %s: action %d of stage %d is not one of it",
                           tg_pipe_kind_name(s->kind), k, stage);
        int *n = &done[a[k].chunk * 4];
        const int before = a[k].work == TG_PIPE_FORWARD       ? s->micro_batches
                           : a[k].work == TG_PIPE_WEIGHT_GRAD ? n[TG_PIPE_INPUT_GRAD]
                                                              : n[TG_PIPE_FORWARD];
        if (a[k].micro_batch != n[a[k].work] || a[k].micro_batch >= before)
            return tg_fail(
                TENG_STATE,
                "pipeline schedule %s: action %d of stage %d, %s of micro-batch %d, chunk %d, comes "
                "out of order",
                tg_pipe_kind_name(s->kind), k, stage, work_name(a[k].work), a[k].micro_batch, a[k].chunk);
        n[a[k].work]++;
    }
    for (int c = 0; c < s->chunks; c++) {
        const int *n = &done[c * 4];
        const int last = s->kind == TG_PIPE_ZERO_BUBBLE ? n[TG_PIPE_WEIGHT_GRAD] : n[TG_PIPE_BACKWARD];
        if (n[TG_PIPE_FORWARD] != s->micro_batches || last != s->micro_batches)
            return tg_fail(TENG_STATE, "pipeline schedule %s: stage %d leaves out micro-batches of chunk %d",
                           tg_pipe_kind_name(s->kind), stage, c);
    }
    if (tg_pipe_held(s, stage, -1) > tg_pipe_bound(s, stage))
        return tg_fail(
            TENG_STATE, "pipeline schedule %s: stage %d holds %d micro-batches, %d at most are stated",
            tg_pipe_kind_name(s->kind), stage, tg_pipe_held(s, stage, -1), tg_pipe_bound(s, stage));
    return TENG_OK;
}

teng_status tg_pipe_check(const tg_pipe_schedule *s)
{
    int *done = tg_alloc(sizeof *done * 4 * (size_t)s->chunks);
    if (!done) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (int stage = 0; stage < s->stages && status == TENG_OK; stage++)
        status = check_order(s, stage, done);
    tg_free(done);
    TG_TRY(status);
    runner r;
    status = begin(s, &r);
    if (status == TENG_OK) status = run(&r, NULL, 0, NULL);
    end(&r);
    return status;
}

teng_status tg_pipe_simulate(const tg_pipe_schedule *s, const tg_pipe_cost *costs, double message,
                             tg_pipe_times *out)
{
    const size_t n = (size_t)s->stages * (size_t)s->per_stage;
    runner r;
    *out = (tg_pipe_times){.begin = tg_calloc(n, sizeof(double)), .end = tg_calloc(n, sizeof(double))};
    teng_status status = begin(s, &r);
    if (!out->begin || !out->end) status = TENG_MEMORY;
    if (status == TENG_OK) status = run(&r, costs, message, out);
    end(&r);
    if (status != TENG_OK) {
        tg_pipe_times_free(out);
        return status;
    }
    out->bubble = out->step > 0 ? 1 - out->busy / ((double)s->stages * out->step) : 0;
    return TENG_OK;
}

void tg_pipe_times_free(tg_pipe_times *times)
{
    tg_free(times->begin);
    tg_free(times->end);
    *times = (tg_pipe_times){0};
}
