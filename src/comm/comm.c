/*
 * The world, its groups, and collectives made of pairwise transfers: each rank sends every other one exactly
 * the part that it needs, so an all_reduce moves 2 (n - 1) / n of its bytes, as a ring does, in two rounds.
 * Sums are made by the owner of a piece in the order of the ranks: the same bits every time and on every
 * rank. Not here: how messages travel (comm_mpi.c), the thread of posted calls (comm_thread.c).
 */
#include "comm/comm.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "comm/comm_impl.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 2048,    /* elements: below, all send all */
    BLOCK = 8 << 20, /* elements that are reduced at once, which bounds the scratch */
    TAG_COLLECTIVE = 1,
    TAG_EXCHANGE = 2,
    TAG_MESSAGE = 16,
};

static tg_comm *current;

tg_comm *tg_comm_current(void)
{
    return current;
}

/* ---- the world ---- */
static const tg_comm_ops *backend(const char *kind)
{
    static const char *const started_by[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"};
    if (strcmp(kind, "self") == 0) return &tg_comm_self;
    if (strcmp(kind, "mpi") == 0) return &tg_comm_mpi;
    if (strcmp(kind, "auto") != 0) return NULL;
    for (size_t i = 0; i < sizeof started_by / sizeof *started_by; i++)
        if (getenv(started_by[i])) return &tg_comm_mpi;
    return &tg_comm_self;
}

teng_status tg_comm_open(const char *kind, tg_comm **out)
{
    const tg_comm_ops *ops = backend(kind);
    *out = NULL;
    if (!ops)
        return tg_fail(TENG_INVALID, "\"%s\" is no kind of communication: there are auto, self, mpi", kind);
    if (current) return tg_fail(TENG_STATE, "the ranks of this process are connected already");
    tg_comm *c = tg_calloc(1, sizeof *c);
    if (!c) return TENG_MEMORY;
    c->ops = ops;
    teng_status status = ops->open(c);
    c->world = (tg_group){c, c->size, c->rank, NULL, (1u << TG_AXES) - 1};
    if (status == TENG_OK && !(c->world.ranks = tg_alloc(sizeof(int) * (size_t)c->size)))
        status = TENG_MEMORY;
    if (status != TENG_OK) {
        tg_comm_close(&c);
        return status;
    }
    for (int r = 0; r < c->size; r++)
        c->world.ranks[r] = r;
    *out = current = c;
    return TENG_OK;
}

static void free_groups(tg_comm *c)
{
    for (int s = 0; c->along && s < 1 << TG_AXES; s++)
        tg_free(c->along[s].ranks);
    tg_free(c->along);
    c->along = NULL;
}

void tg_comm_close(tg_comm **comm)
{
    tg_comm *c = *comm;
    if (!c) return;
    tg_comm_thread_end(c);
    if (c->ops->close && c->backend) c->ops->close(c);
    tg_board_close(&c->board);
    free_groups(c);
    tg_free(c->world.ranks);
    tg_free(c->scratch);
    if (current == c) current = NULL;
    tg_free(c);
    *comm = NULL;
}

int tg_comm_rank(const tg_comm *comm)
{
    return comm->rank;
}

int tg_comm_size(const tg_comm *comm)
{
    return comm->size;
}

tg_group *tg_comm_world(tg_comm *comm)
{
    return &comm->world;
}

teng_status tg_comm_bind(tg_comm *c, const tg_mesh *mesh)
{
    if (mesh->ranks != c->size)
        return tg_fail(TENG_INVALID, "the mesh has %d ranks, %d were started", mesh->ranks, c->size);
    free_groups(c);
    c->along = tg_calloc((size_t)1 << TG_AXES, sizeof *c->along);
    if (!c->along) return TENG_MEMORY;
    for (tg_axis_set s = 0; s < 1u << TG_AXES; s++) {
        tg_group *g = &c->along[s];
        *g = (tg_group){c, 0, 0, tg_alloc(sizeof(int) * (size_t)c->size), s};
        if (!g->ranks) return TENG_MEMORY;
        g->n = tg_mesh_group(mesh, c->rank, s, g->ranks, &g->index);
    }
    return TENG_OK;
}

tg_group *tg_comm_along(tg_comm *c, tg_axis_set axes)
{
    if (c && c->along && axes < 1u << TG_AXES) return &c->along[axes];
    tg_fail(TENG_STATE, c ? "the ranks have no mesh yet"
                          : "a collective needs ranks that are connected; this process is alone");
    return NULL;
}

int tg_group_size(const tg_group *group)
{
    return group->n;
}

int tg_group_index(const tg_group *group)
{
    return group->index;
}

uint64_t tg_comm_bytes(const tg_comm *comm, tg_axis_set axes)
{
    return comm->bytes[axes];
}

void tg_comm_doing(tg_comm *comm, const char *text)
{
    if (comm && comm->board) tg_board_write(comm->board, text);
}

void tg_comm_timeout(tg_comm *comm, double seconds)
{
    comm->timeout = seconds;
}

void tg_comm_local(const tg_comm *comm, int *index, int *size)
{
    *index = comm->local_index;
    *size = comm->local_size;
}

const char *tg_comm_binding(const tg_comm *comm)
{
    return comm->binding;
}

void *tg_comm_scratch(tg_comm *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes) return c->scratch;
    tg_free(c->scratch);
    c->scratch = tg_alloc(bytes);
    c->scratch_bytes = c->scratch ? bytes : 0;
    return c->scratch;
}

/* ---- waiting ---- */
teng_status tg_comm_look_around(tg_comm *c, double began, const tg_transfer *t, int n, const bool *done)
{
    int pid = 0;
    const int dead = c->board ? tg_board_dead(c->board, &pid) : -1;
    if (dead >= 0) {
        char text[512];
        double seconds;
        const bool known = tg_board_read(c->board, dead, text, sizeof text, &seconds);
        return tg_fail(TENG_IO, "rank %d (process %d) is gone%s%s; rank %d was in %s", dead, pid,
                       known ? ", last seen: " : "", known ? text : "", c->rank, c->doing);
    }
    const double waited = tg_clock_seconds() - began;
    if (!(c->timeout > 0) || waited < c->timeout) return TENG_OK;
    char who[1024];
    size_t at = 0;
    who[0] = 0;
    for (int i = 0; i < n && at < sizeof who - 1; i++) {
        char text[512];
        double seconds = 0;
        if (done[i] || (i > 0 && t[i].peer == t[i - 1].peer)) continue;
        const bool known = c->board && tg_board_read(c->board, t[i].peer, text, sizeof text, &seconds);
        const int k = known ? snprintf(who + at, sizeof who - at, "%srank %d, for %.1f s in: %s",
                                       at ? "; " : "", t[i].peer, seconds, text)
                            : snprintf(who + at, sizeof who - at, "%srank %d", at ? "; " : "", t[i].peer);
        if (k > 0) at += (size_t)k;
    }
    return tg_fail(TENG_IO, "rank %d has waited %.1f s (parallel.timeout) in %s for %s", c->rank, waited,
                   c->doing, who);
}

static teng_status transfer(tg_group *g, const char *what, size_t bytes, const tg_transfer *t, int n)
{
    tg_comm *c = g->comm;
    if (!n) return TENG_OK;
    snprintf(c->doing, sizeof c->doing, "%s of %zu bytes among %d ranks", what, bytes, g->n);
    const teng_status status = c->ops->transfer(c, t, n);
    if (status != TENG_OK) c->broken = true;
    return status;
}

/* What each member sends each other: offsets and sizes in bytes; the own part is copied. */
typedef struct parts {
    const char *in;
    char *out;
    const size_t *in_at, *in_bytes, *out_at, *out_bytes; /* [g->n] */
} parts;

static teng_status trade(tg_group *g, const char *what, const parts *p)
{
    tg_transfer *t = tg_alloc(sizeof *t * 2 * (size_t)g->n);
    if (!t) return TENG_MEMORY;
    int n = 0;
    size_t bytes = 0;
    for (int k = 1; k < g->n; k++) { /* the next rank first: not all to the same one */
        const int to = (g->index + k) % g->n, from = (g->index - k + g->n) % g->n;
        if (p->in_bytes[to])
            t[n++] = (tg_transfer){g->ranks[to], TAG_COLLECTIVE, true,
                                   (void *)(uintptr_t)(p->in + p->in_at[to]), p->in_bytes[to]};
        if (p->out_bytes[from])
            t[n++] = (tg_transfer){g->ranks[from], TAG_COLLECTIVE, false, p->out + p->out_at[from],
                                   p->out_bytes[from]};
        bytes += p->in_bytes[to];
    }
    const int me = g->index;
    if (p->in_bytes[me] && p->out + p->out_at[me] != p->in + p->in_at[me])
        memmove(p->out + p->out_at[me], p->in + p->in_at[me], p->in_bytes[me]);
    g->comm->bytes[g->axes] += bytes;
    const teng_status status = transfer(g, what, bytes, t, n);
    tg_free(t);
    return status;
}

/* Six lists of g->n sizes; a small group's lie on the stack. */
typedef struct lists {
    size_t *at[4];
    size_t *heap;
    size_t stack[4 * 64];
} lists;
static bool lists_make(lists *l, int n)
{
    l->heap = n > 64 ? tg_alloc(sizeof(size_t) * 4 * (size_t)n) : NULL;
    if (n > 64 && !l->heap) return false;
    for (int k = 0; k < 4; k++)
        l->at[k] = (l->heap ? l->heap : l->stack) + (size_t)k * (size_t)n;
    return true;
}

/* Posted calls come first: all ranks see the same order. */
static teng_status enter(tg_group *g)
{
    return tg_comm_drain(g->comm);
}

/* ---- reductions ---- */
#define FOLD(TYPE, EXPR)                                                                                     \
    do {                                                                                                     \
        TYPE *a = acc;                                                                                       \
        const TYPE *b = from;                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                      \
            a[i] = EXPR;                                                                                     \
    } while (0)
#define FOLD_TYPE(TYPE)                                                                                      \
    do {                                                                                                     \
        if (op == TG_REDUCE_SUM)                                                                             \
            FOLD(TYPE, (TYPE)(a[i] + b[i]));                                                                 \
        else if (op == TG_REDUCE_MAX)                                                                        \
            FOLD(TYPE, a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]);                                           \
        else                                                                                                 \
            FOLD(TYPE, a[i] < b[i] || a[i] != a[i] ? a[i] : b[i]);                                           \
    } while (0)

static void fold(tg_reduce op, teng_dtype dtype, void *acc, const void *from, int64_t n)
{
    switch (dtype) {
    case TENG_F32:
        FOLD_TYPE(float);
        break;
    case TENG_F64:
        FOLD_TYPE(double);
        break;
    case TENG_I32:
        FOLD_TYPE(int32_t);
        break;
    case TENG_I64:
        FOLD_TYPE(int64_t);
        break;
    default:
        FOLD_TYPE(uint64_t);
        break;
    }
}

/* out[n] = the members' rows [members][n] folded in their order; 16-bit values in f32. */
static teng_status fold_rows(tg_comm *c, tg_reduce op, teng_dtype dtype, const char *rows, int members,
                             void *out, int64_t n)
{
    const size_t row = (size_t)n * (size_t)teng_dtype_size(dtype);
    (void)c;
    if (dtype != TENG_BF16 && dtype != TENG_F16) {
        memcpy(out, rows, row);
        for (int m = 1; m < members; m++)
            fold(op, dtype, out, rows + (size_t)m * row, n);
        return TENG_OK;
    }
    enum { TILE = 1024 };
    float acc[TILE], one[TILE];
    for (int64_t at = 0; at < n; at += TILE) {
        const int64_t k = n - at < TILE ? n - at : TILE;
        tg_convert(TENG_F32, acc, dtype, rows + 2 * at, k);
        for (int m = 1; m < members; m++) {
            tg_convert(TENG_F32, one, dtype, rows + (size_t)m * row + 2 * at, k);
            fold(op, TENG_F32, acc, one, k);
        }
        tg_convert(dtype, (char *)out + 2 * at, TENG_F32, acc, k);
    }
    return TENG_OK;
}

static teng_status want_number(teng_dtype dtype)
{
    if (dtype == TENG_F32 || dtype == TENG_F64 || dtype == TENG_BF16 || dtype == TENG_F16 ||
        dtype == TENG_I32 || dtype == TENG_I64 || dtype == TENG_U64)
        return TENG_OK;
    return tg_fail(TENG_UNSUPPORTED, "ranks cannot reduce %s", teng_dtype_name(dtype));
}

/* All members' contributions to piece `index` of in, folded into out. begin[i], size[i]: elements of member
 * i's piece. */
static teng_status scatter_pieces(tg_group *g, const char *what, tg_reduce op, teng_dtype dtype,
                                  const void *in, void *out, const int64_t *begin, const int64_t *size)
{
    const size_t e = (size_t)teng_dtype_size(dtype), own = (size_t)size[g->index] * e;
    lists l;
    char *rows = tg_comm_scratch(g->comm, own * (size_t)g->n + 1);
    if (!rows || !lists_make(&l, g->n)) return TENG_MEMORY;
    for (int i = 0; i < g->n; i++) {
        l.at[0][i] = (size_t)begin[i] * e;
        l.at[1][i] = (size_t)size[i] * e;
        l.at[2][i] = own * (size_t)i;
        l.at[3][i] = own;
    }
    teng_status status = trade(g, what, &(parts){in, rows, l.at[0], l.at[1], l.at[2], l.at[3]});
    tg_free(l.heap);
    if (status == TENG_OK) status = fold_rows(g->comm, op, dtype, rows, g->n, out, size[g->index]);
    return status;
}

static teng_status gather_pieces(tg_group *g, const char *what, size_t element, const void *in, void *out,
                                 const int64_t *begin, const int64_t *size)
{
    lists l;
    if (!lists_make(&l, g->n)) return TENG_MEMORY;
    for (int i = 0; i < g->n; i++) {
        l.at[0][i] = 0;
        l.at[1][i] = (size_t)size[g->index] * element;
        l.at[2][i] = (size_t)begin[i] * element;
        l.at[3][i] = (size_t)size[i] * element;
    }
    const teng_status status = trade(g, what, &(parts){in, out, l.at[0], l.at[1], l.at[2], l.at[3]});
    tg_free(l.heap);
    return status;
}

static teng_status reduce_small(tg_group *g, tg_reduce op, teng_dtype dtype, const void *in, void *out,
                                int64_t n)
{
    const size_t bytes = (size_t)n * (size_t)teng_dtype_size(dtype);
    char *rows = tg_comm_scratch(g->comm, bytes * (size_t)g->n);
    lists l;
    if (!rows || !lists_make(&l, g->n)) return TENG_MEMORY;
    for (int i = 0; i < g->n; i++) {
        l.at[0][i] = 0;
        l.at[1][i] = l.at[3][i] = bytes;
        l.at[2][i] = bytes * (size_t)i;
    }
    teng_status status = trade(g, "all_reduce", &(parts){in, rows, l.at[0], l.at[1], l.at[2], l.at[3]});
    tg_free(l.heap);
    if (status == TENG_OK) status = fold_rows(g->comm, op, dtype, rows, g->n, out, n);
    return status;
}

static teng_status reduce_block(tg_group *g, tg_reduce op, teng_dtype dtype, const char *in, char *out,
                                int64_t n, int64_t *begin, int64_t *size)
{
    const size_t e = (size_t)teng_dtype_size(dtype);
    for (int i = 0; i < g->n; i++)
        tg_mesh_cut(n, g->n, i, &begin[i], &size[i]);
    char *own = out + (size_t)begin[g->index] * e;
    TG_TRY(scatter_pieces(g, "all_reduce", op, dtype, in, own, begin, size));
    return gather_pieces(g, "all_reduce", e, own, out, begin, size);
}

teng_status tg_comm_all_reduce(tg_group *g, tg_reduce op, teng_dtype dtype, const void *in, void *out,
                               int64_t n)
{
    const size_t e = (size_t)teng_dtype_size(dtype);
    TG_TRY(want_number(dtype));
    TG_TRY(enter(g));
    if (g->n == 1 || n == 0) {
        if (in != out) memcpy(out, in, (size_t)n * e);
        return TENG_OK;
    }
    if (n <= SMALL) return reduce_small(g, op, dtype, in, out, n);
    int64_t *cut = tg_alloc(sizeof *cut * 2 * (size_t)g->n);
    if (!cut) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (int64_t at = 0; at < n && status == TENG_OK; at += BLOCK)
        status = reduce_block(g, op, dtype, (const char *)in + (size_t)at * e, (char *)out + (size_t)at * e,
                              n - at < BLOCK ? n - at : BLOCK, cut, cut + g->n);
    tg_free(cut);
    return status;
}

static teng_status with_begins(tg_group *g, const int64_t *counts, int64_t **begin)
{
    *begin = tg_alloc(sizeof **begin * (size_t)g->n);
    if (!*begin) return TENG_MEMORY;
    int64_t at = 0;
    for (int i = 0; i < g->n; at += counts[i++])
        (*begin)[i] = at;
    return TENG_OK;
}

teng_status tg_comm_reduce_scatter(tg_group *g, teng_dtype dtype, const void *in, void *out,
                                   const int64_t *counts)
{
    int64_t *begin;
    TG_TRY(want_number(dtype));
    TG_TRY(enter(g));
    TG_TRY(with_begins(g, counts, &begin));
    const teng_status status =
        scatter_pieces(g, "reduce_scatter", TG_REDUCE_SUM, dtype, in, out, begin, counts);
    tg_free(begin);
    return status;
}

teng_status tg_comm_all_gather(tg_group *g, teng_dtype dtype, const void *in, void *out,
                               const int64_t *counts)
{
    int64_t *begin;
    TG_TRY(enter(g));
    TG_TRY(with_begins(g, counts, &begin));
    const teng_status status =
        gather_pieces(g, "all_gather", (size_t)teng_dtype_size(dtype), in, out, begin, counts);
    tg_free(begin);
    return status;
}

teng_status tg_comm_all_to_all(tg_group *g, teng_dtype dtype, const void *in, const int64_t *send_counts,
                               void *out, const int64_t *receive_counts)
{
    const size_t e = (size_t)teng_dtype_size(dtype);
    lists l;
    TG_TRY(enter(g));
    if (!lists_make(&l, g->n)) return TENG_MEMORY;
    size_t in_at = 0, out_at = 0;
    for (int i = 0; i < g->n; i++) {
        l.at[0][i] = in_at;
        in_at += l.at[1][i] = (size_t)send_counts[i] * e;
        l.at[2][i] = out_at;
        out_at += l.at[3][i] = (size_t)receive_counts[i] * e;
    }
    const teng_status status = trade(g, "all_to_all", &(parts){in, out, l.at[0], l.at[1], l.at[2], l.at[3]});
    tg_free(l.heap);
    return status;
}

teng_status tg_comm_broadcast(tg_group *g, int root, void *data, size_t bytes)
{
    lists l;
    TG_TRY(enter(g));
    if (!lists_make(&l, g->n)) return TENG_MEMORY;
    const bool mine = g->index == root;
    for (int i = 0; i < g->n; i++) {
        l.at[0][i] = l.at[2][i] = 0;
        l.at[1][i] = mine ? bytes : 0;
        l.at[3][i] = i == root && !mine ? bytes : 0;
    }
    l.at[1][g->index] = 0;
    const teng_status status =
        trade(g, "broadcast", &(parts){data, data, l.at[0], l.at[1], l.at[2], l.at[3]});
    tg_free(l.heap);
    return status;
}

teng_status tg_comm_barrier(tg_group *g)
{
    int32_t here = 1;
    return tg_comm_all_reduce(g, TG_REDUCE_SUM, TENG_I32, &here, &here, 1);
}

/* ---- messages ---- */
teng_status tg_comm_exchange(tg_group *g, int to, const void *send, size_t send_bytes, int from,
                             void *receive, size_t receive_bytes)
{
    tg_transfer t[2];
    int n = 0;
    TG_TRY(enter(g));
    if (to == g->index && from == to) {
        memmove(receive, send, send_bytes);
        return TENG_OK;
    }
    if (from >= 0) t[n++] = (tg_transfer){g->ranks[from], TAG_EXCHANGE, false, receive, receive_bytes};
    if (to >= 0) {
        t[n++] = (tg_transfer){g->ranks[to], TAG_EXCHANGE, true, (void *)(uintptr_t)send, send_bytes};
        g->comm->bytes[g->axes] += send_bytes;
    }
    return transfer(g, "exchange", send_bytes + receive_bytes, t, n);
}

teng_status tg_comm_send(tg_group *g, int to, int tag, const void *data, size_t bytes)
{
    TG_TRY(enter(g));
    void *copy = tg_alloc(bytes + 1);
    if (!copy) return TENG_MEMORY;
    memcpy(copy, data, bytes);
    g->comm->bytes[g->axes] += bytes;
    return g->comm->ops->send_later(g->comm, g->ranks[to], TAG_MESSAGE + tag, copy, bytes);
}

teng_status tg_comm_receive(tg_group *g, int from, int tag, void *data, size_t bytes)
{
    TG_TRY(enter(g));
    const tg_transfer t = {g->ranks[from], TAG_MESSAGE + tag, false, data, bytes};
    return transfer(g, "receive", bytes, &t, 1);
}
