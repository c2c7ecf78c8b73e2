/*
 * Collectives made of pairwise transfers: each rank sends every other one exactly the part that it needs, so
 * an all_reduce moves 2 (n - 1) / n of its bytes, as a ring does, in two rounds. Sums are made by the owner
 * of a piece in the order of the ranks: the same bits every time and on every rank. Not here: how messages
 * travel (comm_mpi.c).
 */
#include "base/fail.h"
#include "base/mem.h"
#include "comm/comm_impl.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <string.h>

enum {
    SMALL = 2048,    /* elements: below, all send all */
    BLOCK = 2 << 20, /* elements that are reduced at once: what comes in is summed while a cache holds it */
};

/* What each member sends each other, in bytes: [4][g->n] in comm->lists. */
typedef struct parts {
    size_t *in_at, *in_bytes, *out_at, *out_bytes;
} parts;
static parts parts_of(tg_group *g)
{
    size_t *l = g->comm->lists;
    const size_t n = (size_t)g->n;
    return (parts){l, l + n, l + 2 * n, l + 3 * n};
}

/* The own part is copied. */
static teng_status trade(tg_group *g, const char *in, char *out)
{
    const parts p = parts_of(g);
    tg_transfer *t = g->comm->transfers.data; /* room for two a rank */
    int n = 0;
    for (int k = 1; k < g->n; k++) { /* the next rank first: not all to the same one */
        const int to = (g->index + k) % g->n, from = (g->index - k + g->n) % g->n;
        if (p.in_bytes[to])
            t[n++] = (tg_transfer){g->ranks[to], TG_TAG_COLLECTIVE, true,
                                   (void *)(uintptr_t)(in + p.in_at[to]), p.in_bytes[to]};
        if (p.out_bytes[from])
            t[n++] = (tg_transfer){g->ranks[from], TG_TAG_COLLECTIVE, false, out + p.out_at[from],
                                   p.out_bytes[from]};
        g->comm->bytes[g->axes] += p.in_bytes[to];
    }
    const int me = g->index;
    if (p.in_bytes[me] && out + p.out_at[me] != in + p.in_at[me])
        memmove(out + p.out_at[me], in + p.in_at[me], p.in_bytes[me]);
    return tg_comm_transfer(g->comm, t, n);
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

/* What the members gave for one piece: this rank's own where it lies, the others' in rows of scratch. */
typedef struct given {
    const char *rows;
    size_t row; /* bytes between members */
    const char *own;
    int index, members;
} given;

static const char *given_by(const given *g, int member, size_t at)
{
    return (member == g->index ? g->own : g->rows + (size_t)member * g->row) + at;
}

/* out[n] = the first n of each, folded in the order of the members; 16-bit values in f32. out may be own. */
static void fold_rows(tg_reduce op, teng_dtype dtype, const given *g, char *out, int64_t n)
{
    enum { TILE = 1024 };
    const size_t e = (size_t)teng_dtype_size(dtype);
    const bool wide = dtype == TENG_BF16 || dtype == TENG_F16;
    double acc[TILE], one[TILE]; /* of any type */
    for (int64_t first = 0; first < n; first += TILE) {
        const int64_t k = n - first < TILE ? n - first : TILE;
        const size_t at = (size_t)first * e;
        if (wide)
            tg_convert(TENG_F32, acc, dtype, given_by(g, 0, at), k);
        else
            memcpy(acc, given_by(g, 0, at), (size_t)k * e);
        for (int m = 1; m < g->members; m++) {
            if (wide) tg_convert(TENG_F32, one, dtype, given_by(g, m, at), k);
            fold(op, wide ? TENG_F32 : dtype, acc, wide ? (const void *)one : given_by(g, m, at), k);
        }
        if (wide)
            tg_convert(dtype, out + at, TENG_F32, acc, k);
        else
            memcpy(out + at, acc, (size_t)k * e);
    }
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
static teng_status scatter_pieces(tg_group *g, tg_reduce op, teng_dtype dtype, const void *in, void *out,
                                  const int64_t *begin, const int64_t *size)
{
    const size_t e = (size_t)teng_dtype_size(dtype), own = (size_t)size[g->index] * e;
    const parts p = parts_of(g);
    char *rows = tg_comm_scratch(g->comm, own * (size_t)g->n + 1);
    if (!rows) return TENG_MEMORY;
    for (int i = 0; i < g->n; i++) {
        p.in_at[i] = (size_t)begin[i] * e;
        p.in_bytes[i] = (size_t)size[i] * e;
        p.out_at[i] = own * (size_t)i;
        p.out_bytes[i] = own;
    }
    const given all = {rows, own, (const char *)in + p.in_at[g->index], g->index, g->n};
    p.in_bytes[g->index] = 0; /* stays where it is */
    TG_TRY(trade(g, in, rows));
    fold_rows(op, dtype, &all, out, size[g->index]);
    return TENG_OK;
}

static teng_status gather_pieces(tg_group *g, size_t element, const void *in, void *out, const int64_t *begin,
                                 const int64_t *size)
{
    const parts p = parts_of(g);
    for (int i = 0; i < g->n; i++) {
        p.in_at[i] = 0;
        p.in_bytes[i] = (size_t)size[g->index] * element;
        p.out_at[i] = (size_t)begin[i] * element;
        p.out_bytes[i] = (size_t)size[i] * element;
    }
    return trade(g, in, out);
}

/* ---- all_reduce of several tensors, as if they lay one behind the other ---- */
typedef struct row_of {
    int n;
    size_t element;
    const void *const *in;
    void *const *out;
    const int64_t *counts;
    int64_t total;
} row_of;

/* Goes through the parts of [begin, end) of the row, one a tensor, those that are empty left out. */
typedef struct cursor {
    int tensor;
    int64_t first; /* the tensor's first element in the row */
} cursor;
static bool next_part(const row_of *r, int64_t begin, int64_t end, cursor *c, const char **in, char **out,
                      int64_t *size)
{
    for (; c->tensor < r->n; c->first += r->counts[c->tensor++]) {
        const int64_t last = c->first + r->counts[c->tensor];
        const int64_t from = begin > c->first ? begin : c->first, to = end < last ? end : last;
        if (from >= to) continue;
        *in = (const char *)r->in[c->tensor] + (size_t)(from - c->first) * r->element;
        *out = (char *)r->out[c->tensor] + (size_t)(from - c->first) * r->element;
        *size = to - from;
        c->first += r->counts[c->tensor++];
        return true;
    }
    return false;
}

/* Few elements: all send all, in one round. */
static teng_status reduce_small(tg_group *g, tg_reduce op, teng_dtype dtype, const row_of *r)
{
    const size_t bytes = (size_t)r->total * r->element;
    const parts p = parts_of(g);
    char *rows = tg_comm_scratch(g->comm, bytes * (size_t)(g->n + 1)), *own, *sum, *out;
    if (!rows) return TENG_MEMORY;
    own = rows + (size_t)g->index * bytes;
    sum = rows + (size_t)g->n * bytes;
    const char *in;
    int64_t size;
    size_t at = 0;
    for (cursor c = {0, 0}; next_part(r, 0, r->total, &c, &in, &out, &size); at += (size_t)size * r->element)
        memcpy(own + at, in, (size_t)size * r->element);
    for (int i = 0; i < g->n; i++) {
        p.in_at[i] = 0;
        p.in_bytes[i] = p.out_bytes[i] = bytes;
        p.out_at[i] = bytes * (size_t)i;
    }
    TG_TRY(trade(g, own, rows));
    fold_rows(op, dtype, &(given){rows, bytes, own, g->index, g->n}, sum, r->total);
    at = 0;
    for (cursor c = {0, 0}; next_part(r, 0, r->total, &c, &in, &out, &size); at += (size_t)size * r->element)
        memcpy(out, sum + at, (size_t)size * r->element);
    return TENG_OK;
}

static bool add_transfer(tg_comm *c, tg_group *g, int member, bool send, const void *data, size_t bytes)
{
    const tg_transfer t = {g->ranks[member], TG_TAG_COLLECTIVE, send, (void *)(uintptr_t)data, bytes};
    if (send) c->bytes[g->axes] += bytes;
    return tg_vec_push(&c->transfers, t);
}

/* Elements [begin, end) of the row, cut in pieces: each member sums its own, then all get all. */
static teng_status reduce_block(tg_group *g, tg_reduce op, teng_dtype dtype, const row_of *r, int64_t begin,
                                int64_t end)
{
    tg_comm *c = g->comm;
    int64_t *at = c->cuts, *size = at + g->n, n;
    const char *in;
    char *out;
    bool room = true;
    for (int i = 0; i < g->n; i++) {
        tg_mesh_cut(end - begin, g->n, i, &at[i], &size[i]);
        at[i] += begin;
    }
    const int64_t mine = at[g->index], last = mine + size[g->index];
    const size_t row = (size_t)size[g->index] * r->element;
    char *rows = tg_comm_scratch(c, row * (size_t)g->n + 1);
    if (!rows) return TENG_MEMORY;
    c->transfers.len = 0;
    for (int k = 1; k < g->n; k++) { /* the next rank first: not all to the same one */
        const int to = (g->index + k) % g->n, from = (g->index - k + g->n) % g->n;
        for (cursor u = {0, 0}; next_part(r, at[to], at[to] + size[to], &u, &in, &out, &n);)
            room = room && add_transfer(c, g, to, true, in, (size_t)n * r->element);
        char *next = rows + (size_t)from * row;
        for (cursor u = {0, 0}; next_part(r, mine, last, &u, &in, &out, &n); next += (size_t)n * r->element)
            room = room && add_transfer(c, g, from, false, next, (size_t)n * r->element);
    }
    if (!room) return TENG_MEMORY;
    TG_TRY(tg_comm_transfer(c, c->transfers.data, (int)c->transfers.len));
    const char *next = rows;
    for (cursor u = {0, 0}; next_part(r, mine, last, &u, &in, &out, &n); next += (size_t)n * r->element)
        fold_rows(op, dtype, &(given){next, row, in, g->index, g->n}, out, n);
    c->transfers.len = 0;
    for (int k = 1; k < g->n; k++) {
        const int to = (g->index + k) % g->n, from = (g->index - k + g->n) % g->n;
        for (cursor u = {0, 0}; next_part(r, mine, last, &u, &in, &out, &n);)
            room = room && add_transfer(c, g, to, true, out, (size_t)n * r->element);
        for (cursor u = {0, 0}; next_part(r, at[from], at[from] + size[from], &u, &in, &out, &n);)
            room = room && add_transfer(c, g, from, false, out, (size_t)n * r->element);
    }
    return room ? tg_comm_transfer(c, c->transfers.data, (int)c->transfers.len) : TENG_MEMORY;
}

static teng_status reduce_row(tg_group *g, tg_reduce op, teng_dtype dtype, const row_of *r)
{
    if (g->n == 1) {
        for (int i = 0; i < r->n; i++)
            if (r->in[i] != r->out[i]) memcpy(r->out[i], r->in[i], (size_t)r->counts[i] * r->element);
        return TENG_OK;
    }
    if (r->total <= SMALL) return r->total ? reduce_small(g, op, dtype, r) : TENG_OK;
    for (int64_t at = 0; at < r->total; at += BLOCK)
        TG_TRY(reduce_block(g, op, dtype, r, at, r->total - at < BLOCK ? r->total : at + BLOCK));
    return TENG_OK;
}

teng_status tg_comm_all_reduce_many(tg_group *g, tg_reduce op, teng_dtype dtype, int n, const void *const *in,
                                    void *const *out, const int64_t *counts)
{
    static const char *const names[] = {"sum", "maximum", "minimum"};
    char of[32] = "";
    row_of r = {n, (size_t)teng_dtype_size(dtype), in, out, counts, 0};
    for (int i = 0; i < n; i++)
        r.total += counts[i];
    TG_TRY(want_number(dtype));
    if (n > 1) snprintf(of, sizeof of, " of %d tensors", n);
    TG_TRY(tg_comm_enter(g, "all_reduce: %s of %lld %s%s", names[op], (long long)r.total,
                         teng_dtype_name(dtype), of));
    return tg_comm_leave(g, reduce_row(g, op, dtype, &r));
}

teng_status tg_comm_all_reduce(tg_group *g, tg_reduce op, teng_dtype dtype, const void *in, void *out,
                               int64_t n)
{
    return tg_comm_all_reduce_many(g, op, dtype, 1, &in, &out, &n);
}

/* Where each member's piece begins, in comm->cuts. */
static const int64_t *begins(tg_group *g, const int64_t *counts)
{
    int64_t at = 0;
    for (int i = 0; i < g->n; at += counts[i++])
        g->comm->cuts[i] = at;
    return g->comm->cuts;
}

/* "4 (2 + 2)": what a collective of pieces is called. */
static char *counts_text(char *buf, size_t size, const tg_group *g, const int64_t *counts)
{
    long long total = 0;
    for (int i = 0; i < g->n; i++)
        total += counts[i];
    size_t at = (size_t)snprintf(buf, size, "%lld (", total);
    for (int i = 0; i < g->n && at + 24 < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? " + " : "", (long long)counts[i]);
    snprintf(buf + at, size - at, ")");
    return buf;
}

teng_status tg_comm_reduce_scatter(tg_group *g, teng_dtype dtype, const void *in, void *out,
                                   const int64_t *counts)
{
    char text[128];
    TG_TRY(want_number(dtype));
    TG_TRY(tg_comm_enter(g, "reduce_scatter: sum of %s %s", counts_text(text, sizeof text, g, counts),
                         teng_dtype_name(dtype)));
    return tg_comm_leave(g, scatter_pieces(g, TG_REDUCE_SUM, dtype, in, out, begins(g, counts), counts));
}

teng_status tg_comm_all_gather(tg_group *g, teng_dtype dtype, const void *in, void *out,
                               const int64_t *counts)
{
    char text[128];
    TG_TRY(tg_comm_enter(g, "all_gather of %s %s", counts_text(text, sizeof text, g, counts),
                         teng_dtype_name(dtype)));
    return tg_comm_leave(
        g, gather_pieces(g, (size_t)teng_dtype_size(dtype), in, out, begins(g, counts), counts));
}

teng_status tg_comm_all_to_all(tg_group *g, teng_dtype dtype, const void *in, const int64_t *send_counts,
                               void *out, const int64_t *receive_counts)
{
    const size_t e = (size_t)teng_dtype_size(dtype);
    TG_TRY(tg_comm_enter(g, "all_to_all of %s", teng_dtype_name(dtype)));
    const parts p = parts_of(g);
    size_t in_at = 0, out_at = 0;
    for (int i = 0; i < g->n; i++) {
        p.in_at[i] = in_at;
        in_at += p.in_bytes[i] = (size_t)send_counts[i] * e;
        p.out_at[i] = out_at;
        out_at += p.out_bytes[i] = (size_t)receive_counts[i] * e;
    }
    return tg_comm_leave(g, trade(g, in, out));
}

teng_status tg_comm_broadcast(tg_group *g, int root, void *data, size_t bytes)
{
    TG_TRY(tg_comm_enter(g, "broadcast of %zu bytes from rank %d", bytes, g->ranks[root]));
    const parts p = parts_of(g);
    const bool mine = g->index == root;
    for (int i = 0; i < g->n; i++) {
        p.in_at[i] = p.out_at[i] = 0;
        p.in_bytes[i] = mine && i != root ? bytes : 0;
        p.out_bytes[i] = i == root && !mine ? bytes : 0;
    }
    return tg_comm_leave(g, trade(g, data, data));
}

/* They may have any length: sizes first. */
teng_status tg_comm_gather_texts(tg_comm *c, const char *text, char **all)
{
    const int64_t own = (int64_t)strlen(text) + 1;
    int64_t total = 0, *sizes = tg_alloc(sizeof *sizes * 2 * (size_t)c->size);
    *all = NULL;
    if (!sizes) return TENG_MEMORY;
    int64_t *ones = sizes + c->size;
    for (int r = 0; r < c->size; r++)
        ones[r] = 1;
    teng_status status = tg_comm_all_gather(&c->world, TENG_I64, &own, sizes, ones);
    for (int r = 0; r < c->size && status == TENG_OK; r++)
        total += sizes[r];
    char *texts = status == TENG_OK ? tg_alloc((size_t)total) : NULL;
    if (status == TENG_OK && !texts) status = TENG_MEMORY;
    if (status == TENG_OK) status = tg_comm_all_gather(&c->world, TENG_U8, text, texts, sizes);
    tg_free(sizes);
    if (status == TENG_OK)
        *all = texts;
    else
        tg_free(texts);
    return status;
}

teng_status tg_comm_barrier(tg_group *g)
{
    int32_t here = 1;
    TG_TRY(tg_comm_enter(g, "barrier"));
    const void *in = &here;
    void *out = &here;
    const row_of r = {1, sizeof here, &in, &out, &(const int64_t){1}, 1};
    return tg_comm_leave(g, reduce_row(g, TG_REDUCE_SUM, TENG_I32, &r));
}

/* ---- messages: pairs of ranks know of each other, so they are not compared ---- */
static teng_status message(tg_group *g, const tg_transfer *t, int n)
{
    const bool check = g->comm->check;
    g->comm->check = false;
    char to[32] = "", from[32] = "";
    for (int i = 0; i < n; i++)
        snprintf(t[i].send ? to : from, sizeof to, " %s rank %d", t[i].send ? "to" : "from", t[i].peer);
    if (n == 2 && t[0].peer == t[1].peer) {
        from[0] = 0;
        snprintf(to, sizeof to, " from and to rank %d", t[0].peer);
    }
    teng_status status = tg_comm_enter(g, "message of %zu bytes%s%s", t[0].bytes, from, to);
    g->comm->check = check;
    if (status == TENG_OK) status = tg_comm_transfer(g->comm, t, n);
    return tg_comm_leave(g, status);
}

teng_status tg_comm_exchange(tg_group *g, int to, const void *send, size_t send_bytes, int from,
                             void *receive, size_t receive_bytes)
{
    tg_transfer t[2];
    int n = 0;
    TG_TRY(tg_comm_drain(g->comm));
    if (to == g->index && from == to) {
        memmove(receive, send, send_bytes);
        return TENG_OK;
    }
    if (from >= 0) t[n++] = (tg_transfer){g->ranks[from], TG_TAG_EXCHANGE, false, receive, receive_bytes};
    if (to >= 0) {
        t[n++] = (tg_transfer){g->ranks[to], TG_TAG_EXCHANGE, true, (void *)(uintptr_t)send, send_bytes};
        g->comm->bytes[g->axes] += send_bytes;
    }
    return n ? message(g, t, n) : TENG_OK;
}

teng_status tg_comm_send(tg_group *g, int to, int tag, const void *data, size_t bytes)
{
    TG_TRY(tg_comm_drain(g->comm));
    void *copy = tg_alloc(bytes + 1);
    if (!copy) return TENG_MEMORY;
    memcpy(copy, data, bytes);
    g->comm->bytes[g->axes] += bytes;
    return g->comm->ops->send_later(g->comm, g->ranks[to], TG_TAG_MESSAGE + tag, copy, bytes);
}

teng_status tg_comm_receive(tg_group *g, int from, int tag, void *data, size_t bytes)
{
    TG_TRY(tg_comm_drain(g->comm));
    const tg_transfer t = {g->ranks[from], TG_TAG_MESSAGE + tag, false, data, bytes};
    return message(g, &t, 1);
}
