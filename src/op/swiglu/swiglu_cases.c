/* Cases of swiglu and its gradient. */
#include "op/case_list.h"

#include <math.h>

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = in[0][i] / (1 + exp(-in[0][i])) * in[1][i];
    return TENG_OK;
}

static teng_status reference_grad(const teng_op_call *call, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++) {
        const double g = in[0][i], up = in[1][i], dy = in[2][i], s = 1 / (1 + exp(-g));
        out[0][i] = dy * up * (s + g * s * (1 - s));
        out[1][i] = dy * g * s;
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {.label = "ragged", .n_in = 2, .in = {TG_X(2, 6, 7), TG_X(2, 6, 7)}},
    {.label = "threads", .n_in = 2, .in = {TG_X(3, 4, 32, 172), TG_X(3, 4, 32, 172)}},
};
static const teng_op_case grad_list[] = {
    {.label = "ragged", .n_in = 3, .in = {TG_X(2, 6, 7), TG_X(2, 6, 7), TG_X(2, 6, 7)}},
    {.label = "threads", .n_in = 3, .in = {TG_X(3, 4, 32, 172), TG_X(3, 4, 32, 172), TG_X(3, 4, 32, 172)}},
};

const teng_op_cases tg_cases_swiglu = {
    .op = "swiglu", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_swiglu_grad = {.op = "swiglu_grad",
                                            .list = grad_list,
                                            .n = TG_COUNT(grad_list),
                                            .reference = reference_grad,
                                            .dtypes = TG_ALL_FLOATS};
