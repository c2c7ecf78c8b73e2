/* Random numbers: published vectors of Philox4x32-10, moments, and streams that must never change (resume).
 */
#include "base/rng.h"
#include "base/strmap.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void assert_philox(uint64_t key, uint64_t lo, uint64_t hi, uint32_t a, uint32_t b, uint32_t c,
                          uint32_t d)
{
    tg_rand4 r = tg_philox(key, lo, hi);
    assert_int_equal(r.v[0], a);
    assert_int_equal(r.v[1], b);
    assert_int_equal(r.v[2], c);
    assert_int_equal(r.v[3], d);
}

/* The known answers that come with Random123 (file kat_vectors, philox4x32 10). */
static void philox_known_answers(void **state)
{
    (void)state;
    assert_philox(0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    assert_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
    assert_philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, 0xd16cfe09, 0x94fdcceb,
                  0x5001e420, 0x24126ea1);
}

static void keys_separate_purposes(void **state)
{
    (void)state;
    assert_true(tg_rng_key(1, "init") != tg_rng_key(1, "dropout"));
    assert_true(tg_rng_key(1, "init") != tg_rng_key(2, "init"));
    assert_true(tg_rng_key(7, "init") == tg_rng_key(7, "init"));
    assert_true(tg_hash64("", 0, 0) == 0x2d06800538d394c2); /* XXH3 of nothing, from its specification */
}

static void permutation_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 65537};
    static bool seen[65537];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s], fixed = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = tg_rng_permute(99, n, i);
            assert_true(p < n);
            assert_false(seen[p]);
            seen[p] = true;
            fixed += p == i;
        }
        if (n >= 1000) assert_true(fixed < 12); /* one is expected; 12 has a chance of 1e-9 */
    }
    assert_true(tg_rng_permute(1, UINT64_MAX, 5) < UINT64_MAX);
}

/* Where the first element lands must look uniform over keys: chi-square with 9 degrees of freedom. */
static void permutation_is_even(void **state)
{
    (void)state;
    int counts[10] = {0};
    enum { DRAWS = 20000 };
    for (uint64_t key = 0; key < DRAWS; key++)
        counts[tg_rng_permute(key, 10, 0)]++;
    double chi = 0;
    for (int i = 0; i < 10; i++)
        chi += pow(counts[i] - DRAWS / 10.0, 2) / (DRAWS / 10.0);
    assert_true(chi < 33.7); /* exceeded by chance once in 10^4 */
}

static void normal_moments(void **state)
{
    (void)state;
    enum { N = 400001 };
    static float x[N], y[N];
    tg_rng_normal(tg_rng_key(3, "w"), 0.02f, x, N);
    double sum = 0, square = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        double z = x[i] / 0.02;
        assert_true(isfinite(z));
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
    }
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    for (int n = 1; n <= 9; n++) { /* an element does not depend on how many are drawn */
        memset(y, 0, sizeof y);
        tg_rng_normal(tg_rng_key(3, "w"), 0.02f, y, n);
        assert_memory_equal(x, y, sizeof(float) * (size_t)n);
        assert_true(y[n] == 0.0f);
    }
}

static void uniform_draws(void **state)
{
    (void)state;
    enum { N = 100001 };
    static float x[N];
    tg_rng_uniform(5, -2.0f, 6.0f, x, N);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        assert_true(x[i] >= -2.0f && x[i] < 6.0f);
        sum += x[i];
    }
    assert_true(fabs(sum / N - 2) < 5 * 8 / sqrt(12.0 * N));
    tg_rng_uniform(5, 1.0f, nextafterf(1.0f, 2.0f), x, 1000); /* rounding never reaches the upper end */
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == 1.0f);
    sum = 0;
    for (uint64_t i = 0; i < N; i++) {
        double d = tg_rng_double(8, i);
        assert_true(d >= 0 && d < 1);
        sum += d;
    }
    assert_true(fabs(sum / N - 0.5) < 5 / sqrt(12.0 * N));
}

static void bounded_integers(void **state)
{
    (void)state;
    int counts[7] = {0};
    enum { DRAWS = 70000 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t v = tg_rng_below(4, i, 7);
        assert_true(v < 7);
        counts[v]++;
    }
    double chi = 0;
    for (int i = 0; i < 7; i++)
        chi += pow(counts[i] - DRAWS / 7.0, 2) / (DRAWS / 7.0);
    assert_true(chi < 27.9); /* 6 degrees of freedom, once in 10^4 */
    assert_int_equal(tg_rng_below(4, 1, 1), 0);
    /* A bound above 2^63 rejects almost half of the words and must still be even. */
    int upper = 0;
    uint64_t bound = (UINT64_C(1) << 63) + 1;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t v = tg_rng_below(4, i, bound);
        assert_true(v < bound);
        upper += v >= bound / 2;
    }
    assert_true(abs(upper - 5000) < 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(keys_separate_purposes),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(permutation_is_even),
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(uniform_draws),
        cmocka_unit_test(bounded_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
