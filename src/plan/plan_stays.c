/*
 * Values that lie in a file between uses (memory.offload). The uses of one are cut into stays; each stay has
 * a buffer of its own, is read ahead of its first use and, when it was changed, written behind its last.
 *
 * How far ahead: as late as a disk of a nominal rate allows by the forecast of the steps, requests one after
 * the other; and never so far that more than a WINDOW'th of what is on disk is on its way, which is what
 * limits phases that the disk cannot keep up with. Two stays between which there is no time to be away are
 * one. No rate changes what is computed.
 */
#include "plan/plan_impl.h"

#include "base/fail.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

#include <stdlib.h>

enum { WINDOW = 16 };
static const double flops_rate = 2e11, memory_rate = 2e10; /* nominal, a second */

typedef struct ordered {
    int step, stay;
} ordered;

typedef struct scheduler {
    struct tg_plan_builder *b;
    tg_plan *plan;
    double *time; /* [steps + 1] at which step k begins */
    int *latest;  /* by root id: its last stay so far, -1 */
    ordered *order;
    int n_slots;
    double window; /* bytes */
} scheduler;

static const teng_tensor *value_of(const tg_plan *plan, int id)
{
    return plan->graph->values.data[id];
}

static double bytes_of(const tg_plan *plan, const tg_plan_stay *s)
{
    return (double)tg_desc_bytes(&value_of(plan, s->value)->desc);
}

/* A run: forward and backward together, or the update. */
static int run_of(const tg_plan *plan, int step)
{
    return (size_t)step >= plan->phase_begin[TG_UPDATE];
}

static int run_begin(const tg_plan *plan, int step)
{
    return run_of(plan, step) ? (int)plan->phase_begin[TG_UPDATE] : 0;
}

static int run_end(const tg_plan *plan, int step)
{
    return (int)plan->phase_begin[run_of(plan, step) ? TG_PHASE_COUNT : TG_UPDATE] - 1;
}

/* ---- who may be away ---- */
static bool may_go(const scheduler *s, const teng_tensor *v)
{
    const unsigned offload = s->plan->options.offload;
    if (tg_desc_bytes(&v->desc) == 0) return false;
    if (v->kind == TG_VALUE_PARAM) return offload & TG_OFFLOAD_PARAMETERS;
    if (v->kind == TG_VALUE_STATE) return offload & TG_OFFLOAD_OPTIMIZER;
    return v->kind == TG_VALUE_COMPUTED && offload & TG_OFFLOAD_ACTIVATIONS && !s->b->pinned[v->id];
}

enum { NONE = -1, NEVER = -2 };

static void find_candidates(scheduler *s)
{
    const tg_graph *g = s->plan->graph;
    for (size_t i = 0; i < g->values.len; i++)
        s->latest[i] = s->b->root[i] == (int)i && may_go(s, g->values.data[i]) ? NONE : NEVER;
    for (size_t i = 0; i < g->outputs.len; i++)
        s->latest[tg_plan_root(s->b, g->outputs.data[i].value->id)] = NEVER;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        const bool beside = s->plan->steps.data[k].join >= (int)g->nodes.len; /* until the end of the run */
        for (int i = 0; i < node->n_in + node->n_out; i++) {
            const teng_tensor *v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
            const int r = tg_plan_root(s->b, v->id);
            const bool sum = value_of(s->plan, r)->kind == TG_VALUE_STATE && node->phase != TG_UPDATE;
            if (beside || sum) s->latest[r] = NEVER; /* accumulated gradients are no optimizer's states */
        }
    }
}

/* Step k, and what runs beside until `end`, uses root r. A computed value has one stay in the forward phase
 * and one for the rest. */
static teng_status touch(scheduler *s, int r, int k, int end, bool writes)
{
    tg_plan *plan = s->plan;
    const bool computed = value_of(plan, r)->kind == TG_VALUE_COMPUTED;
    const bool forward = (size_t)k < plan->phase_begin[TG_BACKWARD];
    if (s->latest[r] == NEVER) return TENG_OK;
    tg_plan_stay *last = s->latest[r] == NONE ? NULL : &plan->stays.data[s->latest[r]];
    const bool same = last && (computed ? forward == ((size_t)last->first < plan->phase_begin[TG_BACKWARD])
                                        : k <= last->last);
    if (!same) {
        const tg_plan_stay stay = {.value = r,
                                   .buffer = -1,
                                   .first = k,
                                   .last = end,
                                   .read = !computed || !forward,
                                   .write = computed && forward,
                                   .slot = -1};
        s->latest[r] = (int)plan->stays.len;
        if (!tg_vec_push(&plan->stays, stay)) return TENG_MEMORY;
        last = &plan->stays.data[s->latest[r]];
    }
    if (last->last < end) last->last = end;
    last->write = last->write || (writes && !computed);
    return TENG_OK;
}

static teng_status find_uses(scheduler *s)
{
    const tg_graph *g = s->plan->graph;
    find_candidates(s);
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        const int join = s->plan->steps.data[k].join, end = join < 0 ? (int)k : join;
        if (node->op->traits & TENG_OP_VIEW) continue;
        for (int i = 0; i < node->n_in; i++)
            TG_TRY(touch(s, tg_plan_root(s->b, node->in[i]->id), (int)k, end, false));
        for (int o = 0; o < node->n_out; o++)
            TG_TRY(touch(s, tg_plan_root(s->b, node->out[o]->id), (int)k, end, true));
    }
    return TENG_OK;
}

static int by_value(const void *x, const void *y)
{
    const tg_plan_stay *a = x, *b = y;
    return a->value != b->value ? (a->value > b->value) - (a->value < b->value)
                                : (a->first > b->first) - (a->first < b->first);
}

/* A computed value that is used in one phase alone stays in memory. */
static void drop_single(tg_plan *plan)
{
    size_t kept = 0;
    tg_plan_stay *all = plan->stays.data;
    if (all) qsort(all, plan->stays.len, sizeof *all, by_value);
    for (size_t i = 0; i < plan->stays.len; i++) {
        const bool pair = (i > 0 && all[i - 1].value == all[i].value) ||
                          (i + 1 < plan->stays.len && all[i + 1].value == all[i].value);
        if (pair || value_of(plan, all[i].value)->kind != TG_VALUE_COMPUTED) all[kept++] = all[i];
    }
    plan->stays.len = kept;
}

/* ---- when ---- */
static double seconds_of(const tg_plan *plan, size_t k)
{
    const tg_plan_options *o = &plan->options;
    return tg_cost_seconds(&plan->steps.data[k].cost, o->flops_per_s > 0 ? o->flops_per_s : flops_rate,
                           o->bytes_per_s > 0 ? o->bytes_per_s : memory_rate);
}

static void find_times(scheduler *s)
{
    s->time[0] = 0;
    for (size_t k = 0; k < s->plan->steps.len; k++)
        s->time[k + 1] = s->time[k] + seconds_of(s->plan, k);
    for (size_t i = 0; i < s->plan->stays.len; i++)
        s->window += bytes_of(s->plan, &s->plan->stays.data[i]) / WINDOW;
}

/* Stays by a step of theirs. */
static int by_step(const void *x, const void *y)
{
    const ordered *a = x, *b = y;
    return a->step != b->step ? (a->step > b->step) - (a->step < b->step)
                              : (a->stay > b->stay) - (a->stay < b->stay);
}

/* The n stays that are read, by first use, or written, by last use. */
static int sort_by_step(scheduler *s, bool reads)
{
    int n = 0;
    for (size_t i = 0; i < s->plan->stays.len; i++) {
        const tg_plan_stay *stay = &s->plan->stays.data[i];
        if (reads ? stay->read : stay->write)
            s->order[n++] = (ordered){reads ? stay->first : stay->last, (int)i};
    }
    if (n) qsort(s->order, (size_t)n, sizeof *s->order, by_step);
    return n;
}

/* The step, in direction by from `at`, at which a window of bytes is passed; `limit` when the run ends
 * before. */
static int window_end(const scheduler *s, int n, int at, int by, int limit)
{
    const int step = s->order[at].step;
    double bytes = 0;
    for (int j = at + by; j >= 0 && j < n && run_of(s->plan, s->order[j].step) == run_of(s->plan, step);
         j += by) {
        if (s->order[j].step == step) continue;
        bytes += bytes_of(s->plan, &s->plan->stays.data[s->order[j].stay]);
        if (bytes >= s->window) return s->order[j].step;
    }
    return limit;
}

static void read_ahead(scheduler *s)
{
    const int n = sort_by_step(s, true);
    double next = 0;
    for (int i = n - 1; i >= 0; i--) {
        tg_plan_stay *stay = &s->plan->stays.data[s->order[i].stay];
        const int begin = run_begin(s->plan, stay->first), limit = window_end(s, n, i, -1, begin);
        const bool last = i == n - 1 || run_of(s->plan, s->order[i + 1].step) != run_of(s->plan, stay->first);
        double start = s->time[stay->first];
        if (!last && next < start) start = next;
        next = start - bytes_of(s->plan, stay) / TG_PLAN_DISK_RATE;
        stay->from = stay->first;
        while (stay->from > limit && s->time[stay->from] > next)
            stay->from--;
    }
}

static void write_behind(scheduler *s)
{
    const int n = sort_by_step(s, false);
    double done = 0;
    for (int i = 0; i < n; i++) {
        tg_plan_stay *stay = &s->plan->stays.data[s->order[i].stay];
        const int end = run_end(s->plan, stay->last), limit = window_end(s, n, i, 1, end);
        if (done < s->time[stay->last + 1]) done = s->time[stay->last + 1];
        done += bytes_of(s->plan, stay) / TG_PLAN_DISK_RATE;
        while (stay->until < limit && s->time[stay->until + 1] < done)
            stay->until++;
    }
}

/* Stays with no time between them are one; a computed value that then has a single one is never away. */
static void merge(tg_plan *plan)
{
    size_t kept = 0;
    tg_plan_stay *all = plan->stays.data;
    for (size_t i = 0; i < plan->stays.len; i++) {
        tg_plan_stay *before = kept ? &all[kept - 1] : NULL;
        if (!before || before->value != all[i].value ||
            run_of(plan, before->first) != run_of(plan, all[i].first) || all[i].from > before->until + 1) {
            all[kept++] = all[i];
        } else if (value_of(plan, all[i].value)->kind == TG_VALUE_COMPUTED) {
            kept--;
        } else {
            before->last = all[i].last;
            before->until = all[i].until > before->until ? all[i].until : before->until;
            before->write = before->write || all[i].write;
        }
    }
    plan->stays.len = kept;
}

static void number(scheduler *s)
{
    tg_plan *plan = s->plan;
    for (size_t i = 0; i < plan->stays.len; i++) {
        tg_plan_stay *stay = &plan->stays.data[i];
        const bool first = !s->b->stays[stay->value];
        if (first) s->b->stays[stay->value] = (int)i + 1;
        if (value_of(plan, stay->value)->kind == TG_VALUE_COMPUTED)
            stay->slot = first ? s->n_slots++ : stay[-1].slot;
    }
}

static teng_status schedule(scheduler *s)
{
    TG_TRY(find_uses(s));
    drop_single(s->plan);
    tg_free(s->order);
    s->order = tg_alloc((s->plan->stays.len + 1) * sizeof *s->order);
    if (!s->order) return TENG_MEMORY;
    for (size_t i = 0; i < s->plan->stays.len; i++) {
        tg_plan_stay *stay = &s->plan->stays.data[i];
        stay->from = stay->first;
        stay->until = stay->last;
    }
    find_times(s);
    read_ahead(s);
    write_behind(s);
    merge(s->plan);
    number(s);
    return TENG_OK;
}

teng_status tg_plan_find_stays(struct tg_plan_builder *b)
{
    tg_plan *plan = b->plan;
    if (!plan->options.offload) return TENG_OK;
    scheduler s = {.b = b,
                   .plan = plan,
                   .time = tg_alloc((plan->steps.len + 1) * sizeof *s.time),
                   .latest = tg_alloc((plan->graph->values.len + 1) * sizeof *s.latest)};
    const teng_status status = s.time && s.latest ? schedule(&s) : TENG_MEMORY;
    tg_free(s.time);
    tg_free(s.latest);
    tg_free(s.order);
    return status;
}

/* ---- where, and what exec does ---- */
teng_status tg_plan_place_stays(struct tg_plan_builder *b, int value)
{
    tg_plan *plan = b->plan;
    const size_t first = (size_t)b->stays[value] - 1;
    plan->values[value] =
        (tg_plan_value){.where = TG_AT_BLOCK, .buffer = (int)plan->buffers.len, .stays = b->stays[value]};
    for (size_t i = first; i < plan->stays.len && plan->stays.data[i].value == value; i++) {
        tg_plan_stay *stay = &plan->stays.data[i];
        const tg_buffer buffer = {tg_desc_bytes(&value_of(plan, value)->desc), stay->from, stay->until, 0,
                                  value};
        stay->buffer = (int)plan->buffers.len;
        if (!tg_vec_push(&plan->buffers, buffer)) return TENG_MEMORY;
    }
    return TENG_OK;
}

int tg_plan_buffer(const tg_plan *plan, int value, int k)
{
    const tg_plan_value *at = &plan->values[value];
    if (!at->stays) return at->buffer;
    size_t i = (size_t)at->stays - 1;
    while (i + 1 < plan->stays.len && plan->stays.data[i + 1].value == plan->stays.data[i].value &&
           plan->stays.data[i + 1].first <= k)
        i++;
    return plan->stays.data[i].buffer;
}

static int by_time(const void *x, const void *y)
{
    const tg_plan_move *a = x, *b = y;
    if (a->step != b->step) return (a->step > b->step) - (a->step < b->step);
    if (a->kind != b->kind) return (a->kind > b->kind) - (a->kind < b->kind);
    if (a->due != b->due) return (a->due > b->due) - (a->due < b->due);
    return (a->stay > b->stay) - (a->stay < b->stay);
}

static teng_status push(tg_plan *plan, int step, tg_move_kind kind, int stay)
{
    return tg_vec_push(&plan->moves, ((tg_plan_move){step, kind, plan->stays.data[stay].first, stay}))
               ? TENG_OK
               : TENG_MEMORY;
}

teng_status tg_plan_list_moves(tg_plan *plan)
{
    for (size_t i = 0; i < plan->stays.len; i++) {
        const tg_plan_stay *s = &plan->stays.data[i];
        if (s->read) TG_TRY(push(plan, s->from, TG_MOVE_READ, (int)i));
        if (s->read) TG_TRY(push(plan, s->first, TG_MOVE_ARRIVED, (int)i));
        if (s->write) TG_TRY(push(plan, s->last, TG_MOVE_WRITE, (int)i));
        if (s->write && s->until < run_end(plan, s->last))
            TG_TRY(push(plan, s->until + 1, TG_MOVE_GONE, (int)i));
    }
    if (plan->moves.len) qsort(plan->moves.data, plan->moves.len, sizeof *plan->moves.data, by_time);
    return TENG_OK;
}

/* Runs the moves against a clock: what computes, and what the disk, one request after the other, has done. */
tg_plan_traffic tg_plan_traffic_of(const tg_plan *plan, bool update)
{
    tg_plan_traffic t = {0};
    double now = 0, disk = 0;
    size_t k = plan->phase_begin[update ? TG_UPDATE : TG_FORWARD];
    double *ticket = plan->moves.len ? tg_calloc(plan->stays.len, sizeof *ticket) : NULL;
    for (size_t i = 0; ticket && i < plan->moves.len; i++) {
        const tg_plan_move *m = &plan->moves.data[i];
        if (run_of(plan, m->step) != update) continue;
        for (; k < (size_t)m->step + (m->kind == TG_MOVE_WRITE); k++)
            now += seconds_of(plan, k);
        if (m->kind == TG_MOVE_READ || m->kind == TG_MOVE_WRITE) {
            const double bytes = bytes_of(plan, &plan->stays.data[m->stay]);
            t.bytes += bytes;
            disk = (disk > now ? disk : now) + bytes / TG_PLAN_DISK_RATE;
            ticket[m->stay] = disk;
        } else if (ticket[m->stay] > now) {
            t.waits += ticket[m->stay] - now;
            now = ticket[m->stay];
        }
    }
    for (; ticket && k < plan->phase_begin[update ? TG_PHASE_COUNT : TG_UPDATE]; k++)
        now += seconds_of(plan, k);
    if (disk > now) t.waits += disk - now; /* a run ends when all is written */
    tg_free(ticket);
    return t;
}
