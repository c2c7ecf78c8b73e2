/* tokenizer.json: what is refused and with which words, what is kept, tiktoken files, running out of memory.
 */
#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer.h"

#include "cmocka_all.h"

#include <string.h>

static int nothing_pending(void **state)
{
    (void)state;
    return *teng_error() != '\0';
}

#define GOOD_MODEL                                                                                           \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"

/* What is refused, with which status and which words. */
static const struct {
    const char *text;
    teng_status status;
    const char *says[3];
} refused[] = {
    {"", TENG_FORMAT, {"t.json", "empty"}},
    {"{\"model\": ", TENG_FORMAT, {"t.json:1:", "JSON"}},
    {"[1]", TENG_FORMAT, {"t.json", "not a JSON object"}},
    {"{}", TENG_FORMAT, {"no object \"model\""}},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", TENG_UNSUPPORTED, {"\"Unigram\"", "BPE is"}},
    {"{\"model\": {\"vocab\": 3, \"merges\": []}}", TENG_FORMAT, {"model.vocab is not an object"}},
    {"{\"model\": {\"vocab\": {}, \"merges\": []}}", TENG_FORMAT, {"holds no token"}},
    {"{\"model\": {\"vocab\": {\"a\": \"x\"}, \"merges\": []}}", TENG_FORMAT, {"\"a\" is not an integer"}},
    {"{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}", TENG_FORMAT, {"\"a\"", "-1"}},
    {"{\"model\": {\"vocab\": {\"a\": 4000000000}, \"merges\": []}}", TENG_FORMAT, {"4000000000", "4194303"}},
    {"{\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
     TENG_FORMAT,
     {"id 0 belongs to two", "\"b\""}},
    {"{\"model\": {\"vocab\": {\"a\": 0}}}", TENG_FORMAT, {"merges is not a list"}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}", TENG_FORMAT, {"merges[0]", "\"aa\""}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}",
     TENG_FORMAT,
     {"merges[0] needs the token \"aa\""}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"z\"]]}}",
     TENG_FORMAT,
     {"merges[0] needs the token \"z\""}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [7]}}", TENG_FORMAT, {"merges[0] is neither"}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}}",
     TENG_UNSUPPORTED,
     {"dropout 0.1"}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"<u>\"}}",
     TENG_FORMAT,
     {"\"<u>\" is not in"}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"continuing_subword_prefix\": \"##\"}}",
     TENG_UNSUPPORTED,
     {"continuing_subword_prefix \"##\""}},
    {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"}}",
     TENG_UNSUPPORTED,
     {"end_of_word_suffix \"</w>\""}},
    {"{\"normalizer\": {\"type\": \"Lowercase\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"normalizer of type \"Lowercase\""}},
    {"{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x\"}, \"content\": "
     "\"\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"Regex"}},
    {"{\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"pre_tokenizer of type \"BertPreTokenizer\""}},
    {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
     "\"Isolated\"}, " GOOD_MODEL "}",
     TENG_FORMAT,
     {"\"(\" is not a regular expression", "offset 1"}},
    {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a[b]]\"}, \"behavior\": "
     "\"Isolated\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"nested"}},
    {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"x\"}, \"behavior\": "
     "\"Odd\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"behavior \"Odd\""}},
    {"{\"decoder\": {\"type\": \"WordPiece\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"decoder of type \"WordPiece\""}},
    {"{\"post_processor\": {\"type\": \"BertProcessing\"}, " GOOD_MODEL "}",
     TENG_UNSUPPORTED,
     {"post_processor of type \"BertProcessing\""}},
    {"{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
     "\"<s>\"}}]}, " GOOD_MODEL "}",
     TENG_FORMAT,
     {"single[0] names no token"}},
    {"{\"added_tokens\": {}, " GOOD_MODEL "}", TENG_FORMAT, {"added_tokens is not a list"}},
    {"{\"added_tokens\": [{\"id\": 5}], " GOOD_MODEL "}", TENG_FORMAT, {"added_tokens[0]", "content"}},
    {"{\"added_tokens\": [{\"id\": 1, \"content\": \"x\"}], " GOOD_MODEL "}",
     TENG_FORMAT,
     {"added_tokens[0]: id 1 belongs to another"}},
    {"{\"added_tokens\": [{\"id\": 9, \"content\": \"ab\"}], " GOOD_MODEL "}",
     TENG_FORMAT,
     {"has id 9, model.vocab gives it 2"}},
    {"{\"added_tokens\": [{\"id\": 9, \"content\": \"x\"}, {\"id\": 9, \"content\": \"y\"}], " GOOD_MODEL "}",
     TENG_FORMAT,
     {"added_tokens[1]", "id 9"}},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tg_tokenizer *t = NULL;
        teng_error_clear();
        teng_status status = tg_tokenizer_parse("t.json", refused[i].text, strlen(refused[i].text), &t);
        if (status != refused[i].status || t)
            fail_msg("%s: %s (%s)", refused[i].text, teng_status_name(status), teng_error());
        for (int k = 0; k < 3 && refused[i].says[k]; k++) {
            if (!strstr(teng_error(), refused[i].says[k]))
                fail_msg("%s: \"%s\" lacks \"%s\"", refused[i].text, teng_error(), refused[i].says[k]);
        }
    }
    teng_error_clear();
}

static void missing_files(void **state)
{
    (void)state;
    tg_tokenizer *t = NULL;
    assert_int_equal(tg_tokenizer_load("no/such/tokenizer.json", &t), TENG_IO);
    assert_non_null(strstr(teng_error(), "no/such/tokenizer.json"));
    teng_error_clear();
    assert_int_equal(tg_mkdirs("empty-folder"), TENG_OK);
    assert_int_equal(tg_tokenizer_load("empty-folder", &t), TENG_IO);
    assert_non_null(strstr(teng_error(), "empty-folder/tokenizer.json"));
    teng_error_clear();
}

static void folder_with_config(void **state)
{
    (void)state;
    static const char text[] = "{\"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", \"special\": true}, "
                               "{\"id\": 4, \"content\": \"<b>\"}], " GOOD_MODEL "}";
    static const char config[] =
        "{\"eos_token\": {\"content\": \"<e>\"}, \"bos_token\": \"<b>\", \"pad_token\": null}";
    tg_tokenizer *t;
    char *saved;
    assert_int_equal(tg_mkdirs("with-config"), TENG_OK);
    assert_int_equal(tg_file_write("with-config/tokenizer.json", text, strlen(text)), TENG_OK);
    assert_int_equal(tg_file_write("with-config/tokenizer_config.json", config, strlen(config)), TENG_OK);
    assert_int_equal(tg_tokenizer_load("with-config", &t), TENG_OK);
    assert_int_equal(tg_tokenizer_eos(t), 3);
    assert_int_equal(tg_tokenizer_bos(t), 4);
    /* What is saved is what was read, to the byte. */
    assert_int_equal(tg_tokenizer_save(t, "with-config/copy.json"), TENG_OK);
    assert_int_equal(tg_file_read("with-config/copy.json", &saved, NULL), TENG_OK);
    assert_string_equal(saved, text);
    tg_free(saved);
    json_t *info = tg_tokenizer_info_json(t);
    assert_int_equal(json_integer_value(json_object_get(info, "vocab_size")), 5);
    assert_int_equal(json_integer_value(json_object_get(info, "merges")), 1);
    assert_int_equal(json_array_size(json_object_get(info, "special_tokens")), 1);
    json_decref(info);
    tg_tokenizer_destroy(&t);
}

static uint64_t hash_of(const char *text)
{
    tg_tokenizer *t = NULL;
    if (tg_tokenizer_parse("t.json", text, strlen(text), &t) != TENG_OK) fail_msg("%s", teng_error());
    uint64_t h = tg_tokenizer_hash(t);
    tg_tokenizer_destroy(&t);
    return h;
}

static void hash_follows_meaning(void **state)
{
    (void)state;
    uint64_t h = hash_of("{" GOOD_MODEL "}");
    assert_true(h == hash_of("{\"model\": {\"vocab\": {\"ab\": 2, \"b\": 1, \"a\": 0}, \"merges\": [[\"a\", "
                             "\"b\"]]}}")); /* other
                                               spelling
                                             */
    assert_true(h != hash_of("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": []}}"));
    assert_true(h !=
                hash_of("{\"model\": {\"vocab\": {\"a\": 1, \"b\": 0, \"ab\": 2}, \"merges\": [\"a b\"]}}"));
    assert_true(h != hash_of("{\"normalizer\": {\"type\": \"NFC\"}, " GOOD_MODEL "}"));
    assert_true(h != hash_of("{\"added_tokens\": [{\"id\": 3, \"content\": \"x\"}], " GOOD_MODEL "}"));
}

static void tiktoken_ranks(void **state)
{
    (void)state;
    /* a b c ab bc abc: "ab" comes before "bc"; "abc" whole is taken at once. */
    static const char ranks[] = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYmM= 4\nYWJj 5\n";
    static const char *const special = "<|endoftext|>";
    tg_tokenizer *t;
    tg_ids ids = {0};
    assert_int_equal(tg_file_write("ranks.tiktoken", ranks, strlen(ranks)), TENG_OK);
    assert_int_equal(tg_tokenizer_load_tiktoken("ranks.tiktoken", "gpt2", &special, 1, &t), TENG_OK);
    assert_int_equal(tg_tokenizer_encode(t, "abcbc<|endoftext|>abb", 21, TG_ENCODE_SPECIAL, &ids), TENG_OK);
    static const uint32_t want[] = {5, 4, 6, 3, 1};
    assert_int_equal(ids.len, 5);
    assert_memory_equal(ids.data, want, sizeof want);
    tg_vec_free(&ids);
    tg_tokenizer_destroy(&t);
    static const struct {
        const char *text, *says;
    } bad[] = {{"YQ== 0\nYg== 2\n", ":2: not \"base64 rank\" with the rank 1"},
               {"YQ== 0\n!! 1\n", ":2:"},
               {"", "holds no token"},
               {"YQ== 0\nYQ== 1\n", "the same token"}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tg_file_write("bad.tiktoken", bad[i].text, strlen(bad[i].text)), TENG_OK);
        assert_int_equal(tg_tokenizer_load_tiktoken("bad.tiktoken", "gpt2", &special, 1, &t), TENG_FORMAT);
        assert_non_null(strstr(teng_error(), bad[i].says));
        teng_error_clear();
    }
}

static void memory_runs_out(void **state)
{
    (void)state;
    static const char text[] =
        "{\"normalizer\": {\"type\": \"NFC\"}, \"added_tokens\": [{\"id\": 3, \"content\": \"<e>\", "
        "\"special\": true}, {\"id\": 4, \"content\": \"y\"}],"
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false}]}, " GOOD_MODEL "}";
    bool done = false;
    uint64_t at = 1;
    for (; !done && at < 1000; at++) {
        tg_tokenizer *t = NULL;
        tg_ids ids = {0};
        teng_error_clear();
        tg_alloc_fail_at(at);
        done = tg_tokenizer_parse("t.json", text, strlen(text), &t) == TENG_OK &&
               tg_tokenizer_encode(t, "ab<e>ab \xc3\xa9 y", 12, TG_ENCODE_SPECIAL, &ids) == TENG_OK;
        tg_alloc_fail_at(0);
        if (!done) assert_true(*teng_error());
        tg_vec_free(&ids);
        tg_tokenizer_destroy(&t);
    }
    assert_true(done && at > 20);
    teng_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(refusals, nothing_pending),
        cmocka_unit_test_teardown(missing_files, nothing_pending),
        cmocka_unit_test_teardown(folder_with_config, nothing_pending),
        cmocka_unit_test_teardown(hash_follows_meaning, nothing_pending),
        cmocka_unit_test_teardown(tiktoken_ranks, nothing_pending),
        cmocka_unit_test_teardown(memory_runs_out, nothing_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
