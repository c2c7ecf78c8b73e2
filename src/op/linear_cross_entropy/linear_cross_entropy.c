/*
 * linear_cross_entropy: the output projection and the loss in one, so that the logits [rows, V], the largest
 * tensor of a language model's step, never exist. The forward pass keeps log Σ exp of each row; the gradient
 * computes the logits again, a tile at a time. That is one product in four more than keeping them, and the
 * forward pass alone costs no more than a loss needs. A forward pass that will be differentiated takes
 * linear_cross_entropy_with_grad instead. Not here: logits for people (matmul) and the loss of given logits
 * (cross_entropy).
 */
#include "op/linear_cross_entropy/linear_cross_entropy.h"

#include "graph/graph.h"
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"ignore_index", TENG_ATTR_INT, 0, NULL}, {0}};
static const char *const output_names[] = {"dx_dw", "dx", "dw", NULL};
static const teng_attr_field grad_fields[] = {
    {"ignore_index", TENG_ATTR_INT, 0, NULL},
    {"outputs", TENG_ATTR_INT, offsetof(tg_linear_ce_attr, outputs), output_names},
    {"begin", TENG_ATTR_INT, offsetof(tg_linear_ce_attr, begin), NULL},
    {"total", TENG_ATTR_INT, offsetof(tg_linear_ce_attr, total), NULL},
    {0},
};

teng_status tg_linear_ce_infer_inputs(const teng_op_call *call)
{
    const teng_desc *x = &call->in[0], *w = &call->in[1];
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    const int64_t c = x->dims[x->ndim - 1];
    if (w->ndim != 2 || w->dims[1] != c || w->dtype != x->dtype)
        return tg_fail(TENG_INVALID, "x is %s and w is %s; w must be [V,%lld] in %s", tg_desc_text(a, x),
                       tg_desc_text(b, w), (long long)c, teng_dtype_name(x->dtype));
    if (!c || !w->dims[0])
        return tg_fail(TENG_INVALID, "x is %s and w is %s; neither C nor V may be 0", tg_desc_text(a, x),
                       tg_desc_text(b, w));
    TG_TRY(tg_want_dtype(call, 2, "labels", TENG_I32));
    const teng_desc rows = tg_desc_rows(x, TENG_I32);
    return tg_want_dims(call, 2, "labels", &rows, "x without its last dimension");
}

static teng_status infer(teng_op_call *call)
{
    TG_TRY(tg_linear_ce_infer_inputs(call));
    if (call->n_in > 3) TG_TRY(tg_want_scalar(call, 3, "valid"));
    call->out[0] = tg_desc_make(TENG_F32, 0, NULL);
    call->out[1] = tg_desc_rows(&call->in[0], TENG_F32);
    return TENG_OK;
}

static teng_status infer_grad(teng_op_call *call)
{
    const tg_linear_ce_attr *attr = call->attr;
    TG_TRY(tg_linear_ce_infer_inputs(call));
    const teng_desc rows = tg_desc_rows(&call->in[0], TENG_F32);
    TG_TRY(tg_want_dtype(call, 3, "lse", TENG_F32));
    TG_TRY(tg_want_dims(call, 3, "lse", &rows, "x without its last dimension"));
    TG_TRY(tg_want_scalar(call, 4, "dy"));
    if (call->n_in > 5) TG_TRY(tg_want_scalar(call, 5, "valid"));
    if (attr->outputs < TG_LINEAR_CE_BOTH || attr->outputs > TG_LINEAR_CE_DW)
        return tg_fail(TENG_INVALID, "outputs is %lld; it must be 0 (dx and dw), 1 (dx) or 2 (dw)",
                       (long long)attr->outputs);
    TG_TRY(tg_want_piece("w has", call->in[1].dims[0], attr->begin, attr->total));
    const teng_dtype t = call->in[0].dtype;
    call->n_out = 0;
    if (attr->outputs != TG_LINEAR_CE_DW) call->out[call->n_out++] = tg_desc_cast(&call->in[0], t);
    if (attr->outputs != TG_LINEAR_CE_DX) call->out[call->n_out++] = tg_desc_cast(&call->in[1], t);
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    if (ctx->out_grad[1])
        return tg_fail(TENG_UNSUPPORTED, "lse is for the gradient's own use; no gradient flows into it");
    const bool *need = ctx->need;
    if (!need[0] && !need[1]) return TENG_OK;
    const tg_linear_ce_attr attr = {.ignore_index = *(const int64_t *)ctx->attr,
                                    .outputs = need[0] && need[1] ? TG_LINEAR_CE_BOTH
                                               : need[0]          ? TG_LINEAR_CE_DX
                                                                  : TG_LINEAR_CE_DW};
    teng_tensor *in[] = {ctx->in[0],  ctx->in[1],       ctx->in[2],
                         ctx->out[1], ctx->out_grad[0], ctx->n_in > 3 ? ctx->in[3] : NULL},
                *out[2];
    if (!teng_apply((teng_src){NULL, 0}, &tg_op_linear_cross_entropy_grad, &attr, ctx->n_in + 2, in, out))
        return teng_error_status();
    if (need[0]) ctx->in_grad[0] = out[0];
    if (need[1]) ctx->in_grad[1] = out[need[0] ? 1 : 0];
    return TENG_OK;
}

/* The mean is over the valid labels of all rows: a shard of rows must be told how many there are. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    if (call->n_in > 3) tg_place_rows(call, rules, 2, 5, 2);
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    const bool dx = ((const tg_linear_ce_attr *)call->attr)->outputs != TG_LINEAR_CE_DW;
    tg_place_linear(call, rules, 16);
    if (call->n_in > 5) tg_place_rows(call, rules, 2, 13, dx);
    /* a piece of the vocabulary: lse is of all of it */
    teng_place in[6] = {TENG_REPLICATED, 0, TENG_REPLICATED, TENG_REPLICATED, TENG_REPLICATED,
                        TENG_REPLICATED};
    teng_place_add(rules, in, dx ? (teng_place[]){TENG_PARTIAL, 0} : (teng_place[]){0});
}

static void localize_grad(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    tg_linear_ce_attr *a = attr;
    (void)out;
    if (in[1] == 0) tg_place_cut_vocabulary(call->in[1].dims[0], parts, index, &a->begin, &a->total);
}

static double product(const teng_op_call *call)
{
    return 2.0 * (double)tg_desc_numel(&call->in[0]) * (double)call->in[1].dims[0];
}
static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = product(call);
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = product(call) * (1 + call->n_out);
}

TG_CPU_TABLES(tg_linear_cross_entropy_kernels);
TG_CPU_TABLES(tg_linear_cross_entropy_grad_kernels);

const teng_op_spec tg_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .doc = "loss = mean over rows with label != ignore_index of lse - logits[label], logits = x · wᵀ in f32, "
           "lse = log "
           "Σ exp(logits); 0 when no row is valid. x [..., C], w [V, C], labels i32 [...]. Outputs loss f32 "
           "and, for "
           "the gradient, lse f32 of each row (0 in rows that are ignored). Logits exist a tile at a time. A "
           "label "
           "outside 0 … V - 1 is an error of the run. An optional input valid f32 scalar is divided by in "
           "place of the "
           "number of valid rows: theirs on all ranks.",
    .min_in = 3,
    .max_in = 4,
    .n_out = 2,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_in = 15,
    .grad_out = 2,
    .place = place,
    .cost = cost,
    .kernels = tg_linear_cross_entropy_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

const teng_op_spec tg_op_linear_cross_entropy_grad = {
    .name = "linear_cross_entropy_grad",
    .doc = "With dlogits = (exp(x · wᵀ - lse) - [label]) · dy / number of valid labels, 0 in rows that are "
           "ignored: "
           "dx = dlogits · w, dw = dlogitsᵀ · x. Inputs x, w, labels, lse, dy f32 scalar, and optionally "
           "valid as in "
           "linear_cross_entropy; outputs dx and dw, or the one that the attribute outputs "
           "names. total > 0: w holds entries begin … begin + V - 1 of a vocabulary of "
           "total, lse "
           "is of all of it, and so dx is a summand.",
    .min_in = 5,
    .max_in = 6,
    .n_out = -1,
    .attr_size = sizeof(tg_linear_ce_attr),
    .attrs = grad_fields,
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .localize = localize_grad,
    .cost = cost_grad,
    .kernels = tg_linear_cross_entropy_grad_kernels_tables,
};

teng_tensor *teng_linear_cross_entropy_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *labels,
                                          int64_t ignore_index)
{
    const tg_trace *trace = tg_trace_current();
    const teng_op_spec *op =
        trace && trace->differentiate ? &tg_op_linear_cross_entropy_with_grad : &tg_op_linear_cross_entropy;
    return teng_apply(at, op, &ignore_index, 3, (teng_tensor *[]){x, w, labels}, NULL);
}
