/* Documents from text, .jsonl and folders; preparing token files; the split; what is refused. */
#include "base/file.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "data/documents.h"

#include "cmocka_all.h"

#include <stdio.h>
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

static void expect_documents(const char *const *inputs, int n, const char *separator, const char *joined)
{
    tg_documents *d;
    tg_document doc;
    bool end;
    tg_strbuf b = {0};
    uint64_t done, total;
    if (tg_documents_open(inputs, n, NULL, separator, &d) != TENG_OK) fail_msg("%s", teng_error());
    for (;;) {
        assert_int_equal(tg_documents_next(d, &doc, &end), TENG_OK);
        if (end) break;
        tg_strbuf_putc(&b, '[');
        tg_strbuf_add(&b, doc.text, doc.prompt);
        if (doc.prompt) tg_strbuf_putc(&b, '|');
        tg_strbuf_add(&b, doc.text + doc.prompt, doc.len - doc.prompt);
        tg_strbuf_putc(&b, ']');
    }
    tg_documents_position(d, &done, &total);
    assert_int_equal(done, total);
    assert_string_equal(tg_strbuf_str(&b), joined);
    tg_strbuf_free(&b);
    tg_documents_close(&d);
}

static void documents(void **state)
{
    (void)state;
    assert_int_equal(tg_remove_tree("docs"), TENG_OK);
    assert_int_equal(tg_mkdirs("docs/sub"), TENG_OK);
    assert_int_equal(tg_mkdirs("docs/none"), TENG_OK);
    write_text("docs/b.txt", "bee\n");
    write_text("docs/a.md", "ay");
    write_text("docs/c.jsonl", "{\"text\": \"one\\n\"}\n\n  \n{\"prompt\": \"p\", \"completion\": "
                               "\"c\"}\r\n{\"text\": \"\"}\n{\"text\": \"nul\\u0000.\"}");
    write_text("docs/sub/z.TXT", "zed");
    write_text("docs/ignored.bin", "x");
    write_text("docs/.hidden.txt", "x");
    write_text("empty.txt", "");
    write_text("cut.txt", "a--b----c--");
    static const char *const folder = "docs", *const two[] = {"empty.txt", "docs/b.txt"},
                             *const cut = "cut.txt", *const none = "docs/none";
    tg_documents *d;
    expect_documents(two, 2, NULL, "[][bee\n]");
    expect_documents(&cut, 1, "--", "[a][b][][c]");
    expect_documents(&cut, 1, "x", "[a--b----c--]");
    tg_document doc;
    bool end;
    assert_int_equal(tg_documents_open(&folder, 1, NULL, NULL, &d), TENG_OK);
    static const char *const want[] = {"ay", "bee\n", "one\n", "pc", "", "nul", "zed"};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(tg_documents_next(d, &doc, &end), TENG_OK);
        assert_false(end);
        assert_memory_equal(doc.text, want[i], strlen(want[i]));
        assert_int_equal(doc.len, i == 5 ? 5 : strlen(want[i]));
        assert_int_equal(doc.prompt, i == 3 ? 1 : 0);
    }
    assert_int_equal(tg_documents_next(d, &doc, &end), TENG_OK);
    assert_true(end);
    tg_documents_close(&d);
    assert_int_equal(tg_documents_open(&none, 1, NULL, NULL, &d), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "docs/none: the folder holds no"));
    teng_error_clear();
}

/* 200 documents of some hundred bytes and one of 9 MB, which goes in pieces. */
static void write_corpus(const char *path)
{
    tg_strbuf b = {0};
    for (int d = 0; d < 200; d++)
        tg_strbuf_printf(&b, "document %d %*s end\n====\n", d, d % 90, "");
    for (int i = 0; b.len < 9u << 20; i++)
        tg_strbuf_printf(&b, "word%d ", i);
    assert_int_equal(tg_file_write(path, b.data, b.len), TENG_OK);
    tg_strbuf_free(&b);
}

typedef struct seen {
    int calls;
    tg_corpus_progress last;
} seen;

static void on_report(void *user, const tg_corpus_progress *p)
{
    seen *s = user;
    s->calls++;
    s->last = *p;
}

static void prepare(void **state)
{
    (void)state;
    static const char *const input = "corpus.txt", *const bytes[] = {"<|endoftext|>"};
    tg_tokenizer *t;
    write_corpus(input);
    assert_int_equal(tg_tokenizer_bytes(bytes, 1, &t), TENG_OK);
    tg_corpus_options o = {.separator = "\n====\n", .add_eos = true, .val_fraction = 0.2, .seed = 3};
    tg_corpus_result r;
    seen s = {0};
    if (tg_corpus_prepare(t, &o, &input, 1, TG_TOKENS_TENG, "train.tok", "val.tok", on_report, &s, &r) !=
        TENG_OK)
        fail_msg("%s", teng_error());
    assert_int_equal(r.train.documents + r.val.documents, 201);
    assert_true(r.val.documents > 15 && r.val.documents < 75);
    assert_int_equal(r.train.tokens, r.train.text_bytes + r.train.documents); /* bytes and one eos each */
    assert_int_equal(r.val.tokens, r.val.text_bytes + r.val.documents);
    assert_true(s.calls > 0);
    assert_int_equal(s.last.documents, 201);
    assert_int_equal(s.last.tokens, r.train.tokens + r.val.tokens);
    assert_int_equal(s.last.input_bytes, s.last.input_total);
    /* The same text through memory: document by document equal to what the two files hold. */
    tg_token_file *all, *part[2];
    tg_corpus_split split;
    assert_int_equal(tg_corpus_load(t, &o, &input, 1, &all), TENG_OK);
    assert_int_equal(tg_token_file_open("train.tok", NULL, &part[0]), TENG_OK);
    assert_int_equal(tg_token_file_open("val.tok", NULL, &part[1]), TENG_OK);
    assert_int_equal(tg_corpus_split_make(3, 201, 0.2, &split), TENG_OK);
    uint64_t next[2] = {0, 0};
    for (uint64_t d = 0; d < 201; d++) {
        int k = tg_corpus_is_val(&split, d);
        uint64_t b0, e0, n0, b1, e1, n1;
        tg_token_file_document(all, d, &b0, &e0, &n0);
        tg_token_file_document(part[k], next[k]++, &b1, &e1, &n1);
        assert_int_equal(e0 - b0, e1 - b1);
        assert_int_equal(n0, n1);
        int32_t *x = tg_alloc((e0 - b0) * 8), *y = x + (e0 - b0);
        assert_int_equal(tg_token_file_read(all, b0, e0 - b0, x), TENG_OK);
        assert_int_equal(tg_token_file_read(part[k], b1, e1 - b1, y), TENG_OK);
        assert_memory_equal(x, y, (e0 - b0) * 4);
        assert_int_equal(x[e0 - b0 - 1], 256);
        tg_free(x);
    }
    tg_token_file_close(&all);
    tg_token_file_close(&part[0]);
    tg_token_file_close(&part[1]);
    tg_tokenizer_destroy(&t);
}

static void splits(void **state)
{
    (void)state;
    tg_corpus_split s, other;
    int val = 0, same = 0;
    assert_int_equal(tg_corpus_split_make(1, 10000, 0.1, &s), TENG_OK);
    assert_int_equal(tg_corpus_split_make(2, 10000, 0.1, &other), TENG_OK);
    for (uint64_t d = 0; d < 10000; d++) {
        val += tg_corpus_is_val(&s, d);
        same += tg_corpus_is_val(&s, d) && tg_corpus_is_val(&other, d);
    }
    assert_in_range(val, 900, 1100);
    assert_in_range(same, 60, 150);
    /* Small numbers: neither part is empty, whatever the seed. */
    for (uint64_t seed = 0; seed < 200; seed++) {
        for (uint64_t n = 2; n < 5; n++) {
            for (int f = 0; f < 2; f++) {
                assert_int_equal(tg_corpus_split_make(seed, n, f ? 0.95 : 0.01, &s), TENG_OK);
                uint64_t k = 0;
                for (uint64_t d = 0; d < n; d++)
                    k += tg_corpus_is_val(&s, d);
                assert_true(k > 0 && k < n);
            }
        }
    }
    assert_int_equal(tg_corpus_split_make(1, 1, 0.1, &s), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "1 document cannot be split"));
    teng_error_clear();
    assert_int_equal(tg_corpus_split_make(1, 5, 1.0, &s), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "fraction is 1"));
    teng_error_clear();
}

static void two_documents_are_split(void **state)
{
    (void)state;
    static const char *const inputs[] = {"one.txt", "two.txt"};
    write_text(inputs[0], "first");
    write_text(inputs[1], "second");
    tg_tokenizer *t;
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    for (uint64_t seed = 0; seed < 8; seed++) {
        tg_corpus_options o = {.val_fraction = 0.01, .seed = seed};
        tg_corpus_result r;
        assert_int_equal(
            tg_corpus_prepare(t, &o, inputs, 2, TG_TOKENS_NANOGPT, "t.bin", "v.bin", NULL, NULL, &r),
            TENG_OK);
        assert_int_equal(r.train.documents, 1);
        assert_int_equal(r.val.documents, 1);
        assert_int_equal(r.train.tokens + r.val.tokens, 11);
        assert_int_equal(tg_file_size("t.bin"), 2 * (int64_t)r.train.tokens);
    }
    tg_tokenizer_destroy(&t);
}

static void special_tokens_in_text(void **state)
{
    (void)state;
    static const char *const input = "evil.txt";
    write_text(input, "a<|endoftext|>b");
    tg_tokenizer *t;
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    for (int parse = 0; parse < 2; parse++) {
        tg_corpus_options o = {.parse_special = parse};
        tg_token_file *f;
        assert_int_equal(tg_corpus_load(t, &o, &input, 1, &f), TENG_OK);
        assert_int_equal(tg_token_file_info(f)->tokens, parse ? 3 : 15);
        tg_token_file_close(&f);
    }
    tg_tokenizer_destroy(&t);
}

static void prompts_are_not_scored(void **state)
{
    (void)state;
    static const char *const input = "pairs.jsonl";
    write_text(input,
               "{\"text\": \"ab\"}\n{\"prompt\": \"xyz\", \"completion\": \"uv\"}\n{\"text\": \"c\"}\n");
    tg_tokenizer *t;
    tg_token_file *f;
    uint8_t score[11];
    static const uint8_t want[] = {1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1};
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    tg_corpus_options o = {.add_eos = true};
    assert_int_equal(tg_corpus_load(t, &o, &input, 1, &f), TENG_OK);
    assert_int_equal(tg_token_file_info(f)->tokens, 11);
    tg_token_file_score(f, 0, 11, score);
    assert_memory_equal(score, want, 11);
    tg_token_file_close(&f);
    tg_corpus_result r;
    assert_int_equal(tg_corpus_prepare(t, &o, &input, 1, TG_TOKENS_TENG, "p.tok", NULL, NULL, NULL, &r),
                     TENG_UNSUPPORTED);
    assert_non_null(strstr(teng_error(), "\"prompt\" and \"completion\""));
    assert_false(tg_path_exists("p.tok"));
    teng_error_clear();
    tg_tokenizer_destroy(&t);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const empty = "empty.txt", *const text = "one.txt";
    static const char no_eos[] = "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}";
    tg_tokenizer *t, *bare;
    tg_token_file *f;
    tg_corpus_result r;
    tg_corpus_options o = {.add_eos = true};
    write_text(empty, "");
    write_text(text, "aa");
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    assert_int_equal(tg_tokenizer_parse("bare", no_eos, strlen(no_eos), &bare), TENG_OK);
    assert_int_equal(tg_corpus_load(t, &o, &empty, 1, &f), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "empty.txt: the inputs hold no text"));
    teng_error_clear();
    assert_int_equal(tg_corpus_prepare(t, &o, &empty, 1, TG_TOKENS_TENG, "e.tok", NULL, NULL, NULL, &r),
                     TENG_INVALID);
    assert_non_null(strstr(teng_error(), "hold no text"));
    assert_false(tg_path_exists("e.tok"));
    teng_error_clear();
    assert_int_equal(tg_corpus_load(bare, &o, &text, 1, &f), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "end token"));
    teng_error_clear();
    o.val_fraction = 0.5;
    assert_int_equal(tg_corpus_prepare(t, &o, &text, 1, TG_TOKENS_TENG, "e.tok", NULL, NULL, NULL, &r),
                     TENG_INVALID);
    assert_non_null(strstr(teng_error(), "needs a file"));
    teng_error_clear();
    assert_int_equal(tg_corpus_prepare(t, &o, &text, 1, TG_TOKENS_TENG, "e.tok", "v.tok", NULL, NULL, &r),
                     TENG_INVALID);
    assert_non_null(strstr(teng_error(), "1 document cannot be split"));
    teng_error_clear();
    tg_tokenizer_destroy(&t);
    tg_tokenizer_destroy(&bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(documents, nothing_pending),
        cmocka_unit_test_teardown(prepare, nothing_pending),
        cmocka_unit_test_teardown(splits, nothing_pending),
        cmocka_unit_test_teardown(two_documents_are_split, nothing_pending),
        cmocka_unit_test_teardown(special_tokens_in_text, nothing_pending),
        cmocka_unit_test_teardown(prompts_are_not_scored, nothing_pending),
        cmocka_unit_test_teardown(refusals, nothing_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
