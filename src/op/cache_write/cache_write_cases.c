/* Cases of cache_write. */
#include "op/case_list.h"

#include <string.h>

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *cache = &call->in[0], *rows = &call->in[1];
    const int64_t n = tg_desc_numel(cache), row = n / (cache->dims[0] * cache->dims[1]), t = rows->dims[1];
    memcpy(out[0], in[0], sizeof(double) * (size_t)n);
    for (int64_t b = 0; b < cache->dims[0]; b++)
        for (int64_t i = 0; i < t; i++)
            memcpy(out[0] + (b * cache->dims[1] + (int64_t)in[2][i]) * row, in[1] + (b * t + i) * row,
                   sizeof(double) * (size_t)row);
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"heads", NULL, 3, {TG_X(4, 2, 9, 2, 5), TG_X(4, 2, 3, 2, 5), TG_STEPS(4, 3)}},
    {"one row", NULL, 3, {TG_X(3, 1, 7, 6), TG_X(3, 1, 1, 6), TG_STEPS(6, 1)}},
    {"all", NULL, 3, {TG_X(3, 4, 5, 8), TG_X(3, 4, 5, 8), TG_STEPS(0, 5)}},
    {"no row", NULL, 3, {TG_X(3, 1, 5, 8), TG_X(3, 1, 0, 8), TG_STEPS(0, 0)}},
};

const teng_op_cases tg_cases_cache_write = {
    .op = "cache_write", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
