/*
 * layer_norm and its gradient. Mean and reciprocal deviation of each row are kept for the gradient as further
 * outputs, so that the backward pass reads x once less.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"eps", TENG_ATTR_REAL, 0, NULL}, {0}};
static const teng_attr_field grad_fields[] = {{"has_bias", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const double eps = *(const double *)call->attr;
    const teng_desc *x = &call->in[0];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    TG_TRY(tg_want_weight(call, 1, "weight", x->dims[x->ndim - 1]));
    if (call->n_in == 3) TG_TRY(tg_want_like(call, 2, "bias", 1, "weight"));
    if (!(eps >= 0)) return tg_fail(TENG_INVALID, "eps is %g; it must not be negative", eps);
    call->out[0] = *x;
    call->out[1] = call->out[2] = tg_desc_rows(x, TENG_F32);
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
    if (call->n_in == 4) TG_TRY(tg_want_like(call, 3, "bias", 2, "weight"));
    if (!(eps >= 0)) return tg_fail(TENG_INVALID, "eps is %g; it must not be negative", eps);
    call->out[0] = call->out[1] = *x;
    call->out[2] = call->out[3] = tg_desc_rows(x, TENG_F32);
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
    for (int i = 3; i < 5; i++) {
        TG_TRY(tg_want_dtype(call, i, i == 3 ? "mean" : "rstd", TENG_F32));
        TG_TRY(tg_want_dims(call, i, i == 3 ? "mean" : "rstd", &rows, "x without its last dimension"));
    }
    if (call->n_in == 6) TG_TRY(tg_want_like(call, 5, "onto", 0, "x"));
    call->out[0] = *x;
    call->out[1] = call->out[2] = call->in[1];
    call->n_out = *(const int64_t *)call->attr ? 3 : 2;
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    if (ctx->out_grad[1] || ctx->out_grad[2])
        return tg_fail(TENG_UNSUPPORTED,
                       "mean and rstd are for the gradient's own use; no gradient flows into them");
    const int64_t has_bias = ctx->n_in == 3;
    teng_tensor *in[] = {ctx->in[0], ctx->in[1], ctx->out_grad[0], ctx->out[1], ctx->out[2]}, *out[3];
    if (!teng_apply((teng_src){NULL, 0}, &tg_op_layer_norm_grad, &has_bias, 5, in, out))
        return teng_error_status();
    for (int i = 0; i < ctx->n_in; i++)
        if (ctx->need[i]) ctx->in_grad[i] = out[i];
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, TENG_REPLICATED, TENG_REPLICATED}, (teng_place[]){p, p, p});
    }
}

static void place_add(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, p, TENG_REPLICATED, TENG_REPLICATED},
                       (teng_place[]){p, p, p, p});
    }
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, R, p, p, p, p}, (teng_place[]){p, P, P});
    }
    teng_place_add(rules, (teng_place[]){R, R, P, R, R, P}, (teng_place[]){P, P, P});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 8.0 * (double)tg_desc_numel(&call->in[0]);
}
static void cost_add(const teng_op_call *call, teng_cost *c)
{
    c->flops = 9.0 * (double)tg_desc_numel(&call->in[0]);
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = 14.0 * (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_layer_norm_kernels);
TG_CPU_TABLES(tg_layer_norm_grad_kernels);

const teng_op_spec tg_op_layer_norm = {
    .name = "layer_norm",
    .doc = "y = (x - mean) · rstd · weight + bias, mean of x and rstd = 1 / √(var(x) + eps) over the last "
           "dimension, in f32 "
           "(Ba, Kiros & Hinton 2016, \"Layer normalization\"). weight [C], bias [C] (optional) in f32 or "
           "x's dtype. "
           "Outputs y and, for the gradient, mean and rstd f32 of each row.",
    .min_in = 2,
    .max_in = 3,
    .n_out = 3,
    .attr_size = sizeof(double),
    .attrs = fields,
    .inplace = {1},
    .infer = infer,
    .grad = grad,
    .grad_in = 3,
    .grad_out = 6,
    .place = place,
    .cost = cost,
    .kernels = tg_layer_norm_kernels_tables,
    .precision = TENG_PRECISION_NORM,
    .f32_in = 6,
};

TG_CPU_TABLES(tg_add_layer_norm_kernels);
const teng_op_spec tg_op_add_layer_norm = {
    .name = "add_layer_norm",
    .doc = "h = x + r, the residual stream, and y = layer_norm(h) in one pass: what the pass `fuse` makes of "
           "the two. Inputs x, r, weight, bias (optional); outputs h, y, mean and rstd.",
    .min_in = 3,
    .max_in = 4,
    .n_out = 4,
    .attr_size = sizeof(double),
    .attrs = fields,
    .inplace = {3},
    .infer = infer_add,
    .no_grad = "a graph that holds it has its gradient already",
    .place = place_add,
    .cost = cost_add,
    .kernels = tg_add_layer_norm_kernels_tables,
    .precision = TENG_PRECISION_NORM,
    .f32_in = 12,
};

const teng_op_spec tg_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .doc = "Gradient of layer_norm: with z = (x - mean) · rstd and g = dy · weight, dx = rstd · (g - mean(g) "
           "- z · "
           "mean(g · z)), dweight = Σ over rows of dy · z, dbias = Σ over rows of dy. Inputs x, weight, dy, "
           "mean, rstd and, optional, onto, to which dx is added (the residual stream's gradient); "
           "outputs dx, dweight and, with has_bias, dbias.",
    .min_in = 5,
    .max_in = 6,
    .n_out = -1,
    .attr_size = sizeof(int64_t),
    .attrs = grad_fields,
    .inplace = {1u << 5 | 5},
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost_grad,
    .kernels = tg_layer_norm_grad_kernels_tables,
};

teng_tensor *teng_layer_norm_at(teng_src at, teng_tensor *x, teng_tensor *weight, teng_tensor *bias,
                                bool has_bias, double eps)
{
    return teng_apply(at, &tg_op_layer_norm, &eps, has_bias ? 3 : 2, (teng_tensor *[]){x, weight, bias},
                      NULL);
}
