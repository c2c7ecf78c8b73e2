/*
 * Cells: names, ownership, parameters, calls inside a trace, where errors say they happened, dropout streams,
 * initial values. Language models are tested in test_nn_families and test_nn_models.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "nn/cell.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void assert_fails(const char *part)
{
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
}

static const teng_init ones = {TENG_INIT_CONST, 1, 0, TENG_ROLE_NORM};

static teng_tensor *first(teng_cell *self, teng_tensor *const *in, int n_in)
{
    (void)self;
    return n_in ? in[0] : NULL;
}

static teng_cell *plain(void)
{
    return teng_cell_create("plain", 0, first);
}

/* A graph with one input x. */
static tg_graph *graph_with(teng_dims dims, teng_tensor **x)
{
    tg_graph *g = tg_graph_create("test");
    const teng_desc desc = tg_desc_make(TENG_F32, (int)dims.n, dims.v);
    *x = tg_graph_input(g, "x", &desc);
    assert_non_null(*x);
    return g;
}

/* ---- the tree ---- */

static void names_are_paths(void **state)
{
    (void)state;
    teng_cell *root = plain(), *block = plain();
    /* Filled before it has a parent, and put under a dotted name. */
    assert_non_null(teng_cell_param(block, "gain", TENG_DIMS(3), ones));
    assert_non_null(teng_cell_add(block, "proj", teng_nn_linear(4, 5, true, 0.02)));
    assert_ptr_equal(teng_cell_add(root, "layers.0", block), block);
    const tg_param_info *p;
    size_t n;
    assert_int_equal(tg_nn_params(root, &p, &n), TENG_OK);
    assert_int_equal(n, 3);
    assert_string_equal(p[0].name, "layers.0.gain");
    assert_string_equal(p[1].name, "layers.0.proj.weight");
    assert_string_equal(p[2].name, "layers.0.proj.bias");
    assert_int_equal(p[1].desc.dims[0], 5);
    assert_int_equal(p[1].desc.dims[1], 4);
    assert_int_equal(p[0].init.role, TENG_ROLE_NORM);
    assert_int_equal(p[1].init.role, TENG_ROLE_WEIGHT);
    assert_int_equal(p[2].init.role, TENG_ROLE_BIAS);
    assert_int_equal(teng_cell_numel(root), 3 + 20 + 5);
    /* Cells added later join; the list is made anew. */
    assert_non_null(teng_cell_add(block, "norm", teng_nn_layer_norm(7, 1e-5, true)));
    assert_int_equal(tg_nn_params(root, &p, &n), TENG_OK);
    assert_int_equal(n, 5);
    assert_string_equal(p[4].name, "layers.0.norm.bias");
    assert_int_equal(tg_nn_params(block, &p, &n), TENG_STATE);
    assert_fails("only the root of a tree is a model");
    teng_cell_destroy(&root);
    assert_null(root);
}

static void count_visit(void *user, teng_param *param, const char *full_name)
{
    char *list = user;
    strcat(strcat(list, full_name), param ? " " : "?");
}

static void visits_in_order(void **state)
{
    (void)state;
    char list[200] = "";
    teng_cell *root = plain();
    teng_cell *a = teng_cell_add(root, "a", teng_nn_conv1d(2, 3, true, 0.02));
    assert_non_null(teng_cell_add(root, "b", teng_nn_rms_norm(2, 1e-6)));
    teng_cell_visit(root, count_visit, list);
    assert_string_equal(list, "a.weight a.bias b.weight ");
    list[0] = 0;
    teng_cell_visit(a, count_visit, list); /* a part: names stay those from the root */
    assert_string_equal(list, "a.weight a.bias ");
    assert_int_equal(teng_param_desc(teng_nn_weight(a))->dims[1], 3);
    teng_cell_destroy(&root);
}

static void refuses_wrong_trees(void **state)
{
    (void)state;
    teng_cell *root = plain();
    assert_non_null(teng_cell_add(root, "a", plain()));
    assert_null(teng_cell_add(root, "a", plain()));
    assert_fails("the name \"a\" is taken");
    assert_null(teng_cell_param(root, "a", TENG_DIMS(1), ones));
    assert_fails("the name \"a\" is taken");
    const char *const bad[] = {"", ".a", "a.", "a..b", "a b", "é"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(teng_cell_add(root, bad[i], plain()));
        assert_fails("is not letters, digits");
    }
    assert_null(teng_cell_param(root, "w", TENG_DIMS(2, 0), ones));
    assert_fails("sizes start at 1");
    assert_null(teng_cell_param(root, "w", TENG_DIMS((int64_t)1 << 40, (int64_t)1 << 40), ones));
    assert_fails("too large");
    assert_null(teng_cell_add(root, "none", NULL));
    assert_fails("the cell of \"none\" is NULL");
    teng_cell *child = teng_cell_add(root, "b", plain());
    assert_null(teng_cell_add(root, "c", child)); /* stays where it is */
    assert_fails("already is a part of a plain");
    assert_null(teng_cell_add(child, "self", root));
    assert_fails("would become a part of itself");
    assert_null(teng_nn_weight(child));
    assert_fails("a plain has no weight");
    teng_cell_destroy(&child); /* the parent's alone: nothing happens */
    assert_non_null(child);
    /* One full name by two ways. */
    assert_non_null(teng_cell_param(child, "x.w", TENG_DIMS(1), ones));
    assert_non_null(teng_cell_param(teng_cell_add(child, "x", plain()), "w", TENG_DIMS(1), ones));
    const tg_param_info *p;
    size_t n;
    assert_int_equal(tg_nn_params(root, &p, &n), TENG_INVALID);
    assert_fails("two parameters have the full name \"b.x.w\"");
    teng_cell_destroy(&root);
}

static void nests_to_a_limit(void **state)
{
    (void)state;
    teng_cell *root = plain(), *at = root;
    while ((at = teng_cell_add(at, "in", plain()))) {
    }
    assert_fails("nested deeper than 256");
    teng_cell_destroy(&root);
}

/* ---- traces ---- */

typedef struct mlp {
    teng_cell *up, *down;
    double drop;
} mlp;

static int mlp_line; /* of the call of `down` */
static teng_tensor *mlp_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const mlp *m = teng_cell_data(self);
    (void)n_in;
    teng_tensor *h = teng_relu(teng_call(m->up, in[0]));
    h = teng_train_dropout(h, m->drop);
    mlp_line = __LINE__ + 1;
    return teng_train_dropout(teng_call(m->down, h), m->drop);
}

/* down takes `inner` features, up gives 6. */
static teng_cell *mlp_create(int64_t inner, double drop)
{
    teng_cell *cell = teng_cell_create("mlp", sizeof(mlp), mlp_forward);
    mlp *m = teng_cell_data(cell);
    m->up = teng_cell_add(cell, "up", teng_nn_linear(4, 6, true, 0.02));
    m->down = teng_cell_add(cell, "down", teng_nn_linear(inner, 4, false, 0.02));
    m->drop = drop;
    return cell;
}

static int outer_line;
static teng_tensor *outer_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    teng_cell **block = teng_cell_data(self);
    (void)n_in;
    outer_line = __LINE__ + 1;
    return teng_call(*block, in[0]);
}

static teng_cell *outer_create(teng_cell *block)
{
    teng_cell *root = teng_cell_create("outer", sizeof(teng_cell *), outer_forward);
    *(teng_cell **)teng_cell_data(root) = teng_cell_add(root, "blocks.0", block);
    return root;
}

static void nodes_carry_paths(void **state)
{
    (void)state;
    teng_tensor *x;
    tg_graph *g = graph_with(TENG_DIMS(2, 4), &x);
    teng_cell *root = outer_create(mlp_create(6, 0));
    teng_tensor *y = tg_nn_trace(root, g, &x, 1, true);
    assert_non_null(y);
    assert_int_equal(y->desc.dims[1], 4);
    assert_string_equal(g->nodes.data[0]->scope, "blocks.0.up");
    assert_string_equal(g->nodes.data[g->nodes.len - 1]->scope, "blocks.0.down");
    const teng_tensor *w = tg_graph_find(g, "blocks.0.down.weight");
    assert_non_null(w);
    assert_int_equal(w->kind, TG_VALUE_PARAM);
    assert_non_null(tg_graph_find(g, "blocks.0.up.bias"));
    assert_null(tg_graph_find(g, "rng")); /* nobody asked */
    /* The line of the user who called, innermost first; no line of the library's ready cells. */
    tg_strbuf where = {0}, expect = {0};
    tg_node_where(g->nodes.data[g->nodes.len - 1], &where);
    tg_strbuf_printf(&expect, ", %s:%d < %s:%d)", __FILE__, mlp_line, __FILE__, outer_line);
    if (!strstr(tg_strbuf_str(&where), tg_strbuf_str(&expect)))
        fail_msg("\"%s\" lacks \"%s\"", tg_strbuf_str(&where), tg_strbuf_str(&expect));
    tg_strbuf_free(&where);
    tg_strbuf_free(&expect);
    assert_int_equal(tg_graph_check(g), TENG_OK);
    /* Traced once more into the same graph: the same parameters. */
    const size_t values = g->values.len, nodes = g->nodes.len;
    assert_non_null(tg_nn_trace(root, g, &x, 1, true));
    assert_int_equal(g->values.len - values, g->nodes.len - nodes);
    teng_cell_destroy(&root);
    tg_graph_destroy(&g);
}

static void errors_say_where(void **state)
{
    (void)state;
    teng_tensor *x;
    tg_graph *g = graph_with(TENG_DIMS(2, 4), &x);
    teng_cell *root = outer_create(mlp_create(5, 0)); /* 5 is not 6 */
    assert_null(tg_nn_trace(root, g, &x, 1, true));
    char expect[300];
    snprintf(expect, sizeof expect, "%s:%d < %s:%d)", __FILE__, mlp_line, __FILE__, outer_line);
    if (strncmp(teng_error(), "blocks.0.down (", 15))
        fail_msg("\"%s\" does not start with the layer", teng_error());
    assert_fails(expect);
    teng_cell_destroy(&root);
    tg_graph_destroy(&g);
}

static teng_tensor *silent_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    (void)self, (void)in, (void)n_in;
    return NULL;
}

static teng_tensor *endless_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    (void)n_in;
    return teng_call(self, in[0]);
}

static void refuses_wrong_calls(void **state)
{
    (void)state;
    teng_tensor *x;
    tg_graph *g = graph_with(TENG_DIMS(2, 4), &x);
    teng_cell *linear = teng_nn_linear(4, 4, false, 0.02);
    assert_null(teng_call(linear, x));
    assert_fails("linear: called outside a model's forward function");
    assert_null(teng_value(teng_nn_weight(linear)));
    assert_fails("teng_value: called outside a model's forward function");
    assert_null(tg_nn_trace(linear, g, (teng_tensor *[]){x, x}, 2, false));
    assert_fails("model (linear): called with 2 operands, takes 1");
    assert_null(tg_nn_trace(linear, g, (teng_tensor *[]){NULL}, 1, false));
    assert_fails("operand 0 is NULL");
    assert_null(tg_nn_trace(NULL, g, &x, 1, false));
    assert_fails("the model is NULL");

    teng_cell *root = outer_create(teng_nn_linear(4, 4, false, 0.02));
    *(teng_cell **)teng_cell_data(root) = linear; /* of another tree */
    assert_null(tg_nn_trace(root, g, &x, 1, false));
    assert_fails("a linear is called that is not a part of this model");
    *(teng_cell **)teng_cell_data(root) = NULL;
    assert_null(tg_nn_trace(root, g, &x, 1, false));
    assert_fails("the cell is NULL");
    teng_cell_destroy(&root);
    teng_cell_destroy(&linear);

    root = teng_cell_create("silent", 0, silent_forward);
    assert_null(tg_nn_trace(root, g, &x, 1, false));
    assert_fails("returned NULL and no operator failed");
    teng_cell_destroy(&root);
    root = teng_cell_create("endless", 0, endless_forward);
    assert_null(tg_nn_trace(root, g, &x, 1, false));
    assert_fails("does a cell call itself?");
    teng_cell_destroy(&root);
    assert_null(tg_trace_current());
    tg_graph_destroy(&g);
}

static void name_of_an_input_is_refused(void **state)
{
    (void)state;
    tg_graph *g = tg_graph_create("test");
    const teng_desc desc = {TENG_F32, 2, {2, 4}};
    teng_tensor *x = tg_graph_input(g, "weight", &desc);
    teng_cell *root = teng_nn_linear(4, 4, false, 0.02);
    assert_null(tg_nn_trace(root, g, &x, 1, false));
    assert_fails("\"weight\" has the name of another value");
    teng_cell_destroy(&root);
    tg_graph_destroy(&g);
}

/* The stream attributes of the dropouts of one trace. */
static int streams_of(const tg_graph *g, int64_t *streams)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const tg_node *node = g->nodes.data[i];
        if (strcmp(node->op->name, "dropout")) continue;
        for (const teng_attr_field *f = node->op->attrs; f->name; f++)
            if (strcmp(f->name, "stream") == 0)
                streams[n++] = *(int64_t *)(void *)((char *)node->attr + f->offset);
    }
    return n;
}

static void dropout_has_streams(void **state)
{
    (void)state;
    teng_tensor *x;
    teng_cell *root = outer_create(mlp_create(6, 0.5));
    int64_t streams[8];
    for (int training = 0; training < 2; training++) {
        tg_graph *g = graph_with(TENG_DIMS(2, 4), &x);
        assert_non_null(tg_nn_trace(root, g, &x, 1, training));
        const teng_tensor *rng = tg_graph_find(g, "rng");
        assert_int_equal(streams_of(g, streams), training ? 2 : 0);
        if (training) {
            assert_non_null(rng);
            assert_int_equal(rng->kind, TG_VALUE_INPUT);
            assert_int_equal(rng->desc.dtype, TENG_U64);
            assert_int_equal(rng->desc.dims[0], 2);
            assert_int_equal(streams[0], 0);
            assert_int_equal(streams[1], 1);
        } else {
            assert_null(rng);
        }
        tg_graph_destroy(&g);
    }
    teng_cell_destroy(&root);
    assert_null(teng_train_dropout(NULL, 1.5));
    assert_fails("dropout with p = 1.5: it must be in [0, 1)");
    assert_false(teng_is_training());
}

/* ---- initial values ---- */

static void mean_and_deviation(const float *v, int64_t n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean);
}

static void initial_values(void **state)
{
    (void)state;
    enum { N = 40000 };
    float *a = tg_alloc(N * sizeof *a), *b = tg_alloc(N * sizeof *b);
    tg_param_info p = {"a.weight", {TENG_F32, 2, {200, 200}}, {TENG_INIT_NORMAL, 0, 0.02, TENG_ROLE_WEIGHT}};
    double mean, deviation;
    tg_nn_init_param(&p, 7, a);
    mean_and_deviation(a, N, &mean, &deviation);
    assert_true(fabs(mean) < 4 * 0.02 / 200);
    assert_true(fabs(deviation - 0.02) < 0.0004);
    tg_nn_init_param(&p, 7, b); /* the same again */
    assert_memory_equal(a, b, N * sizeof *a);
    tg_nn_init_param(&p, 8, b); /* another seed */
    assert_true(memcmp(a, b, N * sizeof *a));
    p.name = "b.weight"; /* another name */
    tg_nn_init_param(&p, 7, b);
    assert_true(memcmp(a, b, N * sizeof *a));
    p.init = (teng_init){TENG_INIT_NORMAL, 3, 0.5, TENG_ROLE_WEIGHT};
    tg_nn_init_param(&p, 7, b);
    mean_and_deviation(b, N, &mean, &deviation);
    assert_true(fabs(mean - 3) < 4 * 0.5 / 200);
    p.init = (teng_init){TENG_INIT_UNIFORM, -1, 3, TENG_ROLE_WEIGHT};
    tg_nn_init_param(&p, 7, b);
    mean_and_deviation(b, N, &mean, &deviation);
    assert_true(fabs(mean - 1) < 0.03);
    assert_true(fabs(deviation - 4 / sqrt(12)) < 0.02);
    for (int i = 0; i < N; i++)
        assert_true(b[i] >= -1 && b[i] < 3);
    p.init = (teng_init){TENG_INIT_CONST, 1, 0, TENG_ROLE_NORM};
    tg_nn_init_param(&p, 7, b);
    for (int i = 0; i < N; i++)
        assert_true(b[i] == 1);
    tg_free(a);
    tg_free(b);
}

/* Any allocation may fail: an error, no leak, no crash. */
static void survives_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        assert_in_range(n, 1, 200);
        tg_alloc_fail_at(n);
        teng_cell *root = plain();
        teng_cell *block = teng_cell_add(root, "block", plain());
        teng_cell *linear = teng_cell_add(block, "linear", teng_nn_linear(4, 4, true, 0.02));
        const tg_param_info *p;
        size_t count;
        const bool ok = linear && tg_nn_params(root, &p, &count) == TENG_OK;
        tg_alloc_fail_at(0);
        if (!ok) assert_int_equal(teng_error_status(), TENG_MEMORY);
        teng_error_clear();
        teng_cell_destroy(&root);
        if (ok) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_paths),     cmocka_unit_test(visits_in_order),
        cmocka_unit_test(refuses_wrong_trees), cmocka_unit_test(nests_to_a_limit),
        cmocka_unit_test(nodes_carry_paths),   cmocka_unit_test(errors_say_where),
        cmocka_unit_test(refuses_wrong_calls), cmocka_unit_test(name_of_an_input_is_refused),
        cmocka_unit_test(dropout_has_streams), cmocka_unit_test(initial_values),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
