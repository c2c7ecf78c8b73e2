/* transpose: dimensions in another order, the values moved. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"perm", TENG_ATTR_DIMS, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const teng_dims *perm = call->attr;
    const teng_desc *x = &call->in[0];
    char buf[TG_DESC_TEXT];
    if (perm->n != x->ndim)
        return tg_fail(TENG_INVALID, "perm has %lld entries and x is %s; it must name each dimension once",
                       (long long)perm->n, tg_desc_text(buf, x));
    teng_desc out = {.dtype = x->dtype, .ndim = x->ndim};
    unsigned seen = 0;
    for (int i = 0; i < x->ndim; i++) {
        const int64_t p = perm->v[i];
        if (p < 0 || p >= x->ndim || (seen >> p & 1u))
            return tg_fail(TENG_INVALID,
                           "entry %d of perm is %lld and x is %s; perm must name each of 0 … %d once", i,
                           (long long)p, tg_desc_text(buf, x), x->ndim - 1);
        seen |= 1u << p;
        out.dims[i] = x->dims[p];
    }
    call->out[0] = out;
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_dims *perm = ctx->attr;
    teng_dims back = {.n = perm->n};
    for (int i = 0; i < (int)perm->n; i++)
        back.v[perm->v[i]] = i;
    ctx->in_grad[0] = teng_transpose_at((teng_src){NULL, 0}, ctx->out_grad[0], back);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const teng_dims *perm = call->attr;
    for (int i = 0; i < (int)perm->n; i++)
        teng_place_add(rules, &(teng_place){(teng_place)perm->v[i]}, &(teng_place){(teng_place)i});
    teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call, (void)c; /* reads and writes all, computes nothing */
}

TG_CPU_TABLES(tg_transpose_kernels);

const teng_op_spec tg_op_transpose = {
    .name = "transpose",
    .doc =
        "y[i0, i1, …] = x with its dimensions in the order perm: dimension i of y is dimension perm[i] of x.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(teng_dims),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .place = place,
    .cost = cost,
    .kernels = tg_transpose_kernels_tables,
    .precision = TENG_PRECISION_MOVE,
};

teng_tensor *teng_transpose_at(teng_src at, teng_tensor *x, teng_dims perm)
{
    const int ndim = teng_tensor_desc(x)->ndim;
    for (int i = 0; x && i < perm.n && i < TENG_MAX_DIMS; i++)
        if (perm.v[i] < 0) perm.v[i] += ndim;
    return teng_apply(at, &tg_op_transpose, &perm, 1, &x, NULL);
}
