/*
 * The minimum cut of one layer. Each value is an edge whose capacity is its bytes; it hangs at the source
 * when its operator may not run again, at the sink when backward reads it, and behind the values that its
 * operator reads. A cut of the edges between is a set of values to keep. Found by augmenting paths (Ford &
 * Fulkerson 1956, shortest first as Edmonds & Karp 1972): layers have tens of values.
 */
#include "pass/recompute_impl.h"

#include <string.h>

enum { NONE = -1 };
#define INFINITE (INT64_MAX / 4)

typedef struct edge { /* its reverse is the edge with the last bit of the index flipped */
    int to, next;
    int64_t room;
} edge;

typedef struct network {
    TG_VEC(edge) edges;
    int *first; /* by vertex */
    int *via;   /* by vertex: edge of the path that reached it */
    int *queue;
    int n;
} network;

static bool connect(network *w, int from, int to, int64_t room)
{
    const edge forth = {to, w->first[from], room}, back = {from, w->first[to], 0};
    w->first[from] = (int)w->edges.len;
    w->first[to] = (int)w->edges.len + 1;
    return tg_vec_push(&w->edges, forth) && tg_vec_push(&w->edges, back);
}

/* Breadth first from the source; true when the sink is reached. */
static bool find_path(network *w, int source, int sink)
{
    int head = 0, tail = 0;
    for (int i = 0; i < w->n; i++)
        w->via[i] = NONE;
    w->queue[tail++] = source;
    while (head < tail && w->via[sink] == NONE) {
        const int at = w->queue[head++];
        for (int e = w->first[at]; e != NONE; e = w->edges.data[e].next) {
            const edge *x = &w->edges.data[e];
            if (x->room == 0 || x->to == source || w->via[x->to] != NONE) continue;
            w->via[x->to] = e;
            w->queue[tail++] = x->to;
        }
    }
    return w->via[sink] != NONE;
}

static void push_along(network *w, int source, int sink)
{
    int64_t room = INFINITE;
    for (int at = sink; at != source; at = w->edges.data[w->via[at] ^ 1].to)
        if (w->edges.data[w->via[at]].room < room) room = w->edges.data[w->via[at]].room;
    for (int at = sink; at != source; at = w->edges.data[w->via[at] ^ 1].to) {
        w->edges.data[w->via[at]].room -= room;
        w->edges.data[w->via[at] ^ 1].room += room;
    }
}

/* Marks (in via) what still reaches the sink: against the edges that have room. */
static void reach_back(network *w, int sink)
{
    int head = 0, tail = 0;
    for (int i = 0; i < w->n; i++)
        w->via[i] = NONE;
    w->queue[tail++] = sink;
    w->via[sink] = 0;
    while (head < tail) {
        const int at = w->queue[head++];
        for (int e = w->first[at]; e != NONE; e = w->edges.data[e].next) {
            const int before = w->edges.data[e].to;
            if (w->edges.data[e ^ 1].room == 0 || w->via[before] != NONE) continue;
            w->via[before] = 0;
            w->queue[tail++] = before;
        }
    }
}

static bool build(network *w, const tg_cut_value *values, int n)
{
    const int source = 2 * n, sink = 2 * n + 1;
    for (int i = 0; i < n; i++) {
        const tg_cut_value *v = &values[i];
        bool ok = connect(w, 2 * i, 2 * i + 1, v->bytes > 0 ? v->bytes : 1);
        if (!v->producible) ok = ok && connect(w, source, 2 * i, INFINITE);
        if (v->needed) ok = ok && connect(w, 2 * i + 1, sink, INFINITE);
        for (int k = 0; k < v->n_from; k++)
            ok = ok && connect(w, 2 * v->from[k] + 1, 2 * i, INFINITE);
        if (!ok) return false;
    }
    return true;
}

teng_status tg_pass_min_cut(const tg_cut_value *values, int n, bool *keep)
{
    network w = {.n = 2 * n + 2};
    w.first = tg_alloc((size_t)w.n * sizeof(int));
    w.via = tg_alloc((size_t)w.n * sizeof(int));
    w.queue = tg_alloc((size_t)w.n * sizeof(int));
    teng_status status = w.first && w.via && w.queue ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) {
        memset(w.first, 0xFF, (size_t)w.n * sizeof(int)); /* NONE */
        if (!build(&w, values, n)) status = TENG_MEMORY;
    }
    if (status == TENG_OK) {
        const int source = 2 * n, sink = 2 * n + 1;
        while (find_path(&w, source, sink))
            push_along(&w, source, sink);
        reach_back(&w, sink);
        for (int i = 0; i < n; i++)
            keep[i] = w.via[2 * i] == NONE && w.via[2 * i + 1] != NONE;
    }
    tg_vec_free(&w.edges);
    tg_free(w.first);
    tg_free(w.via);
    tg_free(w.queue);
    return status;
}
