/*
 * matmul: products of matrices, alone or in batches, with an optional bias. It is its own gradient: every
 * combination of transposes differentiates into further matmuls, so the rule below holds no kernel of its
 * own. teng_linear and teng_conv1d are the same operator with b stored [N, K] and [K, N].
 */
#include "op/matmul/matmul.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {
    {"trans_a", TENG_ATTR_INT, offsetof(tg_matmul_attr, trans_a), NULL},
    {"trans_b", TENG_ATTR_INT, offsetof(tg_matmul_attr, trans_b), NULL},
    {"f32_out", TENG_ATTR_INT, offsetof(tg_matmul_attr, f32_out), NULL},
    {0},
};
static const teng_src nowhere = {NULL, 0};

static teng_status infer(teng_op_call *call)
{
    const tg_matmul_attr *attr = call->attr;
    const teng_desc *a = &call->in[0], *b = &call->in[1];
    char ta[TG_DESC_TEXT], tb[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "a"));
    TG_TRY(tg_want_ndim(call, 0, "a", 2));
    TG_TRY(tg_want_ndim(call, 1, "b", 2));
    TG_TRY(tg_want_float(call, 1, "b"));
    if (a->dtype != TENG_F32) TG_TRY(tg_want_dtype(call, 1, "b", a->dtype));
    tg_desc_text(ta, a);
    tg_desc_text(tb, b);
    bool same = b->ndim == a->ndim;
    for (int i = 0; same && i < a->ndim - 2; i++)
        same = a->dims[i] == b->dims[i];
    if (b->ndim != 2 && !same)
        return tg_fail(
            TENG_INVALID,
            "a %s and b %s: b must have two dimensions (shared by all of a) or a's leading dimensions", ta,
            tb);
    const tg_matmul_sizes s = tg_matmul_sizes_of(call);
    const int64_t k = b->dims[b->ndim - (attr->trans_b ? 1 : 2)];
    if (s.k != k)
        return tg_fail(TENG_INVALID, "a %s%s and b %s%s: inner sizes %lld and %lld differ", ta,
                       attr->trans_a ? " transposed" : "", tb, attr->trans_b ? " transposed" : "",
                       (long long)s.k, (long long)k);
    if (call->n_in == 3) {
        const teng_desc *bias = &call->in[2];
        if (bias->ndim != 1 || bias->dims[0] != s.n || (bias->dtype != TENG_F32 && bias->dtype != a->dtype))
            return tg_fail(TENG_INVALID, "bias is %s; it must be [%lld] in f32 or %s", tg_desc_text(tb, bias),
                           (long long)s.n, teng_dtype_name(a->dtype));
    }
    call->out[0] = *a;
    call->out[0].dims[a->ndim - 2] = s.m;
    call->out[0].dims[a->ndim - 1] = s.n;
    if (attr->f32_out) call->out[0].dtype = TENG_F32;
    return TENG_OK;
}

/* [..., R, C] → [all rows, C]. */
static teng_tensor *flat(teng_tensor *x)
{
    const teng_desc *d = teng_tensor_desc(x);
    if (d->ndim == 2) return x;
    int64_t rows = 1;
    for (int i = 0; i < d->ndim - 1; i++)
        rows *= d->dims[i];
    return teng_reshape_at(nowhere, x, TENG_DIMS(rows, d->dims[d->ndim - 1]));
}

/* Axes 0 … n - 1. */
static teng_dims first_axes(int n)
{
    teng_dims axes = {.n = n};
    for (int i = 0; i < n; i++)
        axes.v[i] = i;
    return axes;
}

/* dc · op(b)ᵀ, transposed if a is. */
static teng_tensor *grad_a(const teng_grad_ctx *ctx, teng_tensor *dc, bool shared_batch)
{
    const tg_matmul_attr *attr = ctx->attr;
    teng_tensor *b = ctx->in[1];
    if (!attr->trans_a) return teng_matmul_at(nowhere, dc, b, false, !attr->trans_b);
    if (!shared_batch) return teng_matmul_at(nowhere, b, dc, attr->trans_b, true);
    const int n = teng_tensor_desc(dc)->ndim;
    teng_dims swap = first_axes(n);
    swap.v[n - 2] = n - 1;
    swap.v[n - 1] = n - 2;
    return teng_transpose_at(nowhere, teng_matmul_at(nowhere, dc, b, false, !attr->trans_b), swap);
}

static teng_tensor *product(teng_tensor *a, teng_tensor *b, bool trans_a, bool trans_b, bool f32_out)
{
    return teng_apply(nowhere, &tg_op_matmul, &(tg_matmul_attr){trans_a, trans_b, f32_out}, 2,
                      (teng_tensor *[]){a, b}, NULL);
}

/* op(a)ᵀ · dc, transposed if b is; a shared b takes the sum over the batch. The gradient of a parameter that
 * was cast for this product keeps its f32 sums. */
static teng_tensor *grad_b(const teng_grad_ctx *ctx, teng_tensor *dc, bool shared_batch)
{
    const tg_matmul_attr *attr = ctx->attr;
    teng_tensor *a = ctx->in[0];
    const bool tall = shared_batch && !attr->trans_a, f32 = tg_op_is_cast_param(ctx->in[1]);
    if (tall) {
        a = flat(a);
        dc = flat(dc);
    }
    teng_tensor *db =
        attr->trans_b ? product(dc, a, true, attr->trans_a, f32) : product(a, dc, !attr->trans_a, false, f32);
    if (!shared_batch || tall) return db;
    return teng_sum_at(nowhere, db, first_axes(teng_tensor_desc(dc)->ndim - 2), false);
}

static teng_status grad(teng_grad_ctx *ctx)
{
    teng_tensor *dc = teng_cast_at(nowhere, ctx->out_grad[0], teng_tensor_desc(ctx->in[0])->dtype);
    if (!dc) return teng_error_status();
    const bool shared_batch =
        teng_tensor_desc(ctx->in[1])->ndim == 2 && teng_tensor_desc(ctx->in[0])->ndim > 2;
    if (ctx->need[0] && !(ctx->in_grad[0] = grad_a(ctx, dc, shared_batch))) return teng_error_status();
    if (ctx->need[1] && !(ctx->in_grad[1] = grad_b(ctx, dc, shared_batch))) return teng_error_status();
    if (ctx->n_in < 3 || !ctx->need[2]) return TENG_OK;
    teng_tensor *sum = teng_sum_at(nowhere, dc, first_axes(teng_tensor_desc(dc)->ndim - 1), false);
    ctx->in_grad[2] = teng_cast_at(nowhere, sum, teng_tensor_desc(ctx->in[2])->dtype);
    return ctx->in_grad[2] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    const tg_matmul_attr *attr = call->attr;
    const int na = call->in[0].ndim, nb = call->in[1].ndim;
    const teng_place am = (teng_place)(na - (attr->trans_a ? 1 : 2)),
                     ak = (teng_place)(na - (attr->trans_a ? 2 : 1));
    const teng_place bn = (teng_place)(nb - (attr->trans_b ? 2 : 1)),
                     bk = (teng_place)(nb - (attr->trans_b ? 1 : 2));
    for (int i = 0; i < na - 2; i++) {
        const teng_place d = (teng_place)i;
        teng_place_add(rules, (teng_place[]){d, (teng_place)(nb == 2 ? R : i), R}, &d);
    }
    teng_place_add(rules, (teng_place[]){am, R, R}, &(teng_place){(teng_place)(na - 2)});
    teng_place_add(rules, (teng_place[]){R, bn, 0}, &(teng_place){(teng_place)(na - 1)});
    /* Sums: the bias is added on every rank, so its values must sum to the true bias too. */
    teng_place_add(rules, (teng_place[]){ak, bk, P}, &(teng_place){P});
    teng_place_add(rules, (teng_place[]){P, R, P}, &(teng_place){P});
    teng_place_add(rules, (teng_place[]){R, P, P}, &(teng_place){P});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    const tg_matmul_sizes s = tg_matmul_sizes_of(call);
    c->flops = 2.0 * (double)s.batch * (double)s.m * (double)s.n * (double)s.k;
}

TG_CPU_TABLES(tg_matmul_kernels);

const teng_op_spec tg_op_matmul = {
    .name = "matmul",
    .doc =
        "y = op(a) · op(b) [+ bias], op transposing the last two dimensions where trans_a, trans_b say so. "
        "a [..., M, K]; b [K, N], shared by all leading indices of a, or [..., K, N] with a's leading "
        "dimensions; "
        "bias [N], optional, in f32 or a's dtype; b in 16 bits while a is f32 is widened, for weights that "
        "are stored so. y [..., M, N] in a's dtype, or f32 where f32_out says so; summed in f32.",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(tg_matmul_attr),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_in = 3,
    .place = place,
    .cost = cost,
    .kernels = tg_matmul_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
    .f32_in = 4,
};

teng_tensor *teng_matmul_at(teng_src at, teng_tensor *a, teng_tensor *b, bool trans_a, bool trans_b)
{
    const tg_matmul_attr attr = {.trans_a = trans_a, .trans_b = trans_b};
    return teng_apply(at, &tg_op_matmul, &attr, 2, (teng_tensor *[]){a, b}, NULL);
}

/* x [..., K], a vector too; a bias that should be there and is NULL is an earlier failure, which teng_apply
 * reports. */
static teng_tensor *linear(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *bias, bool has_bias,
                           bool trans)
{
    const teng_desc *d = teng_tensor_desc(x);
    const bool vector = x && d->ndim == 1;
    if (vector) x = teng_reshape_at(at, x, TENG_DIMS(1, d->dims[0]));
    teng_tensor *y = teng_apply(at, &tg_op_matmul, &(tg_matmul_attr){.trans_b = trans}, has_bias ? 3 : 2,
                                (teng_tensor *[]){x, w, bias}, NULL);
    return vector && y ? teng_reshape_at(at, y, TENG_DIMS(-1)) : y;
}

teng_tensor *teng_linear_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *bias, bool has_bias)
{
    return linear(at, x, w, bias, has_bias, true);
}

teng_tensor *teng_conv1d_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *bias, bool has_bias)
{
    return linear(at, x, w, bias, has_bias, false);
}
