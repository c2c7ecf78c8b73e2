/*
 * The orders themselves, each as its paper gives it. Not here: whether they are right (pipe_check.c, by
 * running them), nor what a piece of the model is (pipe_stage.c).
 */
#include "parallel/pipe_schedule.h"

#include "base/fail.h"
#include "base/mem.h"

static const char *const names[TG_PIPE_KINDS] = {"1f1b", "gpipe", "interleaved", "zero_bubble"};

const char *tg_pipe_kind_name(tg_pipe_kind kind)
{
    return names[kind];
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

typedef struct writer { /* of one stage */
    const tg_pipe_schedule *s;
    tg_pipe_action *next;
    int forward, backward, weight; /* done so far, of all chunks */
} writer;

/* The n-th piece of the interleaved order: p micro-batches of one chunk, then of the next. */
static tg_pipe_action piece(const tg_pipe_schedule *s, tg_pipe_work work, int n)
{
    if (s->chunks == 1) return (tg_pipe_action){work, n, 0};
    const int round = n / (s->stages * s->chunks), inside = n % (s->stages * s->chunks);
    const int chunk = inside / s->stages;
    return (tg_pipe_action){work, round * s->stages + inside % s->stages,
                            work == TG_PIPE_FORWARD ? chunk : s->chunks - 1 - chunk};
}

static void put(writer *w, tg_pipe_work work)
{
    int *n = work == TG_PIPE_FORWARD ? &w->forward : work == TG_PIPE_WEIGHT_GRAD ? &w->weight : &w->backward;
    *w->next++ = piece(w->s, work, (*n)++);
}

/* `warm` forward passes, then one forward and one backward in turn, then what is left of backward. */
static void one_by_one(writer *w, int warm, int all)
{
    while (w->forward < least(warm, all))
        put(w, TG_PIPE_FORWARD);
    while (w->backward < all) {
        if (w->forward < all) put(w, TG_PIPE_FORWARD);
        put(w, TG_PIPE_BACKWARD);
    }
}

/* ZB-H1: as 1f1b with input gradients alone; stage s puts weight gradients off by s micro-batches, which
 * fills the end, and holds as many micro-batches as the first stage. */
static void zero_bubble(writer *w, int stage, int warm, int all)
{
    while (w->forward < least(warm, all))
        put(w, TG_PIPE_FORWARD);
    while (w->backward < all) {
        if (w->forward < all) put(w, TG_PIPE_FORWARD);
        put(w, TG_PIPE_INPUT_GRAD);
        if (w->backward - w->weight > stage) put(w, TG_PIPE_WEIGHT_GRAD);
    }
    while (w->weight < all)
        put(w, TG_PIPE_WEIGHT_GRAD);
}

/* Forward passes before the first backward one of a stage's steady state, that of its own turn not counted.
 */
static int warm_up(const tg_pipe_schedule *s, int stage)
{
    const int left = s->stages - stage - 1;
    switch (s->kind) {
    case TG_PIPE_GPIPE:
        return s->micro_batches;
    case TG_PIPE_INTERLEAVED:
        return 2 * left + (s->chunks - 1) * s->stages;
    default:
        return left;
    }
}

static teng_status check_sizes(tg_pipe_kind kind, int p, int m, int v)
{
    if (p < 1 || m < 1 || v < 1)
        return tg_fail(TENG_INVALID,
                       "a pipeline of %d stages, %d chunks and %d micro-batches: each must be at least 1", p,
                       v, m);
    if (kind != TG_PIPE_INTERLEAVED && v > 1)
        return tg_fail(TENG_INVALID,
                       "parallel.chunks=%d: the schedule %s has one chunk a stage; "
                       "parallel.schedule=interleaved takes several",
                       v, names[kind]);
    if (kind == TG_PIPE_INTERLEAVED && v == 1)
        return tg_fail(TENG_INVALID, "parallel.schedule=interleaved with parallel.chunks=1 has nothing to "
                                     "interleave: give parallel.chunks=2 or more, or parallel.schedule=1f1b");
    if (kind == TG_PIPE_INTERLEAVED && m % p)
        return tg_fail(TENG_INVALID,
                       "parallel.schedule=interleaved sends micro-batches through in groups of "
                       "parallel.pipeline=%d, which does not divide train.micro_batches=%d; %d would go",
                       p, m, (m + p - 1) / p * p);
    return TENG_OK;
}

teng_status tg_pipe_schedule_make(tg_pipe_kind kind, int stages, int micro_batches, int chunks,
                                  tg_pipe_schedule **out)
{
    TG_TRY(check_sizes(kind, stages, micro_batches, chunks));
    tg_pipe_schedule *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    const int all = micro_batches * chunks;
    *s = (tg_pipe_schedule){.kind = kind,
                            .stages = stages,
                            .micro_batches = micro_batches,
                            .chunks = chunks,
                            .per_stage = all * (kind == TG_PIPE_ZERO_BUBBLE ? 3 : 2)};
    s->actions = tg_calloc((size_t)stages * (size_t)s->per_stage, sizeof *s->actions);
    if (!s->actions) {
        tg_free(s);
        return TENG_MEMORY;
    }
    for (int stage = 0; stage < stages; stage++) {
        writer w = {.s = s, .next = s->actions + (size_t)stage * (size_t)s->per_stage};
        if (kind == TG_PIPE_ZERO_BUBBLE)
            zero_bubble(&w, stage, warm_up(s, stage), all);
        else
            one_by_one(&w, warm_up(s, stage), all);
    }
    *out = s;
    return TENG_OK;
}

void tg_pipe_schedule_destroy(tg_pipe_schedule **schedule)
{
    if (!*schedule) return;
    tg_free((*schedule)->actions);
    tg_free(*schedule);
    *schedule = NULL;
}

const tg_pipe_action *tg_pipe_actions(const tg_pipe_schedule *schedule, int stage)
{
    return schedule->actions + (size_t)stage * (size_t)schedule->per_stage;
}

int tg_pipe_bound(const tg_pipe_schedule *s, int stage)
{
    if (s->kind == TG_PIPE_ZERO_BUBBLE) return least(s->micro_batches, s->stages);
    if (s->kind == TG_PIPE_GPIPE) return s->micro_batches;
    return least(s->micro_batches * s->chunks, warm_up(s, stage) + 1);
}

int tg_pipe_held(const tg_pipe_schedule *s, int stage, int chunk)
{
    const tg_pipe_action *a = tg_pipe_actions(s, stage);
    const tg_pipe_work frees = s->kind == TG_PIPE_ZERO_BUBBLE ? TG_PIPE_WEIGHT_GRAD : TG_PIPE_BACKWARD;
    int held = 0, most = 0;
    for (int k = 0; k < s->per_stage; k++) {
        if (chunk >= 0 && a[k].chunk != chunk) continue;
        held += (a[k].work == TG_PIPE_FORWARD) - (a[k].work == frees);
        if (held > most) most = held;
    }
    return most;
}
