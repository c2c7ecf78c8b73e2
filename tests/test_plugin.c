/*
 * An operator from a shared object (examples/custom_op.c) joins the table, passes the table test of the
 * built-in ones, and trains in both modes with its gradient; plugins that are not fit are refused by name.
 * test_plugin CUSTOM_OP.so BAD_1.so BAD_2.so BAD_3.so
 */
#include "op_harness.h"

#include "op/op_list.h"
#include "teng/teng.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char **paths;

static void refused(teng_status got, teng_status want, const char *words)
{
    if (!strstr(teng_error(), words)) fail_msg("\"%s\" is not in: %s", words, teng_error());
    assert_int_equal(got, want);
    teng_error_clear();
}

static void the_table_test(void **state)
{
    (void)state;
    tg_strbuf report = {0};
    const int failures =
        tg_harness_check(teng_op_find("squared_relu"), tg_op_cases_find("squared_relu"), &report);
    if (failures) fprintf(stderr, "%s", tg_strbuf_str(&report));
    assert_int_equal(failures, 0);
    tg_strbuf_free(&report);
}

/* ---- in a cell: two layers with the operator between learn y = x0² ---- */
enum { ROWS = 16, STEPS = 40 };
typedef struct net {
    teng_cell *in, *out;
    teng_dtype dtype; /* the operator is given this */
} net;

static teng_tensor *forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const net *n = teng_cell_data(self);
    (void)n_in;
    teng_tensor *h = teng_call(n->in, in[0]);
    if (n->dtype != TENG_F32) h = teng_cast(h, n->dtype);
    h = teng_apply(TENG_HERE, teng_op_find("squared_relu"), NULL, 1, &h, NULL);
    return teng_mean(teng_square(teng_sub(teng_call(n->out, h), in[1])), TENG_DIMS(0, 1), false);
}

static teng_status fill(void *user, teng_batch *b)
{
    float *x = b->data[0], *y = b->data[1];
    (void)user;
    for (int r = 0; r < ROWS; r++) {
        x[2 * r] = (float)sin((double)(b->index * ROWS + r));
        x[2 * r + 1] = (float)cos(3.0 * (double)(b->index * ROWS + r));
        y[r] = x[2 * r] * x[2 * r];
    }
    return TENG_OK;
}

static teng_status keep(teng_callback *self, teng_train_info *info)
{
    ((double *)self->user)[info->step - 1] = info->loss;
    return TENG_OK;
}

static teng_status train(teng_mode mode, teng_dtype dtype, double losses[STEPS])
{
    const teng_input inputs[] = {{"x", {TENG_F32, 2, {ROWS, 2}}}, {"y", {TENG_F32, 2, {ROWS, 1}}}};
    teng_cell *cell = teng_cell_create("net", sizeof(net), forward);
    net *n = teng_cell_data(cell);
    n->dtype = dtype;
    n->in = teng_cell_add(cell, "in", teng_nn_linear(2, 8, true, 0.5));
    n->out = teng_cell_add(cell, "out", teng_nn_linear(8, 1, true, 0.5));
    teng_model_options options = teng_model_options_default();
    options.mode = mode;
    options.threads = 1;
    options.schedule.lr = 0.02;
    teng_model *model = teng_model_create(cell, &options);
    teng_dataset *data = teng_dataset_create(inputs, 2, 4, fill, NULL);
    teng_callback callback = {.on_step = keep, .user = losses};
    const teng_status status = teng_model_train(model, data, STEPS, &callback, 1);
    teng_model_destroy(&model);
    teng_dataset_destroy(&data);
    teng_cell_destroy(&cell);
    return status;
}

static void it_trains_in_both_modes(void **state)
{
    (void)state;
    double graph[STEPS], pynative[STEPS];
    assert_int_equal(train(TENG_GRAPH, TENG_F32, graph), TENG_OK);
    assert_int_equal(train(TENG_PYNATIVE, TENG_F32, pynative), TENG_OK);
    assert_memory_equal(graph, pynative, sizeof graph);
    assert_true(graph[STEPS - 1] < 0.2 * graph[0]);
    refused(train(TENG_GRAPH, TENG_BF16, graph), TENG_INVALID,
            "x is bf16[16,8]; squared_relu computes in f32");
}

static void loading(void **state)
{
    (void)state;
    assert_int_equal(teng_plugin_load(paths[1]), TENG_OK); /* twice is harmless */
    refused(teng_plugin_load("no/such.so"), TENG_IO, "no/such.so");
    refused(teng_plugin_load("libm.so.6"), TENG_FORMAT, "libm.so.6 does not export teng_plugin_entry");
    refused(teng_plugin_load(paths[2]), TENG_FORMAT, "was built for plugin interface 99, this teng has 4");
    refused(teng_plugin_load(paths[3]), TENG_INVALID, "operator unheard_of has no case list");
    refused(teng_plugin_load(paths[4]), TENG_INVALID, "matmul");
    assert_null(teng_op_find("squared_rely"));
    refused(TENG_INVALID, TENG_INVALID, "squared_relu"); /* the nearest name is offered */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_test),
        cmocka_unit_test(it_trains_in_both_modes),
        cmocka_unit_test(loading),
    };
    paths = argv;
    if (argc != 5 || tg_op_register_builtin() != TENG_OK || teng_plugin_load(argv[1]) != TENG_OK) {
        fprintf(stderr, "%s\n", teng_error());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
