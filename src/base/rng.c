/*
 * Draws of known shape from the Philox counters of base/rng.h. Every function is pure: the same key and
 * position give the same bits on every run, thread and rank. Not for secrets.
 */
#include "base/rng.h"

#include "base/strmap.h"

#include <math.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

uint64_t tg_rng_key(uint64_t seed, const char *purpose)
{
    return tg_hash64(purpose, strlen(purpose), seed);
}

static uint64_t low64(tg_rand4 r)
{
    return (uint64_t)r.v[0] | (uint64_t)r.v[1] << 32;
}

/* Lemire, "Fast random integer generation in an interval" (2019): multiply, reject the short remainder. */
uint64_t tg_rng_below(uint64_t key, uint64_t index, uint64_t bound)
{
    uint64_t reject_below = (0 - bound) % bound;
    for (uint64_t attempt = 0;; attempt++) {
        wide product = (wide)low64(tg_philox(key, index, attempt)) * bound;
        if ((uint64_t)product >= reject_below) return (uint64_t)(product >> 64);
    }
}

double tg_rng_double(uint64_t key, uint64_t index)
{
    return (double)(low64(tg_philox(key, index, 0)) >> 11) * 0x1p-53;
}

/* Two normal draws from two uniform words (Box and Muller 1958). The first word is used as a number in (0,
 * 1]. */
static void normal_pair(uint32_t a, uint32_t b, double *out)
{
    const double two_pi = 6.283185307179586477;
    double radius = sqrt(-2.0 * log(((double)a + 1.0) * 0x1p-32));
    double angle = two_pi * ((double)b * 0x1p-32);
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

void tg_rng_normal(uint64_t key, float std, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        tg_rand4 r = tg_philox(key, (uint64_t)i / 4, 0);
        double draws[4];
        normal_pair(r.v[0], r.v[1], draws);
        normal_pair(r.v[2], r.v[3], draws + 2);
        for (int64_t k = 0; k < 4 && i + k < n; k++)
            out[i + k] = (float)(draws[k] * (double)std);
    }
}

void tg_rng_uniform(uint64_t key, float lo, float hi, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        tg_rand4 r = tg_philox(key, (uint64_t)i / 4, 0);
        for (int64_t k = 0; k < 4 && i + k < n; k++) {
            float x = lo + (hi - lo) * tg_rand_float(r.v[k]);
            out[i + k] = x < hi ? x : nextafterf(hi, lo); /* rounding may reach hi */
        }
    }
}

/*
 * A Feistel network permutes the 2^(2*half) numbers that cover n (Luby and Rackoff 1988); a result outside n
 * is permuted again until it falls inside (Black and Rogaway 2002), fewer than four times on average.
 */
uint64_t tg_rng_permute(uint64_t key, uint64_t n, uint64_t i)
{
    if (n <= 1) return 0;
    unsigned bits = 64u - (unsigned)__builtin_clzll(n - 1);
    unsigned half = (bits + 1) / 2;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (low64(tg_philox(key, right, round + 1)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
