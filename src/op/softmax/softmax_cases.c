/* Cases of softmax, log_softmax and their gradients. */
#include "op/case_list.h"

#include <math.h>

/* y of softmax or its logarithm. */
static teng_status forward(const teng_op_call *call, const double *x, double *y, bool logarithm)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    for (int64_t r = 0; r < tg_desc_numel(d); r += n) {
        double max = x[r], sum = 0;
        for (int64_t i = 0; i < n; i++)
            max = fmax(max, x[r + i]);
        for (int64_t i = 0; i < n; i++)
            sum += exp(x[r + i] - max);
        for (int64_t i = 0; i < n; i++)
            y[r + i] = logarithm ? x[r + i] - max - log(sum) : exp(x[r + i] - max) / sum;
    }
    return TENG_OK;
}
static teng_status softmax(const teng_op_call *call, const double *const *in, double *const *out)
{
    return forward(call, in[0], out[0], false);
}
static teng_status log_softmax(const teng_op_call *call, const double *const *in, double *const *out)
{
    return forward(call, in[0], out[0], true);
}

static teng_status softmax_grad(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    const double *y = in[0], *dy = in[1];
    for (int64_t r = 0; r < tg_desc_numel(d); r += n) {
        double dot = 0;
        for (int64_t i = r; i < r + n; i++)
            dot += y[i] * dy[i];
        for (int64_t i = r; i < r + n; i++)
            out[0][i] = y[i] * (dy[i] - dot);
    }
    return TENG_OK;
}
static teng_status log_softmax_grad(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    for (int64_t r = 0; r < tg_desc_numel(d); r += n) {
        double sum = 0;
        for (int64_t i = r; i < r + n; i++)
            sum += in[1][i];
        for (int64_t i = r; i < r + n; i++)
            out[0][i] = in[1][i] - exp(in[0][i]) * sum;
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"rows", NULL, 1, {TG_X(2, 5, 37)}},
    {"one", NULL, 1, {TG_X(1, 1)}},
    {"wide range", NULL, 1, {{.desc = {TENG_F32, 2, {3, 70}}, .hi = 30}}},
    {"far from zero",
     NULL,
     1,
     {{.desc = {TENG_F32, 2, {3, 19}}, .fill = TENG_FILL_NORMAL, .lo = 200, .hi = 2}}},
    {"blocks", NULL, 1, {TG_X(3, 2, 3, 4099)}},
};
static const teng_op_case softmax_grads[] = {
    {"rows",
     NULL,
     2,
     {{.desc = {TENG_F32, 2, {5, 37}}, .fill = TENG_FILL_UNIFORM, .hi = 0.2}, TG_X(2, 5, 37)}},
    {"one", NULL, 2, {TG_X(1, 1), TG_X(1, 1)}},
    {"blocks",
     NULL,
     2,
     {{.desc = {TENG_F32, 2, {2, 9001}}, .fill = TENG_FILL_UNIFORM, .hi = 0.002}, TG_X(2, 2, 9001)}},
};
static const teng_op_case log_softmax_grads[] = {
    {"rows",
     NULL,
     2,
     {{.desc = {TENG_F32, 2, {5, 37}}, .fill = TENG_FILL_UNIFORM, .lo = -6, .hi = -1}, TG_X(2, 5, 37)}},
    {"one", NULL, 2, {{.desc = {TENG_F32, 1, {1}}, .fill = TENG_FILL_CONST}, TG_X(1, 1)}},
    {"blocks",
     NULL,
     2,
     {{.desc = {TENG_F32, 2, {2, 9001}}, .fill = TENG_FILL_UNIFORM, .lo = -12, .hi = -4}, TG_X(2, 2, 9001)}},
};

const teng_op_cases tg_cases_softmax = {
    .op = "softmax", .list = list, .n = TG_COUNT(list), .reference = softmax, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_log_softmax = {.op = "log_softmax",
                                            .list = list,
                                            .n = TG_COUNT(list),
                                            .reference = log_softmax,
                                            .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_softmax_grad = {.op = "softmax_grad",
                                             .list = softmax_grads,
                                             .n = TG_COUNT(softmax_grads),
                                             .reference = softmax_grad,
                                             .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_log_softmax_grad = {.op = "log_softmax_grad",
                                                 .list = log_softmax_grads,
                                                 .n = TG_COUNT(log_softmax_grads),
                                                 .reference = log_softmax_grad,
                                                 .dtypes = TG_ALL_FLOATS};
