/*
 * cross_entropy and its gradient on the CPU. A row may be far larger than the cache, so its log Σ exp is
 * computed in one pass: blocks that fit in cache, the sum so far rescaled when the maximum grows. Losses of
 * rows wait in the workspace and are added in order, in double.
 */
#include "op/cross_entropy/cross_entropy.h"

#include "base/fail.h"
#include "mesh/mesh.h"
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"
#include "op/ids.h"

TG_INLINE float row_lse(teng_dtype T, const void *x, int64_t at, int64_t n)
{
    float max = -INFINITY, sum = 0.0f;
    for (int64_t b = 0; b < tg_blocks(n, TG_BLOCK); b++) {
        const int64_t begin = at + b * TG_BLOCK, size = tg_block_end(b, TG_BLOCK, n) - b * TG_BLOCK;
        tg_vf m = tg_v_set(max);
        TG_VECTORS(i, len, 0, size)
        {
            m = tg_v_max(m, tg_v_fill_tail(tg_v_load_part(T, x, begin + i, len), len, max));
        }
        const float higher = tg_v_hmax(m);
        if (higher > max) sum *= expf(max - higher);
        max = higher;
        if (max == -INFINITY) continue; /* nothing but impossible entries so far */
        tg_sum16 part = {0};
        TG_ROW16(i, len, p, size, {
            tg_vf e = tg_v_exp(tg_v_load_part(T, x, begin + i, len) - max);
            if (len < TG_LANES) e = tg_v_fill_tail(e, len, 0.0f);
            part.part[p] += e;
        });
        sum += tg_sum16_total(&part);
    }
    return sum == 0.0f ? max : max + logf(sum); /* 0: no entry is possible */
}

TG_INLINE void forward(teng_dtype T, const void *x, const int32_t *labels, int64_t rows, int64_t n,
                       int64_t ignore, float *lse, double *losses)
{
    TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] == ignore) {
            lse[r] = 0.0f;
            losses[r] = 0.0;
            continue;
        }
        lse[r] = row_lse(T, x, r * n, n);
        losses[r] = (double)lse[r] - (double)tg_v_load1(T, x, r * n + labels[r]);
    }
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    out->workspace = sizeof(double) * (size_t)tg_desc_numel(&call->in[1]);
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *x = &args->call->in[0];
    const int64_t n = tg_row_size(x), rows = tg_desc_numel(&args->call->in[1]),
                  ignore = *(const int64_t *)args->call->attr;
    const int32_t *labels = args->in[1];
    double *losses = args->workspace, sum = 0.0;
    int64_t valid;
    const teng_status status = tg_labels_check(labels, rows, n, ignore, &valid);
    if (status != TENG_OK) return status;
    TG_FLOAT_SWITCH(x->dtype, T, forward(T, args->in[0], labels, rows, n, ignore, args->out[1], losses));
    for (int64_t r = 0; r < rows; r++)
        sum += losses[r];
    const double divisor = tg_labels_divisor(args, 2, valid);
    *(float *)args->out[0] = divisor > 0 ? (float)(sum / divisor) : 0.0f;
    return TENG_OK;
}

static void lse_row(teng_dtype dtype, const void *x, int64_t at, int64_t n, int64_t parts, float *lse)
{
    for (int64_t p = 0; p < parts; p++) {
        int64_t begin, size;
        tg_mesh_cut(n, parts, p, &begin, &size);
        TG_FLOAT_SWITCH(dtype, T, lse[p] = row_lse(T, x, at + begin, size));
    }
}

static teng_status run_lse(const teng_kernel_args *args)
{
    const tg_logits_lse_attr *a = args->call->attr;
    const teng_desc *x = &args->call->in[0];
    const int64_t n = tg_row_size(x), rows = tg_desc_numel(&args->call->in[1]);
    const int32_t *labels = args->in[1];
    float *lse = args->out[0], *hit = args->out[1];
    int64_t valid;
    TG_TRY(tg_labels_check(labels, rows, a->piece.total ? a->piece.total : n, a->piece.ignore_index, &valid));
    TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const bool ignored = labels[r] == a->piece.ignore_index;
        const int64_t label = labels[r] - a->piece.begin;
        hit[r] = 0.0f;
        if (ignored)
            memset(lse + r * a->parts, 0, sizeof *lse * (size_t)a->parts);
        else
            lse_row(x->dtype, args->in[0], r * n, n, a->parts, lse + r * a->parts);
        if (!ignored && label >= 0 && label < n)
            TG_FLOAT_SWITCH(x->dtype, T, hit[r] = tg_v_load1(T, args->in[0], r * n + label));
    }
    return TENG_OK;
}

/* A label outside 0 … n - 1 stands in another piece of the vocabulary. */
TG_INLINE void backward_row(teng_dtype T, const void *x, void *dx, int64_t at, int64_t n, int64_t label,
                            float lse, float scale)
{
    const bool here = label >= 0 && label < n;
    const float hit = here ? (expf(tg_v_load1(T, x, at + label) - lse) - 1.0f) * scale
                           : 0.0f; /* before dx takes x's place */
    TG_VECTORS(i, len, 0, n)
    {
        tg_v_store_part(T, dx, at + i, tg_v_exp(tg_v_load_part(T, x, at + i, len) - lse) * scale, len);
    }
    if (here) tg_v_store1(T, dx, at + label, hit);
}

static teng_status run_grad(const teng_kernel_args *args)
{
    const teng_desc *x = &args->call->in[0];
    const int64_t n = tg_row_size(x), rows = tg_desc_numel(&args->call->in[1]);
    const tg_cross_entropy_attr *a = args->call->attr;
    const int64_t ignore = a->ignore_index;
    const int32_t *labels = args->in[1];
    const float *lse = args->in[2], dy = *(const float *)args->in[3];
    int64_t valid;
    const teng_status status = tg_labels_check(labels, rows, a->total ? a->total : n, ignore, &valid);
    if (status != TENG_OK) return status;
    const double divisor = tg_labels_divisor(args, 4, valid);
    const float scale = divisor > 0 ? (float)((double)dy / divisor) : 0.0f;
    const int64_t size = teng_dtype_size(x->dtype);
    TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] == ignore)
            memset((char *)args->out[0] + r * n * size, 0, (size_t)(n * size));
        else
            TG_FLOAT_SWITCH(
                x->dtype, T,
                backward_row(T, args->in[0], args->out[0], r * n, n, labels[r] - a->begin, lse[r], scale));
    }
    return TENG_OK;
}

TG_KERNELS(tg_cross_entropy_kernels) = {{"one pass", NULL, prepare, run, NULL}, {0}};
TG_KERNELS(tg_logits_lse_kernels) = {{"rows", NULL, NULL, run_lse, NULL}, {0}};
TG_KERNELS(tg_cross_entropy_grad_kernels) = {{"rows", NULL, NULL, run_grad, NULL}, {0}};
