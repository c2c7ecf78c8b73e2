/*
 * Checks that the operators' infer functions share. Each names the input, what it is and what it must be; the
 * graph prepends the operator, the layer and the user's line. Not here: rules of one operator alone.
 */
#ifndef TG_OP_WANT_H
#define TG_OP_WANT_H

#include "teng/operator.h"

#include "base/fail.h"
#include "tensor/desc.h"

/* Input i, called `name`, is f32, bf16 or f16. */
teng_status tg_want_float(const teng_op_call *call, int i, const char *name);
teng_status tg_want_dtype(const teng_op_call *call, int i, const char *name, teng_dtype dtype);
/* Input i has exactly these dimensions: those of `d`. `of` says whose ("x without its last dimension"). */
teng_status tg_want_dims(const teng_op_call *call, int i, const char *name, const teng_desc *d,
                         const char *of);
/* Input i has the dtype and dimensions of input j. */
teng_status tg_want_like(const teng_op_call *call, int i, const char *name, int j, const char *other);
/* Input i is an f32 scalar. */
teng_status tg_want_scalar(const teng_op_call *call, int i, const char *name);
/* Input i is a vector [n] of f32 or of the dtype of input 0 ("x"). */
teng_status tg_want_weight(const teng_op_call *call, int i, const char *name, int64_t n);
/* Input i ("positions") is i32[n]: where in its sequence each row stands. */
teng_status tg_want_positions(const teng_op_call *call, int i, int64_t n);
/* Input i has at least `ndim` dimensions. */
teng_status tg_want_ndim(const teng_op_call *call, int i, const char *name, int ndim);
/* `entries` from begin on are a piece of a vocabulary of total, or (both 0) all of it; "w has": who has them.
 */
teng_status tg_want_piece(const char *who, int64_t entries, int64_t begin, int64_t total);
/* Axis (negative counts from the end) of input 0 ("x") in *out. */
teng_status tg_want_axis(const teng_op_call *call, int64_t axis, int *out);

/* The description without its last dimension, in another dtype. */
teng_desc tg_desc_rows(const teng_desc *d, teng_dtype dtype);
/* Same dimensions, another dtype. */
teng_desc tg_desc_cast(const teng_desc *d, teng_dtype dtype);
/* A 16-bit copy of an f32 parameter: the parameter's gradient is best summed in f32, which the cast hands on.
 */
bool tg_op_is_cast_param(const teng_tensor *t);
/* axis counted from the front when it is valid for x, else unchanged (infer then reports it). */
int64_t tg_axis_of(const teng_tensor *x, int64_t axis);

#endif
