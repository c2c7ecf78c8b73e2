/* Token files: written and read in each format, known bytes of the foreign ones, and every kind of damage. */
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/token_file.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static int nothing_pending(void **state)
{
    (void)state;
    return *teng_error() != '\0';
}

/* Document d has 1 + 3 d tokens; the last of each is eos (7). */
enum { DOCS = 40, EOS = 7 };

static uint32_t token_of(uint64_t i, uint32_t vocab)
{
    uint32_t v = (uint32_t)tg_rng_below(9, i, vocab);
    return v == EOS ? 8 : v;
}

static uint64_t write_file(const char *path, tg_token_format format, uint32_t vocab)
{
    tg_token_info info = {.format = format, .vocab_size = vocab, .tokenizer_hash = 77, .eos = EOS};
    tg_token_writer *w;
    uint64_t n = 0;
    assert_int_equal(tg_token_writer_open(path, &info, &w), TENG_OK);
    for (uint64_t d = 0; d < DOCS; d++) {
        for (uint64_t i = 0; i < 3 * d; i++, n++) {
            uint32_t v = token_of(n, vocab);
            assert_int_equal(tg_token_writer_add(w, &v, 1), TENG_OK);
        }
        uint32_t eos = EOS;
        assert_int_equal(tg_token_writer_add(w, &eos, 1), TENG_OK);
        n++;
        assert_int_equal(tg_token_writer_end(w, 10 + d), TENG_OK);
    }
    assert_int_equal(tg_token_writer_commit(&w), TENG_OK);
    assert_null(w);
    return n;
}

static void round_trip(void **state)
{
    (void)state;
    static const tg_token_format formats[] = {TG_TOKENS_TENG, TG_TOKENS_NANOGPT, TG_TOKENS_LLMC,
                                              TG_TOKENS_MEGATRON};
    static const uint32_t vocabs[] = {1000, 100000};
    for (int k = 0; k < 8; k++) {
        tg_token_format format = formats[k / 2];
        uint32_t vocab = vocabs[k % 2];
        const char *path = format == TG_TOKENS_TENG ? "file.tok" : "file.bin";
        assert_int_equal(tg_remove_tree("file.idx"), TENG_OK);
        uint64_t n = write_file(path, format, vocab);
        tg_token_open o = {.vocab_limit = vocab, .eos = EOS, .verify = true};
        tg_token_file *f;
        if (tg_token_file_open(path, &o, &f) != TENG_OK) fail_msg("%s", teng_error());
        const tg_token_info *info = tg_token_file_info(f);
        assert_int_equal(info->format, format);
        assert_int_equal(info->token_bytes, k % 2 ? 4 : 2);
        assert_int_equal(info->tokens, n);
        assert_int_equal(info->documents, DOCS);
        if (format == TG_TOKENS_TENG) {
            assert_int_equal(info->vocab_size, vocab);
            assert_int_equal(info->tokenizer_hash, 77);
            assert_int_equal(info->text_bytes, DOCS * 10 + DOCS * (DOCS - 1) / 2);
        }
        uint64_t at = 0;
        int32_t *tokens = tg_alloc(n * sizeof *tokens);
        assert_int_equal(tg_token_file_read(f, 0, n, tokens), TENG_OK);
        for (uint64_t d = 0; d < DOCS; d++) {
            uint64_t begin, end, bytes;
            tg_token_file_document(f, d, &begin, &end, &bytes);
            assert_int_equal(begin, at);
            assert_int_equal(end, at + 3 * d + 1);
            assert_int_equal(bytes, format == TG_TOKENS_TENG ? 10 + d : 0);
            for (; at + 1 < end; at++)
                assert_int_equal(tokens[at], token_of(at, vocab));
            assert_int_equal(tokens[at++], EOS);
        }
        int32_t three[3];
        assert_int_equal(tg_token_file_read(f, 100, 3, three), TENG_OK);
        assert_memory_equal(three, tokens + 100, sizeof three);
        assert_int_equal(tg_token_file_read(f, n - 1, 2, three), TENG_INVALID);
        teng_error_clear();
        tg_free(tokens);
        tg_token_file_close(&f);
    }
}

/* The bytes that Megatron's and llm.c's own programs write. */
static void known_bytes(void **state)
{
    (void)state;
    static const unsigned char idx[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0,
        0,   0,   0,   0,   0,   0,   2,   0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0,
        0,   0,   0,   0,   0,   0,   0,   0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    static const unsigned char bin[] = {1, 0, 2, 1, 3, 0};
    tg_token_info info = {.format = TG_TOKENS_MEGATRON, .vocab_size = 1000, .eos = -1};
    tg_token_writer *w;
    char *text;
    size_t n;
    assert_int_equal(tg_token_writer_open("meg.bin", &info, &w), TENG_OK);
    assert_int_equal(tg_token_writer_add(w, (const uint32_t[]){1, 258}, 2), TENG_OK);
    assert_int_equal(tg_token_writer_end(w, 0), TENG_OK);
    assert_int_equal(tg_token_writer_add(w, (const uint32_t[]){3}, 1), TENG_OK);
    assert_int_equal(tg_token_writer_commit(&w), TENG_OK); /* the open document is ended */
    assert_int_equal(tg_file_read("meg.idx", &text, &n), TENG_OK);
    assert_int_equal(n, sizeof idx);
    assert_memory_equal(text, idx, n);
    tg_free(text);
    assert_int_equal(tg_file_read("meg.bin", &text, &n), TENG_OK);
    assert_int_equal(n, sizeof bin);
    assert_memory_equal(text, bin, n);
    tg_free(text);
    static const char *const ways[] = {"meg.bin", "meg.idx", "meg"};
    for (int i = 0; i < 3; i++) {
        tg_token_file *f;
        assert_int_equal(tg_token_file_open(ways[i], NULL, &f), TENG_OK);
        assert_int_equal(tg_token_file_info(f)->documents, 2);
        tg_token_file_close(&f);
    }
    info.format = TG_TOKENS_LLMC;
    assert_int_equal(tg_token_writer_open("llmc.bin", &info, &w), TENG_OK);
    assert_int_equal(tg_token_writer_add(w, (const uint32_t[]){1, 258, 3}, 3), TENG_OK);
    assert_int_equal(tg_token_writer_commit(&w), TENG_OK);
    assert_int_equal(tg_file_read("llmc.bin", &text, &n), TENG_OK);
    int32_t head[4];
    memcpy(head, text, sizeof head);
    assert_true(n == 1030 && head[0] == 20240520 && head[1] == 1 && head[2] == 3 && head[3] == 0);
    assert_memory_equal(text + 1024, bin, 6);
    tg_free(text);
}

static void expect_refused(const char *path, const tg_token_open *o, teng_status status,
                           const char *const says[3])
{
    tg_token_file *f = NULL;
    teng_error_clear();
    teng_status got = tg_token_file_open(path, o, &f);
    if (got != status || f) fail_msg("%s: %s, \"%s\"", path, teng_status_name(got), teng_error());
    for (int i = 0; i < 3 && says[i]; i++) {
        if (!strstr(teng_error(), says[i])) fail_msg("\"%s\" lacks \"%s\"", teng_error(), says[i]);
    }
    teng_error_clear();
}
#define REFUSED(path, o, status, ...) expect_refused(path, o, status, (const char *const[3]){__VA_ARGS__})

static void damage(const char *from, const char *to, size_t keep, int64_t flip)
{
    char *text;
    size_t n;
    assert_int_equal(tg_file_read(from, &text, &n), TENG_OK);
    if (flip >= 0) text[flip] ^= 4;
    assert_int_equal(tg_file_write(to, text, keep < n ? keep : n), TENG_OK);
    tg_free(text);
}

static void damaged_own_files(void **state)
{
    (void)state;
    uint64_t n = write_file("whole.tok", TG_TOKENS_TENG, 1000);
    int64_t size = tg_file_size("whole.tok"), table = (int64_t)((128 + 2 * n + 7) & ~7u);
    tg_token_open verify = {.eos = -1, .verify = true};
    damage("whole.tok", "cut.tok", 100, -1);
    REFUSED("cut.tok", NULL, TENG_FORMAT, "cut.tok: truncated", "offset 100");
    damage("whole.tok", "cut.tok", (size_t)size - 1, -1);
    REFUSED("cut.tok", NULL, TENG_FORMAT, "cut.tok: truncated");
    damage("whole.tok", "bad.tok", (size_t)size, 40);
    REFUSED("bad.tok", NULL, TENG_FORMAT, "bad.tok: corrupt", "header (offset 0)");
    damage("whole.tok", "bad.tok", (size_t)size, table + 16);
    char where[40];
    snprintf(where, sizeof where, "(offset %lld)", (long long)table);
    REFUSED("bad.tok", NULL, TENG_FORMAT, "the document table", where);
    damage("whole.tok", "bad.tok", (size_t)size, 131);
    REFUSED("bad.tok", &verify, TENG_FORMAT, "bad.tok: corrupt", "offset 128");
    damage("whole.tok", "bad.tok", (size_t)size, 8);
    REFUSED("bad.tok", NULL, TENG_UNSUPPORTED, "version 5");
    assert_int_equal(tg_file_write("empty.bin", "", 0), TENG_OK);
    REFUSED("empty.bin", NULL, TENG_FORMAT, "empty.bin", "no token");
    REFUSED("absent.tok", NULL, TENG_IO, "absent.tok");
}

static void damaged_foreign_files(void **state)
{
    (void)state;
    write_file("whole.bin", TG_TOKENS_LLMC, 1000);
    int64_t size = tg_file_size("whole.bin");
    damage("whole.bin", "cut.bin", (size_t)size - 3, -1);
    REFUSED("cut.bin", NULL, TENG_FORMAT, "cut.bin: truncated", "llmc");
    damage("whole.bin", "cut.bin", 900, -1);
    REFUSED("cut.bin", NULL, TENG_FORMAT, "truncated", "1024 bytes");
    damage("whole.bin", "bad.bin", (size_t)size, 4);
    REFUSED("bad.bin", NULL, TENG_UNSUPPORTED, "version 5", "offset 4");
    assert_int_equal(tg_file_write("odd.bin", "abc", 3), TENG_OK);
    REFUSED("odd.bin", NULL, TENG_FORMAT, "odd.bin: truncated", "offset 2");
    static const char *const formats[] = {"teng", "llmc", "megatron"};
    for (int i = 0; i < 3; i++) {
        tg_token_open o = {.format = tg_token_format_parse(formats[i]), .eos = -1};
        tg_token_file *f;
        assert_int_not_equal(tg_token_file_open("odd.bin", &o, &f), TENG_OK);
        teng_error_clear();
    }
    assert_int_equal(tg_token_format_parse("nonsense"), TG_TOKENS_FORMAT_COUNT);

    write_file("meg.bin", TG_TOKENS_MEGATRON, 1000);
    int64_t bytes = tg_file_size("meg.idx");
    assert_int_equal(tg_file_copy("meg.bin", "hurt.bin"), TENG_OK);
    damage("meg.idx", "hurt.idx", (size_t)bytes - 8, -1);
    REFUSED("hurt.bin", NULL, TENG_FORMAT, "hurt.idx: truncated");
    damage("meg.idx", "hurt.idx", (size_t)bytes, 17);
    REFUSED("hurt.bin", NULL, TENG_UNSUPPORTED, "dtype code 12", "offset 17");
    damage("meg.idx", "hurt.idx", (size_t)bytes, 9);
    REFUSED("hurt.bin", NULL, TENG_UNSUPPORTED, "version 5", "offset 9");
    damage("meg.idx", "hurt.idx", (size_t)bytes, 34 + 4);
    REFUSED("hurt.bin", NULL, TENG_FORMAT, "hurt.idx", "sequence 2");
    damage("meg.idx", "hurt.idx", (size_t)bytes, bytes - 8);
    REFUSED("hurt.bin", NULL, TENG_FORMAT, "hurt.idx", "document index");
    damage("meg.idx", "hurt.idx", (size_t)bytes, -1);
    damage("meg.bin", "hurt.bin", 50, -1);
    REFUSED("hurt.bin", NULL, TENG_FORMAT, "hurt.bin: truncated", "offset 50");
}

static void tokens_beyond_the_vocabulary(void **state)
{
    (void)state;
    static const uint16_t raw[] = {5, 6, 900, 7};
    assert_int_equal(tg_file_write("high.bin", raw, sizeof raw), TENG_OK);
    tg_token_open verify = {.vocab_limit = 900, .eos = -1, .verify = true},
                  lazy = {.vocab_limit = 900, .eos = -1};
    REFUSED("high.bin", &verify, TENG_FORMAT, "high.bin: token 2 is 900", "0 … 899", "another tokenizer");
    tg_token_file *f;
    int32_t out[4];
    assert_int_equal(tg_token_file_open("high.bin", &lazy, &f), TENG_OK);
    assert_int_equal(tg_token_file_read(f, 0, 2, out), TENG_OK);
    assert_int_equal(tg_token_file_read(f, 1, 3, out), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "token 2 is 900"));
    teng_error_clear();
    tg_token_file_close(&f);
    /* Own files know their largest token: refused at once. */
    write_file("high.tok", TG_TOKENS_TENG, 1000);
    tg_token_open small = {.vocab_limit = 500, .eos = -1};
    REFUSED("high.tok", &small, TENG_FORMAT, "high.tok: token ", "500");
    tg_token_info info = {.format = TG_TOKENS_TENG, .vocab_size = 10, .eos = -1};
    tg_token_writer *w;
    assert_int_equal(tg_token_writer_open("never.tok", &info, &w), TENG_OK);
    assert_int_equal(tg_token_writer_add(w, (const uint32_t[]){1, 10}, 2), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "token 1 is 10"));
    teng_error_clear();
    tg_token_writer_abort(&w);
    assert_false(tg_path_exists("never.tok"));
    info.format = TG_TOKENS_MEMORY;
    assert_int_equal(tg_token_writer_open("never.tok", &info, &w), TENG_INVALID);
    teng_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(round_trip, nothing_pending),
        cmocka_unit_test_teardown(known_bytes, nothing_pending),
        cmocka_unit_test_teardown(damaged_own_files, nothing_pending),
        cmocka_unit_test_teardown(damaged_foreign_files, nothing_pending),
        cmocka_unit_test_teardown(tokens_beyond_the_vocabulary, nothing_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
