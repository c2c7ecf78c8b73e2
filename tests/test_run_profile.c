/*
 * Profiles of real runs, in both modes, with micro-batches, in a data sink: every event in the trace, times
 * that add up, evaluation and checkpoints as rows, and the same bits as a run without. The report's words:
 * test_profile.c.
 */
#include "base/fail.h"
#include "base/file.h"
#include "monitor/profile.h"
#include "train/trainer.h"

#include "cmocka_all.h"
#include "trace_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/teng-runprofile-XXXXXX";

static const char *in_run(const char *dir, const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s%s%s", folder, dir, *name ? "/" : "", name);
    return path;
}

typedef struct seen {
    float loss[64];
    int64_t stop_at;
    char note[600];
} seen;

static void on_event(void *user, const tg_run_event *e)
{
    seen *s = user;
    if (e->kind == TG_RUN_STEP) {
        s->loss[e->step] = (float)e->loss;
        if (e->step == s->stop_at) tg_run_stop();
    }
    if (e->kind == TG_RUN_NOTE) snprintf(s->note, sizeof s->note, "%s", e->text);
}

/* A small LLaMA, ten steps, and the given keys on top. */
static tg_config *config(const char *dir, const char *const *keys)
{
    static const char *const lines[] = {
        "model.model_type=llama",      "model.hidden_size=32",
        "model.intermediate_size=48",  "model.num_hidden_layers=2",
        "model.num_attention_heads=4", "data.files=[" TG_SOURCE_DIR "/docs/design.md]",
        "data.val_fraction=0",         "train.steps=10",
        "train.batch_size=4",          "train.seq_len=32"};
    tg_config *cfg = tg_config_create();
    teng_status status = tg_config_set(cfg, "run.dir", in_run(dir, ""));
    for (size_t i = 0; i < sizeof lines / sizeof *lines && status == TENG_OK; i++)
        status = tg_config_override(cfg, lines[i]);
    for (; *keys && status == TENG_OK; keys++)
        status = tg_config_override(cfg, *keys);
    if (status != TENG_OK) fail_msg("%s", teng_error());
    return cfg;
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void train(const char *dir, const char *const *keys, seen *s)
{
    tg_config *cfg = config(dir, keys);
    tg_run *run = NULL;
    teng_status status = tg_run_create(cfg, &run);
    if (status == TENG_OK) status = tg_run_train(run, on_event, s);
    if (status != TENG_OK && status != TENG_INTERRUPTED) fail_msg("%s", teng_error());
    teng_error_clear();
    tg_run_close(&run);
    tg_config_destroy(&cfg);
}

static tg_profile *read(const char *dir)
{
    tg_profile *p = NULL;
    if (tg_profile_read(in_run(dir, "profile.json"), &p) != TENG_OK) fail_msg("%s", teng_error());
    return p;
}

static const float *plain_losses(void)
{
    static seen s;
    if (s.loss[10] == 0) train("plain", KEYS("context.seed=1"), &s);
    return s.loss;
}

static void assert_losses(const seen *s)
{
    for (int step = 1; step <= 10; step++)
        if (memcmp(&s->loss[step], &plain_losses()[step], sizeof(float)) != 0)
            fail_msg("step %d differs", step);
}

/* Operators, host and gaps make the step; nothing is negative. */
static void assert_adds_up(const tg_profile *p, const trace_sums *t)
{
    double sum = p->gaps, rows = 0;
    for (int i = 0; i < TG_PROFILE_PARTS; i++) {
        assert_true(p->part[i] >= 0);
        sum += p->part[i];
    }
    for (size_t i = 0; i < p->rows.len; i++) {
        assert_true(p->rows.data[i].calls > 0 && p->rows.data[i].seconds >= 0);
        rows += p->rows.data[i].seconds;
    }
    assert_true(p->gaps >= 0);
    assert_true(fabs(sum - p->wall) < 1e-9);
    assert_true(fabs(t->step_us * 1e-6 - p->wall) < 1e-9);
    assert_true(fabs(t->operator_us * 1e-6 - rows) < 1e-9);
    assert_true(fabs((t->step_us - t->operator_us - t->host_us) * 1e-6 - p->gaps) < 1e-8);
}

static const tg_profile_row *row_of(const tg_profile *p, tg_profile_part part, const char *op,
                                    const char *layer)
{
    for (size_t i = 0; i < p->rows.len; i++) {
        const tg_profile_row *r = &p->rows.data[i];
        if (r->part == part && strcmp(r->op, op) == 0 && strcmp(r->layer, layer) == 0) return r;
    }
    fail_msg("no %s in %s of %s", op, layer, tg_profile_part_name(part));
    return NULL;
}

static void nothing_without_the_key(void **state)
{
    (void)state;
    plain_losses();
    assert_false(tg_path_exists(in_run("plain", "profile.json")));
    assert_false(tg_path_exists(in_run("plain", "trace.json")));
}

static void graph_with_all_kinds_of_work(void **state)
{
    (void)state;
    seen s = {0};
    train("graph",
          KEYS("profile.steps=4..6", "train.micro_batches=2", "train.eval_every=5", "checkpoint.every=6",
               "data.val_files=[" TG_SOURCE_DIR "/docs/article.md]", "train.eval_batches=2"),
          &s);
    tg_profile *p = read("graph");
    const trace_sums t = check_trace(in_run("graph", "trace.json"));
    assert_int_equal(p->n_steps, 3);
    assert_int_equal(p->first_step, 4);
    assert_int_equal(p->last_step, 6);
    assert_int_equal(t.steps, 3);
    assert_int_equal(t.phases, 3 * 5); /* forward and backward twice, the update once */
    assert_int_equal(t.threads, 1);
    assert_adds_up(p, &t);
    assert_true(p->part[TG_PROFILE_EVALUATION] > 0 && p->part[TG_PROFILE_CHECKPOINT] > 0);
    assert_true(p->part[TG_PROFILE_BOOKS] > 0);
    assert_true(p->cpu_seconds > 0);
    const tg_profile_row *r = row_of(p, TG_PROFILE_FORWARD, "matmul", "model.layers.1.mlp.down_proj");
    assert_int_equal(r->calls, 6);                   /* three steps, two micro-batches */
    assert_true(r->flops == 2.0 * 2 * 32 * 48 * 32); /* [2·32, 48] by [48, 32] */
    assert_true(r->bytes >= 4.0 * (2 * 32 * 48 + 48 * 32 + 2 * 32 * 32));
    assert_string_equal(r->dtype, "f32");
    assert_non_null(strstr(r->kernel, "oneDNN"));
    assert_non_null(strstr(r->shape, "f32[2,32,48]"));
    row_of(p, TG_PROFILE_BACKWARD, "matmul", "model.layers.1.mlp.down_proj");
    tg_profile_destroy(&p);
}

static void pynative_is_measured_too(void **state)
{
    (void)state;
    seen s = {0};
    train("pynative", KEYS("profile.steps=3", "context.mode=pynative"), &s);
    assert_losses(&s);
    assert_non_null(strstr(s.note, "profile of steps 3 written: teng profile "));
    tg_profile *p = read("pynative");
    const trace_sums t = check_trace(in_run("pynative", "trace.json"));
    assert_int_equal(p->n_steps, 1);
    assert_int_equal(t.phases, 3);
    assert_int_equal(t.counters, 1);
    assert_adds_up(p, &t);
    assert_int_equal(row_of(p, TG_PROFILE_FORWARD, "matmul", "model.layers.1.mlp.down_proj")->calls, 1);
    tg_strbuf text = {0};
    tg_profile_report(p, &text);
    assert_non_null(strstr(tg_strbuf_str(&text), "model.layers.0"));
    assert_non_null(strstr(tg_strbuf_str(&text), "1. "));
    tg_strbuf_free(&text);
    tg_profile_destroy(&p);
}

static void a_sink_is_measured(void **state)
{
    (void)state;
    seen s = {0};
    train("sink", KEYS("profile.steps=2..5", "data.sink=true", "data.sink_size=8"), &s);
    assert_losses(&s);
    tg_profile *p = read("sink");
    const trace_sums t = check_trace(in_run("sink", "trace.json"));
    assert_int_equal(p->n_steps, 4);
    assert_int_equal(t.steps, 4);
    assert_int_equal(t.threads, 2); /* books are kept on a thread of their own */
    assert_adds_up(p, &t);
    assert_true(p->aside > 0);
    tg_profile_destroy(&p);
}

static void recomputed_operators_are_marked(void **state)
{
    (void)state;
    seen s = {0};
    train("recompute", KEYS("profile.steps=2", "memory.recompute=full"), &s);
    tg_profile *p = read("recompute");
    int marked = 0;
    for (size_t i = 0; i < p->rows.len; i++) {
        marked += p->rows.data[i].recomputed;
        if (p->rows.data[i].recomputed) assert_int_equal(p->rows.data[i].part, TG_PROFILE_BACKWARD);
    }
    assert_true(marked > 0);
    tg_profile_destroy(&p);
}

static void a_run_that_ends_early_writes_what_there_is(void **state)
{
    (void)state;
    seen s = {.stop_at = 5};
    train("early", KEYS("profile.steps=4..9"), &s);
    tg_profile *p = read("early");
    assert_int_equal(p->n_steps, 2);
    assert_int_equal(p->last_step, 5);
    tg_profile_destroy(&p);

    tg_run *run = NULL;
    seen later = {0};
    assert_int_equal(tg_run_resume(in_run("early", ""), KEYS("profile.steps=2..3"), 1, &run), TENG_OK);
    assert_int_equal(tg_run_train(run, on_event, &later), TENG_OK);
    tg_run_close(&run);
    assert_string_equal(later.note, "profile.steps names steps that were done before: nothing is measured");
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
        cmocka_unit_test(nothing_without_the_key),
        cmocka_unit_test(graph_with_all_kinds_of_work),
        cmocka_unit_test(pynative_is_measured_too),
        cmocka_unit_test(a_sink_is_measured),
        cmocka_unit_test(recomputed_operators_are_marked),
        cmocka_unit_test(a_run_that_ends_early_writes_what_there_is),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
