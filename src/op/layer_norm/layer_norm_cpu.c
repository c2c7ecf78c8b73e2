/*
 * layer_norm and its gradient on the CPU. A row is read from memory once and from cache after that; the
 * variance is the mean square of what is left after the mean. dweight and dbias: each fixed block of rows
 * sums into its own row of the workspace, those are added in order.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"

typedef struct norm { /* one call; rows of n */
    const void *x, *w, *b, *dy;
    const void *r;    /* added to x first, the sum goes to h; NULL: none */
    const void *onto; /* of the gradient: added to dx; NULL: none */
    const float *mean_in, *rstd_in;
    void *y, *h;
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
    const void *x_in = a->r ? a->h : a->x, *b_in = a->b;
    void *y_out = a->y;
    float mean[TOGETHER], rstd[TOGETHER];
    if (a->r) tg_add_rows(T, a->x, a->r, a->h, at, rows * n);
    tg_sum16 sum[TOGETHER] = {{{{0}}}}, squares[TOGETHER] = {{{{0}}}};
    TG_ROW16(i, len, p, n, EACH_ROW(k) sum[k].part[p] += tg_v_load_part(T, x_in, at + k * n + i, len));
    EACH_ROW(k) mean[k] = tg_sum16_total(&sum[k]) / (float)n;
    TG_ROW16(
        i, len, p, n, EACH_ROW(k) {
            tg_vf x = tg_v_load_part(T, x_in, at + k * n + i, len) - mean[k];
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
                    b = b_in ? tg_v_load_part(W, b_in, i, len) : tg_v_set(0.0f);
        EACH_ROW(k)
        {
            const tg_vf z = (tg_v_load_part(T, x_in, at + k * n + i, len) - mean[k]) * rstd[k];
            tg_v_store_part(T, y_out, at + k * n + i, tg_v_fma(z, w, b), len);
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

/* dw and db: n sums each. One row after the other: rows together were slower here. */
TG_INLINE void backward_rows(teng_dtype T, teng_dtype W, const norm *a, int64_t begin, int64_t end, float *dw,
                             float *db)
{
    memset(dw, 0, sizeof *dw * (size_t)a->n);
    memset(db, 0, sizeof *db * (size_t)a->n);
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r * a->n;
        const float mean = a->mean_in[r], rstd = a->rstd_in[r];
        tg_sum16 sum = {0}, dot = {0};
        TG_ROW16(i, len, p, a->n, {
            const tg_vf z = (tg_v_load_part(T, a->x, at + i, len) - mean) * rstd;
            const tg_vf g = tg_v_load_part(T, a->dy, at + i, len) * tg_v_load_part(W, a->w, i, len);
            sum.part[p] += g;
            dot.part[p] = tg_v_fma(g, z, dot.part[p]);
        });
        const float c = tg_sum16_total(&sum) / (float)a->n, d = tg_sum16_total(&dot) / (float)a->n;
        TG_VECTORS(i, len, 0, a->n)
        {
            const tg_vf z = (tg_v_load_part(T, a->x, at + i, len) - mean) * rstd;
            const tg_vf dy = tg_v_load_part(T, a->dy, at + i, len), g = dy * tg_v_load_part(W, a->w, i, len);
            tg_vf dx = (g - c - z * d) * rstd;
            tg_v_store_part(TENG_F32, dw, i, tg_v_fma(dy, z, tg_v_load_part(TENG_F32, dw, i, len)), len);
            tg_v_store_part(TENG_F32, db, i, dy + tg_v_load_part(TENG_F32, db, i, len), len);
            if (a->onto) dx = tg_round(T, dx) + tg_v_load_part(T, a->onto, at + i, len);
            tg_v_store_part(T, a->y, at + i, dx, len);
        }
    }
}

static teng_status run_norm(const teng_kernel_args *args, norm a, int weight)
{
    a.n = tg_row_size(&args->call->in[0]);
    a.w = args->in[weight];
    a.b = args->call->n_in > weight + 1 ? args->in[weight + 1] : NULL;
    a.eps = *(const double *)args->call->attr;
    const int64_t rows = tg_row_count(&args->call->in[0]),
                  block = tg_blocks(tg_rows_in_block(a.n), TOGETHER) * TOGETHER;
    TG_PARALLEL_FOR(rows * a.n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(rows, block); b++)
        TG_ROW_DTYPES(args, weight, forward_rows(T, W, &a, b * block, tg_block_end(b, block, rows)));
    return TENG_OK;
}
static teng_status run(const teng_kernel_args *args)
{
    const norm a = {.x = args->in[0], .y = args->out[0], .mean = args->out[1], .rstd = args->out[2]};
    return run_norm(args, a, 1);
}
static teng_status run_add(const teng_kernel_args *args)
{
    const norm a = {.x = args->in[0],
                    .r = args->in[1],
                    .h = args->out[0],
                    .y = args->out[1],
                    .mean = args->out[2],
                    .rstd = args->out[3]};
    return run_norm(args, a, 2);
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
                    .onto = args->call->n_in == 6 ? args->in[5] : NULL,
                    .y = args->out[0],
                    .n = tg_row_size(&args->call->in[0])};
    const int64_t rows = tg_row_count(&args->call->in[0]), block = tg_partial_rows(rows);
    const int64_t blocks = tg_blocks(rows, block), n = a.n;
    float *dw = args->workspace, *db = dw + n; /* of block b: 2·n·b further */
    TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < blocks; b++)
        TG_ROW_DTYPES(
            args, 1,
            backward_rows(T, W, &a, b * block, tg_block_end(b, block, rows), dw + 2 * n * b, db + 2 * n * b));
    for (int o = 1; o < args->call->n_out; o++)
        TG_FLOAT_SWITCH(args->call->out[o].dtype, T,
                        tg_partial_sum(T, o == 1 ? dw : db, blocks, 2 * n, n, 1.0f, args->out[o]));
    return TENG_OK;
}

TG_KERNELS(tg_layer_norm_kernels) = {{"rows", NULL, NULL, run, NULL}, {0}};
TG_KERNELS(tg_add_layer_norm_kernels) = {{"rows", NULL, NULL, run_add, NULL}, {0}};
TG_KERNELS(tg_layer_norm_grad_kernels) = {{"rows", NULL, prepare_grad, run_grad, NULL}, {0}};
