/* Cases of fill. */
#include "op/case_list.h"
#include "op/fill/fill.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    (void)in;
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = ((const tg_fill_attr *)call->attr)->value;
    return TENG_OK;
}

static const teng_op_case list[] = {
    {.label = "f32", .attr = &(const tg_fill_attr){TENG_F32, {2, {3, 5}}, 0.1}},
    {.label = "bf16", .attr = &(const tg_fill_attr){TENG_BF16, {2, {130, 128}}, -2.5}},
    {.label = "f16", .attr = &(const tg_fill_attr){TENG_F16, {0, {0}}, 1}},
    {.label = "i32", .attr = &(const tg_fill_attr){TENG_I32, {1, {4}}, -100}},
    {.label = "u64", .attr = &(const tg_fill_attr){TENG_U64, {1, {3}}, 7}},
    {.label = "bool", .attr = &(const tg_fill_attr){TENG_BOOL, {1, {9}}, 1}},
};

const teng_op_cases tg_cases_fill = {
    .op = "fill", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
