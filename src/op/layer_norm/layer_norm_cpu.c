/*
 * layer_norm and its gradient on the CPU. A row is read from memory once and from cache after that; the
 * variance is the mean square of what is left after the mean. dweight and dbias: each fixed block of rows
 * sums into its own row of the workspace, those are added in order.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"

typedef struct norm { /* one call; rows of n */
    const void *x, *w, *b, *dy;
    const float *mean_in, *rstd_in;
    void *y;
    float *mean, *rstd;
    int64_t n;
    double eps;
} norm;

#define TOGETHER 4 /* rows: sums along one row wait for each other, those of different rows do not */
#define EACH_ROW(k)                                                                                          \
    TG_UNROLL(4)                                                                                             \
    for (int k = 0; k < rows; k++)

TG_INLINE void forward_some(teng_dtype T, teng_dtype W, const norm *a, int64_t r, int rows)
{
    const int64_t n = a->n, at = r * n;
    float mean[TOGETHER], rstd[TOGETHER];
    tg_sum16 sum[TOGETHER] = {{{{0}}}}, squares[TOGETHER] = {{{{0}}}};
    TG_ROW16(i, len, p, n, EACH_ROW(k) sum[k].part[p] += tg_v_load_part(T, a->x, at + k * n + i, len));
    EACH_ROW(k) mean[k] = tg_sum16_total(&sum[k]) / (float)n;
    TG_ROW16(i, len, p, n, EACH_ROW(k) {
        tg_vf x = tg_v_load_part(T, a->x, at + k * n + i, len) - mean[k];
        if (len < TG_LANES) x = tg_v_fill_tail(x, len, 0.0f);
        squares[k].part[p] = tg_v_fma(x, x, squares[k].part[p]);
    });
    EACH_ROW(k)
    {
        rstd[k] = 1.0f / sqrtf(tg_sum16_total(&squares[k]) / (float)n + (float)a->eps);
        a->mean[r + k] = mean[k];
        a->rstd[r + k] = rstd[k];
    }
    TG_VECTORS(i, len, 0, n)
    {
        const tg_vf w = tg_v_load_part(W, a->w, i, len),
                    b = a->b ? tg_v_load_part(W, a->b, i, len) : tg_v_set(0.0f);
        EACH_ROW(k)
        {
            const tg_vf z = (tg_v_load_part(T, a->x, at + k * n + i, len) - mean[k]) * rstd[k];
            tg_v_store_part(T, a->y, at + k * n + i, tg_v_fma(z, w, b), len);
        }
    }
}
TG_INLINE void forward_rows(teng_dtype T, teng_dtype W, const norm *a, int64_t begin, int64_t end)
{
    int64_t r = begin;
    for (; r + TOGETHER <= end; r += TOGETHER)
        forward_some(T, W, a, r, TOGETHER);
    for (; r < end; r++)
        forward_some(T, W, a, r, 1);
}

/* dw and db: n sums each, which each row adds to, in order. */
TG_INLINE void backward_some(teng_dtype T, teng_dtype W, const norm *a, int64_t r, int rows, float *dw,
                             float *db)
{
    const int64_t n = a->n, at = r * n;
    const float *mean = a->mean_in + r, *rstd = a->rstd_in + r;
    float c[TOGETHER], d[TOGETHER];
    tg_sum16 sum[TOGETHER] = {{{{0}}}}, dot[TOGETHER] = {{{{0}}}};
    TG_ROW16(i, len, p, n, {
        const tg_vf w = tg_v_load_part(W, a->w, i, len);
        EACH_ROW(k)
        {
            const tg_vf z = (tg_v_load_part(T, a->x, at + k * n + i, len) - mean[k]) * rstd[k];
            const tg_vf g = tg_v_load_part(T, a->dy, at + k * n + i, len) * w;
            sum[k].part[p] += g;
            dot[k].part[p] = tg_v_fma(g, z, dot[k].part[p]);
        }
    });
    EACH_ROW(k)
    {
        c[k] = tg_sum16_total(&sum[k]) / (float)n;
        d[k] = tg_sum16_total(&dot[k]) / (float)n;
    }
    TG_VECTORS(i, len, 0, n)
    {
        const tg_vf w = tg_v_load_part(W, a->w, i, len);
        tg_vf to_w = tg_v_load_part(TENG_F32, dw, i, len), to_b = tg_v_load_part(TENG_F32, db, i, len);
        EACH_ROW(k)
        {
            const tg_vf z = (tg_v_load_part(T, a->x, at + k * n + i, len) - mean[k]) * rstd[k];
            const tg_vf dy = tg_v_load_part(T, a->dy, at + k * n + i, len), g = dy * w;
            to_w = tg_v_fma(dy, z, to_w);
            to_b = dy + to_b;
            tg_v_store_part(T, a->y, at + k * n + i, (g - c[k] - z * d[k]) * rstd[k], len);
        }
        tg_v_store_part(TENG_F32, dw, i, to_w, len);
        tg_v_store_part(TENG_F32, db, i, to_b, len);
    }
}
TG_INLINE void backward_rows(teng_dtype T, teng_dtype W, const norm *a, int64_t begin, int64_t end, float *dw,
                             float *db)
{
    int64_t r = begin;
    memset(dw, 0, sizeof *dw * (size_t)a->n);
    memset(db, 0, sizeof *db * (size_t)a->n);
    for (; r + TOGETHER <= end; r += TOGETHER)
        backward_some(T, W, a, r, TOGETHER, dw, db);
    for (; r < end; r++)
        backward_some(T, W, a, r, 1, dw, db);
}

static teng_status run(const teng_kernel_args *args)
{
    const norm a = {.x = args->in[0],
                    .w = args->in[1],
                    .b = args->call->n_in == 3 ? args->in[2] : NULL,
                    .y = args->out[0],
                    .mean = args->out[1],
                    .rstd = args->out[2],
                    .n = tg_row_size(&args->call->in[0]),
                    .eps = *(const double *)args->call->attr};
    const int64_t rows = tg_row_count(&args->call->in[0]),
                  block = tg_blocks(tg_rows_in_block(a.n), TOGETHER) * TOGETHER;
    TG_PARALLEL_FOR(rows * a.n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(rows, block); b++)
        TG_ROW_DTYPES(args, forward_rows(T, W, &a, b * block, tg_block_end(b, block, rows)));
    return TENG_OK;
}

static teng_status prepare_grad(const teng_op_call *call, teng_prepared *out)
{
    const teng_desc *x = &call->in[0];
    out->workspace = 2 * sizeof(float) * (size_t)(tg_partial_blocks(tg_row_count(x)) * tg_row_size(x));
    return TENG_OK;
}

static teng_status run_grad(const teng_kernel_args *args)
{
    const norm a = {.x = args->in[0],
                    .w = args->in[1],
                    .dy = args->in[2],
                    .mean_in = args->in[3],
                    .rstd_in = args->in[4],
                    .y = args->out[0],
                    .n = tg_row_size(&args->call->in[0])};
    const int64_t rows = tg_row_count(&args->call->in[0]), block = tg_partial_rows(rows);
    const int64_t blocks = tg_blocks(rows, block), n = a.n;
    float *dw = args->workspace, *db = dw + n; /* of block b: 2·n·b further */
    TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < blocks; b++)
        TG_ROW_DTYPES(args, backward_rows(T, W, &a, b * block, tg_block_end(b, block, rows), dw + 2 * n * b,
                                          db + 2 * n * b));
    for (int o = 1; o < args->call->n_out; o++)
        TG_FLOAT_SWITCH(args->call->out[o].dtype, T,
                        tg_partial_sum(T, o == 1 ? dw : db, blocks, 2 * n, n, 1.0f, args->out[o]));
    return TENG_OK;
}

TG_KERNELS(tg_layer_norm_kernels) = {{"rows", NULL, NULL, run, NULL}, {0}};
TG_KERNELS(tg_layer_norm_grad_kernels) = {{"rows", NULL, prepare_grad, run_grad, NULL}, {0}};
