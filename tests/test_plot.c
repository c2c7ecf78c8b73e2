/*
 * Plots: well-formed XML whatever the names, a golden picture, axes, smoothing, thinning, refusals. The
 * golden file is rewritten when TENG_UPDATE_GOLDEN is set.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "monitor/plot.h"
#include "monitor/plot_scale.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define DIR "test_plot_runs"
#define GOLDEN TG_TEST_DATA "/plot_golden.svg"

/* ---- well-formedness: enough of XML to fail on what a drawing routine can get wrong ---- */

static const char *skip_entity(const char *p)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(p, known[i], strlen(known[i]))) return p + strlen(known[i]);
    fail_msg("bad entity at \"%.20s\"", p);
    return NULL;
}

/* Attributes of a tag from p; returns the '>' or "/>". */
static const char *skip_attributes(const char *p)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (*p == '>' || (*p == '/' && p[1] == '>')) return p;
        const char *name = p;
        while (isalnum((unsigned char)*p) || *p == '-' || *p == ':')
            p++;
        if (p == name || *p != '=' || p[1] != '"') fail_msg("bad attribute at \"%.30s\"", name);
        for (p += 2; *p != '"';) {
            if (!*p || *p == '<') fail_msg("bad attribute value at \"%.30s\"", name);
            p = *p == '&' ? skip_entity(p) : p + 1;
        }
        p++;
    }
}

static void assert_well_formed(const char *xml)
{
    char stack[32][16];
    int depth = 0, roots = 0;
    for (const char *p = xml; *p;) {
        if (*p == '&') {
            p = skip_entity(p);
        } else if (*p != '<') {
            if (*p == '>' || ((unsigned char)*p < 0x20 && *p != '\n'))
                fail_msg("bad character at \"%.20s\"", p);
            if (!depth && !isspace((unsigned char)*p)) fail_msg("text outside at \"%.20s\"", p);
            p++;
        } else {
            bool closing = p[1] == '/';
            char name[16] = "";
            int n = 0;
            for (p += closing ? 2 : 1; isalpha((unsigned char)*p) && n < 15; p++)
                name[n++] = *p;
            name[n] = 0;
            p = skip_attributes(p);
            if (closing) {
                assert_true(depth > 0);
                assert_string_equal(name, stack[--depth]);
            } else if (*p == '>') {
                assert_true(depth < 32);
                roots += !depth;
                memcpy(stack[depth++], name, sizeof name);
            }
            p += *p == '/' ? 2 : 1;
        }
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

/* ---- data ---- */

static tg_metrics_series series(int steps, int every, double floor)
{
    tg_metrics_series s = {0};
    for (int i = 1; i <= steps; i++) {
        double wobble = (i * 37 % 17 - 8) / 80.0;
        tg_metrics_point p = {.step = i,
                              .tokens = i * 4096.0,
                              .hours = i / 7200.0,
                              .loss = (float)(floor + 5 / (1 + i / 10.0) + wobble)};
        assert_true(tg_vec_push(&s.train, p));
        p.loss = (float)(floor + 5 / (1 + i / 10.0) + 0.1);
        if (i % every == 0) assert_true(tg_vec_push(&s.eval, p));
    }
    return s;
}

static void draw(const tg_plot_options *o, const tg_plot_run *runs, int n, tg_strbuf *out)
{
    tg_strbuf_clear(out);
    if (tg_plot_svg(o, runs, n, out) != TENG_OK) fail_msg("%s", teng_error());
    assert_well_formed(tg_strbuf_str(out));
}

static void test_golden(void **state)
{
    (void)state;
    tg_metrics_series a = series(40, 10, 2), b = series(30, 15, 2.5);
    tg_plot_run runs[] = {{"first", &a}, {"second", &b}};
    tg_strbuf svg = {0};
    draw(&(tg_plot_options){.title = "Two runs", .width = 640, .height = 360}, runs, 2, &svg);
    if (getenv("TENG_UPDATE_GOLDEN")) assert_int_equal(tg_file_write(GOLDEN, svg.data, svg.len), TENG_OK);
    char *golden;
    assert_int_equal(tg_file_read(GOLDEN, &golden, NULL), TENG_OK);
    assert_string_equal(tg_strbuf_str(&svg), golden);
    tg_free(golden);
    tg_strbuf_free(&svg);
    tg_metrics_series_free(&a);
    tg_metrics_series_free(&b);
}

static void test_options(void **state)
{
    (void)state;
    tg_metrics_series a = series(3000, 100, 2);
    tg_plot_run run = {"a", &a};
    tg_strbuf svg = {0};
    draw(&(tg_plot_options){0}, &run, 1, &svg);
    assert_non_null(strstr(svg.data, ">steps<"));
    assert_non_null(strstr(svg.data, "Training loss"));
    assert_non_null(strstr(svg.data, "width=\"960\" height=\"540\""));
    assert_int_equal(count(svg.data, "r=\"3.6\""), 30); /* every evaluation */
    assert_int_equal(count(svg.data, "<path"), 2);      /* raw and smoothed */
    assert_true(svg.len < 100000);                      /* thinned */
    draw(&(tg_plot_options){.x = TG_PLOT_TOKENS, .log_y = true}, &run, 1, &svg);
    assert_non_null(strstr(svg.data, ">tokens<"));
    assert_non_null(strstr(svg.data, ">10M<"));
    assert_non_null(strstr(svg.data, "log scale"));
    draw(&(tg_plot_options){.x = TG_PLOT_HOURS}, &run, 1, &svg);
    assert_non_null(strstr(svg.data, ">minutes<"));
    tg_plot_axis axis;
    assert_true(tg_plot_axis_parse("hours", &axis) && axis == TG_PLOT_HOURS);
    assert_true(tg_plot_axis_parse("tokens", &axis) && axis == TG_PLOT_TOKENS);
    assert_false(tg_plot_axis_parse("days", &axis));
    tg_strbuf_free(&svg);
    tg_metrics_series_free(&a);
}

static void test_names_are_escaped(void **state)
{
    (void)state;
    tg_metrics_series a = series(30, 7, 2);
    tg_plot_run runs[] = {{"</text><script>&\"'", &a},
                          {"bad \xff byte\x01", &a},
                          {"a name that is a good deal longer than the legend is wide", &a}};
    tg_strbuf svg = {0};
    draw(&(tg_plot_options){.title = "a < b & c\n"}, runs, 3, &svg);
    assert_non_null(strstr(svg.data, "&lt;/text&gt;&lt;script&gt;&amp;\"'"));
    assert_non_null(strstr(svg.data, "bad \xef\xbf\xbd byte "));
    assert_non_null(strstr(svg.data, "a name that is a good deal lon\xe2\x80\xa6<"));
    assert_non_null(strstr(svg.data, "<title>a &lt; b &amp; c </title>"));
    tg_strbuf_free(&svg);
    tg_metrics_series_free(&a);
}

static void test_odd_data(void **state)
{
    (void)state;
    tg_strbuf svg = {0};
    /* One point; NaN between points; only evaluations; infinite loss; many runs. */
    tg_metrics_series one = series(1, 5, 2), gap = series(40, 50, 2), evals = series(20, 4, 2);
    gap.train.data[20].loss = NAN;
    gap.train.data[30].loss = INFINITY;
    evals.train.len = 0;
    tg_plot_run runs[10] = {{"one", &one}, {"gap", &gap}, {"evals", &evals}};
    for (int i = 0; i < 3; i++)
        for (int log = 0; log < 2; log++)
            draw(&(tg_plot_options){.log_y = log}, &runs[i], 1, &svg);
    draw(&(tg_plot_options){0}, &runs[0], 1, &svg);
    assert_non_null(strstr(svg.data, "h0\"")); /* a lone point shows as a dot */
    draw(&(tg_plot_options){0}, &runs[1], 1, &svg);
    assert_null(strstr(svg.data, "nan"));
    assert_null(strstr(svg.data, "inf"));
    assert_int_equal(count(svg.data, "M"), 6); /* three pieces, raw and smoothed */
    for (int i = 3; i < 10; i++)
        runs[i] = (tg_plot_run){"gap", &gap};
    draw(&(tg_plot_options){0}, runs, 10, &svg);
    assert_true(count(svg.data, "stroke-dasharray") >= 3);
    tg_strbuf_free(&svg);
    tg_metrics_series_free(&one);
    tg_metrics_series_free(&gap);
    tg_metrics_series_free(&evals);
}

static void assert_says(const char *part)
{
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
}

static void test_refusals(void **state)
{
    (void)state;
    tg_metrics_series a = series(5, 9, 2), empty = {0};
    tg_plot_run run = {"a", &a}, none = {"none", &empty};
    tg_strbuf svg = {0};
    assert_int_equal(tg_plot_svg(&(tg_plot_options){.width = 10}, &run, 1, &svg), TENG_INVALID);
    assert_says("use 320 by 200");
    assert_int_equal(tg_plot_svg(&(tg_plot_options){0}, &run, 0, &svg), TENG_INVALID);
    assert_says("at least one run folder");
    assert_int_equal(tg_plot_svg(&(tg_plot_options){0}, &none, 1, &svg), TENG_INVALID);
    assert_says("no finite loss in none");
    for (size_t i = 0; i < a.train.len; i++)
        a.train.data[i].loss = -1;
    assert_int_equal(tg_plot_svg(&(tg_plot_options){.log_y = true}, &run, 1, &svg), TENG_INVALID);
    assert_says("no finite positive loss");
    tg_strbuf_free(&svg);
    tg_metrics_series_free(&a);
}

static void make_run(const char *name, const char *text)
{
    char *dir = tg_path_join(DIR, name);
    assert_int_equal(tg_mkdirs(dir), TENG_OK);
    char *path = tg_path_join(dir, "metrics.jsonl");
    assert_int_equal(tg_file_write(path, text, strlen(text)), TENG_OK);
    tg_free(path);
    tg_free(dir);
}

static void test_run_folders(void **state)
{
    (void)state;
    assert_int_equal(tg_remove_tree(DIR), TENG_OK);
    const char *lines =
        "{\"type\":\"step\",\"step\":1,\"loss\":4.0}\n{\"type\":\"step\",\"step\":2,\"loss\":3.5}\n";
    make_run("a", lines);
    make_run("b", lines);
    make_run("x/a", lines);
    make_run("empty", "{\"type\":\"run\",\"step\":0}\n");
    make_run("broken", "{\"type\":\"run\",\"step\":0}\nbroken\n");
    assert_int_equal(tg_mkdirs(DIR "/bare"), TENG_OK);
    tg_plot_options o = {0};
    const char *good[] = {DIR "/a", DIR "/b", DIR "/x/a"};
    assert_int_equal(tg_plot_dirs(&o, good, 3, DIR "/out.svg"), TENG_OK);
    char *svg;
    assert_int_equal(tg_file_read(DIR "/out.svg", &svg, NULL), TENG_OK);
    assert_well_formed(svg);
    assert_non_null(strstr(svg, ">b<"));
    assert_non_null(strstr(svg, ">" DIR "/a<")); /* two end in "a": their paths tell them apart */
    assert_non_null(strstr(svg, ">" DIR "/x/a<"));
    assert_non_null(strstr(svg, ">3.500<"));
    tg_free(svg);
    const char *file[] = {DIR "/b/metrics.jsonl"};
    assert_int_equal(tg_plot_dirs(&o, file, 1, DIR "/out.svg"), TENG_OK);

    const char *bad[] = {DIR "/b", DIR "/empty"};
    assert_int_equal(tg_plot_dirs(&o, bad, 2, DIR "/no.svg"), TENG_INVALID);
    assert_says(DIR "/empty/metrics.jsonl: no step yet");
    bad[1] = DIR "/broken";
    assert_int_equal(tg_plot_dirs(&o, bad, 2, DIR "/no.svg"), TENG_FORMAT);
    assert_says(DIR "/broken/metrics.jsonl:2: not a JSON object");
    bad[1] = DIR "/bare";
    assert_int_equal(tg_plot_dirs(&o, bad, 2, DIR "/no.svg"), TENG_IO);
    assert_says(DIR "/bare/metrics.jsonl: no such file");
    bad[1] = DIR "/absent";
    assert_int_equal(tg_plot_dirs(&o, bad, 2, DIR "/no.svg"), TENG_IO);
    assert_says("is " DIR "/absent the folder of a run?");
    assert_int_equal(tg_plot_dirs(&o, good, 1, DIR "/nowhere/out.svg"), TENG_IO);
    assert_says("nowhere");
    assert_false(tg_path_exists(DIR "/no.svg"));
    assert_int_equal(tg_remove_tree(DIR), TENG_OK);
}

/* ---- the arithmetic ---- */

static void test_scales(void **state)
{
    (void)state;
    char buf[32];
    tg_plot_scale s = tg_plot_scale_make(1.93, 9.71, 400, 50, false, 6, true);
    assert_true(s.lo == 0 && s.hi == 10 && s.n_ticks == 6 && s.step == 2);
    assert_true(tg_plot_scale_at(&s, 0) == 400 && tg_plot_scale_at(&s, 10) == 50 &&
                tg_plot_scale_at(&s, 5) == 225);
    s = tg_plot_scale_make(2.01, 2.09, 0, 1, false, 5, true);
    assert_string_equal(tg_plot_tick_text(buf, &s, s.ticks[0]), "2.00");
    s = tg_plot_scale_make(0, 1500, 0, 1, false, 3, false);
    assert_string_equal(tg_plot_tick_text(buf, &s, 500), "0.5k");
    assert_string_equal(tg_plot_tick_text(buf, &s, 1000), "1k");
    assert_string_equal(tg_plot_tick_text(buf, &s, 0), "0");
    s = tg_plot_scale_make(0, 3.2e9, 0, 1, false, 4, false);
    assert_string_equal(tg_plot_tick_text(buf, &s, 2e9), "2G");
    s = tg_plot_scale_make(3, 3, 0, 1, false, 4, true); /* one value still has a scale */
    assert_true(s.lo < 3 && s.hi > 3 && s.n_ticks >= 2);
    s = tg_plot_scale_make(2.1, 9.8, 0, 100, true, 6, true);
    assert_true(s.n_ticks >= 4 && s.n_ticks <= 9);
    assert_true(fabs(tg_plot_scale_at(&s, sqrt(s.lo * s.hi)) - 50) < 1e-9);
    s = tg_plot_scale_make(1e-4, 1e4, 0, 100, true, 6, true);
    assert_true(s.n_ticks >= 5 && s.n_ticks <= TG_PLOT_TICKS);
    assert_string_equal(tg_plot_tick_text(buf, &s, 1000), "1k");
    for (int i = 1; i < 2000; i++) { /* whatever the range: some ticks, in order, inside */
        double hi = pow(10, i / 100.0 - 6);
        for (int log = 0; log < 2; log++) {
            s = tg_plot_scale_make(hi * 0.3, hi, 0, 1, log, 5, true);
            assert_true(s.n_ticks >= 2 && s.n_ticks <= TG_PLOT_TICKS);
            for (int t = 0; t < s.n_ticks; t++)
                assert_true(s.ticks[t] >= s.lo * (1 - 1e-6) && s.ticks[t] <= s.hi * (1 + 1e-6) &&
                            (!t || s.ticks[t] > s.ticks[t - 1]));
        }
    }
}

static void test_smooth_and_thin(void **state)
{
    (void)state;
    tg_plot_xy p[1000];
    for (int i = 0; i < 1000; i++)
        p[i] = (tg_plot_xy){i, 3 + (i % 2 ? 0.5 : -0.5)};
    p[500].y = (double)NAN;
    tg_plot_smooth(p, 1000, 50);
    assert_true(p[0].y == 2.5); /* begins at the first value */
    assert_true(isnan(p[500].y));
    for (int i = 200; i < 1000; i++)
        if (i != 500) assert_true(fabs(p[i].y - 3) < 0.05);

    for (int i = 0; i < 1000; i++)
        p[i] = (tg_plot_xy){i, i == 333 ? 9 : i == 334 ? -9 : i % 7};
    size_t n = tg_plot_thin(p, 1000, 0, 999, 50);
    assert_true(n <= 102 && n >= 50);
    bool top = false, low = false;
    for (size_t i = 0; i < n; i++) {
        top |= p[i].y == 9;
        low |= p[i].y == -9;
        if (i) assert_true(p[i].x > p[i - 1].x);
    }
    assert_true(top && low); /* spikes survive */
    assert_int_equal(tg_plot_thin(p, 20, 0, 999, 50), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_names_are_escaped),
        cmocka_unit_test(test_odd_data),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_run_folders),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_smooth_and_thin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
