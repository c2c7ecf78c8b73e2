/*
 * Functions of one operand, their common gradient operator, and affine. Each function of unary.def becomes an
 * operator of its own; one operator, unary_grad, computes every derivative in one pass over memory. Not here:
 * operators whose elements depend on each other (softmax, norms).
 */
#include "op/unary/unary.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

#include <stddef.h>

static teng_status infer_unary(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "x"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status infer_unary_grad(teng_op_call *call)
{
    const tg_unary_attr *attr = call->attr;
    if (attr->fn < 0 || attr->fn >= TG_UNARY_COUNT)
        return tg_fail(TENG_INVALID, "fn is %lld; it must name one of %d functions", (long long)attr->fn,
                       TG_UNARY_COUNT);
    TG_TRY(tg_want_float(call, 0, "r"));
    TG_TRY(tg_want_like(call, 1, "dy", 0, "r"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static void place_unary_grad(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    tg_place_linear(call, rules, 1u << 1);
}

static void cost_unary_grad(const teng_op_call *call, teng_cost *cost)
{
    static const int flops[] = {
#define UNARY(name, formula, reads, n) (n) + 8,
#include "op/unary/unary.def"
#undef UNARY
    };
    const tg_unary_attr *attr = call->attr;
    cost->flops = (double)(flops[attr->fn] * tg_desc_numel(&call->out[0]));
}

static const char *const fn_names[] = {
#define UNARY(name, formula, reads, flops) #name,
#include "op/unary/unary.def"
#undef UNARY
    NULL};
static const teng_attr_field grad_fields[] = {{"fn", TENG_ATTR_INT, offsetof(tg_unary_attr, fn), fn_names},
                                              {0}};

TG_CPU_TABLES(tg_unary_grad_kernels);
const teng_op_spec tg_op_unary_grad = {
    .name = "unary_grad",
    .doc = "dx = f'(x) * dy for the function f named by `fn`; r is x, or f(x) for exp, sqrt, rsqrt, tanh, "
           "sigmoid and "
           "relu.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(tg_unary_attr),
    .attrs = grad_fields,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {3},
    .infer = infer_unary_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_unary_grad,
    .cost = cost_unary_grad,
    .kernels = tg_unary_grad_kernels_tables,
};

static teng_status infer_with_grad(teng_op_call *call)
{
    TG_TRY(infer_unary_grad(call));
    call->out[1] = call->in[0];
    return TENG_OK;
}

static void cost_with_grad(const teng_op_call *call, teng_cost *cost)
{
    cost_unary_grad(call, cost);
    cost->flops += (double)tg_desc_numel(&call->out[0]); /* most of it is common */
}

TG_CPU_TABLES(tg_unary_with_grad_kernels);
const teng_op_spec tg_op_unary_with_grad = {
    .name = "unary_with_grad",
    .doc = "dx = f'(x) * dy and y = f(x) in one pass, for the function f named by `fn`: what the pass `fuse` "
           "makes of unary_grad and the same function, computed again for backward.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .attr_size = sizeof(tg_unary_attr),
    .attrs = grad_fields,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {3, 3},
    .infer = infer_with_grad,
    .no_grad = "a graph that holds it has its gradient already",
    .place = tg_place_elementwise,
    .cost = cost_with_grad,
    .kernels = tg_unary_with_grad_kernels_tables,
};

static teng_status grad_unary(teng_grad_ctx *ctx, int64_t fn, teng_tensor *r)
{
    const tg_unary_attr attr = {fn};
    ctx->in_grad[0] =
        teng_apply((teng_src){0}, &tg_op_unary_grad, &attr, 2, (teng_tensor *[]){r, ctx->out_grad[0]}, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

#define GRAD_VALUE_IN ctx->in[0]
#define GRAD_VALUE_OUT ctx->out[0]
#define GRAD_MASK_IN .grad_in = 1
#define GRAD_MASK_OUT .grad_out = 1
#define UNARY(fn, formula, reads, n)                                                                         \
    TG_CPU_TABLES(tg_##fn##_kernels);                                                                        \
    static teng_status grad_##fn(teng_grad_ctx *ctx)                                                         \
    {                                                                                                        \
        return grad_unary(ctx, TG_UNARY_##fn, GRAD_VALUE_##reads);                                           \
    }                                                                                                        \
    static void cost_##fn(const teng_op_call *call, teng_cost *cost)                                         \
    {                                                                                                        \
        cost->flops = (double)(n * tg_desc_numel(&call->out[0]));                                            \
    }                                                                                                        \
    const teng_op_spec tg_op_##fn = {                                                                        \
        .name = #fn,                                                                                         \
        .doc = "y = " formula ", element by element; x is f32, bf16 or f16, computed in f32.",               \
        .min_in = 1,                                                                                         \
        .max_in = 1,                                                                                         \
        .n_out = 1,                                                                                          \
        .traits = TENG_OP_ELEMENTWISE,                                                                       \
        .inplace = {1},                                                                                      \
        .infer = infer_unary,                                                                                \
        .grad = grad_##fn,                                                                                   \
        GRAD_MASK_##reads,                                                                                   \
        .place = tg_place_elementwise,                                                                       \
        .cost = cost_##fn,                                                                                   \
        .kernels = tg_##fn##_kernels_tables,                                                                 \
    };                                                                                                       \
    teng_tensor *teng_##fn##_at(teng_src at, teng_tensor *x)                                                 \
    {                                                                                                        \
        return teng_apply(at, &tg_op_##fn, NULL, 1, &x, NULL);                                               \
    }
#include "op/unary/unary.def"
#undef UNARY

/* ---- affine ---- */
static teng_status grad_affine(teng_grad_ctx *ctx)
{
    const tg_affine_attr *attr = ctx->attr;
    ctx->in_grad[0] = teng_affine_at((teng_src){0}, ctx->out_grad[0], attr->factor, 0.0);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place_affine(const teng_op_call *call, teng_place_rules *rules)
{
    const tg_affine_attr *attr = call->attr;
    tg_place_elementwise(call, rules);
    if (attr->offset == 0) tg_place_linear(call, rules, 1);
}

static void cost_affine(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(2 * tg_desc_numel(&call->out[0]));
}

static const teng_attr_field affine_fields[] = {
    {"factor", TENG_ATTR_REAL, offsetof(tg_affine_attr, factor), NULL},
    {"offset", TENG_ATTR_REAL, offsetof(tg_affine_attr, offset), NULL},
    {0}};

TG_CPU_TABLES(tg_affine_kernels);
const teng_op_spec tg_op_affine = {
    .name = "affine",
    .doc = "y = factor * x + offset, element by element; x is f32, bf16 or f16, computed in f32.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_affine_attr),
    .attrs = affine_fields,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {1},
    .infer = infer_unary,
    .grad = grad_affine,
    .place = place_affine,
    .cost = cost_affine,
    .kernels = tg_affine_kernels_tables,
};

teng_tensor *teng_affine_at(teng_src at, teng_tensor *x, double factor, double offset)
{
    const tg_affine_attr attr = {factor, offset};
    return teng_apply(at, &tg_op_affine, &attr, 1, &x, NULL);
}
