/* What the spec, the kernels and the cases of linear_cross_entropy share. */
#ifndef TG_OP_LINEAR_CROSS_ENTROPY_H
#define TG_OP_LINEAR_CROSS_ENTROPY_H

#include "teng/operator.h"

typedef struct tg_linear_ce_attr { /* of linear_cross_entropy: the first member alone */
    int64_t ignore_index;
    int64_t outputs; /* of the gradient: one of the below */
} tg_linear_ce_attr;
enum { TG_LINEAR_CE_BOTH, TG_LINEAR_CE_DX, TG_LINEAR_CE_DW };

/* Checks x, w and labels. */
teng_status tg_linear_ce_infer_inputs(const teng_op_call *call);

#endif
