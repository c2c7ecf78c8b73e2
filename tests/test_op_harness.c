/*
 * The operator harness must find what it is there for: one small operator is right, and each of its copies is
 * wrong in one way that the harness has to name.
 */
#include "op_harness.h"

#include "base/mem.h"
#include "graph/op_table.h"
#include "op/op_list.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* toy: y = x · w, two f32 tensors of one shape. */
static int64_t numel(const teng_op_call *call)
{
    int64_t n = 1;
    for (int d = 0; d < call->out[0].ndim; d++)
        n *= call->out[0].dims[d];
    return n;
}

static teng_status infer(teng_op_call *call)
{
    for (int i = 0; i < 2; i++)
        if (call->in[i].dtype != TENG_F32)
            return teng_fail(TENG_INVALID, "input %d is %s[3,1,2], not f32", i,
                             teng_dtype_name(call->in[i].dtype));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static teng_status infer_mute(teng_op_call *call)
{
    if (call->in[0].dtype != TENG_F32) return teng_fail(TENG_INVALID, "wrong");
    return infer(call);
}

static teng_status grad(teng_grad_ctx *ctx)
{
    for (int i = 0; i < 2; i++)
        if (ctx->need[i]) ctx->in_grad[i] = teng_mul_at((teng_src){0}, ctx->out_grad[0], ctx->in[1 - i]);
    return TENG_OK;
}

static teng_status grad_factor(teng_grad_ctx *ctx)
{
    grad(ctx);
    if (ctx->need[1]) ctx->in_grad[1] = teng_affine_at((teng_src){0}, ctx->in_grad[1], 1.0001, 0);
    return TENG_OK;
}

static teng_status grad_missing(teng_grad_ctx *ctx)
{
    grad(ctx);
    ctx->in_grad[0] = NULL;
    return TENG_OK;
}

static teng_status grad_together(teng_grad_ctx *ctx) /* right only when both are needed */
{
    return ctx->need[0] && ctx->need[1] ? grad(ctx) : TENG_OK;
}

static teng_status grad_shape(teng_grad_ctx *ctx)
{
    grad(ctx);
    ctx->in_grad[0] = teng_sum_at((teng_src){0}, ctx->in_grad[0], (teng_dims){0}, false);
    return TENG_OK;
}

static teng_status grad_fails(teng_grad_ctx *ctx)
{
    (void)ctx;
    return teng_fail(TENG_UNSUPPORTED, "no way back");
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (int d = 0; d < call->out[0].ndim; d++) {
        const teng_place p = (teng_place)d;
        teng_place_add(rules, (teng_place[]){p, p}, &p);
    }
    teng_place_add(rules, (teng_place[]){TENG_PARTIAL, TENG_REPLICATED}, (teng_place[]){TENG_PARTIAL});
}

static void place_both_partial(const teng_op_call *call, teng_place_rules *rules)
{
    (void)call;
    teng_place_add(rules, (teng_place[]){TENG_PARTIAL, TENG_PARTIAL}, (teng_place[]){TENG_PARTIAL});
}

static void place_replicated(const teng_op_call *call, teng_place_rules *rules) /* says less than happens */
{
    (void)call;
    teng_place_add(rules, (teng_place[]){0, 0}, (teng_place[]){TENG_REPLICATED});
}

static void place_nothing(const teng_op_call *call, teng_place_rules *rules)
{
    (void)call, (void)rules;
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)numel(call);
}

static void cost_nan(const teng_op_call *call, teng_cost *c)
{
    (void)call;
    c->flops = NAN;
}

static teng_status run(const teng_kernel_args *a)
{
    const float *x = a->in[0], *w = a->in[1];
    float *y = a->out[0];
    for (int64_t i = 0; i < numel(a->call); i++)
        y[i] = x[i] * w[i];
    return TENG_OK;
}

static teng_status run_inexact(const teng_kernel_args *a)
{
    run(a);
    ((float *)a->out[0])[0] *= 1.001f;
    return TENG_OK;
}

static teng_status run_beyond(const teng_kernel_args *a)
{
    run(a);
    ((float *)a->out[0])[numel(a->call)] = 0;
    return TENG_OK;
}

static teng_status run_before(const teng_kernel_args *a)
{
    run(a);
    ((float *)a->out[0])[-1] = 0;
    return TENG_OK;
}

static teng_status run_input(const teng_kernel_args *a)
{
    run(a);
    *(float *)(uintptr_t)a->in[1] = 0;
    return TENG_OK;
}

static teng_status
run_partly(const teng_kernel_args *a) /* a NaN of 0xFF bytes or a tiny number stays in the last */
{
    const float old = ((float *)a->out[0])[0];
    run(a);
    ((float *)a->out[0])[0] += isnan(old) ? 0 : 1e-6f;
    return TENG_OK;
}

static teng_status run_threads(const teng_kernel_args *a)
{
    run(a);
    ((float *)a->out[0])[0] += 1e-6f * (float)(omp_get_max_threads() - 1);
    return TENG_OK;
}

static teng_status run_allocates(const teng_kernel_args *a)
{
    tg_free(tg_alloc(1));
    return run(a);
}

static teng_status run_two_passes(const teng_kernel_args *a) /* not fit to run in place */
{
    float *y = a->out[0];
    const float *x = a->in[0], *w = a->in[1];
    for (int64_t i = 0; i < numel(a->call); i++)
        y[i] = 0;
    for (int64_t i = 0; i < numel(a->call); i++)
        y[i] += x[i] * w[i];
    return TENG_OK;
}

static teng_status prepare_small(const teng_op_call *call, teng_prepared *out)
{
    (void)call;
    out->workspace = 8;
    return TENG_OK;
}

static teng_status run_workspace(const teng_kernel_args *a)
{
    memset(a->workspace, 0, 9);
    return run(a);
}

static const char *accept_nothing(const teng_op_call *call)
{
    (void)call;
    return "not today";
}

#define KERNELS(name, accept, prepare, run_)                                                                 \
    static const teng_kernel name##_list[] = {{#name, accept, prepare, run_, NULL}, {0}};                    \
    static const teng_kernel_table name[] = {{"cpu", 0, name##_list}, {0}}
KERNELS(right, NULL, NULL, run);
KERNELS(inexact, NULL, NULL, run_inexact);
KERNELS(beyond, NULL, NULL, run_beyond);
KERNELS(before, NULL, NULL, run_before);
KERNELS(input, NULL, NULL, run_input);
KERNELS(partly, NULL, NULL, run_partly);
KERNELS(threads, NULL, NULL, run_threads);
KERNELS(allocates, NULL, NULL, run_allocates);
KERNELS(two_passes, NULL, NULL, run_two_passes);
KERNELS(workspace, NULL, prepare_small, run_workspace);
KERNELS(nothing, accept_nothing, NULL, run);

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < numel(call); i++)
        out[0][i] = in[0][i] * in[1][i];
    return TENG_OK;
}

static const teng_op_case list[] = {
    {.label = "one", .n_in = 2, .in = {{.desc = {TENG_F32, 2, {4, 6}}}, {.desc = {TENG_F32, 2, {4, 6}}}}}};
static const teng_op_cases good_cases = {
    .op = "toy", .list = list, .n = 1, .reference = reference, .dtypes = 1};
static const teng_op_spec good = {
    .name = "toy",
    .doc = "y = x * w",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {3},
    .infer = infer,
    .grad = grad,
    .grad_in = 3,
    .place = place,
    .cost = cost,
    .kernels = right,
};

/* The harness's report on op must contain `words`; NULL: it must be empty. */
static void expect(const teng_op_spec *op, const teng_op_cases *cases, const char *words)
{
    tg_strbuf report = {0};
    const int failures = tg_harness_check(op, cases, &report);
    if (!words && failures) fail_msg("%s", tg_strbuf_str(&report));
    if (words && (!failures || !strstr(tg_strbuf_str(&report), words)))
        fail_msg("\"%s\" is not in: %s", words, tg_strbuf_str(&report));
    tg_strbuf_free(&report);
}

#define WITH(field, value, words)                                                                            \
    do {                                                                                                     \
        teng_op_spec op = good;                                                                              \
        op.field = value;                                                                                    \
        expect(&op, &good_cases, words);                                                                     \
    } while (0)

static void a_right_operator_passes(void **state)
{
    (void)state;
    expect(&good, &good_cases, NULL);
}

static void wrong_kernels(void **state)
{
    (void)state;
    WITH(kernels, inexact, "from the reference");
    WITH(kernels, beyond, "writes outside output 0");
    WITH(kernels, before, "writes outside output 0");
    WITH(kernels, input, "changes input 1");
    WITH(kernels, partly, "gives other bits in output 0");
    WITH(kernels, threads, "two threads: gives other bits");
    WITH(kernels, allocates, "run allocates");
    WITH(kernels, two_passes, "in place: gives other bits");
    WITH(kernels, workspace, "writes outside its workspace");
    WITH(kernels, nothing, "nothing runs");
}

static void wrong_gradients(void **state)
{
    (void)state;
    WITH(grad, grad_factor, "gradient of output 0 by input 1");
    WITH(grad, grad_missing, "gradient of output 0 by input 0");
    WITH(grad, grad_together, "alone differs");
    WITH(grad, grad_shape, "another shape");
    WITH(grad, grad_fails, "no way back");
    WITH(grad_in, 1, "grad_in is 0x1, over all cases the gradient reads inputs 0x3");
    WITH(grad_out, 1, "grad_out is 0x1, over all cases the gradient reads outputs 0x0");
}

static void wrong_tables(void **state)
{
    (void)state;
    WITH(place, place_both_partial, "placement P,P -> P by 2");
    WITH(place, place_replicated, "another shape than the rule says");
    WITH(place, place_nothing, "no case can be cut");
    WITH(infer, infer_mute, "hides what it was");
    WITH(cost, cost_nan, "the cost holds");
    WITH(n_out, 0, "the spec is incomplete");
    WITH(doc, "", "the spec is incomplete");
    WITH(place, NULL, "the spec is incomplete");
    expect(&good, NULL, "there are no cases");
    teng_op_cases cases = good_cases;
    cases.dtypes = 1u << TENG_BF16;
    expect(&good, &cases, "leaves out f32");
    cases = good_cases;
    cases.op = "other";
    expect(&good, &cases, "the case list is of other");
}

int main(void)
{
    if (tg_op_register_builtin() != TENG_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_operator_passes),
        cmocka_unit_test(wrong_kernels),
        cmocka_unit_test(wrong_gradients),
        cmocka_unit_test(wrong_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
