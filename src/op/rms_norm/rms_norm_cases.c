/* Cases of rms_norm and its gradient. */
#include "op/case_list.h"

#include <math.h>

static void normalise(const double *x, int64_t rows, int64_t n, double eps, const double *w, double *y,
                      double *rstd)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        double squares = 0;
        for (int64_t i = 0; i < n; i++)
            squares += x[i] * x[i];
        rstd[r] = 1 / sqrt(squares / (double)n + eps);
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * rstd[r] * w[i];
    }
}

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    normalise(in[0], tg_desc_numel(d) / n, n, *(const double *)call->attr, in[1], out[0], out[1]);
    return TENG_OK;
}

static teng_status forward_add(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    for (int64_t i = 0; i < tg_desc_numel(d); i++)
        out[0][i] = in[0][i] + in[1][i];
    normalise(out[0], tg_desc_numel(d) / n, n, *(const double *)call->attr, in[2], out[1], out[2]);
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1], rows = tg_desc_numel(d) / n;
    for (int64_t i = 0; i < n; i++)
        out[1][i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * n, *dy = in[2] + r * n, rstd = in[3][r];
        double mean = 0;
        for (int64_t i = 0; i < n; i++)
            mean += dy[i] * in[1][i] * x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) {
            out[0][r * n + i] = rstd * (dy[i] * in[1][i] - x[i] * rstd * rstd * mean) +
                                (call->n_in == 5 ? in[4][r * n + i] : 0);
            out[1][i] += dy[i] * x[i] * rstd;
        }
    }
    return TENG_OK;
}

#define RSTD(ndim, ...)                                                                                      \
    {                                                                                                        \
        .desc = {TENG_F32, ndim, {__VA_ARGS__}}, .fill = TENG_FILL_UNIFORM, .lo = 0.5, .hi = 2,              \
        .keep_dtype = true                                                                                   \
    }

static const teng_op_case list[] = {
    {"rows", &(double){1e-5}, 2, {TG_X(3, 2, 5, 37), TG_X(1, 37)}},
    {"f32 weight", &(double){1e-6}, 2, {TG_X(2, 7, 64), TG_F32(1, 64)}},
    {"one row", &(double){1e-5}, 2, {TG_X(1, 19), TG_X(1, 19)}},
    {"tiny values", &(double){1e-5}, 2, {{.desc = {TENG_F32, 2, {3, 24}}, .hi = 1e-3}, TG_X(1, 24)}},
    {"blocks", &(double){1e-5}, 2, {TG_X(2, 70, 515), TG_X(1, 515)}},
};
static const teng_op_case adds[] = {
    {"rows", &(double){1e-5}, 3, {TG_X(3, 2, 5, 37), TG_X(3, 2, 5, 37), TG_X(1, 37)}},
    {"f32 weight", &(double){1e-6}, 3, {TG_X(2, 7, 64), TG_X(2, 7, 64), TG_F32(1, 64)}},
    {"blocks", &(double){1e-5}, 3, {TG_X(2, 70, 515), TG_X(2, 70, 515), TG_X(1, 515)}},
};
static const teng_op_case grads[] = {
    {"onto", NULL, 5, {TG_X(2, 9, 37), TG_X(1, 37), TG_X(2, 9, 37), RSTD(1, 9), TG_X(2, 9, 37)}},
    {"rows", NULL, 4, {TG_X(3, 2, 5, 37), TG_X(1, 37), TG_X(3, 2, 5, 37), RSTD(2, 2, 5)}},
    {"f32 weight", NULL, 4, {TG_X(2, 7, 64), TG_F32(1, 64), TG_X(2, 7, 64), RSTD(1, 7)}},
    {"one row",
     NULL,
     4,
     {TG_X(1, 19),
      TG_X(1, 19),
      TG_X(1, 19),
      {.desc = {TENG_F32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 0.75, .keep_dtype = true}}},
    {"blocks", NULL, 4, {TG_X(2, 70, 515), TG_X(1, 515), TG_X(2, 70, 515), RSTD(1, 70)}},
};

const teng_op_cases tg_cases_rms_norm = {
    .op = "rms_norm", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_rms_norm_grad = {.op = "rms_norm_grad",
                                              .list = grads,
                                              .n = TG_COUNT(grads),
                                              .reference = backward,
                                              .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_add_rms_norm = {.op = "add_rms_norm",
                                             .list = adds,
                                             .n = TG_COUNT(adds),
                                             .reference = forward_add,
                                             .dtypes = TG_ALL_FLOATS};
