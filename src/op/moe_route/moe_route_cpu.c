/* Kernels of moe_route and its gradient. Tokens are independent; a token's logits are taken to f32 once. */
#include "base/fail.h"
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"
#include "op/moe_route/moe_route.h"

typedef struct route {
    const teng_kernel_args *args;
    int64_t experts, top_k;
    bool renormalise;
    float *wide; /* [tokens, experts] */
} route;

static route route_of(const teng_kernel_args *args)
{
    const tg_moe_route_attr *attr = args->call->attr;
    return (route){args, args->call->in[0].dims[1], attr->top_k, attr->renormalise != 0, args->workspace};
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    out->workspace = sizeof(float) * (size_t)tg_desc_numel(&call->in[0]);
    return TENG_OK;
}

TG_INLINE float value(teng_dtype t, const void *p, int64_t i)
{
    return tg_v_load_n(t, p, i, 1)[0];
}

static void load_row(const route *r, int64_t token)
{
    float *row = r->wide + token * r->experts;
    TG_FLOAT_SWITCH(
        r->args->call->in[0].dtype, T, TG_VECTORS(i, len, 0, r->experts) {
            tg_v_store_part(TENG_F32, row, i, tg_v_load_part(T, r->args->in[0], token * r->experts + i, len),
                            len);
        });
}

/* The index of the largest value that is not marked; of equal ones, and of NaN, the first. */
static int64_t best_of(const float *row, int64_t n, const int32_t *marked, int64_t n_marked)
{
    int64_t best = -1;
    for (int64_t e = 0; e < n; e++) {
        if (best >= 0 && !(row[e] > row[best])) continue;
        bool free = true;
        for (int64_t k = 0; k < n_marked; k++)
            free &= marked[k] != e;
        if (free) best = e;
    }
    return best;
}

/* max and Σ exp(row - max) over all experts. */
static float sum_of_exp(const float *row, int64_t n, float max)
{
    tg_sum16 sum = {0};
    TG_ROW16(i, len, p, n, {
        tg_vf e = tg_v_exp(tg_v_load_part(TENG_F32, row, i, len) - max);
        if (len < TG_LANES) e = tg_v_fill_tail(e, len, 0.0f);
        sum.part[p] += e;
    });
    return tg_sum16_total(&sum);
}

static void route_rows(const void *ctx, int64_t begin, int64_t end)
{
    const route *r = ctx;
    for (int64_t token = begin; token < end; token++) {
        const float *row = r->wide + token * r->experts;
        int32_t *experts = (int32_t *)r->args->out[1] + token * r->top_k;
        load_row(r, token);
        for (int64_t k = 0; k < r->top_k; k++)
            experts[k] = (int32_t)best_of(row, r->experts, experts, k);
        const float max = row[experts[0]];
        float sum = 0;
        if (r->renormalise)
            for (int64_t k = 0; k < r->top_k; k++)
                sum += expf(row[experts[k]] - max);
        else
            sum = sum_of_exp(row, r->experts, max);
        for (int64_t k = 0; k < r->top_k; k++)
            TG_FLOAT_SWITCH(
                r->args->call->out[0].dtype, T,
                tg_v_store1(T, r->args->out[0], token * r->top_k + k, expf(row[experts[k]] - max) / sum));
    }
}

/* Where the weights are p over the chosen experts alone. */
static void renormalised_grad(const route *r, int64_t token, float *row, const int32_t *experts, float *out)
{
    const teng_dtype dtype = r->args->call->in[0].dtype;
    float max = row[experts[0]], sum = 0, dot = 0;
    for (int64_t k = 1; k < r->top_k; k++)
        max = row[experts[k]] > max ? row[experts[k]] : max;
    for (int64_t k = 0; k < r->top_k; k++) {
        const float e = expf(row[experts[k]] - max);
        sum += e;
        TG_FLOAT_SWITCH(dtype, T, dot += e * value(T, r->args->in[2], token * r->top_k + k));
    }
    dot /= sum;
    for (int64_t k = 0; k < r->top_k; k++) {
        float dw = 0;
        TG_FLOAT_SWITCH(dtype, T, dw = value(T, r->args->in[2], token * r->top_k + k));
        out[k] = expf(row[experts[k]] - max) / sum * (dw - dot);
    }
    memset(row, 0, sizeof *row * (size_t)r->experts);
    for (int64_t k = 0; k < r->top_k; k++)
        row[experts[k]] += out[k];
}

static void softmax_grad(const route *r, int64_t token, float *row, const int32_t *experts, float *out)
{
    const teng_dtype dtype = r->args->call->in[0].dtype;
    float max = row[0], dot = 0;
    for (int64_t e = 1; e < r->experts; e++)
        max = row[e] > max ? row[e] : max;
    const float sum = sum_of_exp(row, r->experts, max);
    for (int64_t k = 0; k < r->top_k; k++) {
        float dw = 0;
        TG_FLOAT_SWITCH(dtype, T, dw = value(T, r->args->in[2], token * r->top_k + k));
        out[k] = expf(row[experts[k]] - max) / sum * dw;
        dot += out[k];
    }
    TG_VECTORS(i, len, 0, r->experts)
    {
        const tg_vf p = tg_v_exp(tg_v_load_part(TENG_F32, row, i, len) - max) / sum;
        tg_v_store_part(TENG_F32, row, i, p * -dot, len);
    }
    for (int64_t k = 0; k < r->top_k; k++)
        row[experts[k]] += out[k];
}

#define SOME 32 /* chosen experts whose values fit on the stack */

static void grad_rows(const void *ctx, int64_t begin, int64_t end)
{
    const route *r = ctx;
    float *spare = r->wide + r->args->call->in[0].dims[0] * r->experts;
    for (int64_t token = begin; token < end; token++) {
        float *row = r->wide + token * r->experts, few[SOME];
        float *terms = r->top_k <= SOME ? few : spare + token * r->top_k;
        const int32_t *experts = (const int32_t *)r->args->in[1] + token * r->top_k;
        load_row(r, token);
        if (r->renormalise)
            renormalised_grad(r, token, row, experts, terms);
        else
            softmax_grad(r, token, row, experts, terms);
        TG_FLOAT_SWITCH(
            r->args->call->out[0].dtype, T, TG_VECTORS(i, len, 0, r->experts) {
                tg_v_store_part(T, r->args->out[0], token * r->experts + i,
                                tg_v_load_part(TENG_F32, row, i, len), len);
            });
    }
}

static teng_status run(const teng_kernel_args *args)
{
    const route r = route_of(args);
    const int64_t tokens = args->call->in[0].dims[0];
    tg_run_blocks(tokens, tg_rows_in_block(r.experts), tokens * r.experts, route_rows, &r);
    return TENG_OK;
}

static teng_status prepare_grad(const teng_op_call *call, teng_prepared *out)
{
    const int64_t top_k = call->in[1].dims[1], spare = top_k > SOME ? tg_desc_numel(&call->in[1]) : 0;
    out->workspace = sizeof(float) * (size_t)(tg_desc_numel(&call->in[0]) + spare);
    return TENG_OK;
}

static teng_status run_grad(const teng_kernel_args *args)
{
    const route r = route_of(args);
    const int64_t tokens = args->call->in[0].dims[0];
    const int32_t *experts = args->in[1];
    for (int64_t i = 0; i < tokens * r.top_k; i++)
        if (experts[i] < 0 || experts[i] >= r.experts)
            return tg_fail(TENG_INVALID, "the expert at position %lld is %d, there are %lld", (long long)i,
                           experts[i], (long long)r.experts);
    tg_run_blocks(tokens, tg_rows_in_block(r.experts), tokens * r.experts, grad_rows, &r);
    return TENG_OK;
}

TG_KERNELS(tg_moe_route_kernels) = {{"rows", NULL, prepare, run, NULL}, {0}};
TG_KERNELS(tg_moe_route_grad_kernels) = {{"rows", NULL, prepare_grad, run_grad, NULL}, {0}};
