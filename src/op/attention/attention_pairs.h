/*
 * bf16 tiles as pairs, for CPUs that multiply two bf16 a lane and add both products to an f32 sum
 * (AVX512-BF16). A word is two elements that follow on along the sum: of a row as it lies in memory (keys and
 * values for scores, weights for sums over queries), or of one column in two rows (pair rows). A pair tile is
 * laid out as an f32 tile is, a word for a float, at half the depth, so the products of attention_tile.h take
 * both. Scores, maxima, exponentials and sums are f32; weights round to bf16 for the product that follows.
 * For f32 and f16, and for bf16 on other CPUs, `pairs` is false and tiles are f32. Include in x_cpu.c files
 * only.
 */
#ifndef TG_OP_ATTENTION_PAIRS_H
#define TG_OP_ATTENTION_PAIRS_H

#include "op/attention/attention_seen.h"

#if defined(TG_V512) && defined(__AVX512BF16__)
#define TG_ATT_BF16 true
#else
#define TG_ATT_BF16 false
#endif

TG_INLINE bool tg_att_pairs(teng_dtype dtype)
{
    return TG_ATT_BF16 && dtype == TENG_BF16;
}
/* Floats, or words, of a packed row. */
TG_INLINE int64_t tg_att_width(int64_t width)
{
    return tg_blocks(width, TG_LANES) * TG_LANES;
}
/* Words of n elements along the sum. */
TG_INLINE int64_t tg_att_words(bool pairs, int64_t n)
{
    return pairs ? (n + 1) / 2 : n;
}

/* A word in all lanes; a load that changes no bit. */
TG_INLINE tg_vf tg_att_spread(const float *word)
{
    int32_t bits;
    memcpy(&bits, word, sizeof bits);
    return (tg_vf)((tg_vi){0} + bits);
}
/* c + a·b, of pairs: c + a0·b0 + a1·b1. */
TG_INLINE tg_vf tg_att_multiply(bool pairs, tg_vf a, tg_vf b, tg_vf c)
{
#if TG_ATT_BF16
    if (pairs) return (tg_vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#endif
    (void)pairs;
    return tg_v_fma(a, b, c);
}

#if TG_ATT_BF16
/* n of 32 elements; the rest is neither read nor set, but 0. */
TG_INLINE __m512i tg_att_load32(const uint16_t *from, int64_t n)
{
    const __mmask32 mask = n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
    return _mm512_maskz_loadu_epi16(mask, from);
}

/* dst[rows][words of width, packed] = rows of `width` bf16 that lie `step` apart; dst rows up to `padded` and
 * the ends of rows are 0. */
TG_INLINE void tg_att_copy_rows(float *dst, int64_t padded, const uint16_t *src, int64_t step, int64_t rows,
                                int64_t width)
{
    const int64_t wp = tg_att_width(tg_att_words(true, width));
    for (int64_t i = 0; i < wp; i += TG_LANES) {
        for (int64_t r = 0; r < rows; r++)
            _mm512_storeu_si512(dst + r * wp + i, tg_att_load32(src + r * step + 2 * i, width - 2 * i));
        for (int64_t r = rows; r < padded; r++)
            _mm512_storeu_si512(dst + r * wp + i, _mm512_setzero_si512());
    }
}

/* dst[padded / 2][dp]: the same rows two by two, a word of each column. */
TG_INLINE void tg_att_pair_rows(float *dst, int64_t padded, const uint16_t *src, int64_t step, int64_t rows,
                                int64_t width)
{
    static const uint16_t order[2][32] = {{0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                           8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
                                          {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                           24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    const int64_t dp = tg_att_width(width);
    for (int64_t i = 0; i < width; i += 32)
        for (int64_t r = 0; r < rows; r += 2) {
            const uint16_t *from = src + r * step + i;
            const __m512i a = tg_att_load32(from, width - i),
                          b = r + 1 < rows ? tg_att_load32(from + step, width - i) : _mm512_setzero_si512();
            float *to = dst + r / 2 * dp + i;
            _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
            if (i + TG_LANES < dp) _mm512_storeu_si512(to + TG_LANES, _mm512_permutex2var_epi16(a, high, b));
        }
    for (int64_t i = (rows + 1) / 2 * dp; i < padded / 2 * dp; i += TG_LANES)
        _mm512_storeu_si512(dst + i, _mm512_setzero_si512());
}

/* Registers of one column in two rows, rounded to bf16: the first row's elements, then the other's. */
TG_INLINE __m512i tg_att_round(tg_vf a, tg_vf b)
{
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
}
#endif

/* Weights at register c of keys j and j + 1, j even: f32, or a pair row, [keys / 2][TG_ATT_PANEL]. */
TG_INLINE void tg_att_store_keys(bool pairs, float *weights, int64_t j, int64_t c, tg_vf a, tg_vf b)
{
#if TG_ATT_BF16
    static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    if (pairs) {
        const __m512i words = _mm512_permutexvar_epi16(_mm512_loadu_si512(order), tg_att_round(a, b));
        _mm512_storeu_si512(weights + j / 2 * TG_ATT_PANEL + c, words);
        return;
    }
#endif
    (void)pairs;
    tg_v_store(TENG_F32, weights, j * TG_ATT_PANEL + c, a);
    tg_v_store(TENG_F32, weights, (j + 1) * TG_ATT_PANEL + c, b);
}
/* The same as rows: f32, or bf16, [keys][TG_ATT_PANEL / 2]. */
TG_INLINE void tg_att_store_queries(bool pairs, float *weights, int64_t j, int64_t c, tg_vf a, tg_vf b)
{
#if TG_ATT_BF16
    if (pairs) {
        const __m512i rows = tg_att_round(a, b);
        _mm256_storeu_si256((void *)(weights + (j * TG_ATT_PANEL + c) / 2), _mm512_castsi512_si256(rows));
        _mm256_storeu_si256((void *)(weights + ((j + 1) * TG_ATT_PANEL + c) / 2),
                            _mm512_extracti64x4_epi64(rows, 1));
        return;
    }
#endif
    (void)pairs;
    tg_v_store(TENG_F32, weights, j * TG_ATT_PANEL + c, a);
    tg_v_store(TENG_F32, weights, (j + 1) * TG_ATT_PANEL + c, b);
}

#endif
