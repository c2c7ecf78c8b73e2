/* Cases of sum, mean, max and max_grad. */
#include "op/reduce/reduce.h"

#include "op/case_list.h"

#include <math.h>

/* Index in the result of element e of x. */
static int64_t target(const teng_desc *x, unsigned mask, int64_t e)
{
    int64_t index[TENG_MAX_DIMS] = {0}, to = 0;
    for (int i = x->ndim - 1; i >= 0; i--) {
        index[i] = e % x->dims[i];
        e /= x->dims[i];
    }
    for (int i = 0; i < x->ndim; i++)
        if (!(mask >> i & 1u)) to = to * x->dims[i] + index[i];
    return to;
}

static teng_status sum(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0];
    const unsigned mask = tg_reduce_mask(x, call->attr);
    for (int64_t o = 0; o < tg_desc_numel(&call->out[0]); o++)
        out[0][o] = 0;
    for (int64_t e = 0; e < tg_desc_numel(x); e++)
        out[0][target(x, mask, e)] += in[0][e];
    return TENG_OK;
}
static teng_status mean(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_reduce_attr *a = call->attr;
    const int64_t n = tg_desc_numel(&call->out[0]);
    sum(call, in, out);
    for (int64_t o = 0; o < n; o++)
        out[0][o] /= a->count ? (double)a->count : (double)(tg_desc_numel(&call->in[0]) / n);
    return TENG_OK;
}
static teng_status max(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0];
    const unsigned mask = tg_reduce_mask(x, call->attr);
    for (int64_t o = 0; o < tg_desc_numel(&call->out[0]); o++)
        out[0][o] = -INFINITY;
    for (int64_t e = 0; e < tg_desc_numel(x); e++) {
        double *y = &out[0][target(x, mask, e)];
        *y = fmax(*y, in[0][e]);
    }
    return TENG_OK;
}
/* y is an input: the first element equal to it takes dy. */
static teng_status max_grad(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0];
    const unsigned mask = tg_reduce_mask(x, call->attr);
    const int64_t n = tg_desc_numel(x);
    for (int64_t e = 0; e < n; e++) {
        const int64_t o = target(x, mask, e);
        bool first = in[0][e] == in[1][o];
        for (int64_t before = 0; first && before < e; before++)
            first = target(x, mask, before) != o || in[0][before] != in[1][o];
        out[0][e] = first ? in[2][o] : 0;
    }
    return TENG_OK;
}

#define AXES(n, ...)                                                                                         \
    {                                                                                                        \
        n,                                                                                                   \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
static const tg_reduce_attr all = {AXES(0, 0), 0, 0}, all_keep = {AXES(0, 0), 1, 0},
                            last = {AXES(1, -1), 0, 0}, last_keep = {AXES(1, -1), 1, 0},
                            first = {AXES(1, 0), 0, 0}, leading = {AXES(2, 0, 1), 0, 0},
                            middle = {AXES(1, 1), 0, 0}, outer = {AXES(2, 0, 2), 1, 0},
                            inner = {AXES(2, -1, -2), 0, 0}, alternate = {AXES(2, 1, 3), 0, 0},
                            counted = {AXES(1, -1), 0, 50};

static const teng_op_case list[] = {
    {"all", &all, 1, {TG_X(3, 3, 5, 7)}},
    {"all, blocks", &all_keep, 1, {TG_X(2, 3, 9001)}},
    {"last", &last, 1, {TG_X(3, 2, 5, 37)}},
    {"last, kept, blocks", &last_keep, 1, {TG_X(2, 2, 9001)}},
    {"columns", &first, 1, {TG_X(2, 9, 35)}},
    {"columns, blocks", &leading, 1, {TG_X(3, 3, 31, 530)}},
    {"middle", &middle, 1, {TG_X(3, 3, 40, 19)}},
    {"outer", &outer, 1, {TG_X(3, 3, 5, 7)}},
    {"inner", &inner, 1, {TG_X(3, 4, 5, 7)}},
    {"alternate", &alternate, 1, {TG_X(4, 2, 3, 5, 7)}},
    {"small rows", &outer, 1, {TG_X(3, 300, 2, 19)}},
    {"one", &last, 1, {TG_X(1, 1)}},
    {"scalar", &all, 1, {{.desc = {TENG_F32, 0, {0}}}}},
};
static const teng_op_case means[] = {
    {"all", &all, 1, {TG_X(3, 3, 5, 7)}},
    {"last", &last_keep, 1, {TG_X(3, 2, 5, 37)}},
    {"columns, blocks", &leading, 1, {TG_X(3, 3, 31, 530)}},
    {"middle", &middle, 1, {TG_X(3, 3, 40, 19)}},
    {"alternate", &alternate, 1, {TG_X(4, 2, 3, 5, 7)}},
    {"of a shard", &counted, 1, {TG_X(2, 5, 25)}},
};
/* y within the reach of x: draws of few values, so that ties happen and the maximum is met. */
#define FEW(nd, ...)                                                                                         \
    {                                                                                                        \
        .desc = {TENG_F32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_INTS, .lo = -2, .hi = 3                     \
    }
static const teng_op_case max_grads[] = {
    {"all", &all, 3, {FEW(2, 3, 35), FEW(0, 0), {.desc = {TENG_F32, 0, {0}}}}},
    {"last", &last, 3, {FEW(3, 2, 5, 37), FEW(2, 2, 5), TG_X(2, 2, 5)}},
    {"columns", &first, 3, {FEW(2, 9, 35), FEW(1, 35), TG_X(1, 35)}},
    {"middle", &middle, 3, {FEW(3, 3, 40, 19), FEW(2, 3, 19), TG_X(2, 3, 19)}},
    {"outer", &outer, 3, {FEW(3, 3, 5, 7), FEW(3, 1, 5, 1), TG_X(3, 1, 5, 1)}},
    {"alternate", &alternate, 3, {FEW(4, 2, 3, 5, 7), FEW(2, 2, 5), TG_X(2, 2, 5)}},
};

const teng_op_cases tg_cases_sum = {.op = "sum",
                                    .list = list,
                                    .n = TG_COUNT(list),
                                    .reference = sum,
                                    .dtypes = TG_ALL_FLOATS,
                                    .tol_f32 = 4e-6};
const teng_op_cases tg_cases_mean = {.op = "mean",
                                     .list = means,
                                     .n = TG_COUNT(means),
                                     .reference = mean,
                                     .dtypes = TG_ALL_FLOATS,
                                     .tol_f32 = 4e-6};
const teng_op_cases tg_cases_max = {
    .op = "max", .list = list, .n = TG_COUNT(list), .reference = max, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_max_grad = {.op = "max_grad",
                                         .list = max_grads,
                                         .n = TG_COUNT(max_grads),
                                         .reference = max_grad,
                                         .dtypes = TG_ALL_FLOATS};
