/* cast: the same values in another dtype. */
#include "op/cast/cast.h"

#include "op/cpu_kernel.h"
#include "op/dtype_names.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static teng_status infer(teng_op_call *call)
{
    const tg_cast_attr *attr = call->attr;
    if (attr->to < 0 || attr->to >= TENG_DTYPE_COUNT)
        return tg_fail(TENG_INVALID, "to is %lld, which is no dtype", (long long)attr->to);
    call->out[0] = tg_desc_cast(&call->in[0], (teng_dtype)attr->to);
    return TENG_OK;
}

/* Integers have no gradient: none flows through them. */
static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_dtype from = teng_tensor_desc(ctx->in[0])->dtype, to = teng_tensor_desc(ctx->out[0])->dtype;
    if (!tg_dtype_is_float(from) || !tg_dtype_is_float(to)) return TENG_OK;
    ctx->in_grad[0] = teng_cast_at((teng_src){0}, ctx->out_grad[0], from);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_elementwise(call, rules);
    if (tg_dtype_is_float(call->in[0].dtype) && tg_dtype_is_float(call->out[0].dtype))
        tg_place_linear(call, rules, 1);
}

static void cost(const teng_op_call *call, teng_cost *cost)
{
    (void)call;
    cost->flops = 0;
}

static const teng_attr_field fields[] = {{"to", TENG_ATTR_INT, 0, tg_dtype_names}, {0}};

TG_CPU_TABLES(tg_cast_kernels);
const teng_op_spec tg_op_cast = {
    .name = "cast",
    .doc = "y = x in the dtype `to`. Floats round once to nearest even; a float that does not fit an integer "
           "saturates, its "
           "fraction is dropped, NaN becomes 0. The gradient is cast back.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_cast_attr),
    .attrs = fields,
    .traits = TENG_OP_ELEMENTWISE,
    .infer = infer,
    .grad = grad,
    .place = place,
    .cost = cost,
    .kernels = tg_cast_kernels_tables,
    .precision = TENG_PRECISION_MOVE,
};

teng_tensor *teng_cast_at(teng_src at, teng_tensor *x, teng_dtype to)
{
    const tg_cast_attr attr = {to};
    if (x && teng_tensor_desc(x)->dtype == to) return x;
    return teng_apply(at, &tg_op_cast, &attr, 1, &x, NULL);
}
