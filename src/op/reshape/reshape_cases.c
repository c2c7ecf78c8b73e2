/* Cases of reshape: the reference copies. */
#include "op/case_list.h"

#include <string.h>

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    memcpy(out[0], in[0], sizeof(double) * (size_t)tg_desc_numel(&call->in[0]));
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"flatten", &(teng_dims){1, {-1}}, 1, {TG_X(3, 3, 5, 7)}},
    {"heads", &(teng_dims){4, {2, 5, 3, 7}}, 1, {TG_X(3, 2, 5, 21)}},
    {"merge", &(teng_dims){2, {-1, 6}}, 1, {TG_X(4, 2, 5, 3, 2)}},
    {"scalar", &(teng_dims){0}, 1, {TG_X(2, 1, 1)}},
    {"same", &(teng_dims){2, {4, 6}}, 1, {TG_X(2, 4, 6)}},
};

const teng_op_cases tg_cases_reshape = {
    .op = "reshape", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
