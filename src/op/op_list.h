/* Specs of the built-in operators by symbol (tg_op_matmul, …) and their registration. */
#ifndef TG_OP_OP_LIST_H
#define TG_OP_OP_LIST_H

#include "graph/op_table.h"

#define OP(symbol) extern const teng_op_spec tg_op_##symbol;
#include "op/ops.def"
#undef OP

/* Fills the operator table once; safe to call again. */
teng_status tg_op_register_builtin(void);

/* Attributes that rooms above the operators set themselves. */
typedef struct tg_adamw_attr { /* Loshchilov & Hutter 2019, as torch.optim.AdamW */
    double beta1, beta2, eps, weight_decay;
} tg_adamw_attr;
/* adamw: in param f32, grad f32/bf16/f16, m f32, v f32, scalars f32[4] = {lr, 1 - beta1^t, 1 - beta2^t,
 * reserved}, coef f32[] (optional: the gradient is multiplied by it); out param, m, v: updates 0, 2, 3. A
 * coef that is not finite drops the step: nothing is changed (sgd too). p ← p - lr·wd·p;  m ← β1 m + (1-β1)
 * g;  v ← β2 v + (1-β2) g²;  p ← p - lr · (m/bc1) / (√(v/bc2) + eps) */
typedef struct tg_sgd_attr {
    double momentum, weight_decay;
    int64_t nesterov;
} tg_sgd_attr;
/* sgd: in param, grad, buf (momentum, f32), scalars f32[4] as above, coef (optional); out param, buf: updates
 * 0, 2. As torch.optim.SGD with dampening 0: g ← g + wd·p; buf ← momentum·buf + g; p ← p - lr·(nesterov ? g +
 * momentum·buf : buf). */

/* accumulate: in acc f32, grad (any floating dtype), beta f32[]; out acc ← beta·acc + grad (beta 0:
 * overwritten, the old value is not read); updates 0. */
/* sum_squares: any number of tensors in → f32[] Σ x², summed in double by fixed blocks. */
/* count_valid: in labels i32 [...], attribute int64_t ignore_index; out f32[] how many labels are not that.
 * Summed over ranks it is the optional last input `valid` of the losses. */
typedef struct tg_clip_attr {
    double max_norm; /* 0: never clips */
} tg_clip_attr;
/* clip_coef: in sum of squares f32[], inv_scale f32[] (1 / loss scale) → coef f32[], grad_norm f32[]: norm =
 * √s · inv_scale; coef = inv_scale · min(1, max_norm / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_; a
 * norm that is not finite gives coef NaN. */

#endif
