/* Cases of linear_lse, lse_combine and label_loss. */
#include "mesh/mesh.h"
#include "op/case_list.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"

#include <math.h>

static double log_sum_exp(const double *x, int64_t n)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return n ? max + log(sum) : -INFINITY;
}

static teng_status lse(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_linear_lse_attr *attr = call->attr;
    const int64_t vocab = call->in[1].dims[0], width = call->in[1].dims[1];
    double logits[64];
    for (int64_t r = 0; r < tg_desc_numel(&call->in[2]); r++) {
        const int64_t label = (int64_t)in[2][r];
        const bool ignored = label == attr->ignore_index;
        out[1][r] = 0;
        for (int64_t p = 0; p < attr->parts; p++) {
            int64_t begin, size;
            tg_mesh_cut(vocab, attr->parts, p, &begin, &size);
            for (int64_t v = 0; v < size; v++) {
                logits[v] = 0;
                for (int64_t c = 0; c < width; c++)
                    logits[v] += in[0][r * width + c] * in[1][(begin + v) * width + c];
                if (label == attr->begin + begin + v && !ignored) out[1][r] = logits[v];
            }
            out[0][r * attr->parts + p] = ignored ? 0 : log_sum_exp(logits, size);
        }
    }
    return TENG_OK;
}

static teng_status combine(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t n = call->in[0].dims[call->in[0].ndim - 1];
    for (int64_t r = 0; r < tg_desc_numel(&call->out[0]); r++)
        out[0][r] = log_sum_exp(in[0] + r * n, n);
    return TENG_OK;
}

static teng_status loss(const teng_op_call *call, const double *const *in, double *const *out)
{
    double sum = 0, valid = 0;
    for (int64_t r = 0; r < tg_desc_numel(&call->in[0]); r++) {
        if ((int64_t)in[2][r] == *(const int64_t *)call->attr) continue;
        sum += in[0][r] - in[1][r];
        valid++;
    }
    if (call->n_in > 3) valid = in[3][0];
    out[0][0] = valid > 0 ? sum / valid : 0;
    return TENG_OK;
}

#define W(v, c)                                                                                              \
    {                                                                                                        \
        .desc = {TENG_F32, 2, {v, c}}, .hi = 0.2                                                             \
    }
#define LABELS(least, vocab, nd, ...)                                                                        \
    {                                                                                                        \
        .desc = {TENG_I32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_INTS, .lo = least, .hi = vocab,             \
        .keep_dtype = true, .no_grad = true                                                                  \
    }
#define LSE(ignore, parts, begin, total)                                                                     \
    &(tg_linear_lse_attr)                                                                                    \
    {                                                                                                        \
        ignore, parts, begin, total                                                                          \
    }
static const teng_op_case list[] = {
    {"two pieces", LSE(-100, 2, 0, 0), 3, {TG_X(3, 2, 4, 8), W(12, 8), LABELS(0, 12, 2, 2, 4)}},
    {"four, some ignored", LSE(-1, 4, 0, 0), 3, {TG_X(2, 9, 5), W(24, 5), LABELS(-1, 24, 1, 9)}},
    {"uneven", LSE(-1, 3, 0, 0), 3, {TG_X(2, 9, 5), W(11, 5), LABELS(-1, 11, 1, 9)}},
    {"one piece of many", LSE(-1, 1, 6, 31), 3, {TG_X(2, 40, 5), W(9, 5), LABELS(-1, 31, 1, 40)}},
    {"one row", LSE(-100, 1, 0, 0), 3, {TG_X(1, 6), W(17, 6), LABELS(0, 17, 0, 0)}},
    {"no rows", LSE(-100, 2, 0, 0), 3, {TG_X(2, 0, 6), W(5, 6), LABELS(0, 5, 1, 0)}},
};
static const teng_op_case combines[] = {
    {"rows", NULL, 1, {TG_F32(3, 4, 6, 3)}},
    {"one", NULL, 1, {TG_F32(2, 5, 1)}},
    {"large", NULL, 1, {{.desc = {TENG_F32, 2, {8, 4}}, .lo = 500, .hi = 90, .keep_dtype = true}}},
};
#define VALID                                                                                                \
    {                                                                                                        \
        .desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 40, .keep_dtype = true                    \
    }
static const teng_op_case losses[] = {
    {"rows", &(int64_t){-100}, 3, {TG_F32(2, 3, 5), TG_F32(2, 3, 5), LABELS(0, 9, 2, 3, 5)}},
    {"of more rows", &(int64_t){2}, 4, {TG_F32(2, 4, 6), TG_F32(2, 4, 6), LABELS(0, 5, 2, 4, 6), VALID}},
    {"all ignored", &(int64_t){0}, 3, {TG_F32(1, 7), TG_F32(1, 7), LABELS(0, 1, 1, 7)}},
};

const teng_op_cases tg_cases_linear_lse = {
    .op = "linear_lse", .list = list, .n = TG_COUNT(list), .reference = lse, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_lse_combine = {.op = "lse_combine",
                                            .list = combines,
                                            .n = TG_COUNT(combines),
                                            .reference = combine,
                                            .dtypes = 1u << TENG_F32};
const teng_op_cases tg_cases_label_loss = {
    .op = "label_loss", .list = losses, .n = TG_COUNT(losses), .reference = loss, .dtypes = 1u << TENG_F32};
