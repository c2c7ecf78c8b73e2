/*
 * Matrix products against a float64 reference: every transpose, bias, accumulation, batch, stride and dtype,
 * odd sizes included; scratch and rows' gaps must stay untouched; wrong specifications must be refused. All
 * of it twice, the second time with strict plans, whose bits are compared on one, two and three threads.
 * TENG_CPU_ISA repeats it all for lower instruction sets (tests/device.cmake runs v3 so).
 */
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "device/cpu_gemm.h"
#include "device/cpu_isa.h"
#include "tensor/desc.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define GUARD 64 /* bytes after scratch that must survive */

typedef struct operand {
    void *data;
    int64_t count;
} operand;

static operand fill(teng_dtype t, int64_t count, uint64_t key)
{
    operand x = {tg_alloc_aligned((size_t)(count * teng_dtype_size(t))), count};
    assert_non_null(x.data);
    for (int64_t i = 0; i < count; i++)
        tg_store_double(t, x.data, i, tg_rng_double(key, (uint64_t)i) * 2 - 1);
    return x;
}

static int64_t span(int64_t batch, int64_t stride, int64_t rows, int64_t ld, int64_t cols)
{
    return (batch - 1) * stride + (rows - 1) * ld + cols;
}

/* Unit roundoff of the result's type, against the sum of magnitudes. */
static double tolerance(teng_dtype c, int64_t k, double magnitude)
{
    double store = c == TENG_F32 ? 0x1p-24 : c == TENG_BF16 ? 0x1p-8 : 0x1p-11;
    double least = c == TENG_F16 ? 0x1p-25 : 1e-30; /* half the spacing of f16's subnormal numbers */
    return magnitude * (store + 0x1p-24 * sqrt((double)k) * 4) + least;
}

/* The specification with its defaults written out. */
static tg_gemm_spec completed(const tg_gemm_spec *spec)
{
    tg_gemm_spec s = *spec;
    if (!s.batch) s.batch = 1;
    if (!s.lda) s.lda = s.trans_a ? s.m : s.k;
    if (!s.ldb) s.ldb = s.trans_b ? s.k : s.n;
    if (!s.ldc) s.ldc = s.n;
    if (!s.stride_a) s.stride_a = (s.trans_a ? s.k : s.m) * s.lda;
    if (!s.stride_b) s.stride_b = (s.trans_b ? s.n : s.k) * s.ldb;
    if (!s.stride_c) s.stride_c = s.m * s.ldc;
    return s;
}

typedef struct product {
    tg_gemm_spec s;
    operand a, b, c, before, bias;
    const char *impl;
    char *written; /* by element of c */
} product;

static void run_product(const tg_gemm_spec *spec, product *x)
{
    tg_gemm_plan *plan;
    if (tg_gemm_plan_create(spec, &plan) != TENG_OK) fail_msg("%s", teng_error());
    static char impl[128];
    snprintf(impl, sizeof impl, "%s", tg_gemm_impl(plan));
    x->impl = impl;
    const void *b = x->b.data;
    void *packed = tg_gemm_packed(plan) ? tg_alloc_aligned(tg_gemm_packed(plan)) : NULL;
    if (packed) {
        assert_true(spec->packed_b);
        assert_int_equal(tg_gemm_pack(plan, b, packed), TENG_OK);
        b = packed;
    } else {
        assert_int_equal(tg_gemm_pack(plan, b, NULL), TENG_STATE);
        assert_non_null(strstr(teng_error(), "takes b as it is stored"));
        teng_error_clear();
    }
    size_t scratch_bytes = tg_gemm_scratch(plan);
    unsigned char *scratch = tg_alloc_aligned(scratch_bytes + GUARD);
    memset(scratch, 0xa5, scratch_bytes + GUARD);
    uint64_t allocations = tg_alloc_count();
    assert_int_equal(tg_gemm_run(plan, x->a.data, b, x->s.bias ? x->bias.data : NULL, x->c.data, scratch),
                     TENG_OK);
    assert_int_equal(tg_alloc_count(), allocations);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(scratch[scratch_bytes + i], 0xa5);
    tg_gemm_plan_destroy(&plan);
    assert_null(plan);
    tg_free_aligned(scratch);
    tg_free_aligned(packed);
}

/* Element (i, j) of product p against a plain sum in double. */
static void check_element(const product *x, int64_t p, int64_t i, int64_t j)
{
    const tg_gemm_spec *s = &x->s;
    const int64_t at = p * s->stride_c + i * s->ldc + j;
    const int64_t base_a = s->shared_a ? 0 : p * s->stride_a, base_b = s->shared_b ? 0 : p * s->stride_b;
    const double add = s->bias ? tg_load_double(TENG_F32, x->bias.data, j) : 0;
    const double old = s->accumulate ? tg_load_double(s->c, x->before.data, at) : 0;
    double sum = add + old, magnitude = fabs(add) + fabs(old);
    for (int64_t l = 0; l < s->k; l++) {
        const int64_t in_a = s->trans_a ? l * s->lda + i : i * s->lda + l;
        const int64_t in_b = s->trans_b ? j * s->ldb + l : l * s->ldb + j;
        const double term =
            tg_load_double(s->a, x->a.data, base_a + in_a) * tg_load_double(s->b, x->b.data, base_b + in_b);
        sum += term;
        magnitude += fabs(term);
    }
    const double got = tg_load_double(s->c, x->c.data, at);
    if (!(fabs(got - sum) <= tolerance(s->c, s->k, magnitude)))
        fail_msg("%s m%d n%d k%d batch%d ta%d tb%d bias%d acc%d [%d,%d,%d]: %.9g, not %.9g", x->impl,
                 (int)s->m, (int)s->n, (int)s->k, (int)s->batch, s->trans_a, s->trans_b, s->bias,
                 s->accumulate, (int)p, (int)i, (int)j, got, sum);
}

/* Every `sampled`th element is compared. */
static void check_some(const tg_gemm_spec *spec, int64_t sampled)
{
    product x = {.s = completed(spec)};
    const tg_gemm_spec *s = &x.s;
    const int64_t rows_a = s->trans_a ? s->k : s->m, cols_a = s->trans_a ? s->m : s->k;
    const int64_t rows_b = s->trans_b ? s->n : s->k, cols_b = s->trans_b ? s->k : s->n;
    x.a = fill(s->a, span(s->shared_a ? 1 : s->batch, s->stride_a, rows_a, s->lda, cols_a), 1);
    x.b = fill(s->b, span(s->shared_b ? 1 : s->batch, s->stride_b, rows_b, s->ldb, cols_b), 2);
    x.c = fill(s->c, span(s->batch, s->stride_c, s->m, s->ldc, s->n), 3);
    x.before = fill(s->c, x.c.count, 3);
    x.bias = fill(TENG_F32, s->n, 4);
    x.written = tg_calloc((size_t)x.c.count, 1);
    run_product(spec, &x);
    for (int64_t p = 0; p < s->batch; p++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                x.written[p * s->stride_c + i * s->ldc + j] = 1;
                if ((i * s->n + j) % sampled == 0) check_element(&x, p, i, j);
            }
    for (int64_t i = 0; i < x.c.count; i++) /* gaps between rows keep their values */
        if (!x.written[i])
            assert_true(tg_load_double(s->c, x.c.data, i) == tg_load_double(s->c, x.before.data, i));
    operand *all[] = {&x.a, &x.b, &x.c, &x.before, &x.bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tg_free_aligned(all[i]->data);
    tg_free(x.written);
}

static void check(const tg_gemm_spec *spec)
{
    check_some(spec, 1);
}

static const teng_dtype types[5][2] = {{TENG_F32, TENG_F32},
                                       {TENG_BF16, TENG_BF16},
                                       {TENG_BF16, TENG_F32},
                                       {TENG_F16, TENG_F16},
                                       {TENG_F16, TENG_F32}};

static void test_all_options(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},   {7, 5, 3},   {33, 65, 17},
                                       {1, 96, 64}, {64, 1, 31}, {40, 48, 1}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
            for (int bits = 0; bits < 32; bits++)
                check(&(tg_gemm_spec){.a = types[t][0],
                                      .b = types[t][0],
                                      .c = types[t][1],
                                      .m = sizes[z][0],
                                      .n = sizes[z][1],
                                      .k = sizes[z][2],
                                      .batch = bits & 16 ? 3 : 0,
                                      .trans_a = bits & 1,
                                      .trans_b = bits & 2,
                                      .bias = bits & 4,
                                      .accumulate = bits & 8});
}

static void test_strides(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int bits = 0; bits < 32; bits++) {
            tg_gemm_spec s = {.a = types[t][0], .b = types[t][0], .c = types[t][1], .m = 13, .n = 9, .k = 21};
            s.trans_a = bits & 1;
            s.trans_b = bits & 2;
            s.accumulate = bits & 4;
            s.lda = (s.trans_a ? s.m : s.k) + 3;
            s.ldb = (s.trans_b ? s.k : s.n) + 7;
            s.ldc = s.n + 5;
            if (bits & 8) {
                s.batch = 4;
                s.stride_a = 24 * 24 + 1;
                s.stride_b = 30 * 30 + 2;
                s.stride_c = s.m * s.ldc + 11;
            }
            s.bias = bits & 16;
            check(&s);
        }
}

/* Large enough for copies of the factors, by tg_gemm_plan or by the caller; rows apart, and few columns more
 * than rows, so that both are copied where A is stored transposed. */
static void test_copies(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int bits = 0; bits < 8; bits++) {
            tg_gemm_spec s = {.a = types[t][0], .b = types[t][0], .c = types[t][1], .k = 257};
            s.m = bits & 1 ? 513 : 600;
            s.n = bits & 1 ? 515 : 260;
            s.trans_a = bits & 1;
            s.trans_b = bits & 2;
            s.packed_b = bits & 4;
            s.accumulate = s.packed_b != s.trans_b;
            s.bias = s.trans_b;
            s.lda = (s.trans_a ? s.m : s.k) + 3;
            s.ldb = (s.trans_b ? s.k : s.n) + 7;
            check_some(&s, 101);
            s.m = 40, s.lda = 0; /* too few rows: only the caller's copy is worth it */
            check_some(&s, 101);
        }
}

/* Every way, asked for, gives the product; where it cannot go, sizes decide. */
static void test_ways(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int way = 1; way < TG_GEMM_WAYS; way++)
            for (int bits = 0; bits < 4; bits++) {
                tg_gemm_spec s = {.a = types[t][0], .b = types[t][0], .c = types[t][1], .k = 38};
                s.m = 290;
                s.n = 270 + 50 * (bits & 1); /* edges on both sides */
                s.trans_a = bits & 1;
                s.trans_b = bits & 2;
                s.accumulate = s.trans_a == s.trans_b;
                s.bias = !s.accumulate;
                s.packed_b = true;
                s.lda = (s.trans_a ? s.m : s.k) + 3;
                s.way = (tg_gemm_way)way;
                check_some(&s, 101);
                s.m = 9, s.n = 8, s.lda = 0; /* too few to share out */
                if (bits == 3) check(&s);
            }
}

/* What sizes point to: parts for the threads where A is transposed or the sum is long; never a way that
 * cannot be gone. Strict plans know no ways. */
static void test_by_sizes(void **state)
{
    (void)state;
    const tg_gemm_spec weight_gradient = {.m = 768, .n = 2304, .k = 4096, .trans_a = true},
                       small = {.m = 40, .n = 30, .k = 4096, .trans_a = true},
                       head = {.m = 1024, .n = 768, .k = 50257, .packed_b = true},
                       forward = {.m = 4096, .n = 2304, .k = 768, .bias = true};
    assert_int_equal(tg_gemm_by_sizes(&weight_gradient), TG_GEMM_ROWS);
    assert_int_equal(tg_gemm_by_sizes(&small), TG_GEMM_STORED);
    assert_int_equal(tg_gemm_by_sizes(&head), TG_GEMM_COLUMNS);
    assert_int_equal(tg_gemm_by_sizes(&forward), TG_GEMM_COPY_B);
    assert_false(tg_gemm_can(&small, TG_GEMM_ROWS));
    assert_false(tg_gemm_can(&forward, TG_GEMM_PACKED));
    assert_false(tg_gemm_can(&forward, TG_GEMM_COPY_AB));
    const int before = omp_get_max_threads();
    omp_set_num_threads(24); /* 32 rows a thread would be too few: 6 x 4 */
    assert_int_equal(tg_gemm_by_sizes(&weight_gradient), TG_GEMM_ROWS);
    omp_set_num_threads(509); /* prime, and too many for either side */
    assert_int_equal(tg_gemm_by_sizes(&weight_gradient), TG_GEMM_COPY_AB);
    omp_set_num_threads(before);
    tg_gemm_set_strict(true);
    for (int way = 1; way < TG_GEMM_WAYS; way++)
        assert_false(tg_gemm_can(&head, (tg_gemm_way)way));
    tg_gemm_set_strict(false);
}

/* Heads of an attention layer: row r of head h starts at (r * heads + h) * width. */
static void test_interleaved_heads(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        check(&(tg_gemm_spec){.a = types[t][0],
                              .b = types[t][0],
                              .c = types[t][1],
                              .m = 19,
                              .n = 8,
                              .k = 16,
                              .batch = 3,
                              .lda = 48,
                              .stride_a = 16,
                              .ldc = 24,
                              .stride_c = 8});
}

static void test_shared(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int bits = 0; bits < 32; bits++)
            check(&(tg_gemm_spec){.a = types[t][0],
                                  .b = types[t][0],
                                  .c = types[t][1],
                                  .m = 6,
                                  .n = 10,
                                  .k = 12,
                                  .batch = 3,
                                  .trans_a = bits & 1,
                                  .trans_b = bits & 2,
                                  .shared_a = bits & 4,
                                  .shared_b = bits & 8,
                                  .bias = bits & 16,
                                  .accumulate = bits & 16});
}

/* bf16 rounding of an f32 product would show: 1 + 2^-20 times 1 must come back whole. */
static void test_f32_is_exact(void **state)
{
    (void)state;
    enum { N = 64 };
    float *a = tg_alloc_aligned(N * N * sizeof *a), *b = tg_alloc_aligned(N * N * sizeof *b);
    float *c = tg_alloc_aligned(N * N * sizeof *c);
    for (int i = 0; i < N * N; i++) {
        a[i] = 1 + (float)i * 0x1p-20f;
        b[i] = i / N == i % N ? 1.0f : 0.0f;
    }
    tg_gemm_plan *plan;
    assert_int_equal(tg_gemm_plan_create(&(tg_gemm_spec){.m = N, .n = N, .k = N}, &plan), TENG_OK);
    void *scratch = tg_alloc_aligned(tg_gemm_scratch(plan));
    assert_int_equal(tg_gemm_run(plan, a, b, NULL, c, scratch), TENG_OK);
    assert_memory_equal(a, c, N * N * sizeof *a);
    tg_gemm_plan_destroy(&plan);
    tg_free_aligned(scratch);
    tg_free_aligned(a);
    tg_free_aligned(b);
    tg_free_aligned(c);
}

/* The same plan twice, and a second plan, give the same bits. */
static void test_same_bits(void **state)
{
    (void)state;
    tg_gemm_spec s = {.m = 130, .n = 257, .k = 511, .trans_b = true};
    operand a = fill(TENG_F32, s.m * s.k, 8), b = fill(TENG_F32, s.n * s.k, 9);
    size_t bytes = (size_t)(s.m * s.n) * sizeof(float);
    float *c[3];
    tg_gemm_plan *plan = NULL;
    void *scratch = NULL;
    for (int i = 0; i < 3; i++) {
        c[i] = tg_alloc_aligned(bytes);
        if (i != 1) assert_int_equal(tg_gemm_plan_create(&s, &plan), TENG_OK);
        scratch = tg_alloc_aligned(tg_gemm_scratch(plan));
        assert_int_equal(tg_gemm_run(plan, a.data, b.data, NULL, c[i], scratch), TENG_OK);
        tg_free_aligned(scratch);
        if (i) tg_gemm_plan_destroy(&plan);
    }
    assert_memory_equal(c[0], c[1], bytes);
    assert_memory_equal(c[0], c[2], bytes);
    for (int i = 0; i < 3; i++)
        tg_free_aligned(c[i]);
    tg_free_aligned(a.data);
    tg_free_aligned(b.data);
}

/* C of a strict plan on so many threads; n bytes. */
static void product_on(int threads, const tg_gemm_spec *s, const operand *a, const operand *b,
                       const float *bias, void *c)
{
    tg_gemm_plan *plan;
    omp_set_num_threads(threads);
    if (tg_gemm_plan_create(s, &plan) != TENG_OK) fail_msg("%s", teng_error());
    assert_non_null(strstr(tg_gemm_impl(plan), "strict"));
    void *scratch = tg_alloc_aligned(tg_gemm_scratch(plan) + GUARD);
    assert_int_equal(tg_gemm_run(plan, a->data, b->data, bias, c, scratch), TENG_OK);
    tg_free_aligned(scratch);
    tg_gemm_plan_destroy(&plan);
}

/* Long sums for few results, which oneDNN cuts by threads; blocks with edges; a batch, a bias, an old C. */
static void test_strict_bits_on_any_threads(void **state)
{
    (void)state;
    static const tg_gemm_spec sizes[] = {
        {.m = 64, .n = 64, .k = 8192, .trans_a = true},
        {.m = 96, .n = 33, .k = 20000, .trans_a = true, .accumulate = true},
        {.m = 8, .n = 8, .k = 100000, .trans_a = true, .trans_b = true},
        {.m = 700, .n = 333, .k = 200, .trans_b = true, .bias = true},
        {.m = 257, .n = 600, .k = 130, .accumulate = true},
        {.m = 270, .n = 40, .k = 64, .batch = 5, .trans_b = true},
    };
    const int before = omp_get_max_threads();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes * 5; i++) {
        tg_gemm_spec s = sizes[i / 5];
        s.a = s.b = types[i % 5][0];
        s.c = types[i % 5][1];
        const int64_t batch = s.batch ? s.batch : 1;
        operand a = fill(s.a, batch * s.m * s.k, 11), b = fill(s.b, batch * s.n * s.k, 12),
                bias = fill(TENG_F32, s.n, 13);
        operand c[3];
        for (int t = 0; t < 3; t++) {
            c[t] = fill(s.c, batch * s.m * s.n, 14);
            product_on(t + 1, &s, &a, &b, s.bias ? bias.data : NULL, c[t].data);
        }
        const size_t bytes = (size_t)(batch * s.m * s.n * teng_dtype_size(s.c));
        assert_memory_equal(c[0].data, c[1].data, bytes);
        assert_memory_equal(c[0].data, c[2].data, bytes);
        operand *all[] = {&a, &b, &bias, &c[0], &c[1], &c[2]};
        for (size_t x = 0; x < sizeof all / sizeof *all; x++)
            tg_free_aligned(all[x]->data);
    }
    omp_set_num_threads(before);
}

/* Larger than one block, with edges on both sides. */
static void test_strict_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        tg_gemm_spec s = {.m = 330,
                          .n = 270,
                          .k = 37,
                          .trans_a = i & 1,
                          .trans_b = i >> 1 & 1,
                          .bias = i >> 2 & 1,
                          .accumulate = i >> 3 & 1};
        check(&s);
        s.lda = s.ldb = s.ldc = 400;
        check(&s);
    }
}

static void refuses(tg_gemm_spec s, const char *part)
{
    tg_gemm_plan *plan;
    assert_non_null(tg_gemm_refuse(&s));
    teng_error_clear();
    assert_int_equal(tg_gemm_plan_create(&s, &plan), TENG_INVALID);
    assert_null(plan);
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
}

static void test_refusals(void **state)
{
    (void)state;
    refuses((tg_gemm_spec){.m = 0, .n = 2, .k = 2}, "at least 1 (m 0, n 2, k 2");
    refuses((tg_gemm_spec){.m = 2, .n = 2, .k = 2, .batch = -1}, "at least 1");
    refuses((tg_gemm_spec){.m = (int64_t)1 << 40, .n = 2, .k = 2}, "below 2^31");
    refuses((tg_gemm_spec){.b = TENG_BF16, .m = 2, .n = 2, .k = 2}, "one dtype");
    refuses((tg_gemm_spec){.a = TENG_I32, .b = TENG_I32, .m = 2, .n = 2, .k = 2}, "f32, bf16 and f16 only");
    refuses((tg_gemm_spec){.c = TENG_BF16, .m = 2, .n = 2, .k = 2}, "f32 x f32 -> bf16");
    refuses((tg_gemm_spec){.m = 2, .n = 2, .k = 4, .lda = 3}, "shorter than its row");
    refuses((tg_gemm_spec){.m = 2, .n = 2, .k = 4, .batch = 2, .stride_c = 3}, "overlap");
    refuses((tg_gemm_spec){.m = INT32_MAX, .n = 1, .k = INT32_MAX, .batch = INT32_MAX}, "larger than memory");
    assert_null(tg_gemm_refuse(&(tg_gemm_spec){.m = 2, .n = 2, .k = 2}));
}

static void test_out_of_memory(void **state)
{
    (void)state;
    tg_gemm_plan *plan;
    tg_alloc_fail_at(1);
    assert_int_equal(tg_gemm_plan_create(&(tg_gemm_spec){.m = 2, .n = 2, .k = 2}, &plan), TENG_MEMORY);
    tg_alloc_fail_at(0);
    teng_error_clear();
    assert_null(plan);
}

static void test_names(void **state)
{
    (void)state;
    char buf[32];
    assert_non_null(strstr(tg_gemm_version(buf), "oneDNN "));
    assert_true(tg_gemm_native(TENG_F32));
    assert_false(tg_gemm_native(TENG_I8));
    tg_gemm_plan *plan;
    tg_gemm_spec s = {.a = TENG_F16, .b = TENG_F16, .c = TENG_F16, .m = 64, .n = 64, .k = 64};
    assert_int_equal(tg_gemm_plan_create(&s, &plan), TENG_OK);
    assert_true(tg_gemm_native(TENG_F16) == !strstr(tg_gemm_impl(plan), "f16 as f32"));
    tg_gemm_plan_destroy(&plan);
    if (tg_cpu_isa_current() == TG_CPU_v4bf) assert_true(tg_gemm_native(TENG_BF16));
}

int main(void)
{
    if (tg_cpu_isa_limit(NULL) != TENG_OK) {
        print_message("skipped: %s\n", teng_error());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_options),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_interleaved_heads),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_f32_is_exact),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_names),
    };
    const struct CMUnitTest strict_only[] = {cmocka_unit_test(test_strict_bits_on_any_threads),
                                             cmocka_unit_test(test_strict_blocks)};
    const struct CMUnitTest by_sizes_only[] = {cmocka_unit_test(test_by_sizes)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += cmocka_run_group_tests(by_sizes_only, NULL, NULL);
    tg_gemm_set_strict(true);
    failed += cmocka_run_group_tests_name("strict", tests, NULL, NULL);
    return failed + cmocka_run_group_tests(strict_only, NULL, NULL);
}
