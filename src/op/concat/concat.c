/* concat: tensors joined along an axis. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

#define MOST 64 /* inputs of one call */

static const teng_attr_field fields[] = {{"axis", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    int axis;
    TG_TRY(tg_want_axis(call, *(const int64_t *)call->attr, &axis));
    teng_desc out = call->in[0];
    for (int i = 1; i < call->n_in; i++) {
        teng_desc want = call->in[0];
        if (call->in[i].ndim == want.ndim) want.dims[axis] = call->in[i].dims[axis];
        if (!tg_desc_equal(&want, &call->in[i]))
            return tg_fail(TENG_INVALID,
                           "input 0 is %s and input %d is %s; they may differ along axis %d only",
                           tg_desc_text(a, &call->in[0]), i, tg_desc_text(b, &call->in[i]), axis);
        out.dims[axis] += call->in[i].dims[axis];
    }
    call->out[0] = out;
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const int axis = tg_desc_axis(teng_tensor_desc(ctx->in[0]), *(const int64_t *)ctx->attr);
    int64_t begin = 0;
    for (int i = 0; i < ctx->n_in; i++) {
        const int64_t size = teng_tensor_desc(ctx->in[i])->dims[axis];
        if (ctx->need[i]) {
            ctx->in_grad[i] = teng_slice_at((teng_src){NULL, 0}, ctx->out_grad[0], axis, begin, size);
            if (!ctx->in_grad[i]) return teng_error_status();
        }
        begin += size;
    }
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const int axis = tg_desc_axis(&call->in[0], *(const int64_t *)call->attr);
    teng_place in[MOST];
    for (int d = -1; d < call->in[0].ndim; d++) {
        if (d == axis) continue;
        const teng_place p = d < 0 ? TENG_PARTIAL : (teng_place)d;
        for (int i = 0; i < call->n_in; i++)
            in[i] = p;
        teng_place_add(rules, in, &p);
    }
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call, (void)c; /* reads and writes all, computes nothing */
}

TG_CPU_TABLES(tg_concat_kernels);

const teng_op_spec tg_op_concat = {
    .name = "concat",
    .doc = "y = the inputs one after another along axis; their other dimensions and dtypes agree.",
    .min_in = 1,
    .max_in = MOST,
    .n_out = 1,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .place = place,
    .cost = cost,
    .kernels = tg_concat_kernels_tables,
};

teng_tensor *teng_concat_at(teng_src at, teng_tensor *const *x, int n, int64_t axis)
{
    const int64_t attr = n > 0 ? tg_axis_of(x[0], axis) : axis;
    return teng_apply(at, &tg_op_concat, &attr, n, x, NULL);
}
