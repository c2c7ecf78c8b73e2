/* The table of commands itself, the parser where a shell cannot reach, and docs/commands.md. With --write
 * FILE it writes that page instead. */
#include "base/fail.h"
#include "base/file.h"
#include "cli/command.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static int make_arena(void **state)
{
    teng_error_clear();
    *state = tg_arena_create();
    return *state ? 0 : -1;
}

static int free_arena(void **state)
{
    tg_arena *arena = *state;
    tg_arena_destroy(&arena);
    return 0;
}

/* What the parser, the help and the man pages rely on. */
static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < TG_CLI_COMMAND_COUNT; i++) {
        const tg_cli_command *c = &tg_cli_commands[i];
        assert_ptr_equal(tg_cli_command_find(c->name), c);
        assert_true(c->brief[strlen(c->brief) - 1] == '.' && c->details[strlen(c->details) - 1] == '.');
        assert_null(strchr(c->details, '|'));
        assert_int_equal(strncmp(c->examples, "teng ", 5) == 0 || strstr(c->examples, "teng completion"), 1);
        assert_true(c->max_words < 0 || c->min_words <= c->max_words);
        int n = 0;
        for (const tg_cli_option *o = NULL; (o = tg_cli_option_next(c, o)); n++) {
            char name[TG_OPTION_NAME];
            assert_ptr_equal(tg_cli_option_find(c, tg_cli_option_name(o, name) + 2), o);
            assert_true(o->key.help[strlen(o->key.help) - 1] == '.');
            assert_true(o->key.offset + sizeof(bool) <= c->args_size);
            assert_int_equal(*o->meta == '\0', o->key.kind == TG_KIND_BOOL);
        }
        assert_true(n < 31); /* room in the parser's list of names */
        const char *space = strchr(c->name, ' ');
        if (!space) continue;
        char group[TG_OPTION_NAME];
        snprintf(group, sizeof group, "%.*s", (int)(space - c->name), c->name);
        assert_non_null(tg_cli_group_find(group));
    }
    /* the same word means the same everywhere, but for the steps of a plan, which are listed, and those that
     * are made */
    for (int i = 0; i < tg_cli_option_count; i++)
        for (int j = 0; j < i; j++) {
            const tg_cli_option *a = &tg_cli_options[i], *b = &tg_cli_options[j];
            if (strcmp(a->key.name, b->key.name) == 0 && strcmp(a->key.name, "steps") != 0)
                assert_int_equal(a->key.kind, b->key.kind);
        }
}

static tg_cli_call parse(void **state, int argc, const char **argv)
{
    tg_cli_call call;
    teng_status status = tg_cli_parse(*state, argc, (char *const *)(uintptr_t)argv, &call);
    if (status != TENG_OK) fail_msg("%s", teng_error());
    return call;
}
#define PARSE(...)                                                                                           \
    parse(state, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__})

static void test_values(void **state)
{
    tg_cli_call call = PARSE("generate", "--top-k", "40", "dir", "--top-p=0.5", "--json", "--prompt", "-x");
    const tg_args_generate *g = call.args;
    assert_string_equal(g->base.words[0], "dir");
    assert_int_equal(g->base.n_words, 1);
    assert_int_equal(g->top_k, 40);
    assert_true(g->top_p == 0.5 && g->temperature == 0.8);
    assert_true(g->json);
    assert_string_equal(g->prompt, "-x");
    assert_null(g->prompt_file);
    assert_int_equal(g->max_tokens, 128);
    assert_string_equal(g->device, "cpu");
}

static void test_mixed(void **state)
{
    tg_cli_call call = PARSE("train", "train.steps=3", "./a=b.yaml", "--quiet", "seed=1");
    const tg_args_train *t = call.args;
    assert_int_equal(t->base.n_words, 1);
    assert_string_equal(t->base.words[0], "./a=b.yaml");
    assert_int_equal(t->base.n_keys, 2);
    assert_string_equal(t->base.keys[0], "train.steps=3");
    assert_string_equal(t->base.keys[1], "seed=1");
    assert_true(t->quiet);
    call = PARSE("plot", "--out", "x", "--", "--log", "a=b");
    const tg_args_plot *p = call.args;
    assert_false(p->log);
    assert_int_equal(p->base.n_words, 2); /* no keys here */
    assert_string_equal(p->base.words[0], "--log");
}

static void test_lists(void **state)
{
    tg_cli_call call = PARSE("tokenizer", "train", "--out", "o", "f");
    const tg_args_tokenizer_train *t = call.args;
    assert_int_equal(t->special.count, 1);
    assert_string_equal(t->special.items[0], "<|endoftext|>");
    call = PARSE("tokenizer", "train", "--out", "o", "f", "--special", "a", "--special=b");
    t = call.args;
    assert_int_equal(t->special.count, 2);
    assert_string_equal(t->special.items[1], "b");
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    tg_arena *arena = tg_arena_create();
    const char *argv[] = {"train", "a.yaml"};
    tg_cli_call call;
    tg_alloc_fail_at(1);
    teng_status status = tg_cli_parse(arena, 2, (char *const *)(uintptr_t)argv, &call);
    tg_alloc_fail_at(0);
    assert_int_equal(status, TENG_MEMORY);
    tg_arena_destroy(&arena);
}

static char *page(void)
{
    tg_strbuf text = {0};
    tg_cli_help_markdown(&text);
    return tg_strbuf_take(&text);
}

static void test_page_is_current(void **state)
{
    (void)state;
    char *made = page(), *kept = NULL;
    assert_int_equal(tg_file_read(TG_SOURCE_DIR "/docs/commands.md", &kept, NULL), TENG_OK);
    if (strcmp(made, kept) != 0)
        fail_msg("docs/commands.md is not what commands.def says; write it anew: test_cli_args --write "
                 "docs/commands.md");
    tg_free(made);
    tg_free(kept);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        char *made = page();
        teng_status s = made ? tg_file_write(argv[2], made, strlen(made)) : teng_error_status();
        if (s != TENG_OK) fprintf(stderr, "%s\n", teng_error());
        tg_free(made);
        return s == TENG_OK ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_table, make_arena, free_arena),
        cmocka_unit_test_setup_teardown(test_values, make_arena, free_arena),
        cmocka_unit_test_setup_teardown(test_mixed, make_arena, free_arena),
        cmocka_unit_test_setup_teardown(test_lists, make_arena, free_arena),
        cmocka_unit_test_setup_teardown(test_memory_runs_out, make_arena, free_arena),
        cmocka_unit_test_setup_teardown(test_page_is_current, make_arena, free_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
