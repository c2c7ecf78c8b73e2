/*
 * Operators for models. Each call appends one node (GRAPH) or runs at once (PYNATIVE) and returns its value,
 * or NULL after a failure: a NULL operand makes the call return NULL and the first error is kept, so calls
 * nest. Every function is a macro over name_at(place, …) so that errors name the caller's file and line.
 *
 * Shapes in comments: B batch, T sequence, C channels, H query heads, G key/value heads, D head size, V
 * vocabulary. Floating dtypes are f32, bf16 and f16; sums are kept in f32. Two floating operands must agree
 * in dtype unless the comment says otherwise. Negative axes count from the end.
 */
#ifndef TENG_OPS_H
#define TENG_OPS_H

#include "teng/operator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- products ---- */
/* op(a) · op(b), where op transposes the last two dimensions if asked. a [..., M, K], b [K, N] (shared by all
 * leading indices of a) or [..., K, N] with the same leading dimensions → [..., M, N]. */
TENG_API teng_tensor *teng_matmul_at(teng_src at, teng_tensor *a, teng_tensor *b, bool trans_a, bool trans_b);
#define teng_matmul(a, b, trans_a, trans_b) teng_matmul_at(TENG_HERE, a, b, trans_a, trans_b)
/* x · wᵀ + bias: x [..., K], w [N, K] (PyTorch's Linear), bias [N] or absent (has_bias false) → [..., N]. */
TENG_API teng_tensor *teng_linear_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *bias,
                                     bool has_bias);
#define teng_linear(x, w, bias, has_bias) teng_linear_at(TENG_HERE, x, w, bias, has_bias)
/* As teng_linear with w [K, N] (GPT-2's Conv1D). */
TENG_API teng_tensor *teng_conv1d_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *bias,
                                     bool has_bias);
#define teng_conv1d(x, w, bias, has_bias) teng_conv1d_at(TENG_HERE, x, w, bias, has_bias)

/* ---- elementwise; two operands broadcast as in NumPy ---- */
TENG_API teng_tensor *teng_add_at(teng_src at, teng_tensor *a, teng_tensor *b);
TENG_API teng_tensor *teng_sub_at(teng_src at, teng_tensor *a, teng_tensor *b);
TENG_API teng_tensor *teng_mul_at(teng_src at, teng_tensor *a, teng_tensor *b);
TENG_API teng_tensor *teng_div_at(teng_src at, teng_tensor *a, teng_tensor *b);
#define teng_add(a, b) teng_add_at(TENG_HERE, a, b)
#define teng_sub(a, b) teng_sub_at(TENG_HERE, a, b)
#define teng_mul(a, b) teng_mul_at(TENG_HERE, a, b)
#define teng_div(a, b) teng_div_at(TENG_HERE, a, b)
/* factor · x + offset. */
TENG_API teng_tensor *teng_affine_at(teng_src at, teng_tensor *x, double factor, double offset);
#define teng_affine(x, factor, offset) teng_affine_at(TENG_HERE, x, factor, offset)
#define teng_scale(x, factor) teng_affine_at(TENG_HERE, x, factor, 0.0)
#define teng_neg(x) teng_affine_at(TENG_HERE, x, -1.0, 0.0)
TENG_API teng_tensor *teng_exp_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_log_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_sqrt_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_rsqrt_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_square_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_tanh_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_sigmoid_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_relu_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_silu_at(teng_src at, teng_tensor *x); /* x · sigmoid(x) */
TENG_API teng_tensor *teng_gelu_at(teng_src at, teng_tensor *x); /* x · Φ(x), erf form */
TENG_API teng_tensor *teng_gelu_tanh_at(teng_src at,
                                        teng_tensor *x); /* 0.5x(1 + tanh(√(2/π)(x + 0.044715x³))) */
#define teng_exp(x) teng_exp_at(TENG_HERE, x)
#define teng_log(x) teng_log_at(TENG_HERE, x)
#define teng_sqrt(x) teng_sqrt_at(TENG_HERE, x)
#define teng_rsqrt(x) teng_rsqrt_at(TENG_HERE, x)
#define teng_square(x) teng_square_at(TENG_HERE, x)
#define teng_tanh(x) teng_tanh_at(TENG_HERE, x)
#define teng_sigmoid(x) teng_sigmoid_at(TENG_HERE, x)
#define teng_relu(x) teng_relu_at(TENG_HERE, x)
#define teng_silu(x) teng_silu_at(TENG_HERE, x)
#define teng_gelu(x) teng_gelu_at(TENG_HERE, x)
#define teng_gelu_tanh(x) teng_gelu_tanh_at(TENG_HERE, x)
/* silu(gate) · up (Shazeer, "GLU variants improve Transformer"); same shape. */
TENG_API teng_tensor *teng_swiglu_at(teng_src at, teng_tensor *gate, teng_tensor *up);
#define teng_swiglu(gate, up) teng_swiglu_at(TENG_HERE, gate, up)
/* Inverted dropout: keeps an element with probability 1 - p and divides it by 1 - p. rng u64[2] is (key,
 * step), the `stream` number separates the dropouts of one model; element i depends on (key, step, stream, i)
 * alone. */
TENG_API teng_tensor *teng_dropout_at(teng_src at, teng_tensor *x, teng_tensor *rng, double p,
                                      int64_t stream);
#define teng_dropout(x, rng, p, stream) teng_dropout_at(TENG_HERE, x, rng, p, stream)
/* Another dtype, rounding to nearest even. */
TENG_API teng_tensor *teng_cast_at(teng_src at, teng_tensor *x, teng_dtype to);
#define teng_cast(x, to) teng_cast_at(TENG_HERE, x, to)
/* A constant tensor; belongs to the current trace. */
TENG_API teng_tensor *teng_fill_at(teng_src at, teng_dtype dtype, teng_dims dims, double value);
#define teng_fill(dtype, dims, value) teng_fill_at(TENG_HERE, dtype, dims, value)

/* ---- shapes ---- */
/* dims may hold one -1 (the rest). A view. */
TENG_API teng_tensor *teng_reshape_at(teng_src at, teng_tensor *x, teng_dims dims);
#define teng_reshape(x, dims) teng_reshape_at(TENG_HERE, x, dims)
TENG_API teng_tensor *teng_transpose_at(teng_src at, teng_tensor *x,
                                        teng_dims perm); /* output dim i is x's perm[i] */
#define teng_transpose(x, perm) teng_transpose_at(TENG_HERE, x, perm)
/* Elements begin … begin + size - 1 along axis. */
TENG_API teng_tensor *teng_slice_at(teng_src at, teng_tensor *x, int64_t axis, int64_t begin, int64_t size);
#define teng_slice(x, axis, begin, size) teng_slice_at(TENG_HERE, x, axis, begin, size)
/* Pieces of the given sizes along axis into out[sizes.n]; returns out[0]. */
TENG_API teng_tensor *teng_split_at(teng_src at, teng_tensor *x, int64_t axis, teng_dims sizes,
                                    teng_tensor **out);
#define teng_split(x, axis, sizes, out) teng_split_at(TENG_HERE, x, axis, sizes, out)
TENG_API teng_tensor *teng_concat_at(teng_src at, teng_tensor *const *x, int n, int64_t axis);
#define teng_concat(x, n, axis) teng_concat_at(TENG_HERE, x, n, axis)
TENG_API teng_tensor *teng_broadcast_at(teng_src at, teng_tensor *x,
                                        teng_dims dims); /* as NumPy's broadcast_to */
#define teng_broadcast(x, dims) teng_broadcast_at(TENG_HERE, x, dims)
#define TENG_DIMS(...)                                                                                       \
    ((teng_dims){(int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

/* ---- reductions over axes (n = 0: all); keep leaves dimensions of 1 ---- */
TENG_API teng_tensor *teng_sum_at(teng_src at, teng_tensor *x, teng_dims axes, bool keep);
TENG_API teng_tensor *teng_mean_at(teng_src at, teng_tensor *x, teng_dims axes, bool keep);
TENG_API teng_tensor *teng_max_at(teng_src at, teng_tensor *x, teng_dims axes,
                                  bool keep); /* gradient to the first */
#define teng_sum(x, axes, keep) teng_sum_at(TENG_HERE, x, axes, keep)
#define teng_mean(x, axes, keep) teng_mean_at(TENG_HERE, x, axes, keep)
#define teng_max(x, axes, keep) teng_max_at(TENG_HERE, x, axes, keep)

/* ---- normalisation and softmax over the last dimension ---- */
TENG_API teng_tensor *teng_softmax_at(teng_src at, teng_tensor *x);
TENG_API teng_tensor *teng_log_softmax_at(teng_src at, teng_tensor *x);
#define teng_softmax(x) teng_softmax_at(TENG_HERE, x)
#define teng_log_softmax(x) teng_log_softmax_at(TENG_HERE, x)
/* (x - mean) / √(var + eps) · weight + bias; x [..., C], weight [C], bias [C] or absent; weight and bias f32
 * or x's. */
TENG_API teng_tensor *teng_layer_norm_at(teng_src at, teng_tensor *x, teng_tensor *weight, teng_tensor *bias,
                                         bool has_bias, double eps);
#define teng_layer_norm(x, weight, bias, has_bias, eps)                                                      \
    teng_layer_norm_at(TENG_HERE, x, weight, bias, has_bias, eps)
/* x / √(mean(x²) + eps) · weight (Zhang & Sennrich 2019); weight [C] f32 or x's dtype. */
TENG_API teng_tensor *teng_rms_norm_at(teng_src at, teng_tensor *x, teng_tensor *weight, double eps);
#define teng_rms_norm(x, weight, eps) teng_rms_norm_at(TENG_HERE, x, weight, eps)

/* ---- language models ---- */
/* Rows of table [V, C] chosen by ids i32 [...] → [..., C]. The gradient sums in id order: same bits on any
 * threads. */
TENG_API teng_tensor *teng_embedding_at(teng_src at, teng_tensor *table, teng_tensor *ids);
#define teng_embedding(table, ids) teng_embedding_at(TENG_HERE, table, ids)
/* Learned positions: rows 0 … T-1 of table [P, C] added to x [B, T, C]. T > P is refused. */
TENG_API teng_tensor *teng_add_positions_at(teng_src at, teng_tensor *x, teng_tensor *table);
#define teng_add_positions(x, table) teng_add_positions_at(TENG_HERE, x, table)

typedef enum teng_rope_type {
    TENG_ROPE_DEFAULT,
    TENG_ROPE_LINEAR,
    TENG_ROPE_LLAMA3,
    TENG_ROPE_DYNAMIC,
    TENG_ROPE_YARN
} teng_rope_type;
/* Rotary embedding of x [B, T, H, D] by position 0 … T-1, halves rotated (GPT-NeoX order, as Hugging Face
 * stores weights); Su et al. 2021; llama3: Llama 3.1's frequency scaling; dynamic: theta grows with a
 * sequence (offset + T) longer than original_max_position; yarn: Peng et al. 2023. */
typedef struct teng_rope_options {
    double theta;
    int64_t type; /* teng_rope_type */
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_max_position;
    int64_t rotary_dim; /* 0: all of D */
    int64_t inverse;    /* 1 rotates back (the gradient) */
    int64_t offset;     /* position of the first row */
    double beta_fast,
        beta_slow; /* yarn: turns in original_max_position above which f_i stays, below which it is divided */
    int64_t exact_range;     /* yarn: 1 does not round the range between them to whole dimensions */
    double attention_factor; /* of cos and sin; 0: 1 */
    int64_t turn, later;     /* turn > 0: row `turn` has position `later`, from which those behind it count */
    int64_t length;          /* of the whole sequence, for dynamic; 0: offset + T */
} teng_rope_options;
TENG_API teng_tensor *teng_rope_at(teng_src at, teng_tensor *x, const teng_rope_options *options);
#define teng_rope(x, options) teng_rope_at(TENG_HERE, x, options)

/* Softmax attention in tiles, no T × T matrix (Dao, FlashAttention-2). q [B, T, H, D], k and v [B, S, G, D],
 * H a multiple of G (query head h uses head h / (H / G)) → [B, T, H, D]. causal: row t of T sees keys up to t
 * + S - T; window > 0: only the last `window` of them. scale 0 means 1/√D. */
typedef struct teng_attention_options {
    int64_t causal;
    int64_t window;
    double scale;
    int64_t shift; /* causal: row t sees keys up to t + S - T + shift: rows that stand so much later */
} teng_attention_options;
TENG_API teng_tensor *teng_attention_at(teng_src at, teng_tensor *q, teng_tensor *k, teng_tensor *v,
                                        const teng_attention_options *options);
#define teng_attention(q, k, v, options) teng_attention_at(TENG_HERE, q, k, v, options)

/* ---- writing text: rows of few new tokens, keys and values of the earlier ones kept. positions i32[T] is
 * where each row stands in its sequence; none of these has a gradient ---- */
/* rope of x [B, T, H, D] at these positions, which are below `room`; the options' offset and inverse must be
 * 0. dynamic: theta as for a sequence no longer than original_max_position. */
TENG_API teng_tensor *teng_rope_positions_at(teng_src at, teng_tensor *x, teng_tensor *positions,
                                             const teng_rope_options *options, int64_t room);
#define teng_rope_positions(x, positions, options, room)                                                     \
    teng_rope_positions_at(TENG_HERE, x, positions, options, room)
/* Puts rows [B, T, ...] into cache [B, S, ...] in place: cache[b, positions[t]] = rows[b, t]. Returns the
 * cache. */
TENG_API teng_tensor *teng_cache_write_at(teng_src at, teng_tensor *cache, teng_tensor *rows,
                                          teng_tensor *positions);
#define teng_cache_write(cache, rows, positions) teng_cache_write_at(TENG_HERE, cache, rows, positions)
/* Causal attention of q [B, T, H, D] on caches k and v [B, S, G, D]: row t sees keys 0 … positions[t], of
 * which with options->window > 0 the last ones. Positions follow on by one. What lies behind is not read. */
TENG_API teng_tensor *teng_cached_attention_at(teng_src at, teng_tensor *q, teng_tensor *k, teng_tensor *v,
                                               teng_tensor *positions, const teng_attention_options *options);
#define teng_cached_attention(q, k, v, positions, options)                                                   \
    teng_cached_attention_at(TENG_HERE, q, k, v, positions, options)

/* Mean over valid labels of -log softmax(logits)[label]: logits [..., V], labels i32 [...] with the same
 * leading dimensions, ignore_index skipped; 0 when no label is valid → f32 scalar. Labels are already
 * shifted. */
TENG_API teng_tensor *teng_cross_entropy_at(teng_src at, teng_tensor *logits, teng_tensor *labels,
                                            int64_t ignore_index);
#define teng_cross_entropy(logits, labels, ignore_index)                                                     \
    teng_cross_entropy_at(TENG_HERE, logits, labels, ignore_index)
/* cross_entropy(x · wᵀ, labels) in chunks, the logits never in memory: x [..., C], w [V, C] → f32 scalar. */
TENG_API teng_tensor *teng_linear_cross_entropy_at(teng_src at, teng_tensor *x, teng_tensor *w,
                                                   teng_tensor *labels, int64_t ignore_index);
#define teng_linear_cross_entropy(x, w, labels, ignore_index)                                                \
    teng_linear_cross_entropy_at(TENG_HERE, x, w, labels, ignore_index)
#define TENG_IGNORE_INDEX (-100)

/* ---- mixtures of experts ---- */
/* The top_k experts of each token by logits [N, E]: *experts i32 [N, top_k] in falling order, the lowest
 * index first among equals; returns their weights softmax(logits) [N, top_k], divided by their sum if
 * renormalise. */
TENG_API teng_tensor *teng_moe_route_at(teng_src at, teng_tensor *logits, int64_t top_k, bool renormalise,
                                        teng_tensor **experts);
#define teng_moe_route(logits, top_k, renormalise, experts)                                                  \
    teng_moe_route_at(TENG_HERE, logits, top_k, renormalise, experts)
/* The order that puts the tokens of each expert together, none dropped: of chosen i32 [N, K] returns the
 * token of each row i32 [N K]; *place i32 [N, K] is the row of each choice, *counts i32 [experts] the rows of
 * each expert. Rows are gathered with teng_embedding(x, source) and brought back with teng_embedding(rows,
 * place). */
TENG_API teng_tensor *teng_moe_sort_at(teng_src at, teng_tensor *chosen, int64_t experts, teng_tensor **place,
                                       teng_tensor **counts);
#define teng_moe_sort(chosen, experts, place, counts)                                                        \
    teng_moe_sort_at(TENG_HERE, chosen, experts, place, counts)
/* The first counts[0] rows of x [M, K] times w[0], the next counts[1] times w[1], …: w [G, K, N], or [G, N,
 * K] with trans, counts i32 [G] → [M, N]; rows after the last group give zeros. */
TENG_API teng_tensor *teng_grouped_matmul_at(teng_src at, teng_tensor *x, teng_tensor *w, teng_tensor *counts,
                                             bool trans);
#define teng_grouped_matmul(x, w, counts, trans) teng_grouped_matmul_at(TENG_HERE, x, w, counts, trans)

#ifdef __cplusplus
}
#endif
#endif
