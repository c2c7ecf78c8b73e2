/*
 * Profiles made by hand: sums, the two files and back, the report's numbers, which losses are found and what
 * is suggested for each. Profiles of real runs: test_run_profile.c.
 */
#include "base/fail.h"
#include "base/file.h"
#include "monitor/profile.h"

#include "cmocka_all.h"
#include "trace_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/teng-profile-XXXXXX";

static const tg_profile_machine machine = {"a \"machine\"", 2, 100e9, 200e9, 10e9};

/* A profile whose settings are the given JSON. */
static tg_profile *profile(const char *settings)
{
    json_t *json = json_loads(settings, 0, NULL);
    tg_profile *p = tg_profile_create(&machine, json);
    json_decref(json);
    assert_non_null(p);
    return p;
}

/* A call of `ms` milliseconds at `at` ms on a row of that name, added when it is new. */
static void call(tg_profile *p, tg_profile_part part, const char *op, const char *layer, double flops,
                 double bytes, double at, double ms)
{
    char key[128];
    const int len = snprintf(key, sizeof key, "%d %s %s", part, op, layer);
    const tg_profile_row row = {.part = part,
                                .op = op,
                                .layer = layer,
                                .kernel = "k",
                                .dtype = "f32",
                                .shape = "f32[2]",
                                .flops = flops,
                                .bytes = bytes};
    int i = tg_profile_find(p, key, (size_t)len);
    if (i < 0) i = tg_profile_add(p, key, (size_t)len, &row);
    tg_profile_operator(p, i, 1 + at * 1e-3, 1 + (at + ms) * 1e-3);
}

/* Two steps of 100 ms: 10 wait, 40 product, 20 add, 25 update, 5 gaps. */
static tg_profile *two_steps(const char *settings)
{
    tg_profile *p = profile(settings);
    for (int s = 0; s < 2; s++) {
        const double at = 100 * s;
        tg_profile_begin_step(p, 7 + s, 1 + at * 1e-3);
        call(p, TG_PROFILE_FORWARD, "matmul", "m.layers.0.up", 3e9, 1e6, at + 10, 40);
        call(p, TG_PROFILE_BACKWARD, "add", "m.layers.1", 1e6, 1e8, at + 50, 20);
        call(p, TG_PROFILE_UPDATE, "adamw", "optimizer", 1e6, 2e8, at + 75, 25);
        tg_profile_waited(p, 0.01);
        tg_profile_end_step(p, 1 + (at + 100) * 1e-3, 0.15, 4096);
    }
    if (tg_profile_sum(p) != TENG_OK) fail_msg("%s", teng_error());
    return p;
}

static void assert_near(double a, double b)
{
    if (!(a - b < 1e-9 && b - a < 1e-9)) fail_msg("%.12g, not %.12g", a, b);
}

static void sums_add_up(void **state)
{
    (void)state;
    tg_profile *p = two_steps("{}");
    assert_int_equal(p->n_steps, 2);
    assert_int_equal(p->first_step, 7);
    assert_int_equal(p->last_step, 8);
    assert_near(p->wall, 0.2);
    assert_near(p->part[TG_PROFILE_DATA], 0.02);
    assert_near(p->part[TG_PROFILE_FORWARD], 0.08);
    assert_near(p->part[TG_PROFILE_BACKWARD], 0.04);
    assert_near(p->part[TG_PROFILE_UPDATE], 0.05);
    assert_near(p->gaps, 0.01);
    assert_near(p->cpu_seconds, 0.3);
    assert_int_equal(p->rows.len, 3);
    assert_int_equal(p->rows.data[0].calls, 2);
    assert_near(p->rows.data[0].seconds, 0.08);
    bool memory;
    assert_near(tg_profile_attainable(p, &p->rows.data[0], &memory), 0.03); /* 3 GFLOP at 100 GFLOP/s */
    assert_false(memory);
    assert_near(tg_profile_attainable(p, &p->rows.data[1], &memory), 0.01); /* 100 MB at 10 GB/s */
    assert_true(memory);
    tg_profile_destroy(&p);
}

static void files_and_back(void **state)
{
    (void)state;
    char path[256];
    tg_profile *p = two_steps("{\"data.prefetch\": 0}"), *back;
    tg_profile_beside(p, TG_PROFILE_BOOKS, 1.01, 1.02);
    tg_profile_collective(p, 2, 1.2, 1.2, 1.05, 1.07); /* nobody waited for it */
    tg_profile_collective(p, 2, 1.2, 1.2, 1.08, 1.09);
    tg_profile_communication(p, 0.030, 0.012);
    tg_profile_sent(p, "data", 3e6);
    tg_profile_sent(p, "data", 1e6);
    assert_int_equal(tg_profile_sum(p), TENG_OK);
    assert_int_equal(tg_profile_write(p, folder), TENG_OK);
    snprintf(path, sizeof path, "%s/trace.json", folder);
    const trace_sums t = check_trace(path);
    assert_int_equal(t.steps, 2);
    assert_int_equal(t.operators, 6 + 2);
    assert_int_equal(t.phases, 6);
    assert_int_equal(t.host, 3); /* two waits, one beside */
    assert_int_equal(t.threads, 3);
    assert_near(t.operator_us, 170e3 + 30e3);
    assert_near(t.step_us, 200e3);

    snprintf(path, sizeof path, "%s/profile.json", folder);
    if (tg_profile_read(path, &back) != TENG_OK) fail_msg("%s", teng_error());
    tg_strbuf one = {0}, other = {0};
    tg_profile_report(p, &one);
    tg_profile_report(back, &other);
    assert_string_equal(tg_strbuf_str(&one), tg_strbuf_str(&other));
    assert_non_null(strstr(tg_strbuf_str(&one), "a \"machine\""));
    assert_non_null(strstr(tg_strbuf_str(&one), "m.layers.0 ")); /* not m.layers.0.up */
    assert_non_null(strstr(tg_strbuf_str(&one), "threads: 1.50 of 2 busy on average (CPU time"));
    assert_non_null(strstr(tg_strbuf_str(&one), "communication: 15.000 ms, 60 % of it hidden"));
    assert_non_null(strstr(tg_strbuf_str(&one), "sent by this rank in a step: 1.91 MiB along data\n"));
    assert_non_null(strstr(tg_strbuf_str(&one), "  messages          5.000 ms"));
    assert_non_null(strstr(tg_strbuf_str(&one), "Beyond the peak in use: 40 %"));
    tg_strbuf_free(&one);
    tg_strbuf_free(&other);
    tg_profile_destroy(&p);
    tg_profile_destroy(&back);
}

/* ---- the report's arithmetic ---- */
static double member(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) fail_msg("no number %s", key);
    return json_number_value(v);
}

static void report_adds_up(void **state)
{
    (void)state;
    tg_profile *p = two_steps("{}");
    json_t *root = tg_profile_report_json(p);
    const char *key;
    json_t *part;
    double sum = 0, layers = 0;
    assert_non_null(root);
    json_object_foreach(json_object_get(root, "parts"), key, part) sum += json_number_value(part);
    assert_near(sum, member(root, "step_seconds"));
    assert_near(member(root, "step_seconds"), 0.1);
    assert_near(member(root, "threads_busy"), 1.5);
    const json_t *first = json_array_get(json_object_get(root, "operators"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "operator")), "matmul");
    assert_near(member(first, "share"), 0.4);
    assert_near(member(first, "gflop_per_s"), 75);
    assert_near(member(first, "attained"), 0.75);
    assert_string_equal(json_string_value(json_object_get(first, "bound")), "compute");
    for (size_t i = 0; i < json_array_size(json_object_get(root, "layers")); i++)
        layers += member(json_array_get(json_object_get(root, "layers"), i), "seconds");
    assert_near(layers, 0.085);
    const char *hint = json_string_value(json_object_get(root, "hint"));
    assert_non_null(hint);
    assert_non_null(
        strstr(hint, "40 % of the step is bound by f32 arithmetic, and this machine multiplies bf16 2.0"));
    json_decref(root);
    tg_profile_destroy(&p);
}

/* ---- losses ---- */
/* The largest loss is `what`, of so many seconds a step, and its suggestion holds the text. */
static void assert_first_loss(tg_profile *p, const char *what, double seconds, const char *suggestion)
{
    assert_int_equal(tg_profile_sum(p), TENG_OK);
    json_t *root = tg_profile_report_json(p);
    const json_t *losses = json_object_get(root, "losses"), *first = json_array_get(losses, 0);
    const char *text = json_string_value(json_object_get(first, "suggestion"));
    assert_in_range(json_array_size(losses), 1, 3);
    assert_string_equal(json_string_value(json_object_get(first, "loss")), what);
    assert_near(member(first, "seconds"), seconds);
    if (!strstr(text, suggestion)) fail_msg("\"%s\" is not in: %s", suggestion, text);
    json_decref(root);
    tg_profile_destroy(&p);
}

/* One step of `ms` with one call of that cost, after `wait` ms. */
static tg_profile *one_step(const char *settings, tg_profile_part part, const char *op, double flops,
                            double bytes, double wait, double busy, double ms)
{
    tg_profile *p = profile(settings);
    tg_profile_begin_step(p, 1, 1);
    tg_profile_waited(p, wait * 1e-3);
    if (busy > 0) call(p, part, op, "layer", flops, bytes, wait, busy);
    tg_profile_end_step(p, 1 + ms * 1e-3, -1, 0);
    return p;
}

static void suggestions_follow_the_numbers(void **state)
{
    (void)state;
    static const char *const low = "{\"precision.16bit\": true}";
    assert_first_loss(
        one_step("{}", TG_PROFILE_FORWARD, "matmul", 5e9, 1e6, 0, 100, 100), "products", 0.05,
        "reach 50 % of the f32 peak; this machine multiplies bf16 2.0 times as fast: precision.level=O2");
    assert_first_loss(one_step(low, TG_PROFILE_FORWARD, "matmul", 5e9, 1e6, 0, 100, 100), "products", 0.05,
                      "`teng plan --steps` shows their layouts");
    assert_first_loss(
        one_step("{\"train.micro_batches\": 4}", TG_PROFILE_FORWARD, "matmul", 1e6, 1e3, 0, 1, 1),
        "small products", 0.00099, "raise train.batch_size or lower train.micro_batches");
    assert_first_loss(
        one_step("{\"train.seq_len\": 4096}", TG_PROFILE_FORWARD, "attention_grad", 5e9, 1e6, 0, 100, 100),
        "attention", 0.05, "on sequences of 4096 tokens");
    assert_first_loss(
        one_step("{\"train.seq_len\": 64}", TG_PROFILE_FORWARD, "attention", 5e9, 1e6, 0, 100, 100),
        "attention", 0.05, "in calls of 100000 us: sequences of 64 tokens are little work");
    assert_first_loss(one_step("{}", TG_PROFILE_FORWARD, "gelu", 0, 1e9, 0, 100, 100),
                      "operators that move data", 0.1,
                      "gelu 100 ms: 100 % of memory's rate; fewer bytes help: 16 bits halve them");
    assert_first_loss(one_step(low, TG_PROFILE_FORWARD, "gelu", 0, 1e9, 0, 100, 100),
                      "operators that move data", 0.1, "fewer bytes help: fewer or fused operators");
    assert_first_loss(one_step("{}", TG_PROFILE_FORWARD, "gelu", 0, 1e6, 0, 1, 1), "operators that move data",
                      0.001, "10 % of memory's rate, 1000 us a call; larger batches");
    assert_first_loss(one_step("{}", TG_PROFILE_UPDATE, "adamw", 0, 1e9, 0, 100, 100),
                      "update of the parameters", 0.1,
                      "100.0 % of the step, at 100 % of memory's rate; more tokens a step make it rarer");
    assert_first_loss(one_step("{\"data.prefetch\": 0}", TG_PROFILE_FORWARD, "", 0, 0, 50, 0, 60),
                      "waiting for data", 0.05, "83.3 % of the step; data.prefetch=4");
    assert_first_loss(one_step("{\"data.prefetch\": 4}", TG_PROFILE_FORWARD, "", 0, 0, 50, 0, 60),
                      "waiting for data", 0.05, "teng data prepare");
    assert_first_loss(one_step("{\"context.mode\": \"pynative\"}", TG_PROFILE_FORWARD, "", 0, 0, 0, 0, 60),
                      "gaps between operators", 0.06, "context.mode=graph plans them once");
    assert_first_loss(one_step("{\"context.mode\": \"graph\"}", TG_PROFILE_FORWARD, "", 0, 0, 0, 0, 60),
                      "gaps between operators", 0.06, "larger batches make it smaller");
}

static void host_work_is_named(void **state)
{
    (void)state;
    static const struct {
        tg_profile_part part;
        const char *settings, *what, *suggestion;
    } cases[] = {
        {TG_PROFILE_EVALUATION, "{}", "evaluation", "a larger train.eval_every"},
        {TG_PROFILE_CHECKPOINT, "{\"checkpoint.async\": false}", "checkpoints", "checkpoint.async=true"},
        {TG_PROFILE_CHECKPOINT, "{\"checkpoint.async\": true}", "checkpoints", "a larger checkpoint.every"},
        {TG_PROFILE_BOOKS, "{\"data.sink\": false}", "metrics and console", "data.sink=true"},
        {TG_PROFILE_BOOKS, "{\"data.sink\": true}", "metrics and console",
         "the disk or the terminal is slow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_profile *p = profile(cases[i].settings);
        tg_profile_begin_step(p, 1, 1);
        tg_profile_host(p, cases[i].part, 1.01, 1.05);
        tg_profile_end_step(p, 1.06, -1, 0);
        assert_first_loss(p, cases[i].what, 0.04, cases[i].suggestion);
    }
}

/* ---- what is refused ---- */
static void assert_refused(const char *text, teng_status status, const char *message)
{
    char path[256];
    tg_profile *p = NULL;
    snprintf(path, sizeof path, "%s/profile.json", folder);
    assert_int_equal(tg_file_write(path, text, strlen(text)), TENG_OK);
    assert_int_equal(tg_profile_read(path, &p), status);
    assert_null(p);
    if (!strstr(teng_error(), message) || !strstr(teng_error(), "profile.json"))
        fail_msg("\"%s\" is not in: %s", message, teng_error());
    teng_error_clear();
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    char path[256], *text;
    tg_profile *p = two_steps("{}");
    assert_int_equal(tg_profile_write(p, folder), TENG_OK);
    tg_profile_destroy(&p);
    snprintf(path, sizeof path, "%s/profile.json", folder);
    assert_int_equal(tg_file_read(path, &text, NULL), TENG_OK);
    assert_refused("{", TENG_FORMAT, "not valid JSON");
    assert_refused("{}", TENG_FORMAT, "version");
    assert_refused("{\"version\": 2}", TENG_UNSUPPORTED, "version 2 of the format");
    static const char *const parts[][3] = {{"\"backward\"", "\"sideways\"", "phase \"sideways\" is none of"},
                                           {"\"calls\"", "\"cells\"", "calls"},
                                           {"\"gaps\"", "\"gabs\"", "gaps"},
                                           {"\"steps_measured\"", "\"steps\"", "steps"}};
    for (size_t i = 0; i < 4; i++) {
        char *at = strstr(text, parts[i][0]), *changed;
        if (i == 0) at = strstr(at + 1, parts[i][0]); /* the first is a member of parts */
        assert_non_null(at);
        changed = tg_asprintf("%.*s%s%s", (int)(at - text), text, parts[i][1], at + strlen(parts[i][0]));
        assert_refused(changed, TENG_FORMAT, parts[i][2]);
        tg_free(changed);
    }
    tg_free(text);
}

static void nothing_measured(void **state)
{
    (void)state;
    tg_profile *p = profile("{}");
    assert_int_equal(tg_profile_sum(p), TENG_STATE);
    assert_string_equal(teng_error(), "no step was profiled");
    teng_error_clear();
    tg_profile_destroy(&p);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return tg_remove_tree(folder) == TENG_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_add_up),        cmocka_unit_test(files_and_back),
        cmocka_unit_test(report_adds_up),     cmocka_unit_test(suggestions_follow_the_numbers),
        cmocka_unit_test(host_work_is_named), cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(nothing_measured),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
