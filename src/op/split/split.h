/* Attributes of split, shared by the spec, the kernel and the cases. */
#ifndef TG_OP_SPLIT_H
#define TG_OP_SPLIT_H

#include "teng/operator.h"

typedef struct tg_split_attr {
    int64_t axis;
    teng_dims sizes; /* one for each output; their sum is the axis */
} tg_split_attr;

#endif
