/* Cases of count_valid. */
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    out[0][0] = 0;
    for (int64_t i = 0; i < tg_desc_numel(&call->in[0]); i++)
        out[0][0] += in[0][i] != (double)*(const int64_t *)call->attr;
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"rows", &(int64_t){3}, 1, {TG_IDS(5, 2, 4, 12)}},
    {"many", &(int64_t){0}, 1, {TG_IDS(3, 1, 4099)}},
    {"none", &(int64_t){-100}, 1, {TG_IDS(5, 2, 0, 7)}},
    {"one", &(int64_t){-100}, 1, {TG_IDS(5, 0, 0)}},
};

const teng_op_cases tg_cases_count_valid = {
    .op = "count_valid", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = 1u << TENG_F32};
