/*
 * add_positions: learned position embeddings added to a sequence. Its gradients are made of sum and
 * slice_grad: the latter also where all positions are in use, since it knows what to do with a shard of the
 * sequence.
 */
#include "op/add_positions/add_positions.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/slice/slice.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {
    {"begin", TENG_ATTR_INT, offsetof(tg_add_positions_attr, rows.begin), NULL},
    {"turn", TENG_ATTR_INT, offsetof(tg_add_positions_attr, rows.turn), NULL},
    {"later", TENG_ATTR_INT, offsetof(tg_add_positions_attr, rows.later), NULL},
    {0},
};

static teng_status infer(teng_op_call *call)
{
    const teng_desc *x = &call->in[0], *table = &call->in[1];
    const tg_row_map *rows = call->attr;
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "x"));
    TG_TRY(tg_want_ndim(call, 0, "x", 2));
    if (table->ndim != 2 || table->dims[1] != x->dims[x->ndim - 1] || table->dtype != x->dtype)
        return tg_fail(TENG_INVALID, "x is %s and table is %s; table must be [positions, %lld] in x's dtype",
                       tg_desc_text(a, x), tg_desc_text(b, table), (long long)x->dims[x->ndim - 1]);
    const int64_t t = x->dims[x->ndim - 2], first = rows->turn ? rows->turn : t;
    if (rows->begin < 0 || rows->turn < 0 || rows->later < 0 || first > t)
        return tg_fail(TENG_INVALID, "begin is %lld, turn %lld, later %lld and x has %lld rows",
                       (long long)rows->begin, (long long)rows->turn, (long long)rows->later, (long long)t);
    if ((rows->begin || rows->turn) &&
        (first > table->dims[0] - rows->begin || t - first > table->dims[0] - rows->later))
        return tg_fail(TENG_INVALID, "%lld rows from %lld on and %lld from %lld on leave the %lld positions",
                       (long long)first, (long long)rows->begin, (long long)(t - first),
                       (long long)rows->later, (long long)table->dims[0]);
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
    const tg_row_map *rows = ctx->attr;
    const tg_slice_grad_attr pad = {{0, rows->begin, table->dims[0]}, rows->turn, rows->later};
    g = teng_apply(at, &tg_op_slice_grad, &pad, 1, &g, NULL);
    ctx->in_grad[1] = g;
    return g ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const teng_place c = (teng_place)(call->in[0].ndim - 1);
    for (teng_place d = 0; d < c; d++)
        teng_place_add(rules, (teng_place[]){d, TENG_REPLICATED}, &d);
    teng_place_add(rules, (teng_place[]){c, 1}, &c);
    teng_place_add(rules, (teng_place[]){TENG_PARTIAL, TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    tg_row_map *rows = attr;
    const int t = call->in[0].ndim - 2;
    (void)out;
    if (in[0] == t) *rows = tg_row_map_cut(*rows, call->in[0].dims[t], parts, index);
}

static void localize_pair(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    tg_row_map *rows = attr;
    const int t = call->in[0].ndim - 2;
    (void)out;
    if (in[0] == t) *rows = tg_row_map_pair(*rows, call->in[0].dims[t], parts, index);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_add_positions_kernels);

const teng_op_spec tg_op_add_positions = {
    .name = "add_positions",
    .doc = "y[..., t, :] = x[..., t, :] + table[t, :]: x [..., T, C], table [P, C], T <= P (Radford et al. "
           "2019, GPT-2). Of a shard of the sequence: row t takes row begin + t of the table, from row turn "
           "on (0: "
           "nowhere) row later + t - turn.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(tg_add_positions_attr),
    .attrs = fields,
    .inplace = {1},
    .infer = infer,
    .grad = grad,
    .place = place,
    .localize = localize,
    .localize_pair = localize_pair,
    .cost = cost,
    .kernels = tg_add_positions_kernels_tables,
};

teng_tensor *teng_add_positions_at(teng_src at, teng_tensor *x, teng_tensor *table)
{
    const tg_add_positions_attr all = {{0, 0, 0}};
    return teng_apply(at, &tg_op_add_positions, &all, 2, (teng_tensor *[]){x, table}, NULL);
}
