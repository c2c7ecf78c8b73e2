/* Cases of ring_attention and its gradient: one rank alone, which is attention. Rings of ranks are the
 * business of test_ring. */
#include "op/builtin_cases.h"
#include "op/case_list.h"
#include "op/ring_attention/ring_attention.h"

static teng_status by(const char *op, const teng_op_call *call, const double *const *in, double *const *out)
{
    teng_op_call plain = *call;
    plain.attr = &((const tg_ring_attr *)call->attr)->options;
    return tg_op_cases_find(op)->reference(&plain, in, out);
}
static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    return by("attention", call, in, out);
}
static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    return by("attention_grad", call, in, out);
}

#define ALONE(...)                                                                                           \
    &(tg_ring_attr)                                                                                          \
    {                                                                                                        \
        .options = {__VA_ARGS__}, .axes = 8, .parts = 1                                                      \
    }
#define QKV(b, t, h, g, d) TG_X(4, b, t, h, d), TG_X(4, b, t, g, d), TG_X(4, b, t, g, d)
#define GRAD(b, t, h, g, d)                                                                                  \
    QKV(b, t, h, g, d), TG_X(4, b, t, h, d),                                                                 \
        {.desc = {TENG_F32, 3, {b, h, t}}, .fill = TENG_FILL_UNIFORM, .lo = 2, .hi = 3, .keep_dtype = true}, \
        TG_X(4, b, t, h, d)

static const teng_op_case list[] = {
    {"causal", ALONE(.causal = 1), 3, {QKV(2, 9, 4, 2, 8)}},
    {"window", ALONE(.causal = 1, .window = 3), 3, {QKV(1, 12, 2, 1, 8)}},
    {"all see all", ALONE(.scale = 0.3), 3, {QKV(2, 7, 2, 2, 8)}},
};
static const teng_op_case grads[] = {
    {"causal", ALONE(.causal = 1), 6, {GRAD(2, 9, 4, 2, 8)}},
    {"window", ALONE(.causal = 1, .window = 3), 6, {GRAD(1, 12, 2, 1, 8)}},
    {"all see all", ALONE(.scale = 0.3), 6, {GRAD(2, 7, 2, 2, 8)}},
};

const teng_op_cases tg_cases_ring_attention = {.op = "ring_attention",
                                               .list = list,
                                               .n = TG_COUNT(list),
                                               .reference = forward,
                                               .dtypes = TG_ALL_FLOATS,
                                               .tol_f32 = 3e-6};
const teng_op_cases tg_cases_ring_attention_grad = {.op = "ring_attention_grad",
                                                    .list = grads,
                                                    .n = TG_COUNT(grads),
                                                    .reference = backward,
                                                    .dtypes = TG_ALL_FLOATS,
                                                    .tol_f32 = 3e-6};
