/* Cases of attention and its gradient: grouped heads, windows, more keys than queries and fewer, odd sizes.
 */
#include "op/attention/attention.h"
#include "op/case_list.h"

/* Offsets of row t, head h and of key s, its group. */
static int64_t q_at(const tg_attention_sizes *z, int64_t b, int64_t t, int64_t h)
{
    return ((b * z->rows + t) * z->heads + h) * z->width;
}
static int64_t k_at(const tg_attention_sizes *z, int64_t b, int64_t s, int64_t h)
{
    return ((b * z->keys + s) * z->groups + h / (z->heads / z->groups)) * z->width;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y is row t, head h of batch b; returns log Σ exp. */
static double row(const teng_op_call *call, const tg_attention_sizes *z, const double *const *in, int64_t b,
                  int64_t t, int64_t h, double *y)
{
    const teng_attention_options *o = call->attr;
    const double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)z->width);
    const double *q = in[0] + q_at(z, b, t, h);
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < z->width; i++)
        y[i] = 0;
    const int64_t first = tg_attention_first(z, t), last = tg_attention_last(z, t);
    if (last < first) return 0;
    for (int64_t s = first; s <= last; s++)
        max = fmax(max, scale * dot(q, in[1] + k_at(z, b, s, h), z->width));
    for (int64_t s = first; s <= last; s++) {
        const double p = exp(scale * dot(q, in[1] + k_at(z, b, s, h), z->width) - max);
        sum += p;
        for (int64_t i = 0; i < z->width; i++)
            y[i] += p * in[2][k_at(z, b, s, h) + i];
    }
    for (int64_t i = 0; i < z->width; i++)
        y[i] /= sum;
    return max + log(sum);
}

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_attention_sizes z = tg_attention_sizes_of(call);
    for (int64_t b = 0; b < z.batch; b++)
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.rows; t++)
                out[1][(b * z.heads + h) * z.rows + t] =
                    row(call, &z, in, b, t, h, out[0] + q_at(&z, b, t, h));
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_attention_options *o = call->attr;
    const tg_attention_sizes z = tg_attention_sizes_of(call);
    const double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)z.width);
    const double *y = in[3], *lse = in[4], *dy = in[5];
    for (int i = 0; i < 3; i++)
        for (int64_t j = 0; j < tg_desc_numel(&call->out[i]); j++)
            out[i][j] = 0;
    for (int64_t b = 0; b < z.batch; b++)
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.rows; t++) {
                const int64_t q = q_at(&z, b, t, h);
                const double delta = dot(dy + q, y + q, z.width);
                for (int64_t s = tg_attention_first(&z, t); s <= tg_attention_last(&z, t); s++) {
                    const int64_t k = k_at(&z, b, s, h);
                    const double p =
                        exp(scale * dot(in[0] + q, in[1] + k, z.width) - lse[(b * z.heads + h) * z.rows + t]);
                    const double ds = p * (dot(dy + q, in[2] + k, z.width) - delta) * scale;
                    for (int64_t i = 0; i < z.width; i++) {
                        out[0][q + i] += ds * in[1][k + i];
                        out[1][k + i] += ds * in[0][q + i];
                        out[2][k + i] += p * dy[q + i];
                    }
                }
            }
    return TENG_OK;
}

#define OPTIONS(causal, window, scale)                                                                       \
    &(teng_attention_options)                                                                                \
    {                                                                                                        \
        causal, window, scale, 0                                                                             \
    }
#define LATER(window, by)                                                                                    \
    &(teng_attention_options)                                                                                \
    {                                                                                                        \
        1, window, 0, by                                                                                     \
    }
#define QKV(b, t, h, s, g, d) TG_X(4, b, t, h, d), TG_X(4, b, s, g, d), TG_X(4, b, s, g, d)
/* lse near its usual value for `seen` keys, so that probabilities are sane. */
#define GRAD(b, t, h, s, g, d, usual)                                                                        \
    QKV(b, t, h, s, g, d), TG_X(4, b, t, h, d),                                                              \
        {.desc = {TENG_F32, 3, {b, h, t}},                                                                   \
         .fill = TENG_FILL_UNIFORM,                                                                          \
         .lo = usual,                                                                                        \
         .hi = (usual) + 1,                                                                                  \
         .keep_dtype = true},                                                                                \
        TG_X(4, b, t, h, d)

static const teng_op_case list[] = {
    {"causal", OPTIONS(1, 0, 0), 3, {QKV(2, 9, 2, 9, 2, 8)}},
    {"grouped", OPTIONS(1, 0, 0), 3, {QKV(1, 7, 4, 7, 2, 16)}},
    {"all see all", OPTIONS(0, 0, 0), 3, {QKV(1, 6, 2, 11, 1, 8)}},
    {"window", OPTIONS(1, 3, 0), 3, {QKV(1, 12, 2, 12, 2, 8)}},
    {"window of the last keys", OPTIONS(0, 4, 0), 3, {QKV(1, 5, 2, 9, 1, 8)}},
    {"more keys", OPTIONS(1, 0, 0.3), 3, {QKV(1, 4, 2, 13, 1, 8)}},
    {"one query", OPTIONS(1, 0, 0), 3, {QKV(2, 1, 4, 19, 2, 8)}},
    {"rows without keys", OPTIONS(1, 0, 0), 3, {QKV(1, 9, 2, 5, 1, 8)}},
    {"no keys", OPTIONS(0, 0, 0), 3, {QKV(1, 3, 2, 0, 1, 8)}},
    {"no rows", OPTIONS(1, 0, 0), 3, {QKV(1, 0, 2, 3, 1, 8)}},
    {"odd width", OPTIONS(1, 0, 0), 3, {QKV(1, 10, 3, 10, 1, 5)}},
    {"width 1", OPTIONS(1, 0, 0), 3, {QKV(1, 5, 1, 5, 1, 1)}},
    {"blocks", OPTIONS(1, 0, 0), 3, {QKV(1, 200, 2, 200, 2, 48)}},
    {"blocks, grouped, more keys", OPTIONS(1, 0, 0), 3, {QKV(1, 131, 2, 209, 1, 64)}},
    {"blocks, window", OPTIONS(1, 70, 0), 3, {QKV(1, 270, 1, 270, 1, 40)}},
    {"blocks, window, more keys", OPTIONS(1, 150, 0), 3, {QKV(1, 150, 2, 261, 2, 33)}},
    {"blocks, all", OPTIONS(0, 0, 0), 3, {QKV(1, 130, 1, 201, 1, 128)}},
    {"blocks, fewer keys", OPTIONS(1, 0, 0), 3, {QKV(1, 210, 2, 140, 1, 24)}},
    {"later rows", LATER(0, 5), 3, {QKV(1, 9, 2, 9, 1, 8)}},
    {"later rows, window", LATER(12, 9), 3, {QKV(1, 9, 2, 9, 1, 8)}},
    {"much later rows, window", LATER(12, 40), 3, {QKV(1, 9, 2, 9, 1, 8)}},
    {"earlier rows", LATER(0, -4), 3, {QKV(1, 9, 2, 9, 1, 8)}},
    {"blocks, later", LATER(90, 70), 3, {QKV(1, 200, 1, 200, 1, 24)}},
    {"blocks, earlier", LATER(0, -70), 3, {QKV(1, 200, 1, 200, 1, 24)}},
    {"blocks, out of sight", LATER(30, 300), 3, {QKV(1, 140, 1, 140, 1, 8)}},
    {"large scores", OPTIONS(1, 0, 20.0), 3, {QKV(1, 40, 2, 40, 1, 16)}},
};
static const teng_op_case grads[] = {
    {"causal", OPTIONS(1, 0, 0), 6, {GRAD(2, 9, 2, 9, 2, 8, 2)}},
    {"grouped", OPTIONS(1, 0, 0), 6, {GRAD(1, 7, 4, 7, 2, 16, 2)}},
    {"all see all", OPTIONS(0, 0, 0), 6, {GRAD(1, 6, 2, 11, 1, 8, 2)}},
    {"window", OPTIONS(1, 3, 0), 6, {GRAD(1, 12, 2, 12, 2, 8, 1)}},
    {"window of the last keys", OPTIONS(0, 4, 0), 6, {GRAD(1, 5, 2, 9, 1, 8, 1)}},
    {"more keys", OPTIONS(1, 0, 0.3), 6, {GRAD(1, 4, 2, 13, 1, 8, 2)}},
    {"later rows", LATER(0, 5), 6, {GRAD(1, 9, 2, 9, 1, 8, 2)}},
    {"later rows, window", LATER(12, 9), 6, {GRAD(1, 9, 2, 9, 1, 8, 1)}},
    {"much later rows, window", LATER(12, 40), 6, {GRAD(1, 9, 2, 9, 1, 8, 1)}},
    {"earlier rows", LATER(0, -4), 6, {GRAD(1, 9, 2, 9, 1, 8, 1)}},
    {"blocks, later", LATER(90, 70), 6, {GRAD(1, 200, 1, 200, 1, 24, 4)}},
    {"blocks, earlier", LATER(0, -70), 6, {GRAD(1, 200, 1, 200, 1, 24, 4)}},
    {"blocks, out of sight", LATER(30, 300), 6, {GRAD(1, 140, 1, 140, 1, 8, 2)}},
    {"rows without keys", OPTIONS(1, 0, 0), 6, {GRAD(1, 9, 2, 5, 1, 8, 1)}},
    {"no keys", OPTIONS(0, 0, 0), 6, {GRAD(1, 3, 2, 0, 1, 8, 1)}},
    {"no rows", OPTIONS(1, 0, 0), 6, {GRAD(1, 0, 2, 3, 1, 8, 1)}},
    {"odd width", OPTIONS(1, 0, 0), 6, {GRAD(1, 10, 3, 10, 1, 5, 2)}},
    {"width 1", OPTIONS(1, 0, 0), 6, {GRAD(1, 5, 1, 5, 1, 1, 1)}},
    {"blocks", OPTIONS(1, 0, 0), 6, {GRAD(1, 200, 2, 200, 2, 48, 5)}},
    {"blocks, grouped, more keys", OPTIONS(1, 0, 0), 6, {GRAD(1, 131, 2, 209, 1, 64, 5)}},
    {"blocks, window", OPTIONS(1, 70, 0), 6, {GRAD(1, 270, 1, 270, 1, 40, 4)}},
    {"blocks, window, more keys", OPTIONS(1, 150, 0), 6, {GRAD(1, 150, 2, 261, 2, 33, 5)}},
    {"blocks, all", OPTIONS(0, 0, 0), 6, {GRAD(1, 130, 1, 201, 1, 128, 6)}},
    {"blocks, fewer keys", OPTIONS(1, 0, 0), 6, {GRAD(1, 210, 2, 140, 1, 24, 5)}},
};

const teng_op_cases tg_cases_attention = {.op = "attention",
                                          .list = list,
                                          .n = TG_COUNT(list),
                                          .reference = forward,
                                          .dtypes = TG_ALL_FLOATS,
                                          .tol_f32 = 3e-6};
const teng_op_cases tg_cases_attention_grad = {.op = "attention_grad",
                                               .list = grads,
                                               .n = TG_COUNT(grads),
                                               .reference = backward,
                                               .dtypes = TG_ALL_FLOATS,
                                               .tol_f32 = 3e-6};

/* ---- on a cache ---- */
static teng_status cached(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_attention_sizes z = tg_attention_sizes_of(call);
    for (int64_t t = 0; t < z.rows; t++) { /* each row alone, behind the keys that it sees */
        tg_attention_sizes one = z;
        one.causal = true;
        one.rows = 1;
        one.keys = (int64_t)in[3][t] + 1;
        one.shift = one.keys - 1;
        const int64_t unseen = (z.keys - one.keys) * z.groups * z.width;
        for (int64_t b = 0; b < z.batch; b++)
            for (int64_t h = 0; h < z.heads; h++) {
                const double *const moved[] = {in[0] + q_at(&z, b, t, h) - q_at(&one, b, 0, h),
                                               in[1] + b * unseen, in[2] + b * unseen};
                row(call, &one, moved, b, 0, h, out[0] + q_at(&z, b, t, h));
            }
    }
    return TENG_OK;
}

static const teng_op_case list_cached[] = {
    {"one row", OPTIONS(1, 0, 0), 4, {QKV(2, 1, 4, 19, 2, 8), TG_STEPS(12, 1)}},
    {"first row", OPTIONS(1, 0, 0), 4, {QKV(1, 1, 2, 19, 2, 8), TG_STEPS(0, 1)}},
    {"one row, full", OPTIONS(1, 0, 0.3), 4, {QKV(1, 1, 3, 19, 3, 24), TG_STEPS(18, 1)}},
    {"one row, window", OPTIONS(1, 5, 0), 4, {QKV(2, 1, 4, 300, 1, 16), TG_STEPS(290, 1)}},
    {"one row, many keys", OPTIONS(1, 0, 0), 4, {QKV(2, 1, 6, 700, 2, 40), TG_STEPS(690, 1)}},
    {"one row, threads", OPTIONS(1, 600, 0), 4, {QKV(1, 1, 8, 1500, 8, 128), TG_STEPS(1400, 1)}},
    {"one row, large scores", OPTIONS(1, 0, 20.0), 4, {QKV(1, 1, 2, 300, 1, 16), TG_STEPS(270, 1)}},
    {"rows", OPTIONS(1, 0, 0), 4, {QKV(2, 5, 4, 19, 2, 8), TG_STEPS(9, 5)}},
    {"rows from the first", OPTIONS(1, 0, 0), 4, {QKV(1, 7, 2, 12, 1, 8), TG_STEPS(0, 7)}},
    {"rows, window", OPTIONS(1, 4, 0), 4, {QKV(2, 70, 2, 140, 2, 8), TG_STEPS(40, 70)}},
    {"no rows", OPTIONS(1, 0, 0), 4, {QKV(1, 0, 2, 3, 1, 8), TG_STEPS(0, 0)}},
};

const teng_op_cases tg_cases_cached_attention = {.op = "cached_attention",
                                                 .list = list_cached,
                                                 .n = TG_COUNT(list_cached),
                                                 .reference = cached,
                                                 .dtypes = TG_ALL_FLOATS,
                                                 .tol_f32 = 3e-6};
