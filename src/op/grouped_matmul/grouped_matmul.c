/*
 * grouped_matmul: rows in groups, each group times a matrix of its own; grouped_outer: the sum of outer
 * products over each group, which is the gradient of those matrices. Group sizes are known when the operator
 * runs, the number of rows is not more than x has: the shapes of a mixture of experts stay fixed while its
 * loads change.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"trans", TENG_ATTR_INT, 0, NULL}, {0}};
static const teng_src nowhere = {0};

/* x and y are [rows, …] of one dtype, input i holds counts i32 [groups]. */
static teng_status want_rows(const teng_op_call *call, int i, const char *name)
{
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, i, name));
    if (call->in[i].ndim != 2)
        return tg_fail(TENG_INVALID, "%s is %s; it must have two dimensions", name,
                       tg_desc_text(text, &call->in[i]));
    return TENG_OK;
}

static teng_status want_counts(const teng_op_call *call, int64_t groups)
{
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_dtype(call, 2, "counts", TENG_I32));
    if (call->in[2].ndim != 1 || (groups >= 0 && call->in[2].dims[0] != groups))
        return tg_fail(TENG_INVALID, "counts are %s; one number for each of the %lld groups is needed",
                       tg_desc_text(text, &call->in[2]), (long long)groups);
    return TENG_OK;
}

static teng_status infer(teng_op_call *call)
{
    const teng_desc *x = &call->in[0], *w = &call->in[1];
    const bool trans = *(const int64_t *)call->attr != 0;
    char tx[TG_DESC_TEXT], tw[TG_DESC_TEXT];
    TG_TRY(want_rows(call, 0, "x"));
    TG_TRY(tg_want_dtype(call, 1, "w", x->dtype));
    if (w->ndim != 3 || w->dims[trans ? 2 : 1] != x->dims[1])
        return tg_fail(TENG_INVALID, "x is %s and w is %s; w must be [groups, %s]", tg_desc_text(tx, x),
                       tg_desc_text(tw, w), trans ? "N, K] with x's K" : "K, N] with x's K");
    TG_TRY(want_counts(call, w->dims[0]));
    call->out[0] = tg_desc_make(x->dtype, 2, (int64_t[]){x->dims[0], w->dims[trans ? 1 : 2]});
    return TENG_OK;
}

static teng_status infer_outer(teng_op_call *call)
{
    const teng_desc *a = &call->in[0], *b = &call->in[1];
    char ta[TG_DESC_TEXT], tb[TG_DESC_TEXT];
    TG_TRY(want_rows(call, 0, "a"));
    TG_TRY(want_rows(call, 1, "b"));
    TG_TRY(tg_want_dtype(call, 1, "b", a->dtype));
    if (a->dims[0] != b->dims[0])
        return tg_fail(TENG_INVALID, "a is %s and b is %s; they must have equally many rows",
                       tg_desc_text(ta, a), tg_desc_text(tb, b));
    TG_TRY(want_counts(call, -1));
    call->out[0] = tg_desc_make(a->dtype, 3, (int64_t[]){call->in[2].dims[0], a->dims[1], b->dims[1]});
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const int64_t trans = *(const int64_t *)ctx->attr, other = !trans;
    teng_tensor *x = ctx->in[0], *dy = ctx->out_grad[0];
    if (ctx->need[0]) {
        teng_tensor *in[] = {dy, ctx->in[1], ctx->in[2]};
        ctx->in_grad[0] = teng_apply(nowhere, &tg_op_grouped_matmul, &other, 3, in, NULL);
        if (!ctx->in_grad[0]) return teng_error_status();
    }
    if (ctx->need[1]) {
        teng_tensor *in[] = {trans ? dy : x, trans ? x : dy, ctx->in[2]};
        ctx->in_grad[1] = teng_apply(nowhere, &tg_op_grouped_outer, NULL, 3, in, NULL);
        if (!ctx->in_grad[1]) return teng_error_status();
    }
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    const bool trans = *(const int64_t *)call->attr != 0;
    const teng_place n = trans ? 1 : 2, k = trans ? 2 : 1;
    teng_place_add(rules, (teng_place[]){R, n, R}, (teng_place[]){1});
    teng_place_add(rules, (teng_place[]){1, k, R}, (teng_place[]){P});
    teng_place_add(rules, (teng_place[]){P, R, R}, (teng_place[]){P});
    teng_place_add(rules, (teng_place[]){R, P, R}, (teng_place[]){P});
}

static void place_outer(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    (void)call;
    teng_place_add(rules, (teng_place[]){1, R, R}, (teng_place[]){1});
    teng_place_add(rules, (teng_place[]){R, 1, R}, (teng_place[]){2});
    teng_place_add(rules, (teng_place[]){P, R, R}, (teng_place[]){P});
    teng_place_add(rules, (teng_place[]){R, P, R}, (teng_place[]){P});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2.0 * (double)call->in[0].dims[0] * (double)call->in[0].dims[1] * (double)call->out[0].dims[1];
}

static void cost_outer(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2.0 * (double)call->in[0].dims[0] * (double)call->in[0].dims[1] * (double)call->in[1].dims[1];
}

TG_CPU_TABLES(tg_grouped_matmul_kernels);
TG_CPU_TABLES(tg_grouped_outer_kernels);

const teng_op_spec tg_op_grouped_matmul = {
    .name = "grouped_matmul",
    .doc = "The first counts[0] rows of x [M, K] times w[0], the next counts[1] rows times w[1], …; rows "
           "after the last "
           "group give zeros. w [G, K, N], or [G, N, K] transposed where trans is 1; counts i32 [G]. y [M, "
           "N] in x's "
           "dtype, summed in f32. Counts that are negative or sum to more than M are an error of the run.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_in = 7,
    .place = place,
    .cost = cost,
    .kernels = tg_grouped_matmul_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

const teng_op_spec tg_op_grouped_outer = {
    .name = "grouped_outer",
    .doc = "y[g] = transposed a · b over the rows of group g, groups as in grouped_matmul: a [M, P], b [M, "
           "Q], counts i32 "
           "[G] → [G, P, Q]; zeros for an empty group.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer_outer,
    .no_grad = "second derivatives are not provided",
    .place = place_outer,
    .cost = cost_outer,
    .kernels = tg_grouped_outer_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

teng_tensor *teng_grouped_matmul_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *counts,
                                    bool trans)
{
    const int64_t attr = trans;
    return teng_apply(at, &tg_op_grouped_matmul, &attr, 3, (teng_tensor *[]){x, w, counts}, NULL);
}
