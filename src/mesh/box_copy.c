/*
 * Copies between boxes. Along each dimension the two sets of runs meet in segments; a block is a segment of
 * each dimension, and trailing dimensions that both boxes hold whole and alike are one run of memory.
 */
#include "mesh/box_copy.h"

#include <string.h>

tg_box tg_box_whole(const teng_desc *desc)
{
    tg_box box = {.ndim = desc->ndim};
    for (int d = 0; d < desc->ndim; d++) {
        box.size[d] = desc->dims[d];
        box.runs[d] = 1;
        box.stride[d] = desc->dims[d];
    }
    return box;
}

bool tg_box_equal(const tg_box *a, const tg_box *b)
{
    if (a->ndim != b->ndim) return false;
    for (int d = 0; d < a->ndim; d++) {
        if (a->begin[d] != b->begin[d] || a->size[d] != b->size[d] || a->runs[d] != b->runs[d]) return false;
        if (a->runs[d] > 1 && a->stride[d] != b->stride[d]) return false;
    }
    return true;
}

int64_t tg_box_numel(const tg_box *box)
{
    int64_t n = 1;
    for (int d = 0; d < box->ndim; d++)
        n *= box->size[d] * box->runs[d];
    return n;
}

bool tg_box_fits(const tg_box *box, const teng_desc *whole)
{
    if (box->ndim != whole->ndim) return false;
    for (int d = 0; d < box->ndim; d++) {
        const int64_t n = whole->dims[d], begin = box->begin[d], size = box->size[d], runs = box->runs[d];
        if (begin < 0 || size < 0 || runs < 1 || begin > n || size > n - begin) return false;
        if (runs == 1) continue;
        /* Divided, not multiplied: the numbers may come from a file. */
        if (size < 1 || box->stride[d] < size || runs - 1 > (n - begin - size) / box->stride[d]) return false;
    }
    return true;
}

bool tg_box_of_range(const teng_desc *whole, int64_t offset, int64_t count, tg_box *out)
{
    int64_t inner = 1; /* elements of one index of dimension d */
    int split = whole->ndim - 1;
    *out = tg_box_whole(whole);
    for (; split > 0 && inner * whole->dims[split] <= count; split--)
        inner *= whole->dims[split];
    if (whole->ndim == 0) return offset == 0 && count == 1;
    if (inner == 0 || offset % inner || count % inner) return false;
    int64_t at = offset / inner;
    const int64_t n = whole->dims[split];
    out->begin[split] = n ? at % n : 0;
    out->size[split] = count / inner;
    at = n ? at / n : 0;
    if (out->begin[split] + out->size[split] > n) return false;
    for (int d = split - 1; d >= 0; d--) {
        out->begin[d] = at % whole->dims[d];
        out->size[d] = 1;
        at /= whole->dims[d];
    }
    return at == 0;
}

/* Along one dimension: where the segments begin in either memory. Runs rise in both, so that one walk finds
 * them all. */
typedef struct walk {
    int64_t i, k; /* runs of from, of to */
} walk;
typedef struct segment {
    int64_t from, to, length;
} segment;

static bool next_segment(const tg_box *from, const tg_box *to, int d, walk *w, segment *out)
{
    while (w->i < from->runs[d] && w->k < to->runs[d]) {
        const int64_t a = from->begin[d] + w->i * from->stride[d], a_end = a + from->size[d];
        const int64_t b = to->begin[d] + w->k * to->stride[d], b_end = b + to->size[d];
        const int64_t begin = a > b ? a : b, end = a_end < b_end ? a_end : b_end;
        *out = (segment){w->i * from->size[d] + begin - a, w->k * to->size[d] + begin - b, end - begin};
        if (a_end <= b_end)
            w->i++;
        else
            w->k++;
        if (end > begin) return true;
    }
    return false;
}

typedef struct job {
    size_t size;
    const tg_box *from, *to;
    int dims; /* that are walked; those behind are one run of `inner` elements in both */
    int64_t inner;
} job;

static int64_t copy_dim(const job *j, int d, const char *src, char *dst)
{
    if (d == j->dims) {
        memcpy(dst, src, (size_t)j->inner * j->size);
        return j->inner;
    }
    size_t from_row = (size_t)j->inner * j->size, to_row = from_row; /* bytes of one index of dimension d */
    for (int k = d + 1; k < j->dims; k++) {
        from_row *= (size_t)(j->from->size[k] * j->from->runs[k]);
        to_row *= (size_t)(j->to->size[k] * j->to->runs[k]);
    }
    int64_t copied = 0;
    walk w = {0, 0};
    segment s;
    while (next_segment(j->from, j->to, d, &w, &s)) {
        const char *at = src + (size_t)s.from * from_row;
        char *to = dst + (size_t)s.to * to_row;
        if (d == j->dims - 1) {
            memcpy(to, at, (size_t)s.length * from_row);
            copied += s.length * j->inner;
            continue;
        }
        for (int64_t i = 0; i < s.length; i++)
            copied += copy_dim(j, d + 1, at + (size_t)i * from_row, to + (size_t)i * to_row);
    }
    return copied;
}

int64_t tg_box_copy(size_t size, const tg_box *from, const void *src, const tg_box *to, void *dst)
{
    job j = {.size = size, .from = from, .to = to, .dims = from->ndim, .inner = 1};
    if (tg_box_numel(from) == 0 || tg_box_numel(to) == 0) return 0;
    /* Dimensions at the end that are alike in both lie in memory alike; so do all rows of them. */
    while (j.dims > 0) {
        const int d = j.dims - 1;
        const bool alike = from->begin[d] == to->begin[d] && from->size[d] == to->size[d] &&
                           from->runs[d] == to->runs[d] &&
                           (from->runs[d] == 1 || from->stride[d] == to->stride[d]);
        if (!alike) break;
        j.inner *= from->size[d] * from->runs[d];
        j.dims--;
    }
    return copy_dim(&j, 0, src, dst);
}
