/*
 * matmul, attention and linear_cross_entropy: what they refuse, in words, what NaN and missing labels do,
 * that linear layers take vectors and report a missing bias, and that memory running out is an error at every
 * allocation. The values of ordinary calls are the business of test_ops.
 */
#include "cmocka_all.h"
#include "op_calls.h"

#include "base/mem.h"
#include "device/cpu_isa.h"
#include "graph/graph.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/matmul/matmul.h"
#include "op/op_list.h"
#include "tensor/desc.h"
#include "teng/ops.h"

#include <math.h>
#include <string.h>

static const tg_matmul_attr plain = {0, 0, 0}, trans = {1, 1, 0};
static const teng_attention_options causal = {.causal = 1}, backward = {.causal = 1, .window = -1},
                                    endless = {.causal = 1, .scale = INFINITY};
static const tg_linear_ce_attr both = {.ignore_index = -100}, strange = {.ignore_index = -100, .outputs = 3};
static const refusal list[] = {
    {&tg_op_matmul,
     &plain,
     2,
     {D(F32, 3, 2, 3, 4), D(F32, 2, 5, 6)},
     "a f32[2,3,4] and b f32[5,6]: inner sizes 4 and 5 differ"},
    {&tg_op_matmul,
     &trans,
     2,
     {D(F32, 2, 3, 4), D(F32, 2, 5, 6)},
     "a f32[3,4] transposed and b f32[5,6] transposed: inner sizes 3 and 6 differ"},
    {&tg_op_matmul,
     &plain,
     2,
     {D(F32, 3, 2, 3, 4), D(F32, 3, 3, 4, 5)},
     "a f32[2,3,4] and b f32[3,4,5]: b must have two"},
    {&tg_op_matmul, &plain, 2, {D(F32, 2, 3, 4), D(F32, 3, 1, 4, 5)}, "b must have two dimensions"},
    {&tg_op_matmul,
     &plain,
     2,
     {D(BF16, 2, 3, 4), D(F32, 2, 4, 5)},
     "b is f32[4,5]; its elements must be bf16"},
    {&tg_op_matmul,
     &plain,
     2,
     {D(I32, 2, 3, 4), D(I32, 2, 4, 5)},
     "a is i32[3,4]; it must be f32, bf16 or f16"},
    {&tg_op_matmul,
     &plain,
     2,
     {D(F32, 1, 4), D(F32, 2, 4, 5)},
     "a is f32[4]; it must have at least 2 dimensions"},
    {&tg_op_matmul,
     &plain,
     3,
     {D(BF16, 2, 3, 4), D(BF16, 2, 4, 5), D(F32, 1, 4)},
     "bias is f32[4]; it must be [5] in f32 or bf16"},
    {&tg_op_attention,
     &causal,
     3,
     {D(F32, 4, 2, 3, 4, 8), D(F32, 4, 2, 3, 3, 8), D(F32, 4, 2, 3, 3, 8)},
     "the 4 query heads must be a multiple of the 3 key/value heads"},
    {&tg_op_attention,
     &causal,
     3,
     {D(F32, 4, 2, 3, 4, 8), D(F32, 4, 1, 3, 4, 8), D(F32, 4, 1, 3, 4, 8)},
     "q is f32[2,3,4,8] and k is f32[1,3,4,8]; B (dimension 0) and D (dimension 3) must agree"},
    {&tg_op_attention,
     &causal,
     3,
     {D(F32, 4, 2, 3, 4, 8), D(F32, 4, 2, 3, 4, 8), D(F32, 4, 2, 5, 4, 8)},
     "v is f32[2,5,4,8] and k is f32[2,3,4,8]; they must agree"},
    {&tg_op_attention,
     &causal,
     3,
     {D(F32, 3, 2, 3, 8), D(F32, 4, 2, 3, 4, 8), D(F32, 4, 2, 3, 4, 8)},
     "they must be [B, T, H, D] and [B, S, G, D] of one dtype"},
    {&tg_op_attention,
     &causal,
     3,
     {D(F32, 4, 2, 3, 0, 8), D(F32, 4, 2, 3, 1, 8), D(F32, 4, 2, 3, 1, 8)},
     "at least one head of at least one element"},
    {&tg_op_attention,
     &backward,
     3,
     {D(F32, 4, 1, 3, 1, 8), D(F32, 4, 1, 3, 1, 8), D(F32, 4, 1, 3, 1, 8)},
     "window is -1"},
    {&tg_op_attention,
     &endless,
     3,
     {D(F32, 4, 1, 3, 1, 8), D(F32, 4, 1, 3, 1, 8), D(F32, 4, 1, 3, 1, 8)},
     "scale is inf; it must be finite"},
    {&tg_op_attention_grad,
     &causal,
     6,
     {D(F32, 4, 1, 3, 2, 8), D(F32, 4, 1, 3, 1, 8), D(F32, 4, 1, 3, 1, 8), D(F32, 4, 1, 3, 2, 8),
      D(F32, 3, 1, 3, 2), D(F32, 4, 1, 3, 2, 8)},
     "lse is f32[1,3,2]; it must be f32[1,2,3], the shape of q as [B, H, T]"},
    {&tg_op_linear_cross_entropy,
     &both,
     3,
     {D(F32, 2, 3, 4), D(F32, 2, 9, 5), D(I32, 1, 3)},
     "x is f32[3,4] and w is f32[9,5]; w must be [V,4] in f32"},
    {&tg_op_linear_cross_entropy,
     &both,
     3,
     {D(F32, 2, 3, 4), D(F32, 2, 0, 4), D(I32, 1, 3)},
     "neither C nor V may be 0"},
    {&tg_op_linear_cross_entropy,
     &both,
     3,
     {D(F32, 2, 3, 4), D(F32, 2, 9, 4), D(I32, 1, 4)},
     "labels is i32[4]; it must be i32[3], the shape of x without its last dimension"},
    {&tg_op_linear_cross_entropy_grad,
     &strange,
     5,
     {D(F32, 2, 3, 4), D(F32, 2, 9, 4), D(I32, 1, 3), D(F32, 1, 3), D(F32, 0, 0)},
     "outputs is 3; it must be 0"},
    {&tg_op_linear_cross_entropy_grad,
     &both,
     5,
     {D(F32, 2, 3, 4), D(F32, 2, 9, 4), D(I32, 1, 3), D(F32, 1, 3), D(F32, 1, 1)},
     "dy is f32[1]; it must be an f32 scalar"},
};

static void infer_refuses(void **state)
{
    (void)state;
    check_refusals(list, sizeof list / sizeof *list);
}

static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                       const void *const *data, void *const *out)
{
    return run_op(op, attr, n_in, in, data, out, 0);
}

static const teng_desc loss_in[] = {D(F32, 2, 3, 2), D(F32, 2, 4, 2), D(I32, 1, 3), D(F32, 1, 3),
                                    D(F32, 0, 0)};
static const float w[8] = {1, 2, 3, 4, 5, 6, 7, 8}, unit[1] = {1};

static void label_out_of_range(void **state)
{
    (void)state;
    static const float x[6] = {0}, lse[3] = {0};
    static const int32_t labels[3] = {3, -100, 4};
    float y[6], z[8];
    assert_int_equal(
        run(&tg_op_linear_cross_entropy, &both, 3, loss_in, (const void *[]){x, w, labels}, (void *[]){y, z}),
        TENG_INVALID);
    check_text("the label at position 2 is 4; it must be 0 to 3");
    assert_int_equal(run(&tg_op_linear_cross_entropy_grad, &both, 5, loss_in,
                         (const void *[]){x, w, labels, lse, unit}, (void *[]){y, z}),
                     TENG_INVALID);
    check_text("the label at position 2 is 4; it must be 0 to 3");
}

/* Nothing valid gives 0, whatever x holds; a NaN in a row that counts is not hidden. */
static void losses_of_nan(void **state)
{
    (void)state;
    static const float x[6] = {1, 2, NAN, 4, 5, 6};
    static const int32_t none[3] = {-100, -100, -100}, skipped[3] = {0, -100, 3}, counted[3] = {0, 1, 3};
    float loss = 9, lse[3] = {9, 9, 9}, dx[6], dw[8];
    assert_int_equal(run(&tg_op_linear_cross_entropy, &both, 3, loss_in, (const void *[]){x, w, none},
                         (void *[]){&loss, lse}),
                     TENG_OK);
    assert_true(loss == 0 && lse[0] == 0 && lse[1] == 0 && lse[2] == 0);
    assert_int_equal(run(&tg_op_linear_cross_entropy, &both, 3, loss_in, (const void *[]){x, w, skipped},
                         (void *[]){&loss, lse}),
                     TENG_OK);
    assert_true(isfinite(loss) && isfinite(lse[0]) && lse[1] == 0);
    assert_int_equal(run(&tg_op_linear_cross_entropy_grad, &both, 5, loss_in,
                         (const void *[]){x, w, skipped, lse, unit}, (void *[]){dx, dw}),
                     TENG_OK);
    assert_true(dx[2] == 0 && dx[3] == 0 && isfinite(dx[0]));
    assert_int_equal(run(&tg_op_linear_cross_entropy, &both, 3, loss_in, (const void *[]){x, w, counted},
                         (void *[]){&loss, lse}),
                     TENG_OK);
    assert_true(isnan(loss) && isnan(lse[1]) && isfinite(lse[0]));
}

/* Query 1 of 3 is NaN: its row alone is lost. Key 2 is NaN: query 2 alone sees it. */
static void attention_of_nan(void **state)
{
    (void)state;
    const teng_desc in[] = {D(F32, 4, 1, 3, 1, 2), D(F32, 4, 1, 3, 1, 2), D(F32, 4, 1, 3, 1, 2)};
    static const float q[6] = {1, 2, NAN, 4, 5, 6}, k[6] = {1, 0, 0, 1, 1, 1},
                       bad_k[6] = {1, 0, 0, 1, NAN, 1};
    float y[6], lse[3];
    assert_int_equal(run(&tg_op_attention, &causal, 3, in, (const void *[]){q, k, k}, (void *[]){y, lse}),
                     TENG_OK);
    assert_true(y[0] == 1 && y[1] == 0 && isnan(y[2]) && isnan(lse[1]) && isfinite(y[4]) && isfinite(lse[2]));
    assert_int_equal(run(&tg_op_attention, &causal, 3, in, (const void *[]){k, bad_k, k}, (void *[]){y, lse}),
                     TENG_OK);
    assert_true(isfinite(y[0]) && isfinite(y[2]) && isfinite(lse[1]) && isnan(y[4]) && isnan(lse[2]));
}

static void linear_layers(void **state)
{
    (void)state;
    const teng_desc dx = D(F32, 1, 4), dw = D(F32, 2, 3, 4), dt = D(F32, 2, 4, 3), db = D(F32, 1, 3);
    tg_graph *g = tg_graph_create("linear");
    teng_tensor *x = tg_graph_input(g, "x", &dx), *weight = tg_graph_param(g, "w", &dw),
                *t = tg_graph_param(g, "t", &dt), *bias = tg_graph_param(g, "b", &db);
    tg_trace trace;
    tg_trace_begin(&trace, g);
    assert_true(
        tg_desc_equal(teng_tensor_desc(teng_linear(x, weight, bias, true)), &db)); /* a vector stays one */
    assert_true(tg_desc_equal(teng_tensor_desc(teng_conv1d(x, t, NULL, false)), &db));
    assert_int_equal(teng_error_status(), TENG_OK);
    assert_null(teng_linear(x, weight, NULL, true));
    check_text("matmul: operand 2 is NULL");
    assert_null(teng_linear(x, t, NULL, false));
    check_text("inner sizes 4 and 3 differ");
    tg_trace_end(&trace);
    tg_graph_destroy(&g);
}

/* Every allocation of prepare may fail. */
static void memory_runs_out(void **state)
{
    (void)state;
    static const float q[6] = {1, 2, 3, 4, 5, 6}, lse[3] = {1, 1, 1};
    static const int32_t labels[3] = {0, 1, 2};
    const teng_desc heads[] = {D(F32, 4, 1, 3, 1, 2), D(F32, 4, 1, 3, 1, 2), D(F32, 4, 1, 3, 1, 2),
                               D(F32, 4, 1, 3, 1, 2), D(F32, 3, 1, 1, 3),    D(F32, 4, 1, 3, 1, 2)};
    const teng_desc factors[] = {D(F32, 2, 3, 2), D(F32, 2, 2, 3)};
    float a[9], b[9], c[9];
    const struct {
        const teng_op_spec *op;
        const void *attr;
        int n_in;
        const teng_desc *in;
        const void *const *data;
    } calls[] = {
        {&tg_op_matmul, &plain, 2, factors, (const void *[]){q, q}},
        {&tg_op_attention, &causal, 3, heads, (const void *[]){q, q, q}},
        {&tg_op_attention_grad, &causal, 6, heads, (const void *[]){q, q, q, q, lse, q}},
        {&tg_op_linear_cross_entropy, &both, 3, loss_in, (const void *[]){q, w, labels}},
        {&tg_op_linear_cross_entropy_grad, &both, 5, loss_in, (const void *[]){q, w, labels, lse, unit}},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        uint64_t n = 1;
        for (; n < 50; n++) {
            const teng_status status = run_op(calls[i].op, calls[i].attr, calls[i].n_in, calls[i].in,
                                              calls[i].data, (void *[]){a, b, c}, n);
            if (status == TENG_OK) break;
            assert_int_equal(status, TENG_MEMORY);
            assert_int_equal(teng_error_status(), TENG_MEMORY);
            teng_error_clear();
        }
        assert_true(n > 1 && n < 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_refuses), cmocka_unit_test(label_out_of_range),
        cmocka_unit_test(losses_of_nan), cmocka_unit_test(attention_of_nan),
        cmocka_unit_test(linear_layers), cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
