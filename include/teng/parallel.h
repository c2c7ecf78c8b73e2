/*
 * Marks for many ranks: which tensors of a model are split, and along which axis of the mesh. A few marks are
 * enough; what is not marked follows from the operators. Without many ranks a mark changes nothing. The
 * built-in families have theirs.
 */
#ifndef TENG_PARALLEL_H
#define TENG_PARALLEL_H

#include "teng/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum teng_axis { TENG_AXIS_DATA, TENG_AXIS_EXPERT, TENG_AXIS_CONTEXT, TENG_AXIS_TENSOR } teng_axis;

/* Says that t (a parameter's value, or what an operator gave) is split along dimension `dim` (negative: from
 * the end) among the ranks of the axis; the dimension must be a multiple of their number. Returns t, NULL and
 * an error when t is NULL or lacks the dimension. */
TENG_API teng_tensor *teng_shard(teng_tensor *t, teng_axis axis, int dim);

#ifdef __cplusplus
}
#endif
#endif
