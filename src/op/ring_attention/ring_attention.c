/*
 * ring_attention and its gradient: attention where the ranks along an axis have a part of the sequence each.
 * Put into a rank's graph after differentiation. They lack the trait TENG_OP_COMMUNICATES on purpose: a plan
 * would run them on the thread of communication, beside other computation, but they compute, and use that
 * thread themselves. Not here: the products (attention), what is sent (comm).
 */
#include "op/ring_attention/ring_attention.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"

#define OPTION(name, type)                                                                                   \
    {                                                                                                        \
#name, type, offsetof(tg_ring_attr, options.name), NULL                                              \
    }
#define NUMBER(name)                                                                                         \
    {                                                                                                        \
#name, TENG_ATTR_INT, offsetof(tg_ring_attr, name), NULL                                             \
    }
static const teng_attr_field fields[] = {OPTION(causal, TENG_ATTR_INT),
                                         OPTION(window, TENG_ATTR_INT),
                                         OPTION(scale, TENG_ATTR_REAL),
                                         OPTION(shift, TENG_ATTR_INT),
                                         NUMBER(axes),
                                         NUMBER(parts),
                                         NUMBER(index),
                                         {0}};

static teng_status want_ring(const teng_op_call *call)
{
    const tg_ring_attr *a = call->attr;
    const teng_desc *q = &call->in[0], *k = &call->in[1];
    char tq[TG_DESC_TEXT], tk[TG_DESC_TEXT];
    if (a->parts < 1 || a->index < 0 || a->index >= a->parts)
        return tg_fail(TENG_INVALID, "index is %lld of %lld parts; it must be 0 to parts - 1",
                       (long long)a->index, (long long)a->parts);
    if (a->options.shift || (a->options.window && !a->options.causal))
        return tg_fail(TENG_INVALID,
                       "shift is %lld, window %lld, causal %lld; a ring has no shift, and windows "
                       "only with causal",
                       (long long)a->options.shift, (long long)a->options.window,
                       (long long)a->options.causal);
    if (q->dims[1] != k->dims[1] || q->dims[1] % tg_ring_pieces(a))
        return tg_fail(TENG_INVALID,
                       "q is %s and k is %s; a rank has %lld equal pieces of rows of the sequence in both",
                       tg_desc_text(tq, q), tg_desc_text(tk, k), (long long)tg_ring_pieces(a));
    return TENG_OK;
}

static teng_status infer(teng_op_call *call)
{
    TG_TRY(tg_attention_infer(call));
    return want_ring(call);
}

static teng_status infer_grad(teng_op_call *call)
{
    TG_TRY(tg_attention_infer_grad(call));
    return want_ring(call);
}

/* On other axes than its own: batch and heads, as attention. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    teng_place_add(rules, (teng_place[]){0, 0, 0}, (teng_place[]){0, 0});
    if (call->in[1].dims[2] > 1) teng_place_add(rules, (teng_place[]){2, 2, 2}, (teng_place[]){2, 1});
}
static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    teng_place_add(rules, (teng_place[]){0, 0, 0, 0, 0, 0}, (teng_place[]){0, 0, 0});
    if (call->in[1].dims[2] > 1)
        teng_place_add(rules, (teng_place[]){2, 2, 2, 2, 1, 2}, (teng_place[]){2, 2, 2});
}

/* Scores that this rank's queries see, a multiplication and an addition for each element of a head. */
static double product(const teng_op_call *call)
{
    const tg_ring_attr *a = call->attr;
    const int64_t *q = call->in[0].dims, pieces = tg_ring_pieces(a), rows = q[1] / pieces;
    double pairs = 0;
    for (int64_t p = 0; p < pieces; p++) {
        const double begin = (double)tg_ring_begin(a, rows, a->index, p), all = (double)(q[1] * a->parts);
        const double seen = a->options.causal ? begin + (double)(rows + 1) / 2 : all;
        const double most = a->options.window > 0 ? (double)a->options.window : all;
        pairs += (double)rows * (seen < most ? seen : most);
    }
    return 2.0 * (double)(q[0] * q[2] * q[3]) * pairs;
}
static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2 * product(call);
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = 5 * product(call);
}

TG_CPU_TABLES(tg_ring_attention_kernels);
TG_CPU_TABLES(tg_ring_attention_grad_kernels);

const teng_op_spec tg_op_ring_attention = {
    .name = "ring_attention",
    .doc = "attention of a sequence of which the ranks along axes hold parts: q [B, T, H, D], k and v [B, T, "
           "G, D] are "
           "this rank's rows; outputs y and lse as of attention on the whole. causal: rank index has pieces "
           "index and "
           "2·parts - 1 - index of 2·parts, otherwise piece index of parts.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attr_size = sizeof(tg_ring_attr),
    .attrs = fields,
    .infer = infer,
    .no_grad = "it is put into a rank's graph after differentiation",
    .place = place,
    .cost = cost,
    .kernels = tg_ring_attention_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

const teng_op_spec tg_op_ring_attention_grad = {
    .name = "ring_attention_grad",
    .doc = "attention_grad of a sequence of which the ranks along axes hold parts, as in ring_attention: "
           "inputs q, k, "
           "v, y, lse, dy, outputs dq, dk, dv of this rank's rows. dk and dv go round and are summed in f32.",
    .min_in = 6,
    .max_in = 6,
    .n_out = 3,
    .attr_size = sizeof(tg_ring_attr),
    .attrs = fields,
    .infer = infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost_grad,
    .kernels = tg_ring_attention_grad_kernels_tables,
};
