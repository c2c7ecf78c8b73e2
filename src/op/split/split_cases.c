/* Cases of split. */
#include "op/split/split.h"

#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_split_attr *a = call->attr;
    const teng_desc *x = &call->in[0];
    const int axis = tg_desc_axis(x, a->axis);
    int64_t inner = 1;
    for (int i = axis + 1; i < x->ndim; i++)
        inner *= x->dims[i];
    int64_t done[TENG_MAX_OUT] = {0};
    for (int64_t e = 0; e < tg_desc_numel(x); e++) {
        int64_t i = e / inner % x->dims[axis];
        int o = 0;
        for (; i >= a->sizes.v[o]; o++)
            i -= a->sizes.v[o];
        out[o][done[o]++] = in[0][e];
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"qkv", &(tg_split_attr){-1, {3, {10, 3, 3}}}, 1, {TG_X(3, 2, 5, 16)}},
    {"middle", &(tg_split_attr){1, {2, {1, 4}}}, 1, {TG_X(3, 3, 5, 7)}},
    {"rows", &(tg_split_attr){0, {4, {1, 2, 3, 1}}}, 1, {TG_X(2, 7, 9)}},
    {"one", &(tg_split_attr){0, {1, {5}}}, 1, {TG_X(1, 5)}},
};

const teng_op_cases tg_cases_split = {
    .op = "split", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
