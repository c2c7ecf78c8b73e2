/*
 * rms_norm and its gradient on the CPU. A row is read from memory once and from cache after that. dweight:
 * each fixed block of rows sums into its own row of the workspace, those are added in order.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"

typedef struct norm { /* one call; rows of n */
    const void *x, *w, *dy;
    const void *r;    /* added to x first, the sum goes to h; NULL: none */
    const void *onto; /* of the gradient: added to dx; NULL: none */
    const float *rstd_in;
    void *y, *h;
    float *rstd;
    int64_t n;
    double eps;
} norm;

TG_INLINE void forward_rows(teng_dtype T, teng_dtype W, const norm *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r * a->n;
        const void *x_in = a->r ? a->h : a->x;
        if (a->r) tg_add_rows(T, a->x, a->r, a->h, at, a->n);
        tg_sum16 sum = {0};
        TG_ROW16(i, len, p, a->n, {
            const tg_vf x = tg_v_load_part(T, x_in, at + i, len);
            sum.part[p] = tg_v_fma(x, x, sum.part[p]);
        });
        const float rstd = 1.0f / sqrtf(tg_sum16_total(&sum) / (float)a->n + (float)a->eps);
        a->rstd[r] = rstd;
        TG_VECTORS(i, len, 0, a->n)
        {
            const tg_vf x = tg_v_load_part(T, x_in, at + i, len), w = tg_v_load_part(W, a->w, i, len);
            tg_v_store_part(T, a->y, at + i, x * rstd * w, len);
        }
    }
}

TG_INLINE void backward_rows(teng_dtype T, teng_dtype W, const norm *a, int64_t begin, int64_t end, float *dw)
{
    memset(dw, 0, sizeof *dw * (size_t)a->n);
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r * a->n;
        tg_sum16 sum = {0};
        TG_ROW16(i, len, p, a->n, {
            const tg_vf x = tg_v_load_part(T, a->x, at + i, len), dy = tg_v_load_part(T, a->dy, at + i, len);
            sum.part[p] = tg_v_fma(dy * tg_v_load_part(W, a->w, i, len), x, sum.part[p]);
        });
        const float rstd = a->rstd_in[r], c = tg_sum16_total(&sum) / (float)a->n * rstd * rstd;
        TG_VECTORS(i, len, 0, a->n)
        {
            const tg_vf x = tg_v_load_part(T, a->x, at + i, len), dy = tg_v_load_part(T, a->dy, at + i, len);
            const tg_vf g = dy * tg_v_load_part(W, a->w, i, len), old = tg_v_load_part(TENG_F32, dw, i, len);
            tg_v_store_part(TENG_F32, dw, i, tg_v_fma(dy, x * rstd, old), len);
            tg_vf dx = (g - x * c) * rstd;
            if (a->onto) dx = tg_round(T, dx) + tg_v_load_part(T, a->onto, at + i, len);
            tg_v_store_part(T, a->y, at + i, dx, len);
        }
    }
}

static teng_status run_norm(const teng_kernel_args *args, norm a, int weight)
{
    a.n = tg_row_size(&args->call->in[0]);
    a.w = args->in[weight];
    a.eps = *(const double *)args->call->attr;
    const int64_t rows = tg_row_count(&args->call->in[0]), block = tg_rows_in_block(a.n);
    TG_PARALLEL_FOR(rows * a.n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(rows, block); b++)
        TG_ROW_DTYPES(args, weight, forward_rows(T, W, &a, b * block, tg_block_end(b, block, rows)));
    return TENG_OK;
}
static teng_status run(const teng_kernel_args *args)
{
    return run_norm(args, (norm){.x = args->in[0], .y = args->out[0], .rstd = args->out[1]}, 1);
}
static teng_status run_add(const teng_kernel_args *args)
{
    const norm a = {
        .x = args->in[0], .r = args->in[1], .h = args->out[0], .y = args->out[1], .rstd = args->out[2]};
    return run_norm(args, a, 2);
}

static teng_status prepare_grad(const teng_op_call *call, teng_prepared *out)
{
    const teng_desc *x = &call->in[0];
    out->workspace = sizeof(float) * (size_t)(tg_partial_blocks(tg_row_count(x)) * tg_row_size(x));
    return TENG_OK;
}

static teng_status run_grad(const teng_kernel_args *args)
{
    const norm a = {.x = args->in[0],
                    .w = args->in[1],
                    .dy = args->in[2],
                    .rstd_in = args->in[3],
                    .onto = args->call->n_in == 5 ? args->in[4] : NULL,
                    .y = args->out[0],
                    .n = tg_row_size(&args->call->in[0])};
    const int64_t rows = tg_row_count(&args->call->in[0]), block = tg_partial_rows(rows);
    float *partial = args->workspace;
    TG_PARALLEL_FOR(rows * a.n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(rows, block); b++)
        TG_ROW_DTYPES(args, 1,
                      backward_rows(T, W, &a, b * block, tg_block_end(b, block, rows), partial + b * a.n));
    TG_FLOAT_SWITCH(args->call->out[1].dtype, T,
                    tg_partial_sum(T, partial, tg_blocks(rows, block), a.n, a.n, 1.0f, args->out[1]));
    return TENG_OK;
}

TG_KERNELS(tg_rms_norm_kernels) = {{"rows", NULL, NULL, run, NULL}, {0}};
TG_KERNELS(tg_add_rms_norm_kernels) = {{"rows", NULL, NULL, run_add, NULL}, {0}};
TG_KERNELS(tg_rms_norm_grad_kernels) = {{"rows", NULL, prepare_grad, run_grad, NULL}, {0}};
