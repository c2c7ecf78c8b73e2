/* Cases of grouped_matmul and grouped_outer. Counts are drawn so that they never sum to more than the rows.
 */
#include "op/case_list.h"

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const bool trans = *(const int64_t *)call->attr != 0;
    const int64_t k = call->in[0].dims[1], n = call->out[0].dims[1];
    int64_t row = 0;
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = 0;
    for (int64_t g = 0; g < call->in[1].dims[0]; g++)
        for (int64_t r = 0; r < (int64_t)in[2][g]; r++, row++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t i = 0; i < k; i++)
                    out[0][row * n + j] +=
                        in[0][row * k + i] * in[1][g * k * n + (trans ? j * k + i : i * n + j)];
    return TENG_OK;
}

static teng_status outer(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t p = call->in[0].dims[1], q = call->in[1].dims[1];
    int64_t row = 0;
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = 0;
    for (int64_t g = 0; g < call->in[2].dims[0]; g++)
        for (int64_t r = 0; r < (int64_t)in[2][g]; r++, row++)
            for (int64_t i = 0; i < p; i++)
                for (int64_t j = 0; j < q; j++)
                    out[0][(g * p + i) * q + j] += in[0][row * p + i] * in[1][row * q + j];
    return TENG_OK;
}

#define ALL_IN_ONE(n)                                                                                        \
    {                                                                                                        \
        .desc = {TENG_I32, 1, {1}}, .fill = TENG_FILL_CONST, .lo = n, .keep_dtype = true, .no_grad = true    \
    }

static const teng_op_case list[] = {
    {"few rows", &(int64_t){1}, 3, {TG_X(2, 20, 6), TG_X(3, 4, 8, 6), TG_IDS(6, 1, 4)}},
    {"not transposed", &(int64_t){0}, 3, {TG_X(2, 20, 6), TG_X(3, 4, 6, 8), TG_IDS(6, 1, 4)}},
    {"every tile", &(int64_t){1}, 3, {TG_X(2, 507, 33), TG_X(3, 1, 20, 33), ALL_IN_ONE(505)}},
    {"empty groups", &(int64_t){0}, 3, {TG_X(2, 40, 4), TG_X(3, 20, 4, 6), TG_IDS(3, 1, 20)}},
    {"no rows", &(int64_t){1}, 3, {TG_X(2, 0, 4), TG_X(3, 2, 6, 4), TG_IDS(1, 1, 2)}},
};
static const teng_op_case outers[] = {
    {"few rows", NULL, 3, {TG_X(2, 20, 6), TG_X(2, 20, 8), TG_IDS(6, 1, 4)}},
    {"every tile", NULL, 3, {TG_X(2, 507, 33), TG_X(2, 507, 20), ALL_IN_ONE(505)}},
    {"empty groups", NULL, 3, {TG_X(2, 40, 4), TG_X(2, 40, 6), TG_IDS(3, 1, 20)}},
    {"no rows", NULL, 3, {TG_X(2, 0, 4), TG_X(2, 0, 6), TG_IDS(1, 1, 2)}},
};

const teng_op_cases tg_cases_grouped_matmul = {
    .op = "grouped_matmul", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_grouped_outer = {.op = "grouped_outer",
                                              .list = outers,
                                              .n = TG_COUNT(outers),
                                              .reference = outer,
                                              .dtypes = TG_ALL_FLOATS};
