/* fill: a constant tensor, made where it is used. */
#include "mesh/mesh.h"
#include "op/fill/fill.h"

#include "op/cpu_kernel.h"
#include "op/dtype_names.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

#include <stddef.h>

static teng_status infer(teng_op_call *call)
{
    const tg_fill_attr *attr = call->attr;
    if (attr->dtype < 0 || attr->dtype >= TENG_DTYPE_COUNT)
        return tg_fail(TENG_INVALID, "dtype is %lld, which is no dtype", (long long)attr->dtype);
    if (attr->dims.n < 0 || attr->dims.n > TENG_MAX_DIMS)
        return tg_fail(TENG_INVALID, "the shape has %lld dimensions; the limit is %d",
                       (long long)attr->dims.n, TENG_MAX_DIMS);
    for (int64_t i = 0; i < attr->dims.n; i++)
        if (attr->dims.v[i] < 0)
            return tg_fail(TENG_INVALID, "dimension %lld of the shape is %lld; it must not be negative",
                           (long long)i, (long long)attr->dims.v[i]);
    call->out[0] = tg_desc_make((teng_dtype)attr->dtype, (int)attr->dims.n, attr->dims.v);
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (int d = 0; d < call->out[0].ndim; d++)
        if (call->out[0].dims[d] > 1) teng_place_add(rules, NULL, &(teng_place){(teng_place)d});
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    tg_fill_attr *local = attr;
    int64_t begin;
    (void)call, (void)in;
    if (out[0] >= 0) tg_mesh_cut(local->dims.v[out[0]], parts, index, &begin, &local->dims.v[out[0]]);
}

static void cost(const teng_op_call *call, teng_cost *cost)
{
    (void)call;
    cost->flops = 0;
}

static const teng_attr_field fields[] = {
    {"dtype", TENG_ATTR_INT, offsetof(tg_fill_attr, dtype), tg_dtype_names},
    {"dims", TENG_ATTR_DIMS, offsetof(tg_fill_attr, dims), NULL},
    {"value", TENG_ATTR_REAL, offsetof(tg_fill_attr, value), NULL},
    {0}};

TG_CPU_TABLES(tg_fill_kernels);
const teng_op_spec tg_op_fill = {
    .name = "fill",
    .doc = "y of shape `dims` and dtype `dtype` with every element `value`; no inputs.",
    .min_in = 0,
    .max_in = 0,
    .n_out = 1,
    .attr_size = sizeof(tg_fill_attr),
    .attrs = fields,
    .infer = infer,
    .no_grad = "it has no inputs",
    .place = place,
    .localize = localize,
    .cost = cost,
    .kernels = tg_fill_kernels_tables,
};

teng_tensor *teng_fill_at(teng_src at, teng_dtype dtype, teng_dims dims, double value)
{
    const tg_fill_attr attr = {dtype, dims, value};
    return teng_apply(at, &tg_op_fill, &attr, 0, NULL, NULL);
}
