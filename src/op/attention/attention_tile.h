/*
 * Pieces that the attention kernels are made of: rows brought into packed f32 tiles, small matrix products on
 * them. A panel is TG_ATT_PANEL queries; scores lie transposed, one row a
 * key and one column a query, so that softmax runs along registers without a sum across lanes, and both
 * products read keys and values as they lie, an element at a time. Include in x_cpu.c files only.
 */
#ifndef TG_OP_ATTENTION_TILE_H
#define TG_OP_ATTENTION_TILE_H

#include "op/attention/attention_pairs.h"

#if defined(TG_V512) || defined(__aarch64__)
#define TG_ATT_ROWS 8 /* of a group in registers, by TG_ATT_VECS: 32 registers hold 8 × 3, 16 hold 4 × 3 */
#else
#define TG_ATT_ROWS 4
#endif
#define TG_ATT_VECS 3

/* A million multiplications and more: tens of microseconds. */
TG_INLINE bool tg_att_worth_threads(const tg_attention_sizes *z)
{
    return z->batch * z->heads * z->width * z->rows * z->keys >= 1 << 20;
}

/* Scores are kept times log2 e, so that their exponentials are powers of 2. */
#define TG_ATT_LOG2E 1.44269504089f

/* 2^x for x <= 0, or a little above; 0 from -127 down, so that no denormal numbers slow the products down. x
 * = n + r, n the nearest integer; 2^r by least squares near the minimax polynomial (2e-9), its exponent
 * raised by n. Unsigned: the score of a key that is not seen may lie far above, and is dropped later. */
TG_INLINE tg_vf tg_att_exp2(tg_vf x)
{
    static const float c[] = {0.69314720286f,   0.24022647914f,   0.055503324712f,
                              0.0096184373574f, 0.0013398874404f, 0.00015353361945f};
    x = tg_v_max(tg_v_set(-127.0f), x);
    const tg_vf n = tg_v_round(x), r = x - n, p = tg_v_fma(r, tg_v_poly(r, c, 6), tg_v_set(1.0f));
    return (tg_vf)((tg_vu)p + ((tg_vu) __builtin_convertvector(n, tg_vi) << 23));
}

/* The same for weights that become bf16: 3e-6, in fewer steps. Adding 1.5 · 2^23 rounds and leaves n in the
 * lowest bits. */
TG_INLINE tg_vf tg_att_exp2_short(tg_vf x)
{
    static const float c[] = {0.69312419339f, 0.24024098611f, 0.055906424843f, 0.0095828531023f};
    x = tg_v_max(tg_v_set(-127.0f), x);
    const tg_vf n = x + 0x1.8p23f, r = x - (n - 0x1.8p23f),
                p = tg_v_fma(r, tg_v_poly(r, c, 4), tg_v_set(1.0f));
    return (tg_vf)((tg_vu)p + ((tg_vu)n << 23));
}

/* 2^(score · factor - top); without pairs the factor is in the score already. */
TG_INLINE tg_vf tg_att_weight(bool pairs, tg_vf score, float factor, tg_vf top)
{
    return pairs ? tg_att_exp2_short(tg_v_fma(score, tg_v_set(factor), -top)) : tg_att_exp2(score - top);
}

/* ---- rows in and out ---- */
/* dst[rows][dp] = rows of `width` elements that lie `step` apart from element `at`; dst rows up to `padded`
 * and the ends of rows are 0. */
TG_INLINE void tg_att_load_as(teng_dtype T, float *dst, int64_t dp, int64_t padded, const void *src,
                              int64_t at, int64_t step, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        TG_VECTORS(i, len, 0, width)
        {
            tg_v_store(TENG_F32, dst, r * dp + i, tg_v_load_part(T, src, at + r * step + i, len));
        }
    for (int64_t i = rows * dp; i < padded * dp; i += TG_LANES)
        tg_v_store(TENG_F32, dst, i, tg_v_set(0.0f));
}
static inline void tg_att_load(teng_dtype dtype, float *dst, int64_t dp, int64_t padded, const void *src,
                               int64_t at, int64_t step, int64_t rows, int64_t width)
{
    TG_FLOAT_SWITCH(dtype, T, tg_att_load_as(T, dst, dp, padded, src, at, step, rows, width));
}
/* Rows for the products that sum along them: f32, or words. */
static inline void tg_att_load_rows(bool pairs, teng_dtype dtype, float *dst, int64_t padded, const void *src,
                                    int64_t at, int64_t step, int64_t rows, int64_t width)
{
#if TG_ATT_BF16
    if (pairs) {
        tg_att_copy_rows(dst, padded, (const uint16_t *)src + at, step, rows, width);
        return;
    }
#endif
    (void)pairs;
    tg_att_load(dtype, dst, tg_att_width(width), padded, src, at, step, rows, width);
}
/* Rows for the products that sum over them: f32, or pair rows. */
static inline void tg_att_load_pairs(bool pairs, teng_dtype dtype, float *dst, int64_t padded,
                                     const void *src, int64_t at, int64_t step, int64_t rows, int64_t width)
{
#if TG_ATT_BF16
    if (pairs) {
        tg_att_pair_rows(dst, padded, (const uint16_t *)src + at, step, rows, width);
        return;
    }
#endif
    (void)pairs;
    tg_att_load(dtype, dst, tg_att_width(width), padded, src, at, step, rows, width);
}
/* The way back: row r times factor[r] (NULL: 1). */
TG_INLINE void tg_att_store_as(teng_dtype T, void *dst, int64_t at, int64_t step, const float *src,
                               int64_t dp, int64_t rows, int64_t width, const float *factor)
{
    for (int64_t r = 0; r < rows; r++) {
        const float f = factor ? factor[r] : 1.0f;
        TG_VECTORS(i, len, 0, width)
        {
            tg_v_store_part(T, dst, at + r * step + i, tg_v_load(TENG_F32, src, r * dp + i) * f, len);
        }
    }
}
static inline void tg_att_store(teng_dtype dtype, void *dst, int64_t at, int64_t step, const float *src,
                                int64_t dp, int64_t rows, int64_t width, const float *factor)
{
    TG_FLOAT_SWITCH(dtype, T, tg_att_store_as(T, dst, at, step, src, dp, rows, width, factor));
}

/* Interleaves the low, and the high, halves of two registers. */
TG_INLINE void tg_att_zip(tg_vf a, tg_vf b, tg_vf *low, tg_vf *high)
{
#if TG_LANES == 16
    *low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif TG_LANES == 8
    *low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    *low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    *high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

/* dst[dp][TG_ATT_PANEL] = the transpose of src[TG_ATT_PANEL][dp], times factor: log2(lanes) rounds of
 * interleaving register i with register i + lanes / 2. */
static inline void tg_att_transpose(float *dst, const float *src, int64_t dp, float factor)
{
    for (int64_t row = 0; row < TG_ATT_PANEL; row += TG_LANES)
        for (int64_t col = 0; col < dp; col += TG_LANES) {
            tg_vf a[TG_LANES], b[TG_LANES];
            TG_UNROLL(16)
            for (int i = 0; i < TG_LANES; i++)
                a[i] = tg_v_load(TENG_F32, src, (row + i) * dp + col);
            if (factor != 1.0f) {
                TG_UNROLL(16)
                for (int i = 0; i < TG_LANES; i++)
                    a[i] *= factor;
            }
            TG_UNROLL(4)
            for (int round = 1; round < TG_LANES; round *= 2) {
                TG_UNROLL(8)
                for (int i = 0; i < TG_LANES / 2; i++)
                    tg_att_zip(a[i], a[i + TG_LANES / 2], &b[2 * i], &b[2 * i + 1]);
                TG_UNROLL(16)
                for (int i = 0; i < TG_LANES; i++)
                    a[i] = b[i];
            }
            TG_UNROLL(16)
            for (int i = 0; i < TG_LANES; i++)
                tg_v_store(TENG_F32, dst, (col + i) * TG_ATT_PANEL + row, a[i]);
        }
}

/* ---- products ---- */
typedef enum tg_att_mode { TG_ATT_SET, TG_ATT_ADD } tg_att_mode;

/* C[rows × vecs registers] = [C +] Σ over l < depth of A[r][l] · B[l]: A[r][l] is a[r * lda + l], or a[l *
 * lda + r] when it lies transposed; a float, or a word of pairs. All but the pointers and depth are constants
 * at each call. */
TG_INLINE void tg_att_kernel(bool pairs, int rows, int vecs, bool trans, tg_att_mode mode, const float *a,
                             int64_t lda, const float *b, int64_t ldb, int64_t depth, float *c, int64_t ldc)
{
    tg_vf sum[TG_ATT_ROWS][TG_ATT_VECS];
    TG_UNROLL(8)
    for (int r = 0; r < rows; r++) {
        TG_UNROLL(3)
        for (int v = 0; v < vecs; v++)
            sum[r][v] = mode == TG_ATT_ADD ? tg_v_load(TENG_F32, c, r * ldc + v * TG_LANES) : (tg_vf){0};
    }
    for (int64_t l = 0; l < depth; l++) {
        tg_vf right[TG_ATT_VECS];
        TG_UNROLL(3)
        for (int v = 0; v < vecs; v++)
            right[v] = tg_v_load(TENG_F32, b, l * ldb + v * TG_LANES);
        TG_UNROLL(8)
        for (int r = 0; r < rows; r++) {
            const tg_vf left = tg_att_spread(a + (trans ? l * lda + r : r * lda + l));
            TG_UNROLL(3)
            for (int v = 0; v < vecs; v++)
                sum[r][v] = tg_att_multiply(pairs, left, right[v], sum[r][v]);
        }
    }
    TG_UNROLL(8)
    for (int r = 0; r < rows; r++) {
        TG_UNROLL(3)
        for (int v = 0; v < vecs; v++)
            tg_v_store(TENG_F32, c, r * ldc + v * TG_LANES, sum[r][v]);
    }
}

/* The same for TG_ATT_GROUP rows and any number of registers. */
TG_INLINE void tg_att_group(bool pairs, bool trans, tg_att_mode mode, const float *a, int64_t lda,
                            const float *b, int64_t ldb, int64_t depth, float *c, int64_t ldc, int64_t vecs)
{
    for (int r = 0; r < TG_ATT_GROUP; r += TG_ATT_ROWS) {
        const float *ar = a + (trans ? r : r * lda);
        float *cr = c + r * ldc;
        int64_t v = 0;
        for (; vecs - v == 3 || vecs - v > 4; v += 3)
            tg_att_kernel(pairs, TG_ATT_ROWS, 3, trans, mode, ar, lda, b + v * TG_LANES, ldb, depth,
                          cr + v * TG_LANES, ldc);
        for (; vecs - v >= 2; v += 2)
            tg_att_kernel(pairs, TG_ATT_ROWS, 2, trans, mode, ar, lda, b + v * TG_LANES, ldb, depth,
                          cr + v * TG_LANES, ldc);
        if (v < vecs)
            tg_att_kernel(pairs, TG_ATT_ROWS, 1, trans, mode, ar, lda, b + v * TG_LANES, ldb, depth,
                          cr + v * TG_LANES, ldc);
    }
}

/* The three products, of f32 tiles or of pair tiles with words for floats. */

/* scores[padded][TG_ATT_PANEL] = rows[padded][words of width] · queries, which are [words][TG_ATT_PANEL];
 * registers of which nothing is seen are left as they are. */
TG_INLINE void tg_att_scores(bool pairs, const tg_att_tile *t, int64_t padded, int64_t width,
                             const float *rows, const float *queries, float *scores)
{
    const int64_t words = tg_att_words(pairs, width), step = tg_att_width(words);
    for (int64_t j = 0; j < padded; j += TG_ATT_GROUP) {
        int64_t lo, hi;
        tg_att_group_cols(t, j, &lo, &hi);
        lo = lo / TG_LANES;
        hi = tg_blocks(hi, TG_LANES);
        if (lo < hi)
            tg_att_group(pairs, false, TG_ATT_SET, rows + j * step, step, queries + lo * TG_LANES,
                         TG_ATT_PANEL, words, scores + j * TG_ATT_PANEL + lo * TG_LANES, TG_ATT_PANEL,
                         hi - lo);
    }
}

/* out[i] += Σ over keys of weights[key][i] · rows[key], for the first `queries` columns of the panel. */
TG_INLINE void tg_att_gather(bool pairs, const tg_att_tile *t, int64_t queries, const float *weights,
                             const float *rows, int64_t dp, float *out)
{
    for (int64_t i = 0; i < queries; i += TG_ATT_GROUP) {
        const int64_t first = tg_att_key_lo(t, i), end = tg_att_key_hi(t, i + TG_ATT_GROUP - 1);
        const int64_t lo = pairs ? first / 2 : first, hi = tg_att_words(pairs, end);
        if (first < end)
            tg_att_group(pairs, true, TG_ATT_ADD, weights + lo * TG_ATT_PANEL + i, TG_ATT_PANEL,
                         rows + lo * dp, dp, hi - lo, out + i * dp, dp, dp / TG_LANES);
    }
}

/* out[key] += Σ over the panel's queries of weights[key][i] · queries[i]. */
TG_INLINE void tg_att_scatter(bool pairs, const tg_att_tile *t, int64_t padded, const float *weights,
                              const float *queries, int64_t dp, float *out)
{
    const int64_t step = tg_att_words(pairs, TG_ATT_PANEL);
    for (int64_t j = 0; j < padded; j += TG_ATT_GROUP) {
        int64_t first, end;
        tg_att_group_cols(t, j, &first, &end);
        const int64_t lo = pairs ? first / 2 : first, hi = tg_att_words(pairs, end);
        if (first < end)
            tg_att_group(pairs, false, TG_ATT_ADD, weights + j * step + lo, step, queries + lo * dp, dp,
                         hi - lo, out + j * dp, dp, dp / TG_LANES);
    }
}

#endif
