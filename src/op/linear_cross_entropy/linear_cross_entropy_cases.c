/* Cases of linear_cross_entropy and its gradient. */
#include "base/mem.h"
#include "mesh/mesh.h"
#include "op/case_list.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"

#include <math.h>

/* The logit of row r and entry v of the vocabulary. */
static double logit(const teng_op_call *call, const double *const *in, int64_t r, int64_t v)
{
    const int64_t width = call->in[1].dims[1];
    double sum = 0;
    for (int64_t c = 0; c < width; c++)
        sum += in[0][r * width + c] * in[1][v * width + c];
    return sum;
}

/* The divisor: input i when it is there. */
static double divisor(const teng_op_call *call, const double *const *in, int i)
{
    double n = 0;
    if (call->n_in > i) return in[i][0];
    for (int64_t r = 0; r < tg_desc_numel(&call->in[2]); r++)
        n += in[2][r] != (double)*(const int64_t *)call->attr;
    return n;
}

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t rows = tg_desc_numel(&call->in[2]), vocab = call->in[1].dims[0];
    const double valid = divisor(call, in, 3);
    out[0][0] = 0;
    for (int64_t r = 0; r < rows; r++) {
        out[1][r] = 0;
        if (in[2][r] == (double)*(const int64_t *)call->attr) continue;
        double max = logit(call, in, r, 0);
        for (int64_t v = 1; v < vocab; v++)
            max = fmax(max, logit(call, in, r, v));
        double sum = exp(logit(call, in, r, 0) - max);
        for (int64_t v = 1; v < vocab; v++)
            sum += exp(logit(call, in, r, v) - max);
        out[1][r] = max + log(sum);
        out[0][0] += (out[1][r] - logit(call, in, r, (int64_t)in[2][r])) / valid;
    }
    return TENG_OK;
}

/* dx and dw are sums over the entries of w. */
static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_linear_ce_attr *attr = call->attr;
    const int64_t rows = tg_desc_numel(&call->in[2]), vocab = call->in[1].dims[0],
                  width = call->in[1].dims[1];
    const double valid = divisor(call, in, 5);
    double *dx = attr->outputs == TG_LINEAR_CE_DW ? NULL : out[0];
    double *dw = attr->outputs == TG_LINEAR_CE_DX ? NULL : out[dx ? 1 : 0];
    for (int64_t i = 0; dx && i < rows * width; i++)
        dx[i] = 0;
    for (int64_t i = 0; dw && i < vocab * width; i++)
        dw[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (in[2][r] == (double)attr->ignore_index) continue;
        for (int64_t v = 0; v < vocab; v++) {
            const double p = exp(logit(call, in, r, v) - in[3][r]);
            const double d = (p - (in[2][r] - (double)attr->begin == (double)v ? 1 : 0)) * in[4][0] / valid;
            for (int64_t c = 0; c < width; c++) {
                if (dx) dx[r * width + c] += d * in[1][v * width + c];
                if (dw) dw[v * width + c] += d * in[0][r * width + c];
            }
        }
    }
    return TENG_OK;
}

static teng_status forward_and_backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t rows = tg_desc_numel(&call->in[2]);
    const tg_linear_ce_attr attr = {.ignore_index = *(const int64_t *)call->attr};
    teng_op_call grad = *call;
    grad.attr = &attr;
    grad.n_in += 2;
    double *lse = tg_calloc((size_t)rows + 1, sizeof *lse);
    if (!lse) return TENG_MEMORY;
    teng_status status = forward(call, in, (double *[]){out[0], lse});
    if (status == TENG_OK)
        status = backward(
            &grad, (const double *[]){in[0], in[1], in[2], lse, (double[]){1}, call->n_in > 3 ? in[3] : NULL},
            (double *[]){out[1], out[2]});
    tg_free(lse);
    return status;
}

/* Small weights, as models have: logits near 0. */
#define W(v, c)                                                                                              \
    {                                                                                                        \
        .desc = {TENG_F32, 2, {v, c}}, .hi = 0.2                                                             \
    }
#define LABELS(least, vocab, nd, ...)                                                                        \
    {                                                                                                        \
        .desc = {TENG_I32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_INTS, .lo = least, .hi = vocab,             \
        .keep_dtype = true, .no_grad = true                                                                  \
    }
#define IGNORED(nd, ...)                                                                                     \
    {                                                                                                        \
        .desc = {TENG_I32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_CONST, .lo = -100, .keep_dtype = true,      \
        .no_grad = true                                                                                      \
    }
#define LSE(base, nd, ...)                                                                                   \
    {                                                                                                        \
        .desc = {TENG_F32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_UNIFORM, .lo = base, .hi = (base) + 0.5,    \
        .keep_dtype = true                                                                                   \
    }
#define DY                                                                                                   \
    {                                                                                                        \
        .desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 0.75, .keep_dtype = true                  \
    }

#define VALID                                                                                                \
    {                                                                                                        \
        .desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 40, .keep_dtype = true, .no_grad = true   \
    }

static const teng_op_case list[] = {
    {"batch", &(int64_t){-100}, 3, {TG_X(3, 2, 3, 8), W(11, 8), LABELS(0, 11, 2, 2, 3)}},
    {"some ignored", &(int64_t){-1}, 3, {TG_X(2, 9, 5), W(3, 5), LABELS(-1, 3, 1, 9)}},
    {"ignore 0", &(int64_t){0}, 3, {TG_X(2, 7, 6), W(4, 6), LABELS(0, 4, 1, 7)}},
    {"of more rows", &(int64_t){-1}, 4, {TG_X(3, 2, 12, 5), W(3, 5), LABELS(-1, 3, 2, 2, 12), VALID}},
    {"all ignored", &(int64_t){-100}, 3, {TG_X(2, 4, 6), W(5, 6), IGNORED(1, 4)}},
    {"no rows", &(int64_t){-100}, 3, {TG_X(2, 0, 6), W(5, 6), IGNORED(1, 0)}},
    {"one row", &(int64_t){-100}, 3, {TG_X(1, 6), W(17, 6), LABELS(0, 17, 0, 0)}},
    {"one entry", &(int64_t){-100}, 3, {TG_X(2, 3, 6), W(1, 6), LABELS(0, 1, 1, 3)}},
    {"vocabulary in tiles", &(int64_t){-1}, 3, {TG_X(2, 5, 4), W(1041, 4), LABELS(-1, 1041, 1, 5)}},
    {"rows in tiles", &(int64_t){-1}, 3, {TG_X(2, 1030, 3), W(7, 3), LABELS(-1, 7, 1, 1030)}},
    {"large logits",
     &(int64_t){-100},
     3,
     {{.desc = {TENG_F32, 2, {6, 16}}, .hi = 40}, W(50, 16), LABELS(0, 50, 1, 6)}},
};

#define BOTH(ignore)                                                                                         \
    &(tg_linear_ce_attr)                                                                                     \
    {                                                                                                        \
        .ignore_index = ignore                                                                               \
    }
static const teng_op_case grads[] = {
    {"batch", BOTH(-100), 5, {TG_X(3, 2, 3, 8), W(11, 8), LABELS(0, 11, 2, 2, 3), LSE(2.4, 2, 2, 3), DY}},
    {"some ignored", BOTH(-1), 5, {TG_X(2, 9, 5), W(3, 5), LABELS(-1, 3, 1, 9), LSE(1.1, 1, 9), DY}},
    {"ignore 0", BOTH(0), 5, {TG_X(2, 7, 6), W(4, 6), LABELS(0, 4, 1, 7), LSE(1.4, 1, 7), DY}},
    {"of more rows",
     BOTH(-1),
     6,
     {TG_X(3, 2, 12, 5), W(3, 5), LABELS(-1, 3, 2, 2, 12), LSE(1.1, 2, 2, 12), DY, VALID}},
    {"dx of more rows",
     &(tg_linear_ce_attr){.ignore_index = -1, .outputs = TG_LINEAR_CE_DX},
     6,
     {TG_X(2, 8, 5), W(3, 5), LABELS(-1, 3, 1, 8), LSE(1.1, 1, 8), DY, VALID}},
    {"dw of more rows",
     &(tg_linear_ce_attr){.ignore_index = -1, .outputs = TG_LINEAR_CE_DW},
     6,
     {TG_X(2, 8, 5), W(3, 5), LABELS(-1, 3, 1, 8), LSE(1.1, 1, 8), DY, VALID}},
    {"all ignored", BOTH(-100), 5, {TG_X(2, 4, 6), W(5, 6), IGNORED(1, 4), LSE(1.6, 1, 4), DY}},
    {"no rows", BOTH(-100), 5, {TG_X(2, 0, 6), W(5, 6), IGNORED(1, 0), LSE(1.6, 1, 0), DY}},
    {"one row", BOTH(-100), 5, {TG_X(1, 6), W(17, 6), LABELS(0, 17, 0, 0), LSE(2.8, 0, 0), DY}},
    {"x alone",
     &(tg_linear_ce_attr){.ignore_index = -100, .outputs = TG_LINEAR_CE_DX},
     5,
     {TG_X(2, 6, 8), W(11, 8), LABELS(0, 11, 1, 6), LSE(2.4, 1, 6), DY}},
    {"w alone",
     &(tg_linear_ce_attr){.ignore_index = -100, .outputs = TG_LINEAR_CE_DW},
     5,
     {TG_X(2, 6, 8), W(11, 8), LABELS(0, 11, 1, 6), LSE(2.4, 1, 6), DY}},
    {"piece of a vocabulary",
     &(tg_linear_ce_attr){.ignore_index = -1, .begin = 5, .total = 30},
     6,
     {TG_X(2, 8, 5), W(12, 5), LABELS(-1, 30, 1, 8), LSE(3.4, 1, 8), DY, VALID}},
    {"vocabulary in tiles",
     BOTH(-1),
     5,
     {TG_X(2, 5, 4), W(1041, 4), LABELS(-1, 1041, 1, 5), LSE(6.9, 1, 5), DY}},
    {"rows in tiles",
     BOTH(-1),
     5,
     {TG_X(2, 1030, 3), W(7, 3), LABELS(-1, 7, 1, 1030), LSE(1.9, 1, 1030), DY}},
    {"rows and vocabulary in tiles",
     BOTH(-1),
     5,
     {TG_X(2, 1030, 2), W(1030, 2), LABELS(-1, 1030, 1, 1030), LSE(7, 1, 1030), DY}},
};

const teng_op_cases tg_cases_linear_cross_entropy = {.op = "linear_cross_entropy",
                                                     .list = list,
                                                     .n = TG_COUNT(list),
                                                     .reference = forward,
                                                     .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_linear_cross_entropy_grad = {.op = "linear_cross_entropy_grad",
                                                          .list = grads,
                                                          .n = TG_COUNT(grads),
                                                          .reference = backward,
                                                          .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_linear_cross_entropy_with_grad = {.op = "linear_cross_entropy_with_grad",
                                                               .list = list,
                                                               .n = TG_COUNT(list),
                                                               .reference = forward_and_backward,
                                                               .dtypes = TG_ALL_FLOATS};

#define ALONE(ignore)                                                                                        \
    &(tg_linear_ce_ranks_attr)                                                                               \
    {                                                                                                        \
        .ignore_index = ignore, .axes = 1 << TG_AXIS_TENSOR, .parts = 1                                      \
    }
static const teng_op_case alone[] = {
    {"batch", ALONE(-100), 3, {TG_X(3, 2, 3, 8), W(11, 8), LABELS(0, 11, 2, 2, 3)}},
    {"of more rows", ALONE(-1), 4, {TG_X(3, 2, 12, 5), W(3, 5), LABELS(-1, 3, 2, 2, 12), VALID}},
    {"all ignored", ALONE(-100), 3, {TG_X(2, 4, 6), W(5, 6), IGNORED(1, 4)}},
    {"no rows", ALONE(-100), 3, {TG_X(2, 0, 6), W(5, 6), IGNORED(1, 0)}},
    {"rows in blocks", ALONE(-1), 3, {TG_X(2, 1030, 3), W(7, 3), LABELS(-1, 7, 1, 1030)}},
};
const teng_op_cases tg_cases_linear_cross_entropy_by_vocabulary = {.op = "linear_cross_entropy_by_vocabulary",
                                                                   .list = alone,
                                                                   .n = TG_COUNT(alone),
                                                                   .reference = forward_and_backward,
                                                                   .dtypes = TG_ALL_FLOATS};
