/* sum, mean, max over any axes, and the gradient of max; the gradients of the others are a broadcast. */
#include "op/reduce/reduce.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

#include <stddef.h>

#define AXES_AND_KEEP                                                                                        \
    {"axes", TENG_ATTR_DIMS, offsetof(tg_reduce_attr, axes), NULL},                                          \
    {                                                                                                        \
        "keep", TENG_ATTR_INT, offsetof(tg_reduce_attr, keep), NULL                                          \
    }
static const teng_attr_field fields[] = {AXES_AND_KEEP, {0}};
static const teng_attr_field mean_fields[] = {
    AXES_AND_KEEP, {"count", TENG_ATTR_INT, offsetof(tg_reduce_attr, count), NULL}, {0}};

/* Shape of the result: reduced axes are 1 with `keep`, else gone. */
static teng_desc reduced(const teng_desc *x, unsigned mask, bool keep)
{
    teng_desc out = {.dtype = x->dtype};
    for (int i = 0; i < x->ndim; i++) {
        if (!(mask >> i & 1u))
            out.dims[out.ndim++] = x->dims[i];
        else if (keep)
            out.dims[out.ndim++] = 1;
    }
    return out;
}

static int64_t group(const teng_desc *x, unsigned mask) /* elements that become one */
{
    int64_t n = 1;
    for (int i = 0; i < x->ndim; i++)
        if (mask >> i & 1u) n *= x->dims[i];
    return n;
}

static teng_status infer_sum(teng_op_call *call)
{
    const tg_reduce_attr *a = call->attr;
    const teng_desc *x = &call->in[0];
    char buf[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "x"));
    unsigned seen = 0;
    for (int i = 0; i < (int)a->axes.n; i++) {
        int axis;
        TG_TRY(tg_want_axis(call, a->axes.v[i], &axis));
        if (seen >> axis & 1u)
            return tg_fail(TENG_INVALID, "axis %d of x, which is %s, is named twice", axis,
                           tg_desc_text(buf, x));
        seen |= 1u << axis;
    }
    call->out[0] = reduced(x, tg_reduce_mask(x, a), a->keep != 0);
    return TENG_OK;
}

static teng_status infer_some(teng_op_call *call) /* mean, max: not of nothing */
{
    char buf[TG_DESC_TEXT];
    TG_TRY(infer_sum(call));
    if (group(&call->in[0], tg_reduce_mask(&call->in[0], call->attr)) == 0)
        return tg_fail(TENG_INVALID, "x is %s: there is no %s of no elements",
                       tg_desc_text(buf, &call->in[0]), call->op->name);
    return TENG_OK;
}

static teng_status infer_max_grad(teng_op_call *call)
{
    TG_TRY(infer_some(call));
    const teng_desc y = call->out[0];
    for (int i = 1; i < 3; i++) {
        const char *name = i == 1 ? "y" : "dy";
        TG_TRY(tg_want_dtype(call, i, name, y.dtype));
        TG_TRY(tg_want_dims(call, i, name, &y, "the maximum of x"));
    }
    call->out[0] = call->in[0];
    return TENG_OK;
}

/* dy under x's shape. */
static teng_status spread(teng_grad_ctx *ctx, teng_tensor *dy)
{
    const teng_src at = {NULL, 0};
    const tg_reduce_attr *a = ctx->attr;
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    const teng_desc kept = reduced(x, tg_reduce_mask(x, a), true);
    teng_dims small = {.n = x->ndim}, whole = {.n = x->ndim};
    for (int i = 0; i < x->ndim; i++) {
        small.v[i] = kept.dims[i];
        whole.v[i] = x->dims[i];
    }
    if (!a->keep) dy = teng_reshape_at(at, dy, small);
    ctx->in_grad[0] = tg_desc_equal(&kept, x) ? dy : teng_broadcast_at(at, dy, whole);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static teng_status grad_sum(teng_grad_ctx *ctx)
{
    return spread(ctx, ctx->out_grad[0]);
}

static int64_t mean_count(const teng_desc *x, const tg_reduce_attr *a)
{
    return a->count ? a->count : group(x, tg_reduce_mask(x, a));
}

static teng_status grad_mean(teng_grad_ctx *ctx)
{
    const int64_t n = mean_count(teng_tensor_desc(ctx->in[0]), ctx->attr);
    return spread(ctx, teng_affine_at((teng_src){NULL, 0}, ctx->out_grad[0], 1.0 / (double)n, 0.0));
}

static teng_status grad_max(teng_grad_ctx *ctx)
{
    teng_tensor *in[] = {ctx->in[0], ctx->out[0], ctx->out_grad[0]};
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, &tg_op_max_grad, ctx->attr, 3, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

/* A kept dimension moves to its place in y. sum and mean over a split dimension give partial results. */
static void place_kept(const teng_op_call *call, teng_place_rules *rules, bool linear)
{
    const tg_reduce_attr *a = call->attr;
    const unsigned mask = tg_reduce_mask(&call->in[0], a);
    teng_place to = 0;
    for (int i = 0; i < call->in[0].ndim; i++) {
        const bool gone = mask >> i & 1u;
        if (!gone)
            teng_place_add(rules, &(teng_place){(teng_place)i}, &to);
        else if (linear)
            teng_place_add(rules, &(teng_place){(teng_place)i}, &(teng_place){TENG_PARTIAL});
        if (!gone || a->keep) to++;
    }
    if (linear) teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}
static void place_linear(const teng_op_call *call, teng_place_rules *rules)
{
    place_kept(call, rules, true);
}
static void place_max(const teng_op_call *call, teng_place_rules *rules)
{
    place_kept(call, rules, false);
}
static void place_max_grad(const teng_op_call *call, teng_place_rules *rules)
{
    const tg_reduce_attr *a = call->attr;
    const unsigned mask = tg_reduce_mask(&call->in[0], a);
    teng_place to = 0;
    for (int i = 0; i < call->in[0].ndim; i++) {
        const bool gone = mask >> i & 1u;
        if (!gone) teng_place_add(rules, (teng_place[]){(teng_place)i, to, to}, &(teng_place){(teng_place)i});
        if (!gone || a->keep) to++;
    }
    teng_place_add(rules, (teng_place[]){TENG_REPLICATED, TENG_REPLICATED, TENG_PARTIAL},
                   &(teng_place){TENG_PARTIAL});
}

static void localize_mean(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    (void)in, (void)out, (void)parts, (void)index;
    ((tg_reduce_attr *)attr)->count = mean_count(&call->in[0], call->attr);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_sum_kernels);
TG_CPU_TABLES(tg_mean_kernels);
TG_CPU_TABLES(tg_max_kernels);
TG_CPU_TABLES(tg_max_grad_kernels);

#define COMMON .n_out = 1, .attr_size = sizeof(tg_reduce_attr), .cost = cost

const teng_op_spec tg_op_sum = {
    .name = "sum",
    .doc = "y = Σ x over axes (none: all), in f32 by fixed blocks; keep leaves dimensions of 1.",
    .min_in = 1,
    .max_in = 1,
    COMMON,
    .attrs = fields,
    .infer = infer_sum,
    .grad = grad_sum,
    .place = place_linear,
    .kernels = tg_sum_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

const teng_op_spec tg_op_mean = {
    .name = "mean",
    .doc = "y = Σ x / count over axes (none: all), in f32 by fixed blocks; count 0 stands for the number of "
           "elements.",
    .min_in = 1,
    .max_in = 1,
    COMMON,
    .attrs = mean_fields,
    .infer = infer_some,
    .grad = grad_mean,
    .place = place_linear,
    .localize = localize_mean,
    .kernels = tg_mean_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

const teng_op_spec tg_op_max = {
    .name = "max",
    .doc = "y = the largest x over axes (none: all); NaN if there is one.",
    .min_in = 1,
    .max_in = 1,
    COMMON,
    .attrs = fields,
    .infer = infer_some,
    .grad = grad_max,
    .grad_in = 1,
    .grad_out = 1,
    .place = place_max,
    .kernels = tg_max_kernels_tables,
    .precision = TENG_PRECISION_MOVE,
};

const teng_op_spec tg_op_max_grad = {
    .name = "max_grad",
    .doc = "Gradient of max: dy at the first of the largest elements in row-major order, 0 elsewhere. Inputs "
           "x, y, dy.",
    .min_in = 3,
    .max_in = 3,
    COMMON,
    .attrs = fields,
    .inplace = {1},
    .infer = infer_max_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_max_grad,
    .kernels = tg_max_grad_kernels_tables,
};

static teng_tensor *apply(teng_src at, const teng_op_spec *op, teng_tensor *x, teng_dims axes, bool keep)
{
    tg_reduce_attr attr = {.axes = axes, .keep = keep};
    for (int i = 0; i < axes.n && i < TENG_MAX_DIMS; i++)
        attr.axes.v[i] = tg_axis_of(x, axes.v[i]);
    return teng_apply(at, op, &attr, 1, &x, NULL);
}
teng_tensor *teng_sum_at(teng_src at, teng_tensor *x, teng_dims axes, bool keep)
{
    return apply(at, &tg_op_sum, x, axes, keep);
}
teng_tensor *teng_mean_at(teng_src at, teng_tensor *x, teng_dims axes, bool keep)
{
    return apply(at, &tg_op_mean, x, axes, keep);
}
teng_tensor *teng_max_at(teng_src at, teng_tensor *x, teng_dims axes, bool keep)
{
    return apply(at, &tg_op_max, x, axes, keep);
}
