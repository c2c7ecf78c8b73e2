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

TG_INLINE void forward_rows(teng_dtype T, teng_dtype W, const norm *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r * a->n;
        tg_sum16 sum = {0}, squares = {0};
        TG_ROW16(i, len, p, a->n, sum.part[p] += tg_v_load_part(T, a->x, at + i, len));
        const float mean = tg_sum16_total(&sum) / (float)a->n;
        TG_ROW16(i, len, p, a->n, {
            tg_vf x = tg_v_load_part(T, a->x, at + i, len) - mean;
            if (len < TG_LANES) x = tg_v_fill_tail(x, len, 0.0f);
            squares.part[p] = tg_v_fma(x, x, squares.part[p]);
        });
        const float rstd = 1.0f / sqrtf(tg_sum16_total(&squares) / (float)a->n + (float)a->eps);
        a->mean[r] = mean;
        a->rstd[r] = rstd;
        TG_VECTORS(i, len, 0, a->n)
        {
            const tg_vf z = (tg_v_load_part(T, a->x, at + i, len) - mean) * rstd;
            const tg_vf b = a->b ? tg_v_load_part(W, a->b, i, len) : tg_v_set(0.0f);
            tg_v_store_part(T, a->y, at + i, tg_v_fma(z, tg_v_load_part(W, a->w, i, len), b), len);
        }
    }
}

/* dw and db: n sums each. */
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
            tg_v_store_part(TENG_F32, dw, i, tg_v_fma(dy, z, tg_v_load_part(TENG_F32, dw, i, len)), len);
            tg_v_store_part(TENG_F32, db, i, dy + tg_v_load_part(TENG_F32, db, i, len), len);
            tg_v_store_part(T, a->y, at + i, (g - c - z * d) * rstd, len);
        }
    }
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
    const int64_t rows = tg_row_count(&args->call->in[0]), block = tg_rows_in_block(a.n);
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
