/*
 * How kernels on CPUs cut their work. Blocks have fixed sizes that depend on the shape alone, never on the
 * number of threads, and partial sums are added in block order by one thread: the same bits on any number of
 * threads. Work below TG_PARALLEL_MIN elements stays on the calling thread, because waking a team costs some
 * microseconds. The pattern:
 *
 *     static void half_block(const void *ctx, int64_t begin, int64_t end)
 *     {
 *         const teng_kernel_args *a = ctx;
 *         TG_FLOAT_SWITCH(a->call->in[0].dtype, T, TG_VECTORS(i, len, begin, end)
 *             tg_v_store_part(T, a->out[0], i, 0.5f * tg_v_load_part(T, a->in[0], i, len), len));
 *     }
 *     … tg_run_blocks(n, TG_BLOCK, n, half_block, args);
 *
 * Rows are cut the same way: tg_run_blocks(rows, tg_rows_in_block(cols), rows * cols, block, ctx). The dtype
 * switch stands inside the block function: gcc passes variables into an OpenMP region through memory, so a
 * constant outside would be one no more. Include in x_cpu.c files only.
 */
#ifndef TG_OP_CPU_ROWS_H
#define TG_OP_CPU_ROWS_H

#include "op/cpu_vmath.h"

#define TG_BLOCK 4096         /* elements: a multiple of 16, 16 KiB of f32 */
#define TG_PARALLEL_MIN 16384 /* elements below which one thread works */

#define TG_PRAGMA(text) _Pragma(#text)
#define TG_PARALLEL_FOR(condition) TG_PRAGMA(omp parallel for schedule(static) if (condition))

/* Before a loop whose arrays are to become registers: unrolled whole. */
#if defined(__clang__)
#define TG_UNROLL(n) TG_PRAGMA(clang loop unroll(full))
#else
#define TG_UNROLL(n) TG_PRAGMA(GCC unroll n)
#endif

TG_INLINE int64_t tg_blocks(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}
TG_INLINE int64_t tg_block_end(int64_t b, int64_t block, int64_t n)
{
    return (b + 1) * block < n ? (b + 1) * block : n;
}
/* Rows that make a block of about TG_BLOCK elements, at least one. */
TG_INLINE int64_t tg_rows_in_block(int64_t cols)
{
    return cols >= TG_BLOCK ? 1 : TG_BLOCK / (cols > 0 ? cols : 1);
}

/* Calls block(ctx, begin, end) for 0 … count - 1 cut into blocks of `size`; `work` is the number of elements
 * in all. */
TG_INLINE void tg_run_blocks(int64_t count, int64_t size, int64_t work,
                             void (*block)(const void *, int64_t, int64_t), const void *ctx)
{
    int64_t blocks = tg_blocks(count, size);
    if (work < TG_PARALLEL_MIN || blocks < 2) {
        for (int64_t b = 0; b < blocks; b++)
            block(ctx, b * size, tg_block_end(b, size, count));
        return;
    }
    TG_PARALLEL_FOR(true)
    for (int64_t b = 0; b < blocks; b++)
        block(ctx, b * size, tg_block_end(b, size, count));
}

/* Visits begin … end - 1 a register at a time: element i and len <= TG_LANES elements; only the last one is
 * short. */
#define TG_VECTORS(i, len, begin, end)                                                                       \
    for (int64_t i = (begin), end_##i = (end), len = tg_lanes_left(end_##i - i); i < end_##i;                \
         i += TG_LANES, len = tg_lanes_left(end_##i - i))
TG_INLINE int64_t tg_lanes_left(int64_t left)
{
    return left < TG_LANES ? left : TG_LANES;
}
/* len == TG_LANES is the full register; missing lanes load as 0. */
TG_INLINE tg_vf tg_v_load_part(teng_dtype t, const void *p, int64_t i, int64_t len)
{
    return len == TG_LANES ? tg_v_load(t, p, i) : tg_v_load_n(t, p, i, len);
}
TG_INLINE void tg_v_store_part(teng_dtype t, void *p, int64_t i, tg_vf v, int64_t len)
{
    if (len == TG_LANES)
        tg_v_store(t, p, i, v);
    else
        tg_v_store_n(t, p, i, v, len);
}
/* v in the first len lanes, `other` in the rest: for maxima and exponentials of tails. */
TG_INLINE tg_vf tg_v_fill_tail(tg_vf v, int64_t len, float other)
{
    for (int64_t l = len; l < TG_LANES; l++)
        v[l] = other;
    return v;
}

/* Sums in 16 lanes whatever the register: element i of a row goes to lane i mod 16, the lanes are added by
 * halves, so a plain sum has the same bits on every instruction set. */
typedef struct tg_sum16 {
    tg_vf part[TG_PARTS];
} tg_sum16;
TG_INLINE void tg_sum16_add(tg_sum16 *s, int64_t i,
                            tg_vf v) /* i: a multiple of TG_LANES, counted from the row's start */
{
    s->part[(i / TG_LANES) % TG_PARTS] += v;
}
TG_INLINE float tg_sum16_total(const tg_sum16 *s)
{
    tg_sum16 t = *s;
    for (int half = TG_PARTS / 2; half > 0; half /= 2)
        for (int p = 0; p < half; p++)
            t.part[p] += t.part[p + half];
    return tg_v_hsum(t.part[0]);
}

/* Runs a statement with T the constant dtype, so that inlined loads and stores lose their branches:
 *     TG_FLOAT_SWITCH(call->in[0].dtype, T, rows(T, …)); */
#define TG_FLOAT_SWITCH(dtype, T, ...)                                                                       \
    do {                                                                                                     \
        if ((dtype) == TENG_F32) {                                                                           \
            const teng_dtype T = TENG_F32;                                                                   \
            __VA_ARGS__;                                                                                     \
        } else if ((dtype) == TENG_BF16) {                                                                   \
            const teng_dtype T = TENG_BF16;                                                                  \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            const teng_dtype T = TENG_F16;                                                                   \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)

#endif
