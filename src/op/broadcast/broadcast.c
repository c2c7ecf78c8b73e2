/* broadcast: x repeated to a larger shape, as NumPy's broadcast_to. */
#include "mesh/mesh.h"
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"dims", TENG_ATTR_DIMS, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const teng_dims *dims = call->attr;
    const teng_desc *x = &call->in[0];
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    const teng_desc out = tg_desc_make(x->dtype, (int)dims->n, dims->v);
    bool fits = out.ndim >= x->ndim;
    for (int i = 1; fits && i <= x->ndim; i++)
        fits = x->dims[x->ndim - i] == out.dims[out.ndim - i] || x->dims[x->ndim - i] == 1;
    for (int i = 0; fits && i < out.ndim; i++)
        fits = out.dims[i] >= 0;
    if (!fits)
        return tg_fail(TENG_INVALID,
                       "x is %s and cannot be repeated to %s: counted from the last, a dimension of x must "
                       "be 1 or equal",
                       tg_desc_text(a, x), tg_desc_text(b, &out));
    call->out[0] = out;
    return TENG_OK;
}

/* Summed over what was repeated. */
static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_src at = {NULL, 0};
    const teng_desc *x = teng_tensor_desc(ctx->in[0]), *y = teng_tensor_desc(ctx->out[0]);
    const int more = y->ndim - x->ndim;
    teng_dims axes = {0}, dims = {.n = x->ndim};
    for (int i = 0; i < y->ndim; i++) {
        if (i >= more) dims.v[i - more] = x->dims[i - more];
        if (i < more || x->dims[i - more] != y->dims[i]) axes.v[axes.n++] = i;
    }
    teng_tensor *g = ctx->out_grad[0];
    if (axes.n) g = teng_sum_at(at, g, axes, true);
    ctx->in_grad[0] = more ? teng_reshape_at(at, g, dims) : g;
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const teng_desc *x = &call->in[0], *y = &call->out[0];
    const int more = y->ndim - x->ndim;
    for (int i = 0; i < y->ndim; i++) {
        const bool repeated = i < more || x->dims[i - more] != y->dims[i];
        teng_place_add(rules, &(teng_place){repeated ? TENG_REPLICATED : (teng_place)(i - more)},
                       &(teng_place){(teng_place)i});
    }
    teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    teng_dims *dims = attr;
    int64_t begin;
    (void)call, (void)in;
    if (out[0] >= 0) tg_mesh_cut(dims->v[out[0]], parts, index, &begin, &dims->v[out[0]]);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call, (void)c; /* reads and writes all, computes nothing */
}

TG_CPU_TABLES(tg_broadcast_kernels);

const teng_op_spec tg_op_broadcast = {
    .name = "broadcast",
    .doc = "y = x repeated to the shape dims: counted from the last dimension, sizes of x are equal or 1.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(teng_dims),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .place = place,
    .localize = localize,
    .cost = cost,
    .kernels = tg_broadcast_kernels_tables,
    .precision = TENG_PRECISION_MOVE,
};

teng_tensor *teng_broadcast_at(teng_src at, teng_tensor *x, teng_dims dims)
{
    return teng_apply(at, &tg_op_broadcast, &dims, 1, &x, NULL);
}
