/* Cases of the optimizer step, written from the formulas of op_list.h. */
#include "op/case_list.h"
#include "op/op_list.h"

#include <math.h>
#include <string.h>

static int64_t numel(const teng_op_call *call)
{
    return tg_desc_numel(&call->out[0]);
}

/* ---- accumulate ---- */
static teng_status ref_accumulate(const teng_op_call *call, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < numel(call); i++)
        out[0][i] = (in[2][0] == 0 ? 0 : in[2][0] * in[0][i]) + in[1][i];
    return TENG_OK;
}
#define SCALAR(value)                                                                                        \
    {                                                                                                        \
        .desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = value, .keep_dtype = true                 \
    }
static const teng_op_case accumulate_list[] = {
    {.label = "add", .n_in = 3, .in = {TG_F32(2, 9, 31), TG_X(2, 9, 31), SCALAR(1)}},
    {.label = "overwrite NaN",
     .n_in = 3,
     .in = {{.desc = {TENG_F32, 2, {5, 7}}, .fill = TENG_FILL_CONST, .lo = NAN, .keep_dtype = true},
            TG_X(2, 5, 7),
            SCALAR(0)}},
    {.label = "threads", .n_in = 3, .in = {TG_F32(2, 130, 131), TG_X(2, 130, 131), SCALAR(0.5)}},
};
const teng_op_cases tg_cases_accumulate = {.op = "accumulate",
                                           .list = accumulate_list,
                                           .n = TG_COUNT(accumulate_list),
                                           .reference = ref_accumulate,
                                           .dtypes = TG_ALL_FLOATS};

/* ---- sum_squares ---- */
static teng_status ref_sum_squares(const teng_op_call *call, const double *const *in, double *const *out)
{
    out[0][0] = 0;
    for (int k = 0; k < call->n_in; k++)
        for (int64_t i = 0; i < tg_desc_numel(&call->in[k]); i++)
            out[0][0] += in[k][i] * in[k][i];
    return TENG_OK;
}
static const teng_op_case sum_squares_list[] = {
    {.label = "one", .n_in = 1, .in = {TG_X(2, 3, 5)}},
    {.label = "many", .n_in = 4, .in = {TG_X(2, 144, 131), TG_X(1, 7), TG_F32(3, 2, 3, 4), TG_X(1, 4097)}},
    {.label = "large", .n_in = 1, .in = {{.desc = {TENG_F32, 1, {300}}, .hi = 9000}}},
};
const teng_op_cases tg_cases_sum_squares = {.op = "sum_squares",
                                            .list = sum_squares_list,
                                            .n = TG_COUNT(sum_squares_list),
                                            .reference = ref_sum_squares,
                                            .dtypes = TG_ALL_FLOATS};

/* ---- clip_coef ---- */
static teng_status ref_clip_coef(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_clip_attr *attr = call->attr;
    const double norm = sqrt(in[0][0]) * in[1][0];
    out[0][0] = in[1][0] * (attr->max_norm > 0 ? fmin(1, attr->max_norm / (norm + 1e-6)) : 1);
    if (!isfinite(norm)) out[0][0] = NAN;
    out[1][0] = norm;
    return TENG_OK;
}
#define CLIP(max)                                                                                            \
    &(const tg_clip_attr)                                                                                    \
    {                                                                                                        \
        max                                                                                                  \
    }
static const teng_op_case clip_list[] = {
    {.label = "clips", .attr = CLIP(1), .n_in = 2, .in = {SCALAR(30), SCALAR(1)}},
    {.label = "does not", .attr = CLIP(100), .n_in = 2, .in = {SCALAR(30), SCALAR(0.25)}},
    {.label = "never", .attr = CLIP(0), .n_in = 2, .in = {SCALAR(1e9), SCALAR(0x1p-16)}},
    {.label = "overflow", .attr = CLIP(1), .n_in = 2, .in = {SCALAR(INFINITY), SCALAR(1)}},
    {.label = "NaN", .attr = CLIP(0), .n_in = 2, .in = {SCALAR(NAN), SCALAR(1)}},
};
const teng_op_cases tg_cases_clip_coef = {.op = "clip_coef",
                                          .list = clip_list,
                                          .n = TG_COUNT(clip_list),
                                          .reference = ref_clip_coef,
                                          .dtypes = 1u << TENG_F32};

/* ---- adamw and sgd ---- */
static bool dropped(const teng_op_call *call, const double *const *in, int coef, double *const *out)
{
    if (call->n_in <= coef || isfinite(in[coef][0])) return false;
    for (int o = 0; o < call->n_out; o++)
        memcpy(out[o], in[call->op->updates[o] - 1], sizeof(double) * (size_t)numel(call));
    return true;
}

static teng_status ref_adamw(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_adamw_attr *attr = call->attr;
    const double lr = in[4][0], bc1 = in[4][1], bc2 = in[4][2], coef = call->n_in > 5 ? in[5][0] : 1;
    if (dropped(call, in, 5, out)) return TENG_OK;
    for (int64_t i = 0; i < numel(call); i++) {
        const double g = coef * in[1][i], p = in[0][i] - lr * attr->weight_decay * in[0][i];
        out[1][i] = attr->beta1 * in[2][i] + (1 - attr->beta1) * g;
        out[2][i] = attr->beta2 * in[3][i] + (1 - attr->beta2) * g * g;
        out[0][i] = p - lr * (out[1][i] / bc1) / (sqrt(out[2][i] / bc2) + attr->eps);
    }
    return TENG_OK;
}

static teng_status ref_sgd(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_sgd_attr *attr = call->attr;
    const double lr = in[3][0], coef = call->n_in > 4 ? in[4][0] : 1;
    if (dropped(call, in, 4, out)) return TENG_OK;
    for (int64_t i = 0; i < numel(call); i++) {
        const double g = coef * in[1][i] + attr->weight_decay * in[0][i];
        out[1][i] = attr->momentum * in[2][i] + g;
        out[0][i] = in[0][i] - lr * (attr->nesterov ? g + attr->momentum * out[1][i] : out[1][i]);
    }
    return TENG_OK;
}

#define POSITIVE(nd, ...)                                                                                    \
    {                                                                                                        \
        .desc = {TENG_F32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_UNIFORM, .lo = 0.01, .hi = 1,               \
        .keep_dtype = true                                                                                   \
    }
#define ADAMW                                                                                                \
    &(const tg_adamw_attr)                                                                                   \
    {                                                                                                        \
        0.9, 0.95, 1e-8, 0.1                                                                                 \
    }
static const teng_op_case adamw_list[] = {
    {.label = "ragged",
     .attr = ADAMW,
     .n_in = 5,
     .in = {TG_F32(2, 6, 13), TG_X(2, 6, 13), TG_F32(2, 6, 13), POSITIVE(2, 6, 13), POSITIVE(1, 4)}},
    {.label = "threads, clipped",
     .attr = ADAMW,
     .n_in = 6,
     .in = {TG_F32(2, 132, 131), TG_X(2, 132, 131), TG_F32(2, 132, 131), POSITIVE(2, 132, 131),
            POSITIVE(1, 4), SCALAR(0.3)}},
    {.label = "dropped",
     .attr = ADAMW,
     .n_in = 6,
     .in = {TG_F32(1, 9), TG_X(1, 9), TG_F32(1, 9), POSITIVE(1, 9), POSITIVE(1, 4), SCALAR(NAN)}},
};
const teng_op_cases tg_cases_adamw = {.op = "adamw",
                                      .list = adamw_list,
                                      .n = TG_COUNT(adamw_list),
                                      .reference = ref_adamw,
                                      .dtypes = TG_ALL_FLOATS};

static const teng_op_case sgd_list[] = {
    {.label = "momentum",
     .attr = &(const tg_sgd_attr){0.9, 0.01, 0},
     .n_in = 4,
     .in = {TG_F32(2, 6, 13), TG_X(2, 6, 13), TG_F32(2, 6, 13), POSITIVE(1, 4)}},
    {.label = "Nesterov, clipped",
     .attr = &(const tg_sgd_attr){0.9, 0, 1},
     .n_in = 5,
     .in = {TG_F32(2, 132, 131), TG_X(2, 132, 131), TG_F32(2, 132, 131), POSITIVE(1, 4), SCALAR(0.3)}},
    {.label = "dropped",
     .attr = &(const tg_sgd_attr){0.5, 0, 0},
     .n_in = 5,
     .in = {TG_F32(1, 9), TG_X(1, 9), TG_F32(1, 9), POSITIVE(1, 4), SCALAR(NAN)}},
};
const teng_op_cases tg_cases_sgd = {
    .op = "sgd", .list = sgd_list, .n = TG_COUNT(sgd_list), .reference = ref_sgd, .dtypes = TG_ALL_FLOATS};
