/* What the spec, the kernels and the cases of matmul share. */
#ifndef TG_OP_MATMUL_H
#define TG_OP_MATMUL_H

#include "teng/operator.h"

#include <stdbool.h>

typedef struct tg_matmul_attr {
    int64_t trans_a, trans_b;
    int64_t f32_out; /* y keeps the f32 of its sums */
} tg_matmul_attr;

/* batch products of [m,k] and [k,n]; shared: b is one matrix for all of them. */
typedef struct tg_matmul_sizes {
    int64_t batch, m, n, k;
    bool shared;
} tg_matmul_sizes;

static inline tg_matmul_sizes tg_matmul_sizes_of(const teng_op_call *call)
{
    const tg_matmul_attr *attr = (const tg_matmul_attr *)call->attr;
    const teng_desc *a = &call->in[0], *b = &call->in[1];
    tg_matmul_sizes s = {.batch = 1, .shared = b->ndim == 2};
    for (int i = 0; i < a->ndim - 2; i++)
        s.batch *= a->dims[i];
    s.m = a->dims[a->ndim - (attr->trans_a ? 1 : 2)];
    s.k = a->dims[a->ndim - (attr->trans_a ? 2 : 1)];
    s.n = b->dims[b->ndim - (attr->trans_b ? 2 : 1)];
    return s;
}

#endif
