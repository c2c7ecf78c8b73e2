/* Shorthand for case lists (x_cases.c). Floating inputs are written as f32; the tests replace the dtype. */
#ifndef TG_OP_CASE_LIST_H
#define TG_OP_CASE_LIST_H

#include "teng/operator.h"

#include "tensor/desc.h"

/* TG_X(2, 3, 5): f32[3,5], normal draws. TG_IDS(hi, 2, 3, 5): i32[3,5] in [0, hi). TG_F32(…): stays f32.
 * TG_STEPS(4, 3): i32[3], 4 5 6. */
#define TG_X(ndim, ...)                                                                                      \
    {                                                                                                        \
        .desc = { TENG_F32, ndim, {__VA_ARGS__} }                                                            \
    }
#define TG_F32(ndim, ...)                                                                                    \
    {                                                                                                        \
        .desc = {TENG_F32, ndim, {__VA_ARGS__}}, .keep_dtype = true                                          \
    }
#define TG_IDS(limit, nd, ...)                                                                               \
    {                                                                                                        \
        .desc = {TENG_I32, nd, {__VA_ARGS__}}, .fill = TENG_FILL_INTS, .hi = limit, .keep_dtype = true,      \
        .no_grad = true                                                                                      \
    }
#define TG_STEPS(first, n)                                                                                   \
    {                                                                                                        \
        .desc = {TENG_I32, 1, {n}}, .fill = TENG_FILL_STEPS, .lo = first, .keep_dtype = true,                \
        .no_grad = true                                                                                      \
    }
#define TG_ALL_FLOATS (1u << TENG_F32 | 1u << TENG_BF16 | 1u << TENG_F16)
#define TG_COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

#endif
