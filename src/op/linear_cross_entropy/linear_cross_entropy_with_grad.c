/*
 * linear_cross_entropy_with_grad: the loss together with its gradients for dy = 1, for a forward pass that
 * will be differentiated. Since the loss is a scalar, its gradients need nothing of the backward pass but a
 * factor, and computing them while the logits of some rows are at hand saves the product that
 * linear_cross_entropy_grad spends on having the logits again: one in four. dx and dw are f32 whatever x and
 * w are, so that a loss scale meets them before they are rounded.
 *
 * linear_cross_entropy_by_vocabulary is the same on ranks that have a piece of the vocabulary each. It lacks
 * the trait TENG_OP_COMMUNICATES on purpose: a plan would run it on the thread of communication, beside other
 * computation, but it computes.
 */
#include "op/cpu_kernel.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"ignore_index", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    TG_TRY(tg_linear_ce_infer_inputs(call));
    if (call->n_in > 3) TG_TRY(tg_want_scalar(call, 3, "valid"));
    call->out[0] = tg_desc_make(TENG_F32, 0, NULL);
    call->out[1] = tg_desc_cast(&call->in[0], TENG_F32);
    call->out[2] = tg_desc_cast(&call->in[1], TENG_F32);
    return TENG_OK;
}

/* A parameter's own gradient stays f32 on its way through the cast that made its 16-bit copy. */
static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_src nowhere = {NULL, 0};
    if (ctx->out_grad[1] || ctx->out_grad[2])
        return tg_fail(TENG_UNSUPPORTED, "second derivatives are not provided");
    for (int i = 0; i < 2; i++) {
        if (!ctx->need[i]) continue;
        teng_tensor *g = teng_mul_at(nowhere, ctx->out[1 + i], ctx->out_grad[0]);
        const teng_dtype t = teng_tensor_desc(ctx->in[i])->dtype;
        ctx->in_grad[i] = g && !tg_op_is_cast_param(ctx->in[i]) ? teng_cast_at(nowhere, g, t) : g;
        if (!ctx->in_grad[i]) return teng_error_status();
    }
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    if (call->n_in > 3) tg_place_rows(call, rules, 2, 5, 2);
}

/* ---- by pieces of the vocabulary ---- */
static const teng_attr_field ranks_fields[] = {
    {"ignore_index", TENG_ATTR_INT, offsetof(tg_linear_ce_ranks_attr, ignore_index), NULL},
    {"axes", TENG_ATTR_INT, offsetof(tg_linear_ce_ranks_attr, axes), NULL},
    {"parts", TENG_ATTR_INT, offsetof(tg_linear_ce_ranks_attr, parts), NULL},
    {"begin", TENG_ATTR_INT, offsetof(tg_linear_ce_ranks_attr, begin), NULL},
    {"total", TENG_ATTR_INT, offsetof(tg_linear_ce_ranks_attr, total), NULL},
    {0},
};

static teng_status infer_ranks(teng_op_call *call)
{
    const tg_linear_ce_ranks_attr *attr = call->attr;
    TG_TRY(infer(call));
    if (attr->parts < 1)
        return tg_fail(TENG_INVALID, "parts is %lld; it must be at least 1", (long long)attr->parts);
    return tg_want_piece("w has", call->in[1].dims[0], attr->begin, attr->total);
}

static void place_ranks(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    place(call, rules);
    teng_place_add(rules, (teng_place[]){R, 0, R, R}, (teng_place[]){R, P, 0});
}

static void localize_ranks(const teng_op_call *call, const teng_place *in, const teng_place *out,
                           int64_t parts, int64_t index, void *attr)
{
    tg_linear_ce_ranks_attr *a = attr;
    (void)out;
    if (in[1] != 0) return;
    tg_place_cut_vocabulary(call->in[1].dims[0], parts, index, &a->begin, &a->total);
    a->parts *= parts;
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 6.0 * (double)tg_desc_numel(&call->in[0]) * (double)call->in[1].dims[0];
}

TG_CPU_TABLES(tg_linear_cross_entropy_with_grad_kernels);
TG_CPU_TABLES(tg_linear_cross_entropy_by_vocabulary_kernels);

const teng_op_spec tg_op_linear_cross_entropy_with_grad = {
    .name = "linear_cross_entropy_with_grad",
    .doc =
        "loss as linear_cross_entropy, and its gradients: with dlogits = (softmax(x · wᵀ) - [label]) / "
        "number of "
        "valid labels, 0 in rows that are ignored, dx = dlogits · w and dw = dlogitsᵀ · x. x [..., C], w "
        "[V, C], "
        "labels i32 [...]; outputs loss, dx [..., C] and dw [V, C] in f32. Logits exist some rows at a "
        "time. A "
        "label outside 0 … V - 1 is an error of the run. An optional input valid as in linear_cross_entropy.",
    .min_in = 3,
    .max_in = 4,
    .n_out = 3,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_out = 6,
    .place = place,
    .cost = cost,
    .kernels = tg_linear_cross_entropy_with_grad_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

const teng_op_spec tg_op_linear_cross_entropy_by_vocabulary = {
    .name = "linear_cross_entropy_by_vocabulary",
    .doc = "linear_cross_entropy_with_grad on `parts` ranks along axes that have pieces of the vocabulary: w "
           "[V, C] "
           "holds entries begin … begin + V - 1 of total (0: all of it). loss is of the whole vocabulary, dx "
           "this "
           "rank's summand, dw of its piece. For each row the ranks tell each other three numbers. A label "
           "outside "
           "the vocabulary is an error of the run.",
    .min_in = 3,
    .max_in = 4,
    .n_out = 3,
    .attr_size = sizeof(tg_linear_ce_ranks_attr),
    .attrs = ranks_fields,
    .infer = infer_ranks,
    .no_grad = "it is put into graphs after differentiation",
    .place = place_ranks,
    .localize = localize_ranks,
    .cost = cost,
    .kernels = tg_linear_cross_entropy_by_vocabulary_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};
