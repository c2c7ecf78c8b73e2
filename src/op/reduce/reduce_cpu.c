/*
 * sum, mean, max and the gradient of max on the CPU, over any axes. Neighbouring dimensions of one kind (kept
 * or reduced) merge. If the innermost is kept, rows are folded into rows (column sums, as bias gradients
 * are); if it is reduced, each row is folded to a number. Both work in fixed blocks whose results wait in the
 * workspace and are folded in order, so the bits do not depend on the threads.
 */
#include "op/reduce/reduce.h"

#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"

typedef enum fold_kind { FOLD_SUM, FOLD_MAX } fold_kind;

typedef struct dims { /* a loop over some of x's dimensions, in row-major order */
    int n;
    int64_t size[TENG_MAX_DIMS], step[TENG_MAX_DIMS], count;
} dims;

typedef struct fold {
    dims kept, gone; /* without the innermost dimension */
    int64_t inner;   /* elements of the innermost */
    bool rows;       /* the innermost is reduced */
    int64_t block;   /* of gone.count in one piece of work */
    int64_t chunk;   /* of inner in one piece of work (rows only) */
    int64_t pieces;  /* results for each kept index that wait in the workspace; 1: none wait */
} fold;

#define COLUMNS 2048 /* at once, when rows are folded into rows */
#define ROWS 8       /* of them at once */

static void push(dims *d, int64_t size, int64_t step)
{
    d->size[d->n] = size;
    d->step[d->n++] = step;
    d->count *= size;
}

static fold fold_of(const teng_op_call *call)
{
    const teng_desc *x = &call->in[0];
    const unsigned mask = tg_reduce_mask(x, call->attr);
    int64_t size[TENG_MAX_DIMS + 1];
    bool gone[TENG_MAX_DIMS + 1];
    int n = 0;
    for (int i = 0; i < x->ndim; i++) {
        const bool g = mask >> i & 1u;
        if (x->dims[i] == 1) continue;
        if (n && gone[n - 1] == g) {
            size[n - 1] *= x->dims[i];
        } else {
            size[n] = x->dims[i];
            gone[n++] = g;
        }
    }
    if (!n) {
        size[0] = 1;
        gone[n++] = true;
    }
    fold f = {.kept.count = 1, .gone.count = 1, .inner = size[n - 1], .rows = gone[n - 1]};
    int64_t step[TENG_MAX_DIMS + 1], s = 1;
    for (int i = n - 1; i >= 0; s *= size[i--])
        step[i] = s;
    for (int i = 0; i < n - 1; i++)
        push(gone[i] ? &f.gone : &f.kept, size[i], step[i]);
    if (f.rows) {
        f.chunk = f.inner > TG_BLOCK ? TG_BLOCK : f.inner;
        f.block = f.inner >= TG_BLOCK ? 1 : tg_rows_in_block(f.inner);
        f.pieces = tg_blocks(f.gone.count, f.block) * (f.chunk ? tg_blocks(f.inner, f.chunk) : 0);
    } else {
        f.block = tg_partial_rows(f.gone.count);
        f.pieces = tg_blocks(f.gone.count, f.block);
    }
    return f;
}

static int64_t offset(const dims *d, int64_t index)
{
    int64_t at = 0;
    for (int i = d->n - 1; i >= 0; i--) {
        at += index % d->size[i] * d->step[i];
        index /= d->size[i];
    }
    return at;
}

TG_INLINE tg_vf fold2(fold_kind K, tg_vf a, tg_vf b)
{
    return K == FOLD_SUM ? a + b : tg_v_select((a > b) | (a != a), a, b);
}
TG_INLINE float start(fold_kind K)
{
    return K == FOLD_SUM ? 0.0f : -INFINITY;
}

/* n elements from x[at] on, folded into acc (16 lanes). */
TG_INLINE void fold_row(fold_kind K, teng_dtype T, const void *x, int64_t at, int64_t n, tg_sum16 *acc)
{
    TG_ROW16(i, len, p, n, {
        tg_vf v = tg_v_load_part(T, x, at + i, len);
        if (K == FOLD_MAX && len < TG_LANES) v = tg_v_fill_tail(v, len, -INFINITY);
        acc->part[p] = fold2(K, acc->part[p], v);
    });
}
TG_INLINE float fold_lanes(fold_kind K, const tg_sum16 *acc)
{
    if (K == FOLD_SUM) return tg_sum16_total(acc);
    float m = -INFINITY;
    for (int p = 0; p < TG_PARTS; p++)
        for (int l = 0; l < TG_LANES; l++)
            m = m > acc->part[p][l] || m != m ? m : acc->part[p][l];
    return m;
}

/* Piece u of the work when the innermost dimension is reduced: some rows, or a part of one. */
TG_INLINE float fold_piece(fold_kind K, teng_dtype T, const fold *f, const void *x, int64_t u)
{
    const int64_t chunks = tg_blocks(f->inner, f->chunk), piece = u % f->pieces;
    const int64_t base = offset(&f->kept, u / f->pieces), begin = piece % chunks * f->chunk;
    const int64_t n = tg_block_end(piece % chunks, f->chunk, f->inner) - begin;
    const int64_t first = piece / chunks * f->block,
                  last = tg_block_end(piece / chunks, f->block, f->gone.count);
    tg_sum16 acc;
    for (int p = 0; p < TG_PARTS; p++)
        acc.part[p] = tg_v_set(start(K));
    for (int64_t r = first; r < last; r++)
        fold_row(K, T, x, base + offset(&f->gone, r) + begin, n, &acc);
    return fold_lanes(K, &acc);
}

TG_INLINE void run_rows(fold_kind K, teng_dtype T, const fold *f, const void *x, void *y, float *wait,
                        double factor)
{
    const int64_t units = f->kept.count * f->pieces;
    TG_PARALLEL_FOR(f->kept.count * f->gone.count * f->inner >= TG_PARALLEL_MIN)
    for (int64_t u = 0; u < units; u++) {
        const float v = fold_piece(K, T, f, x, u);
        if (f->pieces == 1)
            tg_v_store1(T, y, u, (float)(v * factor));
        else
            wait[u] = v;
    }
    if (f->pieces == 1) return;
    TG_PARALLEL_FOR(units >= TG_PARALLEL_MIN)
    for (int64_t k = 0; k < f->kept.count; k++) {
        double v = start(K);
        for (int64_t p = k * f->pieces; p < (k + 1) * f->pieces; p++)
            v = K == FOLD_SUM ? v + wait[p] : v > wait[p] || v != v ? v : wait[p];
        tg_v_store1(T, y, k, (float)(v * factor));
    }
}

/* Rows first … last - 1 of the kept index, columns begin … end - 1, folded into out[0 … end - begin - 1]. A
 * few rows at once, in their order: memory is read in long runs, and out stays in registers over those rows.
 */
TG_INLINE void fold_columns(fold_kind K, teng_dtype T, const fold *f, const void *x, int64_t base,
                            int64_t first, int64_t last, int64_t begin, int64_t end, float *restrict out)
{
    for (int64_t i = 0; i < end - begin; i++)
        out[i] = start(K);
    int64_t r = first;
    for (; r + ROWS <= last; r += ROWS) {
        int64_t at[ROWS];
        for (int j = 0; j < ROWS; j++)
            at[j] = base + offset(&f->gone, r + j) + begin;
        int64_t i = 0;
        for (; i + TG_LANES <= end - begin; i += TG_LANES) {
            tg_vf a = tg_v_load(TENG_F32, out, i);
            TG_UNROLL(8)
            for (int j = 0; j < ROWS; j++)
                a = fold2(K, a, tg_v_load(T, x, at[j] + i));
            tg_v_store(TENG_F32, out, i, a);
        }
        for (; i < end - begin; i = end - begin) {
            const int64_t len = end - begin - i;
            tg_vf a = tg_v_load_n(TENG_F32, out, i, len);
            for (int j = 0; j < ROWS; j++)
                a = fold2(K, a, tg_v_load_n(T, x, at[j] + i, len));
            tg_v_store_n(TENG_F32, out, i, a, len);
        }
    }
    for (; r < last; r++) {
        const int64_t at = base + offset(&f->gone, r) + begin;
        TG_VECTORS(i, len, 0, end - begin)
        {
            const tg_vf a = tg_v_load_part(TENG_F32, out, i, len), v = tg_v_load_part(T, x, at + i, len);
            tg_v_store_part(TENG_F32, out, i, fold2(K, a, v), len);
        }
    }
}

TG_INLINE void run_columns(fold_kind K, teng_dtype T, const fold *f, const void *x, void *y, float *wait,
                           float factor)
{
    const int64_t chunks = tg_blocks(f->inner, COLUMNS), units = f->kept.count * f->pieces * chunks;
    TG_PARALLEL_FOR(f->kept.count * f->gone.count * f->inner >= TG_PARALLEL_MIN)
    for (int64_t u = 0; u < units; u++) {
        float acc[COLUMNS];
        const int64_t begin = u % chunks * COLUMNS, end = tg_block_end(u % chunks, COLUMNS, f->inner);
        const int64_t k = u / chunks / f->pieces, piece = u / chunks % f->pieces;
        fold_columns(K, T, f, x, offset(&f->kept, k), piece * f->block,
                     tg_block_end(piece, f->block, f->gone.count), begin, end, acc);
        TG_VECTORS(i, len, begin, end)
        {
            const tg_vf v = tg_v_load_part(TENG_F32, acc, i - begin, len);
            if (f->pieces == 1)
                tg_v_store_part(T, y, k * f->inner + i, v * factor, len);
            else
                tg_v_store_part(TENG_F32, wait, (k * f->pieces + piece) * f->inner + i, v, len);
        }
    }
    if (f->pieces == 1) return;
    const int64_t strips = tg_blocks(f->inner, TG_STRIP);
    TG_PARALLEL_FOR(f->kept.count * f->pieces * f->inner >= TG_PARALLEL_MIN)
    for (int64_t u = 0; u < f->kept.count * strips; u++) {
        const int64_t k = u / strips, begin = u % strips * TG_STRIP,
                      end = tg_block_end(u % strips, TG_STRIP, f->inner);
        const float *rows = wait + k * f->pieces * f->inner;
        if (K == FOLD_SUM) {
            tg_partial_strip(T, rows, f->pieces, f->inner, begin, end, factor, y, k * f->inner);
            continue;
        }
        TG_VECTORS(i, len, begin, end)
        {
            tg_vf v = tg_v_set(start(K));
            for (int64_t p = 0; p < f->pieces; p++)
                v = fold2(K, v, tg_v_load_part(TENG_F32, rows, p * f->inner + i, len));
            tg_v_store_part(T, y, k * f->inner + i, v * factor, len);
        }
    }
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    const fold f = fold_of(call);
    if (f.pieces > 1)
        out->workspace = sizeof(float) * (size_t)(f.kept.count * f.pieces * (f.rows ? 1 : f.inner));
    return TENG_OK;
}

TG_INLINE teng_status run(const teng_kernel_args *args, fold_kind K, double factor)
{
    const fold f = fold_of(args->call);
    if (tg_desc_numel(&args->call->out[0]) == 0) return TENG_OK;
    TG_FLOAT_SWITCH(args->call->in[0].dtype, T, {
        if (f.rows)
            run_rows(K, T, &f, args->in[0], args->out[0], args->workspace, factor);
        else
            run_columns(K, T, &f, args->in[0], args->out[0], args->workspace, (float)factor);
    });
    return TENG_OK;
}
static teng_status run_sum(const teng_kernel_args *args)
{
    return run(args, FOLD_SUM, 1.0);
}
static teng_status run_mean(const teng_kernel_args *args)
{
    const tg_reduce_attr *a = args->call->attr;
    const double n = (double)tg_desc_numel(&args->call->in[0]),
                 m = (double)tg_desc_numel(&args->call->out[0]);
    return run(args, FOLD_SUM, 1.0 / (a->count ? (double)a->count : n / m));
}
static teng_status run_max(const teng_kernel_args *args)
{
    return run(args, FOLD_MAX, 1.0);
}

/* Where x holds the maximum y; a NaN holds a NaN. */
TG_INLINE tg_vi holds(tg_vf x, tg_vf y)
{
    return (x == y) | ((x != x) & (y != y));
}

/* dx of one kept index whose innermost dimension is reduced. */
TG_INLINE void max_grad_rows(teng_dtype T, const fold *f, const void *x, float y, float dy, void *dx,
                             int64_t base)
{
    bool done = false;
    for (int64_t r = 0; r < f->gone.count; r++) {
        const int64_t at = base + offset(&f->gone, r);
        TG_VECTORS(i, len, 0, f->inner)
        {
            tg_vf g = tg_v_set(0.0f);
            if (!done) {
                const tg_vf hit =
                    tg_v_select(holds(tg_v_load_part(T, x, at + i, len), tg_v_set(y)), g + 1.0f, g);
                for (int64_t l = 0; l < len && !done && tg_v_hmax(hit) > 0.0f; l++)
                    if (hit[l] > 0.0f) {
                        g[l] = dy;
                        done = true;
                    }
            }
            tg_v_store_part(T, dx, at + i, g, len);
        }
    }
}

/* dx of columns begin … end - 1 of one kept index; y and dy begin at `to`. */
TG_INLINE void max_grad_columns(teng_dtype T, const fold *f, const void *x, const void *y, const void *dy,
                                void *dx, int64_t base, int64_t to, int64_t begin, int64_t end)
{
    float done[COLUMNS] = {0};
    for (int64_t r = 0; r < f->gone.count; r++) {
        const int64_t at = base + offset(&f->gone, r);
        TG_VECTORS(i, len, begin, end)
        {
            const tg_vf before = tg_v_load_part(TENG_F32, done, i - begin, len);
            const tg_vi here = holds(tg_v_load_part(T, x, at + i, len), tg_v_load_part(T, y, to + i, len));
            const tg_vi first = here & (before == 0.0f);
            tg_v_store_part(TENG_F32, done, i - begin, tg_v_select(first, tg_v_set(1.0f), before), len);
            tg_v_store_part(T, dx, at + i,
                            tg_v_select(first, tg_v_load_part(T, dy, to + i, len), tg_v_set(0.0f)), len);
        }
    }
}

TG_INLINE void max_grad(teng_dtype T, const fold *f, const void *x, const void *y, const void *dy, void *dx)
{
    const int64_t chunks = f->rows ? 1 : tg_blocks(f->inner, COLUMNS);
    TG_PARALLEL_FOR(f->kept.count * f->gone.count * f->inner >= TG_PARALLEL_MIN)
    for (int64_t u = 0; u < f->kept.count * chunks; u++) {
        const int64_t k = u / chunks, c = u % chunks, base = offset(&f->kept, k);
        if (f->rows)
            max_grad_rows(T, f, x, tg_v_load1(T, y, k), tg_v_load1(T, dy, k), dx, base);
        else
            max_grad_columns(T, f, x, y, dy, dx, base, k * f->inner, c * COLUMNS,
                             tg_block_end(c, COLUMNS, f->inner));
    }
}

static teng_status run_max_grad(const teng_kernel_args *args)
{
    const fold f = fold_of(args->call);
    TG_FLOAT_SWITCH(args->call->in[0].dtype, T,
                    max_grad(T, &f, args->in[0], args->in[1], args->in[2], args->out[0]));
    return TENG_OK;
}

TG_KERNELS(tg_sum_kernels) = {{"blocks", NULL, prepare, run_sum, NULL}, {0}};
TG_KERNELS(tg_mean_kernels) = {{"blocks", NULL, prepare, run_mean, NULL}, {0}};
TG_KERNELS(tg_max_kernels) = {{"blocks", NULL, prepare, run_max, NULL}, {0}};
TG_KERNELS(tg_max_grad_kernels) = {{"first", NULL, NULL, run_max_grad, NULL}, {0}};
