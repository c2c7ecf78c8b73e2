/*
 * Passes: what each changes on small graphs written as text, the list language of graph.passes, and that
 * exact passes keep every bit. On the steps of real models: test_step_text.c.
 */
#include "base/fail.h"
#include "op/op_list.h"
#include "pass/pass.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

/* Runs the list over the graph of `before`; the result must print as `after`, its report is returned. */
static char *assert_becomes(const char *const *names, size_t n, const char *before, const char *after)
{
    tg_graph *g = NULL;
    tg_strbuf text = {0}, report = {0};
    if (tg_graph_parse("before", before, &g) != TENG_OK) fail_msg("%s", teng_error());
    if (tg_pass_run(g, names, n, &report, NULL, NULL) != TENG_OK) fail_msg("%s", teng_error());
    tg_graph_print(g, &text);
    assert_string_equal(tg_strbuf_str(&text), after);
    tg_strbuf_free(&text);
    tg_graph_destroy(&g);
    return tg_strbuf_take(&report);
}
#define BECOMES(name, before, after, words)                                                                  \
    do {                                                                                                     \
        char *report_ = assert_becomes((const char *const[]){name}, 1, before, after);                       \
        if (!strstr(report_, words)) fail_msg("\"%s\" is not in: %s", words, report_);                       \
        tg_free(report_);                                                                                    \
    } while (0)

#define HEAD "graph g\ninput x f32[2,6]\n"

static void dce(void **state)
{
    (void)state;
    BECOMES("dce",
            HEAD "state s f32[2,6]\ninput keep f32[]\n"
                 "phase forward\n"
                 "%0 = exp($x) {} : f32[2,6]\n"
                 "%1 = tanh(%0) {} : f32[2,6]\n" /* nothing reads it */
                 "%2 = exp(%1) {} : f32[2,6]\n"  /* nor what reads it */
                 "%3 = square(%0) {} : f32[2,6]\n"
                 "%4 = accumulate($s, %3, $keep) {} : f32[2,6]\n" /* an update is never unused */
                 "output y %0\n",
            HEAD "state s f32[2,6]\ninput keep f32[]\n"
                 "phase forward\n"
                 "%0 = exp($x) {} : f32[2,6]\n"
                 "%1 = square(%0) {} : f32[2,6]\n"
                 "%2 = accumulate($s, %1, $keep) {} : f32[2,6]\n"
                 "output y %0\n",
            "2 changed, 5 -> 3 nodes");
}

static void views(void **state)
{
    (void)state;
    BECOMES("views",
            HEAD "phase forward\n"
                 "%0 = reshape($x) {dims=[3,4]} : f32[3,4]\n"
                 "%1 = reshape(%0) {dims=[12]} : f32[12]\n"   /* straight from x */
                 "%2 = reshape(%1) {dims=[2,6]} : f32[2,6]\n" /* x itself */
                 "%3 = exp(%2) {} : f32[2,6]\n"
                 "output y %3\noutput z %1\noutput same %2\n",
            HEAD "phase forward\n"
                 "%0 = reshape($x) {dims=[3,4]} : f32[3,4]\n"
                 "%1 = reshape($x) {dims=[12]} : f32[12]\n"
                 "%2 = exp($x) {} : f32[2,6]\n"
                 "output y %2\noutput z %1\noutput same $x\n",
            "4 -> 3 nodes");
}

static void casts(void **state)
{
    (void)state;
    BECOMES("casts",
            HEAD "input h bf16[4]\n"
                 "phase forward\n"
                 "%0 = cast($x) {to=f32} : f32[2,6]\n" /* nothing to do */
                 "%1 = cast($h) {to=f32} : f32[4]\n"
                 "%2 = cast(%1) {to=bf16} : bf16[4]\n"   /* h itself */
                 "%3 = cast(%0) {to=bf16} : bf16[2,6]\n" /* rounds: */
                 "%4 = cast(%3) {to=f32} : f32[2,6]\n"   /* stays */
                 "output a %0\noutput b %2\noutput c %4\n",
            HEAD "input h bf16[4]\n"
                 "phase forward\n"
                 "%0 = cast($h) {to=f32} : f32[4]\n"
                 "%1 = cast($x) {to=bf16} : bf16[2,6]\n"
                 "%2 = cast(%1) {to=f32} : f32[2,6]\n"
                 "output a $x\noutput b $h\noutput c %2\n",
            "2 changed");
}

static void cse(void **state)
{
    (void)state;
    BECOMES(
        "cse",
        HEAD "input rng u64[2]\n"
             "phase forward\n"
             "%0 = exp($x) {} : f32[2,6]\n"
             "%1 = exp($x) {} : f32[2,6]\n"
             "%2 = add(%0, %1) {} : f32[2,6]\n"
             "%3 = affine($x) {factor=2, offset=0} : f32[2,6]\n"
             "%4 = affine($x) {factor=3, offset=0} : f32[2,6]\n" /* another attribute */
             "%5 = dropout($x, $rng) {p=0.5, stream=0, whole=[], begin=[], axis=0, turn=0, later=0} : "
             "f32[2,6]\n"
             "%6 = dropout($x, $rng) {p=0.5, stream=0, whole=[], begin=[], axis=0, turn=0, later=0} : "
             "f32[2,6]\n" /* the same draws */
             "phase backward\n"
             "%7 = exp($x) {} : f32[2,6]\n" /* another phase: computed anew on purpose */
             "output a %2\noutput b %3\noutput c %4\noutput d %5\noutput e %6\noutput f %7\n",
        HEAD
        "input rng u64[2]\n"
        "phase forward\n"
        "%0 = exp($x) {} : f32[2,6]\n"
        "%1 = add(%0, %0) {} : f32[2,6]\n"
        "%2 = affine($x) {factor=2, offset=0} : f32[2,6]\n"
        "%3 = affine($x) {factor=3, offset=0} : f32[2,6]\n"
        "%4 = dropout($x, $rng) {p=0.5, stream=0, whole=[], begin=[], axis=0, turn=0, later=0} : f32[2,6]\n"
        "phase backward\n"
        "%5 = exp($x) {} : f32[2,6]\n"
        "output a %1\noutput b %2\noutput c %3\noutput d %4\noutput e %4\noutput f %5\n",
        "2 changed, 8 -> 6 nodes");
}

static void scales(void **state)
{
    (void)state;
    BECOMES("scales",
            HEAD "phase forward\n"
                 "%0 = affine($x) {factor=2, offset=1} : f32[2,6]\n"
                 "%1 = affine(%0) {factor=3, offset=0.5} : f32[2,6]\n"
                 "output y %1\n",
            HEAD "phase forward\n"
                 "%0 = affine($x) {factor=2, offset=1} : f32[2,6]\n" /* dce's to drop */
                 "%1 = affine($x) {factor=6, offset=3.5} : f32[2,6]\n"
                 "output y %1\n",
            "1 changed");
    BECOMES("scales",
            "graph g\ninput x bf16[4]\nphase forward\n%0 = affine($x) {factor=2, offset=1} : bf16[4]\n"
            "%1 = affine(%0) {factor=3, offset=0.5} : bf16[4]\noutput y %1\n",
            "graph g\ninput x bf16[4]\nphase forward\n%0 = affine($x) {factor=2, offset=1} : bf16[4]\n"
            "%1 = affine(%0) {factor=3, offset=0.5} : bf16[4]\noutput y %1\n",
            "0 changed");
}

/* h is read by the norm first; of two sums one has a reader in between and stays. */
static void fuse_norms(void **state)
{
    (void)state;
    static const char head[] = "graph g\ninput x f32[2,6]\ninput r f32[2,6]\ninput w f32[6]\n";
    char before[1024], after[1024];
    snprintf(before, sizeof before, "%s%s", head,
             "phase forward\n"
             "%0 = add($x, $r) {} : f32[2,6]\n"
             "%1, %2 = rms_norm(%0, $w) {eps=1e-05} : f32[2,6], f32[2]\n"
             "%3 = add(%0, %1) {} : f32[2,6]\n"
             "%4 = exp(%3) {} : f32[2,6]\n"
             "%5, %6, %7 = layer_norm(%3, $w) {eps=1e-05} : f32[2,6], f32[2], f32[2]\n"
             "phase backward\n"
             "%8, %9 = rms_norm_grad(%0, $w, %5, %2) {} : f32[2,6], f32[6]\n"
             "%10 = add(%4, %8) {} : f32[2,6]\n"
             "%11, %12 = rms_norm_grad(%0, $w, %4, %2) {} : f32[2,6], f32[6]\n"
             "%13 = exp(%10) {} : f32[2,6]\n"
             "%14 = add(%13, %11) {} : f32[2,6]\n" /* what it adds to comes later */
             "output a %10\noutput b %9\noutput c %14\noutput d %12\n");
    snprintf(after, sizeof after, "%s%s", head,
             "phase forward\n"
             "%0, %1, %2 = add_rms_norm($x, $r, $w) {eps=1e-05} : f32[2,6], f32[2,6], f32[2]\n"
             "%3 = add(%0, %1) {} : f32[2,6]\n"
             "%4 = exp(%3) {} : f32[2,6]\n"
             "%5, %6, %7 = layer_norm(%3, $w) {eps=1e-05} : f32[2,6], f32[2], f32[2]\n"
             "phase backward\n"
             "%8, %9 = rms_norm_grad(%0, $w, %5, %2, %4) {} : f32[2,6], f32[6]\n"
             "%10, %11 = rms_norm_grad(%0, $w, %4, %2) {} : f32[2,6], f32[6]\n"
             "%12 = exp(%8) {} : f32[2,6]\n"
             "%13 = add(%12, %10) {} : f32[2,6]\n"
             "output a %8\noutput b %9\noutput c %13\noutput d %11\n");
    BECOMES("fuse", before, after, "2 changed");
}

/* f again with its gradient, where dy is there already; not where it comes later. */
static void fuse_functions(void **state)
{
    (void)state;
    BECOMES("fuse",
            HEAD "input ids i32[2]\ninput t f32[9,6]\n"
                 "phase backward\n"
                 "%0 = gelu($x) {} : f32[2,6]\n"
                 "%1 = exp(%0) {} : f32[2,6]\n"
                 "%2 = unary_grad($x, $x) {fn=gelu} : f32[2,6]\n"
                 "%3 = silu(%1) {} : f32[2,6]\n"
                 "%4 = exp(%3) {} : f32[2,6]\n"
                 "%5 = unary_grad(%1, %4) {fn=silu} : f32[2,6]\n"
                 "%6 = embedding_grad(%5, $ids) {begin=0, total=0, vocab=9} : f32[9,6]\n"
                 "%7 = add(%6, $t) {} : f32[9,6]\n"
                 "output a %2\noutput b %7\n",
            HEAD "input ids i32[2]\ninput t f32[9,6]\n"
                 "phase backward\n"
                 "%0, %1 = unary_with_grad($x, $x) {fn=gelu} : f32[2,6], f32[2,6]\n"
                 "%2 = exp(%1) {} : f32[2,6]\n"
                 "%3 = silu(%2) {} : f32[2,6]\n"
                 "%4 = exp(%3) {} : f32[2,6]\n"
                 "%5 = unary_grad(%2, %4) {fn=silu} : f32[2,6]\n"
                 "%6 = embedding_grad(%5, $ids, $t) {begin=0, total=0, vocab=9} : f32[9,6]\n"
                 "output a %0\noutput b %6\n",
            "2 changed");
}

/* ---- the list ---- */
#define TWICE                                                                                                \
    HEAD "phase forward\n%0 = exp($x) {} : f32[2,6]\n%1 = exp($x) {} : f32[2,6]\noutput a %0\noutput b %1\n"
#define ONCE HEAD "phase forward\n%0 = exp($x) {} : f32[2,6]\noutput a %0\noutput b %0\n"

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void list_language(void **state)
{
    (void)state;
    int standard = 0;
    for (const tg_pass *p = tg_passes; p->name; p++) {
        standard += p->standard;
        assert_true(p->exact || !p->standard); /* "default" changes no bit */
        assert_true(*p->doc);
    }
    char *report = assert_becomes((const char *const[]){"default"}, 1, TWICE, ONCE);
    assert_int_equal(lines(report), standard);
    assert_null(strstr(report, "scales"));
    tg_free(report);
    report = assert_becomes((const char *const[]){"default", "-cse"}, 2, TWICE, TWICE);
    assert_int_equal(lines(report), standard - 1);
    tg_free(report);
    report = assert_becomes((const char *const[]){"default", "-cse", "cse", "scales"}, 4, TWICE, ONCE);
    assert_int_equal(lines(report), standard + 1);
    assert_true(strstr(report, "cse") < strstr(report, "dce")); /* in the table's order */
    tg_free(report);
    report = assert_becomes(NULL, 0, TWICE, TWICE);
    assert_int_equal(lines(report), 0);
    tg_free(report);
}

static void unknown_names(void **state)
{
    (void)state;
    static const char *const names[] = {"dcee", "-cde", "nothing-like-it", ""};
    static const char *const said[] = {"no pass is named \"dcee\"; did you mean \"dce\"?",
                                       "no pass is named \"cde\"; did",
                                       "no pass is named \"nothing-like-it\"", "no pass is named \"\""};
    for (int i = 0; i < 4; i++) {
        tg_graph *g = NULL;
        assert_int_equal(tg_graph_parse("t", TWICE, &g), TENG_OK);
        assert_int_equal(tg_pass_run(g, (const char *const[]){"default", names[i]}, 2, NULL, NULL, NULL),
                         TENG_INVALID);
        if (!strstr(teng_error(), said[i])) fail_msg("\"%s\" is not in: %s", said[i], teng_error());
        assert_int_equal(g->nodes.len, 2); /* refused before anything ran */
        teng_error_clear();
        tg_graph_destroy(&g);
    }
}

static void record(void *user, const char *pass, const tg_graph *g)
{
    tg_strbuf_printf(user, "%s:%zu ", pass, g->nodes.len);
}

static void each_pass_is_shown(void **state)
{
    (void)state;
    tg_graph *g = NULL;
    tg_strbuf seen = {0};
    assert_int_equal(tg_graph_parse("t", TWICE, &g), TENG_OK);
    assert_int_equal(tg_pass_run(g, (const char *const[]){"cse", "dce"}, 2, NULL, record, &seen), TENG_OK);
    assert_string_equal(tg_strbuf_str(&seen), "traced:2 cse:1 dce:1 ");
    tg_strbuf_free(&seen);
    tg_graph_destroy(&g);
}

int main(void)
{
    tg_op_register_builtin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dce),           cmocka_unit_test(views),
        cmocka_unit_test(casts),         cmocka_unit_test(cse),
        cmocka_unit_test(scales),        cmocka_unit_test(list_language),
        cmocka_unit_test(fuse_norms),    cmocka_unit_test(fuse_functions),
        cmocka_unit_test(unknown_names), cmocka_unit_test(each_pass_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
