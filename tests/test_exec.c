/*
 * Running: plans that share a block and a store, what feeding and fetching refuse, failures of kernels with
 * their layer, no allocation in a run; and PYNATIVE: values can be read after each operator, buffers and
 * kernels are used again.
 */
#include "base/fail.h"
#include "device/cpu_isa.h"
#include "eager/eager.h"
#include "exec/exec.h"
#include "op/op_list.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <string.h>

static tg_device *device;

static void assert_error(teng_status status, const char *text)
{
    assert_int_equal(teng_error_status(), status);
    if (!strstr(teng_error(), text)) fail_msg("\"%s\" is not in: %s", text, teng_error());
    teng_error_clear();
}

static tg_plan *plan_of(const char *text)
{
    tg_graph *g = NULL;
    tg_plan *plan = NULL;
    const tg_plan_options o = {.device = "cpu", .isa = tg_cpu_isa_current()};
    if (tg_graph_parse("t", text, &g) != TENG_OK || tg_plan_create(g, &o, &plan) != TENG_OK)
        fail_msg("%s", teng_error());
    return plan;
}

typedef struct fixture {
    tg_store *store;
    tg_exec_block *block;
    tg_plan *plan;
    tg_exec *exec;
} fixture;

static fixture set_up(const char *text)
{
    fixture f = {tg_store_create(device), tg_exec_block_create(device), plan_of(text), NULL};
    if (tg_exec_create(f.plan, f.store, f.block, &f.exec) != TENG_OK) fail_msg("%s", teng_error());
    return f;
}

static void tear_down(fixture *f)
{
    tg_exec_destroy(&f->exec);
    tg_plan_destroy(&f->plan);
    tg_exec_block_destroy(&f->block);
    tg_store_destroy(&f->store);
}

#define ADD                                                                                                  \
    "graph g\ninput x f32[2]\nparam w f32[2]\nstate s f32[2]\ninput keep f32[]\n"                            \
    "%0 = add($x, $w) {} : f32[2]\n"                                                                         \
    "%1 = accumulate($s, %0, $keep) {} : f32[2]\n"                                                           \
    "output y %0\noutput s %1\noutput x $x\n"

static void runs_and_keeps_state(void **state)
{
    (void)state;
    fixture f = set_up(ADD);
    const float x[2] = {1, 2}, w[2] = {10, 20}, one = 1;
    float y[2];
    assert_true(tg_exec_block_bytes(f.block) >= f.plan->memory.block);
    assert_int_equal(tg_store_count(f.store), 2);
    memcpy(tg_store_find(f.store, "w")->data, w, sizeof w);
    assert_int_equal(tg_exec_feed(f.exec, "x", x), TENG_OK);
    assert_int_equal(tg_exec_feed(f.exec, "keep", &one), TENG_OK);
    for (int run = 1; run <= 3; run++) {
        assert_int_equal(tg_exec_run(f.exec, TG_FORWARD, TG_UPDATE), TENG_OK);
        assert_int_equal(tg_exec_fetch(f.exec, "y", y, sizeof y), TENG_OK);
        assert_true(y[0] == 11 && y[1] == 22);
        assert_int_equal(tg_exec_fetch(f.exec, "s", y, sizeof y), TENG_OK);
        assert_true(y[0] == 11.0F * (float)run && y[1] == 22.0F * (float)run);
    }
    assert_int_equal(tg_exec_fetch(f.exec, "x", y, sizeof y), TENG_OK);
    assert_true(y[0] == 1 && y[1] == 2);
    tear_down(&f);
}

static void names_and_sizes(void **state)
{
    (void)state;
    fixture f = set_up(ADD);
    float y[2] = {0};
    assert_true(tg_exec_has_input(f.exec, "x"));
    assert_false(tg_exec_has_input(f.exec, "w"));
    assert_false(tg_exec_has_input(f.exec, "none"));
    assert_int_equal(tg_exec_feed(f.exec, "z", y), TENG_INVALID);
    assert_error(TENG_INVALID, "the graph has no input named z");
    assert_int_equal(tg_exec_feed(f.exec, "w", y), TENG_INVALID);
    assert_error(TENG_INVALID, "the graph has no input named w");
    assert_int_equal(tg_exec_fetch(f.exec, "z", y, sizeof y), TENG_INVALID);
    assert_error(TENG_INVALID, "the graph has no output named z");
    assert_int_equal(tg_exec_fetch(f.exec, "y", y, 4), TENG_INVALID);
    assert_error(TENG_INVALID, "output y has 8 bytes, 4 were asked for");
    tear_down(&f);
}

static void store_of_another_shape(void **state)
{
    (void)state;
    tg_store *store = tg_store_create(device);
    tg_exec_block *block = tg_exec_block_create(device);
    tg_plan *plan = plan_of(ADD);
    tg_exec *exec = NULL;
    tg_store_entry *e;
    const teng_desc three = {TENG_F32, 1, {3}};
    assert_int_equal(tg_store_add(store, TG_STORE_PARAM, "w", &three, &e), TENG_OK);
    assert_int_not_equal(tg_exec_create(plan, store, block, &exec), TENG_OK);
    assert_null(exec);
    assert_error(teng_error_status(), "w");
    tg_plan_destroy(&plan);
    tg_exec_block_destroy(&block);
    tg_store_destroy(&store);
}

/* A second, bigger plan makes the block grow; the first one finds its places again. */
static void plans_share_block_and_store(void **state)
{
    (void)state;
    fixture f = set_up(ADD);
    tg_plan *big = plan_of("graph g\ninput x f32[100000]\nparam w f32[2]\n%0 = exp($x) {} : f32[100000]\n"
                           "%1 = exp($w) {} : f32[2]\noutput y %1\noutput z %0\n");
    tg_exec *second = NULL;
    const float x[2] = {1, 2}, w[2] = {0, 0}, zero = 0;
    float y[2];
    float *many = tg_calloc(100000, sizeof *many);
    const size_t before = tg_exec_block_bytes(f.block);
    assert_int_equal(tg_exec_create(big, f.store, f.block, &second), TENG_OK);
    assert_true(tg_exec_block_bytes(f.block) > before);
    memcpy(tg_store_find(f.store, "w")->data, w, sizeof w);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(tg_exec_feed(second, "x", many), TENG_OK);
        assert_int_equal(tg_exec_run(second, TG_FORWARD, TG_FORWARD), TENG_OK);
        assert_int_equal(tg_exec_fetch(second, "y", y, sizeof y), TENG_OK);
        assert_true(y[0] == 1 && y[1] == 1);
        assert_int_equal(tg_exec_feed(f.exec, "x", x), TENG_OK);
        assert_int_equal(tg_exec_feed(f.exec, "keep", &zero), TENG_OK);
        assert_int_equal(tg_exec_run(f.exec, TG_FORWARD, TG_UPDATE), TENG_OK);
        assert_int_equal(tg_exec_fetch(f.exec, "s", y, sizeof y), TENG_OK);
        assert_true(y[0] == 1 && y[1] == 2);
    }
    tg_free(many);
    tg_exec_destroy(&second);
    tg_plan_destroy(&big);
    tear_down(&f);
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    fixture f =
        set_up("graph g\ninput x f32[32,32]\n%0 = matmul($x, $x) {trans_a=0, trans_b=1} : f32[32,32]\n"
               "%1 = softmax(%0) {} : f32[32,32]\n%2 = sum_squares(%1) {} : f32[]\noutput y %2\n");
    float x[1024] = {0}, y;
    for (int run = 0; run < 4; run++) {
        const uint64_t before = tg_alloc_count();
        assert_int_equal(tg_exec_feed(f.exec, "x", x), TENG_OK);
        assert_int_equal(tg_exec_run(f.exec, TG_FORWARD, TG_UPDATE), TENG_OK);
        assert_int_equal(tg_exec_fetch(f.exec, "y", &y, sizeof y), TENG_OK);
        assert_int_equal(tg_alloc_count(), before);
        assert_true(y > 0.999F && y < 1.001F); /* 32 rows of 1/32: 1024 · 1/1024 */
    }
    tear_down(&f);
}

/* ---- a kernel that fails ---- */
static teng_status infer_same(teng_op_call *call)
{
    call->out[0] = call->in[0];
    return TENG_OK;
}
static void cost_nothing(const teng_op_call *call, teng_cost *cost)
{
    (void)call, (void)cost;
}
static teng_status run_fails(const teng_kernel_args *args)
{
    (void)args;
    return teng_fail(TENG_NUMERIC, "the moon is wrong");
}
static const teng_kernel failing_kernels[] = {{"failing", NULL, NULL, run_fails, NULL}, {0}};
static const teng_kernel_table failing_tables[] = {{"cpu", 0, failing_kernels}, {0}};
static const teng_op_spec failing = {.name = "failing",
                                     .doc = "fails",
                                     .min_in = 1,
                                     .max_in = 1,
                                     .n_out = 1,
                                     .infer = infer_same,
                                     .no_grad = "none",
                                     .no_place = "none",
                                     .cost = cost_nothing,
                                     .kernels = failing_tables};

static teng_tensor *append_failing(tg_graph *g, teng_tensor *x)
{
    tg_trace trace;
    tg_trace_begin(&trace, g);
    const tg_trace_mark mark = tg_trace_enter("model.layers.2", (teng_src){"my_model.c", 77});
    teng_tensor *y = teng_apply(TENG_HERE, &failing, NULL, 1, &x, NULL);
    tg_trace_leave(mark);
    tg_trace_end(&trace);
    return y;
}

static void kernel_failures_name_the_layer(void **state)
{
    (void)state;
    const teng_desc two = {TENG_F32, 1, {2}};
    tg_store *store = tg_store_create(device);
    tg_exec_block *block = tg_exec_block_create(device);
    tg_graph *g = tg_graph_create("g");
    tg_plan *plan = NULL;
    tg_exec *exec = NULL;
    const tg_plan_options o = {.device = "cpu", .isa = tg_cpu_isa_current()};
    assert_non_null(append_failing(g, tg_graph_input(g, "x", &two)));
    assert_int_equal(tg_plan_create(g, &o, &plan), TENG_OK);
    assert_int_equal(tg_exec_create(plan, store, block, &exec), TENG_OK);
    assert_int_equal(tg_exec_run(exec, TG_FORWARD, TG_UPDATE), TENG_NUMERIC);
    assert_non_null(strstr(teng_error(), "model.layers.2 (failing, "));
    assert_error(TENG_NUMERIC, "test_exec.c:");
    tg_exec_destroy(&exec);
    tg_plan_destroy(&plan);
    tg_exec_block_destroy(&block);

    tg_eager *eager = tg_eager_create(store, o.isa);
    g = tg_graph_create("g");
    tg_eager_begin(eager, g);
    teng_tensor *x = tg_graph_input(g, "x", &two);
    assert_null(append_failing(g, x)); /* x has no value yet */
    assert_error(TENG_STATE, "x has no value yet");
    assert_int_equal(tg_eager_feed(eager, x, (const float[]){1, 2}), TENG_OK);
    assert_null(append_failing(g, x));
    assert_non_null(strstr(teng_error(), "model.layers.2 (failing, "));
    assert_non_null(strstr(teng_error(), "my_model.c:77"));
    assert_error(TENG_NUMERIC, "the moon is wrong");
    tg_graph_destroy(&g);
    tg_eager_destroy(&eager);
    tg_store_destroy(&store);
}

static void eager_values_can_be_read_and_buffers_are_used_again(void **state)
{
    (void)state;
    const teng_desc desc = {TENG_F32, 2, {2, 2}};
    tg_store *store = tg_store_create(device);
    tg_eager *eager = tg_eager_create(store, tg_cpu_isa_current());
    size_t peak = 0, first_peak = 0, kernels = 0;
    for (int step = 0; step < 3; step++) {
        tg_graph *g = tg_graph_create("g");
        tg_eager_begin(eager, g);
        teng_tensor *x = tg_graph_input(g, "x", &desc), *w = tg_graph_param(g, "w", &desc);
        float v[4];
        assert_int_equal(tg_eager_feed(eager, x, (const float[]){1, 2, 3, 4}), TENG_OK);
        teng_tensor *y = teng_scale(teng_add(x, w), 2), *z = teng_reshape(y, TENG_DIMS(4));
        teng_tensor *h = teng_cast(y, TENG_BF16);
        assert_int_equal(teng_tensor_read(y, v, 4), TENG_OK); /* after each operator */
        assert_true(v[0] == 2 && v[3] == 8);
        assert_int_equal(teng_tensor_read(h, v, 4), TENG_OK);
        assert_true(v[0] == 2 && v[3] == 8);
        assert_ptr_equal(z->data, y->data);
        assert_int_equal(teng_tensor_read(y, v, 3), TENG_INVALID);
        assert_error(TENG_INVALID, "teng_tensor_read: the value has 4 elements, not 3");
        assert_int_equal(tg_eager_fetch(eager, y, v, 4), TENG_INVALID);
        assert_error(TENG_INVALID, "the value has 16 bytes, 4 were asked for");
        assert_true(tg_eager_bytes(eager, &peak) > 0);
        tg_graph_destroy(&g);
        tg_eager_end(eager);
        assert_int_equal(tg_eager_bytes(eager, NULL), 0);
        if (step == 0) first_peak = peak, kernels = tg_eager_kernels(eager);
    }
    assert_int_equal(peak, first_peak);
    assert_int_equal(tg_eager_kernels(eager), kernels);
    assert_int_equal(kernels, 3); /* add, affine, cast; the view has none */
    tg_eager_destroy(&eager);
    tg_store_destroy(&store);
}

static void values_of_a_graph_cannot_be_read(void **state)
{
    (void)state;
    const teng_desc desc = {TENG_F32, 1, {2}};
    tg_graph *g = tg_graph_create("g");
    float v[2];
    assert_int_equal(teng_tensor_read(teng_exp(tg_graph_input(g, "x", &desc)), v, 2), TENG_STATE);
    assert_error(TENG_STATE, "values can be read in PYNATIVE mode only (context.mode=pynative)");
    assert_int_equal(teng_tensor_read(NULL, v, 2), TENG_INVALID);
    teng_error_clear();
    tg_graph_destroy(&g);
}

int main(void)
{
    tg_op_register_builtin();
    if (tg_device_open("cpu", 1, &device) != TENG_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_keeps_state),
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(store_of_another_shape),
        cmocka_unit_test(plans_share_block_and_store),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(kernel_failures_name_the_layer),
        cmocka_unit_test(eager_values_can_be_read_and_buffers_are_used_again),
        cmocka_unit_test(values_of_a_graph_cannot_be_read),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tg_device_close(&device);
    return failed;
}
