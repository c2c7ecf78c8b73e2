/*
 * Kernels of the optimizer step: each reads and writes every tensor once. Scalars are combined in double
 * before the loop. Where an output is the new value of an input, both are the same buffer.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/op_list.h"
#include "tensor/desc.h"

/* ---- accumulate ---- */
static void accumulate_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    const float beta = *(const float *)a->in[2];
    TG_FLOAT_SWITCH(
        a->call->in[1].dtype, T, TG_VECTORS(i, len, begin, end) {
            tg_vf sum = tg_v_load_part(T, a->in[1], i, len);
            if (beta != 0) sum = tg_v_fma(tg_v_set(beta), tg_v_load_part(TENG_F32, a->in[0], i, len), sum);
            tg_v_store_part(TENG_F32, a->out[0], i, sum, len);
        });
}
static teng_status run_accumulate(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, accumulate_block, args);
    return TENG_OK;
}
TG_KERNELS(tg_accumulate_kernels) = {{"vector", NULL, NULL, run_accumulate, NULL}, {0}};

/* ---- sum_squares: element i of a block goes to lane i mod 16; lanes, then blocks, in order ---- */
typedef struct squares {
    const void *x;
    teng_dtype dtype;
    double *partial; /* [blocks of this tensor] */
} squares;

/* The halves of a register as doubles, each a register again. */
typedef float half __attribute__((vector_size(2 * TG_LANES)));
typedef double wide __attribute__((vector_size(4 * TG_LANES)));
TG_INLINE void add_squares(tg_vf x, wide *low, wide *high)
{
#if TG_LANES == 16
    const half a = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
               b = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#elif TG_LANES == 8
    const half a = __builtin_shufflevector(x, x, 0, 1, 2, 3), b = __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
    const half a = __builtin_shufflevector(x, x, 0, 1), b = __builtin_shufflevector(x, x, 2, 3);
#endif
    const wide c = __builtin_convertvector(a, wide), d = __builtin_convertvector(b, wide);
    *low += c * c;
    *high += d * d;
}

TG_INLINE double sum_of_squares(teng_dtype T, const void *x, int64_t begin, int64_t end)
{
    wide low[TG_PARTS] = {{0}}, high[TG_PARTS] = {{0}};
    double sum = 0;
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
        TG_UNROLL(4)
        for (int p = 0; p < TG_PARTS; p++)
            add_squares(tg_v_load(T, x, i + p * TG_LANES), &low[p], &high[p]);
    }
    TG_VECTORS(j, len, i, end)
    {
        add_squares(tg_v_load_part(T, x, j, len), &low[(j - i) / TG_LANES], &high[(j - i) / TG_LANES]);
    }
    for (int p = 0; p < TG_PARTS; p++) {
        for (int l = 0; l < TG_LANES / 2; l++)
            sum += low[p][l];
        for (int l = 0; l < TG_LANES / 2; l++)
            sum += high[p][l];
    }
    return sum;
}

static void squares_block(const void *ctx, int64_t begin, int64_t end)
{
    const squares *s = ctx;
    TG_FLOAT_SWITCH(s->dtype, T, s->partial[begin / TG_BLOCK] = sum_of_squares(T, s->x, begin, end));
}
static teng_status prepare_sum_squares(const teng_op_call *call, teng_prepared *out)
{
    int64_t blocks = 0;
    for (int i = 0; i < call->n_in; i++)
        blocks += tg_blocks(tg_desc_numel(&call->in[i]), TG_BLOCK);
    out->workspace = (size_t)blocks * sizeof(double);
    return TENG_OK;
}
static teng_status run_sum_squares(const teng_kernel_args *args)
{
    double *partial = args->workspace, sum = 0;
    int64_t blocks = 0;
    for (int i = 0; i < args->call->n_in; i++) {
        const squares s = {args->in[i], args->call->in[i].dtype, partial + blocks};
        const int64_t n = tg_desc_numel(&args->call->in[i]);
        tg_run_blocks(n, TG_BLOCK, n, squares_block, &s);
        blocks += tg_blocks(n, TG_BLOCK);
    }
    for (int64_t b = 0; b < blocks; b++)
        sum += partial[b];
    *(float *)args->out[0] = (float)sum;
    return TENG_OK;
}
TG_KERNELS(tg_sum_squares_kernels) = {{"vector", NULL, prepare_sum_squares, run_sum_squares, NULL}, {0}};

/* ---- clip_coef ---- */
static teng_status run_clip_coef(const teng_kernel_args *args)
{
    const tg_clip_attr *attr = args->call->attr;
    const double inv_scale = (double)*(const float *)args->in[1];
    const double norm = sqrt((double)*(const float *)args->in[0]) * inv_scale;
    double coef = inv_scale;
    if (attr->max_norm > 0 && attr->max_norm < norm + 1e-6) coef *= attr->max_norm / (norm + 1e-6);
    *(float *)args->out[0] = isfinite(norm) ? (float)coef : NAN;
    *(float *)args->out[1] = (float)norm;
    return TENG_OK;
}
TG_KERNELS(tg_clip_coef_kernels) = {{"scalar", NULL, NULL, run_clip_coef, NULL}, {0}};

/* What the loops of adamw and sgd need, made once a call. */
typedef struct step {
    const teng_kernel_args *args;
    float coef, decay, lr;
    float beta1, beta2, rate1, rate2; /* adamw: rate = 1 - beta */
    float size, inv_bc2, eps;         /* size = lr / bc1 */
    float momentum, wd;               /* sgd */
    bool nesterov;
} step;

/* The updated inputs as they were: nothing to do in place. */
static void keep(const teng_kernel_args *args)
{
    for (int o = 0; o < args->call->n_out; o++) {
        const void *old = args->in[args->call->op->updates[o] - 1];
        if (args->out[o] != old) memcpy(args->out[o], old, tg_desc_bytes(&args->call->out[o]));
    }
}

/* ---- adamw ---- */
static void adamw_block(const void *ctx, int64_t begin, int64_t end)
{
    const step *s = ctx;
    const teng_kernel_args *a = s->args;
    const tg_vf beta1 = tg_v_set(s->beta1), beta2 = tg_v_set(s->beta2);
    TG_FLOAT_SWITCH(
        a->call->in[1].dtype, T, TG_VECTORS(i, len, begin, end) {
            const tg_vf p = tg_v_load_part(TENG_F32, a->in[0], i, len),
                        g = s->coef * tg_v_load_part(T, a->in[1], i, len);
            const tg_vf m = tg_v_fma(beta1, tg_v_load_part(TENG_F32, a->in[2], i, len), s->rate1 * g);
            const tg_vf v = tg_v_fma(beta2, tg_v_load_part(TENG_F32, a->in[3], i, len), s->rate2 * g * g);
            const tg_vf down = tg_v_sqrt(v * s->inv_bc2) + s->eps;
            tg_v_store_part(TENG_F32, a->out[0], i, p - s->decay * p - s->size * m / down, len);
            tg_v_store_part(TENG_F32, a->out[1], i, m, len);
            tg_v_store_part(TENG_F32, a->out[2], i, v, len);
        });
}
static teng_status run_adamw(const teng_kernel_args *args)
{
    const tg_adamw_attr *attr = args->call->attr;
    const float *scalars = args->in[4], coef = args->call->n_in > 5 ? *(const float *)args->in[5] : 1;
    if (!isfinite(coef)) {
        keep(args);
        return TENG_OK;
    }
    const double lr = (double)scalars[0];
    const step s = {.args = args,
                    .coef = coef,
                    .decay = (float)(lr * attr->weight_decay),
                    .beta1 = (float)attr->beta1,
                    .beta2 = (float)attr->beta2,
                    .rate1 = (float)(1 - attr->beta1),
                    .rate2 = (float)(1 - attr->beta2),
                    .size = (float)(lr / (double)scalars[1]),
                    .inv_bc2 = (float)(1 / (double)scalars[2]),
                    .eps = (float)attr->eps};
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, adamw_block, &s);
    return TENG_OK;
}
TG_KERNELS(tg_adamw_kernels) = {{"vector", NULL, NULL, run_adamw, NULL}, {0}};

/* ---- sgd ---- */
static void sgd_block(const void *ctx, int64_t begin, int64_t end)
{
    const step *s = ctx;
    const teng_kernel_args *a = s->args;
    const tg_vf momentum = tg_v_set(s->momentum), wd = tg_v_set(s->wd);
    TG_FLOAT_SWITCH(
        a->call->in[1].dtype, T, TG_VECTORS(i, len, begin, end) {
            const tg_vf p = tg_v_load_part(TENG_F32, a->in[0], i, len);
            const tg_vf g = tg_v_fma(wd, p, s->coef * tg_v_load_part(T, a->in[1], i, len));
            const tg_vf buf = tg_v_fma(momentum, tg_v_load_part(TENG_F32, a->in[2], i, len), g);
            tg_v_store_part(TENG_F32, a->out[0], i,
                            p - s->lr * (s->nesterov ? tg_v_fma(momentum, buf, g) : buf), len);
            tg_v_store_part(TENG_F32, a->out[1], i, buf, len);
        });
}
static teng_status run_sgd(const teng_kernel_args *args)
{
    const tg_sgd_attr *attr = args->call->attr;
    const float *scalars = args->in[3], coef = args->call->n_in > 4 ? *(const float *)args->in[4] : 1;
    if (!isfinite(coef)) {
        keep(args);
        return TENG_OK;
    }
    const step s = {.args = args,
                    .coef = coef,
                    .lr = scalars[0],
                    .momentum = (float)attr->momentum,
                    .wd = (float)attr->weight_decay,
                    .nesterov = attr->nesterov != 0};
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, sgd_block, &s);
    return TENG_OK;
}
TG_KERNELS(tg_sgd_kernels) = {{"vector", NULL, NULL, run_sgd, NULL}, {0}};
