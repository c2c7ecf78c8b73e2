/*
 * transpose on the CPU. Dimensions of 1 vanish and dimensions that stay neighbours merge; then either rows
 * are copied whole (the last dimension stays last) or tiles of 32 × 32 elements are turned in cache. By
 * element size, any dtype.
 */
#include "op/cpu_copy.h"
#include "op/cpu_kernel.h"
#include "tensor/desc.h"

typedef struct turn {
    int n; /* dimensions left, at least 1 */
    int64_t size[TENG_MAX_DIMS],
        step[TENG_MAX_DIMS]; /* of the output's dimensions: size, elements apart in x */
} turn;

static turn simplify(const teng_desc *x, const teng_dims *perm)
{
    int64_t stride[TENG_MAX_DIMS], s = 1;
    for (int i = x->ndim - 1; i >= 0; s *= x->dims[i--])
        stride[i] = s;
    turn t = {0};
    for (int i = 0; i < x->ndim; i++) {
        const int64_t size = x->dims[perm->v[i]], step = stride[perm->v[i]];
        if (size == 1) continue;
        if (t.n && t.step[t.n - 1] == size * step) {
            t.size[t.n - 1] *= size;
            t.step[t.n - 1] = step;
        } else {
            t.size[t.n] = size;
            t.step[t.n++] = step;
        }
    }
    if (!t.n) {
        t.size[0] = t.step[0] = 1;
        t.n = 1;
    }
    return t;
}

/* Offset in x of index u over the output's dimensions before `n`, skipping dimension `skip`; *y: offset in y.
 */
static inline int64_t source(const turn *t, const int64_t *y_step, int n, int skip, int64_t u, int64_t *y)
{
    int64_t from = 0, to = 0;
    for (int d = n - 1; d >= 0; d--) {
        if (d == skip) continue;
        const int64_t i = u % t->size[d];
        u /= t->size[d];
        from += i * t->step[d];
        to += i * y_step[d];
    }
    *y = to;
    return from;
}

#define TILE 32
/* dst[j·y_step + i] = src[i·x_step + j] for i < ni, j < nj; through a small square, because the rows of a
 * large matrix that lie a power of two apart push each other out of the cache. */
#define TILE_FN(name, type)                                                                                  \
    static void name(void *dst, int64_t y_step, const void *src, int64_t x_step, int64_t ni, int64_t nj)     \
    {                                                                                                        \
        type *restrict y = dst;                                                                              \
        const type *restrict x = src;                                                                        \
        type square[TILE][TILE + 1];                                                                         \
        for (int64_t i = 0; i < ni; i++)                                                                     \
            for (int64_t j = 0; j < nj; j++)                                                                 \
                square[i][j] = x[i * x_step + j];                                                            \
        for (int64_t j = 0; j < nj; j++)                                                                     \
            for (int64_t i = 0; i < ni; i++)                                                                 \
                y[j * y_step + i] = square[i][j];                                                            \
    }
TILE_FN(tile1, uint8_t)
TILE_FN(tile2, uint16_t)
TILE_FN(tile4, uint32_t)
TILE_FN(tile8, uint64_t)

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *x = &args->call->in[0];
    const int64_t numel = tg_desc_numel(x), size = teng_dtype_size(x->dtype);
    if (numel == 0) return TENG_OK;
    const turn t = simplify(x, args->call->attr);
    const int last = t.n - 1;
    int64_t y_step[TENG_MAX_DIMS], s = 1;
    for (int i = last; i >= 0; s *= t.size[i--])
        y_step[i] = s;
    const char *src = args->in[0];
    char *dst = args->out[0];
    if (t.step[last] == 1) { /* rows stay whole */
        const int64_t rows = numel / t.size[last], bytes = t.size[last] * size;
        if (rows == 1) {
            tg_copy_rows(dst, 0, src, 0, bytes, 1);
            return TENG_OK;
        }
#pragma omp parallel for schedule(static) if (numel * size >= TG_COPY_PARALLEL)
        for (int64_t r = 0; r < rows; r++) {
            int64_t to;
            const int64_t from = source(&t, y_step, last, -1, r, &to);
            memcpy(dst + to * size, src + from * size, (size_t)bytes);
        }
        return TENG_OK;
    }
    int p = 0; /* the output's dimension that is contiguous in x */
    while (t.step[p] != 1)
        p++;
    const int64_t ni = t.size[last], nj = t.size[p], ti = (ni + TILE - 1) / TILE, tj = (nj + TILE - 1) / TILE;
    const int64_t units = numel / (ni * nj) * ti * tj;
#pragma omp parallel for schedule(static) if (numel * size >= TG_COPY_PARALLEL)
    for (int64_t u = 0; u < units; u++) {
        int64_t to;
        const int64_t i = u % ti * TILE, j = u / ti % tj * TILE;
        const int64_t from = source(&t, y_step, last, p, u / (ti * tj), &to);
        const int64_t mi = ni - i < TILE ? ni - i : TILE, mj = nj - j < TILE ? nj - j : TILE;
        char *y = dst + (to + j * y_step[p] + i) * size;
        const char *from_x = src + (from + i * t.step[last] + j) * size;
        if (size == 4)
            tile4(y, y_step[p], from_x, t.step[last], mi, mj);
        else if (size == 2)
            tile2(y, y_step[p], from_x, t.step[last], mi, mj);
        else if (size == 8)
            tile8(y, y_step[p], from_x, t.step[last], mi, mj);
        else
            tile1(y, y_step[p], from_x, t.step[last], mi, mj);
    }
    return TENG_OK;
}

TG_KERNELS(tg_transpose_kernels) = {{"tiles", NULL, NULL, run, NULL}, {0}};
