/* split: one tensor cut along an axis into pieces of given sizes (q, k, v of a fused projection). */
#include "op/split/split.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/slice/slice.h"
#include "op/want.h"
#include "teng/ops.h"

#include <stddef.h>

static const teng_attr_field fields[] = {{"axis", TENG_ATTR_INT, offsetof(tg_split_attr, axis), NULL},
                                         {"sizes", TENG_ATTR_DIMS, offsetof(tg_split_attr, sizes), NULL},
                                         {0}};

static teng_status infer(teng_op_call *call)
{
    const tg_split_attr *a = call->attr;
    char buf[TG_DESC_TEXT];
    int axis;
    TG_TRY(tg_want_axis(call, a->axis, &axis));
    if (a->sizes.n < 1 || a->sizes.n > TENG_MAX_OUT)
        return tg_fail(TENG_INVALID, "%lld pieces; between 1 and %d are possible", (long long)a->sizes.n,
                       TENG_MAX_OUT);
    int64_t sum = 0;
    for (int i = 0; i < (int)a->sizes.n; i++) {
        if (a->sizes.v[i] < 0)
            return tg_fail(TENG_INVALID, "piece %d has the size %lld", i, (long long)a->sizes.v[i]);
        sum += a->sizes.v[i];
        call->out[i] = call->in[0];
        call->out[i].dims[axis] = a->sizes.v[i];
    }
    if (sum != call->in[0].dims[axis])
        return tg_fail(
            TENG_INVALID, "the pieces have %lld elements together; axis %d of x, which is %s, has %lld",
            (long long)sum, axis, tg_desc_text(buf, &call->in[0]), (long long)call->in[0].dims[axis]);
    call->n_out = (int)a->sizes.n;
    return TENG_OK;
}

/* All pieces have gradients: they are joined. Else those that have one are padded with zeros and added. */
static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_src at = {NULL, 0};
    const tg_split_attr *a = ctx->attr;
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    const int axis = tg_desc_axis(x, a->axis);
    int n = 0;
    for (int i = 0; i < ctx->n_out; i++)
        n += ctx->out_grad[i] != NULL;
    if (n == ctx->n_out) {
        ctx->in_grad[0] = teng_concat_at(at, ctx->out_grad, n, axis);
        return ctx->in_grad[0] ? TENG_OK : teng_error_status();
    }
    tg_slice_grad_attr back = {.slice = {axis, 0, x->dims[axis]}};
    for (int i = 0; i < ctx->n_out; back.slice.begin += a->sizes.v[i++]) {
        if (!ctx->out_grad[i]) continue;
        teng_tensor *part = teng_apply(at, &tg_op_slice_grad, &back, 1, &ctx->out_grad[i], NULL);
        ctx->in_grad[0] = ctx->in_grad[0] ? teng_add_at(at, ctx->in_grad[0], part) : part;
        if (!ctx->in_grad[0]) return teng_error_status();
    }
    return TENG_OK;
}

static void place_all(const teng_op_call *call, teng_place_rules *rules, teng_place p)
{
    teng_place out[TENG_MAX_OUT];
    for (int o = 0; o < call->n_out; o++)
        out[o] = p;
    teng_place_add(rules, &p, out);
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const int axis = tg_desc_axis(&call->in[0], ((const tg_split_attr *)call->attr)->axis);
    for (int i = 0; i < call->in[0].ndim; i++)
        if (i != axis) place_all(call, rules, (teng_place)i);
    place_all(call, rules, TENG_PARTIAL);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call, (void)c; /* reads and writes all, computes nothing */
}

TG_CPU_TABLES(tg_split_kernels);

const teng_op_spec tg_op_split = {
    .name = "split",
    .doc = "y_i = the next sizes[i] elements of x along axis, for each i.",
    .min_in = 1,
    .max_in = 1,
    .n_out = -1,
    .attr_size = sizeof(tg_split_attr),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .place = place,
    .cost = cost,
    .kernels = tg_split_kernels_tables,
    .precision = TENG_PRECISION_MOVE,
};

teng_tensor *teng_split_at(teng_src at, teng_tensor *x, int64_t axis, teng_dims sizes, teng_tensor **out)
{
    const tg_split_attr attr = {tg_axis_of(x, axis), sizes};
    teng_tensor *first = teng_apply(at, &tg_op_split, &attr, 1, &x, out);
    for (int i = 0; !first && i < sizes.n && i < TENG_MAX_OUT; i++)
        out[i] = NULL; /* so that calls on the pieces fail quietly */
    return first;
}
