/* The table of keys itself, and what is made of it: help, documentation, completion. With --write FILE it
 * writes the documentation instead. */
#include "base/fail.h"
#include "base/file.h"
#include "config/config_key.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static int clear(void **state)
{
    (void)state;
    teng_error_clear();
    return 0;
}

static void has(const char *text, const char *words)
{
    if (!text || !strstr(text, words)) fail_msg("\"%s\" is not in:\n%s", words, text ? text : teng_error());
}

/* What the rest of the room relies on. */
static void test_table(void **state)
{
    (void)state;
    tg_config *cfg = tg_config_create();
    assert_non_null(cfg); /* every default reads and is in range */
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        char range[TG_RANGE_TEXT];
        size_t section = (size_t)(tg_config_key_leaf(key) - key->name);
        assert_ptr_equal(tg_config_key_find(key->name), key); /* no name twice */
        assert_true(*key->help && key->help[strlen(key->help) - 1] == '.');
        assert_null(strchr(key->help, '|')); /* a table cell of the page */
        assert_true(strlen(tg_config_range_text(key, range)) < TG_RANGE_TEXT - 1);
        char end = *key->range ? key->range[strlen(key->range) - 1] : ')';
        bool interval = *key->range == '[' || *key->range == '(';
        assert_true(!interval || ((end == ')' || end == ']') && strstr(key->range, ", ")));
        bool number = key->kind == TG_KIND_INT || key->kind == TG_KIND_REAL || key->kind == TG_KIND_OPT_INT ||
                      key->kind == TG_KIND_OPT_REAL || key->kind == TG_KIND_INTS;
        if (number) assert_true(interval);
        bool optional = key->kind >= TG_KIND_OPT_INT && key->kind <= TG_KIND_OPT_BOOL;
        if (optional) assert_string_equal(key->def, "null");
        /* a section's keys stand together, or the printed YAML would open it twice */
        bool seen = false, left = false;
        for (size_t j = 0; j < TG_CONFIG_KEY_COUNT; j++) {
            bool in = strncmp(tg_config_keys[j].name, key->name, section) == 0;
            assert_false(in && left);
            seen = seen || in;
            left = seen && !in;
        }
        if (i > 0 && tg_config_keys[i - 1].kind == key->kind && key->kind != TG_KIND_BOOL)
            assert_true(tg_config_keys[i - 1].offset < key->offset);
    }
    tg_config_destroy(&cfg);
}

static void test_text(void **state)
{
    (void)state;
    char *text = tg_config_help(TG_CONFIG_TEXT, NULL);
    has(text, "[train] The run itself.\n");
    has(text, "train.steps: whole number, at least 1 (default 1000)\n    Optimizer steps.\n");
    has(text, "context.mode: one of graph, pynative (default graph)\n");
    has(text, "data.tokenizer: path, or the word bytes (default bytes)\n");
    has(text, "model.hidden_size: whole number, from 1 to 1048576 (default unset)\n");
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        if (*line == ' ') assert_true(strcspn(line, "\n") <= 100);
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++)
        has(text, tg_config_keys[i].name);
    tg_free(text);

    text = tg_config_help(TG_CONFIG_TEXT, "train.steps");
    assert_string_equal(text, "[train] The run itself.\n"
                              "train.steps: whole number, at least 1 (default 1000)\n    Optimizer steps.\n");
    tg_free(text);
    text = tg_config_help(TG_CONFIG_TEXT, "model");
    has(text, "\n[model.rope_scaling] How rotary");
    assert_null(strstr(text, "train.steps:"));
    tg_free(text);
    assert_null(tg_config_help(TG_CONFIG_TEXT, "train.step"));
    has(teng_error(), "no configuration key or section \"train.step\"; did you mean \"train.steps\"?");
}

static void test_json(void **state)
{
    (void)state;
    char *text = tg_config_help(TG_CONFIG_JSON, NULL);
    json_t *list = NULL;
    assert_int_equal(tg_json_parse("help", text, strlen(text), &list), TENG_OK);
    assert_int_equal(json_array_size(list), TG_CONFIG_KEY_COUNT);
    json_t *first = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(first, "key")), "run.dir");
    assert_string_equal(json_string_value(json_object_get(first, "default")), "runs/default");
    json_decref(list);
    tg_free(text);
}

static void test_page_is_current(void **state)
{
    (void)state;
    char *page = tg_config_help(TG_CONFIG_MARKDOWN, NULL), *kept = NULL;
    assert_int_equal(tg_file_read(TG_SOURCE_DIR "/docs/configuration.md", &kept, NULL), TENG_OK);
    if (strcmp(page, kept) != 0)
        fail_msg("docs/configuration.md is not what config.def says; write it anew: test_config_help --write "
                 "docs/configuration.md");
    tg_free(page);
    tg_free(kept);
}

static void completes(const char *word, const char *want)
{
    char *got = tg_config_complete(word);
    assert_string_equal(got, want);
    tg_free(got);
}

static void test_completion(void **state)
{
    (void)state;
    completes("train.st", "train.steps=\n");
    completes("train.e", "train.eval_every=\ntrain.eval_batches=\n");
    completes("context.mode=", "context.mode=graph\ncontext.mode=pynative\n");
    completes("context.mode=p", "context.mode=pynative\n");
    completes("run.overwrite=", "run.overwrite=true\nrun.overwrite=false\n");
    completes("model.tie_word_embeddings=f", "model.tie_word_embeddings=false\n");
    completes("context.cpu_isa=v4", "context.cpu_isa=v4\ncontext.cpu_isa=v4bf\n");
    completes("data.tokenizer=b", "data.tokenizer=bytes\n");
    completes("data.tokenizer=x", "");
    completes("train.steps=", "");
    completes("nothing", "");
    char *all = tg_config_complete("");
    size_t lines = 0;
    for (const char *c = all; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, TG_CONFIG_KEY_COUNT);
    tg_free(all);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        char *page = tg_config_help(TG_CONFIG_MARKDOWN, NULL);
        teng_status s = page ? tg_file_write(argv[2], page, strlen(page)) : teng_error_status();
        if (s != TENG_OK) fprintf(stderr, "%s\n", teng_error());
        tg_free(page);
        return s == TENG_OK ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_table, clear),      cmocka_unit_test_setup(test_text, clear),
        cmocka_unit_test_setup(test_json, clear),       cmocka_unit_test_setup(test_page_is_current, clear),
        cmocka_unit_test_setup(test_completion, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
