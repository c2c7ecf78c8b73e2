/* slice: some elements along one axis; slice_grad: those elements put back between zeros. Each is the other's
 * gradient. */
#include "op/slice/slice.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

#include <stddef.h>

static const teng_attr_field fields[] = {{"axis", TENG_ATTR_INT, offsetof(tg_slice_attr, axis), NULL},
                                         {"begin", TENG_ATTR_INT, offsetof(tg_slice_attr, begin), NULL},
                                         {"size", TENG_ATTR_INT, offsetof(tg_slice_attr, size), NULL},
                                         {0}};

static teng_status infer_slice(teng_op_call *call)
{
    const tg_slice_attr *a = call->attr;
    char buf[TG_DESC_TEXT];
    int axis;
    TG_TRY(tg_want_axis(call, a->axis, &axis));
    const int64_t whole = call->in[0].dims[axis];
    if (a->begin < 0 || a->size < 0 || a->begin > whole || a->size > whole - a->begin)
        return tg_fail(TENG_INVALID, "%lld elements from %lld on leave axis %d of x, which is %s",
                       (long long)a->size, (long long)a->begin, axis, tg_desc_text(buf, &call->in[0]));
    call->out[0] = call->in[0];
    call->out[0].dims[axis] = a->size;
    return TENG_OK;
}

static teng_status infer_back(teng_op_call *call)
{
    const tg_slice_attr *a = call->attr;
    char buf[TG_DESC_TEXT];
    int axis;
    TG_TRY(tg_want_axis(call, a->axis, &axis));
    const int64_t part = call->in[0].dims[axis];
    if (a->begin < 0 || a->begin > a->size || part > a->size - a->begin)
        return tg_fail(TENG_INVALID, "x is %s; from %lld on it leaves the %lld elements of axis %d",
                       tg_desc_text(buf, &call->in[0]), (long long)a->begin, (long long)a->size, axis);
    call->out[0] = call->in[0];
    call->out[0].dims[axis] = a->size;
    return TENG_OK;
}

static teng_status grad_slice(teng_grad_ctx *ctx)
{
    tg_slice_attr a = *(const tg_slice_attr *)ctx->attr;
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    a.axis = tg_desc_axis(x, a.axis);
    a.size = x->dims[a.axis];
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, &tg_op_slice_grad, &a, 1, &ctx->out_grad[0], NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static teng_status grad_back(teng_grad_ctx *ctx)
{
    tg_slice_attr a = *(const tg_slice_attr *)ctx->attr;
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    const int axis = tg_desc_axis(x, a.axis);
    ctx->in_grad[0] = teng_slice_at((teng_src){NULL, 0}, ctx->out_grad[0], axis, a.begin, x->dims[axis]);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const int axis = tg_desc_axis(&call->in[0], ((const tg_slice_attr *)call->attr)->axis);
    for (int i = 0; i < call->in[0].ndim; i++)
        if (i != axis) teng_place_add(rules, &(teng_place){(teng_place)i}, &(teng_place){(teng_place)i});
    teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call;
    if (c->bytes_read > c->bytes_written) c->bytes_read = c->bytes_written; /* only the part that is taken */
}

TG_CPU_TABLES(tg_slice_kernels);
TG_CPU_TABLES(tg_slice_grad_kernels);

const teng_op_spec tg_op_slice = {
    .name = "slice",
    .doc = "y = x[…, begin : begin + size, …] along axis.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_slice_attr),
    .attrs = fields,
    .infer = infer_slice,
    .grad = grad_slice,
    .place = place,
    .cost = cost,
    .kernels = tg_slice_kernels_tables,
    .precision = TENG_PRECISION_MOVE,
};

const teng_op_spec tg_op_slice_grad = {
    .name = "slice_grad",
    .doc = "y is zero and has size elements along axis, y[…, begin : begin + n, …] = x, whose axis has n "
           "elements.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_slice_attr),
    .attrs = fields,
    .infer = infer_back,
    .grad = grad_back,
    .place = place,
    .cost = cost,
    .kernels = tg_slice_grad_kernels_tables,
};

teng_tensor *teng_slice_at(teng_src at, teng_tensor *x, int64_t axis, int64_t begin, int64_t size)
{
    const tg_slice_attr attr = {tg_axis_of(x, axis), begin, size};
    return teng_apply(at, &tg_op_slice, &attr, 1, &x, NULL);
}
