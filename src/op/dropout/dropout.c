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

/* A shard must lie in the whole. */
static teng_status want_shard(const teng_op_call *call)
{
    const tg_dropout_attr *a = call->attr;
    const teng_desc *x = &call->in[0];
    char text[TG_DESC_TEXT];
    bool good =
        a->whole.n == x->ndim && a->begin.n == x->ndim && a->axis >= 0 && a->turn >= 0 && a->later >= 0;
    for (int d = 0; d < x->ndim && good; d++) {
        const int64_t first = d == a->axis && a->turn ? a->turn : x->dims[d];
        good = a->begin.v[d] >= 0 && first <= x->dims[d] && first <= a->whole.v[d] - a->begin.v[d] &&
               (first == x->dims[d] || x->dims[d] - first <= a->whole.v[d] - a->later);
    }
    if (good) return TENG_OK;
    return tg_fail(TENG_INVALID, "x is %s; as a shard it leaves the whole that whole and begin say",
                   tg_desc_text(text, x));
}

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
    if (attr->whole.n || attr->begin.n || attr->turn) TG_TRY(want_shard(call));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    ctx->in_grad[0] = teng_apply((teng_src){0}, &tg_op_dropout, ctx->attr, 2,
                                 (teng_tensor *[]){ctx->out_grad[0], ctx->in[1]}, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (teng_place d = 0; d < call->in[0].ndim; d++)
        teng_place_add(rules, (teng_place[]){d, TENG_REPLICATED}, &d);
    tg_place_linear(call, rules, 1);
}

static tg_row_map rows_of(const teng_op_call *call, int d, tg_dropout_attr *a)
{
    const teng_desc *x = &call->in[0];
    if (!a->whole.n) {
        a->whole.n = a->begin.n = x->ndim;
        for (int i = 0; i < x->ndim; i++)
            a->whole.v[i] = x->dims[i];
    }
    const bool turns = a->turn && a->axis == d;
    return (tg_row_map){a->begin.v[d], turns ? a->turn : 0, turns ? a->later : 0};
}

static void take_rows(int d, tg_row_map rows, tg_dropout_attr *a)
{
    a->begin.v[d] = rows.begin;
    if (!rows.turn && a->axis != d) return;
    a->axis = rows.turn ? d : 0;
    a->turn = rows.turn;
    a->later = rows.turn ? rows.later : 0;
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    const int d = in[0];
    (void)out;
    if (d >= 0) take_rows(d, tg_row_map_cut(rows_of(call, d, attr), call->in[0].dims[d], parts, index), attr);
}

static void localize_pair(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    const int d = in[0];
    (void)out;
    if (d >= 0)
        take_rows(d, tg_row_map_pair(rows_of(call, d, attr), call->in[0].dims[d], parts, index), attr);
}

static void cost(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(12 * tg_desc_numel(&call->out[0]));
}

static const teng_attr_field fields[] = {{"p", TENG_ATTR_REAL, offsetof(tg_dropout_attr, p), NULL},
                                         {"stream", TENG_ATTR_INT, offsetof(tg_dropout_attr, stream), NULL},
                                         {"whole", TENG_ATTR_DIMS, offsetof(tg_dropout_attr, whole), NULL},
                                         {"begin", TENG_ATTR_DIMS, offsetof(tg_dropout_attr, begin), NULL},
                                         {"axis", TENG_ATTR_INT, offsetof(tg_dropout_attr, axis), NULL},
                                         {"turn", TENG_ATTR_INT, offsetof(tg_dropout_attr, turn), NULL},
                                         {"later", TENG_ATTR_INT, offsetof(tg_dropout_attr, later), NULL},
                                         {0}};

TG_CPU_TABLES(tg_dropout_kernels);
const teng_op_spec tg_op_dropout = {
    .name = "dropout",
    .doc = "y = x / (1 - p) with probability 1 - p, else 0. rng u64[2] is (key, step); `stream` separates "
           "the dropouts of "
           "one model. Element i depends on (key, step, stream, i) alone (Philox4x32-10). Of a shard: i "
           "counts in the tensor of dimensions `whole`, in which the "
           "shard begins at `begin`; turn > 0: from index turn of dimension axis on it stands from later on.",
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
    .localize = localize,
    .localize_pair = localize_pair,
    .cost = cost,
    .kernels = tg_dropout_kernels_tables,
};

teng_tensor *teng_dropout_at(teng_src at, teng_tensor *x, teng_tensor *rng, double p, int64_t stream)
{
    tg_dropout_attr attr = {.p = p, .stream = stream};
    if (p == 0 && x) return x;
    if (x && x->graph->parts > 1 && x->desc.ndim > 0) { /* the rank's rows, drawn as those of the whole */
        attr.whole.n = attr.begin.n = x->desc.ndim;
        for (int d = 0; d < x->desc.ndim; d++)
            attr.whole.v[d] = x->desc.dims[d] * (d ? 1 : x->graph->parts);
        attr.begin.v[0] = x->desc.dims[0] * x->graph->part;
    }
    return teng_apply(at, &tg_op_dropout, &attr, 2, (teng_tensor *[]){x, rng}, NULL);
}
