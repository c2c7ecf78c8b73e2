/* The trainer: merges by hand, ties, threads and order of inputs, round trips, progress, refusals. */
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer.h"
#include "data/utf8_scan.h"

#include "cmocka_all.h"

#include <string.h>

static int nothing_pending(void **state)
{
    (void)state;
    return *teng_error() != '\0';
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(tg_file_write(path, text, strlen(text)), TENG_OK);
}

static tg_tokenizer *train(const tg_bpe_options *o, const char *const *inputs, int n)
{
    tg_tokenizer *t = NULL;
    if (tg_bpe_train(o, inputs, n, &t) != TENG_OK) fail_msg("%s", teng_error());
    return t;
}

static void expect_token(const tg_tokenizer *t, uint32_t id, const char *bytes)
{
    size_t len = 0;
    const char *token = tg_tokenizer_token(t, id, &len);
    if (!token || len != strlen(bytes) || memcmp(token, bytes, len) != 0)
        fail_msg("token %u is \"%.*s\", not \"%s\"", id, (int)len, token ? token : "", bytes);
}

/* Counts: low 5, lower 2, newest 6, widest 3 (Sennrich et al. 2016). Without end-of-word marks the most
 * frequent pairs are e+s and s+t (9 each, "es" has the smaller first id), then es+t, l+o (7), lo+w, n+e (6;
 * smaller ids than e+w and w+est), … */
static void merges_by_hand(void **state)
{
    (void)state;
    static const char *const input = "sennrich.txt";
    write_text(input, "low\nlow\nlow\nlow\nlow\nlower\nlower\nnewest\nnewest\nnewest\nnewest\nnewest\nnewest"
                      "\nwidest\nwidest\nwidest");
    tg_bpe_options o = {.vocab_size = 257 + 8, .pattern = "\\p{L}+|\\s+"};
    tg_tokenizer *t = train(&o, &input, 1);
    static const char *const tokens[] = {"es", "est", "lo", "low", "ew", "new", "newest", "dest"};
    for (uint32_t i = 0; i < 8; i++)
        expect_token(t, 257 + i, tokens[i]);
    expect_token(t, 0, "<|endoftext|>");
    expect_token(t, 1, "!"); /* bytes in the order of their characters */
    expect_token(t, 256, "\xad");
    tg_tokenizer_destroy(&t);
}

static char *random_text(uint64_t seed, size_t words)
{
    tg_strbuf b = {0};
    for (uint64_t i = 0; i < words; i++) {
        uint64_t rank = tg_rng_below(seed, 2 * i, 1 + tg_rng_below(seed, 2 * i + 1, 400)),
                 key = tg_rng_key(rank, "word");
        for (uint64_t k = 0; k < 2 + rank % 5; k++)
            tg_strbuf_putc(&b, (char)('a' + tg_rng_below(key, k, 12)));
        tg_strbuf_puts(&b, i % 11 == 10 ? ".\n" : i % 97 == 0 ? " \xe4\xb8\xad\xff 42 " : " ");
    }
    return tg_strbuf_take(&b);
}

static void threads_and_order_change_nothing(void **state)
{
    (void)state;
    static const char *const inputs[] = {"a.txt", "b.txt"}, *const swapped[] = {"b.txt", "a.txt"};
    char *a = random_text(1, 60000), *b = random_text(2, 30000);
    write_text(inputs[0], a);
    write_text(inputs[1], b);
    tg_bpe_options o = {.vocab_size = 1000, .threads = 1}, many = {.vocab_size = 1000, .threads = 4};
    tg_tokenizer *t = train(&o, inputs, 2), *u = train(&many, swapped, 2);
    assert_int_equal(tg_tokenizer_vocab_size(t), 1000);
    assert_true(tg_tokenizer_hash(t) == tg_tokenizer_hash(u));
    /* Any bytes come back, and text of the kind it learned from gets shorter. */
    tg_ids ids = {0};
    tg_strbuf out = {0};
    size_t n = strlen(a);
    assert_int_equal(tg_tokenizer_encode(t, a, n, 0, &ids), TENG_OK);
    assert_true(ids.len * 2 < n);
    assert_int_equal(tg_tokenizer_decode(t, ids.data, ids.len, false, &out), TENG_OK);
    assert_int_equal(out.len, n);
    assert_memory_equal(out.data, a, n);
    tg_vec_free(&ids);
    tg_strbuf_free(&out);
    tg_tokenizer_destroy(&t);
    tg_tokenizer_destroy(&u);
    tg_free(a);
    tg_free(b);
}

static void every_merge_is_possible(void **state)
{
    (void)state;
    /* A token is reached by encoding its own bytes, but for pieces of characters, which are invalid UTF-8. */
    static const char *const input = "c.txt";
    char *text = random_text(3, 40000);
    write_text(input, text);
    tg_bpe_options o = {.vocab_size = 800, .pattern = "gpt2"};
    tg_tokenizer *t = train(&o, &input, 1);
    for (uint32_t id = 1; id < 800; id++) {
        size_t len;
        tg_ids ids = {0};
        const char *bytes = tg_tokenizer_token(t, id, &len);
        if (tg_utf8_prefix((const unsigned char *)bytes, len) < len) continue;
        assert_int_equal(tg_tokenizer_encode(t, bytes, len, 0, &ids), TENG_OK);
        assert_int_equal(ids.len, 1);
        assert_int_equal(ids.data[0], id);
        tg_vec_free(&ids);
    }
    tg_tokenizer_destroy(&t);
    tg_free(text);
}

typedef struct seen {
    int count, merge;
    bool back;
    uint64_t last;
} seen;

static void on_progress(void *user, const tg_bpe_progress *p)
{
    seen *s = user;
    bool merge = strcmp(p->phase, "merge") == 0;
    s->back |= p->done > p->total || (merge && s->merge && p->done < s->last);
    s->count += !merge;
    s->merge += merge;
    s->last = p->done;
}

static void options(void **state)
{
    (void)state;
    static const char *const input = "d.jsonl", *const specials[] = {"<a>", "<b>"};
    write_text(input, "{\"body\": \"ab ab ab ab abc abc\"}\n\n{\"body\": \"xyz xyz xyz\", \"other\": 1}\n");
    seen s = {0};
    tg_bpe_options o = {.vocab_size = 400,
                        .specials = specials,
                        .n_specials = 2,
                        .json_field = "body",
                        .min_frequency = 3,
                        .max_token_bytes = 2,
                        .progress = on_progress,
                        .user = &s};
    tg_tokenizer *t = train(&o, &input, 1);
    expect_token(t, 1, "<b>");
    assert_int_equal(tg_tokenizer_id(t, "ab"), 258);
    assert_int_equal(tg_tokenizer_id(t, "yz"), -1); /* x y z: one of xy, yz wins */
    assert_int_equal(tg_tokenizer_id(t, "abc"), -1);
    assert_true(tg_tokenizer_vocab_size(t) < 270);
    assert_true(s.count + s.merge > 0 && !s.back);
    tg_tokenizer_destroy(&t);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const input = "e.txt", *const lines = "bad.jsonl", *const missing = "no-such.txt";
    tg_tokenizer *t = NULL;
    write_text(input, "some text");
    tg_bpe_options small = {.vocab_size = 256}, good = {.vocab_size = 300},
                   pattern = {.vocab_size = 300, .pattern = "a("};
    assert_int_equal(tg_bpe_train(&small, &input, 1, &t), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "vocab_size 256"));
    assert_non_null(strstr(teng_error(), "257"));
    teng_error_clear();
    assert_int_equal(tg_bpe_train(&good, &missing, 1, &t), TENG_IO);
    assert_non_null(strstr(teng_error(), "no-such.txt"));
    teng_error_clear();
    assert_int_equal(tg_bpe_train(&pattern, &input, 1, &t), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "\"a(\" is not a regular expression"));
    teng_error_clear();
    write_text(lines, "{\"text\": \"x\"}\n{\"txt\": \"y\"}\n");
    assert_int_equal(tg_bpe_train(&good, &lines, 1, &t), TENG_FORMAT);
    assert_non_null(strstr(
        teng_error(), "bad.jsonl:2: the line has no string \"text\"; name another field, such as \"txt\""));
    teng_error_clear();
    write_text(lines, "{\"text\": \"x\"}\n{\"text\": \n");
    assert_int_equal(tg_bpe_train(&good, &lines, 1, &t), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "bad.jsonl:2:"));
    teng_error_clear();
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(merges_by_hand, nothing_pending),
        cmocka_unit_test_teardown(threads_and_order_change_nothing, nothing_pending),
        cmocka_unit_test_teardown(every_merge_is_possible, nothing_pending),
        cmocka_unit_test_teardown(options, nothing_pending),
        cmocka_unit_test_teardown(refusals, nothing_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
