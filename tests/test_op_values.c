/*
 * What the case lists cannot say about the elementwise and update operators: special values, rounding bit for
 * bit, bits that all instruction sets share, the draws of dropout, and the words of their errors.
 */
#include "base/mem.h"
#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "op/cast/cast.h"
#include "op/dropout/dropout.h"
#include "op/dtype_names.h"
#include "op/fill/fill.h"
#include "op/op_list.h"
#include "op/unary/unary.h"
#include "tensor/desc.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One call on the kernels of one instruction set. */
static void run_op(const teng_op_spec *op, const void *attr, int isa, int n_in, const teng_desc *in_desc,
                   const void *const *in, void *const *out)
{
    teng_desc out_desc[TENG_MAX_OUT];
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in_desc, .out = out_desc};
    if (tg_op_infer(op, attr, n_in, in_desc, out_desc, &call.n_out) != TENG_OK) fail_msg("%s", teng_error());
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", isa, NULL);
    assert_non_null(kernel);
    teng_prepared prepared = {0};
    if (kernel->prepare) assert_int_equal(kernel->prepare(&call, &prepared), TENG_OK);
    void *work = tg_alloc_aligned(prepared.workspace + 1);
    const teng_kernel_args args = {
        .call = &call, .state = prepared.state, .in = in, .out = out, .workspace = work};
    assert_int_equal(kernel->run(&args), TENG_OK);
    if (kernel->release) kernel->release(prepared.state);
    tg_free_aligned(work);
}

#define FOR_EACH_ISA(isa)                                                                                    \
    for (int isa = 0; isa < TG_CPU_COUNT; isa++)                                                             \
        if (tg_cpu_isa_available(isa))

/* Distance in units of the last place of the true value; 0 for equal and for NaN against NaN. */
static double ulps(float got, double want)
{
    const float near = (float)want;
    if ((isnan(got) && isnan(want)) || got == near) return 0;
    if (!isfinite(got) || !isfinite(near)) return INFINITY;
    const float size = fmaxf(fabsf(near), 0x1p-126f);
    return fabs((double)got - want) / (double)(nextafterf(size, INFINITY) - size);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double gelu(double x)
{
    return isinf(x) ? (x > 0 ? x : NAN) : x * 0.5 * erfc(-x * M_SQRT1_2); /* -inf · 0 */
}
static double relu(double x)
{
    return isnan(x) ? x : x > 0 ? x : 0;
}

static void functions_everywhere(void **state)
{
    (void)state;
    static const struct {
        const teng_op_spec *op;
        double (*truth)(double);
        double limit; /* ulp */
        float lo, hi; /* where the limit holds */
    } table[] = {
        {&tg_op_exp, exp, 1.5, -INFINITY, INFINITY},    {&tg_op_log, log, 1.5, -INFINITY, INFINITY},
        {&tg_op_sqrt, sqrt, 0.51, -INFINITY, INFINITY}, {&tg_op_rsqrt, rsqrt, 1.5, -INFINITY, INFINITY},
        {&tg_op_tanh, tanh, 2, -INFINITY, INFINITY},    {&tg_op_sigmoid, sigmoid, 3, -88, INFINITY},
        {&tg_op_gelu, gelu, 20, -2, INFINITY},          {&tg_op_relu, relu, 0, -INFINITY, INFINITY},
    };
    enum { N = 4096 + 13 };
    static float x[N], y[N];
    static const float special[] = {
        0.0f,  -0.0f, 1,      -1,      INFINITY, -INFINITY, NAN,      0x1p-149f,  0x1p-126f, -0x1p-130f,
        88.7f, 88.8f, -87.4f, -103.9f, -110,     3.4e38f,   -3.4e38f, 0.7071068f, 0.63245f};
    for (int i = 0; i < N; i++) /* both signs, 2^-40 … 2^40, then ±8 finely */
        x[i] = i < 2048 ? (i & 1 ? -1.0f : 1.0f) * exp2f(80.0f * (float)i / 2048 - 40)
                        : -8 + 16 * (float)(i - 2048) / 2061;
    memcpy(x, special, sizeof special);
    const teng_desc desc = tg_desc_make(TENG_F32, 1, (int64_t[]){N});
    FOR_EACH_ISA(isa)
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        run_op(table[k].op, NULL, isa, 1, &desc, (const void *[]){x}, (void *[]){y});
        for (int i = 0; i < N; i++) {
            const double want = table[k].truth((double)x[i]), off = ulps(y[i], want);
            if (x[i] >= table[k].lo && x[i] <= table[k].hi ? !(off <= table[k].limit)
                                                           : isnan(y[i]) != isnan(want))
                fail_msg("%s of %a is %a, not %a: %.2f ulp (%s)", table[k].op->name, (double)x[i],
                         (double)y[i], want, off, tg_cpu_isa_name(isa));
            if (isnan(x[i]) && !isnan(y[i])) fail_msg("%s loses NaN", table[k].op->name);
        }
    }
}

/* Every 16-bit pattern widened, and halfway cases rounded, as tensor/convert.c has them. */
static void cast_rounds_as_the_tensor_room(void **state)
{
    (void)state;
    enum { N = 65536 };
    static const teng_dtype small[] = {TENG_BF16, TENG_F16};
    uint16_t *h = tg_alloc(N * sizeof *h), *back = tg_alloc(N * sizeof *back),
             *want16 = tg_alloc(N * sizeof *want16);
    float *f = tg_alloc(N * sizeof *f), *want = tg_alloc(N * sizeof *want);
    FOR_EACH_ISA(isa)
    for (int k = 0; k < 2; k++) {
        const teng_dtype t = small[k];
        const teng_desc dh = tg_desc_make(t, 1, (int64_t[]){N}),
                        df = tg_desc_make(TENG_F32, 1, (int64_t[]){N});
        for (int i = 0; i < N; i++)
            h[i] = (uint16_t)i;
        tg_convert(TENG_F32, want, t, h, N);
        run_op(&tg_op_cast, &(tg_cast_attr){TENG_F32}, isa, 1, &dh, (const void *[]){h}, (void *[]){f});
        for (int i = 0; i < N; i++)
            if (memcmp(&f[i], &want[i], 4) != 0 && !(isnan(f[i]) && isnan(want[i])))
                fail_msg("%s 0x%04x widens to %a, not %a (%s)", teng_dtype_name(t), (unsigned)i, (double)f[i],
                         (double)want[i], tg_cpu_isa_name(isa));
        for (int step = 0; step < 4;
             step++) { /* between neighbours: just below, at, just above half, and far */
            for (int i = 0; i < N; i++) {
                uint32_t bits;
                memcpy(&bits, &want[i], 4);
                const uint32_t half = t == TENG_BF16 ? 0x8000u : 0x1000u;
                bits += step == 3 ? 0x0123u : half - 1u + (uint32_t)step;
                memcpy(&f[i], &bits, 4);
            }
            tg_convert(t, want16, TENG_F32, f, N);
            run_op(&tg_op_cast, &(tg_cast_attr){t}, isa, 1, &df, (const void *[]){f}, (void *[]){back});
            for (int i = 0; i < N; i++)
                if (back[i] != want16[i] && !isnan(f[i]))
                    fail_msg("%a rounds to %s 0x%04x, not 0x%04x (%s)", (double)f[i], teng_dtype_name(t),
                             back[i], want16[i], tg_cpu_isa_name(isa));
        }
    }
    tg_free(h), tg_free(back), tg_free(want16), tg_free(f), tg_free(want);
}

/* Sums of squares are exact products added in one order: no instruction set may differ. */
static void sum_squares_is_the_same_everywhere(void **state)
{
    (void)state;
    enum { N = 50000 };
    float *x = tg_alloc(N * sizeof *x), first = 0;
    tg_rng_normal(3, 1e10f, x, N); /* squares beyond f32 do not overflow on the way */
    x[7] = 1e18f;
    const teng_desc desc = tg_desc_make(TENG_F32, 1, (int64_t[]){N});
    bool seen = false;
    FOR_EACH_ISA(isa)
    {
        float sum;
        run_op(&tg_op_sum_squares, NULL, isa, 1, &desc, (const void *[]){x}, (void *[]){&sum});
        assert_true(isfinite(sum) && sum >= 1e36f);
        if (seen) assert_memory_equal(&sum, &first, sizeof sum);
        first = sum;
        seen = true;
    }
    tg_free(x);
}

static void dropout_draws(void **state)
{
    (void)state;
    enum { N = 40001 };
    float *x = tg_alloc(N * sizeof *x), *a = tg_alloc(N * sizeof *a), *b = tg_alloc(N * sizeof *b);
    for (int i = 0; i < N; i++)
        x[i] = 1;
    const teng_desc desc[] = {tg_desc_make(TENG_F32, 1, (int64_t[]){N}),
                              tg_desc_make(TENG_U64, 1, (int64_t[]){2})};
    const uint64_t rng[2] = {0x123456789abcdef0u, 41}, other_step[2] = {rng[0], 42},
                   other_key[2] = {rng[0] + 1, 41};
    const tg_dropout_attr attr = {.p = 0.2, .stream = 5}, other_stream = {.p = 0.2, .stream = 6};
    const int isa = tg_cpu_isa_current();
    run_op(&tg_op_dropout, &attr, isa, 2, desc, (const void *[]){x, rng}, (void *[]){a});
    int kept = 0;
    for (int i = 0; i < N; i++) {
        assert_true(a[i] == 0 || a[i] == 1.25f);
        kept += a[i] != 0;
    }
    assert_true(abs(kept - N * 4 / 5) < 400); /* five deviations */
    FOR_EACH_ISA(other)
    {
        run_op(&tg_op_dropout, &attr, other, 2, desc, (const void *[]){x, rng}, (void *[]){b});
        assert_memory_equal(a, b, N * sizeof *a);
    }
    for (int k = 0; k < 3; k++) { /* another step, key or stream agrees as often as chance: 0.8² + 0.2² */
        const uint64_t *with = k == 0 ? other_step : k == 1 ? other_key : rng;
        run_op(&tg_op_dropout, k == 2 ? &other_stream : &attr, isa, 2, desc, (const void *[]){x, with},
               (void *[]){b});
        int same = 0;
        for (int i = 0; i < N; i++)
            same += a[i] == b[i];
        assert_true(fabs((double)same / N - 0.68) < 0.015);
    }
    tg_free(x), tg_free(a), tg_free(b);
}

static void expect_error(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                         const char *words)
{
    teng_desc out[TENG_MAX_OUT];
    int n_out;
    teng_error_clear();
    if (tg_op_infer(op, attr, n_in, in, out, &n_out) == TENG_OK) fail_msg("%s accepts: %s", op->name, words);
    if (!strstr(teng_error(), words)) fail_msg("%s: \"%s\" is not in \"%s\"", op->name, words, teng_error());
    teng_error_clear();
}

#define D(t, nd, ...)                                                                                        \
    {                                                                                                        \
        t, nd,                                                                                               \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
static void errors_name_input_value_and_limit(void **state)
{
    (void)state;
    const teng_desc f35 = D(TENG_F32, 2, 3, 5), scalar = D(TENG_F32, 0, 0), four = D(TENG_F32, 1, 4);
    expect_error(&tg_op_exp, NULL, 1, &(teng_desc)D(TENG_I32, 1, 4),
                 "x is i32[4]; it must be f32, bf16 or f16");
    expect_error(&tg_op_add, NULL, 2, (teng_desc[]){f35, D(TENG_F32, 2, 3, 4)},
                 "a is f32[3,5] and b is f32[3,4]; from the end, dimension 1 must be equal or 1");
    expect_error(&tg_op_mul, NULL, 2, (teng_desc[]){f35, D(TENG_BF16, 2, 3, 5)},
                 "a is f32[3,5] and b is bf16[3,5]; their elements must agree (teng_cast converts)");
    expect_error(&tg_op_swiglu, NULL, 2, (teng_desc[]){f35, D(TENG_F32, 1, 5)},
                 "up is f32[5] and gate is f32[3,5]");
    expect_error(&tg_op_unary_grad, &(tg_unary_attr){99}, 2, (teng_desc[]){f35, f35}, "fn is 99");
    const teng_desc rng = D(TENG_U64, 1, 2);
    expect_error(&tg_op_dropout, &(tg_dropout_attr){.p = 1}, 2, (teng_desc[]){f35, rng},
                 "p is 1; it must be in [0, 1)");
    expect_error(&tg_op_dropout, &(tg_dropout_attr){.p = 0.5, .stream = -1}, 2, (teng_desc[]){f35, rng},
                 "stream is -1");
    expect_error(&tg_op_dropout, &(tg_dropout_attr){.p = 0.5}, 2, (teng_desc[]){f35, f35},
                 "rng is f32[3,5]; it must be u64[2]");
    expect_error(&tg_op_cast, &(tg_cast_attr){77}, 1, &f35, "to is 77");
    expect_error(&tg_op_fill, &(tg_fill_attr){TENG_F32, {2, {3, -1}}, 0}, 0, NULL,
                 "dimension 1 of the shape is -1");
    expect_error(&tg_op_accumulate, NULL, 3, (teng_desc[]){f35, D(TENG_F32, 1, 5), scalar},
                 "grad is f32[5]; it must be f32[3,5]");
    expect_error(&tg_op_accumulate, NULL, 3, (teng_desc[]){f35, f35, four},
                 "beta is f32[4]; it must be f32[]");
    expect_error(&tg_op_clip_coef, &(tg_clip_attr){-1}, 2, (teng_desc[]){scalar, scalar}, "max_norm is -1");
    const tg_adamw_attr adamw = {1, 0.9, 1e-8, 0};
    expect_error(&tg_op_adamw, &adamw, 5, (teng_desc[]){f35, f35, f35, f35, four}, "beta1 is 1");
    expect_error(&tg_op_adamw, &adamw, 5, (teng_desc[]){f35, f35, f35, f35, scalar},
                 "scalars is f32[]; it must be f32[4]");
    expect_error(&tg_op_adamw, &adamw, 5, (teng_desc[]){f35, f35, D(TENG_BF16, 2, 3, 5), f35, four},
                 "m is bf16[3,5]");
    expect_error(&tg_op_sgd, &(tg_sgd_attr){1.5, 0, 0}, 4, (teng_desc[]){f35, f35, f35, four},
                 "momentum is 1.5");
    expect_error(&tg_op_sum_squares, NULL, 2, (teng_desc[]){f35, D(TENG_I64, 1, 2)}, "x[1] is i64[2]");
}

static void dtype_names_are_the_tensor_rooms(void **state)
{
    (void)state;
    for (int t = 0; t < TENG_DTYPE_COUNT; t++)
        assert_string_equal(tg_dtype_names[t], teng_dtype_name((teng_dtype)t));
    assert_null(tg_dtype_names[TENG_DTYPE_COUNT]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_everywhere),
        cmocka_unit_test(cast_rounds_as_the_tensor_room),
        cmocka_unit_test(sum_squares_is_the_same_everywhere),
        cmocka_unit_test(dropout_draws),
        cmocka_unit_test(errors_name_input_value_and_limit),
        cmocka_unit_test(dtype_names_are_the_tensor_rooms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
