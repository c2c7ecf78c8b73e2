/*
 * moe_route: which experts a token goes to and with what weights, and the gradient of the weights. The choice
 * itself is constant almost everywhere and has no gradient. Grouping tokens by expert is moe_sort.
 */
#include "op/moe_route/moe_route.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {
    {"top_k", TENG_ATTR_INT, offsetof(tg_moe_route_attr, top_k), NULL},
    {"renormalise", TENG_ATTR_INT, offsetof(tg_moe_route_attr, renormalise), NULL},
    {0},
};

static teng_status want_logits(const teng_op_call *call)
{
    const teng_desc *logits = &call->in[0];
    const int64_t top_k = ((const tg_moe_route_attr *)call->attr)->top_k;
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "logits"));
    if (logits->ndim != 2)
        return tg_fail(TENG_INVALID, "logits are %s; they must be [tokens, experts]",
                       tg_desc_text(text, logits));
    if (top_k < 1 || top_k > logits->dims[1])
        return tg_fail(TENG_INVALID, "top_k is %lld; it must be 1 to %lld, the number of experts",
                       (long long)top_k, (long long)logits->dims[1]);
    return TENG_OK;
}

static teng_desc chosen(const teng_op_call *call, teng_dtype dtype)
{
    const int64_t top_k = ((const tg_moe_route_attr *)call->attr)->top_k;
    return tg_desc_make(dtype, 2, (int64_t[]){call->in[0].dims[0], top_k});
}

static teng_status infer(teng_op_call *call)
{
    TG_TRY(want_logits(call));
    call->out[0] = chosen(call, call->in[0].dtype);
    call->out[1] = chosen(call, TENG_I32);
    return TENG_OK;
}

static teng_status infer_grad(teng_op_call *call)
{
    TG_TRY(want_logits(call));
    const teng_desc want = chosen(call, call->in[0].dtype);
    TG_TRY(tg_want_dtype(call, 1, "experts", TENG_I32));
    TG_TRY(tg_want_dims(call, 1, "experts", &want, "[tokens, top_k]"));
    TG_TRY(tg_want_dtype(call, 2, "dweights", call->in[0].dtype));
    TG_TRY(tg_want_dims(call, 2, "dweights", &want, "[tokens, top_k]"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    teng_tensor *in[] = {ctx->in[0], ctx->out[1], ctx->out_grad[0]};
    ctx->in_grad[0] = teng_apply((teng_src){0}, &tg_op_moe_route_grad, ctx->attr, 3, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    (void)call;
    teng_place_add(rules, (teng_place[]){0}, (teng_place[]){0, 0});
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    (void)call;
    teng_place_add(rules, (teng_place[]){0, 0, 0}, (teng_place[]){0});
    teng_place_add(rules, (teng_place[]){R, R, P}, (teng_place[]){P});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    const tg_moe_route_attr *attr = call->attr;
    c->flops = (double)tg_desc_numel(&call->in[0]) * (double)(attr->top_k + 10);
}

TG_CPU_TABLES(tg_moe_route_kernels);
TG_CPU_TABLES(tg_moe_route_grad_kernels);

const teng_op_spec tg_op_moe_route = {
    .name = "moe_route",
    .doc =
        "The top_k largest of logits [N, E] of each token, the lowest index first among equals: experts i32 "
        "[N, top_k] in falling order, and weights [N, top_k] = softmax(logits) there, divided by their sum "
        "if renormalise is 1 (Shazeer et al. 2017; Jiang et al. 2024, \"Mixtral of experts\").",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .attr_size = sizeof(tg_moe_route_attr),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_in = 1,
    .grad_out = 2,
    .place = place,
    .cost = cost,
    .kernels = tg_moe_route_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

const teng_op_spec tg_op_moe_route_grad = {
    .name = "moe_route_grad",
    .doc =
        "dlogits of moe_route for fixed experts: with weights w, p = softmax(logits): if renormalise, "
        "dlogits[e_k] += w_k (dw_k - sum(w dw)), else dlogits = sum over k of dw_k p[e_k] (onehot(e_k) - p). "
        "Inputs logits [N, E], experts i32 [N, top_k], dweights [N, top_k].",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(tg_moe_route_attr),
    .attrs = fields,
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost,
    .kernels = tg_moe_route_grad_kernels_tables,
};

teng_tensor *teng_moe_route_at(teng_src at, teng_tensor *logits, int64_t top_k, bool renormalise,
                               teng_tensor **experts)
{
    teng_tensor *out[TENG_MAX_OUT];
    const tg_moe_route_attr attr = {top_k, renormalise};
    teng_tensor *weights = teng_apply(at, &tg_op_moe_route, &attr, 1, &logits, out);
    *experts = weights ? out[1] : NULL;
    return weights;
}
