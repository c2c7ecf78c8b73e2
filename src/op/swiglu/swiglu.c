/* swiglu: the gate of LLaMA's feed-forward network, silu(gate) · up, and its gradient in one pass. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static teng_status infer_swiglu(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "gate"));
    TG_TRY(tg_want_like(call, 1, "up", 0, "gate"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status infer_swiglu_grad(teng_op_call *call)
{
    TG_TRY(infer_swiglu(call));
    TG_TRY(tg_want_like(call, 2, "dy", 0, "gate"));
    call->out[1] = call->in[0];
    return TENG_OK;
}

static teng_status grad_swiglu(teng_grad_ctx *ctx)
{
    teng_tensor *in[] = {ctx->in[0], ctx->in[1], ctx->out_grad[0]}, *out[TENG_MAX_OUT];
    if (!teng_apply((teng_src){0}, &tg_op_swiglu_grad, NULL, 3, in, out)) return teng_error_status();
    ctx->in_grad[0] = out[0];
    ctx->in_grad[1] = out[1];
    return TENG_OK;
}

static void place_swiglu(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    tg_place_linear(call, rules, 1u << 1);
}

static void place_swiglu_grad(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    tg_place_linear(call, rules, 1u << 2);
}

static void cost_swiglu(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(20 * tg_desc_numel(&call->out[0]));
}

static void cost_swiglu_grad(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(26 * tg_desc_numel(&call->out[0]));
}

TG_CPU_TABLES(tg_swiglu_kernels);
const teng_op_spec tg_op_swiglu = {
    .name = "swiglu",
    .doc = "y = silu(gate) * up, silu(g) = g * sigmoid(g); gate and up of one dtype and shape (Shazeer 2020, "
           "\"GLU variants "
           "improve Transformer\", equation 6).",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {3},
    .infer = infer_swiglu,
    .grad = grad_swiglu,
    .grad_in = 3,
    .place = place_swiglu,
    .cost = cost_swiglu,
    .kernels = tg_swiglu_kernels_tables,
};

TG_CPU_TABLES(tg_swiglu_grad_kernels);
const teng_op_spec tg_op_swiglu_grad = {
    .name = "swiglu_grad",
    .doc = "dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s, s = sigmoid(gate); inputs gate, "
           "up, dy.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {7, 7},
    .infer = infer_swiglu_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_swiglu_grad,
    .cost = cost_swiglu_grad,
    .kernels = tg_swiglu_grad_kernels_tables,
};

teng_tensor *teng_swiglu_at(teng_src at, teng_tensor *gate, teng_tensor *up)
{
    return teng_apply(at, &tg_op_swiglu, NULL, 2, (teng_tensor *[]){gate, up}, NULL);
}
