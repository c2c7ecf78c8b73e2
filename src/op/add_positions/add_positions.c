/* add_positions: learned position embeddings added to a sequence. Its gradients are made of sum and
 * slice_grad. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/slice/slice.h"
#include "op/want.h"
#include "teng/ops.h"

static teng_status infer(teng_op_call *call)
{
    const teng_desc *x = &call->in[0], *table = &call->in[1];
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 2));
    if (table->ndim != 2 || table->dims[1] != x->dims[x->ndim - 1] || table->dtype != x->dtype)
        return tg_fail(TENG_INVALID, "x is %s and table is %s; table must be [positions, %lld] in x's dtype",
                       tg_desc_text(a, x), tg_desc_text(b, table), (long long)x->dims[x->ndim - 1]);
    if (x->dims[x->ndim - 2] > table->dims[0])
        return tg_fail(
            TENG_INVALID,
            "sequence %lld is longer than the %lld positions: shorten the sequence or give the model more "
            "positions",
            (long long)x->dims[x->ndim - 2], (long long)table->dims[0]);
    call->out[0] = *x;
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const teng_src at = {NULL, 0};
    const teng_desc *x = teng_tensor_desc(ctx->in[0]), *table = teng_tensor_desc(ctx->in[1]);
    if (ctx->need[0]) ctx->in_grad[0] = ctx->out_grad[0];
    if (!ctx->need[1]) return TENG_OK;
    teng_dims batch = {.n = x->ndim - 2};
    for (int i = 0; i < x->ndim - 2; i++)
        batch.v[i] = i;
    teng_tensor *g = batch.n ? teng_sum_at(at, ctx->out_grad[0], batch, false) : ctx->out_grad[0];
    const tg_slice_attr pad = {0, 0, table->dims[0]};
    if (table->dims[0] > x->dims[x->ndim - 2]) g = teng_apply(at, &tg_op_slice_grad, &pad, 1, &g, NULL);
    ctx->in_grad[1] = g;
    return g ? TENG_OK : teng_error_status();
}

/* Positions may be split only where every position is in use: a shard counts its rows from 0. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const int ndim = call->in[0].ndim, t = ndim - 2;
    for (int i = 0; i < ndim; i++) {
        if (i == t && call->in[0].dims[t] != call->in[1].dims[0]) continue;
        const teng_place p = (teng_place)i, table = i < t ? TENG_REPLICATED : (teng_place)(i - t);
        teng_place_add(rules, (teng_place[]){p, table}, &p);
    }
    teng_place_add(rules, (teng_place[]){TENG_PARTIAL, TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_add_positions_kernels);

const teng_op_spec tg_op_add_positions = {
    .name = "add_positions",
    .doc = "y[..., t, :] = x[..., t, :] + table[t, :]: x [..., T, C], table [P, C], T <= P (Radford et al. "
           "2019, GPT-2).",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .inplace = {1},
    .infer = infer,
    .grad = grad,
    .place = place,
    .cost = cost,
    .kernels = tg_add_positions_kernels_tables,
};

teng_tensor *teng_add_positions_at(teng_src at, teng_tensor *x, teng_tensor *table)
{
    return teng_apply(at, &tg_op_add_positions, NULL, 2, (teng_tensor *[]){x, table}, NULL);
}
