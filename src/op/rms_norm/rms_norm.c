/*
 * rms_norm and its gradient. The reciprocal root of each row is kept for the gradient as a second output, so
 * that the backward pass reads x once less.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"eps", TENG_ATTR_REAL, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const double eps = *(const double *)call->attr;
    const teng_desc *x = &call->in[0];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    TG_TRY(tg_want_weight(call, 1, "weight", x->dims[x->ndim - 1]));
    if (!(eps >= 0)) return tg_fail(TENG_INVALID, "eps is %g; it must not be negative", eps);
    call->out[0] = *x;
    call->out[1] = tg_desc_rows(x, TENG_F32);
    return TENG_OK;
}

static teng_status infer_add(teng_op_call *call)
{
    const double eps = *(const double *)call->attr;
    const teng_desc *x = &call->in[0];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    TG_TRY(tg_want_like(call, 1, "r", 0, "x"));
    TG_TRY(tg_want_weight(call, 2, "weight", x->dims[x->ndim - 1]));
    if (!(eps >= 0)) return tg_fail(TENG_INVALID, "eps is %g; it must not be negative", eps);
    call->out[0] = call->out[1] = *x;
    call->out[2] = tg_desc_rows(x, TENG_F32);
    return TENG_OK;
}

static teng_status infer_grad(teng_op_call *call)
{
    const teng_desc *x = &call->in[0];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    TG_TRY(tg_want_weight(call, 1, "weight", x->dims[x->ndim - 1]));
    TG_TRY(tg_want_like(call, 2, "dy", 0, "x"));
    const teng_desc rows = tg_desc_rows(x, TENG_F32);
    TG_TRY(tg_want_dtype(call, 3, "rstd", TENG_F32));
    TG_TRY(tg_want_dims(call, 3, "rstd", &rows, "x without its last dimension"));
    if (call->n_in == 5) TG_TRY(tg_want_like(call, 4, "onto", 0, "x"));
    call->out[0] = *x;
    call->out[1] = call->in[1];
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    if (ctx->out_grad[1])
        return tg_fail(TENG_UNSUPPORTED, "rstd is for the gradient's own use; no gradient flows into it");
    teng_tensor *in[] = {ctx->in[0], ctx->in[1], ctx->out_grad[0], ctx->out[1]}, *out[2];
    if (!teng_apply((teng_src){NULL, 0}, &tg_op_rms_norm_grad, NULL, 4, in, out)) return teng_error_status();
    for (int i = 0; i < 2; i++)
        if (ctx->need[i]) ctx->in_grad[i] = out[i];
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, TENG_REPLICATED}, (teng_place[]){p, p});
    }
}

static void place_add(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, p, TENG_REPLICATED}, (teng_place[]){p, p, p});
    }
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, TENG_REPLICATED, p, p, p}, (teng_place[]){p, TENG_PARTIAL});
    }
    teng_place_add(
        rules, (teng_place[]){TENG_REPLICATED, TENG_REPLICATED, TENG_PARTIAL, TENG_REPLICATED, TENG_PARTIAL},
        (teng_place[]){TENG_PARTIAL, TENG_PARTIAL});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 4.0 * (double)tg_desc_numel(&call->in[0]);
}
static void cost_add(const teng_op_call *call, teng_cost *c)
{
    c->flops = 5.0 * (double)tg_desc_numel(&call->in[0]);
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = 10.0 * (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_rms_norm_kernels);
TG_CPU_TABLES(tg_rms_norm_grad_kernels);

const teng_op_spec tg_op_rms_norm = {
    .name = "rms_norm",
    .doc = "y = x · rstd · weight, rstd = 1 / √(mean(x²) + eps) over the last dimension, in f32 (Zhang & "
           "Sennrich 2019, "
           "\"Root mean square layer normalization\"). weight [C] in f32 or x's dtype. Outputs y and, for "
           "the gradient, "
           "rstd f32 of each row.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .attr_size = sizeof(double),
    .attrs = fields,
    .inplace = {1},
    .infer = infer,
    .grad = grad,
    .grad_in = 3,
    .grad_out = 2,
    .place = place,
    .cost = cost,
    .kernels = tg_rms_norm_kernels_tables,
    .precision = TENG_PRECISION_NORM,
    .f32_in = 2,
};

TG_CPU_TABLES(tg_add_rms_norm_kernels);
const teng_op_spec tg_op_add_rms_norm = {
    .name = "add_rms_norm",
    .doc = "h = x + r, the residual stream, and y = rms_norm(h) in one pass: what the pass `fuse` makes of "
           "the two. Inputs x, r, weight; outputs h, y and rstd.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 3,
    .attr_size = sizeof(double),
    .attrs = fields,
    .inplace = {3},
    .infer = infer_add,
    .no_grad = "a graph that holds it has its gradient already",
    .place = place_add,
    .cost = cost_add,
    .kernels = tg_add_rms_norm_kernels_tables,
    .precision = TENG_PRECISION_NORM,
    .f32_in = 4,
};

const teng_op_spec tg_op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .doc =
        "Gradient of rms_norm: with g = dy · weight, dx = rstd · (g - x · rstd² · mean(g · x)), dweight = "
        "Σ over rows of "
        "dy · x · rstd. Inputs x, weight, dy, rstd and, optional, onto, to which dx is added (the residual "
        "stream's gradient); outputs dx, dweight.",
    .min_in = 4,
    .max_in = 5,
    .n_out = 2,
    .inplace = {1u << 4 | 5},
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost_grad,
    .kernels = tg_rms_norm_grad_kernels_tables,
};

teng_tensor *teng_rms_norm_at(teng_src at, teng_tensor *x, teng_tensor *weight, double eps)
{
    return teng_apply(at, &tg_op_rms_norm, &eps, 2, (teng_tensor *[]){x, weight}, NULL);
}
