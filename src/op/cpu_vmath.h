/*
 * Vectors of floats for kernels on CPUs: loads and stores that convert, and the transcendental functions.
 * Written once on `tg_vf`, the native register of the instruction set a file is compiled for (4, 8 or 16
 * lanes), so that the compilers see plain vector arithmetic; + - * / and comparisons are the C operators (a
 * comparison gives a tg_vi of 0 and -1). Only what the operators cannot say (fma, min, max, sqrt, round,
 * narrowing) is an intrinsic, with a portable loop for everything but x86. Include it in x_cpu.c files only;
 * it is not for code compiled once.
 *
 * Coefficients are weighted least-squares fits near the minimax polynomial, made for this file. Largest
 * errors in f32, measured: exp 1 ulp, log 1 ulp, tanh and erf 2 ulp, sigmoid 3 ulp (0 below -88.7);
 * normal_cdf 1e-6 relative down to -2, 2e-5 in the tail. Infinities and NaN behave as in libm. Denormals are
 * kept.
 */
#ifndef TG_OP_CPU_VMATH_H
#define TG_OP_CPU_VMATH_H

#include "teng/tensor.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TG_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__) && defined(__AVX512BW__) && !defined(TG_VMATH_PORTABLE)
#define TG_LANES 16
#define TG_V512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(TG_VMATH_PORTABLE)
#define TG_LANES 8
#define TG_V256 1
#else
#define TG_LANES 4
#if defined(__SSE4_1__) && !defined(TG_VMATH_PORTABLE)
#define TG_V128 1
#endif
#endif
#define TG_PARTS (16 / TG_LANES) /* registers in a block of 16 */

typedef float tg_vf __attribute__((vector_size(4 * TG_LANES)));
typedef int32_t tg_vi __attribute__((vector_size(4 * TG_LANES)));
typedef uint32_t tg_vu __attribute__((vector_size(4 * TG_LANES)));
typedef uint16_t tg_vh __attribute__((vector_size(2 * TG_LANES))); /* bf16 or f16 bits */

/* ---- the few operations that C has no sign for ---- */
TG_INLINE tg_vf tg_v_set(float x)
{
    return x - (tg_vf){0};
}

#define TG_LANE_LOOP(expr)                                                                                   \
    tg_vf r_;                                                                                                \
    for (int l = 0; l < TG_LANES; l++)                                                                       \
        r_[l] = (expr);                                                                                      \
    return r_

TG_INLINE tg_vf tg_v_fma(tg_vf a, tg_vf b, tg_vf c) /* a·b + c; rounds once except on x86-64-v2 */
{
#if defined(TG_V512)
    return (tg_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(TG_V256)
    return (tg_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__x86_64__)
    return a * b + c;
#else
    TG_LANE_LOOP(fmaf(a[l], b[l], c[l]));
#endif
}
/* The second operand where either is NaN, so max(limit, x) keeps x's NaN. */
TG_INLINE tg_vf tg_v_max(tg_vf a, tg_vf b)
{
#if defined(TG_V512)
    return (tg_vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(TG_V256)
    return (tg_vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(TG_V128)
    return (tg_vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    TG_LANE_LOOP(a[l] > b[l] ? a[l] : b[l]);
#endif
}
TG_INLINE tg_vf tg_v_min(tg_vf a, tg_vf b)
{
#if defined(TG_V512)
    return (tg_vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(TG_V256)
    return (tg_vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(TG_V128)
    return (tg_vf)_mm_min_ps((__m128)a, (__m128)b);
#else
    TG_LANE_LOOP(a[l] < b[l] ? a[l] : b[l]);
#endif
}
TG_INLINE tg_vf tg_v_sqrt(tg_vf a)
{
#if defined(TG_V512)
    return (tg_vf)_mm512_sqrt_ps((__m512)a);
#elif defined(TG_V256)
    return (tg_vf)_mm256_sqrt_ps((__m256)a);
#elif defined(TG_V128)
    return (tg_vf)_mm_sqrt_ps((__m128)a);
#else
    TG_LANE_LOOP(sqrtf(a[l]));
#endif
}
TG_INLINE tg_vf tg_v_round(tg_vf a) /* nearest integer, halves to even */
{
#if defined(TG_V512)
    return (tg_vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(TG_V256)
    return (tg_vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(TG_V128)
    return (tg_vf)_mm_round_ps((__m128)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    TG_LANE_LOOP(rintf(a[l]));
#endif
}
TG_INLINE tg_vf tg_v_select(tg_vi mask, tg_vf yes, tg_vf no)
{
    return (tg_vf)((mask & (tg_vi)yes) | (~mask & (tg_vi)no));
}
TG_INLINE tg_vf tg_v_abs(tg_vf a)
{
    return (tg_vf)((tg_vu)a & 0x7fffffffu);
}
TG_INLINE tg_vf tg_v_sign_of(tg_vf magnitude, tg_vf sign)
{
    return (tg_vf)(((tg_vu)magnitude & 0x7fffffffu) | ((tg_vu)sign & 0x80000000u));
}
TG_INLINE tg_vf tg_v_rsqrt(tg_vf a)
{
    return 1.0f / tg_v_sqrt(a);
}

/* Over the lanes of one register, by halves: lane l and lane l + half are added, half = 8, 4, 2, 1. */
TG_INLINE float tg_v_hsum(tg_vf v)
{
#if TG_LANES == 16
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
#elif TG_LANES == 8
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
#else
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
#endif
    return v[0] + v[1];
}
TG_INLINE float tg_v_hmax(tg_vf v)
{
    for (int half = TG_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            v[l] = v[l] > v[l + half] ? v[l] : v[l + half];
    return v[0];
}

/* ---- 16-bit floats in registers ---- */
TG_INLINE tg_vu tg_v_widen(tg_vh h)
{
#if defined(TG_V512)
    return (tg_vu)_mm512_cvtepu16_epi32((__m256i)h);
#elif defined(TG_V256)
    return (tg_vu)_mm256_cvtepu16_epi32((__m128i)h);
#else
    return __builtin_convertvector(h, tg_vu);
#endif
}
TG_INLINE tg_vh tg_v_narrow(tg_vu u) /* each lane below 65536 */
{
#if defined(TG_V512)
    return (tg_vh)_mm512_cvtepi32_epi16((__m512i)u);
#elif defined(TG_V256)
    __m128i lo = _mm256_castsi256_si128((__m256i)u), hi = _mm256_extracti128_si256((__m256i)u, 1);
    return (tg_vh)_mm_packus_epi32(lo, hi);
#elif defined(TG_V128)
    tg_vh h;
    __m128i packed = _mm_packus_epi32((__m128i)u, (__m128i)u);
    memcpy(&h, &packed, sizeof h);
    return h;
#else
    return __builtin_convertvector(u, tg_vh);
#endif
}
TG_INLINE tg_vf tg_v_from_bf16(tg_vh h)
{
    return (tg_vf)(tg_v_widen(h) << 16);
}
TG_INLINE tg_vh tg_v_to_bf16(tg_vf f) /* to nearest, halves to even; NaN stays NaN; not by vcvtneps2bf16,
                                         which drops denormals */
{
    const tg_vu u = (tg_vu)f, rounded = u + 0x7fffu + ((u >> 16) & 1u);
#if defined(TG_V512)
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)f, (__m512)f, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)u, _mm512_set1_epi32(0x400000));
    return (tg_vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
#else
    const tg_vu nan = (tg_vu)((u & 0x7fffffffu) > 0x7f800000u);
    return tg_v_narrow(((nan & (u | 0x400000u)) | (~nan & rounded)) >> 16);
#endif
}
TG_INLINE tg_vf tg_v_from_f16(tg_vh h)
{
#if defined(TG_V512)
    return (tg_vf)_mm512_cvtph_ps((__m256i)h);
#elif defined(TG_V256)
    return (tg_vf)_mm256_cvtph_ps((__m128i)h);
#else
    tg_vu u = tg_v_widen(h);
    tg_vf f = (tg_vf)((u & 0x7fffu) << 13) * 0x1p112f; /* rebias the exponent; subnormals become normal */
    tg_vu special = (tg_vu)((u & 0x7c00u) == 0x7c00u) & 0x7f800000u;
    return (tg_vf)((tg_vu)f | special | ((u & 0x8000u) << 16));
#endif
}
TG_INLINE tg_vh tg_v_to_f16(tg_vf f)
{
#if defined(TG_V512)
    return (tg_vh)_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT);
#elif defined(TG_V256)
    return (tg_vh)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT);
#else
    tg_vu a = (tg_vu)f & 0x7fffffffu, sign = ((tg_vu)f >> 16) & 0x8000u;
    tg_vu normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    tg_vu small =
        (tg_vu)((tg_vf)a + 0.5f) - 0x3f000000u; /* 0.5's ulp is the subnormal step, the add rounds */
    tg_vu is_small = (tg_vu)(a < 0x38800000u), is_big = (tg_vu)(a >= 0x477ff000u),
          is_nan = (tg_vu)(a > 0x7f800000u);
    tg_vu r = (is_small & small) | (~is_small & normal);
    r = (is_big & 0x7c00u) | (~is_big & r);
    r = (is_nan & (0x7e00u | ((a >> 13) & 0x3ffu))) | (~is_nan & r);
    return tg_v_narrow(r | sign);
#endif
}

/* ---- memory: TG_LANES elements of a floating dtype at element i; t must be a constant after inlining ----
 */
TG_INLINE tg_vf tg_v_load(teng_dtype t, const void *p, int64_t i)
{
    tg_vf f;
    tg_vh h;
    if (t == TENG_F32) {
        memcpy(&f, (const float *)p + i, sizeof f);
        return f;
    }
    memcpy(&h, (const uint16_t *)p + i, sizeof h);
    return t == TENG_BF16 ? tg_v_from_bf16(h) : tg_v_from_f16(h);
}
TG_INLINE void tg_v_store(teng_dtype t, void *p, int64_t i, tg_vf f)
{
    if (t == TENG_F32) {
        memcpy((float *)p + i, &f, sizeof f);
        return;
    }
    tg_vh h = t == TENG_BF16 ? tg_v_to_bf16(f) : tg_v_to_f16(f);
    memcpy((uint16_t *)p + i, &h, sizeof h);
}
/* The tail: n < TG_LANES elements; missing lanes load as 0 and are not stored. */
TG_INLINE tg_vf tg_v_load_n(teng_dtype t, const void *p, int64_t i, int64_t n)
{
    size_t size = t == TENG_F32 ? 4 : 2;
    tg_vf room = {0};
    memcpy(&room, (const char *)p + (size_t)i * size, (size_t)n * size);
    return tg_v_load(t, &room, 0);
}
TG_INLINE void tg_v_store_n(teng_dtype t, void *p, int64_t i, tg_vf f, int64_t n)
{
    size_t size = t == TENG_F32 ? 4 : 2;
    tg_vf room;
    tg_v_store(t, &room, 0, f);
    memcpy((char *)p + (size_t)i * size, &room, (size_t)n * size);
}
/* One element. */
TG_INLINE float tg_v_load1(teng_dtype t, const void *p, int64_t i)
{
    if (t == TENG_F32) return ((const float *)p)[i];
    return tg_v_load_n(t, p, i, 1)[0];
}
TG_INLINE void tg_v_store1(teng_dtype t, void *p, int64_t i, float x)
{
    if (t == TENG_F32)
        ((float *)p)[i] = x;
    else
        tg_v_store_n(t, p, i, tg_v_set(x), 1);
}

#include "op/cpu_vfun.h" /* exp, log, tanh, sigmoid, erf, normal_cdf */

#endif
