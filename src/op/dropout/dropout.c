/*
 * dropout: inverted dropout (Srivastava et al. 2014). It is linear in x, so its gradient is itself on dy with
 * the same draws; no mask is ever stored.
 */
#include "op/dropout/dropout.h"

#include "graph/graph.h"
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

#include <stddef.h>

static teng_status infer(teng_op_call *call)
{
    const tg_dropout_attr *attr = call->attr;
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "x"));
    const teng_desc *rng = &call->in[1];
    if (rng->dtype != TENG_U64 || rng->ndim != 1 || rng->dims[0] != 2)
        return tg_fail(TENG_INVALID, "rng is %s; it must be u64[2], (key, step)", tg_desc_text(text, rng));
    if (!(attr->p >= 0 && attr->p < 1))
        return tg_fail(TENG_INVALID, "p is %g; it must be in [0, 1)", attr->p);
    if (attr->stream < 0 || attr->stream >= TG_DROPOUT_STREAMS)
        return tg_fail(TENG_INVALID, "stream is %lld; it must be in 0 … %lld", (long long)attr->stream,
                       (long long)TG_DROPOUT_STREAMS - 1);
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    ctx->in_grad[0] = teng_apply((teng_src){0}, &tg_op_dropout, ctx->attr, 2,
                                 (teng_tensor *[]){ctx->out_grad[0], ctx->in[1]}, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

/* No split: a shard's elements would draw by their local index. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_linear(call, rules, 1);
}

static void cost(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(12 * tg_desc_numel(&call->out[0]));
}

static const teng_attr_field fields[] = {{"p", TENG_ATTR_REAL, offsetof(tg_dropout_attr, p), NULL},
                                         {"stream", TENG_ATTR_INT, offsetof(tg_dropout_attr, stream), NULL},
                                         {0}};

TG_CPU_TABLES(tg_dropout_kernels);
const teng_op_spec tg_op_dropout = {
    .name = "dropout",
    .doc = "y = x / (1 - p) with probability 1 - p, else 0. rng u64[2] is (key, step); `stream` separates "
           "the dropouts of "
           "one model. Element i depends on (key, step, stream, i) alone (Philox4x32-10).",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(tg_dropout_attr),
    .attrs = fields,
    .traits = TENG_OP_ELEMENTWISE | TENG_OP_RANDOM,
    .inplace = {1},
    .infer = infer,
    .grad = grad,
    .grad_in = 2,
    .place = place,
    .cost = cost,
    .kernels = tg_dropout_kernels_tables,
};

teng_tensor *teng_dropout_at(teng_src at, teng_tensor *x, teng_tensor *rng, double p, int64_t stream)
{
    const tg_dropout_attr attr = {p, stream};
    if (p == 0 && x) return x;
    return teng_apply(at, &tg_op_dropout, &attr, 2, (teng_tensor *[]){x, rng}, NULL);
}
