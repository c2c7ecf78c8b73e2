/*
 * add, sub, mul, div: two operands of one floating dtype, broadcast as in NumPy. A gradient is summed over
 * the dimensions that its operand was stretched along, by the sum operator. Not here: constants (affine).
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static teng_status infer_binary(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "a"));
    TG_TRY(tg_want_float(call, 1, "b"));
    const teng_desc *a = &call->in[0], *b = &call->in[1];
    char ta[TG_DESC_TEXT], tb[TG_DESC_TEXT];
    if (a->dtype != b->dtype)
        return tg_fail(TENG_INVALID, "a is %s and b is %s; their elements must agree (teng_cast converts)",
                       tg_desc_text(ta, a), tg_desc_text(tb, b));
    teng_desc y = a->ndim >= b->ndim ? *a : *b;
    for (int d = 1; d <= y.ndim; d++) { /* from the last dimension */
        const int64_t na = d <= a->ndim ? a->dims[a->ndim - d] : 1,
                      nb = d <= b->ndim ? b->dims[b->ndim - d] : 1;
        if (na != nb && na != 1 && nb != 1)
            return tg_fail(TENG_INVALID, "a is %s and b is %s; from the end, dimension %d must be equal or 1",
                           tg_desc_text(ta, a), tg_desc_text(tb, b), d);
        y.dims[y.ndim - d] = na == 1 ? nb : na;
    }
    call->out[0] = y;
    return TENG_OK;
}

/* grad (of y's shape) summed to the shape of x, which was broadcast to y. */
static teng_tensor *unbroadcast(teng_tensor *grad, const teng_tensor *x)
{
    if (!grad) return NULL;
    const teng_desc *g = teng_tensor_desc(grad), *d = teng_tensor_desc(x);
    if (tg_desc_equal(g, d)) return grad;
    teng_dims axes = {0}, dims = {.n = d->ndim};
    for (int i = 0; i < g->ndim; i++) {
        const int own = i - (g->ndim - d->ndim);
        if (own < 0 || d->dims[own] != g->dims[i]) axes.v[axes.n++] = i;
    }
    for (int i = 0; i < d->ndim; i++)
        dims.v[i] = d->dims[i];
    if (axes.n > 0) grad = teng_sum_at((teng_src){0}, grad, axes, true);
    return grad && teng_tensor_desc(grad)->ndim != d->ndim ? teng_reshape_at((teng_src){0}, grad, dims)
                                                           : grad;
}

static teng_status finish(teng_grad_ctx *ctx, int i, teng_tensor *grad)
{
    ctx->in_grad[i] = unbroadcast(grad, ctx->in[i]);
    return ctx->in_grad[i] ? TENG_OK : teng_error_status();
}

static teng_status grad_add(teng_grad_ctx *ctx)
{
    for (int i = 0; i < 2; i++)
        if (ctx->need[i]) TG_TRY(finish(ctx, i, ctx->out_grad[0]));
    return TENG_OK;
}

/* The sum comes before the sign: it is smaller. */
static teng_status grad_sub(teng_grad_ctx *ctx)
{
    if (ctx->need[0]) TG_TRY(finish(ctx, 0, ctx->out_grad[0]));
    if (!ctx->need[1]) return TENG_OK;
    return finish(ctx, 1,
                  teng_affine_at((teng_src){0}, unbroadcast(ctx->out_grad[0], ctx->in[1]), -1.0, 0.0));
}

static teng_status grad_mul(teng_grad_ctx *ctx)
{
    for (int i = 0; i < 2; i++)
        if (ctx->need[i])
            TG_TRY(finish(ctx, i, teng_mul_at((teng_src){0}, ctx->out_grad[0], ctx->in[1 - i])));
    return TENG_OK;
}

/* da = dy / b; db = -da · y. */
static teng_status grad_div(teng_grad_ctx *ctx)
{
    teng_tensor *da = teng_div_at((teng_src){0}, ctx->out_grad[0], ctx->in[1]);
    if (ctx->need[0]) TG_TRY(finish(ctx, 0, da));
    if (!ctx->need[1]) return TENG_OK;
    teng_tensor *sum = unbroadcast(teng_mul_at((teng_src){0}, da, ctx->out[0]), ctx->in[1]);
    return finish(ctx, 1, teng_affine_at((teng_src){0}, sum, -1.0, 0.0));
}

static void place_add(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    tg_place_linear(call, rules, 3);
}
#define place_sub place_add

static void place_mul(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    tg_place_linear(call, rules, 1);
    tg_place_linear(call, rules, 2);
}

static void place_div(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    tg_place_linear(call, rules, 1);
}

static void cost_binary(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)tg_desc_numel(&call->out[0]);
}

#define BINARY(fn, formula, expr, trait, reads_in, reads_out)                                                \
    TG_CPU_TABLES(tg_##fn##_kernels);                                                                        \
    const teng_op_spec tg_op_##fn = {                                                                        \
        .name = #fn,                                                                                         \
        .doc = "y = " formula                                                                                \
               ", element by element; a and b are of one dtype (f32, bf16, f16) and broadcast as in "        \
               "NumPy, computed in f32.",                                                                    \
        .min_in = 2,                                                                                         \
        .max_in = 2,                                                                                         \
        .n_out = 1,                                                                                          \
        .traits = TENG_OP_ELEMENTWISE | (trait),                                                             \
        .inplace = {3},                                                                                      \
        .infer = infer_binary,                                                                               \
        .grad = grad_##fn,                                                                                   \
        .grad_in = reads_in,                                                                                 \
        .grad_out = reads_out,                                                                               \
        .place = place_##fn,                                                                                 \
        .cost = cost_binary,                                                                                 \
        .kernels = tg_##fn##_kernels_tables,                                                                 \
    };                                                                                                       \
    teng_tensor *teng_##fn##_at(teng_src at, teng_tensor *a, teng_tensor *b)                                 \
    {                                                                                                        \
        return teng_apply(at, &tg_op_##fn, NULL, 2, (teng_tensor *[]){a, b}, NULL);                          \
    }
#include "op/binary/binary.def"
#undef BINARY
