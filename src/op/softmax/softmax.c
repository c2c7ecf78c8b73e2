/*
 * softmax, log_softmax and their gradients, over the last dimension. The gradients are operators of their own
 * that read the output, not the input. Attention and the loss have fused operators; these are for everything
 * else.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static teng_status infer(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status infer_grad(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "y"));
    TG_TRY(tg_want_ndim(call, 0, "y", 1));
    TG_TRY(tg_want_like(call, 1, "dy", 0, "y"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status append_grad(teng_grad_ctx *ctx, const teng_op_spec *op)
{
    teng_tensor *in[] = {ctx->out[0], ctx->out_grad[0]};
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, op, NULL, 2, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}
static teng_status grad_softmax(teng_grad_ctx *ctx)
{
    return append_grad(ctx, &tg_op_softmax_grad);
}
static teng_status grad_log_softmax(teng_grad_ctx *ctx)
{
    return append_grad(ctx, &tg_op_log_softmax_grad);
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim - 1; i++) {
        const teng_place p = (teng_place)i;
        teng_place_add(rules, (teng_place[]){p, p}, &p);
    }
}

/* dx is linear in dy. */
static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    place(call, rules);
    teng_place_add(rules, (teng_place[]){TENG_REPLICATED, TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 12.0 * (double)tg_desc_numel(&call->out[0]); /* maximum, exp as about 8, sum, scale */
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = 4.0 * (double)tg_desc_numel(&call->out[0]);
}

TG_CPU_TABLES(tg_softmax_kernels);
TG_CPU_TABLES(tg_softmax_grad_kernels);
TG_CPU_TABLES(tg_log_softmax_kernels);
TG_CPU_TABLES(tg_log_softmax_grad_kernels);

const teng_op_spec tg_op_softmax = {
    .name = "softmax",
    .doc = "y = exp(x - max x) / Σ exp(x - max x) over the last dimension, in f32.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .inplace = {1},
    .infer = infer,
    .grad = grad_softmax,
    .grad_out = 1,
    .place = place,
    .cost = cost,
    .kernels = tg_softmax_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

const teng_op_spec tg_op_softmax_grad = {
    .name = "softmax_grad",
    .doc = "dx = y · (dy - Σ y · dy) over the last dimension; inputs y = softmax(x) and dy.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .inplace = {3},
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost_grad,
    .kernels = tg_softmax_grad_kernels_tables,
};

const teng_op_spec tg_op_log_softmax = {
    .name = "log_softmax",
    .doc = "y = x - max x - log Σ exp(x - max x) over the last dimension, in f32.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .inplace = {1},
    .infer = infer,
    .grad = grad_log_softmax,
    .grad_out = 1,
    .place = place,
    .cost = cost,
    .kernels = tg_log_softmax_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

const teng_op_spec tg_op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .doc = "dx = dy - exp(y) · Σ dy over the last dimension; inputs y = log_softmax(x) and dy.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .inplace = {3},
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost,
    .kernels = tg_log_softmax_grad_kernels_tables,
};

teng_tensor *teng_softmax_at(teng_src at, teng_tensor *x)
{
    return teng_apply(at, &tg_op_softmax, NULL, 1, &x, NULL);
}
teng_tensor *teng_log_softmax_at(teng_src at, teng_tensor *x)
{
    return teng_apply(at, &tg_op_log_softmax, NULL, 1, &x, NULL);
}
