/*
 * Runs and their folders, in this process: what is refused before anything is written, a run to its end,
 * resume bit for bit, stops, the lock, damaged checkpoints, saves that fail, sequence buckets, steps that are
 * not finite. The program killed at random moments: test_kill_resume.sh.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "train/run_impl.h"
#include "train/step.h"

#include "cmocka_all.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_STEPS 400

static char folder[] = "/tmp/teng-run-XXXXXX";

static char *in_folder(const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void set(tg_config *cfg, const char *key, const char *value)
{
    if (tg_config_set(cfg, key, value) != TENG_OK) fail_msg("%s", teng_error());
}

/* A small LLaMA on this project's documents; dir is below the test's folder. */
static tg_config *config(const char *dir)
{
    static const char *const lines[][2] = {
        {"model.model_type", "llama"},
        {"model.hidden_size", "32"},
        {"model.intermediate_size", "48"},
        {"model.num_hidden_layers", "2"},
        {"model.num_attention_heads", "4"},
        {"model.num_key_value_heads", "2"},
        {"model.tie_word_embeddings", "true"},
        {"data.val_fraction", "0"},
        {"data.files", "[" TG_SOURCE_DIR "/docs/design.md]"},
        {"train.steps", "12"},
        {"train.batch_size", "4"},
        {"train.seq_len", "32"},
        {"optimizer.lr", "1e-2"},
        {"checkpoint.every", "4"},
    };
    tg_config *cfg = tg_config_create();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        set(cfg, lines[i][0], lines[i][1]);
    set(cfg, "run.dir", in_folder(dir));
    return cfg;
}

/* ---- what a run told ---- */
typedef struct record {
    float loss[MAX_STEPS + 1]; /* by step */
    int steps, saved, failed, notes, evals, done;
    int64_t stop_at; /* tg_run_stop at that step */
    int64_t low_at;  /* files may not grow beyond `low` bytes from that step on … */
    rlim_t low;
    bool low_for_good; /* … until a save has failed, or to the end */
    char note[1024], failure[1024], path[512];
} record;

static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void on_event(void *user, const tg_run_event *e)
{
    record *r = user;
    if (e->kind == TG_RUN_STEP) {
        assert_true(e->step <= MAX_STEPS);
        r->loss[e->step] = (float)e->loss;
        r->steps++;
        if (e->step == r->stop_at) tg_run_stop();
        if (r->low && e->step == r->low_at) limit_files(r->low);
    }
    if (e->kind == TG_RUN_SAVED) r->saved++, snprintf(r->path, sizeof r->path, "%s", e->text);
    if (e->kind == TG_RUN_SAVE_FAILED) {
        r->failed++;
        snprintf(r->failure, sizeof r->failure, "%s", e->text);
        if (!r->low_for_good) limit_files(RLIM_INFINITY);
    }
    if (e->kind == TG_RUN_NOTE) r->notes++, snprintf(r->note, sizeof r->note, "%s", e->text);
    r->evals += e->kind == TG_RUN_EVAL;
    r->done += e->kind == TG_RUN_DONE;
}

static teng_status train(tg_run *run, record *r)
{
    const teng_status status = tg_run_train(run, on_event, r);
    limit_files(RLIM_INFINITY);
    return status;
}

static void assert_error(teng_status status, const char *text)
{
    assert_int_equal(teng_error_status(), status);
    if (!strstr(teng_error(), text)) fail_msg("\"%s\" is not in: %s", text, teng_error());
    teng_error_clear();
}

/* Trains cfg to its end, with expectations of the record left to the caller. Destroys cfg. */
static record run_to_end(tg_config *cfg)
{
    record r = {0};
    tg_run *run = NULL;
    if (tg_run_create(cfg, &run) != TENG_OK || train(run, &r) != TENG_OK) fail_msg("%s", teng_error());
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    return r;
}

static record resume_to_end(const char *dir, const char *const *overrides, size_t n)
{
    record r = {0};
    tg_run *run = NULL;
    if (tg_run_resume(in_folder(dir), overrides, n, &run) != TENG_OK || train(run, &r) != TENG_OK)
        fail_msg("%s", teng_error());
    tg_run_close(&run);
    return r;
}

static void assert_same_losses(const record *a, const record *b, int first, int last)
{
    for (int step = first; step <= last; step++)
        if (memcmp(&a->loss[step], &b->loss[step], sizeof(float)) != 0)
            fail_msg("step %d: loss %.9g, and %.9g undisturbed", step, (double)b->loss[step],
                     (double)a->loss[step]);
}

/* ---- refused ---- */
typedef struct refused {
    const char *key, *value, *message;
} refused;

static void write_file(const char *name, const void *data, size_t n)
{
    assert_int_equal(tg_file_write(in_folder(name), data, n), TENG_OK);
}

static void refusals_before_anything_is_written(void **state)
{
    (void)state;
    uint16_t tokens[2000];
    for (int i = 0; i < 2000; i++)
        tokens[i] = i % 2 ? 300 : 5;
    write_file("big.bin", tokens, sizeof tokens);
    write_file("short.txt", "short", 5);
    write_file("empty.txt", "", 0);
    char big[600], brief[600], empty[600];
    snprintf(big, sizeof big, "[%s]", in_folder("big.bin"));
    snprintf(brief, sizeof brief, "[%s]", in_folder("short.txt"));
    snprintf(empty, sizeof empty, "[%s]", in_folder("empty.txt"));
    const refused cases[] = {
        {"data.files", big, "big.bin: token 1 is 300, the vocabulary has 257 tokens (0 … 256)"},
        {"data.files", brief, "short.txt: the text is shorter than one sequence: 6 tokens, 33 are needed"},
        {"data.files", empty, "empty.txt: the inputs hold no text"},
        {"data.files", "[]", "data.files is empty"},
        {"data.files", "[missing.txt]", "no such file or folder: missing.txt"},
        {"data.tokenizer", "missing.json", "no such file or folder: missing.json"},
        {"model.from", "missing", "no such file or folder: missing"},
        {"model.vocab_size", "100", "the tokenizer has 257 tokens and the model's vocab_size is 100"},
        {"model.num_attention_heads", "5",
         "model.num_attention_heads = 5 does not divide model.hidden_size = 32"},
        {"model.num_key_value_heads", "3", "model.num_key_value_heads = 3"},
        {"train.micro_batches", "3", "cannot be cut into train.micro_batches = 3 equal pieces"},
        {"data.sink_size", "0",
         "data.sink_size = 0 is no number of steps; -1 stands for the rest of the epoch"},
        {"profile.steps", "10...12", "profile.steps = 10...12 is neither a step (10) nor a range of steps"},
        {"profile.steps", "0", "profile.steps = 0 is neither a step"},
        {"profile.steps", "12..10", "profile.steps = 12..10 is neither a step"},
        {"profile.steps", "10..13", "goes beyond the last step, train.steps = 12"},
        {"graph.passes", "[default, dcee]", "no pass is named \"dcee\"; did you mean \"dce\"?"},
        {"memory.budget", "100KiB", "too little. Parameters and optimizer take"},
        {"memory.budget", "100KiB", "no cut of the batch fits: one sequence at a time needs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_config *cfg = config("refused");
        tg_run *run = NULL;
        set(cfg, cases[i].key, cases[i].value);
        assert_int_not_equal(tg_run_create(cfg, &run), TENG_OK);
        assert_null(run);
        assert_error(teng_error_status(), cases[i].message);
        assert_false(tg_path_exists(cfg->run.dir));
        tg_config_destroy(&cfg);
    }
}

static void sequences_longer_than_the_positions(void **state)
{
    (void)state;
    tg_config *cfg = tg_config_create();
    tg_run *run = NULL;
    set(cfg, "run.dir", in_folder("refused"));
    set(cfg, "model.model_type", "gpt2");
    set(cfg, "model.n_positions", "16");
    set(cfg, "train.seq_len", "32");
    assert_int_equal(tg_run_create(cfg, &run), TENG_INVALID);
    assert_error(TENG_INVALID,
                 "train.seq_len = 32 is more than the model's positions, model.n_positions = 16");
    tg_config_destroy(&cfg);
}

static void unknown_keys(void **state)
{
    (void)state;
    tg_config *cfg = config("refused");
    assert_int_not_equal(tg_config_override(cfg, "train.stepz=4"), TENG_OK);
    assert_error(teng_error_status(), "unknown key \"train.stepz\"; did you mean \"train.steps\"?");
    tg_config_destroy(&cfg);
}

/* The cut that the message names does fit. */
static void budget_names_the_cut_that_fits(void **state)
{
    (void)state;
    tg_config *cfg = config("budget");
    tg_run *run = NULL;
    set(cfg, "train.batch_size", "16");
    set(cfg, "train.seq_len", "64");
    set(cfg, "memory.budget", "2MiB");
    assert_int_equal(tg_run_create(cfg, &run), TENG_MEMORY);
    const char *at = strstr(teng_error(), "train.micro_batches=");
    if (!at) fail_msg("%s", teng_error());
    const int pieces = atoi(at + 20);
    assert_true(pieces > 1 && 16 % pieces == 0);
    assert_error(TENG_MEMORY, "would fit: it needs ");
    char text[16];
    snprintf(text, sizeof text, "%d", pieces);
    set(cfg, "train.micro_batches", text);
    set(cfg, "train.steps", "2");
    const record r = run_to_end(cfg);
    assert_int_equal(r.steps, 2);
}

static void a_sink_needs_graph_mode(void **state)
{
    (void)state;
    tg_config *cfg = config("refused");
    tg_run *run = NULL;
    set(cfg, "data.sink", "true");
    set(cfg, "context.mode", "pynative");
    assert_int_equal(tg_run_create(cfg, &run), TENG_INVALID);
    assert_error(TENG_INVALID, "set context.mode = graph, or data.sink = false for context.mode = pynative");
    tg_config_destroy(&cfg);
}

static void keep_line(void *user, tg_log_level level, const char *line)
{
    if (level == TG_LOG_WARN) snprintf(user, 256, "%s", line);
}

static void budget_in_pynative_is_only_warned_about(void **state)
{
    (void)state;
    char line[256] = "";
    tg_config *cfg = config("budget-pynative");
    set(cfg, "context.mode", "pynative");
    set(cfg, "memory.budget", "1KiB");
    set(cfg, "train.steps", "1");
    tg_log_set_sink(keep_line, line);
    assert_int_equal(run_to_end(cfg).steps, 1);
    tg_log_set_sink(NULL, NULL);
    assert_non_null(strstr(line, "memory.budget is not checked: pynative mode plans nothing"));
}

/* ---- a run, its folder, resume ---- */
static const record *undisturbed(void)
{
    static record r;
    if (!r.steps) {
        tg_config *cfg = config("undisturbed");
        set(cfg, "train.steps", "20");
        r = run_to_end(cfg);
    }
    return &r;
}

static void a_run_fills_its_folder(void **state)
{
    (void)state;
    const record *r = undisturbed();
    assert_int_equal(r->steps, 20);
    assert_int_equal(r->done, 1);
    assert_true(r->saved >= 3 && r->failed == 0); /* 4, 8, 12, 16, 20 */
    assert_true(r->loss[20] < r->loss[1] - 1);
    static const char *const names[] = {
        "config.yaml",         "metrics.jsonl",           "tokenizer.json",
        "model/config.json",   "model/model.safetensors", "checkpoints/step-00000020",
        "model/tokenizer.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[100];
        snprintf(name, sizeof name, "undisturbed/%s", names[i]);
        if (!tg_path_exists(in_folder(name))) fail_msg("%s is missing", name);
    }
    assert_false(tg_path_exists(in_folder("undisturbed/checkpoints/step-00000008"))); /* keep_max is 3 */
    tg_metrics_series series = {0};
    assert_int_equal(tg_metrics_read(in_folder("undisturbed/metrics.jsonl"), &series), TENG_OK);
    assert_int_equal(series.train.len, 20);
    for (int i = 0; i < 20; i++)
        assert_memory_equal(&series.train.data[i].loss, &r->loss[i + 1], sizeof(float));
    tg_metrics_series_free(&series);
}

static void a_used_folder_is_refused(void **state)
{
    (void)state;
    undisturbed();
    tg_config *cfg = config("undisturbed");
    tg_run *run = NULL;
    assert_int_equal(tg_run_create(cfg, &run), TENG_STATE);
    assert_error(TENG_STATE, "undisturbed holds a run already: go on with it by `teng resume ");
    tg_config_destroy(&cfg);

    cfg = config("again");
    run_to_end(cfg);
    cfg = config("again");
    set(cfg, "run.overwrite", "true");
    set(cfg, "train.steps", "3");
    assert_int_equal(run_to_end(cfg).steps, 3);
    assert_false(tg_path_exists(in_folder("again/checkpoints/step-00000012")));
}

static void resume_continues_bit_for_bit(void **state)
{
    (void)state;
    static const char *const twenty[] = {"train.steps=20"}, *const eager[] = {"train.steps=20",
                                                                              "context.mode=pynative"};
    for (int mode = 0; mode < 2; mode++) {
        const char *dir = mode ? "resumed-eager" : "resumed";
        tg_config *cfg = config(dir);
        set(cfg, "train.steps", "20"); /* the schedule's length */
        record first = {.stop_at = 9}, second;
        tg_run *run = NULL;
        assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
        assert_int_equal(train(run, &first), TENG_INTERRUPTED);
        assert_error(TENG_INTERRUPTED, "stopped at step 9 of 20; everything is saved");
        tg_run_close(&run);
        tg_config_destroy(&cfg);
        second = resume_to_end(dir, mode ? eager : twenty, mode ? 2 : 1);
        assert_int_equal(first.steps, 9);
        assert_int_equal(second.steps, 11);
        assert_same_losses(undisturbed(), &first, 1, 9);
        assert_same_losses(undisturbed(), &second, 10, 20);
        tg_metrics_series series = {0};
        char name[64];
        snprintf(name, sizeof name, "%s/metrics.jsonl", dir);
        assert_int_equal(tg_metrics_read(in_folder(name), &series), TENG_OK);
        assert_int_equal(series.train.len, 20);
        tg_metrics_series_free(&series);
    }
}

static void resume_refuses(void **state)
{
    (void)state;
    undisturbed();
    tg_run *run = NULL;
    assert_int_equal(tg_run_resume(in_folder("nothing"), NULL, 0, &run), TENG_INVALID);
    assert_error(TENG_INVALID, "holds no run: there is no config.yaml in it");
    static const char *const keys[] = {"optimizer.lr=3", "model.hidden_size=64", "train.seq_len=64",
                                       "data.files=[x]"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tg_run_resume(in_folder("undisturbed"), &keys[i], 1, &run), TENG_INVALID);
        assert_error(TENG_INVALID, "cannot change when a run goes on");
    }
    const record r = resume_to_end("undisturbed", NULL, 0);
    assert_int_equal(r.steps, 0);
    assert_non_null(strstr(r.note, "all steps were done before; train.steps=N with a larger N goes on"));
}

static void resume_before_the_first_checkpoint(void **state)
{
    (void)state;
    tg_config *cfg = config("early");
    tg_run *run = NULL;
    set(cfg, "train.steps", "20");
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    const record r = resume_to_end("early", NULL, 0);
    assert_int_equal(r.steps, 20);
    assert_same_losses(undisturbed(), &r, 1, 20);
}

static void one_run_a_folder(void **state)
{
    (void)state;
    tg_config *cfg = config("locked");
    tg_run *run = NULL, *second = NULL;
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    assert_int_equal(tg_run_create(cfg, &second), TENG_STATE);
    assert_non_null(strstr(teng_error(), "locked is in use by another run"));
    assert_error(TENG_STATE, pid);
    assert_int_equal(tg_run_resume(cfg->run.dir, NULL, 0, &second), TENG_STATE);
    assert_error(TENG_STATE, "is in use by another run");
    record r = {0};
    assert_int_equal(train(run, &r), TENG_OK); /* the first one is unharmed */
    assert_int_equal(r.steps, 12);
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    resume_to_end("locked", NULL, 0); /* and the lock is gone */
}

/* ---- data sink ---- */
static void assert_same_files(const char *a, const char *b)
{
    char *one, *other;
    size_t n, m;
    assert_int_equal(tg_file_read(in_folder(a), &one, &n), TENG_OK);
    assert_int_equal(tg_file_read(in_folder(b), &other, &m), TENG_OK);
    assert_int_equal(n, m);
    assert_memory_equal(one, other, n);
    tg_free(one);
    tg_free(other);
}

/* Every step in metrics.jsonl, in order, each with the share that waiting for data took. */
static void assert_all_in_metrics(const char *name, int steps)
{
    char *text, *end, *line;
    int seen = 0;
    assert_int_equal(tg_file_read(in_folder(name), &text, NULL), TENG_OK);
    for (line = strtok_r(text, "\n", &end); line; line = strtok_r(NULL, "\n", &end)) {
        json_t *object = json_loads(line, 0, NULL);
        if (strcmp(json_string_value(json_object_get(object, "type")), "step") == 0) {
            const double wait = json_number_value(json_object_get(object, "data_wait"));
            assert_int_equal(json_integer_value(json_object_get(object, "step")), ++seen);
            assert_true(json_is_number(json_object_get(object, "data_wait")) && wait >= 0 && wait <= 1);
        }
        json_decref(object);
    }
    tg_free(text);
    assert_int_equal(seen, steps);
}

static void a_sink_changes_no_bit(void **state)
{
    (void)state;
    static const char *const sizes[] = {"1", "3", "100", "-1"};
    const record *plain = undisturbed();
    assert_all_in_metrics("undisturbed/metrics.jsonl", 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char dir[32], name[64];
        snprintf(dir, sizeof dir, "sink-%zu", i);
        tg_config *cfg = config(dir);
        set(cfg, "train.steps", "20");
        set(cfg, "data.sink", "true");
        set(cfg, "data.sink_size", sizes[i]);
        if (i == 2) set(cfg, "data.prefetch", "0");
        const record r = run_to_end(cfg);
        assert_int_equal(r.steps, 20);
        assert_true(r.saved >= 3); /* also in the middle of a sink */
        assert_same_losses(plain, &r, 1, 20);
        snprintf(name, sizeof name, "%s/metrics.jsonl", dir);
        assert_all_in_metrics(name, 20);
        snprintf(name, sizeof name, "%s/model/model.safetensors", dir);
        assert_same_files("undisturbed/model/model.safetensors", name);
    }
}

/* The stop comes from the thread that tells steps, while the sink runs on. */
static void a_stop_is_honoured_inside_a_sink(void **state)
{
    (void)state;
    tg_config *cfg = config("sink-plain");
    set(cfg, "train.steps", "150");
    const record plain = run_to_end(cfg);
    cfg = config("sink-stopped");
    set(cfg, "train.steps", "150");
    set(cfg, "data.sink", "true");
    set(cfg, "data.sink_size", "150");
    set(cfg, "checkpoint.every", "0");
    record first = {.stop_at = 5}, second;
    tg_run *run = NULL;
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    assert_int_equal(train(run, &first), TENG_INTERRUPTED);
    assert_error(TENG_INTERRUPTED, "of 150; everything is saved");
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    assert_true(first.steps >= 5 && first.steps < 150);
    second = resume_to_end("sink-stopped", NULL, 0);
    assert_int_equal(first.steps + second.steps, 150);
    assert_same_losses(&plain, &first, 1, first.steps);
    assert_same_losses(&plain, &second, first.steps + 1, 150);
    assert_all_in_metrics("sink-stopped/metrics.jsonl", 150);
    assert_same_files("sink-plain/model/model.safetensors", "sink-stopped/model/model.safetensors");
}

/* An evaluation cuts the sink at its step: it scores the same weights. */
static void an_evaluation_cuts_a_sink(void **state)
{
    (void)state;
    double loss[2];
    for (int sink = 0; sink < 2; sink++) {
        const char *dir = sink ? "eval-sink" : "eval-plain";
        char name[64];
        tg_config *cfg = config(dir);
        set(cfg, "data.val_files", "[" TG_SOURCE_DIR "/docs/article.md]");
        set(cfg, "train.eval_every", "5");
        set(cfg, "train.eval_batches", "2");
        set(cfg, "data.sink", sink ? "true" : "false");
        assert_int_equal(run_to_end(cfg).evals, 3); /* 5, 10 and the end */
        tg_metrics_series series = {0};
        snprintf(name, sizeof name, "%s/metrics.jsonl", dir);
        assert_int_equal(tg_metrics_read(in_folder(name), &series), TENG_OK);
        assert_int_equal(series.eval.len, 3);
        assert_int_equal(series.eval.data[0].step, 5);
        loss[sink] = (double)series.eval.data[0].loss;
        tg_metrics_series_free(&series);
    }
    assert_true(loss[0] == loss[1]);
}

/* ---- damage ---- */
static void truncate_file(const char *name)
{
    char *data;
    size_t n;
    assert_int_equal(tg_file_read(in_folder(name), &data, &n), TENG_OK);
    assert_int_equal(tg_file_write(in_folder(name), data, n / 2), TENG_OK);
    tg_free(data);
}

static void flip_byte(const char *name)
{
    char *data;
    size_t n;
    assert_int_equal(tg_file_read(in_folder(name), &data, &n), TENG_OK);
    data[n - 7] = (char)(data[n - 7] ^ 1);
    assert_int_equal(tg_file_write(in_folder(name), data, n), TENG_OK);
    tg_free(data);
}

static void damaged_checkpoints_are_named(void **state)
{
    (void)state;
    tg_config *cfg = config("damaged");
    tg_run *run = NULL;
    run_to_end(cfg);
    flip_byte("damaged/checkpoints/step-00000012/model.safetensors");
    assert_int_equal(tg_run_resume(in_folder("damaged"), NULL, 0, &run), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "step-00000012"));
    assert_error(TENG_FORMAT, "step-00000008"); /* the newest whole one */
    truncate_file("damaged/checkpoints/step-00000012/optimizer.safetensors");
    assert_int_equal(tg_run_resume(in_folder("damaged"), NULL, 0, &run), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "step-00000012"));
    assert_error(TENG_FORMAT, "step-00000008");
    /* As the message says: without the damaged one the run goes on from the older one. */
    assert_int_equal(tg_remove_tree(in_folder("damaged/checkpoints/step-00000012")), TENG_OK);
    const record r = resume_to_end("damaged", NULL, 0);
    assert_int_equal(r.steps, 4);
}

/* ---- saves that fail ---- */
static void a_failed_save_is_told_and_tried_again(void **state)
{
    (void)state;
    static const char *const async[] = {"true", "false"};
    for (int i = 0; i < 2; i++) {
        tg_config *cfg = config(i ? "full-sync" : "full-async");
        tg_run *run = NULL;
        record r = {.low_at = 3, .low = 40000};
        set(cfg, "train.steps", "20");
        set(cfg, "checkpoint.async", async[i]);
        assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
        if (train(run, &r) != TENG_OK) fail_msg("%s", teng_error());
        assert_true(r.failed >= 1 && r.saved >= 2);
        if (!strstr(r.failure, "File too large") || !strstr(r.failure, "step-0000000"))
            fail_msg("%s", r.failure);
        assert_same_losses(undisturbed(), &r, 1, 20); /* training went on as if nothing had been */
        assert_int_equal(tg_run_step(run), 20);
        tg_run_close(&run);
        char *latest = NULL;
        assert_int_equal(
            tg_ckpt_latest(in_folder(i ? "full-sync/checkpoints" : "full-async/checkpoints"), false, &latest),
            TENG_OK);
        assert_non_null(strstr(latest, "step-00000020"));
        tg_free(latest);
        tg_config_destroy(&cfg);
    }
}

static void a_last_save_that_fails_fails_the_run(void **state)
{
    (void)state;
    tg_config *cfg = config("full-end");
    tg_run *run = NULL;
    record r = {.low_at = 10, .low = 40000, .low_for_good = true};
    set(cfg, "train.steps", "20");
    set(cfg, "checkpoint.async", "false"); /* step 8 is on disk when step 10 begins */
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    assert_int_equal(train(run, &r), TENG_IO);
    assert_non_null(strstr(teng_error(), "goes on from the last whole checkpoint"));
    assert_error(TENG_IO, "the checkpoint of step 20 was not saved: ");
    assert_int_equal(r.done, 0);
    assert_non_null(strstr(r.failure, "the checkpoint of step 16 was not saved: "));
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    const record again = resume_to_end("full-end", NULL, 0); /* from step 8 */
    assert_int_equal(again.steps, 12);
    assert_same_losses(undisturbed(), &again, 9, 20);
}

/* ---- the rest ---- */
static void two_sequence_lengths(void **state)
{
    (void)state;
    tg_config *cfg = config("buckets");
    tg_run *run = NULL;
    record r = {0};
    set(cfg, "data.seq_buckets", "[16, 32]");
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    if (train(run, &r) != TENG_OK) fail_msg("%s", teng_error());
    assert_int_equal(run->core->step->compiled.len, 2);
    const int64_t a = run->core->step->compiled.data[0].in[0].dims[1],
                  b = run->core->step->compiled.data[1].in[0].dims[1];
    assert_true((a == 16 && b == 32) || (a == 32 && b == 16));
    assert_int_equal(run->core->tokens, 6 * 4 * 16 + 6 * 4 * 32);
    tg_run_close(&run);
    tg_config_destroy(&cfg);
}

static void evaluation_on_what_is_held_back(void **state)
{
    (void)state;
    tg_config *cfg = config("eval");
    tg_run *run = NULL;
    record r = {0};
    double loss, bits;
    set(cfg, "data.files", "[" TG_SOURCE_DIR "/docs, " TG_SOURCE_DIR "/tests]");
    set(cfg, "data.val_fraction", "0.3");
    set(cfg, "train.eval_every", "5");
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    if (train(run, &r) != TENG_OK) fail_msg("%s", teng_error());
    assert_int_equal(r.evals, 3); /* 5, 10 and the end */
    if (tg_run_eval(run, &loss, &bits) != TENG_OK) fail_msg("%s", teng_error());
    assert_true(fabs(bits - loss / log(2)) < 0.05 * bits); /* a token is a byte, but for the ends of texts */
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    cfg = config("no-eval");
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    assert_int_equal(tg_run_eval(run, &loss, &bits), TENG_INVALID);
    assert_error(TENG_INVALID, "nothing is held back");
    tg_run_close(&run);
    tg_config_destroy(&cfg);
}

static void steps_that_stay_infinite_end_the_run(void **state)
{
    (void)state;
    tg_config *cfg = config("infinite");
    tg_run *run = NULL;
    record r = {0};
    set(cfg, "train.steps", "300");
    set(cfg, "optimizer.name", "sgd");
    set(cfg, "optimizer.lr", "1e30");
    set(cfg, "optimizer.clip_norm", "0");
    set(cfg, "schedule.name", "constant");
    set(cfg, "schedule.warmup_steps", "0");
    set(cfg, "checkpoint.every", "0");
    assert_int_equal(tg_run_create(cfg, &run), TENG_OK);
    assert_int_equal(train(run, &r), TENG_NUMERIC);
    assert_error(TENG_NUMERIC,
                 "100 steps in a row had a loss or gradient that is not finite: lower optimizer.lr");
    assert_non_null(strstr(r.note, "was dropped: loss "));
    assert_true(r.notes >= 100 && r.steps < 200);
    tg_run_close(&run);
    tg_config_destroy(&cfg);
}

static void listings_of_a_plan(void **state)
{
    (void)state;
    static const char *const whats[][2] = {{"summary", "model                 llama"},
                                           {"graph", "graph train\n"},
                                           {"dot", "digraph \"train\""},
                                           {"plan", "forward: "},
                                           {"memory", "activation block "},
                                           {"memory-svg", ">peak "},
                                           {"memory", "activations then, by layer"},
                                           {"json", "\"flops_per_token\""}};
    for (size_t i = 0; i < sizeof whats / sizeof *whats; i++) {
        tg_config *cfg = config("plan");
        tg_strbuf out = {0};
        if (tg_run_plan_text(cfg, 0, whats[i][0], &out) != TENG_OK) fail_msg("%s", teng_error());
        if (!strstr(tg_strbuf_str(&out), whats[i][1])) fail_msg("%s", tg_strbuf_str(&out));
        assert_int_equal(tg_run_plan_text(cfg, 0, "recipe", &out), TENG_INVALID);
        assert_error(TENG_INVALID, "there is no listing \"recipe\"");
        set(cfg, "memory.budget", "1KiB");
        assert_int_equal(tg_run_plan_text(cfg, 0, "plan", &out), TENG_MEMORY);
        assert_error(TENG_MEMORY, "no cut of the batch fits");
        tg_strbuf_free(&out);
        assert_false(tg_path_exists(cfg->run.dir));
        tg_config_destroy(&cfg);
    }
}

static int make_folder(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, as a full disk is */
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
        cmocka_unit_test(refusals_before_anything_is_written),
        cmocka_unit_test(sequences_longer_than_the_positions),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(budget_names_the_cut_that_fits),
        cmocka_unit_test(a_sink_needs_graph_mode),
        cmocka_unit_test(budget_in_pynative_is_only_warned_about),
        cmocka_unit_test(a_run_fills_its_folder),
        cmocka_unit_test(a_used_folder_is_refused),
        cmocka_unit_test(resume_continues_bit_for_bit),
        cmocka_unit_test(resume_refuses),
        cmocka_unit_test(resume_before_the_first_checkpoint),
        cmocka_unit_test(one_run_a_folder),
        cmocka_unit_test(a_sink_changes_no_bit),
        cmocka_unit_test(a_stop_is_honoured_inside_a_sink),
        cmocka_unit_test(an_evaluation_cuts_a_sink),
        cmocka_unit_test(damaged_checkpoints_are_named),
        cmocka_unit_test(a_failed_save_is_told_and_tried_again),
        cmocka_unit_test(a_last_save_that_fails_fails_the_run),
        cmocka_unit_test(two_sequence_lengths),
        cmocka_unit_test(evaluation_on_what_is_held_back),
        cmocka_unit_test(steps_that_stay_infinite_end_the_run),
        cmocka_unit_test(listings_of_a_plan),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
