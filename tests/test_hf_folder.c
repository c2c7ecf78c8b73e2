/* Model folders: JSON kept as it was, weights single or sharded, replaced as a whole, foreign folders
 * refused. */
#include "ckpt/hf_folder.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int enter(void **state)
{
    (void)state;
    return scratch_enter("test_hf_folder");
}

static int leave(void **state)
{
    (void)state;
    return scratch_leave();
}

static void put(const char *name, const char *text)
{
    assert_ok(tg_file_write(in_dir(name), text, strlen(text)));
}

static void assert_content(const char *name, const char *expected)
{
    char *text;
    assert_ok(tg_file_read(in_dir(name), &text, NULL));
    assert_string_equal(text, expected);
    tg_free(text);
}

static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const char config_text[] =
    "{\"zeta\":1,\"model_type\":\"llama\",\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
    "\"eos_token_id\":[1,2],\"x\":{\"b\":null,\"a\":true}}";

static json_t *parse(const char *text)
{
    json_t *value;
    assert_ok(tg_json_parse("text", text, strlen(text), &value));
    return value;
}

static void save(uint64_t shard_bytes, tg_hf_folder more)
{
    tg_ckpt_item items[2] = {
        {.name = "b", .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){4}), .data = values},
        {.name = "a", .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){4}), .data = values + 4},
    };
    json_t *config = parse(config_text);
    more.config = config;
    more.items = items;
    more.item_count = 2;
    more.shard_bytes = shard_bytes;
    assert_ok(tg_hf_save(in_dir("out/model/"), &more)); /* parents are made; a final slash does no harm */
    assert_false(tg_path_exists(in_dir("out/model.saving")));
    json_decref(config);
}

static void check_weights(void)
{
    tg_weights *w;
    assert_ok(tg_weights_open(in_dir("out/model"), &w));
    assert_int_equal(tg_weights_count(w), 2);
    assert_memory_equal(tg_weights_find(w, "b")->data, values, 16);
    assert_memory_equal(tg_weights_find(w, "a")->data, values + 4, 16);
    tg_weights_close(&w);
}

static void round_trip(void **state)
{
    (void)state;
    json_t *generation = parse("{\"temperature\":0.6,\"unknown\":[]}"), *back;
    const char *extra[] = {in_dir("README.md")};
    put("README.md", "read me");
    assert_ok(tg_mkdirs(in_dir("tok")));
    put("tok/tokenizer.json", "{}");
    put("tok/merges.txt", "a b");
    put("tok/other.txt", "not copied");
    save(0, (tg_hf_folder){.generation_config = generation,
                           .tokenizer_dir = in_dir("tok"),
                           .extra_files = extra,
                           .extra_count = 1});
    json_decref(generation);
    check_weights();
    assert_content("out/model/README.md", "read me");
    assert_content("out/model/tokenizer.json", "{}");
    assert_content("out/model/merges.txt", "a b");
    assert_false(tg_path_exists(in_dir("out/model/other.txt")));

    assert_ok(tg_hf_read_config(in_dir("out/model"), &back));
    char *text = tg_json_text(back, 0);
    assert_string_equal(text, config_text); /* every key, in its order, every number as it was */
    tg_free(text);
    json_decref(back);
    assert_ok(tg_hf_read_generation_config(in_dir("out/model"), &back));
    text = tg_json_text(back, 0);
    assert_string_equal(text, "{\"temperature\":0.6,\"unknown\":[]}");
    tg_free(text);
    json_decref(back);

    tg_st_file *f;
    assert_ok(tg_st_open(in_dir("out/model/model.safetensors"), &f));
    assert_string_equal(tg_st_metadata(f, "format"), "pt");
    tg_st_close(&f);
}

static void saved_over_an_older_model(void **state)
{
    (void)state;
    save(0, (tg_hf_folder){0});
    put("out/model/notes.txt", "mine");
    assert_ok(tg_mkdirs(in_dir("out/model/original")));
    put("out/model/original/params.json", "[]");
    save(16, (tg_hf_folder){0}); /* now in two shards: the single file must go, or readers would prefer it */
    check_weights();
    assert_false(tg_path_exists(in_dir("out/model/model.safetensors")));
    assert_true(tg_path_exists(in_dir("out/model/model.safetensors.index.json")));
    assert_content("out/model/notes.txt", "mine");
    assert_content("out/model/original/params.json", "[]");
    save(0, (tg_hf_folder){.tokenizer_dir = in_dir("out/model")}); /* and back, its own folder as a source */
    check_weights();
    assert_false(tg_path_exists(in_dir("out/model/model.safetensors.index.json")));
    assert_false(tg_path_exists(in_dir("out/model/model-00001-of-00002.safetensors")));
    assert_content("out/model/notes.txt", "mine");
    assert_content("out/model/original/params.json", "[]");
    assert_true(tg_path_exists(in_dir("out/model/config.json")));
}

static void refusals(void **state)
{
    (void)state;
    json_t *config = parse(config_text), *list = json_array(), *out;
    tg_hf_folder folder = {.config = config};
    assert_ok(tg_mkdirs(in_dir("home")));
    put("home/thesis.tex", "years of work");
    assert_error(tg_hf_save(in_dir("home"), &folder), TENG_INVALID, "home: the folder has other content");
    assert_content("home/thesis.tex", "years of work");
    assert_error(tg_hf_save(in_dir("home/thesis.tex"), &folder), TENG_IO, "a file of that name exists");
    folder.config = list;
    assert_error(tg_hf_save(in_dir("new"), &folder), TENG_INVALID, "must be a JSON object");
    folder.config = config;
    const char *missing[] = {in_dir("absent.json")};
    folder.extra_files = missing;
    folder.extra_count = 1;
    assert_error(tg_hf_save(in_dir("new"), &folder), TENG_IO, "absent.json");
    assert_false(tg_path_exists(in_dir("new")) || tg_path_exists(in_dir("new.saving")));

    assert_error(tg_hf_read_config(in_dir("home"), &out), TENG_IO, "home: config.json is missing");
    assert_ok(tg_hf_read_generation_config(in_dir("home"), &out));
    assert_null(out);
    put("home/config.json", "[1]");
    assert_error(tg_hf_read_config(in_dir("home"), &out), TENG_FORMAT, "config.json: a JSON object");
    assert_null(out);
    put("home/config.json", "{\"a\":\n oops}");
    assert_error(tg_hf_read_config(in_dir("home"), &out), TENG_FORMAT, "config.json:2:");
    assert_null(out);
    json_decref(config);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, enter, leave),
        cmocka_unit_test_setup_teardown(saved_over_an_older_model, enter, leave),
        cmocka_unit_test_setup_teardown(refusals, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
