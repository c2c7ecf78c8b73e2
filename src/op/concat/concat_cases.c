/* Cases of concat. */
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *y = &call->out[0];
    const int axis = tg_desc_axis(y, *(const int64_t *)call->attr);
    int64_t inner = 1, done[TENG_CASE_MAX_IN] = {0};
    for (int i = axis + 1; i < y->ndim; i++)
        inner *= y->dims[i];
    for (int64_t e = 0; e < tg_desc_numel(y); e++) {
        int64_t at = e / inner % y->dims[axis];
        int i = 0;
        for (; at >= call->in[i].dims[axis]; i++)
            at -= call->in[i].dims[axis];
        out[0][e] = in[i][done[i]++];
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"last", &(int64_t){-1}, 3, {TG_X(3, 2, 5, 9), TG_X(3, 2, 5, 1), TG_X(3, 2, 5, 4)}},
    {"middle", &(int64_t){1}, 2, {TG_X(3, 3, 2, 7), TG_X(3, 3, 5, 7)}},
    {"rows", &(int64_t){0}, 2, {TG_X(2, 1, 9), TG_X(2, 6, 9)}},
    {"one", &(int64_t){0}, 1, {TG_X(1, 5)}},
};

const teng_op_cases tg_cases_concat = {
    .op = "concat", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
