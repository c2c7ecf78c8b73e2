/*
 * Rows of a matrix in kernels on CPUs: visited 16 elements at a time whatever the register, so that sums kept
 * in tg_sum16 have the same order on every instruction set. Include in x_cpu.c files only.
 */
#ifndef TG_OP_CPU_ROW16_H
#define TG_OP_CPU_ROW16_H

#include "op/cpu_rows.h"
#include "tensor/desc.h"

/* Runs the statements for elements i … i + len - 1 of 0 … n - 1; p is the register of the block of 16 (a
 * constant once unrolled), len is TG_LANES but at the end of the row. */
#define TG_ROW16(i, len, p, n, ...)                                                                          \
    do {                                                                                                     \
        int64_t base_ = 0;                                                                                   \
        for (; base_ + 16 <= (n); base_ += 16)                                                               \
            for (int p = 0; p < TG_PARTS; p++) {                                                             \
                const int64_t i = base_ + p * TG_LANES, len = TG_LANES;                                      \
                __VA_ARGS__;                                                                                 \
            }                                                                                                \
        if (base_ < (n))                                                                                     \
            for (int p = 0; p < TG_PARTS; p++) {                                                             \
                const int64_t i = base_ + p * TG_LANES, len = tg_lanes_left((n)-i);                          \
                if (len <= 0) break;                                                                         \
                __VA_ARGS__;                                                                                 \
            }                                                                                                \
    } while (0)

/* Elements of the last dimension, and how many rows there are of them. */
TG_INLINE int64_t tg_row_size(const teng_desc *d)
{
    return d->ndim ? d->dims[d->ndim - 1] : 1;
}
TG_INLINE int64_t tg_row_count(const teng_desc *d)
{
    const int64_t n = tg_row_size(d);
    return n ? tg_desc_numel(d) / n : 0;
}

/* Sums over rows, as gradients of weights need: each block of rows has its partial sum of one row, and the
 * partial sums are added in block order. At least 16 rows a block and at most 256 blocks, whatever the number
 * of threads. */
TG_INLINE int64_t tg_partial_rows(int64_t rows)
{
    const int64_t r = (rows + 255) / 256;
    return r < 16 ? 16 : r;
}
TG_INLINE int64_t tg_partial_blocks(int64_t rows)
{
    return tg_blocks(rows, tg_partial_rows(rows));
}
#define TG_STRIP 64 /* columns that are a run of memory in each row, and whose sums stay in registers */
/* out[at + c] in dtype T = factor · the sum of column c of `blocks` rows of f32 that lie `step` apart, for
 * the columns begin … end - 1 of one strip. */
TG_INLINE void tg_partial_strip(teng_dtype T, const float *partial, int64_t blocks, int64_t step,
                                int64_t begin, int64_t end, float factor, void *out, int64_t at)
{
    tg_vf sum[TG_STRIP / TG_LANES] = {{0}};
    for (int64_t b = 0; b < blocks; b++) {
        const float *row = partial + b * step + begin;
        for (int v = 0; v < TG_STRIP / TG_LANES; v++)
            if (end - begin == TG_STRIP)
                sum[v] += tg_v_load(TENG_F32, row, v * TG_LANES);
            else if (begin + v * TG_LANES < end)
                sum[v] +=
                    tg_v_load_part(TENG_F32, row, v * TG_LANES, tg_lanes_left(end - begin - v * TG_LANES));
    }
    TG_VECTORS(i, len, begin, end)
    {
        tg_v_store_part(T, out, at + i, sum[(i - begin) / TG_LANES] * factor, len);
    }
}
/* The same for columns 0 … n - 1, on all threads. */
TG_INLINE void tg_partial_sum(teng_dtype T, const float *partial, int64_t blocks, int64_t step, int64_t n,
                              float factor, void *out)
{
    TG_PARALLEL_FOR(blocks * n >= TG_PARALLEL_MIN)
    for (int64_t c = 0; c < tg_blocks(n, TG_STRIP); c++)
        tg_partial_strip(T, partial, blocks, step, c * TG_STRIP, tg_block_end(c, TG_STRIP, n), factor, out,
                         0);
}

/* v as it comes back from memory in dtype T. */
TG_INLINE tg_vf tg_round(teng_dtype T, tg_vf v)
{
    if (T == TENG_F32) return v;
    return T == TENG_BF16 ? tg_v_from_bf16(tg_v_to_bf16(v)) : tg_v_from_f16(tg_v_to_f16(v));
}
/* h = x + r for n elements from `at` on, h possibly in the place of one of them. */
TG_INLINE void tg_add_rows(teng_dtype T, const void *x, const void *r, void *h, int64_t at, int64_t n)
{
    TG_VECTORS(i, len, at, at + n)
    {
        tg_v_store_part(T, h, i, tg_v_load_part(T, x, i, len) + tg_v_load_part(T, r, i, len), len);
    }
}

/* Statement with T the dtype of input 0 (x) and W that of input `weight`, which is f32 or T. */
#define TG_ROW_DTYPES(args, weight, ...)                                                                     \
    TG_FLOAT_SWITCH((args)->call->in[0].dtype, T, {                                                          \
        if ((args)->call->in[weight].dtype == TENG_F32) {                                                    \
            const teng_dtype W = TENG_F32;                                                                   \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            const teng_dtype W = T;                                                                          \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    })

#endif
