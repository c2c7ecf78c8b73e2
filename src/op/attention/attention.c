/*
 * attention and its gradient: softmax(q · kᵀ · scale) · v in tiles, no matrix of all scores. The forward pass
 * keeps log Σ exp of each row, from which the gradient computes the probabilities again. Grouped keys and
 * values are read where they lie. cached_attention is the forward pass while text is written: keys and values
 * lie in caches that are filled in part. Not here: projections and rotary embedding (nn).
 */
#include "op/attention/attention.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"

static const teng_attr_field fields[] = {
    {"causal", TENG_ATTR_INT, offsetof(teng_attention_options, causal), NULL},
    {"window", TENG_ATTR_INT, offsetof(teng_attention_options, window), NULL},
    {"scale", TENG_ATTR_REAL, offsetof(teng_attention_options, scale), NULL},
    {"shift", TENG_ATTR_INT, offsetof(teng_attention_options, shift), NULL},
    {0},
};

teng_status tg_attention_infer_inputs(const teng_op_call *call)
{
    const teng_attention_options *o = call->attr;
    const teng_desc *q = &call->in[0], *k = &call->in[1];
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "q"));
    if (q->ndim != 4 || k->ndim != 4 || q->dtype != k->dtype)
        return tg_fail(TENG_INVALID,
                       "q is %s and k is %s; they must be [B, T, H, D] and [B, S, G, D] of one dtype",
                       tg_desc_text(a, q), tg_desc_text(b, k));
    TG_TRY(tg_want_like(call, 2, "v", 1, "k"));
    if (q->dims[0] != k->dims[0] || q->dims[3] != k->dims[3])
        return tg_fail(TENG_INVALID, "q is %s and k is %s; B (dimension 0) and D (dimension 3) must agree",
                       tg_desc_text(a, q), tg_desc_text(b, k));
    if (!q->dims[2] || !q->dims[3] || !k->dims[2])
        return tg_fail(TENG_INVALID,
                       "q is %s and k is %s; at least one head of at least one element is needed",
                       tg_desc_text(a, q), tg_desc_text(b, k));
    if (q->dims[2] % k->dims[2])
        return tg_fail(
            TENG_INVALID,
            "q is %s and k is %s; the %lld query heads must be a multiple of the %lld key/value heads",
            tg_desc_text(a, q), tg_desc_text(b, k), (long long)q->dims[2], (long long)k->dims[2]);
    if (o->window < 0)
        return tg_fail(TENG_INVALID, "window is %lld; it is a number of keys, 0 for all",
                       (long long)o->window);
    if (!isfinite(o->scale)) return tg_fail(TENG_INVALID, "scale is %g; it must be finite", o->scale);
    if (o->shift && !o->causal)
        return tg_fail(TENG_INVALID, "shift is %lld and causal 0; all rows see all keys then",
                       (long long)o->shift);
    return TENG_OK;
}

static teng_desc lse_desc(const teng_desc *q)
{
    return tg_desc_make(TENG_F32, 3, (int64_t[]){q->dims[0], q->dims[2], q->dims[1]});
}

teng_status tg_attention_infer(teng_op_call *call)
{
    TG_TRY(tg_attention_infer_inputs(call));
    call->out[0] = call->in[0];
    call->out[1] = lse_desc(&call->in[0]);
    return TENG_OK;
}

teng_status tg_attention_infer_grad(teng_op_call *call)
{
    TG_TRY(tg_attention_infer_inputs(call));
    const teng_desc lse = lse_desc(&call->in[0]);
    TG_TRY(tg_want_like(call, 3, "y", 0, "q"));
    TG_TRY(tg_want_dtype(call, 4, "lse", TENG_F32));
    TG_TRY(tg_want_dims(call, 4, "lse", &lse, "q as [B, H, T]"));
    TG_TRY(tg_want_like(call, 5, "dy", 0, "q"));
    for (int i = 0; i < 3; i++)
        call->out[i] = call->in[i];
    return TENG_OK;
}

static teng_status infer_cached(teng_op_call *call)
{
    TG_TRY(tg_attention_infer_inputs(call));
    const teng_attention_options *o = call->attr;
    if (!o->causal || o->shift)
        return tg_fail(TENG_INVALID, "causal is %lld, shift %lld; attention on a cache is causal without one",
                       (long long)o->causal, (long long)o->shift);
    TG_TRY(tg_want_positions(call, 3, call->in[0].dims[1]));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    if (ctx->out_grad[1])
        return tg_fail(TENG_UNSUPPORTED, "lse is for the gradient's own use; no gradient flows into it");
    teng_tensor *in[] = {ctx->in[0], ctx->in[1], ctx->in[2], ctx->out[0], ctx->out[1], ctx->out_grad[0]},
                *out[3];
    if (!teng_apply((teng_src){NULL, 0}, &tg_op_attention_grad, ctx->attr, 6, in, out))
        return teng_error_status();
    for (int i = 0; i < 3; i++)
        if (ctx->need[i]) ctx->in_grad[i] = out[i];
    return TENG_OK;
}

enum { R = TENG_REPLICATED, P = TENG_PARTIAL };

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    const tg_attention_sizes s = tg_attention_sizes_of(call);
    teng_place_add(rules, (teng_place[]){0, 0, 0}, (teng_place[]){0, 0});
    if (s.groups > 1)
        teng_place_add(rules, (teng_place[]){2, 2, 2}, (teng_place[]){2, 1}); /* ranks divide G */
    if (s.groups == 1) teng_place_add(rules, (teng_place[]){2, R, R}, (teng_place[]){2, 1});
    if (!s.causal) teng_place_add(rules, (teng_place[]){1, R, R}, (teng_place[]){1, 2});
    teng_place_add(rules, (teng_place[]){R, R, P}, (teng_place[]){P, R});
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    const tg_attention_sizes s = tg_attention_sizes_of(call);
    teng_place_add(rules, (teng_place[]){0, 0, 0, 0, 0, 0}, (teng_place[]){0, 0, 0});
    if (s.groups > 1) teng_place_add(rules, (teng_place[]){2, 2, 2, 2, 1, 2}, (teng_place[]){2, 2, 2});
    if (s.groups == 1) teng_place_add(rules, (teng_place[]){2, R, R, 2, 1, 2}, (teng_place[]){2, P, P});
    if (!s.causal) teng_place_add(rules, (teng_place[]){1, R, R, 1, 2, 1}, (teng_place[]){1, P, P});
    teng_place_add(rules, (teng_place[]){R, R, R, R, R, P}, (teng_place[]){P, P, P});
}

static void place_cached(const teng_op_call *call, teng_place_rules *rules)
{
    const tg_attention_sizes s = tg_attention_sizes_of(call);
    teng_place_add(rules, (teng_place[]){0, 0, 0, R}, &(teng_place){0});
    teng_place_add(rules, (teng_place[]){1, R, R, 0}, &(teng_place){1});
    if (s.groups > 1)
        teng_place_add(rules, (teng_place[]){2, 2, 2, R}, &(teng_place){2}); /* ranks divide G */
    if (s.groups == 1) teng_place_add(rules, (teng_place[]){2, R, R, R}, &(teng_place){2});
    teng_place_add(rules, (teng_place[]){R, R, P, R}, &(teng_place){P});
}

/* A multiplication and an addition for each element of width of each score that is seen. */
static double product(const teng_op_call *call)
{
    const tg_attention_sizes s = tg_attention_sizes_of(call);
    double pairs = 0;
    for (int64_t t = 0; t < s.rows; t++) {
        const int64_t seen = tg_attention_last(&s, t) - tg_attention_first(&s, t) + 1;
        pairs += seen > 0 ? (double)seen : 0;
    }
    return 2.0 * (double)(s.batch * s.heads * s.width) * pairs;
}
static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2 * product(call);
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = 5 * product(call);
}

/* As if the cache were full. */
static void cost_cached(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2 * product(call);
}

TG_CPU_TABLES(tg_attention_kernels);
TG_CPU_TABLES(tg_cached_attention_kernels);
TG_CPU_TABLES(tg_attention_grad_kernels);

const teng_op_spec tg_op_attention = {
    .name = "attention",
    .doc =
        "y[t,h] = Σ over the keys s that row t sees of p[s] · v[s,g], p = softmax(scale · q[t,h] · "
        "k[s,g]), g = h / (H "
        "/ G): q [B, T, H, D], k and v [B, S, G, D] (Dao 2023, \"FlashAttention-2\"). causal: row t sees "
        "keys up to t + "
        "S - T + shift; window > 0: only the last window of them; scale 0 means 1/√D. Outputs y and, for the "
        "gradient, lse f32 "
        "[B, H, T], log Σ exp of the scores. A row that sees no key gives y = 0, lse = 0.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attr_size = sizeof(teng_attention_options),
    .attrs = fields,
    .infer = tg_attention_infer,
    .grad = grad,
    .grad_in = 7,
    .grad_out = 3,
    .place = place,
    .cost = cost,
    .kernels = tg_attention_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

const teng_op_spec tg_op_cached_attention = {
    .name = "cached_attention",
    .doc = "attention of q [B, T, H, D] on caches k and v [B, S, G, D], without lse: row t sees the keys up "
           "to positions[t], "
           "i32[T], which follow on by one; window > 0: only the last window of them. Keys behind the last "
           "position are not "
           "read.",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attr_size = sizeof(teng_attention_options),
    .attrs = fields,
    .infer = infer_cached,
    .no_grad = "a cache of keys and values serves writing text, not training",
    .place = place_cached,
    .cost = cost_cached,
    .precision = TENG_PRECISION_PRODUCT,
    .kernels = tg_cached_attention_kernels_tables,
};

const teng_op_spec tg_op_attention_grad = {
    .name = "attention_grad",
    .doc = "Gradient of attention: with p = exp(scale · q · kᵀ - lse), dp = dy · vᵀ, ds = p · (dp - Σ over D "
           "of dy · y) · "
           "scale: dq = ds · k, dk = dsᵀ · q, dv = pᵀ · dy, dk and dv summed over the query heads of a "
           "group. Inputs q, k, "
           "v, y, lse, dy; outputs dq, dk, dv.",
    .min_in = 6,
    .max_in = 6,
    .n_out = 3,
    .attr_size = sizeof(teng_attention_options),
    .attrs = fields,
    .infer = tg_attention_infer_grad,
    .no_grad = "second derivatives are not provided",
    .place = place_grad,
    .cost = cost_grad,
    .kernels = tg_attention_grad_kernels_tables,
};

teng_tensor *teng_attention_at(teng_src at, teng_tensor *q, teng_tensor *k, teng_tensor *v,
                               const teng_attention_options *options)
{
    return teng_apply(at, &tg_op_attention, options, 3, (teng_tensor *[]){q, k, v}, NULL);
}

teng_tensor *teng_cached_attention_at(teng_src at, teng_tensor *q, teng_tensor *k, teng_tensor *v,
                                      teng_tensor *positions, const teng_attention_options *options)
{
    return teng_apply(at, &tg_op_cached_attention, options, 4, (teng_tensor *[]){q, k, v, positions}, NULL);
}
