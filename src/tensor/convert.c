/*
 * Values from one element type to another. Each conversion rounds once, to nearest even; integers that fit
 * are exact. A float that does not fit an integer saturates, its fraction is dropped, NaN becomes 0. An
 * integer that does not fit another integer saturates too.
 *
 * The pairs that training uses have loops of their own; every other pair goes through long double, which
 * holds each value of each type exactly (64 bits of mantissa on x86-64, 113 on arm64). Kernels do not come
 * here: they convert in registers.
 */
#include "tensor/desc.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(LDBL_MANT_DIG >= 64, "long double must hold every 64-bit integer");

float tg_f16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } b;
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 0x1fu, mant = h & 0x3ffu;
    if (exp == 0) { /* zero and subnormals: mant · 2^-24, exact */
        b.f = (float)mant * 0x1p-24f;
        b.u |= sign;
        return b.f;
    }
    b.u = sign | ((exp == 31 ? 255 : exp + 112) << 23) | (mant << 13);
    return b.f;
}

uint16_t tg_f32_to_f16(float f)
{
    union {
        float f;
        uint32_t u;
    } b = {f};
    uint32_t sign = (b.u >> 16) & 0x8000u, a = b.u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu)); /* NaN, made quiet */
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above: infinity */
    if (a >= 0x38800000u) {                                  /* normal: 2^-14 and above */
        uint32_t r = a - 0x38000000u;
        return (uint16_t)(sign | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13));
    }
    if (a < 0x33000000u) return (uint16_t)sign; /* below half of the smallest subnormal */
    uint32_t mant = (a & 0x7fffffu) | 0x800000u, shift = 126 - (a >> 23); /* 14 to 24 */
    uint32_t q = mant >> shift, rest = mant & ((1u << shift) - 1), half = 1u << (shift - 1);
    return (uint16_t)(sign | (q + (rest > half || (rest == half && (q & 1u)))));
}

/* v as a float rounded to odd: a second rounding to a type with at least two bits less is then the same as
 * one. */
static float to_float_odd(long double v)
{
    union {
        float f;
        uint32_t u;
    } b = {(float)v};
    if (isnan(b.f) || (long double)b.f == v || (b.u & 1u)) return b.f;
    return nextafterf(b.f, (long double)b.f < v ? INFINITY : -INFINITY);
}

static long double load_wide(teng_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TENG_F32:
        return (long double)((const float *)p)[i];
    case TENG_F16:
        return (long double)tg_f16_to_f32(((const uint16_t *)p)[i]);
    case TENG_BF16:
        return (long double)tg_bf16_to_f32(((const uint16_t *)p)[i]);
    case TENG_F64:
        return (long double)((const double *)p)[i];
    case TENG_I8:
        return (long double)((const int8_t *)p)[i];
    case TENG_U8:
        return (long double)((const uint8_t *)p)[i];
    case TENG_I16:
        return (long double)((const int16_t *)p)[i];
    case TENG_U16:
        return (long double)((const uint16_t *)p)[i];
    case TENG_I32:
        return (long double)((const int32_t *)p)[i];
    case TENG_U32:
        return (long double)((const uint32_t *)p)[i];
    case TENG_I64:
        return (long double)((const int64_t *)p)[i];
    case TENG_U64:
        return (long double)((const uint64_t *)p)[i];
    case TENG_BOOL:
        return ((const uint8_t *)p)[i] ? 1.0L : 0.0L;
    case TENG_DTYPE_COUNT:
        break;
    }
    return 0;
}

static long double clamp(long double v, long double lo, long double hi)
{
    if (isnan(v)) return 0;
    return v < lo ? lo : v > hi ? hi : v;
}

static void store_wide(teng_dtype t, void *p, int64_t i, long double v)
{
    switch (t) {
    case TENG_F32:
        ((float *)p)[i] = (float)v;
        break;
    case TENG_F16:
        ((uint16_t *)p)[i] = tg_f32_to_f16(to_float_odd(v));
        break;
    case TENG_BF16:
        ((uint16_t *)p)[i] = tg_f32_to_bf16(to_float_odd(v));
        break;
    case TENG_F64:
        ((double *)p)[i] = (double)v;
        break;
    case TENG_I8:
        ((int8_t *)p)[i] = (int8_t)clamp(v, INT8_MIN, INT8_MAX);
        break;
    case TENG_U8:
        ((uint8_t *)p)[i] = (uint8_t)clamp(v, 0, UINT8_MAX);
        break;
    case TENG_I16:
        ((int16_t *)p)[i] = (int16_t)clamp(v, INT16_MIN, INT16_MAX);
        break;
    case TENG_U16:
        ((uint16_t *)p)[i] = (uint16_t)clamp(v, 0, UINT16_MAX);
        break;
    case TENG_I32:
        ((int32_t *)p)[i] = (int32_t)clamp(v, INT32_MIN, INT32_MAX);
        break;
    case TENG_U32:
        ((uint32_t *)p)[i] = (uint32_t)clamp(v, 0, UINT32_MAX);
        break;
    case TENG_I64:
        ((int64_t *)p)[i] = (int64_t)clamp(v, (long double)INT64_MIN, (long double)INT64_MAX);
        break;
    case TENG_U64:
        ((uint64_t *)p)[i] = (uint64_t)clamp(v, 0, (long double)UINT64_MAX);
        break;
    case TENG_BOOL:
        ((uint8_t *)p)[i] = v != 0;
        break;
    case TENG_DTYPE_COUNT:
        break;
    }
}

double tg_load_double(teng_dtype t, const void *data, int64_t i)
{
    if (t == TENG_F32) return (double)((const float *)data)[i];
    return (double)load_wide(t, data, i);
}

void tg_store_double(teng_dtype t, void *data, int64_t i, double v)
{
    store_wide(t, data, i, (long double)v);
}

void tg_convert(teng_dtype to, void *dst, teng_dtype from, const void *src, int64_t n)
{
    if (n <= 0) return;
    const float *sf = src;
    const uint16_t *sh = src;
    float *df = dst;
    uint16_t *dh = dst;
    if (to == from) {
        memmove(dst, src, (size_t)n * (size_t)teng_dtype_size(to));
    } else if (to == TENG_BF16 && from == TENG_F32) {
        for (int64_t i = 0; i < n; i++)
            dh[i] = tg_f32_to_bf16(sf[i]);
    } else if (to == TENG_F32 && from == TENG_BF16) {
        for (int64_t i = 0; i < n; i++)
            df[i] = tg_bf16_to_f32(sh[i]);
    } else if (to == TENG_F16 && from == TENG_F32) {
        for (int64_t i = 0; i < n; i++)
            dh[i] = tg_f32_to_f16(sf[i]);
    } else if (to == TENG_F32 && from == TENG_F16) {
        for (int64_t i = 0; i < n; i++)
            df[i] = tg_f16_to_f32(sh[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            store_wide(to, dst, i, load_wide(from, src, i));
    }
}
