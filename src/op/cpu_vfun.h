/* Transcendental functions on tg_vf; see cpu_vmath.h, which includes this. */
#ifndef TG_OP_CPU_VFUN_H
#define TG_OP_CPU_VFUN_H

#include "op/cpu_vmath.h"

/* c[0] + c[1] x + … + c[n-1] x^(n-1), Horner. */
TG_INLINE tg_vf tg_v_poly(tg_vf x, const float *c, int n)
{
    tg_vf r = tg_v_set(c[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        r = tg_v_fma(r, x, tg_v_set(c[i]));
    return r;
}

/* p · 2^n for an integer n from -252 to 252; rounds once where the result is no normal number. */
TG_INLINE tg_vf tg_v_scale(tg_vf p, tg_vf n)
{
#if defined(TG_V512)
    return (tg_vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    tg_vi k = __builtin_convertvector(n, tg_vi),
          half = k >> 1; /* 2^n in two steps reaches infinity and denormals */
    tg_vf a = (tg_vf)(((tg_vu)half + 127u) << 23), b = (tg_vf)(((tg_vu)k - (tg_vu)half + 127u) << 23);
    return p * a * b;
#endif
}

/* e^x = 2^n · e^r, n the integer nearest to x / ln 2, |r| <= ln 2 / 2. */
TG_INLINE tg_vf tg_v_exp(tg_vf x)
{
    static const float c[] = {0.50000000955f, 0.16666518255f, 0.041666204809f, 0.0083689582032f,
                              0.0013950553542f};
    x = tg_v_max(tg_v_set(-104.0f), tg_v_min(tg_v_set(89.0f), x));
    tg_vf n = tg_v_round(x * 1.44269504089f);
    tg_vf r = tg_v_fma(n, tg_v_set(-0.693359375f), x); /* ln 2 in two parts, n times the first is exact */
    r = tg_v_fma(n, tg_v_set(2.12194440e-4f), r);
    return tg_v_scale(tg_v_fma(r * r, tg_v_poly(r, c, 5), r) + 1.0f, n);
}

/* 2^x = 2^n · 2^r, n the integer nearest to x: cheaper than e^x, and 1 ulp, where x is at hand. */
TG_INLINE tg_vf tg_v_exp2(tg_vf x)
{
    static const float c[] = {0.69314720286f,   0.24022647914f,   0.055503324712f,
                              0.0096184373574f, 0.0013398874404f, 0.00015353361945f};
    x = tg_v_max(tg_v_set(-150.0f), tg_v_min(tg_v_set(129.0f), x));
    const tg_vf n = tg_v_round(x), r = x - n;
    return tg_v_scale(tg_v_fma(r, tg_v_poly(r, c, 6), tg_v_set(1.0f)), n);
}

/* log x = e · ln 2 + log(1 + f), 1 + f in [√½, √2). */
TG_INLINE tg_vf tg_v_log(tg_vf x)
{
    static const float c[] = {0.33333331758f, -0.25000821556f, 0.20001221691f, -0.16623336586f,
                              0.14201868779f, -0.13160489692f, 0.12760914915f, -0.076328626771f};
    tg_vi tiny = x < 0x1p-126f;
    tg_vu u = (tg_vu)tg_v_select(tiny, x * 0x1p23f, x);
    tg_vi k = (tg_vi)(u - 0x3f3504f3u) >> 23;
    tg_vf f = (tg_vf)(u - ((tg_vu)k << 23)) - 1.0f;
    tg_vf e = __builtin_convertvector(k, tg_vf) - tg_v_select(tiny, tg_v_set(23.0f), tg_v_set(0.0f));
    tg_vf f2 = f * f;
    tg_vf r = tg_v_fma(f2, f * tg_v_poly(f, c, 8) - 0.5f, e * -2.12194440e-4f);
    r = tg_v_fma(e, tg_v_set(0.693359375f), r + f);
    tg_vf special = tg_v_select(x > 0.0f, x, tg_v_select(x == 0.0f, tg_v_set(-INFINITY), tg_v_set(NAN)));
    return tg_v_select((x > 0.0f) & (x < INFINITY), r, special);
}

TG_INLINE tg_vf tg_v_sigmoid(tg_vf x)
{
    return 1.0f / (1.0f + tg_v_exp(-x));
}

/* x + x · P(x²) near 0, else 1 - 2 / (e^2|x| + 1). */
TG_INLINE tg_vf tg_v_tanh(tg_vf x)
{
    static const float c[] = {-4.22e-9f,       -0.33333255426f, 0.13330996361f,
                              -0.05370980251f, 0.020552718996f, -0.0056155020135f};
    tg_vf a = tg_v_abs(x);
    tg_vf small = tg_v_fma(x, tg_v_poly(x * x, c, 6), x), large = 1.0f - 2.0f / (tg_v_exp(a + a) + 1.0f);
    return tg_v_select(a < 0.6324f, small, tg_v_sign_of(large, x));
}

/* erf z = z + z · P(z²) for |z| < 1. */
TG_INLINE tg_vf tg_v_erf_small(tg_vf z)
{
    static const float c[] = {0.1283791659f,    -0.37612627133f,    0.11283600143f,  -0.026854443181f,
                              0.0051895326084f, -0.00080208169362f, 7.8890381986e-5f};
    return tg_v_fma(z, tg_v_poly(z * z, c, 7), z);
}
/* 1 - erf z = e^(-z²) · t · P(t), t = 1 / (1 + z/2), for z >= 1. */
TG_INLINE tg_vf tg_v_erfc_large(tg_vf z)
{
    static const float c[] = {0.28208511183f,  0.2823671019f,    0.24356328548f,
                              0.19823001653f,  -0.006108485974f, 0.22576905695f,
                              -0.41158021579f, 0.22646112354f,   -0.040620315976f};
    tg_vf t = 1.0f / (1.0f + 0.5f * z);
    return tg_v_exp(-z * z) * t * tg_v_poly(t, c, 9);
}
TG_INLINE tg_vf tg_v_erf(tg_vf x)
{
    tg_vf a = tg_v_abs(x), large = 1.0f - tg_v_erfc_large(a);
    return tg_v_select(a < 1.0f, tg_v_erf_small(x), tg_v_sign_of(large, x));
}
/* Φ(x) = (1 + erf(x/√2)) / 2, accurate in the left tail too. */
TG_INLINE tg_vf tg_v_normal_cdf(tg_vf x)
{
    tg_vf z = x * 0.70710678119f, a = tg_v_abs(z), tail = 0.5f * tg_v_erfc_large(a);
    tg_vf large = tg_v_select(x > 0.0f, 1.0f - tail, tail);
    return tg_v_select(a < 1.0f, 0.5f + 0.5f * tg_v_erf_small(z), large);
}

#endif
