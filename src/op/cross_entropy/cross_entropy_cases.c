/* Cases of cross_entropy and its gradient. */
#include "mesh/mesh.h"
#include "op/case_list.h"
#include "op/cross_entropy/cross_entropy.h"

#include <math.h>

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1], rows = tg_desc_numel(&call->in[1]);
    double loss = 0, valid = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * n;
        double max = x[0], sum = 0;
        out[1][r] = 0;
        if ((int64_t)in[1][r] == *(const int64_t *)call->attr) continue;
        for (int64_t i = 0; i < n; i++)
            max = fmax(max, x[i]);
        for (int64_t i = 0; i < n; i++)
            sum += exp(x[i] - max);
        out[1][r] = max + log(sum);
        loss += out[1][r] - x[(int64_t)in[1][r]];
        valid++;
    }
    if (call->n_in > 2) valid = in[2][0];
    out[0][0] = valid > 0 ? loss / valid : 0;
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1], rows = tg_desc_numel(&call->in[1]),
                  ignore = *(const int64_t *)call->attr;
    double valid = 0;
    for (int64_t r = 0; r < rows; r++)
        valid += (int64_t)in[1][r] != ignore;
    if (call->n_in > 4) valid = in[4][0];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const tg_cross_entropy_attr *a = call->attr;
            const bool skip = (int64_t)in[1][r] == ignore, hit = i == (int64_t)in[1][r] - a->begin;
            out[0][r * n + i] = skip ? 0 : (exp(in[0][r * n + i] - in[2][r]) - hit) * in[3][0] / valid;
        }
    return TENG_OK;
}

static teng_status lse(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_logits_lse_attr *a = call->attr;
    const int64_t n = call->in[0].dims[call->in[0].ndim - 1];
    for (int64_t r = 0; r < tg_desc_numel(&call->in[1]); r++) {
        const double *x = in[0] + r * n;
        const int64_t label = (int64_t)in[1][r];
        const bool ignored = label == a->piece.ignore_index;
        out[1][r] = 0;
        for (int64_t p = 0; p < a->parts; p++) {
            int64_t begin, size;
            tg_mesh_cut(n, a->parts, p, &begin, &size);
            double max = x[begin], sum = 0;
            for (int64_t v = begin; v < begin + size; v++) {
                max = fmax(max, x[v]);
                if (label == a->piece.begin + v && !ignored) out[1][r] = x[v];
            }
            for (int64_t v = begin; v < begin + size; v++)
                sum += exp(x[v] - max);
            out[0][r * a->parts + p] = ignored ? 0 : max + log(sum);
        }
    }
    return TENG_OK;
}

/* Labels from `from` to to - 1: -1 is the ignored one in these cases. */
#define LABELS(from, to, nd, ...)                                                                            \
    {                                                                                                        \
        .desc = {TENG_I32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_INTS, .lo = from, .hi = to,                 \
        .keep_dtype = true, .no_grad = true                                                                  \
    }
#define LSE(from, to, nd, ...)                                                                               \
    {                                                                                                        \
        .desc = {TENG_F32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_UNIFORM, .lo = from, .hi = to,              \
        .keep_dtype = true                                                                                   \
    }
#define DY                                                                                                   \
    {                                                                                                        \
        .desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 0.7, .keep_dtype = true                   \
    }

#define VALID                                                                                                \
    {                                                                                                        \
        .desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 50, .keep_dtype = true, .no_grad = true   \
    }

static const int64_t usual = -100, minus_one = -1;
static const tg_cross_entropy_attr usual_grad = {.ignore_index = -100}, one_grad = {.ignore_index = -1},
                                   piece_grad = {-1, 5, 30};
static const tg_logits_lse_attr halves = {{-1, 0, 0}, 2}, fourths = {{-100, 0, 0}, 4},
                                thirds = {{-1, 0, 0}, 3}, piece = {{-1, 5, 30}, 1};
static const teng_op_case lses[] = {
    {"halves", &halves, 2, {TG_X(3, 2, 4, 12), LABELS(-1, 12, 2, 2, 4)}},
    {"fourths", &fourths, 2, {TG_X(2, 6, 24), LABELS(0, 24, 1, 6)}},
    {"uneven", &thirds, 2, {TG_X(2, 9, 11), LABELS(-1, 11, 1, 9)}},
    {"piece of a vocabulary", &piece, 2, {TG_X(2, 20, 12), LABELS(-1, 30, 1, 20)}},
    {"blocks", &halves, 2, {TG_X(2, 3, 9001), LABELS(0, 9001, 1, 3)}},
};
static const teng_op_case list[] = {
    {"batch", &usual, 2, {TG_X(3, 2, 5, 37), LABELS(0, 37, 2, 2, 5)}},
    {"some ignored", &minus_one, 2, {TG_X(2, 40, 3), LABELS(-1, 3, 1, 40)}},
    {"of more rows", &minus_one, 3, {TG_X(3, 2, 12, 7), LABELS(-1, 7, 2, 2, 12), VALID}},
    {"all ignored", &minus_one, 2, {TG_X(2, 3, 7), LABELS(-1, 0, 1, 3)}},
    {"one row", &usual, 2, {TG_X(1, 19), LABELS(18, 19, 0, 0)}},
    {"blocks", &usual, 2, {{.desc = {TENG_F32, 2, {3, 9001}}, .hi = 6}, LABELS(0, 9001, 1, 3)}},
};
static const teng_op_case grads[] = {
    {"batch", &usual_grad, 4, {TG_X(3, 2, 5, 37), LABELS(0, 37, 2, 2, 5), LSE(3, 5, 2, 2, 5), DY}},
    {"some ignored", &one_grad, 4, {TG_X(2, 40, 3), LABELS(-1, 3, 1, 40), LSE(1, 2, 1, 40), DY}},
    {"of more rows",
     &one_grad,
     5,
     {TG_X(3, 2, 12, 7), LABELS(-1, 7, 2, 2, 12), LSE(2, 3, 2, 2, 12), DY, VALID}},
    {"piece of a vocabulary",
     &piece_grad,
     5,
     {TG_X(2, 20, 12), LABELS(-1, 30, 1, 20), LSE(3, 4, 1, 20), DY, VALID}},
    {"all ignored", &one_grad, 4, {TG_X(2, 3, 7), LABELS(-1, 0, 1, 3), LSE(1, 2, 1, 3), DY}},
    {"blocks", &usual_grad, 4, {TG_X(2, 3, 9001), LABELS(0, 9001, 1, 3), LSE(9, 10, 1, 3), DY}},
};

const teng_op_cases tg_cases_cross_entropy = {
    .op = "cross_entropy", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_cross_entropy_grad = {.op = "cross_entropy_grad",
                                                   .list = grads,
                                                   .n = TG_COUNT(grads),
                                                   .reference = backward,
                                                   .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_logits_lse = {
    .op = "logits_lse", .list = lses, .n = TG_COUNT(lses), .reference = lse, .dtypes = TG_ALL_FLOATS};
