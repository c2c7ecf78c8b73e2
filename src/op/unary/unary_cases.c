/* Cases of the functions of one operand, their common gradient, and affine. */
#include "op/case_list.h"
#include "op/unary/unary.h"
#include "teng/status.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double phi(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}
static double gate(double x)
{
    return sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

static double value(int64_t fn, double x)
{
    switch (fn) {
    case TG_UNARY_exp:
        return exp(x);
    case TG_UNARY_log:
        return log(x);
    case TG_UNARY_sqrt:
        return sqrt(x);
    case TG_UNARY_rsqrt:
        return 1 / sqrt(x);
    case TG_UNARY_square:
        return x * x;
    case TG_UNARY_tanh:
        return tanh(x);
    case TG_UNARY_sigmoid:
        return sigmoid(x);
    case TG_UNARY_relu:
        return x > 0 ? x : 0;
    case TG_UNARY_silu:
        return x * sigmoid(x);
    case TG_UNARY_gelu:
        return x * phi(x);
    default:
        return x * gate(x);
    }
}

/* Of x, or of y = f(x) where unary.def says OUT. */
static double slope(int64_t fn, double r)
{
    const double s = sigmoid(r), g = gate(r);
    switch (fn) {
    case TG_UNARY_exp:
        return r;
    case TG_UNARY_log:
        return 1 / r;
    case TG_UNARY_sqrt:
        return 0.5 / r;
    case TG_UNARY_rsqrt:
        return -0.5 * r * r * r;
    case TG_UNARY_square:
        return 2 * r;
    case TG_UNARY_tanh:
        return 1 - r * r;
    case TG_UNARY_sigmoid:
        return r * (1 - r);
    case TG_UNARY_relu:
        return r > 0 ? 1 : 0;
    case TG_UNARY_silu:
        return s + r * s * (1 - s);
    case TG_UNARY_gelu:
        return phi(r) + r * exp(-0.5 * r * r) / sqrt(2 * M_PI);
    default:
        return g + r * g * (1 - g) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * r * r);
    }
}

/* Three shapes: a ragged one, one with blocks and threads, a scalar. */
#define SHAPES(fill_, lo_, hi_)                                                                              \
    {.label = "ragged",                                                                                      \
     .n_in = 1,                                                                                              \
     .in = {{.desc = {TENG_F32, 2, {5, 7}}, .fill = fill_, .lo = lo_, .hi = hi_}}},                          \
        {.label = "blocks",                                                                                  \
         .n_in = 1,                                                                                          \
         .in = {{.desc = {TENG_F32, 2, {131, 160}}, .fill = fill_, .lo = lo_, .hi = hi_}}},                  \
    {                                                                                                        \
        .label = "scalar", .n_in = 1, .in = {                                                                \
            {.desc = {TENG_F32, 0, {0}}, .fill = fill_, .lo = lo_, .hi = hi_}                                \
        }                                                                                                    \
    }
static const teng_op_case any_sign[] = {SHAPES(TENG_FILL_NORMAL, 0, 3)};
static const teng_op_case positive[] = {SHAPES(TENG_FILL_UNIFORM, 0.1, 9)};

#define CASES(name, list_)                                                                                   \
    static teng_status ref_##name(const teng_op_call *call, const double *const *in, double *const *out)     \
    {                                                                                                        \
        for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)                                           \
            out[0][i] = value(TG_UNARY_##name, in[0][i]);                                                    \
        return TENG_OK;                                                                                      \
    }                                                                                                        \
    const teng_op_cases tg_cases_##name = {                                                                  \
        .op = #name, .list = list_, .n = TG_COUNT(list_), .reference = ref_##name, .dtypes = TG_ALL_FLOATS}
CASES(exp, any_sign);
CASES(log, positive);
CASES(sqrt, positive);
CASES(rsqrt, positive);
CASES(square, any_sign);
CASES(tanh, any_sign);
CASES(sigmoid, any_sign);
CASES(relu, any_sign);
CASES(silu, any_sign);
CASES(gelu, any_sign);
CASES(gelu_tanh, any_sign);

static teng_status ref_unary_grad(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_unary_attr *attr = call->attr;
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = slope(attr->fn, in[0][i]) * in[1][i];
    return TENG_OK;
}
#define GRAD_CASE(name, rows)                                                                                \
    {                                                                                                        \
        .label = #name, .attr = &(const tg_unary_attr){TG_UNARY_##name}, .n_in = 2, .in = {                  \
            {.desc = {TENG_F32, 2, {rows, 37}}, .fill = TENG_FILL_UNIFORM, .lo = 0.1, .hi = 3},              \
            TG_X(2, rows, 37)                                                                                \
        }                                                                                                    \
    }
#define SIGNED_GRAD_CASE(name, rows)                                                                         \
    {                                                                                                        \
        .label = #name, .attr = &(const tg_unary_attr){TG_UNARY_##name}, .n_in = 2, .in = {                  \
            {.desc = {TENG_F32, 2, {rows, 37}}, .hi = 2},                                                    \
            TG_X(2, rows, 37)                                                                                \
        }                                                                                                    \
    }
static const teng_op_case unary_grad_cases[] = {
    SIGNED_GRAD_CASE(exp, 4),
    GRAD_CASE(log, 4),
    GRAD_CASE(sqrt, 4),
    GRAD_CASE(rsqrt, 4),
    SIGNED_GRAD_CASE(square, 4),
    SIGNED_GRAD_CASE(tanh, 4),
    SIGNED_GRAD_CASE(sigmoid, 4),
    SIGNED_GRAD_CASE(relu, 4),
    SIGNED_GRAD_CASE(silu, 4),
    SIGNED_GRAD_CASE(gelu, 500),
    SIGNED_GRAD_CASE(gelu_tanh, 4),
};
const teng_op_cases tg_cases_unary_grad = {.op = "unary_grad",
                                           .list = unary_grad_cases,
                                           .n = TG_COUNT(unary_grad_cases),
                                           .reference = ref_unary_grad,
                                           .dtypes = TG_ALL_FLOATS};

/* Here `in` is the operand always. */
static teng_status ref_unary_with_grad(const teng_op_call *call, const double *const *in, double *const *out)
{
    static const bool reads_in[] = {
#define READS_IN true
#define READS_OUT false
#define UNARY(name, formula, reads, flops) READS_##reads,
#include "op/unary/unary.def"
#undef UNARY
    };
    const tg_unary_attr *attr = call->attr;
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++) {
        out[1][i] = value(attr->fn, in[0][i]);
        out[0][i] = slope(attr->fn, reads_in[attr->fn] ? in[0][i] : out[1][i]) * in[1][i];
    }
    return TENG_OK;
}
const teng_op_cases tg_cases_unary_with_grad = {.op = "unary_with_grad",
                                                .list = unary_grad_cases,
                                                .n = TG_COUNT(unary_grad_cases),
                                                .reference = ref_unary_with_grad,
                                                .dtypes = TG_ALL_FLOATS};

static teng_status ref_affine(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_affine_attr *attr = call->attr;
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = attr->factor * in[0][i] + attr->offset;
    return TENG_OK;
}
static const teng_op_case affine_cases[] = {
    {.label = "both", .attr = &(const tg_affine_attr){-2.5, 0.75}, .n_in = 1, .in = {TG_X(3, 3, 8, 11)}},
    {.label = "scale", .attr = &(const tg_affine_attr){0.125, 0}, .n_in = 1, .in = {TG_X(2, 128, 256)}},
};
const teng_op_cases tg_cases_affine = {.op = "affine",
                                       .list = affine_cases,
                                       .n = TG_COUNT(affine_cases),
                                       .reference = ref_affine,
                                       .dtypes = TG_ALL_FLOATS};
