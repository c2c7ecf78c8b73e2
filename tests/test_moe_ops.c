/* What the operators of mixtures of experts refuse, before and while they run. Their values are the business
 * of test_ops. */
#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_isa.h"
#include "op/moe_route/moe_route.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

#define SHAPE(t, n, ...)                                                                                     \
    {                                                                                                        \
        TENG_##t, n,                                                                                         \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

static void says(teng_status status, const char *text)
{
    assert_int_equal(status, TENG_INVALID);
    if (!strstr(teng_error(), text)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), text);
    teng_error_clear();
}

static void test_shapes(void **state)
{
    (void)state;
    static const int64_t none = 0, four = 4, trans = 1;
    static const tg_moe_route_attr five_of = {5, 0}, two_of = {2, 1};
    static const struct {
        const teng_op_spec *op;
        const void *attr;
        int n_in;
        teng_desc in[3];
        const char *text;
    } list[] = {
        {&tg_op_moe_route, &five_of, 1, {SHAPE(F32, 2, 3, 4)}, "top_k is 5; it must be 1 to 4"},
        {&tg_op_moe_route,
         &two_of,
         1,
         {SHAPE(F32, 1, 4)},
         "logits are f32[4]; they must be [tokens, experts]"},
        {&tg_op_moe_route_grad,
         &two_of,
         3,
         {SHAPE(F32, 2, 3, 4), SHAPE(I32, 2, 3, 1), SHAPE(F32, 2, 3, 2)},
         "experts"},
        {&tg_op_moe_sort, &none, 1, {SHAPE(I32, 2, 3, 2)}, "experts is 0; at least 1"},
        {&tg_op_moe_sort, &four, 1, {SHAPE(I32, 1, 3)}, "chosen is i32[3]; it must be [tokens, top_k]"},
        {&tg_op_grouped_matmul,
         &trans,
         3,
         {SHAPE(F32, 2, 9, 4), SHAPE(F32, 3, 2, 4, 6), SHAPE(I32, 1, 2)},
         "x is f32[9,4] and w is f32[2,4,6]; w must be [groups, N, K] with x's K"},
        {&tg_op_grouped_matmul,
         &trans,
         3,
         {SHAPE(F32, 2, 9, 4), SHAPE(F32, 3, 2, 6, 4), SHAPE(I32, 1, 3)},
         "counts are i32[3]; one number for each of the 2 groups"},
        {&tg_op_grouped_outer,
         NULL,
         3,
         {SHAPE(F32, 2, 9, 4), SHAPE(F32, 2, 8, 4), SHAPE(I32, 1, 3)},
         "a is f32[9,4] and b is f32[8,4]; they must have equally many rows"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        teng_desc out[TENG_MAX_OUT];
        int n_out;
        says(tg_op_infer(list[i].op, list[i].attr, list[i].n_in, list[i].in, out, &n_out), list[i].text);
    }
}

/* One run of the operator's best kernel here. */
static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in_desc,
                       const void *const *in, void *const *out)
{
    teng_desc out_desc[TENG_MAX_OUT];
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in_desc, .out = out_desc};
    TG_TRY(tg_op_infer(op, attr, n_in, in_desc, out_desc, &call.n_out));
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", tg_cpu_isa_current(), NULL);
    assert_non_null(kernel);
    teng_prepared prepared = {0};
    TG_TRY(kernel->prepare(&call, &prepared));
    void *workspace = tg_alloc_aligned(prepared.workspace);
    const teng_kernel_args args = {
        .call = &call, .state = prepared.state, .in = in, .out = out, .workspace = workspace};
    const teng_status status = kernel->run(&args);
    if (kernel->release) kernel->release(prepared.state);
    tg_free_aligned(workspace);
    return status;
}

static void test_values(void **state)
{
    (void)state;
    static const int64_t experts = 4, trans = 1;
    static const tg_moe_route_attr two_of = {2, 1};
    float x[12] = {0}, w[16] = {0}, y[64];
    int32_t ints[3][8], negative[] = {3, -1}, many[] = {2, 2}, few[] = {1, 1}, chosen[] = {0, 3, 4, 1, 0, 2};
    const teng_desc mm[] = {SHAPE(F32, 2, 3, 4), SHAPE(F32, 3, 2, 2, 4), SHAPE(I32, 1, 2)};
    const teng_desc sort[] = {SHAPE(I32, 2, 3, 2)};
    const teng_desc grad[] = {SHAPE(F32, 2, 3, 4), SHAPE(I32, 2, 3, 2), SHAPE(F32, 2, 3, 2)};
    void *out[] = {y}, *sorted[] = {ints[0], ints[1], ints[2]};
    says(run(&tg_op_grouped_matmul, &trans, 3, mm, (const void *[]){x, w, negative}, out), "counts[1] is -1");
    says(run(&tg_op_grouped_matmul, &trans, 3, mm, (const void *[]){x, w, many}, out),
         "counts sum to 4, there are 3 rows");
    assert_int_equal(run(&tg_op_grouped_matmul, &trans, 3, mm, (const void *[]){x, w, few}, out), TENG_OK);
    says(run(&tg_op_moe_sort, &experts, 1, sort, (const void *[]){chosen}, sorted),
         "the expert at position 2 is 4, there are 4");
    says(run(&tg_op_moe_route_grad, &two_of, 3, grad, (const void *[]){x, chosen, w}, out),
         "the expert at position 2 is 4, there are 4");
}

/* Logits that are not numbers still choose experts that exist. */
static void test_nan(void **state)
{
    (void)state;
    static const tg_moe_route_attr two_of = {2, 1};
    const float nan = __builtin_nanf(""), x[] = {nan, nan, nan, 1, nan, 2};
    float weights[4];
    int32_t chosen[4];
    const teng_desc desc[] = {SHAPE(F32, 2, 2, 3)};
    assert_int_equal(
        run(&tg_op_moe_route, &two_of, 1, desc, (const void *[]){x}, (void *[]){weights, chosen}), TENG_OK);
    for (int i = 0; i < 4; i++)
        assert_in_range(chosen[i], 0, 2);
    assert_int_not_equal(chosen[0], chosen[1]);
    assert_int_not_equal(chosen[2], chosen[3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_nan)};
    if (tg_op_register_builtin() != TENG_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
