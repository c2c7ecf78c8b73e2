/* softmax, log_softmax and their gradients on the CPU: one row at a time, rows shared by the threads. */
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"

/* Largest of a row; NaN anywhere in it makes the later sums NaN too. */
TG_INLINE float row_max(teng_dtype T, const void *x, int64_t at, int64_t n)
{
    tg_vf m = tg_v_set(-INFINITY);
    TG_VECTORS(i, len, 0, n)
    {
        m = tg_v_max(m, tg_v_fill_tail(tg_v_load_part(T, x, at + i, len), len, -INFINITY));
    }
    return tg_v_hmax(m);
}

/* e^(x - max) summed, and kept in e unless that is NULL. */
TG_INLINE float row_exp_sum(teng_dtype T, const void *x, float *e_out, int64_t at, int64_t n, float max)
{
    tg_sum16 sum = {0};
    TG_ROW16(i, len, p, n, {
        tg_vf e = tg_v_exp(tg_v_load_part(T, x, at + i, len) - max);
        if (len < TG_LANES) e = tg_v_fill_tail(e, len, 0.0f);
        if (e_out) tg_v_store_part(TENG_F32, e_out, i, e, len);
        sum.part[p] += e;
    });
    return tg_sum16_total(&sum);
}

/* The exponentials wait in y when that is f32, else in f32 on the stack, so that they are rounded once; rows
 * too long for that compute them twice. */
TG_INLINE void softmax_row(teng_dtype T, const void *x, void *y, int64_t at, int64_t n)
{
    float room[TG_BLOCK], *e = T == TENG_F32 ? (float *)y + at : n <= TG_BLOCK ? room : NULL;
    const float max = row_max(T, x, at, n), scale = 1.0f / row_exp_sum(T, x, e, at, n, max);
    TG_VECTORS(i, len, 0, n)
    {
        const tg_vf v =
            e ? tg_v_load_part(TENG_F32, e, i, len) : tg_v_exp(tg_v_load_part(T, x, at + i, len) - max);
        tg_v_store_part(T, y, at + i, v * scale, len);
    }
}

TG_INLINE void log_softmax_row(teng_dtype T, const void *x, void *y, int64_t at, int64_t n)
{
    const float max = row_max(T, x, at, n), log_sum = logf(row_exp_sum(T, x, NULL, at, n, max));
    TG_VECTORS(i, len, 0, n)
    {
        tg_v_store_part(T, y, at + i, tg_v_load_part(T, x, at + i, len) - max - log_sum, len);
    }
}

TG_INLINE void softmax_grad_row(teng_dtype T, const void *y, const void *dy, void *dx, int64_t at, int64_t n)
{
    tg_sum16 sum = {0};
    TG_ROW16(i, len, p, n, {
        const tg_vf a = tg_v_load_part(T, y, at + i, len), g = tg_v_load_part(T, dy, at + i, len);
        sum.part[p] = tg_v_fma(a, g, sum.part[p]);
    });
    const float dot = tg_sum16_total(&sum);
    TG_VECTORS(i, len, 0, n)
    {
        const tg_vf a = tg_v_load_part(T, y, at + i, len), g = tg_v_load_part(T, dy, at + i, len);
        tg_v_store_part(T, dx, at + i, a * (g - dot), len);
    }
}

TG_INLINE void log_softmax_grad_row(teng_dtype T, const void *y, const void *dy, void *dx, int64_t at,
                                    int64_t n)
{
    tg_sum16 sum = {0};
    TG_ROW16(i, len, p, n, sum.part[p] += tg_v_load_part(T, dy, at + i, len));
    const float total = tg_sum16_total(&sum);
    TG_VECTORS(i, len, 0, n)
    {
        const tg_vf a = tg_v_load_part(T, y, at + i, len), g = tg_v_load_part(T, dy, at + i, len);
        tg_v_store_part(T, dx, at + i, g - tg_v_exp(a) * total, len);
    }
}

/* run_<name>: <name>_row for each row of input 0. */
#define RUN(name, ...)                                                                                       \
    static teng_status run_##name(const teng_kernel_args *args)                                              \
    {                                                                                                        \
        const teng_desc *d = &args->call->in[0];                                                             \
        const int64_t n = tg_row_size(d), rows = tg_row_count(d), block = tg_rows_in_block(n);               \
        TG_PARALLEL_FOR(rows *n >= TG_PARALLEL_MIN)                                                          \
        for (int64_t b = 0; b < tg_blocks(rows, block); b++) {                                               \
            const int64_t end = tg_block_end(b, block, rows);                                                \
            TG_FLOAT_SWITCH(d->dtype, T,                                                                     \
                            for (int64_t r = b * block; r < end; r++) name##_row(T, __VA_ARGS__));           \
        }                                                                                                    \
        return TENG_OK;                                                                                      \
    }
RUN(softmax, args->in[0], args->out[0], r *n, n)
RUN(log_softmax, args->in[0], args->out[0], r *n, n)
RUN(softmax_grad, args->in[0], args->in[1], args->out[0], r *n, n)
RUN(log_softmax_grad, args->in[0], args->in[1], args->out[0], r *n, n)

TG_KERNELS(tg_softmax_kernels) = {{"rows", NULL, NULL, run_softmax, NULL}, {0}};
TG_KERNELS(tg_softmax_grad_kernels) = {{"rows", NULL, NULL, run_softmax_grad, NULL}, {0}};
TG_KERNELS(tg_log_softmax_kernels) = {{"rows", NULL, NULL, run_log_softmax, NULL}, {0}};
TG_KERNELS(tg_log_softmax_grad_kernels) = {{"rows", NULL, NULL, run_log_softmax_grad, NULL}, {0}};
