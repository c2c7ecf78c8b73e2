/* Attributes of slice and slice_grad, shared by the spec, the kernels and the cases. */
#ifndef TG_OP_SLICE_H
#define TG_OP_SLICE_H

#include "op/row_map.h"

typedef struct tg_slice_attr {
    int64_t axis, begin;
    int64_t size; /* slice: elements taken along axis; slice_grad: elements of the whole axis */
} tg_slice_attr;
/* slice_grad, of a shard: from element `turn` of x on (0: nowhere) they stand from `later` on. */
typedef struct tg_slice_grad_attr {
    tg_slice_attr slice;
    int64_t turn, later;
} tg_slice_grad_attr;

#endif
