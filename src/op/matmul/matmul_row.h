/*
 * The product of one row with a matrix, as text is written token by token: all the work is reading the matrix
 * once, from its first byte to its last. b may be stored in 16 bits while the row is f32; it is widened in
 * registers. Sums are f32, cut by fixed blocks of the shape: the number of threads changes no bit. Include in
 * x_cpu.c files only; more rows go to oneDNN.
 */
#ifndef TG_OP_MATMUL_ROW_H
#define TG_OP_MATMUL_ROW_H

#include "op/cpu_rows.h"
#include "op/matmul/matmul.h"
#include "tensor/desc.h"

#define TG_ROW_UNROLL 4
#define TG_ROW_PIECES                                                                                        \
    8 /* at least, of a large b: as much work for each of a few threads, few sums to add                     \
       */
#define TG_ROW_BLOCK 524288 /* elements of b in one piece, at most */

/* Elements i … of row `row` (counted in elements) of b, and the same place of the rows that come next into
 * the cache: a core waits for memory otherwise, since the prefetcher stops at the end of a row. */
TG_INLINE tg_vf tg_row_load(teng_dtype W, const void *b, int64_t row, int64_t ahead, int64_t i, int64_t len)
{
    const int64_t size = W == TENG_F32 ? 4 : 2;
    if (i * size % 64 < TG_LANES * size) __builtin_prefetch((const char *)b + (row + ahead + i) * size, 0, 3);
    return tg_v_load_part(W, b, row + i, len);
}

/* Whole rows of b in a piece; a multiple of TG_ROW_UNROLL. */
TG_INLINE int64_t tg_row_step(int64_t rows, int64_t cols)
{
    const int64_t most = TG_ROW_BLOCK / (cols > 0 ? cols : 1), even = tg_blocks(rows, TG_ROW_PIECES);
    const int64_t step = tg_blocks(most < even ? most : even, TG_ROW_UNROLL) * TG_ROW_UNROLL;
    return step > TG_ROW_UNROLL ? step : TG_ROW_UNROLL;
}

static inline const char *tg_row_accept(const teng_op_call *call)
{
    const tg_matmul_sizes z = tg_matmul_sizes_of(call);
    if (call->out[0].dtype != call->in[0].dtype) return "y has another dtype than a";
    return z.batch * z.m == 1 && z.n && z.k ? NULL : "not a single row";
}

/* ---- b [n, k]: a dot product for each element of y ---- */
TG_INLINE void tg_row_dots(teng_dtype T, teng_dtype W, const teng_kernel_args *args, const tg_matmul_sizes *z,
                           int64_t begin, int64_t end)
{
    const void *a = args->in[0], *b = args->in[1];
    for (int64_t j = begin; j < end; j += TG_ROW_UNROLL) {
        const int64_t rows = end - j < TG_ROW_UNROLL ? end - j : TG_ROW_UNROLL;
        tg_vf sum[TG_ROW_UNROLL] = {{0}};
        if (rows == TG_ROW_UNROLL) {
            TG_VECTORS(i, len, 0, z->k)
            {
                const tg_vf x = tg_v_load_part(T, a, i, len);
                for (int r = 0; r < TG_ROW_UNROLL; r++)
                    sum[r] =
                        tg_v_fma(x, tg_row_load(W, b, (j + r) * z->k, TG_ROW_UNROLL * z->k, i, len), sum[r]);
            }
        } else {
            for (int64_t r = 0; r < rows; r++)
                TG_VECTORS(i, len, 0, z->k)
                {
                    sum[r] = tg_v_fma(tg_v_load_part(T, a, i, len),
                                      tg_v_load_part(W, b, (j + r) * z->k + i, len), sum[r]);
                }
        }
        for (int64_t r = 0; r < rows; r++) {
            const float bias = args->call->n_in < 3 ? 0.0f
                               : args->call->in[2].dtype == TENG_F32
                                   ? ((const float *)args->in[2])[j + r]
                                   : tg_v_load_n(T, args->in[2], j + r, 1)[0];
            tg_v_store_n(T, args->out[0], j + r, tg_v_set(tg_v_hsum(sum[r]) + bias), 1);
        }
    }
}

/* ---- b [k, n]: each piece adds up some rows of b, then the pieces are added ---- */
TG_INLINE void tg_row_sum(teng_dtype T, teng_dtype W, const teng_kernel_args *args, const tg_matmul_sizes *z,
                          int64_t begin, int64_t end, float *y)
{
    const void *b = args->in[1];
    for (int64_t l = begin; l < end; l += TG_ROW_UNROLL) {
        tg_vf x[TG_ROW_UNROLL];
        int64_t row[TG_ROW_UNROLL];
        for (int r = 0; r < TG_ROW_UNROLL; r++) { /* past the end: the last row, times 0 */
            const bool there = l + r < end;
            row[r] = (there ? l + r : end - 1) * z->n;
            x[r] = there ? tg_v_set(tg_v_load_n(T, args->in[0], l + r, 1)[0]) : (tg_vf){0};
        }
        TG_VECTORS(i, len, 0, z->n)
        {
            tg_vf sum = l == begin ? (tg_vf){0} : tg_v_load_part(TENG_F32, y, i, len);
            for (int r = 0; r < TG_ROW_UNROLL; r++)
                sum = tg_v_fma(x[r], tg_row_load(W, b, row[r], TG_ROW_UNROLL * z->n, i, len), sum);
            tg_v_store_part(TENG_F32, y, i, sum, len);
        }
    }
}

TG_INLINE void tg_row_join(teng_dtype T, const teng_kernel_args *args, const float *sums, int64_t pieces,
                           int64_t step, int64_t begin, int64_t end)
{
    TG_VECTORS(i, len, begin, end)
    {
        tg_vf y = {0};
        for (int64_t p = 0; p < pieces; p++)
            y += tg_v_load_part(TENG_F32, sums, p * step + i, len);
        if (args->call->n_in == 3)
            y += args->call->in[2].dtype == TENG_F32 ? tg_v_load_part(TENG_F32, args->in[2], i, len)
                                                     : tg_v_load_part(T, args->in[2], i, len);
        tg_v_store_part(T, args->out[0], i, y, len);
    }
}

static inline teng_status tg_row_prepare(const teng_op_call *call, teng_prepared *out)
{
    const tg_matmul_sizes z = tg_matmul_sizes_of(call);
    const int64_t pieces = tg_blocks(z.k, tg_row_step(z.k, z.n)), step = tg_blocks(z.n, TG_LANES) * TG_LANES;
    if (!((const tg_matmul_attr *)call->attr)->trans_b)
        out->workspace = sizeof(float) * (size_t)(pieces * step);
    return TENG_OK;
}

/* T is the dtype of a and y, W that of b. */
#define TG_ROW_SWITCH(call, ...)                                                                             \
    TG_FLOAT_SWITCH((call)->in[0].dtype, T, {                                                                \
        if ((call)->in[1].dtype == T) {                                                                      \
            const teng_dtype W = T;                                                                          \
            __VA_ARGS__;                                                                                     \
        } else if ((call)->in[1].dtype == TENG_BF16) {                                                       \
            const teng_dtype W = TENG_BF16;                                                                  \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            const teng_dtype W = TENG_F16;                                                                   \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    })

static inline teng_status tg_row_run(const teng_kernel_args *args)
{
    const tg_matmul_sizes z = tg_matmul_sizes_of(args->call);
    const bool trans_b = ((const tg_matmul_attr *)args->call->attr)->trans_b,
               many = z.n * z.k >= TG_PARALLEL_MIN;
    const int64_t rows = trans_b ? z.n : z.k, block = tg_row_step(rows, trans_b ? z.k : z.n),
                  pieces = tg_blocks(rows, block);
    const int64_t step = tg_blocks(z.n, TG_LANES) * TG_LANES;
    float *sums = args->workspace;
    TG_PARALLEL_FOR(many)
    for (int64_t p = 0; p < pieces; p++) {
        const int64_t begin = p * block, end = tg_block_end(p, block, rows);
        TG_ROW_SWITCH(args->call, {
            if (trans_b)
                tg_row_dots(T, W, args, &z, begin, end);
            else
                tg_row_sum(T, W, args, &z, begin, end, sums + p * step);
        });
    }
    if (trans_b) return TENG_OK;
    const int64_t columns = 512;
    TG_PARALLEL_FOR(pieces * z.n >= TG_PARALLEL_MIN)
    for (int64_t c = 0; c < tg_blocks(z.n, columns); c++)
        TG_FLOAT_SWITCH(args->call->in[0].dtype, T,
                        tg_row_join(T, args, sums, pieces, step, c * columns, tg_block_end(c, columns, z.n)));
    return TENG_OK;
}

#endif
