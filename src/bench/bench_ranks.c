/*
 * What lies between the ranks: latency and bandwidth of every pair, host names, versions and clocks. Pairs
 * are measured one after the other, while all other ranks wait, so that they do not disturb each other. Not
 * here: how fast a training is on them (bench_step.c).
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SMALL_ROUNDS = 50, BIG_ROUNDS = 4, BIG = 4 << 20 };

typedef struct card { /* what each rank says of itself; the same bytes on every rank */
    char version[32], binding[512];
} card;

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* There and back; seconds of one way. first: this rank begins. */
static teng_status ping(tg_group *g, int other, bool first, char *data, size_t bytes, int rounds, double *out)
{
    double *times = tg_alloc(sizeof *times * (size_t)rounds);
    if (!times) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (int i = -1; i < rounds && status == TENG_OK; i++) { /* the first makes the connection */
        const double begin = tg_clock_seconds();
        for (int way = 0; way < 2 && status == TENG_OK; way++)
            status = (way == 0) == first ? tg_comm_exchange(g, other, data, bytes, -1, NULL, 0)
                                         : tg_comm_exchange(g, -1, NULL, 0, other, data, bytes);
        if (i >= 0) times[i] = (tg_clock_seconds() - begin) / 2;
    }
    *out = tg_bench_stat_of(times, rounds).median;
    tg_free(times);
    return status;
}

/* The other's clock minus this one's, of the quickest of some exchanges. */
static teng_status clock_offset(tg_group *g, int other, bool first, double *out)
{
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double theirs = 0;
        const double begin = wall();
        if (first) {
            TG_TRY(tg_comm_exchange(g, other, &theirs, sizeof theirs, -1, NULL, 0));
            TG_TRY(tg_comm_exchange(g, -1, NULL, 0, other, &theirs, sizeof theirs));
            const double took = wall() - begin;
            if (took < best) {
                best = took;
                *out = theirs - (begin + took / 2);
            }
        } else {
            TG_TRY(tg_comm_exchange(g, -1, NULL, 0, other, &theirs, sizeof theirs));
            theirs = wall();
            TG_TRY(tg_comm_exchange(g, other, &theirs, sizeof theirs, -1, NULL, 0));
        }
    }
    return TENG_OK;
}

typedef struct matrix { /* [ranks][ranks] */
    double *latency, *bandwidth, *offset;
} matrix;

static teng_status measure_pairs(tg_group *g, int n, int me, char *data, matrix *m)
{
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            TG_TRY(tg_comm_barrier(g));
            if (me != a && me != b) continue;
            const int other = me == a ? b : a, at = a * n + b;
            double small = 0, big = 0;
            TG_TRY(ping(g, other, me == a, data, 8, SMALL_ROUNDS, &small));
            TG_TRY(ping(g, other, me == a, data, BIG, BIG_ROUNDS, &big));
            double offset = 0;
            if (a == 0) TG_TRY(clock_offset(g, other, me == a, &offset));
            if (me != a) continue; /* the lower one keeps it */
            m->latency[at] = m->latency[b * n + a] = small;
            m->bandwidth[at] = m->bandwidth[b * n + a] = BIG / big;
            m->offset[at] = offset;
        }
    return TENG_OK;
}

static json_t *rows(const double *values, int n, double factor)
{
    json_t *list = json_array();
    for (int a = 0; a < n; a++) {
        json_t *row = json_array();
        for (int b = 0; b < n; b++)
            json_array_append_new(row, a == b ? json_null() : json_real(values[a * n + b] * factor));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *ranks_json(const card *cards, const matrix *m, int n)
{
    json_t *list = json_array();
    for (int r = 0; r < n; r++) {
        json_t *o = json_pack("{s:i, s:s, s:s, s:f}", "rank", r, "where", cards[r].binding, "version",
                              cards[r].version, "clock_offset_us", m->offset[r] * 1e6);
        json_array_append_new(list, o);
    }
    return list;
}

static teng_status tell(const tg_comm *comm, const card *cards, const matrix *m, json_t **out)
{
    const int n = tg_comm_size(comm);
    const char *mpi;
    bool same = true;
    double slowest = 0, narrowest = 0;
    tg_comm_has_mpi(&mpi);
    for (int r = 1; r < n; r++)
        same = same && strcmp(cards[r].version, cards[0].version) == 0;
    for (int i = 0; i < n * n; i++) {
        if (m->latency[i] > slowest) slowest = m->latency[i];
        if (m->bandwidth[i] > 0 && (narrowest <= 0 || m->bandwidth[i] < narrowest))
            narrowest = m->bandwidth[i];
    }
    return tg_bench_answer(json_pack("{s:i, s:s, s:b, s:f, s:f, s:o, s:o, s:o}", "ranks", n, "mpi", mpi,
                                     "same_version", same, "worst_latency_us", slowest * 1e6,
                                     "worst_bandwidth_gb_s", narrowest * 1e-9, "of_ranks",
                                     ranks_json(cards, m, n), "latency_us", rows(m->latency, n, 1e6),
                                     "bandwidth_gb_s", rows(m->bandwidth, n, 1e-9)),
                           out);
}

static teng_status measure(tg_comm *comm, card *cards, matrix *m, char *data, json_t **out)
{
    tg_group *g = tg_comm_world(comm);
    const int n = tg_comm_size(comm), me = tg_comm_rank(comm);
    card *own = &cards[me];
    snprintf(own->version, sizeof own->version, "%s", teng_version());
    snprintf(own->binding, sizeof own->binding, "%s", tg_comm_binding(comm));
    for (int r = 0; r < n; r++)
        TG_TRY(tg_comm_broadcast(g, r, &cards[r], sizeof cards[r]));
    TG_TRY(measure_pairs(g, n, me, data, m));
    double *const all[] = {m->latency, m->bandwidth, m->offset};
    for (int i = 0; i < 3; i++)
        TG_TRY(tg_comm_all_reduce(g, TG_REDUCE_SUM, TENG_F64, all[i], all[i], (int64_t)n * n));
    return me == 0 ? tell(comm, cards, m, out) : TENG_OK;
}

teng_status tg_bench_ranks(tg_comm *comm, json_t **out)
{
    const size_t n = (size_t)tg_comm_size(comm);
    *out = NULL;
    if (n < 2)
        return tg_fail(TENG_INVALID,
                       "this process is one rank alone; start several: teng launch -n 2 doctor ranks, or "
                       "mpirun -n 2 teng doctor ranks");
    card *cards = tg_calloc(n, sizeof *cards);
    double *values = tg_calloc(n * n * 3, sizeof *values);
    char *data = tg_calloc(1, BIG);
    matrix m = {values, values + n * n, values + 2 * n * n};
    const teng_status status = cards && values && data ? measure(comm, cards, &m, data, out) : TENG_MEMORY;
    tg_free(cards);
    tg_free(values);
    tg_free(data);
    return status;
}
