/* Cases of layer_norm and its gradient. */
#include "op/case_list.h"

#include <math.h>

/* Rows x of [rows][n] to y, mean, rstd; b: n biases, NULL: none. */
static void normalise(const double *x, int64_t rows, int64_t n, double eps, const double *w, const double *b,
                      double *y, double *mean_out, double *rstd_out)
{
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < n; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)n;
        mean_out[r] = mean;
        rstd_out[r] = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd_out[r] * w[i] + (b ? b[i] : 0);
    }
}

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    normalise(in[0], tg_desc_numel(d) / n, n, *(const double *)call->attr, in[1],
              call->n_in == 3 ? in[2] : NULL, out[0], out[1], out[2]);
    return TENG_OK;
}

static teng_status forward_add(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1];
    for (int64_t i = 0; i < tg_desc_numel(d); i++)
        out[0][i] = in[0][i] + in[1][i];
    normalise(out[0], tg_desc_numel(d) / n, n, *(const double *)call->attr, in[2],
              call->n_in == 4 ? in[3] : NULL, out[1], out[2], out[3]);
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *d = &call->in[0];
    const int64_t n = d->dims[d->ndim - 1], rows = tg_desc_numel(d) / n;
    for (int o = 1; o < call->n_out; o++)
        for (int64_t i = 0; i < n; i++)
            out[o][i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * n, *dy = in[2] + r * n, mean = in[3][r], rstd = in[4][r];
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += dy[i] * in[1][i] / (double)n;
            dot += dy[i] * in[1][i] * (x[i] - mean) * rstd / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            const double z = (x[i] - mean) * rstd;
            out[0][r * n + i] =
                rstd * (dy[i] * in[1][i] - sum - z * dot) + (call->n_in == 6 ? in[5][r * n + i] : 0);
            out[1][i] += dy[i] * z;
            if (call->n_out == 3) out[2][i] += dy[i];
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
    {"rows", &(double){1e-5}, 3, {TG_X(3, 2, 5, 37), TG_X(1, 37), TG_X(1, 37)}},
    {"no bias", &(double){1e-5}, 2, {TG_X(2, 7, 64), TG_X(1, 64)}},
    {"f32 weight", &(double){1e-6}, 3, {TG_X(2, 7, 64), TG_F32(1, 64), TG_F32(1, 64)}},
    {"one row", &(double){1e-5}, 3, {TG_X(1, 19), TG_X(1, 19), TG_X(1, 19)}},
    {"far from zero",
     &(double){1e-5},
     3,
     {{.desc = {TENG_F32, 2, {3, 24}}, .lo = 10, .hi = 4}, TG_X(1, 24), TG_X(1, 24)}},
    {"blocks", &(double){1e-5}, 3, {TG_X(2, 70, 515), TG_X(1, 515), TG_X(1, 515)}},
};
static const teng_op_case adds[] = {
    {"rows", &(double){1e-5}, 4, {TG_X(3, 2, 5, 37), TG_X(3, 2, 5, 37), TG_X(1, 37), TG_X(1, 37)}},
    {"no bias", &(double){1e-5}, 3, {TG_X(2, 7, 64), TG_X(2, 7, 64), TG_X(1, 64)}},
    {"f32 weight", &(double){1e-6}, 4, {TG_X(2, 7, 64), TG_X(2, 7, 64), TG_F32(1, 64), TG_F32(1, 64)}},
    {"blocks", &(double){1e-5}, 4, {TG_X(2, 70, 515), TG_X(2, 70, 515), TG_X(1, 515), TG_X(1, 515)}},
};
static const teng_op_case grads[] = {
    {"onto",
     &(int64_t){1},
     6,
     {TG_X(2, 9, 37), TG_X(1, 37), TG_X(2, 9, 37), TG_F32(1, 9), RSTD(1, 9), TG_X(2, 9, 37)}},
    {"rows",
     &(int64_t){1},
     5,
     {TG_X(3, 2, 5, 37), TG_X(1, 37), TG_X(3, 2, 5, 37), TG_F32(2, 2, 5), RSTD(2, 2, 5)}},
    {"no bias", &(int64_t){0}, 5, {TG_X(2, 7, 64), TG_X(1, 64), TG_X(2, 7, 64), TG_F32(1, 7), RSTD(1, 7)}},
    {"f32 weight",
     &(int64_t){1},
     5,
     {TG_X(2, 7, 64), TG_F32(1, 64), TG_X(2, 7, 64), TG_F32(1, 7), RSTD(1, 7)}},
    {"blocks",
     &(int64_t){1},
     5,
     {TG_X(2, 70, 515), TG_X(1, 515), TG_X(2, 70, 515), TG_F32(1, 70), RSTD(1, 70)}},
};

const teng_op_cases tg_cases_layer_norm = {
    .op = "layer_norm", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_layer_norm_grad = {.op = "layer_norm_grad",
                                                .list = grads,
                                                .n = TG_COUNT(grads),
                                                .reference = backward,
                                                .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_add_layer_norm = {.op = "add_layer_norm",
                                               .list = adds,
                                               .n = TG_COUNT(adds),
                                               .reference = forward_add,
                                               .dtypes = TG_ALL_FLOATS};
