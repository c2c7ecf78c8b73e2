/* Cases of expert_dispatch and expert_return: one rank alone, for which rows stay where they are. What ranks
 * exchange is the business of test_experts. */
#include "op/case_list.h"
#include "op/expert_dispatch/expert_dispatch.h"

/* The first Σ counts rows, then zeros. */
static void rows(const teng_op_call *call, const double *const *in, double *out)
{
    const int64_t width = call->in[0].dims[1];
    int64_t n = 0;
    for (int64_t e = 0; e < call->in[1].dims[0]; e++)
        n += (int64_t)in[1][e];
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[i] = i < n * width ? in[0][i] : 0;
}

static teng_status dispatch(const teng_op_call *call, const double *const *in, double *const *out)
{
    rows(call, in, out[0]);
    for (int64_t e = 0; e < call->in[1].dims[0]; e++)
        out[1][e] = out[2][e] = in[1][e];
    return TENG_OK;
}
static teng_status back(const teng_op_call *call, const double *const *in, double *const *out)
{
    rows(call, in, out[0]);
    return TENG_OK;
}

#define COUNTS(each, nd, ...)                                                                                \
    {                                                                                                        \
        .desc = {TENG_I32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_CONST, .lo = each, .keep_dtype = true,      \
        .no_grad = true                                                                                      \
    }
static const tg_expert_attr alone = {4, 1};
static const teng_op_case list[] = {
    {"all rows", &alone, 2, {TG_X(2, 12, 6), COUNTS(3, 1, 4)}},
    {"some rows", &alone, 2, {TG_X(2, 12, 6), COUNTS(2, 1, 5)}},
    {"none", &alone, 2, {TG_X(2, 3, 4), COUNTS(0, 1, 2)}},
};
static const teng_op_case backs[] = {
    {"all rows", &alone, 3, {TG_X(2, 12, 6), COUNTS(3, 1, 4), COUNTS(3, 2, 1, 4)}},
    {"some rows", &alone, 3, {TG_X(2, 12, 6), COUNTS(2, 1, 5), COUNTS(2, 2, 1, 5)}},
};

const teng_op_cases tg_cases_expert_dispatch = {.op = "expert_dispatch",
                                                .list = list,
                                                .n = TG_COUNT(list),
                                                .reference = dispatch,
                                                .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_expert_return = {
    .op = "expert_return", .list = backs, .n = TG_COUNT(backs), .reference = back, .dtypes = TG_ALL_FLOATS};
