/* Attributes of slice and slice_grad, shared by the spec, the kernels and the cases. */
#ifndef TG_OP_SLICE_H
#define TG_OP_SLICE_H

#include <stdint.h>

typedef struct tg_slice_attr {
    int64_t axis, begin;
    int64_t size; /* slice: elements taken along axis; slice_grad: elements of the whole axis */
} tg_slice_attr;

#endif
