/* reshape: the same elements in the same order under another shape. A view: no kernel ever runs. */
#include "mesh/mesh.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"dims", TENG_ATTR_DIMS, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const teng_dims *want = call->attr;
    teng_desc out = {.dtype = call->in[0].dtype, .ndim = (int)want->n};
    char x[TG_DESC_TEXT], y[TG_DESC_TEXT];
    int64_t known = 1;
    int rest = -1;
    for (int i = 0; i < (int)want->n; i++) {
        out.dims[i] = want->v[i];
        if (want->v[i] == -1 && rest < 0)
            rest = i;
        else if (want->v[i] < 0)
            return tg_fail(TENG_INVALID,
                           "dimension %d of the new shape is %lld; one may be -1, the others are sizes", i,
                           (long long)want->v[i]);
        else
            known *= want->v[i];
    }
    const int64_t n = tg_desc_numel(&call->in[0]);
    if (rest >= 0) out.dims[rest] = known ? n / known : 0;
    if (tg_desc_numel(&out) != n)
        return tg_fail(TENG_INVALID, "x is %s with %lld elements; they do not fill %s%s",
                       tg_desc_text(x, &call->in[0]), (long long)n, tg_desc_text(y, &out),
                       rest >= 0 ? " whose -1 was rounded down" : "");
    call->out[0] = out;
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    teng_dims dims = {.n = x->ndim};
    for (int i = 0; i < x->ndim; i++)
        dims.v[i] = x->dims[i];
    ctx->in_grad[0] = teng_reshape_at((teng_src){NULL, 0}, ctx->out_grad[0], dims);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

/* Splitting a dimension gives the same pieces in both shapes where equally many elements lie outside of it.
 */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const teng_desc *x = &call->in[0], *y = &call->out[0];
    int64_t outer_x = 1;
    for (int i = 0; i < x->ndim; outer_x *= x->dims[i++]) {
        int64_t outer_y = 1;
        for (int j = 0; j < y->ndim; outer_y *= y->dims[j++]) {
            if (x->dims[i] < 2 || y->dims[j] < 2 || outer_x != outer_y) continue;
            teng_place_add(rules, &(teng_place){(teng_place)i}, &(teng_place){(teng_place)j});
        }
    }
    teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    teng_dims *dims = attr;
    int64_t begin, size;
    if (in[0] < 0 || dims->v[out[0]] <= 0) return;
    const int64_t whole = call->in[0].dims[in[0]]; /* more or less of y's elements go with each of x's */
    tg_mesh_cut(whole, parts, index, &begin, &size);
    dims->v[out[0]] = dims->v[out[0]] * size / whole;
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call;
    *c = (teng_cost){0};
}

const teng_op_spec tg_op_reshape = {
    .name = "reshape",
    .doc = "y = x under the shape dims, elements in row-major order; one of dims may be -1 (the rest).",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(teng_dims),
    .attrs = fields,
    .traits = TENG_OP_VIEW,
    .infer = infer,
    .grad = grad,
    .place = place,
    .localize = localize,
    .cost = cost,
    .no_kernels = "a view: the bytes of x under another shape",
    .precision = TENG_PRECISION_MOVE,
};

teng_tensor *teng_reshape_at(teng_src at, teng_tensor *x, teng_dims dims)
{
    return teng_apply(at, &tg_op_reshape, &dims, 1, &x, NULL);
}
