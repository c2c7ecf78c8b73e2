/* What the spec, the kernels and the cases of moe_route share. */
#ifndef TG_OP_MOE_ROUTE_H
#define TG_OP_MOE_ROUTE_H

#include "teng/operator.h"

typedef struct tg_moe_route_attr {
    int64_t top_k;
    int64_t renormalise; /* 1: the weights of a token sum to one */
} tg_moe_route_attr;

#endif
