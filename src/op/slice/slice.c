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
static const teng_attr_field back_fields[] = {
    {"axis", TENG_ATTR_INT, offsetof(tg_slice_attr, axis), NULL},
    {"begin", TENG_ATTR_INT, offsetof(tg_slice_attr, begin), NULL},
    {"size", TENG_ATTR_INT, offsetof(tg_slice_attr, size), NULL},
    {"turn", TENG_ATTR_INT, offsetof(tg_slice_grad_attr, turn), NULL},
    {"later", TENG_ATTR_INT, offsetof(tg_slice_grad_attr, later), NULL},
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
    const tg_slice_grad_attr *g = call->attr;
    const int64_t whole = call->in[0].dims[axis], part = g->turn ? g->turn : whole;
    if (g->turn && (g->turn < 0 || g->turn > whole || g->later < a->begin + g->turn || g->later > a->size ||
                    whole - g->turn > a->size - g->later))
        return tg_fail(TENG_INVALID,
                       "x is %s; from %lld on and from its element %lld on at %lld it leaves the %lld "
                       "elements of axis %d",
                       tg_desc_text(buf, &call->in[0]), (long long)a->begin, (long long)g->turn,
                       (long long)g->later, (long long)a->size, axis);
    if (a->begin < 0 || a->begin > a->size || part > a->size - a->begin)
        return tg_fail(TENG_INVALID, "x is %s; from %lld on it leaves the %lld elements of axis %d",
                       tg_desc_text(buf, &call->in[0]), (long long)a->begin, (long long)a->size, axis);
    call->out[0] = call->in[0];
    call->out[0].dims[axis] = a->size;
    return TENG_OK;
}

static teng_status grad_slice(teng_grad_ctx *ctx)
{
    tg_slice_grad_attr a = {.slice = *(const tg_slice_attr *)ctx->attr};
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    a.slice.axis = tg_desc_axis(x, a.slice.axis);
    a.slice.size = x->dims[a.slice.axis];
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, &tg_op_slice_grad, &a, 1, &ctx->out_grad[0], NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static teng_status grad_back(teng_grad_ctx *ctx)
{
    tg_slice_attr a = *(const tg_slice_attr *)ctx->attr;
    const teng_desc *x = teng_tensor_desc(ctx->in[0]);
    const int axis = tg_desc_axis(x, a.axis);
    const tg_slice_grad_attr *g = ctx->attr;
    const teng_src at = {NULL, 0};
    const int64_t first = g->turn ? g->turn : x->dims[axis];
    ctx->in_grad[0] = teng_slice_at(at, ctx->out_grad[0], axis, a.begin, first);
    if (g->turn) {
        teng_tensor *part[] = {ctx->in_grad[0],
                               teng_slice_at(at, ctx->out_grad[0], axis, g->later, x->dims[axis] - g->turn)};
        ctx->in_grad[0] = teng_concat_at(at, part, 2, axis);
    }
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const int axis = tg_desc_axis(&call->in[0], ((const tg_slice_attr *)call->attr)->axis);
    for (int i = 0; i < call->in[0].ndim; i++)
        if (i != axis) teng_place_add(rules, &(teng_place){(teng_place)i}, &(teng_place){(teng_place)i});
    teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

/* A piece of x is a summand of y. */
static void place_back(const teng_op_call *call, teng_place_rules *rules)
{
    const int axis = tg_desc_axis(&call->in[0], ((const tg_slice_attr *)call->attr)->axis);
    place(call, rules);
    teng_place_add(rules, &(teng_place){(teng_place)axis}, &(teng_place){TENG_PARTIAL});
}

static bool splits_axis(const teng_op_call *call, const teng_place *in, const tg_slice_grad_attr *a,
                        tg_row_map *rows)
{
    *rows = (tg_row_map){a->slice.begin, a->turn, a->later};
    return in[0] >= 0 && in[0] == tg_desc_axis(&call->in[0], a->slice.axis);
}

static void localize_back(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    tg_slice_grad_attr *a = attr;
    tg_row_map rows;
    (void)out;
    if (!splits_axis(call, in, a, &rows)) return;
    rows = tg_row_map_cut(rows, call->in[0].dims[in[0]], parts, index);
    *a = (tg_slice_grad_attr){{a->slice.axis, rows.begin, a->slice.size}, rows.turn, rows.later};
}

static void localize_back_pair(const teng_op_call *call, const teng_place *in, const teng_place *out,
                               int64_t parts, int64_t index, void *attr)
{
    tg_slice_grad_attr *a = attr;
    tg_row_map rows;
    (void)out;
    if (!splits_axis(call, in, a, &rows)) return;
    rows = tg_row_map_pair(rows, call->in[0].dims[in[0]], parts, index);
    *a = (tg_slice_grad_attr){{a->slice.axis, rows.begin, a->slice.size}, rows.turn, rows.later};
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
           "elements; turn > 0: those from turn on stand from later on.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_slice_grad_attr),
    .attrs = back_fields,
    .infer = infer_back,
    .grad = grad_back,
    .place = place_back,
    .localize = localize_back,
    .localize_pair = localize_back_pair,
    .cost = cost,
    .kernels = tg_slice_grad_kernels_tables,
};

teng_tensor *teng_slice_at(teng_src at, teng_tensor *x, int64_t axis, int64_t begin, int64_t size)
{
    const tg_slice_attr attr = {tg_axis_of(x, axis), begin, size};
    return teng_apply(at, &tg_op_slice, &attr, 1, &x, NULL);
}
