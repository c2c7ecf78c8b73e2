/*
 * Graphs as text: what is printed parses to a graph that prints the same, every kind of line and attribute;
 * what is refused names the line; Graphviz. The step graphs of real models: test_step_text.c.
 */
#include "op_harness.h"

#include "base/fail.h"
#include "base/file.h"
#include "graph/graph.h"
#include "op/op_list.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sample =
    "graph step\n"
    "input tokens i32[2,3]\n"
    "param model.table f32[5,4]\n"
    "state grad.model.table f32[5,4]\n"
    "input keep f32[]\n"
    "phase forward\n"
    "%0 = embedding($model.table, $tokens) {begin=0, total=0} : f32[2,3,4] @ model.embed\n"
    "%1 = transpose(%0) {perm=[0,2,1]} : f32[2,4,3] @ model\n"
    "%2 = affine(%1) {factor=0.1, offset=-1e-06} : f32[2,4,3]\n"
    "%3 = cast(%2) {to=bf16} : bf16[2,4,3]\n"
    "%4, %5 = split(%3) {axis=1, sizes=[1,3]} : bf16[2,1,3], bf16[2,3,3]\n"
    "%6 = concat(%5, %4) {axis=1} : bf16[2,4,3]\n"
    "%7 = cast(%6) {to=f32} : f32[2,4,3]\n"
    "%8 = sum(%7) {axes=[], keep=0} : f32[]\n"
    "phase backward\n"
    "%9 = fill() {dtype=f32, dims=[5,4], value=0.30000000000000004} : f32[5,4]\n"
    "%10 = accumulate($grad.model.table, %9, $keep) {} : f32[5,4] @ optimizer\n"
    "phase update\n"
    "%11 = sum_squares(%10) {} : f32[] @ optimizer\n"
    "output loss %8\n"
    "output norm %11\n"
    "output table $model.table\n";

static void assert_round_trip(const char *text, const char *want)
{
    tg_graph *g = NULL;
    if (tg_graph_parse("t", text, &g) != TENG_OK) fail_msg("%s", teng_error());
    assert_int_equal(tg_graph_check(g), TENG_OK);
    tg_strbuf out = {0};
    tg_graph_print(g, &out);
    assert_string_equal(tg_strbuf_str(&out), want);
    tg_strbuf_free(&out);
    tg_graph_destroy(&g);
}

static void prints_what_it_parsed(void **state)
{
    (void)state;
    assert_round_trip(sample, sample);
    assert_round_trip("# a remark\n\n  graph   g \n\n input x  f32[]\n", "graph g\ninput x f32[]\n");
}

static void parsed_values_are_what_was_written(void **state)
{
    (void)state;
    tg_graph *g = NULL;
    assert_int_equal(tg_graph_parse("t", sample, &g), TENG_OK);
    assert_string_equal(g->name, "step");
    assert_int_equal(g->nodes.len, 11);
    assert_int_equal(tg_graph_find(g, "tokens")->kind, TG_VALUE_INPUT);
    assert_int_equal(tg_graph_find(g, "model.table")->kind, TG_VALUE_PARAM);
    assert_int_equal(tg_graph_find(g, "grad.model.table")->kind, TG_VALUE_STATE);
    assert_string_equal(g->nodes.data[0]->scope, "model.embed");
    assert_int_equal(g->nodes.data[9]->phase, TG_BACKWARD);
    assert_int_equal(g->nodes.data[10]->phase, TG_UPDATE);
    for (const teng_attr_field *f = g->nodes.data[8]->op->attrs; f->name; f++)
        if (strcmp(f->name, "value") == 0)
            assert_true(*(const double *)((const char *)g->nodes.data[8]->attr + f->offset) == 0.1 + 0.2);
    tg_graph_destroy(&g);
}

typedef struct refused {
    const char *text, *message;
} refused;

#define HEAD "graph g\ninput x f32[2,3]\n"
static const refused cases[] = {
    {"", "t: empty, \"graph NAME\" is expected"},
    {"\n# nothing\n", "t: empty"},
    {"input x f32[]\n", "t:1: the first line must be \"graph NAME\""},
    {"graph\n", "t:1: the first line must be"},
    {"graph a b\n", "t:1: unexpected text: \"b\""},
    {HEAD "input x f32[2]\n", "t:3: graph g: the name \"x\" is used by two values"},
    {HEAD "input y f33[2]\n", "t:3: \"f33[2]\": unknown element type \"f33\""},
    {HEAD "input y f32[2\n", "t:3: \"f32[2\""},
    {HEAD "input y f32[2] 3\n", "t:3: unexpected text: \"3\""},
    {HEAD "input y f32[99999999999,99999999999]\n", "t:3: "},
    {HEAD "input y f32[1125899906842624]\n", "t:3: y is f32[1125899906842624]: more than the 2^50 bytes"},
    {HEAD "\n\n%1 = exp($x) {} : f32[2,3]\n", "t:5: value %0 is expected here"},
    {HEAD "%0 exp($x) {} : f32[2,3]\n", "t:3: '=' is expected"},
    {HEAD "%0 = expp($x) {} : f32[2,3]\n", "t:3: no operator is named \"expp\"; did you mean \"exp\"?"},
    {HEAD "%0 = exp $x {} : f32[2,3]\n", "t:3: '(' is expected after the operator"},
    {HEAD "%0 = exp($x {} : f32[2,3]\n", "t:3: ')' is expected after the operands"},
    {HEAD "%0 = exp(x) {} : f32[2,3]\n", "t:3: a value (%number or $name) is expected"},
    {HEAD "%0 = exp($y) {} : f32[2,3]\n", "t:3: no input, param or state is named y"},
    {HEAD "%0 = exp(%0) {} : f32[2,3]\n", "t:3: value %0 is not computed before this line"},
    {HEAD "%0 = exp(%99999999999999999999) {} : f32[2,3]\n", "is not computed before this line"},
    {HEAD "%0 = exp($x, $x) {} : f32[2,3]\n", "t:3: model (exp): exp takes 1 inputs, not 2"},
    {HEAD "%0 = exp($x) : f32[2,3]\n", "t:3: exp: attributes must start with '{'"},
    {HEAD "%0 = exp($x) {axis=1} : f32[2,3]\n", "t:3: exp has no attribute \"axis\""},
    {HEAD "%0 = affine($x) {factor=a} : f32[2,3]\n", "t:3: affine: the value of factor cannot be read"},
    {HEAD "%0 = affine($x) {factor=1 offset=1} : f32[2,3]\n",
     "t:3: affine: ',' or '}' expected after factor"},
    {HEAD "%0 = cast($x) {to=f99} : f32[2,3]\n", "t:3: cast: the value of to cannot be read"},
    {HEAD "%0 = cast($x) {to=77} : f32[2,3]\n", "t:3: cast: the value of to cannot be read"},
    {HEAD "%0 = transpose($x) {perm=[1,0} : f32[3,2]\n", "t:3: transpose: the value of perm cannot be read"},
    {HEAD "%0 = transpose($x) {perm=[1,0,0,0,0,0,0,0,0]} : f32[3,2]\n", "t:3: transpose: the value of perm"},
    {HEAD "%0 = reshape($x) {dims=[2147483648,2147483648]} : f32[2,3]\n", "t:3: reshape: the value of dims"},
    {HEAD "%0 = exp($x) {} f32[2,3]\n", "t:3: ':' and the output shapes are expected"},
    {HEAD "%0 = exp($x) {} : f32[3,2]\n", "t:3: exp: output 0 is not of the written shape"},
    {HEAD "%0 = exp($x) {} : f32[2,3], f32[2,3]\n", "t:3: exp has 1 outputs, the line names 1"},
    {HEAD "%0, %1 = exp($x) {} : f32[2,3]\n", "t:3: exp has 1 outputs, the line names 2"},
    {HEAD "%0 = exp($x) {} : f32[2,3] @ a b\n", "t:3: unexpected text: \"b\""},
    {HEAD "phase sideways\n", "t:3: phase must be forward, backward or update"},
    {HEAD "phase forwards\n", "t:3: unexpected text: \"s\""},
    {HEAD "phase update\nphase forward\n", "t:4: phase forward stands after a later one"},
    {HEAD "output y %0\n", "t:3: value %0 is not computed before this line"},
    {HEAD "output y $x junk\n", "t:3: unexpected text: \"junk\""},
    {HEAD "output y $x\noutput y $x\n", "t:4: graph g: two outputs named y"},
    {HEAD "%0 = matmul($x, $x) {} : f32[2,2] @ layers.3.mlp\n", "t:3: layers.3.mlp (matmul): "},
    {HEAD "nonsense\n", "t:3: value %0 is expected here"},
};

static void refusals_name_the_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_graph *g = NULL;
        assert_int_not_equal(tg_graph_parse("t", cases[i].text, &g), TENG_OK);
        assert_null(g);
        if (!strstr(teng_error(), cases[i].message))
            fail_msg("case %zu: \"%s\" is not in: %s", i, cases[i].message, teng_error());
        teng_error_clear();
    }
}

static void graphviz(void **state)
{
    (void)state;
    tg_graph *g = NULL;
    assert_int_equal(tg_graph_parse("t", sample, &g), TENG_OK);
    tg_strbuf out = {0};
    tg_graph_dot(g, &out);
    const char *text = tg_strbuf_str(&out);
    assert_memory_equal(text, "digraph \"step\" {\n", 17);
    assert_non_null(strstr(text, "label=\"embedding\\nmodel.embed\""));
    assert_non_null(strstr(text, "label=\"model.table\\nf32[5,4]\", shape=ellipse"));
    assert_string_equal(text + strlen(text) - 2, "}\n");
    int arrows = 0;
    for (const char *p = text; (p = strstr(p, "->")); p++)
        arrows++;
    assert_int_equal(arrows, 2 + 1 + 1 + 1 + 1 + 2 + 1 + 1 + 0 + 3 + 1); /* operands of the nodes */
    tg_strbuf_free(&out);
    tg_graph_destroy(&g);
}

/* Every case of every operator, with its attributes, as a graph of one node. */
static tg_graph *graph_of_case(const teng_op_spec *op, const teng_op_case *c)
{
    tg_graph *g = tg_graph_create(op->name);
    teng_tensor *in[TENG_CASE_MAX_IN], *out[TENG_MAX_OUT];
    for (int i = 0; i < c->n_in; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        in[i] = tg_graph_input(g, name, &c->in[i].desc);
    }
    tg_trace trace;
    tg_trace_begin(&trace, g);
    if (!teng_apply((teng_src){0}, op, c->attr, c->n_in, in, out)) fail_msg("%s: %s", c->label, teng_error());
    tg_trace_end(&trace);
    assert_int_equal(tg_graph_output(g, "y", out[g->nodes.data[0]->n_out - 1]), TENG_OK);
    return g;
}

/* With TENG_UPDATE_CORPUS=FOLDER the first case of each operator becomes a seed for the fuzz target. */
static void keep_as_seed(const char *op, const char *text)
{
    const char *folder = getenv("TENG_UPDATE_CORPUS");
    char path[512];
    if (!folder) return;
    snprintf(path, sizeof path, "%s/op_%s.txt", folder, op);
    assert_int_equal(tg_file_write(path, text, strlen(text)), TENG_OK);
}

static void every_operator_round_trips(void **state)
{
    (void)state;
    for (int i = 0; i < tg_op_count(); i++) {
        const teng_op_spec *op = tg_op_at(i);
        const teng_op_cases *of_op = tg_op_cases_find(op->name);
        for (int k = 0; k < of_op->n; k++) {
            tg_graph *g = graph_of_case(op, &of_op->list[k]);
            tg_strbuf out = {0};
            tg_graph_print(g, &out);
            assert_round_trip(tg_strbuf_str(&out), tg_strbuf_str(&out));
            tg_graph *back = NULL;
            assert_int_equal(tg_graph_parse("t", tg_strbuf_str(&out), &back), TENG_OK);
            assert_true(tg_attr_equal(op, g->nodes.data[0]->attr, back->nodes.data[0]->attr));
            if (k == 0) keep_as_seed(op->name, tg_strbuf_str(&out));
            tg_strbuf_free(&out);
            tg_graph_destroy(&g);
            tg_graph_destroy(&back);
        }
    }
}

static void attributes_read_back(void **state)
{
    (void)state;
    static const double reals[] = {0, -0.0, 1.0 / 3, 5e-324, 1.7976931348623157e308, 1e-6, 123456789.0};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const double attr[2] = {reals[i], -reals[i]};
        double back[2];
        const char *end;
        tg_strbuf out = {0};
        tg_attr_print(&tg_op_affine, attr, &out);
        assert_int_equal(tg_attr_parse(&tg_op_affine, tg_strbuf_str(&out), &end, back), TENG_OK);
        assert_int_equal(*end, '\0');
        assert_true(tg_attr_equal(&tg_op_affine, attr, back));
        tg_strbuf_free(&out);
    }
    assert_false(tg_attr_equal(&tg_op_affine, (double[]){1, 2}, (double[]){1, 3}));
}

static void memory_runs_out(void **state)
{
    (void)state;
    tg_graph *g = NULL;
    uint64_t n = 1;
    for (; n < 300 && !g; n++) {
        tg_alloc_fail_at(n);
        if (tg_graph_parse("t", sample, &g) != TENG_OK) {
            assert_int_equal(teng_error_status(), TENG_MEMORY);
            assert_null(g);
        }
        tg_alloc_fail_at(0);
        teng_error_clear();
    }
    assert_non_null(g);
    assert_true(n > 10);
    tg_graph_destroy(&g);
}

int main(void)
{
    tg_op_register_builtin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_what_it_parsed),
        cmocka_unit_test(parsed_values_are_what_was_written),
        cmocka_unit_test(refusals_name_the_line),
        cmocka_unit_test(graphviz),
        cmocka_unit_test(every_operator_round_trips),
        cmocka_unit_test(attributes_read_back),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
