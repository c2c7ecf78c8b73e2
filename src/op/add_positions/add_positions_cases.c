/* Cases of add_positions. */
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0];
    const int64_t n = x->dims[x->ndim - 1] * x->dims[x->ndim - 2];
    for (int64_t i = 0; i < tg_desc_numel(x); i++)
        out[0][i] = in[0][i] + in[1][i % n];
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"batch", NULL, 2, {TG_X(3, 2, 5, 7), TG_X(2, 9, 7)}},
    {"all positions", NULL, 2, {TG_X(3, 3, 6, 35), TG_X(2, 6, 35)}},
    {"one sequence", NULL, 2, {TG_X(2, 4, 19), TG_X(2, 11, 19)}},
    {"blocks", NULL, 2, {TG_X(3, 3, 40, 130), TG_X(2, 41, 130)}},
};

const teng_op_cases tg_cases_add_positions = {.op = "add_positions",
                                              .list = list,
                                              .n = TG_COUNT(list),
                                              .reference = reference,
                                              .dtypes = TG_ALL_FLOATS};
