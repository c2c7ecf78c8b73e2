/* The tensor room: names of types, shapes as text, every bit pattern of the 16-bit floats, rounding,
 * comparison. */
#include "tensor/desc.h"

#include "base/fail.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void dtype_names(void **state)
{
    (void)state;
    for (int t = 0; t < TENG_DTYPE_COUNT; t++) {
        assert_int_equal(teng_dtype_parse(teng_dtype_name((teng_dtype)t)), t);
        assert_true(teng_dtype_size((teng_dtype)t) > 0);
    }
    assert_int_equal(teng_dtype_parse("BF16"), TENG_BF16);
    assert_int_equal(teng_dtype_parse("bfloat16"), TENG_BF16);
    assert_int_equal(teng_dtype_parse("torch.float16"), TENG_F16);
    assert_int_equal(teng_dtype_parse("float"), TENG_F32);
    assert_int_equal(teng_dtype_parse("BOOL"), TENG_BOOL);
    assert_int_equal(teng_dtype_parse("f8"), TENG_DTYPE_COUNT);
    assert_int_equal(teng_dtype_parse(""), TENG_DTYPE_COUNT);
    assert_int_equal(teng_dtype_parse(NULL), TENG_DTYPE_COUNT);
    assert_string_equal(teng_dtype_name(TENG_DTYPE_COUNT), "?");
    assert_int_equal(teng_dtype_size(TENG_BF16), 2);
    assert_int_equal(teng_dtype_size(TENG_I64), 8);
    assert_true(tg_dtype_is_float(TENG_F16) && tg_dtype_is_float(TENG_F64));
    assert_false(tg_dtype_is_float(TENG_I8) || tg_dtype_is_float(TENG_BOOL));
}

static void shapes(void **state)
{
    (void)state;
    char text[TG_DESC_TEXT];
    teng_desc d = tg_desc_make(TENG_BF16, 3, (int64_t[]){4, 128, 7}), back;
    assert_int_equal(tg_desc_numel(&d), 4 * 128 * 7);
    assert_int_equal(tg_desc_bytes(&d), 2 * 4 * 128 * 7);
    assert_int_equal(tg_desc_axis(&d, -1), 2);
    assert_int_equal(tg_desc_axis(&d, -3), 0);
    assert_int_equal(tg_desc_axis(&d, 3), -1);
    assert_int_equal(tg_desc_axis(&d, -4), -1);
    assert_string_equal(tg_desc_text(text, &d), "bf16[4,128,7]");
    assert_int_equal(tg_desc_parse(text, &back, NULL), TENG_OK);
    assert_true(tg_desc_equal(&d, &back));
    back.dims[2] = 8;
    assert_false(tg_desc_equal(&d, &back));

    teng_desc scalar = tg_desc_make(TENG_F32, 0, NULL);
    assert_int_equal(tg_desc_numel(&scalar), 1);
    assert_string_equal(tg_desc_text(text, &scalar), "f32[]");
    const char *end = NULL;
    assert_int_equal(tg_desc_parse("f32[] %x", &back, &end), TENG_OK);
    assert_string_equal(end, " %x");
    assert_true(tg_desc_equal(&scalar, &back));

    int64_t big = INT64_MAX;
    teng_desc wide = tg_desc_make(TENG_BOOL, 8, (int64_t[]){big, 1, 1, 1, 1, 1, 1, 1});
    assert_int_equal(tg_desc_parse(tg_desc_text(text, &wide), &back, NULL), TENG_OK);
    assert_true(tg_desc_equal(&wide, &back));
}

static void bad_shape_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "not a tensor type"},
        {"f32", "not a tensor type"},
        {"[3]", "not a tensor type"},
        {"q8[3]", "unknown element type \"q8\""},
        {"f32[3", "dimension 0"},
        {"f32[-3]", "dimension 0"},
        {"f32[3,]", "dimension 0"},
        {"f32[3,,4]", "dimension 1"},
        {"f32[3,x]", "dimension 1"},
        {"f32[99999999999999999999]", "dimension 0"},
        {"f32[4611686018427387904]", "2^63 bytes"},
        {"f32[1,1,1,1,1,1,1,1,1]", "more than 8 dimensions"},
        {"f32[3]x", "unexpected \"x\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        teng_desc d;
        assert_int_equal(tg_desc_parse(cases[i].text, &d, NULL), TENG_FORMAT);
        if (!strstr(teng_error(), cases[i].message))
            fail_msg("%s: %s lacks %s", cases[i].text, teng_error(), cases[i].message);
        teng_error_clear();
    }
}

/* The value of a binary16 or bfloat16 bit pattern from its definition. */
static double by_definition(uint32_t bits, int mant_bits, int bias)
{
    uint32_t exp_max = mant_bits == 10 ? 31 : 255, exp = (bits >> mant_bits) & exp_max;
    uint32_t mant = bits & ((1u << mant_bits) - 1);
    double sign = bits & 0x8000u ? -1.0 : 1.0;
    if (exp == exp_max) return mant ? NAN : sign * INFINITY;
    if (exp == 0) return sign * ldexp((double)mant, 1 - bias - mant_bits);
    return sign * ldexp((double)(mant | (1u << mant_bits)), (int)exp - bias - mant_bits);
}

static void all_patterns(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = tg_f16_to_f32((uint16_t)h), b = tg_bf16_to_f32((uint16_t)h);
        double want_f = by_definition(h, 10, 15), want_b = by_definition(h, 7, 127);
        if (isnan(want_f)) {
            assert_true(isnan(f) && isnan(tg_f16_to_f32(tg_f32_to_f16(f))));
            assert_int_equal(tg_f32_to_f16(f) | 0x200u, h | 0x200u); /* sign and payload stay */
        } else {
            assert_true((double)f == want_f && !signbit(f) == !signbit(want_f));
            assert_int_equal(tg_f32_to_f16(f), h);
        }
        if (isnan(want_b)) {
            assert_true(isnan(b) && isnan(tg_bf16_to_f32(tg_f32_to_bf16(b))));
        } else {
            assert_true((double)b == want_b && !signbit(b) == !signbit(want_b));
            assert_int_equal(tg_f32_to_bf16(b), h);
        }
    }
}

/* Between neighbours: below the middle goes down, above goes up, the middle goes to the even one. */
static void ties_to_even(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        teng_dtype t = kind ? TENG_BF16 : TENG_F16;
        uint32_t top = kind ? 0x7f7fu : 0x7bffu;
        for (uint32_t h = 0; h < top; h++) {
            double lo = by_definition(h, kind ? 7 : 10, kind ? 127 : 15);
            double hi = by_definition(h + 1, kind ? 7 : 10, kind ? 127 : 15), mid = (lo + hi) / 2;
            uint32_t even = h & 1 ? h + 1 : h;
            /* the double just beside the middle would be lost by rounding to float first */
            const double in[5] = {mid, nextafter(mid, 0), nextafter(mid, INFINITY), -mid,
                                  lo + (hi - lo) * 0.4999};
            const uint32_t want[5] = {even, h, h + 1, even | 0x8000u, h};
            for (int i = 0; i < 5; i++) {
                uint16_t got;
                tg_store_double(t, &got, 0, in[i]);
                assert_int_equal(got, want[i]);
            }
            float m = (float)mid, down = nextafterf(m, 0), up = nextafterf(m, INFINITY);
            uint16_t got[3];
            tg_convert(t, got, TENG_F32, (float[]){m, down, up}, 3);
            assert_int_equal(got[0], even);
            assert_int_equal(got[1], h);
            assert_int_equal(got[2], h + 1);
        }
    }
    assert_int_equal(tg_f32_to_f16(65504.0f), 0x7bff);
    assert_int_equal(tg_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(tg_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(tg_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(tg_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(tg_f32_to_f16(0x1.8p-25f), 1);
    assert_int_equal(tg_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(tg_f32_to_bf16(3.4028235e38f), 0x7f80);
    assert_int_equal(tg_f32_to_bf16(INFINITY), 0x7f80);
}

static void every_pair_of_types(void **state)
{
    (void)state;
    static const double values[] = {0, 1, 2, 3, 100, 127};
    for (int from = 0; from < TENG_DTYPE_COUNT; from++)
        for (int to = 0; to < TENG_DTYPE_COUNT; to++) {
            uint64_t a[8] = {0}, b[8] = {0};
            for (int i = 0; i < 6; i++)
                tg_store_double((teng_dtype)from, a, i, values[i]);
            tg_convert((teng_dtype)to, b, (teng_dtype)from, a, 6);
            for (int i = 0; i < 6; i++) {
                double want = from == TENG_BOOL || to == TENG_BOOL ? values[i] != 0 : values[i];
                assert_true(tg_load_double((teng_dtype)to, b, i) == want);
            }
        }
}

static void integers_are_exact(void **state)
{
    (void)state;
    const uint64_t u[] = {UINT64_MAX, UINT64_MAX - 1, (1ull << 63) + 1, (1ull << 53) + 1};
    uint64_t ub[4];
    int64_t ib[4];
    tg_convert(TENG_U64, ub, TENG_U64, u, 4);
    assert_memory_equal(ub, u, sizeof u);
    tg_convert(TENG_I64, ib, TENG_U64, u, 4); /* saturates */
    assert_true(ib[0] == INT64_MAX && ib[2] == INT64_MAX && ib[3] == (1ll << 53) + 1);
    const int64_t s[] = {INT64_MIN, -1, INT64_MAX, -((1ll << 53) + 1)};
    int32_t w[4];
    int8_t c[4];
    tg_convert(TENG_I32, w, TENG_I64, s, 4);
    assert_true(w[0] == INT32_MIN && w[1] == -1 && w[2] == INT32_MAX && w[3] == INT32_MIN);
    tg_convert(TENG_I8, c, TENG_I64, s, 4);
    assert_true(c[0] == -128 && c[1] == -1 && c[2] == 127);
    tg_convert(TENG_U64, ub, TENG_I64, s, 4);
    assert_true(ub[0] == 0 && ub[1] == 0 && ub[2] == INT64_MAX);
    const float f[] = {2.9f, -2.9f, NAN, INFINITY, 1e30f, -1e30f};
    int32_t v[6];
    tg_convert(TENG_I32, v, TENG_F32, f, 6);
    assert_true(v[0] == 2 && v[1] == -2 && v[2] == 0 && v[3] == INT32_MAX && v[4] == INT32_MAX &&
                v[5] == INT32_MIN);
    /* 2^24 + 2^16 + 1 lies above the middle of two bf16 values; rounding to float first would fall on the tie
     */
    const int64_t odd = (1ll << 24) + (1ll << 16) + 1;
    uint16_t h;
    tg_convert(TENG_BF16, &h, TENG_I64, &odd, 1);
    assert_int_equal(h, tg_f32_to_bf16(16777216.0f) + 1);
}

static void nonfinite_conversions(void **state)
{
    (void)state;
    static const teng_dtype floats[] = {TENG_F32, TENG_F16, TENG_BF16, TENG_F64};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            uint64_t a[3], b[3];
            tg_store_double(floats[i], a, 0, NAN);
            tg_store_double(floats[i], a, 1, INFINITY);
            tg_store_double(floats[i], a, 2, -INFINITY);
            tg_convert(floats[k], b, floats[i], a, 3);
            assert_true(isnan(tg_load_double(floats[k], b, 0)));
            assert_true(tg_load_double(floats[k], b, 1) == (double)INFINITY);
            assert_true(tg_load_double(floats[k], b, 2) == -(double)INFINITY);
        }
}

static void compare(void **state)
{
    (void)state;
    const float a[] = {1, 2, NAN, INFINITY, 4}, b[] = {1, 2.5f, NAN, INFINITY, 4};
    tg_diff d;
    tg_compare(TENG_F32, a, TENG_F32, a, 5, &d);
    assert_true(d.unequal == 0 && d.worst == -1 && d.max_abs == 0 && d.rel_l2 == 0 && d.count == 5);
    assert_true(d.nonfinite_a == 2 && d.nonfinite_b == 2);
    tg_compare(TENG_F32, a, TENG_F32, b, 5, &d);
    assert_true(d.unequal == 1 && d.worst == 1 && d.max_abs == 0.5);
    assert_true(fabs(d.rel_l2 - 0.5 / sqrt(1 + 6.25 + 16)) < 1e-15);
    const float c[] = {1, NAN};
    tg_compare(TENG_F32, a, TENG_F32, c, 2, &d);
    assert_true(d.unequal == 1 && isinf(d.max_abs) && d.worst == 1 && d.nonfinite_b == 1 && isinf(d.rel_l2));
    const float zero[] = {0, 0}, three[] = {3, -4};
    tg_compare(TENG_F32, three, TENG_F32, zero, 2, &d);
    assert_true(d.rel_l2 == 5 && d.max_abs == 4 && d.worst == 1);
    const double same[] = {3, -4};
    tg_compare(TENG_F32, three, TENG_F64, same, 2, &d);
    assert_true(d.unequal == 0);
    const int64_t big[] = {(1ll << 53) + 1}, near[] = {1ll << 53};
    tg_compare(TENG_I64, big, TENG_I64, near, 1, &d);
    assert_true(d.unequal == 1 && d.worst == 0);
    tg_compare(TENG_F32, a, TENG_F32, b, 0, &d);
    assert_true(d.count == 0 && d.unequal == 0 && d.rel_l2 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_names),
        cmocka_unit_test(shapes),
        cmocka_unit_test(bad_shape_text),
        cmocka_unit_test(all_patterns),
        cmocka_unit_test(ties_to_even),
        cmocka_unit_test(every_pair_of_types),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(nonfinite_conversions),
        cmocka_unit_test(compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
