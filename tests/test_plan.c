/*
 * Decisions of the planner on small graphs written as text: who shares whose buffer, lifetimes, workspaces,
 * what is refused, the budget; and a listing kept as a file (TENG_UPDATE_GOLDEN=1 rewrites it). Random
 * graphs: test_plan_random.c.
 */
#include "base/fail.h"
#include "base/file.h"
#include "device/cpu_isa.h"
#include "op/op_list.h"
#include "plan/plan.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static tg_plan_options options(void)
{
    return (tg_plan_options){.device = "cpu", .isa = tg_cpu_isa_current()};
}

static teng_status try_plan(const char *text, const tg_plan_options *o, tg_plan **out)
{
    tg_graph *g = NULL;
    *out = NULL;
    if (tg_graph_parse("t", text, &g) != TENG_OK) fail_msg("%s", teng_error());
    return tg_plan_create(g, o, out);
}

static tg_plan *plan_of(const char *text)
{
    const tg_plan_options o = options();
    tg_plan *plan;
    if (try_plan(text, &o, &plan) != TENG_OK) fail_msg("%s", teng_error());
    return plan;
}

static void assert_refused(const char *text, const tg_plan_options *o, teng_status status,
                           const char *message)
{
    tg_plan *plan;
    assert_int_equal(try_plan(text, o, &plan), status);
    assert_null(plan);
    if (!strstr(teng_error(), message)) fail_msg("\"%s\" is not in: %s", message, teng_error());
    teng_error_clear();
}

/* Buffer of output o of step k, -1 when it is in the store. */
static int buffer_of(const tg_plan *plan, size_t k, int o)
{
    const tg_plan_value *v = &plan->values[plan->steps.data[k].node->out[o]->id];
    return v->where == TG_AT_BLOCK ? v->buffer : -1;
}

#define XY "graph g\ninput x f32[4,8]\ninput y f32[4,8]\nparam w f32[4,8]\n"

static void dying_operands_are_taken_over(void **state)
{
    (void)state;
    tg_plan *p =
        plan_of(XY "%0 = add($x, $w) {} : f32[4,8]\n" /* inputs and parameters are never taken over */
                   "%1 = exp(%0) {} : f32[4,8]\n"     /* %0 dies here */
                   "%2 = mul(%1, %1) {} : f32[4,8]\n" /* both operands are the one buffer */
                   "%3 = tanh(%2) {} : f32[4,8]\n"    /* %2 is read again below */
                   "%4 = add(%3, %2) {} : f32[4,8]\n" /* one of them is taken over */
                   "%5 = exp(%4) {} : f32[4,8]\n"     /* an output has a buffer of its own */
                   "output z %5\n");
    static const int want[] = {-1, 0, 0, -1, 0, -1};
    for (size_t k = 0; k < 6; k++)
        assert_int_equal(p->steps.data[k].inplace_of, want[k]);
    assert_int_equal(buffer_of(p, 2, 0), buffer_of(p, 0, 0));
    assert_int_not_equal(buffer_of(p, 3, 0), buffer_of(p, 2, 0));
    assert_int_not_equal(buffer_of(p, 5, 0), buffer_of(p, 4, 0));
    tg_plan_destroy(&p);
    tg_plan_options o = options();
    o.no_inplace = true;
    assert_int_equal(
        try_plan(XY "%0 = exp($x) {} : f32[4,8]\n%1 = exp(%0) {} : f32[4,8]\noutput z %1\n", &o, &p),
        TENG_OK);
    assert_int_equal(p->steps.data[1].inplace_of, -1);
    assert_int_not_equal(buffer_of(p, 0, 0), buffer_of(p, 1, 0));
    tg_plan_destroy(&p);
}

static void other_shapes_are_not_taken_over(void **state)
{
    (void)state;
    tg_plan *p = plan_of("graph g\ninput x f32[4,1]\ninput y f32[4,4]\n"
                         "%0 = exp($x) {} : f32[4,1]\n"
                         "%1 = reshape(%0) {dims=[1,4]} : f32[1,4]\n"
                         "%2 = add(%0, %1) {} : f32[4,4]\n" /* broadcast: more bytes than the operands */
                         "%3 = exp($y) {} : f32[4,4]\n"
                         "%4 = transpose(%3) {perm=[1,0]} : f32[4,4]\n" /* moves elements */
                         "%5 = reshape(%3) {dims=[16]} : f32[16]\n"
                         "output a %2\noutput b %4\noutput c %5\n");
    for (size_t k = 0; k < 6; k++)
        assert_int_equal(p->steps.data[k].inplace_of, -1);
    assert_int_equal(buffer_of(p, 1, 0), buffer_of(p, 0, 0)); /* a view */
    assert_null(p->steps.data[1].kernel);
    tg_plan_destroy(&p);
}

#define ADAM                                                                                                 \
    "graph g\nparam w f32[8]\ninput g f32[8]\nstate m f32[8]\nstate v f32[8]\ninput s f32[4]\n"              \
    "%0 = reshape($w) {dims=[2,4]} : f32[2,4]\n"                                                             \
    "phase update\n"                                                                                         \
    "%1, %2, %3 = adamw($w, $g, $m, $v, $s) {beta1=0.9, beta2=0.99, eps=1e-08, weight_decay=0} : f32[8], "   \
    "f32[8], "                                                                                               \
    "f32[8]\n"

static void updates_stay_in_the_store(void **state)
{
    (void)state;
    tg_plan *p = plan_of(ADAM "%4 = exp(%1) {} : f32[8]\noutput w %4\n");
    static const char *const names[] = {"w", "m", "v"};
    for (int o = 0; o < 3; o++) {
        const tg_plan_value *v = &p->values[p->steps.data[1].node->out[o]->id];
        assert_int_equal(v->where, TG_AT_STORE);
        assert_string_equal(v->name, names[o]);
    }
    assert_string_equal(p->values[p->steps.data[0].node->out[0]->id].name, "w"); /* a view of it too */
    assert_int_equal(p->memory.params, 32);
    assert_int_equal(p->memory.states, 64);
    tg_plan_destroy(&p);
}

static void old_values_are_not_read(void **state)
{
    (void)state;
    const tg_plan_options o = options();
    static const char message[] = "plan: exp (node 2) reads a value that was updated before";
    assert_refused(ADAM "%4 = exp($w) {} : f32[8]\n", &o, TENG_STATE, message);
    assert_refused(ADAM "%4 = exp(%0) {} : f32[2,4]\n", &o, TENG_STATE, message);
    assert_refused(ADAM "output w $w\n", &o, TENG_STATE,
                   "plan: output w names a value that is updated later");
    tg_plan *p =
        plan_of(ADAM "%4 = reshape(%1) {dims=[4,2]} : f32[4,2]\n%5 = exp(%4) {} : f32[4,2]\noutput w %5\n");
    tg_plan_destroy(&p);
}

static void lifetimes_and_phases(void **state)
{
    (void)state;
    tg_plan *p = plan_of("graph g\ninput x f32[1024]\n"
                         "%0 = exp($x) {} : f32[1024]\n" /* kept: the backward phase reads it */
                         "%1 = sum(%0) {axes=[], keep=0} : f32[]\n"
                         "phase backward\n"
                         "%2 = mul(%0, $x) {} : f32[1024]\n"
                         "phase update\n"
                         "%3 = sum_squares(%2) {} : f32[]\n"
                         "output loss %1\noutput norm %3\n");
    static const size_t begin[] = {0, 2, 3, 4};
    assert_memory_equal(p->phase_begin, begin, sizeof begin);
    assert_int_equal(p->memory.kept_for_backward, 4096 + 4); /* and the loss, an output */
    assert_int_equal(p->memory.params, 0);
    const tg_buffer *loss = &p->buffers.data[buffer_of(p, 1, 0)], *x = &p->buffers.data[p->values[0].buffer];
    assert_int_equal(loss->first, 1);
    assert_int_equal(loss->last, 4); /* outputs live to the end */
    assert_int_equal(x->first, 0);
    assert_int_equal(x->last, 4); /* inputs throughout */
    assert_int_equal(p->steps.data[2].inplace_of, 0);
    assert_int_not_equal(p->steps.data[3].workspace_buffer, -1);
    assert_true(p->buffers.data[p->steps.data[3].workspace_buffer].bytes >= sizeof(double));
    assert_true(p->memory.block >= p->memory.live_peak);
    assert_int_equal(p->memory.live_peak, 4096 + 4096 + 64 * 3);
    tg_plan_destroy(&p);
}

static void empty_phases(void **state)
{
    (void)state;
    tg_plan *p = plan_of("graph g\ninput x f32[4]\nphase update\n%0 = exp($x) {} : f32[4]\noutput y %0\n");
    static const size_t begin[] = {0, 0, 0, 1};
    assert_memory_equal(p->phase_begin, begin, sizeof begin);
    assert_int_equal(tg_plan_cost(p, TG_FORWARD).flops, 0);
    assert_true(tg_plan_cost(p, TG_UPDATE).flops > 0);
    tg_plan_destroy(&p);
    p = plan_of("graph g\ninput x f32[4]\noutput y $x\n");
    assert_int_equal(p->steps.len, 0);
    tg_plan_destroy(&p);
}

static void budget(void **state)
{
    (void)state;
    static const char text[] = XY "%0 = add($x, $w) {} : f32[4,8]\noutput z %0\n";
    tg_plan *p = plan_of(text);
    const size_t need = p->memory.params + p->memory.states + p->memory.block;
    assert_int_equal(need, 128 * 4);
    tg_plan_destroy(&p);
    tg_plan_options o = options();
    o.budget = need;
    assert_int_equal(try_plan(text, &o, &p), TENG_OK);
    tg_plan_destroy(&p);
    o.budget = need - 1;
    assert_refused(text, &o, TENG_MEMORY, "memory.budget: the plan needs 512 B, the budget is 511 B: 1 B");
}

static void forecast(void **state)
{
    (void)state;
    static const char text[] =
        "graph g\ninput a f32[64,64]\n%0 = matmul($a, $a) {trans_a=0, trans_b=0} : f32[64,64]\n"
        "output c %0\n";
    tg_plan_options o = options();
    tg_plan *p;
    assert_int_equal(try_plan(text, &o, &p), TENG_OK);
    assert_true(tg_plan_cost(p, TG_FORWARD).flops == 2.0 * 64 * 64 * 64);
    assert_true(tg_plan_forecast(p, TG_FORWARD) == 0); /* rates unknown */
    tg_plan_destroy(&p);
    o.flops_per_s = 2.0 * 64 * 64 * 64 / 3;
    o.bytes_per_s = 1e18;
    assert_int_equal(try_plan(text, &o, &p), TENG_OK);
    assert_true(tg_plan_forecast(p, TG_FORWARD) == 3); /* compute-bound: seconds */
    tg_plan_destroy(&p);
    o.flops_per_s = 1e18;
    o.bytes_per_s = 3.0 * 64 * 64 * 4 / 5;
    assert_int_equal(try_plan(text, &o, &p), TENG_OK);
    assert_true(tg_plan_forecast(p, TG_FORWARD) > 4.999 && tg_plan_forecast(p, TG_FORWARD) < 5.001);
    tg_plan_destroy(&p);
}

static void no_kernel(void **state)
{
    (void)state;
    tg_plan_options o = options();
    o.device = "abacus";
    assert_refused(
        "graph g\ninput x f32[4]\n%0 = exp($x) {} : f32[4] @ model.layers.3\noutput y %0\n", &o,
        TENG_UNSUPPORTED,
        "plan: model.layers.3 (exp): exp: no abacus kernel for f32[4]: the operator has none for this");
}

static void lower_instruction_sets_say_what_was_not_chosen(void **state)
{
    (void)state;
    static const char text[] = "graph g\ninput x f32[4]\n%0 = exp($x) {} : f32[4]\noutput y %0\n";
    if (!tg_cpu_isa_available(TG_CPU_v3)) skip();
    tg_plan_options o = options();
    tg_plan *p;
    o.isa = TG_CPU_v2;
    assert_int_equal(try_plan(text, &o, &p), TENG_OK);
    assert_non_null(
        strstr(p->steps.data[0].refused, "vector (v3): the instruction set is not available or not allowed"));
    tg_strbuf out = {0};
    tg_plan_print(p, &out);
    assert_non_null(strstr(tg_strbuf_str(&out), "not chosen: vector (v4bf)"));
    tg_strbuf_free(&out);
    tg_plan_destroy(&p);
}

/* ---- the listing ---- */
/* Which kernels were passed over depends on the machine: those lines are left out. */
static char *without_refused(const char *text)
{
    tg_strbuf out = {0};
    while (*text) {
        const size_t n = strcspn(text, "\n") + 1;
        if (!strstr(text, "not chosen: ") || strstr(text, "not chosen: ") > text + n)
            tg_strbuf_add(&out, text, n);
        text += n;
    }
    return tg_strbuf_take(&out);
}

static void golden_listing(void **state)
{
    (void)state;
    char *text, *want = NULL;
    assert_int_equal(tg_file_read(TG_TEST_DATA "/plan_golden_graph.txt", &text, NULL), TENG_OK);
    tg_plan *p = plan_of(text);
    tg_strbuf out = {0};
    tg_plan_print(p, &out);
    tg_strbuf_putc(&out, '\n');
    tg_plan_print_memory(p, &out);
    char *got = without_refused(tg_strbuf_str(&out));
    if (getenv("TENG_UPDATE_GOLDEN"))
        assert_int_equal(tg_file_write(TG_TEST_DATA "/plan_golden.txt", got, strlen(got)), TENG_OK);
    assert_int_equal(tg_file_read(TG_TEST_DATA "/plan_golden.txt", &want, NULL), TENG_OK);
    if (strcmp(got, want) != 0)
        fail_msg("the listing is another one (TENG_UPDATE_GOLDEN=1 keeps it):\n%s", got);
    json_t *json = tg_plan_json(p);
    assert_int_equal(json_array_size(json_object_get(json, "steps")), p->steps.len);
    assert_int_equal(json_array_size(json_object_get(json, "buffers")), p->buffers.len);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "memory"), "peak_bytes")),
                     p->memory.params + p->memory.states + p->memory.block);
    json_decref(json);
    tg_free(text);
    tg_free(got);
    tg_free(want);
    tg_strbuf_free(&out);
    tg_plan_destroy(&p);
}

static void memory_runs_out(void **state)
{
    (void)state;
    const tg_plan_options o = options();
    tg_plan *p = NULL;
    uint64_t n = 1;
    for (; n < 500 && !p; n++) {
        tg_graph *g = NULL;
        assert_int_equal(
            tg_graph_parse("t", XY "%0 = add($x, $w) {} : f32[4,8]\n%1 = sum_squares(%0) {} : f32[]\n", &g),
            TENG_OK);
        tg_alloc_fail_at(n);
        if (tg_plan_create(g, &o, &p) != TENG_OK) {
            assert_int_equal(teng_error_status(), TENG_MEMORY);
            assert_null(p);
        }
        tg_alloc_fail_at(0);
        teng_error_clear();
    }
    assert_non_null(p);
    assert_true(n > 10);
    tg_plan_destroy(&p);
}

int main(void)
{
    tg_op_register_builtin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dying_operands_are_taken_over),
        cmocka_unit_test(other_shapes_are_not_taken_over),
        cmocka_unit_test(updates_stay_in_the_store),
        cmocka_unit_test(old_values_are_not_read),
        cmocka_unit_test(lifetimes_and_phases),
        cmocka_unit_test(empty_phases),
        cmocka_unit_test(budget),
        cmocka_unit_test(forecast),
        cmocka_unit_test(no_kernel),
        cmocka_unit_test(lower_instruction_sets_say_what_was_not_chosen),
        cmocka_unit_test(golden_listing),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
