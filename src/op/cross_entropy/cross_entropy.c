/*
 * cross_entropy: the mean loss of labels under logits, and its gradient. log Σ exp of each row is kept for
 * the gradient as a second output. linear_cross_entropy fuses this with the output projection; this one
 * serves logits that exist.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"ignore_index", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer_inputs(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "logits"));
    TG_TRY(tg_want_ndim(call, 0, "logits", 1));
    TG_TRY(tg_want_dtype(call, 1, "labels", TENG_I32));
    const teng_desc rows = tg_desc_rows(&call->in[0], TENG_I32);
    return tg_want_dims(call, 1, "labels", &rows, "logits without their last dimension");
}

static teng_status infer(teng_op_call *call)
{
    TG_TRY(infer_inputs(call));
    if (call->n_in > 2) TG_TRY(tg_want_scalar(call, 2, "valid"));
    call->out[0] = tg_desc_make(TENG_F32, 0, NULL);
    call->out[1] = tg_desc_rows(&call->in[0], TENG_F32);
    return TENG_OK;
}

static teng_status infer_grad(teng_op_call *call)
{
    TG_TRY(infer_inputs(call));
    const teng_desc rows = tg_desc_rows(&call->in[0], TENG_F32);
    TG_TRY(tg_want_dtype(call, 2, "lse", TENG_F32));
    TG_TRY(tg_want_dims(call, 2, "lse", &rows, "logits without their last dimension"));
    TG_TRY(tg_want_scalar(call, 3, "dy"));
    if (call->n_in > 4) TG_TRY(tg_want_scalar(call, 4, "valid"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    if (ctx->out_grad[1])
        return tg_fail(TENG_UNSUPPORTED, "lse is for the gradient's own use; no gradient flows into it");
    teng_tensor *in[] = {ctx->in[0], ctx->in[1], ctx->out[1], ctx->out_grad[0],
                         ctx->n_in > 2 ? ctx->in[2] : NULL};
    ctx->in_grad[0] =
        teng_apply((teng_src){NULL, 0}, &tg_op_cross_entropy_grad, ctx->attr, ctx->n_in + 2, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 11.0 * (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_cross_entropy_kernels);
TG_CPU_TABLES(tg_cross_entropy_grad_kernels);

/* The mean is over the valid labels of all rows: a shard of rows must be told how many there are. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    if (call->n_in > 2) tg_place_rows(call, rules, 1, 3, 2);
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_linear(call, rules, 8);
    if (call->n_in > 4) tg_place_rows(call, rules, 1, 7, 1);
}

const teng_op_spec tg_op_cross_entropy = {
    .name = "cross_entropy",
    .doc = "loss = mean over rows with label != ignore_index of lse - logits[label], lse = log Σ exp(logits) "
           "in f32; 0 when "
           "no row is valid. logits [..., V], labels i32 [...]. Outputs loss f32 and, for the gradient, lse "
           "f32 of each row "
           "(0 in rows that are ignored). A label outside 0 … V - 1 is an error of the run. An optional "
           "input valid f32 "
           "scalar is divided by in place of the number of valid rows: theirs on all ranks.",
    .min_in = 2,
    .max_in = 3,
    .n_out = 2,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_in = 7,
    .grad_out = 2,
    .place = place,
    .cost = cost,
    .kernels = tg_cross_entropy_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

const teng_op_spec tg_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .doc = "dlogits = (exp(logits - lse) - [label]) · dy / number of valid labels; 0 in rows that are "
           "ignored. Inputs logits, "
           "labels, lse, dy f32 scalar, and optionally valid as in cross_entropy.",
    .min_in = 4,
    .max_in = 5,
    .n_out = 1,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .inplace = {1},
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost,
    .kernels = tg_cross_entropy_grad_kernels_tables,
};

teng_tensor *teng_cross_entropy_at(teng_src at, teng_tensor *logits, teng_tensor *labels,
                                   int64_t ignore_index)
{
    return teng_apply(at, &tg_op_cross_entropy, &ignore_index, 2, (teng_tensor *[]){logits, labels}, NULL);
}
