/*
 * cross_entropy: the mean loss of labels under logits, and its gradient. log Σ exp of each row is kept for
 * the gradient as a second output. linear_cross_entropy fuses this with the output projection; this one
 * serves logits that exist. logits_lse is its first step where ranks have a piece of the vocabulary each, as
 * linear_cross_entropy.h tells.
 */
#include "op/cross_entropy/cross_entropy.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"ignore_index", TENG_ATTR_INT, 0, NULL}, {0}};
#define PIECE_FIELDS                                                                                         \
    {"ignore_index", TENG_ATTR_INT, 0, NULL},                                                                \
        {"begin", TENG_ATTR_INT, offsetof(tg_cross_entropy_attr, begin), NULL},                              \
    {                                                                                                        \
        "total", TENG_ATTR_INT, offsetof(tg_cross_entropy_attr, total), NULL                                 \
    }
static const teng_attr_field grad_fields[] = {PIECE_FIELDS, {0}};
static const teng_attr_field lse_fields[] = {
    PIECE_FIELDS, {"parts", TENG_ATTR_INT, offsetof(tg_logits_lse_attr, parts), NULL}, {0}};

static teng_status infer_inputs(teng_op_call *call)
{
    TG_TRY(tg_want_float(call, 0, "logits"));
    TG_TRY(tg_want_ndim(call, 0, "logits", 1));
    TG_TRY(tg_want_dtype(call, 1, "labels", TENG_I32));
    const teng_desc rows = tg_desc_rows(&call->in[0], TENG_I32);
    return tg_want_dims(call, 1, "labels", &rows, "logits without their last dimension");
}

static teng_status want_piece(const teng_op_call *call)
{
    const tg_cross_entropy_attr *a = call->attr;
    return tg_want_piece("logits have", call->in[0].dims[call->in[0].ndim - 1], a->begin, a->total);
}

static teng_status infer_lse(teng_op_call *call)
{
    const tg_logits_lse_attr *a = call->attr;
    char text[TG_DESC_TEXT];
    TG_TRY(infer_inputs(call));
    TG_TRY(want_piece(call));
    teng_desc rows = tg_desc_rows(&call->in[0], TENG_F32);
    if (a->parts < 1 || a->parts > call->in[0].dims[rows.ndim])
        return tg_fail(TENG_INVALID, "parts is %lld; logits are %s, which make 1 to %lld pieces",
                       (long long)a->parts, tg_desc_text(text, &call->in[0]),
                       (long long)call->in[0].dims[rows.ndim]);
    call->out[1] = rows;
    rows.dims[rows.ndim++] = a->parts;
    call->out[0] = rows;
    return TENG_OK;
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
    TG_TRY(want_piece(call));
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
    const tg_cross_entropy_attr attr = {.ignore_index = *(const int64_t *)ctx->attr};
    ctx->in_grad[0] =
        teng_apply((teng_src){NULL, 0}, &tg_op_cross_entropy_grad, &attr, ctx->n_in + 2, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 11.0 * (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_cross_entropy_kernels);
TG_CPU_TABLES(tg_cross_entropy_grad_kernels);
TG_CPU_TABLES(tg_logits_lse_kernels);

/* The mean is over the valid labels of all rows: a shard of rows must be told how many there are. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    if (call->n_in > 2) tg_place_rows(call, rules, 1, 3, 2);
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_linear(call, rules, 8);
    if (call->n_in > 4) tg_place_rows(call, rules, 1, 7, 1);
    enum { R = TENG_REPLICATED }; /* a piece of the vocabulary: lse is of all of it */
    const teng_place last = (teng_place)(call->in[0].ndim - 1);
    teng_place_add(rules, (teng_place[]){last, R, R, R, R}, &last);
}

static void place_lse(const teng_op_call *call, teng_place_rules *rules)
{
    const teng_place last = (teng_place)(call->in[0].ndim - 1);
    tg_place_rows(call, rules, 1, 3, 3);
    teng_place_add(rules, (teng_place[]){last, TENG_REPLICATED}, (teng_place[]){last, TENG_PARTIAL});
}

/* Whether the vocabulary is cut. */
static bool cut_piece(const teng_op_call *call, const teng_place *in, int64_t parts, int64_t index,
                      tg_cross_entropy_attr *a)
{
    const teng_desc *logits = &call->in[0];
    if (in[0] != logits->ndim - 1) return false;
    tg_place_cut_vocabulary(logits->dims[in[0]], parts, index, &a->begin, &a->total);
    return true;
}

static void localize_grad(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    (void)out;
    cut_piece(call, in, parts, index, attr);
}

static void localize_lse(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                         int64_t index, void *attr)
{
    tg_logits_lse_attr *a = attr;
    (void)out;
    if (cut_piece(call, in, parts, index, &a->piece)) a->parts /= parts;
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
           "labels, lse, dy f32 scalar, and optionally valid as in cross_entropy. total > 0: logits are "
           "entries begin … begin + V - 1 of a "
           "vocabulary of total, of all of which lse is.",
    .min_in = 4,
    .max_in = 5,
    .n_out = 1,
    .attr_size = sizeof(tg_cross_entropy_attr),
    .attrs = grad_fields,
    .inplace = {1},
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .localize = localize_grad,
    .cost = cost,
    .kernels = tg_cross_entropy_grad_kernels_tables,
};

const teng_op_spec tg_op_logits_lse = {
    .name = "logits_lse",
    .doc = "Of logits [..., V], in `parts` pieces as even as can be: lse f32 [..., parts], log Σ exp over "
           "each piece, "
           "and hit f32 [...], the label's logit; both 0 in rows that are ignored. labels i32 [...]. begin "
           "and total as "
           "in cross_entropy_grad: a label of another piece has hit 0.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .attr_size = sizeof(tg_logits_lse_attr),
    .attrs = lse_fields,
    .infer = infer_lse,
    .no_grad = "it is put into graphs after differentiation, beside cross_entropy_grad",
    .place = place_lse,
    .localize = localize_lse,
    .cost = cost,
    .kernels = tg_logits_lse_kernels_tables,
    .precision = TENG_PRECISION_NORM,
};

teng_tensor *teng_cross_entropy_at(teng_src at, teng_tensor *logits, teng_tensor *labels,
                                   int64_t ignore_index)
{
    return teng_apply(at, &tg_op_cross_entropy, &ignore_index, 2, (teng_tensor *[]){logits, labels}, NULL);
}
