/* Cases of add, sub, mul, div: every way of broadcasting, and sizes that use threads. */
#include "op/case_list.h"

/* Element of operand k that meets flat output index i. */
static double at(const teng_op_call *call, const double *const *in, int k, int64_t i)
{
    const teng_desc *x = &call->in[k], *y = &call->out[0];
    int64_t offset = 0, pitch = 1;
    for (int d = 1; d <= x->ndim; d++) {
        const int64_t own = x->dims[x->ndim - d], size = y->dims[y->ndim - d];
        if (own > 1) offset += i % size * pitch;
        pitch *= own;
        i /= size;
    }
    return in[k][offset];
}

/* The second operand keeps away from 0, where a quotient has no tolerance. */
#define B(nd, ...)                                                                                           \
    {                                                                                                        \
        .desc = {TENG_F32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_UNIFORM, .lo = 0.3, .hi = 2                 \
    }
static const teng_op_case list[] = {
    {.label = "same", .n_in = 2, .in = {TG_X(3, 3, 5, 7), B(3, 3, 5, 7)}},
    {.label = "threads", .n_in = 2, .in = {TG_X(2, 160, 131), B(2, 160, 131)}},
    {.label = "bias", .n_in = 2, .in = {TG_X(3, 9, 60, 33), B(1, 33)}},
    {.label = "scalar b", .n_in = 2, .in = {TG_X(2, 5, 9), B(0, 0)}},
    {.label = "scalar a", .n_in = 2, .in = {TG_X(2, 1, 1), B(2, 5, 9)}},
    {.label = "column", .n_in = 2, .in = {TG_X(3, 2, 5, 19), B(3, 2, 5, 1)}},
    {.label = "middle", .n_in = 2, .in = {TG_X(3, 4, 6, 18), B(3, 4, 1, 18)}},
    {.label = "outer", .n_in = 2, .in = {TG_X(3, 4, 1, 6), B(2, 8, 1)}},
    {.label = "higher b", .n_in = 2, .in = {TG_X(1, 6), B(4, 2, 3, 4, 6)}},
};

#define BINARY(name, formula, expr, traits, reads_in, reads_out)                                             \
    static teng_status ref_##name(const teng_op_call *call, const double *const *in, double *const *out)     \
    {                                                                                                        \
        for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++) {                                         \
            const double a = at(call, in, 0, i), b = at(call, in, 1, i);                                     \
            out[0][i] = expr;                                                                                \
        }                                                                                                    \
        return TENG_OK;                                                                                      \
    }                                                                                                        \
    const teng_op_cases tg_cases_##name = {                                                                  \
        .op = #name, .list = list, .n = TG_COUNT(list), .reference = ref_##name, .dtypes = TG_ALL_FLOATS};
#include "op/binary/binary.def"
#undef BINARY
