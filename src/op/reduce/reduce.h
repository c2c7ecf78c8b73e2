/* Attributes of sum, mean, max and max_grad, shared by the spec, the kernels and the cases. */
#ifndef TG_OP_REDUCE_H
#define TG_OP_REDUCE_H

#include "teng/operator.h"

typedef struct tg_reduce_attr {
    teng_dims axes; /* negative counts from the end; none: all axes */
    int64_t keep;   /* 1: reduced axes stay with size 1 */
    int64_t count;  /* mean: what the sum is divided by; 0: the number of elements. A shard divides by the
                       whole. */
} tg_reduce_attr;

/* Bit i is set when dimension i of x is reduced. The axes are valid. */
static inline unsigned tg_reduce_mask(const teng_desc *x, const tg_reduce_attr *a)
{
    unsigned mask = a->axes.n ? 0 : (1u << x->ndim) - 1;
    for (int i = 0; i < (int)a->axes.n; i++)
        mask |= 1u << (a->axes.v[i] < 0 ? a->axes.v[i] + x->ndim : a->axes.v[i]);
    return mask;
}

#endif
