/*
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC11). A draw is a pure function of (key, counter), so it never depends on threads, ranks or call order.
 * Header only where kernels need it inlined.
 */
#ifndef TG_BASE_RNG_H
#define TG_BASE_RNG_H

#include <stdint.h>

typedef struct tg_rand4 {
    uint32_t v[4];
} tg_rand4;

static inline tg_rand4 tg_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (tg_rand4){{c0, c1, c2, c3}};
}

/* Uniform in [0, 1) with 24 random bits. */
static inline float tg_rand_float(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* A key for one purpose of one seed: streams of different purposes never share draws. */
uint64_t tg_rng_key(uint64_t seed, const char *purpose);
/* Uniform integer in [0, bound), unbiased, bound >= 1; position `index` of the key's stream. */
uint64_t tg_rng_below(uint64_t key, uint64_t index, uint64_t bound);
double tg_rng_double(uint64_t key, uint64_t index); /* [0, 1), 53 bits */
/* n normal draws (mean 0, deviation `std`), Box-Muller; element i depends on (key, i) alone. */
void tg_rng_normal(uint64_t key, float std, float *out, int64_t n);
/* n uniform draws in [lo, hi). */
void tg_rng_uniform(uint64_t key, float lo, float hi, float *out, int64_t n);
/* Position i of a random permutation of n (cycle-walking Feistel network): O(1), no table. */
uint64_t tg_rng_permute(uint64_t key, uint64_t n, uint64_t i);

#endif
