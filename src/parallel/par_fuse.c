/*
 * Sums of gradients travel in buckets: all_reduces along the same axes and of one dtype become one node with
 * many operands, at the place of the last of them. A bucket leaves when it is full or when something reads a
 * sum of it; casts of sums wait with it. The bits stay those of each sum by itself. Not here: reduce_scatter
 * and all_gather, whose messages are large.
 */
#include "parallel/parallel_impl.h"

#include "base/fail.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <string.h>

enum { BUCKETS = 8 };
typedef struct bucket {
    tg_node *members[TENG_MAX_OUT];
    int n;
    size_t bytes;
    TG_VEC(tg_node *) behind; /* casts of the sums */
} bucket;
typedef struct fusion {
    tg_graph *g;
    tg_parallel *record;
    size_t limit;
    bucket buckets[BUCKETS];
    uint8_t *waits_for; /* by value id: 1 + the bucket that must leave before it is there; 0: none */
} fusion;

static bool same_kind(const tg_node *a, const tg_node *b)
{
    return a->phase == b->phase && a->in[0]->desc.dtype == b->in[0]->desc.dtype &&
           memcmp(a->attr, b->attr, sizeof(tg_all_reduce_attr)) == 0;
}

static teng_status make_one(fusion *f, const bucket *b)
{
    teng_tensor *in[TENG_MAX_OUT];
    tg_node *first = b->members[0];
    for (int i = 0; i < b->n; i++)
        in[i] = b->members[i]->in[0];
    const tg_node *one =
        tg_graph_append(f->g, first->op, first->attr, b->n, in, first->scope, first->frame, first->phase);
    if (!one) return teng_error_status();
    for (int i = 0; i < b->n; i++) {
        b->members[i]->out[0]->replaced = one->out[i];
        b->members[i]->dead = true;
        for (size_t k = 0; f->record && k < f->record->moves.len; k++)
            if (f->record->moves.data[k].node == b->members[i]) f->record->moves.data[k].node = one;
    }
    return TENG_OK;
}

static teng_status leave(fusion *f, int which)
{
    bucket *b = &f->buckets[which];
    if (b->n == 1 && !tg_vec_push(&f->g->nodes, b->members[0])) return TENG_MEMORY;
    if (b->n > 1) TG_TRY(make_one(f, b));
    for (int i = 0; i < b->n; i++)
        f->waits_for[b->members[i]->out[0]->id] = 0;
    for (size_t i = 0; i < b->behind.len; i++) {
        f->waits_for[b->behind.data[i]->out[0]->id] = 0;
        if (!tg_vec_push(&f->g->nodes, b->behind.data[i])) return TENG_MEMORY;
    }
    b->behind.len = 0;
    b->bytes = 0;
    b->n = 0;
    return TENG_OK;
}

static teng_status leave_all(fusion *f)
{
    for (int i = 0; i < BUCKETS; i++)
        TG_TRY(leave(f, i));
    return TENG_OK;
}

static teng_status join(fusion *f, tg_node *node)
{
    const size_t bytes = tg_desc_bytes(&node->in[0]->desc);
    int which = -1, empty = -1;
    for (int i = 0; i < BUCKETS; i++) {
        if (f->buckets[i].n && same_kind(f->buckets[i].members[0], node)) which = i;
        if (!f->buckets[i].n && empty < 0) empty = i;
    }
    if (which < 0) which = empty;
    if (which < 0) TG_TRY(leave(f, which = 0));
    bucket *b = &f->buckets[which];
    if (b->n && b->bytes + bytes > f->limit) TG_TRY(leave(f, which));
    b->members[b->n++] = node;
    b->bytes += bytes;
    f->waits_for[node->out[0]->id] = (uint8_t)(which + 1);
    return b->bytes >= f->limit || b->n == TENG_MAX_OUT ? leave(f, which) : TENG_OK;
}

static teng_status place(fusion *f, tg_node *node)
{
    const int waits = node->op == &tg_op_cast ? f->waits_for[node->in[0]->id] : 0;
    if (waits) {
        f->waits_for[node->out[0]->id] = (uint8_t)waits;
        return tg_vec_push(&f->buckets[waits - 1].behind, node) ? TENG_OK : TENG_MEMORY;
    }
    for (int i = 0; i < node->n_in; i++) {
        const int of = f->waits_for[node->in[i]->id];
        if (of) TG_TRY(leave(f, of - 1));
    }
    if (node->op == &tg_op_all_reduce && node->n_in == 1) return join(f, node);
    return tg_vec_push(&f->g->nodes, node) ? TENG_OK : TENG_MEMORY;
}

teng_status par_fuse(tg_graph *g, size_t limit, tg_parallel *record)
{
    fusion f = {.g = g, .record = record, .limit = limit};
    const size_t n = g->nodes.len;
    tg_node **old = tg_alloc((n + 1) * sizeof *old);
    f.waits_for = tg_calloc(g->values.len + 1, 1);
    teng_status status = old && f.waits_for ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) {
        if (n) memcpy(old, g->nodes.data, n * sizeof *old);
        g->nodes.len = 0;
    }
    for (size_t k = 0; k < n && status == TENG_OK; k++) {
        if (k && old[k]->phase != old[k - 1]->phase) status = leave_all(&f);
        if (status == TENG_OK) status = place(&f, old[k]);
    }
    if (status == TENG_OK) status = leave_all(&f);
    for (int i = 0; i < BUCKETS; i++)
        tg_vec_free(&f.buckets[i].behind);
    tg_free(f.waits_for);
    tg_free(old);
    if (status != TENG_OK) return status;
    tg_graph_sweep(g);
    return tg_graph_check(g) == TENG_OK ? TENG_OK : tg_fail_context("after fusion of sums");
}

teng_status tg_parallel_fuse(tg_graph *g, size_t limit)
{
    return limit ? par_fuse(g, limit, NULL) : TENG_OK;
}
