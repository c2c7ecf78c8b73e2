/*
 * Encoding and decoding: the vectors of other implementations, any bytes, added tokens, cutting and batching.
 * The files in data/tokenizer are parts of real vocabularies (interop/make_tokenizer_vectors.py).
 */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer.h"

#include "cmocka_all.h"

#include <omp.h>
#include <string.h>

/* A call that succeeds leaves no failure behind. */
static int nothing_pending(void **state)
{
    (void)state;
    return *teng_error() != '\0';
}

static tg_tokenizer *load(const char *name)
{
    tg_tokenizer *t = NULL;
    char *path = tg_asprintf("%s/tokenizer/%s.json", TG_TEST_DATA, name);
    if (tg_tokenizer_load(path, &t) != TENG_OK) fail_msg("%s", teng_error());
    tg_free(path);
    return t;
}

static tg_tokenizer *parse(const char *text)
{
    tg_tokenizer *t = NULL;
    if (tg_tokenizer_parse("test.json", text, strlen(text), &t) != TENG_OK) fail_msg("%s", teng_error());
    return t;
}

static void expect(const tg_tokenizer *t, const char *text, size_t len, uint32_t flags, const uint32_t *want,
                   size_t n)
{
    tg_ids ids = {0};
    assert_int_equal(tg_tokenizer_encode(t, text, len, flags, &ids), TENG_OK);
    bool equal = ids.len == n;
    for (size_t i = 0; equal && i < n; i++)
        equal = ids.data[i] == want[i];
    if (!equal) {
        for (size_t i = 0; i < ids.len; i++)
            print_message("%u ", ids.data[i]);
        fail_msg("ids of \"%s\" differ", text);
    }
    tg_vec_free(&ids);
}
#define EXPECT(t, text, flags, ...)                                                                          \
    do {                                                                                                     \
        const uint32_t want_[] = {__VA_ARGS__};                                                              \
        expect(t, text, strlen(text), flags, want_, sizeof want_ / sizeof *want_);                           \
    } while (0)

static void expect_round_trip(const tg_tokenizer *t, const char *text, size_t len)
{
    tg_ids ids = {0};
    tg_strbuf out = {0};
    assert_int_equal(tg_tokenizer_encode(t, text, len, TG_ENCODE_SPECIAL, &ids), TENG_OK);
    assert_int_equal(tg_tokenizer_decode(t, ids.data, ids.len, false, &out), TENG_OK);
    assert_int_equal(out.len, len);
    assert_memory_equal(tg_strbuf_str(&out), text, len);
    tg_vec_free(&ids);
    tg_strbuf_free(&out);
}

static void vectors(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "cl100k", "qwen3"};
    char *path = tg_asprintf("%s/tokenizer/vectors.json", TG_TEST_DATA);
    json_t *root, *v, *id;
    size_t i, k, checked = 0;
    assert_int_equal(tg_json_load_file(path, &root), TENG_OK);
    for (int n = 0; n < 3; n++) {
        tg_tokenizer *t = load(names[n]);
        json_array_foreach(root, i, v)
        {
            uint32_t want[64];
            json_t *list = json_object_get(v, names[n]);
            if (!list) continue;
            json_array_foreach(list, k, id) want[k] = (uint32_t)json_integer_value(id);
            const char *text = json_string_value(json_object_get(v, "text"));
            expect(t, text, strlen(text), TG_ENCODE_SPECIAL, want, json_array_size(list));
            expect_round_trip(t, text, strlen(text));
            checked++;
        }
        tg_tokenizer_destroy(&t);
    }
    assert_int_equal(checked, 19);
    json_decref(root);
    tg_free(path);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "cl100k"}; /* qwen3 asks for NFC, which changes text */
    char text[5000];
    for (int n = 0; n < 3; n++) {
        tg_tokenizer *t = NULL;
        if (n < 2)
            t = load(names[n]);
        else
            assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
        for (uint64_t trial = 0; trial < 50; trial++) {
            size_t len = (size_t)tg_rng_below((uint64_t)n, trial, sizeof text);
            uint64_t bound = trial % 2 ? 256 : 8; /* few bytes: many pieces of real characters */
            for (size_t i = 0; i < len; i++) {
                uint64_t b = tg_rng_below(tg_rng_key(trial, "bytes"), i, bound);
                text[i] = bound == 8 ? "\xc3\xa9\xe4\xbd\xa0 a\xff"[b] : (char)b;
            }
            expect_round_trip(t, text, len);
        }
        expect_round_trip(t, "", 0);
        expect_round_trip(t, "\0a\0", 3);
        tg_tokenizer_destroy(&t);
    }
}

static void long_words(void **state)
{
    (void)state;
    tg_tokenizer *t = load("gpt2");
    size_t n = 300000;
    char *text = tg_alloc(n);
    for (int kind = 0; kind < 4; kind++) {
        memset(text, " al7"[kind], n);
        for (size_t i = 0; kind == 1 && i < n; i++)
            text[i] = "caf"[i % 3];
        expect_round_trip(t, text, n);
    }
    tg_free(text);
    tg_tokenizer_destroy(&t);
}

/* Joins by the definition: lowest rank first, leftmost of equals. */
static size_t merge_by_hand(uint32_t *s, size_t n)
{
    static const struct {
        uint32_t left, right, result;
    } merges[] = {{1, 1, 2}, {0, 1, 3}, {2, 0, 4}, {2, 2, 5}, {3, 3, 6}};
    for (;;) {
        size_t best = 5, at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            for (size_t m = 0; m < best; m++) {
                if (merges[m].left == s[i] && merges[m].right == s[i + 1]) {
                    best = m;
                    at = i;
                }
            }
        }
        if (best == 5) return n;
        s[at] = merges[best].result;
        memmove(s + at + 1, s + at + 2, (n - at - 2) * sizeof *s);
        n--;
    }
}

static void merging_follows_the_definition(void **state)
{
    (void)state;
    tg_tokenizer *t = parse(
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false},"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"bb\": 2, \"ab\": 3, \"bba\": 4,"
        "\"bbbb\": 5, \"abab\": 6}, \"merges\": [\"b b\", \"a b\", \"bb a\", \"bb bb\", \"ab ab\"]}}");
    for (uint64_t trial = 0; trial < 300; trial++) {
        char text[400];
        uint32_t want[400];
        size_t n =
            1 + (size_t)tg_rng_below(1, trial, trial % 2 ? 12 : 399); /* below and above the heap's length */
        for (size_t i = 0; i < n; i++) {
            want[i] = tg_rng_below(tg_rng_key(trial, "ab"), i, 3) > 0;
            text[i] = "ab"[want[i]];
        }
        n = merge_by_hand(want, n);
        size_t len = 0;
        static const size_t lens[] = {1, 1, 2, 2, 3, 4, 4};
        for (size_t i = 0; i < n; i++)
            len += lens[want[i]];
        expect(t, text, len, 0, want, n);
    }
    tg_tokenizer_destroy(&t);
}

static void special_tokens(void **state)
{
    (void)state;
    tg_tokenizer *t = load("gpt2");
    tg_strbuf out = {0};
    static const uint32_t ids[] = {15496, 50256, 995};
    EXPECT(t, "Hello<|endoftext|> world", TG_ENCODE_SPECIAL, 15496, 50256, 995);
    tg_ids plain = {0};
    assert_int_equal(tg_tokenizer_encode(t, "<|endoftext|>", 13, 0, &plain), TENG_OK);
    assert_true(plain.len > 1);
    assert_int_equal(tg_tokenizer_decode(t, ids, 3, true, &out), TENG_OK);
    assert_string_equal(tg_strbuf_str(&out), "Hello world");
    assert_int_equal(tg_tokenizer_eos(t), 50256);
    assert_int_equal(tg_tokenizer_bos(t), -1);
    assert_int_equal(tg_tokenizer_id(t, " world"), 995);
    assert_int_equal(tg_tokenizer_id(t, "<|endoftext|>"), 50256);
    assert_int_equal(tg_tokenizer_id(t, "no such token"), -1);
    assert_true(tg_tokenizer_is_special(t, 50256) && !tg_tokenizer_is_special(t, 995));
    assert_int_equal(tg_tokenizer_vocab_size(t), 50257);
    size_t len;
    assert_memory_equal(tg_tokenizer_token(t, 995, &len), " world", 6);
    assert_int_equal(len, 6);
    assert_null(tg_tokenizer_token(t, 50257, &len));
    static const uint32_t bad[] = {995, 60000};
    assert_int_equal(tg_tokenizer_decode(t, bad, 2, false, &out), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "token 1 of the input is 60000"));
    teng_error_clear();
    tg_strbuf_free(&out);
    tg_vec_free(&plain);
    tg_tokenizer_destroy(&t);
}

#define MODEL                                                                                                \
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true},"        \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"\xc4\xa0\": 2, \"ab\": 3, \"\xc4\xa0"  \
    "ab\": 4},"                                                                                              \
    "\"merges\": [\"a b\", [\"\xc4\xa0\", \"ab\"]]}"

static void added_tokens(void **state)
{
    (void)state;
    tg_tokenizer *t =
        parse("{\"added_tokens\": [{\"id\": 10, \"content\": \"<x>\"}, {\"id\": 11, \"content\": \"<x>y\"},"
              "{\"id\": 12, \"content\": \"<l>\", \"lstrip\": true}, {\"id\": 13, \"content\": \"<r>\", "
              "\"rstrip\": true},"
              "{\"id\": 14, \"content\": \"bb\", \"single_word\": true}], " MODEL "}");
    EXPECT(t, "a<x>b", 0, 0, 10, 1);
    EXPECT(t, "<x>yab", 0, 11, 3); /* the longest */
    EXPECT(t, "<x<x>", 0, 10);     /* "<" and "x" have no token here: dropped, as Hugging Face does */
    EXPECT(t, "a  <l> b", 0, 0, 12, 2, 1);
    EXPECT(t, "a <r>  b", 0, 0, 2, 13, 1);
    EXPECT(t, "bb abb bb", 0, 14, 4, 1, 2, 14);
    tg_tokenizer_destroy(&t);
}

static void templates(void **state)
{
    (void)state;
    tg_tokenizer *t = parse("{\"added_tokens\": [{\"id\": 7, \"content\": \"<s>\", \"special\": true}, "
                            "{\"id\": 8, \"content\": \"</s>\","
                            "\"special\": true}], \"post_processor\": {\"type\": \"Sequence\", "
                            "\"processors\": [{\"type\": \"ByteLevel\"},"
                            "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
                            "\"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}},"
                            "{\"SpecialToken\": {\"id\": \"</s>\"}}], \"special_tokens\": {\"<s>\": "
                            "{\"ids\": [7]}, \"</s>\": {\"ids\": [8]}}}]}, " MODEL "}");
    EXPECT(t, "ab ab", TG_ENCODE_TEMPLATE, 7, 3, 4, 8);
    EXPECT(t, "ab ab", 0, 3, 4);
    assert_int_equal(tg_tokenizer_bos(t), 7);
    assert_int_equal(tg_tokenizer_eos(t), 8);
    tg_tokenizer_destroy(&t);
}

#define MARK "\xe2\x96\x81"
static void sentencepiece_style(void **state)
{
    (void)state;
    tg_tokenizer *t =
        parse("{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
              "\"prepend\": \"" MARK "\"},"
              "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK "\"}]},"
              "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
              "{\"String\": \"" MARK "\"},"
              "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
              "\"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
              "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
              "\"byte_fallback\": true,"
              "\"vocab\": {\"<unk>\": 0, \"<0xC3>\": 1, \"<0xA9>\": 2, \"" MARK "\": 3, \"a\": 4, \"" MARK
              "a\": 5, \"<0xFF>\": 6},"
              "\"merges\": [\"" MARK " a\"]}}");
    tg_strbuf out = {0};
    static const uint32_t ids[] = {5, 3, 5, 1, 2};
    EXPECT(t, "a  a\xc3\xa9", 0, 5, 3, 5, 1, 2); /* é through its bytes */
    EXPECT(t, "azzza", 0, 5, 0, 4);              /* unknown characters fused */
    EXPECT(t, "a\xff", 0, 5, 6);
    assert_int_equal(tg_tokenizer_decode(t, ids, 5, false, &out), TENG_OK);
    assert_string_equal(tg_strbuf_str(&out), "a  a\xc3\xa9");
    tg_strbuf_free(&out);
    tg_tokenizer_destroy(&t);
}

static void normal_forms(void **state)
{
    (void)state;
    tg_tokenizer *t = load("qwen3");
    /* e + U+0301 becomes é; A + ring above too; Hangul letters join. */
    EXPECT(t,
           "caf"
           "e\xcc\x81",
           0, 924, 58858);
    tg_ids ids = {0};
    tg_strbuf out = {0};
    static const char text[] = "A\xcc\x8a \xe1\x84\x80\xe1\x85\xa1 e\xcc\x81\xcc\x81";
    assert_int_equal(tg_tokenizer_encode(t, text, sizeof text - 1, 0, &ids), TENG_OK);
    assert_int_equal(tg_tokenizer_decode(t, ids.data, ids.len, false, &out), TENG_OK);
    assert_string_equal(tg_strbuf_str(&out), "\xc3\x85 \xea\xb0\x80 \xc3\xa9\xcc\x81");
    tg_vec_free(&ids);
    tg_strbuf_free(&out);
    tg_tokenizer_destroy(&t);
}

/* Text with letters, spaces, digits, Chinese, invalid bytes and special tokens. */
static char *mixed_text(size_t n)
{
    static const char *const parts[] = {
        "Hello",       " ",  "world",       "\n\n", "don't",         " 12345", "\xe4\xb8\xad\xe6\x96\x87",
        "  ",          ", ", "caf\xc3\xa9", "\t",   "<|endoftext|>", "\xff",   "na\xc3\xafve stop",
        "\xe3\x80\x82"};
    tg_strbuf b = {0};
    for (uint64_t i = 0; b.len < n; i++)
        tg_strbuf_puts(&b, parts[tg_rng_below(5, i, sizeof parts / sizeof *parts)]);
    b.data[n] = '\0';
    return tg_strbuf_take(&b);
}

static void threads_batches_and_cuts_change_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "cl100k", "qwen3"};
    enum { N = 600000, TEXTS = 50 };
    char *text = mixed_text(N);
    for (int k = 0; k < 3; k++) {
        tg_tokenizer *t = load(names[k]);
        tg_ids one = {0}, many = {0}, cut = {0};
        int threads = omp_get_max_threads();
        omp_set_num_threads(1);
        assert_int_equal(tg_tokenizer_encode(t, text, N, TG_ENCODE_SPECIAL, &one), TENG_OK);
        omp_set_num_threads(4);
        assert_int_equal(tg_tokenizer_encode(t, text, N, TG_ENCODE_SPECIAL, &many), TENG_OK);
        assert_int_equal(one.len, many.len);
        assert_memory_equal(one.data, many.data, one.len * sizeof *one.data);
        size_t pieces = 0;
        for (size_t at = 0; at < N; pieces++) {
            size_t n = tg_tokenizer_cut(t, text + at, N - at, 1000);
            assert_int_equal(tg_tokenizer_encode(t, text + at, n, TG_ENCODE_SPECIAL, &cut), TENG_OK);
            at += n;
        }
        assert_true(pieces > 100);
        assert_int_equal(one.len, cut.len);
        assert_memory_equal(one.data, cut.data, one.len * sizeof *one.data);
        /* A batch is its texts one by one. */
        tg_text texts[TEXTS];
        size_t ends[TEXTS];
        for (size_t i = 0; i < TEXTS; i++)
            texts[i] = (tg_text){text + i * 5000, i % 7 == 3 ? 0 : 3000 + i};
        many.len = 0;
        assert_int_equal(tg_tokenizer_encode_batch(t, texts, TEXTS, 0, &many, ends), TENG_OK);
        for (size_t i = 0, begin = 0; i < TEXTS; begin = ends[i++])
            expect(t, texts[i].data, texts[i].len, 0, many.data + begin, ends[i] - begin);
        assert_int_equal(ends[TEXTS - 1], many.len);
        omp_set_num_threads(threads);
        tg_vec_free(&one);
        tg_vec_free(&many);
        tg_vec_free(&cut);
        tg_tokenizer_destroy(&t);
    }
    tg_free(text);
}

static void byte_tokenizer(void **state)
{
    (void)state;
    static const char *const specials[] = {"<a>", "<b>"};
    tg_tokenizer *t, *again;
    assert_int_equal(tg_tokenizer_bytes(specials, 2, &t), TENG_OK);
    assert_int_equal(tg_tokenizer_vocab_size(t), 258);
    EXPECT(t,
           "\xff"
           "a<b>\n",
           TG_ENCODE_SPECIAL, 255, 97, 257, 10);
    assert_int_equal(tg_tokenizer_save(t, "bytes.json"), TENG_OK);
    assert_int_equal(tg_tokenizer_load("bytes.json", &again), TENG_OK);
    assert_true(tg_tokenizer_hash(t) == tg_tokenizer_hash(again));
    EXPECT(again, "a<a>", TG_ENCODE_SPECIAL, 97, 256);
    tg_tokenizer_destroy(&t);
    tg_tokenizer_destroy(&again);
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    assert_int_equal(tg_tokenizer_eos(t), 256);
    tg_tokenizer_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(vectors, nothing_pending),
        cmocka_unit_test_teardown(any_bytes_come_back, nothing_pending),
        cmocka_unit_test_teardown(long_words, nothing_pending),
        cmocka_unit_test_teardown(merging_follows_the_definition, nothing_pending),
        cmocka_unit_test_teardown(special_tokens, nothing_pending),
        cmocka_unit_test_teardown(added_tokens, nothing_pending),
        cmocka_unit_test_teardown(templates, nothing_pending),
        cmocka_unit_test_teardown(sentencepiece_style, nothing_pending),
        cmocka_unit_test_teardown(normal_forms, nothing_pending),
        cmocka_unit_test_teardown(threads_batches_and_cuts_change_nothing, nothing_pending),
        cmocka_unit_test_teardown(byte_tokenizer, nothing_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
