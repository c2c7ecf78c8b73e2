/*
 * Building graphs through the operators' calls, the invariants that tg_graph_check keeps, sweeping, and what
 * errors say: layer path, operator, the user's file and line. Text: test_graph_text.c.
 */
#include "base/fail.h"
#include "graph/graph.h"
#include "op/op_list.h"
#include "tensor/desc.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static const teng_desc mat = {TENG_F32, 2, {3, 4}}, ids = {TENG_I32, 1, {3}};

static tg_graph *graph(void)
{
    tg_graph *g = tg_graph_create("g");
    assert_non_null(g);
    return g;
}

/* The pending error holds every one of the texts. */
static void assert_error(teng_status status, const char *const *texts)
{
    assert_int_equal(teng_error_status(), status);
    for (; *texts; texts++)
        if (!strstr(teng_error(), *texts)) fail_msg("\"%s\" is not in: %s", *texts, teng_error());
    teng_error_clear();
}
#define ASSERT_ERROR(status, ...) assert_error(status, (const char *const[]){__VA_ARGS__, NULL})

static void named_values(void **state)
{
    (void)state;
    tg_graph *g = graph();
    teng_tensor *x = tg_graph_input(g, "x", &mat), *w = tg_graph_param(g, "w", &mat);
    assert_ptr_equal(tg_graph_find(g, "x"), x);
    assert_null(tg_graph_find(g, "y"));
    assert_true(w->requires_grad);
    assert_false(x->requires_grad);
    assert_null(tg_graph_state(g, "x", &mat));
    ASSERT_ERROR(TENG_INVALID, "the name \"x\" is used by two values");
    static const char *const bad[] = {"", "a b", "a,b", "a(b", "a\nb"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(tg_graph_input(g, bad[i], &mat));
        ASSERT_ERROR(TENG_INVALID, "cannot be a name");
    }
    assert_null(tg_graph_input(g, "huge", &(teng_desc){TENG_F32, 2, {1 << 30, 1 << 30}}));
    ASSERT_ERROR(TENG_INVALID, "huge is f32[1073741824,1073741824]", "2^50 bytes");
    assert_null(tg_graph_input(g, "negative", &(teng_desc){TENG_F32, 1, {-1}}));
    ASSERT_ERROR(TENG_INVALID, "dimension 0 is -1");
    assert_int_equal(tg_graph_output(g, "out", x), TENG_OK);
    assert_int_equal(tg_graph_output(g, "out", w), TENG_INVALID);
    ASSERT_ERROR(TENG_INVALID, "two outputs named out");
    assert_int_equal(tg_graph_output(g, "other", NULL), TENG_INVALID);
    ASSERT_ERROR(TENG_INVALID, "output other has no value");
    assert_ptr_equal(tg_graph_output_find(g, "out"), x);
    tg_graph_destroy(&g);
    assert_null(g);
}

static void gradients_are_wanted_downstream_of_parameters(void **state)
{
    (void)state;
    tg_graph *g = graph();
    teng_tensor *x = tg_graph_input(g, "x", &mat), *w = tg_graph_param(g, "w", &mat);
    assert_false(teng_exp(x)->requires_grad);
    assert_true(teng_exp(teng_add(x, w))->requires_grad);
    tg_graph_destroy(&g);
}

/* A model of two layers whose inner one is given a wrong operand. */
static teng_tensor *inner(teng_tensor *x, teng_tensor *w, int *line)
{
    const tg_trace_mark mark = tg_trace_enter("mlp", (teng_src){"model.c", 20});
    *line = __LINE__ + 1;
    teng_tensor *y = teng_matmul(x, w, false, false);
    tg_trace_leave(mark);
    return y;
}

static void errors_name_layer_operator_and_lines(void **state)
{
    (void)state;
    tg_graph *g = graph();
    tg_trace trace;
    int line;
    char at[64];
    teng_tensor *x = tg_graph_input(g, "x", &mat), *w = tg_graph_param(g, "w", &mat);
    tg_trace_begin(&trace, g);
    const tg_trace_mark mark = tg_trace_enter("layers.1", (teng_src){"model.c", 10});
    teng_tensor *y = inner(x, w, &line);       /* [3,4] · [3,4] */
    teng_tensor *z = teng_add(teng_exp(y), x); /* nothing is appended, the first error stays */
    tg_trace_leave(mark);
    tg_trace_end(&trace);
    assert_null(y);
    assert_null(z);
    assert_int_equal(g->nodes.len, 0);
    snprintf(at, sizeof at, "test_graph.c:%d < model.c:20 < model.c:10)", line);
    ASSERT_ERROR(TENG_INVALID, "layers.1.mlp (matmul, ", at, "f32[3,4]");
    tg_graph_destroy(&g);
}

static void wrong_operands(void **state)
{
    (void)state;
    tg_graph *g = graph(), *other = graph();
    teng_tensor *x = tg_graph_input(g, "x", &mat), *y = tg_graph_input(other, "y", &mat);
    assert_null(teng_add(x, NULL));
    ASSERT_ERROR(TENG_INVALID, "add: operand 1 is NULL", "test_graph.c:");
    assert_null(teng_add(x, y));
    ASSERT_ERROR(TENG_INVALID, "add: operands belong to different graphs", "test_graph.c:");
    assert_null(teng_fill(TENG_F32, TENG_DIMS(2), 1));
    ASSERT_ERROR(TENG_STATE, "fill: called outside a model's forward function", "test_graph.c:");
    assert_null(teng_apply(TENG_HERE, &tg_op_add, NULL, 1, &x, NULL));
    ASSERT_ERROR(TENG_INVALID, "add takes 2 inputs, not 1");
    assert_null(tg_op_find("matmull"));
    ASSERT_ERROR(TENG_INVALID, "no operator is named \"matmull\"; did you mean \"matmul\"?");
    tg_graph_destroy(&g);
    tg_graph_destroy(&other);
}

static void traces_nest(void **state)
{
    (void)state;
    tg_graph *g = graph(), *h = graph();
    tg_trace outer, nested;
    assert_null(tg_trace_current());
    tg_trace_begin(&outer, g);
    const tg_trace_mark a = tg_trace_enter("a", (teng_src){0});
    tg_trace_begin(&nested, h);
    assert_string_equal(tg_trace_current()->scope, "");
    teng_tensor *one = teng_fill(TENG_F32, TENG_DIMS(2), 1);
    assert_ptr_equal(one->graph, h);
    tg_trace_end(&nested);
    const tg_trace_mark b = tg_trace_enter("b", (teng_src){"f.c", 3});
    teng_tensor *two = teng_fill(TENG_F32, TENG_DIMS(2), 1);
    assert_string_equal(two->node->scope, "a.b");
    tg_strbuf where = {0};
    tg_node_where(two->node, &where);
    assert_non_null(strstr(tg_strbuf_str(&where), "a.b (fill, "));
    assert_non_null(strstr(tg_strbuf_str(&where), " < f.c:3)"));
    tg_strbuf_free(&where);
    tg_trace_leave(b);
    assert_string_equal(tg_trace_current()->scope, "a");
    tg_trace_leave(a);
    assert_string_equal(tg_trace_current()->scope, "");
    tg_trace_end(&outer);
    assert_null(tg_trace_current());
    tg_graph_destroy(&g);
    tg_graph_destroy(&h);
}

static void sweep_drops_and_redirects(void **state)
{
    (void)state;
    tg_graph *g = graph();
    teng_tensor *x = tg_graph_input(g, "x", &mat);
    teng_tensor *a = teng_exp(x), *b = teng_exp(x), *c = teng_add(a, b);
    tg_graph_output(g, "c", c);
    tg_graph_output(g, "b", b);
    b->replaced = a;
    b->node->dead = true;
    assert_int_equal(tg_graph_sweep(g), 1);
    assert_int_equal(g->nodes.len, 2);
    assert_ptr_equal(c->node->in[1], a);
    assert_ptr_equal(tg_graph_output_find(g, "b"), a);
    assert_int_equal(tg_graph_check(g), TENG_OK);
    assert_int_equal(tg_graph_sweep(g), 0);
    tg_graph_destroy(&g);
}

/* A good graph of three nodes, broken in one way a time. */
static tg_graph *three(teng_tensor **a, teng_tensor **b, teng_tensor **c)
{
    tg_graph *g = graph();
    teng_tensor *x = tg_graph_input(g, "x", &mat);
    *a = teng_exp(x);
    *b = teng_tanh(*a);
    *c = teng_sum(*b, (teng_dims){0}, false);
    tg_graph_output(g, "c", *c);
    assert_int_equal(tg_graph_check(g), TENG_OK);
    return g;
}

static teng_tensor *sum_of(tg_graph *g, teng_tensor *x, tg_phase phase)
{
    tg_node *node = tg_graph_append(g, &tg_op_sum_squares, NULL, 1, &x, "", NULL, phase);
    assert_non_null(node);
    return node->out[0];
}

/* Behind their makers, in order, never into an earlier phase. */
static void hoisted_nodes_stand_behind_their_makers(void **state)
{
    (void)state;
    tg_graph *g = graph();
    teng_tensor *x = tg_graph_input(g, "x", &mat);
    teng_tensor *a = sum_of(g, x, TG_FORWARD), *b = sum_of(g, a, TG_FORWARD);
    teng_tensor *c = sum_of(g, b, TG_BACKWARD), *d = sum_of(g, c, TG_BACKWARD);
    const size_t first = g->nodes.len;
    teng_tensor *of_d = sum_of(g, d, TG_BACKWARD), *of_c = sum_of(g, c, TG_BACKWARD);
    teng_tensor *of_a = sum_of(g, a, TG_BACKWARD), *of_x = sum_of(g, x, TG_BACKWARD);
    teng_tensor *c_too = sum_of(g, c, TG_BACKWARD);
    assert_int_equal(tg_graph_hoist(g, first), TENG_OK);
    assert_int_equal(tg_graph_check(g), TENG_OK);
    const teng_tensor *const want[] = {a, b, of_a, of_x, c, of_c, c_too, d, of_d};
    assert_int_equal(g->nodes.len, sizeof want / sizeof *want);
    for (size_t k = 0; k < g->nodes.len; k++)
        assert_ptr_equal(g->nodes.data[k]->out[0], want[k]);
    assert_int_equal(tg_graph_hoist(g, g->nodes.len), TENG_OK);
    tg_graph_destroy(&g);
    g = graph();
    assert_int_equal(tg_graph_hoist(g, 0), TENG_OK);
    tg_graph_destroy(&g);
}

static void check_finds_broken_graphs(void **state)
{
    (void)state;
    teng_tensor *a, *b, *c;
    tg_graph *g = three(&a, &b, &c), *other = graph();
    tg_node *first = g->nodes.data[0];
    g->nodes.data[0] = g->nodes.data[1];
    g->nodes.data[1] = first;
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    ASSERT_ERROR(TENG_STATE, "node 1 (tanh) uses value %1 before it is computed");
    tg_graph_destroy(&g);

    g = three(&a, &b, &c);
    b->desc.dims[0] = 2;
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    ASSERT_ERROR(TENG_STATE, "output 0 of node 1 (tanh) is not of the shape its rule gives");
    tg_graph_destroy(&g);

    g = three(&a, &b, &c);
    b->node->n_out = 0;
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    ASSERT_ERROR(TENG_STATE, "node 1 (tanh) has 0 outputs, its rule gives 1");
    tg_graph_destroy(&g);

    g = three(&a, &b, &c);
    a->node->phase = TG_UPDATE;
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    ASSERT_ERROR(TENG_STATE, "node 1 (tanh) stands after a later phase");
    tg_graph_destroy(&g);

    g = three(&a, &b, &c);
    g->nodes.len = 2;
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    ASSERT_ERROR(TENG_STATE, "output c is never computed");
    tg_graph_destroy(&g);

    g = three(&a, &b, &c);
    b->node->in[0] = tg_graph_input(other, "y", &mat);
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    ASSERT_ERROR(TENG_STATE, "node 1 (tanh) uses value");
    tg_graph_destroy(&g);

    g = three(&a, &b, &c);
    a->replaced = b; /* a rewrite that was not swept */
    assert_int_equal(tg_graph_check(g), TENG_STATE);
    teng_error_clear();
    tg_graph_destroy(&g);
    tg_graph_destroy(&other);
}

static void memory_runs_out(void **state)
{
    (void)state;
    bool whole = false;
    for (uint64_t n = 1; n < 200 && !whole; n++) {
        tg_alloc_fail_at(n);
        tg_graph *g = tg_graph_create("g");
        teng_tensor *t = g ? tg_graph_param(g, "table", &mat) : NULL;
        teng_tensor *i = g ? tg_graph_input(g, "ids", &ids) : NULL;
        teng_tensor *y = t && i ? teng_exp(teng_embedding(t, i)) : NULL;
        whole = y && tg_graph_output(g, "y", y) == TENG_OK && tg_graph_check(g) == TENG_OK;
        tg_alloc_fail_at(0);
        if (!whole) assert_int_equal(teng_error_status(), TENG_MEMORY);
        teng_error_clear();
        tg_graph_destroy(&g);
    }
    assert_true(whole);
}

int main(void)
{
    tg_op_register_builtin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_values),
        cmocka_unit_test(gradients_are_wanted_downstream_of_parameters),
        cmocka_unit_test(errors_name_layer_operator_and_lines),
        cmocka_unit_test(wrong_operands),
        cmocka_unit_test(traces_nest),
        cmocka_unit_test(sweep_drops_and_redirects),
        cmocka_unit_test(hoisted_nodes_stand_behind_their_makers),
        cmocka_unit_test(check_finds_broken_graphs),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
