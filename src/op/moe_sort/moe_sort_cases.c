/* Cases of moe_sort. */
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t n = tg_desc_numel(&call->in[0]), top_k = call->in[0].dims[1];
    int64_t row = 0;
    for (int64_t e = 0; e < call->out[2].dims[0]; e++) {
        const int64_t first = row;
        for (int64_t i = 0; i < n; i++) {
            if ((int64_t)in[0][i] != e) continue;
            out[0][row] = (double)(i / top_k);
            out[1][i] = (double)row++;
        }
        out[2][e] = (double)(row - first);
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"two of four", &(int64_t){4}, 1, {TG_IDS(4, 2, 9, 2)}},
    {"unused experts", &(int64_t){50}, 1, {TG_IDS(20, 2, 5, 3)}},
    {"one expert", &(int64_t){1}, 1, {TG_IDS(1, 2, 5, 1)}},
    {"no tokens", &(int64_t){3}, 1, {TG_IDS(3, 2, 0, 2)}},
    {"many", &(int64_t){128}, 1, {TG_IDS(128, 2, 700, 8)}},
};

const teng_op_cases tg_cases_moe_sort = {
    .op = "moe_sort", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = 1u << TENG_F32};
