/*
 * Greedy layout: buffers in order of falling size (ties: earlier first, then by index, so that the result is
 * a pure function of the input); each goes to the lowest gap among already placed buffers that are live at
 * the same time.
 */
#include "plan/layout.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct placed {
    size_t offset, end;
} placed;

static _Thread_local const tg_buffer *sort_base; /* qsort passes no context */

static size_t padded(size_t bytes)
{
    return (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
}

static int by_size(const void *a, const void *b)
{
    const int i = *(const int *)a, k = *(const int *)b;
    const tg_buffer *x = &sort_base[i], *y = &sort_base[k];
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return i < k ? -1 : 1;
}

static int by_offset(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static teng_status find_peak(const tg_buffer *buffers, size_t n, size_t *live_peak, int *peak_step)
{
    int last = 0;
    for (size_t i = 0; i < n; i++)
        if (buffers[i].last > last) last = buffers[i].last;
    *live_peak = 0;
    *peak_step = 0;
    long long *change = tg_calloc((size_t)last + 2, sizeof *change);
    if (!change) return TENG_MEMORY;
    for (size_t i = 0; i < n; i++) {
        change[buffers[i].first] += (long long)padded(buffers[i].bytes);
        change[buffers[i].last + 1] -= (long long)padded(buffers[i].bytes);
    }
    long long live = 0;
    for (int s = 0; s <= last; s++) {
        live += change[s];
        if (live > (long long)*live_peak) {
            *live_peak = (size_t)live;
            *peak_step = s;
        }
    }
    tg_free(change);
    return TENG_OK;
}

teng_status tg_layout(tg_buffer *buffers, size_t n, size_t *block, size_t *live_peak, int *peak_step)
{
    int *order = tg_alloc((n + 1) * sizeof *order);
    placed *busy = tg_alloc((n + 1) * sizeof *busy);
    *block = 0;
    if (!order || !busy) {
        tg_free(order);
        tg_free(busy);
        return TENG_MEMORY;
    }
    for (size_t i = 0; i < n; i++)
        order[i] = (int)i;
    sort_base = buffers;
    qsort(order, n, sizeof *order, by_size);
    for (size_t i = 0; i < n; i++) {
        tg_buffer *b = &buffers[order[i]];
        size_t n_busy = 0;
        for (size_t k = 0; k < i; k++) {
            const tg_buffer *other = &buffers[order[k]];
            if (other->first <= b->last && b->first <= other->last && other->bytes)
                busy[n_busy++] = (placed){other->offset, other->offset + padded(other->bytes)};
        }
        qsort(busy, n_busy, sizeof *busy, by_offset);
        size_t at = 0;
        for (size_t k = 0; k < n_busy; k++) {
            if (busy[k].offset >= at + padded(b->bytes)) break;
            if (busy[k].end > at) at = busy[k].end;
        }
        b->offset = at;
        if (at + padded(b->bytes) > *block) *block = at + padded(b->bytes);
    }
    tg_free(order);
    tg_free(busy);
    return find_peak(buffers, n, live_peak, peak_step);
}
