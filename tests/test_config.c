/* Configuration values: defaults, YAML, overrides, the place and words of every refusal, and that what is
 * printed loads to identical values. */
#include "base/fail.h"
#include "base/file.h"
#include "base/rng.h"
#include "config/config_key.h"

#include "cmocka_all.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tg_config *cfg;

static int setup(void **state)
{
    (void)state;
    teng_error_clear();
    cfg = tg_config_create();
    return cfg ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tg_config_destroy(&cfg);
    teng_error_clear();
    tg_alloc_fail_at(0);
    return cfg ? -1 : 0;
}

static void load(const char *text)
{
    if (tg_config_parse(cfg, "f.yaml", text, strlen(text)) != TENG_OK) fail_msg("%s", teng_error());
}

/* The message begins with place and holds words. */
static void check_message(teng_status status, teng_status want, const char *place, const char *words)
{
    if (status != want || strncmp(teng_error(), place, strlen(place)) != 0 || !strstr(teng_error(), words))
        fail_msg("wanted %s \"%s … %s\", got %s \"%s\"", teng_status_name(want), place, words,
                 teng_status_name(status), teng_error());
    teng_error_clear();
}

static void refuses(const char *text, const char *place, const char *words)
{
    check_message(tg_config_parse(cfg, "f.yaml", text, strlen(text)), TENG_INVALID, place, words);
}

static void refuses_yaml(const char *text, const char *place, const char *words)
{
    check_message(tg_config_parse(cfg, "f.yaml", text, strlen(text)), TENG_FORMAT, place, words);
}

static void override(const char *word)
{
    if (tg_config_override(cfg, word) != TENG_OK) fail_msg("%s", teng_error());
}

static void refuses_word(const char *word, const char *words)
{
    check_message(tg_config_override(cfg, word), TENG_INVALID, "command line: ", words);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_string_equal(cfg->run.dir, "runs/default");
    assert_int_equal(cfg->context.mode, TG_CFG_MODE_GRAPH);
    assert_int_equal(cfg->train.steps, 1000);
    assert_true(cfg->optimizer.lr == 3e-4);
    assert_true(cfg->checkpoint.async);
    assert_int_equal(cfg->data.files.count, 0);
    assert_null(cfg->model.model_type);
    assert_false(cfg->model.hidden_size.set);
    assert_int_equal(cfg->graph.passes.count, 1);
    assert_string_equal(cfg->graph.passes.items[0], "default");
    assert_string_equal(cfg->data.text_field, "text");
    char buf[TG_CONFIG_SOURCE_TEXT];
    assert_string_equal(tg_config_source_text(cfg, "train.steps", buf), "default");
    assert_false(tg_config_is_given(cfg, "train.steps"));
}

static void test_kinds(void **state)
{
    (void)state;
    load("train:\n"
         "  steps: 1_000_000   # comment\n"
         "  max_seconds: 2.5\n"
         "optimizer: {lr: 2E-5, nesterov: true, name: sgd}\n"
         "memory.budget: 1.5GiB\n"
         "data:\n"
         "  files:\n"
         "    - a.txt\n"
         "    - \"b c.txt\"\n"
         "  val_files: one.txt\n"
         "  seq_buckets: [32, 64]\n"
         "  tokenizer: bytes\n"
         "  text_field: 'Once: upon'\n"
         "model:\n"
         "  hidden_size: 64\n"
         "  rope_scaling:\n"
         "    factor: 8\n"
         "  attention_bias: false\n"
         "schedule:\n"
         "checkpoint:\n"
         "  # all defaults\n");
    assert_int_equal(cfg->train.steps, 1000000);
    assert_true(cfg->train.max_seconds == 2.5);
    assert_string_equal(cfg->data.text_field, "Once: upon");
    assert_true(cfg->optimizer.lr == 2e-5);
    assert_true(cfg->optimizer.nesterov);
    assert_int_equal(cfg->optimizer.name, TG_CFG_OPTIMIZER_SGD);
    assert_int_equal(cfg->memory.budget, 3ull << 29);
    assert_int_equal(cfg->data.files.count, 2);
    assert_string_equal(cfg->data.files.items[1], "b c.txt");
    assert_int_equal(cfg->data.val_files.count, 1);
    assert_int_equal(cfg->data.seq_buckets.count, 2);
    assert_int_equal(cfg->data.seq_buckets.items[1], 64);
    assert_string_equal(cfg->data.tokenizer, "bytes");
    assert_true(cfg->model.hidden_size.set);
    assert_int_equal(cfg->model.hidden_size.value, 64);
    assert_true(cfg->model.rope_scaling.factor.value == 8);
    assert_true(cfg->model.attention_bias.set && !cfg->model.attention_bias.value);
    char buf[TG_CONFIG_SOURCE_TEXT];
    assert_string_equal(tg_config_source_text(cfg, "train.steps", buf), "f.yaml:2:10");
    assert_string_equal(tg_config_source_text(cfg, "model.rope_scaling.factor", buf), "f.yaml:17:13");
    assert_true(tg_config_is_given(cfg, "data.files"));
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1024", 1024},
                {"512MiB", 512ull << 20},
                {"2 GiB", 2ull << 30},
                {"1.5GB", 1500000000},
                {"3kB", 3000},
                {"7B", 7},
                {"8388607TiB", 8388607ull << 40}};
    static const char *const bad[] = {
        "", "GiB", "-1", "1XB", "8388608TiB", "1e3", "1.2.3", "99999999999999999999", "1 "};
    uint64_t v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char buf[32];
        assert_true(tg_config_read_size(good[i].text, &v));
        assert_int_equal(v, good[i].bytes);
        assert_true(tg_config_read_size(tg_config_size_text(buf, v), &v));
        assert_int_equal(v, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (tg_config_read_size(bad[i], &v)) fail_msg("\"%s\" was read as a size", bad[i]);
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const bad_int[] = {"",   "1.0", "0x10", "1e3", "12a",
                                          "_1", "1_",  "1__0", "+",   "9223372036854775808"};
    static const char *const bad_real[] = {"", "nan", "inf", "0x1p3", "1e999", "1,5", ".", "1 2", "-"};
    int64_t n;
    double x;
    for (size_t i = 0; i < sizeof bad_int / sizeof *bad_int; i++)
        if (tg_config_read_int(bad_int[i], &n)) fail_msg("\"%s\" was read as a whole number", bad_int[i]);
    for (size_t i = 0; i < sizeof bad_real / sizeof *bad_real; i++)
        if (tg_config_read_real(bad_real[i], &x)) fail_msg("\"%s\" was read as a number", bad_real[i]);
    assert_true(tg_config_read_int("-9223372036854775808", &n) && n == INT64_MIN);
    uint64_t key = tg_rng_key(1, "test_numbers");
    for (uint64_t i = 0; i < 2000; i++) { /* any double reads back to itself */
        char buf[32];
        union {
            uint64_t u;
            double d;
        } bits = {tg_rng_below(key, i, UINT64_MAX)};
        if (!(bits.d - bits.d == 0)) continue;
        assert_true(tg_config_read_real(tg_config_real_text(buf, bits.d), &x));
        assert_true(x == bits.d);
    }
}

/* A program that uses a locale with a decimal comma reads and prints the same. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    const char *got = NULL;
    for (size_t i = 0; i < 3 && !got; i++)
        got = setlocale(LC_ALL, names[i]);
    if (!got) skip(); /* the machine has none of them */
    double x;
    char buf[32];
    bool read = tg_config_read_real("0.25", &x);
    tg_config_real_text(buf, 0.25);
    setlocale(LC_ALL, "C");
    assert_true(read && x == 0.25);
    assert_string_equal(buf, "0.25");
}

static void test_unknown_keys(void **state)
{
    (void)state;
    refuses("train:\n  seq_lenn: 5\n",
            "f.yaml:2:3: ", "unknown key \"train.seq_lenn\"; did you mean \"train.seq_len\"?");
    refuses("a: 1\ntrain.lr: 5\n", "f.yaml:1:1: ", "unknown key \"a\"");
    refuses("train.lr: 5\n", "f.yaml:1:1: ", "did you mean \"optimizer.lr\"?");
    refuses("seq_len: 5\n", "f.yaml:1:1: ", "did you mean \"train.seq_len\"?");
    refuses("learning: {hiden_size: 1}\n", "f.yaml:1:1: ", "unknown key \"learning\"");
    refuses("model:\n  rope_scaling:\n    factr: 2\n",
            "f.yaml:3:5: ", "did you mean \"model.rope_scaling.factor\"?");
    refuses("zzzzzzzz: {}\n", "f.yaml:1:1: ", "`teng config` lists every key");
    refuses_word("train.step=5", "unknown key \"train.step\"; did you mean \"train.steps\"?");
    check_message(tg_config_set(cfg, "train.step", "5"), TENG_INVALID,
                  "program: ", "did you mean \"train.steps\"?");
}

static void test_wrong_types(void **state)
{
    (void)state;
    refuses("train:\n  steps: many\n",
            "f.yaml:2:10: train.steps: ", "\"many\" is not of the type wanted: whole number, at least 1");
    refuses("train:\n  steps: 1.5\n", "f.yaml:2:10: ", "whole number");
    refuses("train:\n  steps: \"20\"\n", "f.yaml:2:10: ", "the quoted text \"20\"");
    refuses("train:\n  steps:\n",
            "f.yaml:", "train.steps has no value; wanted: whole number, at least 1 (default 1000)");
    refuses("train:\n  steps: [1, 2]\n", "f.yaml:2:10: ", "a list is given where one value is wanted");
    refuses("train:\n  steps: {a: 1}\n", "f.yaml:2:10: ", "a map is given where one value is wanted");
    refuses("train: 5\n", "f.yaml:1:1: ", "\"train\" is a section");
    refuses("train: [5]\n", "f.yaml:1:1: ", "\"train\" is a section");
    refuses("optimizer.lr: fast\n", "f.yaml:1:15: ", "number, at least 0");
    refuses("run.overwrite: yes\n", "f.yaml:1:16: ", "true or false");
    refuses("memory.budget: lots\n", "f.yaml:1:16: ", "2GiB");
    refuses("data.seq_buckets: [1, x]\n", "f.yaml:1:23: ", "list of whole numbers");
}

static void test_out_of_range(void **state)
{
    (void)state;
    refuses("train:\n  steps: 0\n",
            "f.yaml:2:10: ", "train.steps = 0 is out of range; it must be at least 1");
    refuses("optimizer.beta1: 1\n", "f.yaml:1:18: ", "it must be at least 0, below 1");
    refuses("optimizer.eps: 0\n", "f.yaml:1:16: ", "it must be above 0");
    refuses("schedule.min_lr_ratio: 1.5\n", "f.yaml:1:24: ", "it must be from 0 to 1");
    refuses("model.vocab_size: 0\n", "f.yaml:1:19: ", "it must be from 1 to 16777216");
    refuses("schedule.decay_fraction: 0\n", "f.yaml:1:26: ", "it must be above 0, at most 1");
    refuses("data.seq_buckets: [16, 0]\n", "f.yaml:1:24: ", "data.seq_buckets = 0 is out of range");
    refuses("context.mode: grap\n", "f.yaml:1:15: ",
            "context.mode = \"grap\" is not one of: graph, pynative; did you mean \"graph\"?");
    refuses("context.device: gpu\n", "f.yaml:1:17: ", "context.device = \"gpu\" is not one of: cpu");
    refuses("model.model_type: lama\n", "f.yaml:1:19: ", "llama, gpt2");
    refuses("data.tokenizer: ''\n", "f.yaml:1:17: ", "data.tokenizer is an empty path");
    refuses_word("train.steps=-3", "train.steps = -3 is out of range");
}

static void test_duplicates(void **state)
{
    (void)state;
    refuses("train:\n  steps: 5\n  seq_len: 8\n  steps: 6\n",
            "f.yaml:4:3: ", "train.steps is given twice; the first is in line 2");
    refuses("train: {steps: 5}\ntrain.steps: 6\n", "f.yaml:2:1: ", "given twice");
    refuses("base: a.yaml\nbase: b.yaml\n", "f.yaml:2:7: ", "base is given twice");
    override("train.steps=5");
    refuses_word("train.steps=6", "train.steps is given twice");
    assert_int_equal(cfg->train.steps, 5);
}

static void test_broken_yaml(void **state)
{
    (void)state;
    refuses_yaml("train:\n  steps: [1\n", "f.yaml:3:1: not YAML: ", "flow sequence");
    refuses_yaml("train:\n\tsteps: 1\n", "f.yaml:2:1: not YAML: ", "token");
    refuses_yaml("train:\n  seq_len: &a 5\n", "f.yaml:2:12: ", "anchors");
    refuses_yaml("train:\n  seq_len: *a\n", "f.yaml:2:12: ", "aliases");
    refuses_yaml("train:\n  seq_len: !!int 5\n", "f.yaml:2:12: ", "tags");
    refuses_yaml("train: {}\n---\ntrain: {}\n", "f.yaml:2:1: ", "second document");
    refuses_yaml("[a, b]\n", "f.yaml:1:1: ", "map of sections");
    refuses_yaml("words\n", "f.yaml:1:1: ", "map of sections");
    refuses_yaml("? [a]\n: b\n", "f.yaml:1:3: ", "a key must be a word");
    refuses_yaml("data.files: [[a]]\n", "f.yaml:1:14: ", "no lists or maps");
    refuses_yaml("run.dir: \"a\\0b\"\n", "f.yaml:1:10: ", "zero byte");
    refuses_yaml("run.dir: \xff\n", "f.yaml: not YAML text", "byte 9");
    refuses_yaml("{a: {a: {a: {a: {a: {a: {a: {a: {a: 1}}}}}}}}}\n", "f.yaml:1:33: ", "nested too deeply");
    char *big = calloc(1, 2000000);
    memset(big, '#', 1999999);
    refuses_yaml(big, "f.yaml: ", "at most 1048576");
    free(big);
}

static void test_nothing(void **state)
{
    (void)state;
    load("");
    load("# only a comment\n");
    load("---\n");
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++)
        assert_null(cfg->sources[i].file);
}

static void test_overrides(void **state)
{
    (void)state;
    load("train: {steps: 5, seq_len: 7}\nmodel.head_dim: 16\nmodel.model_type: llama\n");
    override("train.steps=20");
    override("run.dir=My runs: #1 [x]"); /* shells have eaten the quotes */
    override("data.separator='it''s'");
    override("data.files=[a.txt, 'b, c.txt']");
    override("data.val_files=d, e.txt");
    override("model.head_dim=null");
    override("model.model_type=null");
    override("data.seq_buckets=16");
    override("graph.passes=[]");
    override("optimizer.lr=1e-3");
    assert_int_equal(cfg->train.steps, 20);
    assert_int_equal(cfg->train.seq_len, 7);
    assert_string_equal(cfg->run.dir, "My runs: #1 [x]");
    assert_string_equal(cfg->data.separator, "it's");
    assert_int_equal(cfg->data.files.count, 2);
    assert_string_equal(cfg->data.files.items[1], "b, c.txt");
    assert_string_equal(cfg->data.val_files.items[0], "d, e.txt");
    assert_false(cfg->model.head_dim.set);
    assert_null(cfg->model.model_type);
    assert_int_equal(cfg->data.seq_buckets.count, 1);
    assert_int_equal(cfg->graph.passes.count, 0);
    char buf[TG_CONFIG_SOURCE_TEXT];
    assert_string_equal(tg_config_source_text(cfg, "train.steps", buf), "command line");
    assert_int_equal(tg_config_set(cfg, "train.steps", "30"), TENG_OK);
    assert_int_equal(tg_config_set(cfg, "train.steps", "31"), TENG_OK);
    assert_int_equal(cfg->train.steps, 31);
    assert_string_equal(tg_config_source_text(cfg, "train.steps", buf), "program");
    refuses_word("train.steps", "\"train.steps\" is no override; write key=value");
    refuses_word("=5", "is no override");
    refuses_word("train=5", "\"train\" is a section; name one of its keys, as train.key=value");
    refuses_word("train.seq_len=", "train.seq_len has no value");
    refuses_word("data.text_field=\xff\xfe", "data.text_field is not valid UTF-8");
    check_message(tg_config_override(cfg, "train.seq_len={a: 1}"), TENG_FORMAT, "train.seq_len: command line",
                  "a map is given");
    check_message(tg_config_override(cfg, "train.seq_len=[1"), TENG_FORMAT, "train.seq_len: command line",
                  "not YAML");
    override("train.log_every=9");
}

/* --- files --- */

static char folder[64];

static void write_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(tg_file_write(path, text, strlen(text)), TENG_OK);
}

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/teng-config-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    return setup(state);
}

static int remove_folder(void **state)
{
    return tg_remove_tree(folder) == TENG_OK ? teardown(state) : -1;
}

static void test_base(void **state)
{
    (void)state;
    char path[200], buf[TG_CONFIG_SOURCE_TEXT], want[300];
    snprintf(path, sizeof path, "%s/sub", folder);
    assert_int_equal(tg_mkdirs(path), TENG_OK);
    write_file("root.yaml", "train: {steps: 1, seq_len: 2, batch_size: 3}\n");
    write_file("mid.yaml", "base: root.yaml\ntrain: {seq_len: 20}\n");
    write_file("sub/top.yaml", "train:\n  batch_size: 300\nbase: ../mid.yaml\n");
    snprintf(path, sizeof path, "%s/sub/top.yaml", folder);
    if (tg_config_load(cfg, path) != TENG_OK) fail_msg("%s", teng_error());
    assert_int_equal(cfg->train.steps, 1);
    assert_int_equal(cfg->train.seq_len, 20);
    assert_int_equal(cfg->train.batch_size, 300);
    snprintf(want, sizeof want, "%s/sub/../root.yaml:1:16", folder);
    assert_string_equal(tg_config_source_text(cfg, "train.steps", buf), want);

    write_file("loop.yaml", "base: loop.yaml\n");
    snprintf(path, sizeof path, "%s/loop.yaml", folder);
    check_message(tg_config_load(cfg, path), TENG_INVALID, path, "does one name itself?");
    write_file("lost.yaml", "\nbase: nowhere.yaml\n");
    snprintf(path, sizeof path, "%s/lost.yaml:2:7: base: ", folder);
    snprintf(want, sizeof want, "%s/lost.yaml", folder);
    check_message(tg_config_load(cfg, want), TENG_IO, path, "nowhere.yaml");
    refuses("base: [a]\n", "f.yaml:1:7: ", "the path of one YAML file");
    check_message(tg_config_load(cfg, "no/such.yaml"), TENG_IO, "", "no/such.yaml");
}

static void test_no_data(void **state)
{
    (void)state;
    check_message(tg_config_check_files(cfg), TENG_INVALID, "default: data.files is empty",
                  "(data.files=[a.txt, b.txt])");
}

static void test_paths(void **state)
{
    (void)state;
    char path[200], want[5000], old[4096], real[4096];
    assert_non_null(getcwd(old, sizeof old));
    assert_non_null(realpath(folder, real));
    snprintf(path, sizeof path, "%s/configs", folder);
    assert_int_equal(tg_mkdirs(path), TENG_OK);
    write_file("configs/x.yaml", "data.files: [near.txt, ../up.txt, here.txt, both.txt, nowhere.txt, ..]\n"
                                 "data.tokenizer: bytes\nmodel.from: /absolute/model\n");
    static const char *const files[] = {"configs/near.txt", "up.txt", "here.txt", "both.txt",
                                        "configs/both.txt"};
    for (size_t i = 0; i < 5; i++)
        write_file(files[i], "x");
    assert_int_equal(chdir(folder), 0);
    teng_status s = tg_config_load(cfg, "configs/x.yaml");
    teng_status s2 = tg_config_override(cfg, "data.val_files=[here.txt, near.txt]");
    teng_status s3 = tg_config_check_files(cfg);
    assert_int_equal(chdir(old), 0);
    assert_int_equal(s, TENG_OK);
    assert_int_equal(s2, TENG_OK);
    const char *const ends[] = {"/configs/near.txt", "/up.txt", "/here.txt", "/configs/both.txt"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(want, sizeof want, "%s%s", real, ends[i]);
        assert_string_equal(cfg->data.files.items[i], want);
    }
    assert_string_equal(cfg->data.files.items[4], "nowhere.txt");
    assert_string_equal(cfg->data.files.items[5], real);
    assert_string_equal(cfg->data.tokenizer, "bytes");
    assert_string_equal(cfg->model.from, "/absolute/model");
    snprintf(want, sizeof want, "%s/here.txt", real);
    assert_string_equal(cfg->data.val_files.items[0], want);
    assert_string_equal(cfg->data.val_files.items[1], "near.txt");
    check_message(s3, TENG_INVALID,
                  "configs/x.yaml:3:13: model.from: ", "no such file or folder: /absolute/model");
    override("model.from=null");
    check_message(tg_config_check_files(cfg), TENG_INVALID, "configs/x.yaml:1:13: data.files: ",
                  "nowhere.txt, neither in the folder of configs/x.yaml nor in the current directory");
    override("data.files=[]");
    check_message(tg_config_check_files(cfg), TENG_INVALID,
                  "command line: data.val_files: ", "near.txt in the current directory");
}

/* --- printed and loaded again --- */

static char *values_of(const tg_config *c)
{
    tg_strbuf out = {0};
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        tg_strbuf_printf(&out, "%s = ", tg_config_keys[i].name);
        json_t *v = tg_config_value_json(c, &tg_config_keys[i]);
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        tg_strbuf_printf(&out, "%s\n", text);
        free(text);
        json_decref(v);
    }
    return tg_strbuf_take(&out);
}

static void check_frozen(void)
{
    char *text = tg_config_yaml(cfg), *before = values_of(cfg);
    assert_non_null(text);
    tg_config *again = tg_config_create();
    if (tg_config_parse(again, "again.yaml", text, strlen(text)) != TENG_OK)
        fail_msg("%s\nin:\n%s", teng_error(), text);
    char *after = values_of(again);
    assert_string_equal(before, after);
    tg_config_destroy(&again);
    tg_free(text);
    tg_free(before);
    tg_free(after);
}

/* Every key with a value that is not its default. */
static void set_all(void)
{
    static const char *const by_kind[TG_KIND_COUNT] = {
        [TG_KIND_INT] = "3",          [TG_KIND_REAL] = "0.30000000000000004",
        [TG_KIND_BOOL] = "true",      [TG_KIND_STRING] = "a b",
        [TG_KIND_PATH] = "x y.json",  [TG_KIND_SIZE] = "3GiB",
        [TG_KIND_STRINGS] = "[a, b]", [TG_KIND_PATHS] = "[p, 'q r', é]",
        [TG_KIND_INTS] = "[1, 2]",    [TG_KIND_OPT_INT] = "5",
        [TG_KIND_OPT_REAL] = "1e-5",  [TG_KIND_OPT_BOOL] = "true",
    };
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        const char *value = by_kind[key->kind];
        char word[64];
        if (key->kind == TG_KIND_ENUM) value = key->choices[strcmp(key->def, key->choices[1]) == 0 ? 0 : 1];
        if ((key->kind == TG_KIND_STRING || key->kind == TG_KIND_STRINGS) && *key->range) {
            const char *last = strrchr(key->range, '|');
            snprintf(word, sizeof word, "%s", last ? last + 1 : key->range);
            value = word;
        }
        if (key->kind == TG_KIND_BOOL && strcmp(key->def, "true") == 0) value = "false";
        if (key->kind == TG_KIND_OPT_REAL && key->range[1] == '1') value = "1.25";
        if (key->kind == TG_KIND_INT && strcmp(key->def, "3") == 0) value = "4";
        if (tg_config_set(cfg, key->name, value) != TENG_OK) fail_msg("%s", teng_error());
    }
}

static void test_frozen(void **state)
{
    (void)state;
    check_frozen();
    char *defaults = values_of(cfg);
    set_all();
    char *changed = values_of(cfg);
    size_t same = 0;
    for (char *a = defaults, *b = changed; *a;) { /* each line differs, or the check below proves nothing */
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n == m && memcmp(a, b, n) == 0) same++;
        a += n + 1;
        b += m + 1;
    }
    assert_int_equal(same, 1); /* context.device has one choice */
    tg_free(defaults);
    tg_free(changed);
    check_frozen();
}

static void test_frozen_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "null",
        "~",
        "true",
        "12",
        "1e5",
        "-",
        "- a",
        "a: b",
        "#x",
        "a #b",
        "\"q\"",
        "it's",
        "\\n",
        "l1\nl2",
        "\t",
        "\x01\x1f\x7f",
        "a\rb",
        "Grüße, 世界 🙂",
        "\xc2\x85",
        "\xe2\x80\xa8",
        "\xef\xbb\xbf",
        "[a, b]",
        "{a}",
        "!t",
        "&a",
        "*a",
        "%x",
        "@x",
        "`x",
        "...",
        "---",
        "'",
        "a,b",
        "\xef\xbf\xbf",
        "\xc2\xa0",
        "? x",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tg_config_item item = {.text = texts[i]};
        tg_config_entry entry = {.items = &item, .count = 1};
        const tg_config_key *key = tg_config_key_find("data.text_field");
        assert_int_equal(tg_config_store(cfg, key, &entry, "program", NULL), TENG_OK);
        assert_string_equal(cfg->data.text_field, texts[i]);
        if (*texts[i]) {
            key = tg_config_key_find("data.files");
            assert_int_equal(tg_config_store(cfg, key, &entry, "program", NULL), TENG_OK);
        }
        check_frozen();
    }
}

static void test_printed(void **state)
{
    (void)state;
    load("train:\n  steps: 5\nmodel.rope_scaling.factor: 2\n");
    override("optimizer.lr=0.001");
    char *text = tg_config_yaml(cfg);
    static const char *const lines[] = {
        "train:\n  steps: 5  # f.yaml:2:10\n",
        "model:\n  rope_scaling:\n    factor: 2  # f.yaml:3:28\n",
        "  lr: 0.001  # command line\n",
        "\nrun:\n  dir: runs/default  # default\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i])) fail_msg("\"%s\" is not in:\n%s", lines[i], text);
    tg_free(text);

    json_t *all = tg_config_json(cfg);
    assert_int_equal(json_object_size(all), TG_CONFIG_KEY_COUNT);
    json_t *steps = json_object_get(all, "train.steps");
    assert_int_equal(json_integer_value(json_object_get(steps, "value")), 5);
    assert_string_equal(json_string_value(json_object_get(steps, "source")), "f.yaml:2:10");
    assert_true(json_is_null(json_object_get(json_object_get(all, "model.from"), "value")));
    json_decref(all);
}

static void test_model_json(void **state)
{
    (void)state;
    load("model:\n  from: somewhere\n  model_type: llama\n  hidden_size: 64\n  rms_norm_eps: 1e-5\n"
         "  tie_word_embeddings: false\n  rope_scaling: {rope_type: llama3, factor: 8}\n");
    json_t *m = tg_config_model_json(cfg);
    json_t *want = json_pack("{s:s, s:i, s:f, s:b, s:{s:s, s:f}}", "model_type", "llama", "hidden_size", 64,
                             "rms_norm_eps", 1e-5, "tie_word_embeddings", 0, "rope_scaling", "rope_type",
                             "llama3", "factor", 8.0);
    assert_true(json_equal(m, want));
    json_decref(want);
    json_decref(m);
}

/* Whichever allocation fails, the answer is an error and nothing is lost or leaked. */
static void test_out_of_memory(void **state)
{
    (void)state;
    static const char text[] = "train: {steps: 5}\ndata.files: [a, b, c, d, e, f, g, h, i]\nrun.dir: x\n";
    int failures = 0;
    for (uint64_t n = 1; n < 100; n++) {
        tg_alloc_fail_at(n);
        tg_config *c = tg_config_create();
        teng_status s = c ? tg_config_parse(c, "f.yaml", text, sizeof text - 1) : TENG_MEMORY;
        char *yaml = s == TENG_OK ? tg_config_yaml(c) : NULL;
        tg_alloc_fail_at(0);
        bool failed = !yaml;
        failures += failed;
        assert_true(!failed || teng_error_status() == TENG_MEMORY);
        teng_error_clear();
        tg_free(yaml);
        tg_config_destroy(&c);
        if (!failed) break;
        assert_true(n < 99);
    }
    assert_true(failures >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locale, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_types, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_range, setup, teardown),
        cmocka_unit_test_setup_teardown(test_duplicates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_yaml, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overrides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_base, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_data, setup, teardown),
        cmocka_unit_test_setup_teardown(test_paths, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_frozen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frozen_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
