/*
 * The loader: labels, order, ranks, seek, packing, buckets, evaluation, prefetch, splits, refusals. Most
 * streams here are the numbers 0, 1, 2, …, so that a batch tells where it was cut.
 */
#include "base/file.h"
#include "base/mem.h"
#include "data/loader.h"

#include "cmocka_all.h"

#include <string.h>

static int nothing_pending(void **state)
{
    (void)state;
    return *teng_error() != '\0';
}

/* Tokens 0 … n - 1; documents of the given lengths (the rest is one document). */
static void write_numbers(const char *path, uint32_t n, const uint32_t *lengths, int documents)
{
    tg_token_info info = {.format = TG_TOKENS_TENG, .vocab_size = 100000, .eos = -1};
    tg_token_writer *w;
    assert_int_equal(tg_token_writer_open(path, &info, &w), TENG_OK);
    uint32_t next = 0;
    for (int d = 0; next < n; d++) {
        for (uint32_t i = 0; next < n && (d >= documents || i < lengths[d]); i++, next++)
            assert_int_equal(tg_token_writer_add(w, &next, 1), TENG_OK);
        assert_int_equal(tg_token_writer_end(w, 3), TENG_OK);
    }
    assert_int_equal(tg_token_writer_commit(&w), TENG_OK);
}

static tg_loader *open_loader(const tg_loader_options *o)
{
    tg_loader *l;
    if (tg_loader_open(o, &l) != TENG_OK) fail_msg("%s", teng_error());
    return l;
}

static tg_batch next(tg_loader *l)
{
    tg_batch b;
    if (tg_loader_next(l, &b) != TENG_OK) fail_msg("%s", teng_error());
    return b;
}

static const char *const numbers = "numbers.tok";
static tg_loader_options base_options(void)
{
    return (tg_loader_options){.files = &numbers,
                               .n_files = 1,
                               .eos = -1,
                               .pad = -1,
                               .seq_len = 10,
                               .rows = 4,
                               .seed = 5,
                               .shuffle = true};
}

static void an_epoch_holds_each_sample_once(void **state)
{
    (void)state;
    write_numbers(numbers, 1006, NULL, 0);
    tg_loader_options o = base_options();
    tg_loader *l = open_loader(&o);
    tg_loader_info info = tg_loader_info_get(l);
    assert_int_equal(info.samples, 100);
    assert_int_equal(info.batches, 25);
    assert_int_equal(info.tokens, 1006);
    int order[2][100];
    for (int e = 0; e < 2; e++) {
        bool seen[100] = {false};
        for (int b = 0; b < 25; b++) {
            tg_batch batch = next(l);
            assert_true(batch.rows == 4 && batch.seq == 10 && batch.valid == 40 && batch.epoch == e);
            assert_int_equal(batch.cursor, (uint64_t)(e * 100 + b * 4 + 4));
            for (int r = 0; r < 4; r++) {
                int32_t first = batch.tokens[r * 10];
                assert_int_equal(first % 10, 0);
                for (int t = 0; t < 10; t++) {
                    assert_int_equal(batch.tokens[r * 10 + t], first + t);
                    assert_int_equal(batch.labels[r * 10 + t], first + t + 1); /* the next token */
                }
                assert_false(seen[first / 10]);
                seen[first / 10] = true;
                order[e][b * 4 + r] = first / 10;
            }
        }
    }
    int fixed = 0, same = 0;
    for (int i = 0; i < 100; i++) {
        fixed += order[0][i] == i;
        same += order[0][i] == order[1][i];
    }
    assert_true(fixed < 20 && same < 20); /* shuffled, and anew each epoch */
    tg_loader_close(&l);
}

static void batches_run_into_the_next_epoch_or_not(void **state)
{
    (void)state;
    write_numbers(numbers, 101, NULL, 0); /* 10 samples, 4 rows */
    tg_loader_options o = base_options();
    o.shuffle = false;
    tg_loader *l = open_loader(&o);
    for (int g = 0; g < 40; g += 4) {
        tg_batch b = next(l);
        for (int r = 0; r < 4; r++)
            assert_int_equal(b.tokens[r * 10], (g + r) % 10 * 10);
        assert_int_equal(b.epoch, g / 10);
    }
    tg_loader_close(&l);
    o.drop_last = true;
    l = open_loader(&o);
    assert_int_equal(tg_loader_info_get(l).samples, 8);
    for (int g = 0; g < 24; g += 4) {
        tg_batch b = next(l);
        assert_int_equal(b.tokens[0], g % 8 * 10);
        assert_int_equal(b.epoch, g / 8);
    }
    tg_loader_close(&l);
}

static void ranks_share_the_order(void **state)
{
    (void)state;
    write_numbers(numbers, 1006, NULL, 0);
    tg_loader_options o = base_options();
    o.rows = 8;
    tg_loader *whole = open_loader(&o), *rank[4];
    o.rows = 2;
    o.ranks = 4;
    for (int k = 0; k < 4; k++) {
        o.rank = k;
        rank[k] = open_loader(&o);
    }
    for (int i = 0; i < 30; i++) {
        tg_batch w = next(whole);
        for (int k = 0; k < 4; k++) {
            tg_batch b = next(rank[k]);
            assert_memory_equal(b.tokens, w.tokens + k * 20, 20 * sizeof(int32_t));
            assert_memory_equal(b.labels, w.labels + k * 20, 20 * sizeof(int32_t));
            assert_int_equal(b.cursor, w.cursor);
        }
    }
    tg_loader_close(&whole);
    for (int k = 0; k < 4; k++)
        tg_loader_close(&rank[k]);
}

/* Micro-batch m of `ranks` loaders together is micro-batch m of one loader, after a seek too. */
static void expect_shared(tg_loader_options o, int64_t ranks, int64_t pieces, uint64_t cursor)
{
    const int64_t all = 24, each = all / ranks / pieces;
    tg_loader *rank[24], *whole;
    o.rows = all;
    whole = open_loader(&o);
    assert_int_equal(tg_loader_seek(whole, cursor), TENG_OK);
    o.ranks = ranks;
    o.rows = all / ranks;
    o.pieces = pieces;
    for (o.rank = 0; o.rank < ranks; o.rank++) {
        rank[o.rank] = open_loader(&o);
        assert_int_equal(tg_loader_seek(rank[o.rank], cursor), TENG_OK);
    }
    for (int i = 0; i < 9; i++) {
        tg_batch w = next(whole);
        int64_t valid = 0;
        for (int64_t k = 0; k < ranks; k++) {
            tg_batch b = next(rank[k]);
            assert_true(b.cursor == w.cursor && b.epoch == w.epoch && b.seq == w.seq);
            assert_int_equal(b.rows == 0, w.rows == 0);
            valid += b.valid;
            for (int64_t r = 0; r < b.rows; r++) {
                const int64_t row = (r / each * ranks + k) * each + r % each;
                const size_t bytes = (size_t)w.seq * sizeof(int32_t);
                assert_memory_equal(b.tokens + r * b.seq, w.tokens + row * w.seq, bytes);
                assert_memory_equal(b.labels + r * b.seq, w.labels + row * w.seq, bytes);
            }
        }
        assert_int_equal(valid, w.valid);
        assert_int_equal(tg_loader_cursor(rank[ranks - 1]), tg_loader_cursor(whole));
    }
    tg_loader_close(&whole);
    for (int64_t k = 0; k < ranks; k++)
        tg_loader_close(&rank[k]);
}

static void micro_batches_are_the_same_on_any_number_of_ranks(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 24};
    static const uint32_t lengths[] = {25, 1, 2, 11, 10, 3, 7, 300, 4, 5, 6};
    write_numbers(numbers, 1006, lengths, 11);
    for (int kind = 0; kind < 5; kind++) {
        tg_loader_options o = base_options();
        if (kind == 1 || kind == 2) o.packing = TG_PACK_DOCUMENT;
        if (kind == 3) o.once = true;
        o.synthetic = kind == 4;
        o.vocab_limit = 2000;
        if (kind == 2) {
            o.seq_buckets[0] = 4;
            o.seq_buckets[1] = 10;
            o.n_buckets = 2;
        }
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int64_t pieces = 1; pieces <= 24 / sizes[i]; pieces++)
                if (24 % (sizes[i] * pieces) == 0)
                    expect_shared(o, sizes[i], pieces, 24 * (uint64_t)(i % 3) + (uint64_t)(kind == 0));
    }
}

/* 60 batches of each kind of loader; equal with a thread, and after a seek into the middle. */
static void expect_equal_runs(tg_loader_options o)
{
    enum { N = 60 };
    size_t size = (size_t)(o.rows * o.seq_len) * sizeof(int32_t);
    int32_t *tokens = tg_alloc(N * size), *labels = tg_alloc(N * size);
    tg_batch want[N];
    size_t stride = size / sizeof *tokens;
    tg_loader *l = open_loader(&o);
    for (size_t i = 0; i < N; i++) {
        want[i] = next(l);
        memcpy(tokens + i * stride, want[i].tokens, (size_t)(want[i].rows * want[i].seq) * sizeof(int32_t));
        memcpy(labels + i * stride, want[i].labels, (size_t)(want[i].rows * want[i].seq) * sizeof(int32_t));
    }
    tg_loader_close(&l);
    for (int prefetch = 0; prefetch < 4; prefetch += 3) {
        o.prefetch = prefetch;
        l = open_loader(&o);
        static const size_t starts[] = {0, 17, 3, 59, 40, 0};
        for (size_t k = 0; k < 6; k++) {
            uint64_t cursor = starts[k] ? want[starts[k] - 1].cursor : 0;
            assert_int_equal(tg_loader_seek(l, cursor), TENG_OK);
            assert_int_equal(tg_loader_cursor(l), cursor);
            for (size_t i = starts[k]; i < N && i < starts[k] + (k == 5 ? N : 9); i++) {
                tg_batch b = next(l);
                assert_true(b.seq == want[i].seq && b.valid == want[i].valid && b.epoch == want[i].epoch &&
                            b.cursor == want[i].cursor);
                assert_memory_equal(b.tokens, tokens + i * stride,
                                    (size_t)(b.rows * b.seq) * sizeof(int32_t));
                assert_memory_equal(b.labels, labels + i * stride,
                                    (size_t)(b.rows * b.seq) * sizeof(int32_t));
                assert_int_equal(tg_loader_cursor(l), b.cursor);
            }
        }
        tg_loader_close(&l);
    }
    tg_free(tokens);
    tg_free(labels);
}

static void prefetch_and_seek_change_nothing(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {30, 2, 11, 10, 5, 100, 1, 21, 3, 9};
    write_numbers(numbers, 700, lengths, 10);
    tg_loader_options o = base_options();
    expect_equal_runs(o);
    o.seq_buckets[0] = 3;
    o.seq_buckets[1] = 6;
    o.seq_buckets[2] = 10;
    o.n_buckets = 3;
    expect_equal_runs(o);
    o.packing = TG_PACK_DOCUMENT;
    o.rows = 2;
    expect_equal_runs(o);
    o.n_buckets = 0;
    o.drop_last = true;
    expect_equal_runs(o);
    tg_loader_options s = {
        .synthetic = true, .vocab_limit = 50, .seq_len = 12, .rows = 3, .pad = -1, .seed = 8};
    expect_equal_runs(s);
}

static void documents_are_not_crossed(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {25, 1, 2, 11, 10};
    write_numbers(numbers, 49, lengths, 5);
    tg_loader_options o = base_options();
    o.packing = TG_PACK_DOCUMENT;
    o.rows = 1;
    o.shuffle = false;
    o.pad = 77;
    tg_loader *l = open_loader(&o);
    /* first token, tokens, labels of each sample: 25 = 10 + 10 + 5 (24 labels), 1 gives none, 2 → 1 label, 11
     * → 10, 10 → 9 */
    static const int want[][3] = {{0, 10, 10}, {10, 10, 10}, {20, 5, 4},
                                  {26, 2, 1},  {28, 10, 10}, {39, 10, 9}};
    assert_int_equal(tg_loader_info_get(l).samples, 6);
    for (int i = 0; i < 6; i++) {
        tg_batch b = next(l);
        assert_int_equal(b.valid, want[i][2]);
        for (int t = 0; t < 10; t++) {
            assert_int_equal(b.tokens[t], t < want[i][1] ? want[i][0] + t : 77);
            assert_int_equal(b.labels[t], t < want[i][2] ? want[i][0] + t + 1 : TG_LABEL_IGNORE);
        }
    }
    tg_loader_close(&l);
    /* The smallest bucket that holds the longest of the batch. */
    o.seq_buckets[0] = 4;
    o.seq_buckets[1] = 10;
    o.n_buckets = 2;
    l = open_loader(&o);
    for (int i = 0; i < 6; i++)
        assert_int_equal(next(l).seq, want[i][2] <= 4 ? 4 : 10);
    tg_loader_close(&l);
    o.ranks = 2; /* all ranks take the same */
    for (int k = 0; k < 2; k++) {
        o.rank = k;
        l = open_loader(&o);
        for (int i = 0; i < 6; i += 2)
            assert_int_equal(next(l).seq, want[i][2] <= 4 && want[i + 1][2] <= 4 ? 4 : 10);
        tg_loader_close(&l);
    }
}

static void buckets_lose_no_token(void **state)
{
    (void)state;
    write_numbers(numbers, 16 * 40 + 1, NULL, 0);
    tg_loader_options o = base_options();
    o.seq_buckets[0] = 2;
    o.seq_buckets[1] = 4;
    o.seq_buckets[2] = 10;
    o.n_buckets = 3;
    tg_loader *l = open_loader(&o);
    assert_int_equal(tg_loader_info_get(l).samples, 120);
    bool seen[16 * 40] = {false};
    int used[11] = {0};
    for (int i = 0; i < 30; i++) {
        tg_batch b = next(l);
        used[b.seq]++;
        assert_int_equal(b.epoch, 0);
        for (int64_t k = 0; k < b.rows * b.seq; k++) {
            assert_false(seen[b.tokens[k]]);
            seen[b.tokens[k]] = true;
            assert_int_equal(b.labels[k], b.tokens[k] + 1);
        }
    }
    for (int i = 0; i < 16 * 40; i++)
        assert_true(seen[i]);
    assert_true(used[2] == 10 && used[4] == 10 && used[10] == 10);
    assert_int_equal(tg_loader_seek(l, 6), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "cursor 6 is no whole number of batches of 4"));
    teng_error_clear();
    tg_loader_close(&l);
}

static void evaluation_predicts_each_token_once(void **state)
{
    (void)state;
    for (int prefetch = 0; prefetch < 3; prefetch += 2) {
        write_numbers(numbers, 67, NULL, 0);
        tg_loader_options o = base_options();
        o.once = true;
        o.prefetch = prefetch;
        tg_loader *l = open_loader(&o);
        int32_t expected = 1;
        int64_t valid = 0, batches = 0;
        for (tg_batch b = next(l); b.rows; b = next(l), batches++) {
            assert_int_equal(b.rows, 4);
            for (int64_t i = 0; i < b.rows * b.seq; i++) {
                if (b.labels[i] == TG_LABEL_IGNORE) continue;
                assert_int_equal(b.labels[i], expected++);
                assert_int_equal(b.tokens[i], b.labels[i] - 1);
            }
            valid += b.valid;
        }
        assert_int_equal(expected, 67);
        assert_int_equal(valid, 66);
        assert_int_equal(batches, 2);
        assert_int_equal(tg_loader_info_get(l).batches, 2);
        assert_int_equal(next(l).rows, 0); /* it stays over */
        assert_int_equal(tg_loader_seek(l, 0), TENG_OK);
        assert_int_equal(next(l).tokens[0], 0);
        tg_loader_close(&l);
    }
}

static void several_files_and_a_split(void **state)
{
    (void)state;
    static const char *const files[] = {"part1.tok", "part2.tok"};
    uint32_t lengths[20];
    for (int i = 0; i < 20; i++)
        lengths[i] = 5;
    write_numbers(files[0], 100, lengths, 20);
    write_numbers(files[1], 100, lengths, 20);
    tg_loader_options o = base_options();
    o.files = files;
    o.n_files = 2;
    o.once = true;
    o.rows = 1;
    o.corpus.val_fraction = 0.3;
    o.corpus.seed = 4;
    int count[3] = {0}, hits[200] = {0};
    for (int part = 0; part < 3; part++) {
        o.split = (tg_split)part;
        tg_loader *l = open_loader(&o);
        tg_loader_info info = tg_loader_info_get(l);
        count[part] = (int)info.documents;
        assert_int_equal(info.tokens, info.documents * 5);
        assert_int_equal(info.text_bytes, info.documents * 3);
        int32_t before = -1;
        bool second = false;
        for (tg_batch b = next(l); part && b.rows; b = next(l)) {
            for (int t = 0; t < 10; t++) {
                if (b.labels[t] == TG_LABEL_IGNORE) continue;
                second |= b.tokens[t] < before; /* the second file begins again */
                before = b.tokens[t];
                hits[before + (second ? 100 : 0)] += part;
            }
        }
        tg_loader_close(&l);
    }
    assert_int_equal(count[0], 40);
    assert_int_equal(count[1] + count[2], 40);
    assert_true(count[2] > 4 && count[2] < 25);
    int missing = 0;
    for (int i = 0; i < 200; i++) {
        assert_true(hits[i] <= 2); /* in one part only */
        assert_int_equal(hits[i] == 0 ? hits[i / 5 * 5] : hits[i], hits[i / 5 * 5]);
        missing += hits[i] == 0;
    }
    assert_int_equal(missing, 2); /* the last token of each part predicts nothing */
}

static void text_is_read_directly(void **state)
{
    (void)state;
    static const char *const file = "direct.md";
    tg_tokenizer *t;
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    assert_int_equal(tg_file_write(file, "abcdefgh", 8), TENG_OK);
    tg_loader_options o = base_options();
    o.files = &file;
    o.tokenizer = t;
    o.corpus.add_eos = true;
    o.rows = 1;
    o.seq_len = 8;
    tg_loader *l = open_loader(&o);
    tg_batch b = next(l);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(b.tokens[i], 'a' + i);
        assert_int_equal(b.labels[i], i < 7 ? 'b' + i : 256);
    }
    assert_int_equal(tg_loader_info_get(l).text_bytes, 8);
    tg_loader_close(&l);
    /* Prompts of a .jsonl: tokens, but not labels. */
    static const char *const pairs = "pairs.jsonl";
    static const char line[] = "{\"prompt\": \"ab\", \"completion\": \"cd\"}";
    assert_int_equal(tg_file_write(pairs, line, strlen(line)), TENG_OK);
    o.files = &pairs;
    o.packing = TG_PACK_DOCUMENT;
    l = open_loader(&o);
    b = next(l);
    static const int32_t labels[] = {-100, 'c', 'd', 256, -100, -100, -100, -100},
                         tokens[] = {'a', 'b', 'c', 'd', 256, 256, 256, 256};
    assert_memory_equal(b.labels, labels, sizeof labels);
    assert_memory_equal(b.tokens, tokens, sizeof tokens);
    assert_int_equal(b.valid, 3);
    tg_loader_close(&l);
    tg_tokenizer_destroy(&t);
}

static void expect_refused(const tg_loader_options *o, const char *a, const char *b)
{
    tg_loader *l = NULL;
    teng_error_clear();
    assert_int_not_equal(tg_loader_open(o, &l), TENG_OK);
    assert_null(l);
    if (!strstr(teng_error(), a) || !strstr(teng_error(), b))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", teng_error(), a, b);
    teng_error_clear();
}

static void refusals(void **state)
{
    (void)state;
    write_numbers(numbers, 10, NULL, 0);
    tg_loader_options good = base_options(), o = good;
    expect_refused(&o, "numbers.tok: the text is shorter than one sequence: 10 tokens, 11 are needed",
                   "at most 9");
    o.seq_len = 4;
    o.vocab_limit = 5;
    expect_refused(&o, "numbers.tok: token 5 is 5", "0 … 4");
    o = good;
    o.seq_len = 2;
    o.drop_last = true;
    o.rows = 100;
    expect_refused(&o, "4 sequences make no batch of 100", "smaller batch");
    o = good;
    o.n_files = 0;
    expect_refused(&o, "no data file", "data.files");
    o = good;
    o.rows = 0;
    expect_refused(&o, "0 rows", "at least 1");
    o = good;
    o.rank = 2;
    o.ranks = 2;
    expect_refused(&o, "rank 2 of 2", "from 0");
    o.rank = 0;
    o.pieces = 3;
    expect_refused(&o, "4 rows", "3 equal pieces");
    o = good;
    o.n_buckets = 2;
    o.seq_buckets[0] = 8;
    o.seq_buckets[1] = 8;
    expect_refused(&o, "bucket 1 is 8", "ascending");
    o.seq_buckets[1] = 9;
    expect_refused(&o, "largest sequence bucket is 9", "length 10");
    o = good;
    o.synthetic = true;
    expect_refused(&o, "synthetic", "vocabulary");
    o = good;
    o.split = TG_SPLIT_VAL;
    expect_refused(&o, "validation part", "fraction is 0");
    static const char *const text = "short.txt", *const mixed[] = {"short.txt", "numbers.tok"},
                             *const absent = "absent.txt";
    assert_int_equal(tg_file_write(text, "abc", 3), TENG_OK);
    o = good;
    o.files = &text;
    expect_refused(&o, "short.txt is text", "tokenizer");
    o.files = mixed;
    o.n_files = 2;
    expect_refused(&o, "cannot be mixed", "numbers.tok");
    tg_tokenizer *t;
    assert_int_equal(tg_tokenizer_bytes(NULL, 0, &t), TENG_OK);
    o = good;
    o.tokenizer = t;
    o.files = &text;
    expect_refused(&o, "short.txt: the text is shorter than one sequence: 3 tokens", "11 are needed");
    o.vocab_limit = 100;
    expect_refused(&o, "the tokenizer has 257 tokens", "only 100");
    o.vocab_limit = 0;
    o.files = &absent;
    expect_refused(&o, "absent.txt", "no such file");
    /* A token file of another tokenizer. */
    tg_token_info info = {.format = TG_TOKENS_TENG, .vocab_size = 257, .tokenizer_hash = 1, .eos = -1};
    tg_token_writer *w;
    static const char *const other = "other.tok";
    assert_int_equal(tg_token_writer_open(other, &info, &w), TENG_OK);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(tg_token_writer_add(w, &i, 1), TENG_OK);
    assert_int_equal(tg_token_writer_commit(&w), TENG_OK);
    o.files = &other;
    expect_refused(&o, "other.tok was made with another tokenizer", "0000000000000001");
    tg_tokenizer_destroy(&t);
}

/* A token beyond the vocabulary in a file too large to read through: found when its batch is made, told once
 * per call, with and without the thread. Here the file is small and changed under the open loader. */
static void errors_arrive_in_order(void **state)
{
    (void)state;
    static const char *const raw = "raw.u16";
    static uint16_t tokens[2001];
    for (int prefetch = 0; prefetch < 4; prefetch += 3) {
        for (int i = 0; i < 2001; i++)
            tokens[i] = 7;
        assert_int_equal(tg_file_write(raw, tokens, sizeof tokens), TENG_OK);
        tg_loader_options o = base_options();
        o.files = &raw;
        o.vocab_limit = 100;
        o.shuffle = false;
        o.prefetch = prefetch;
        tg_loader *l = open_loader(&o);
        FILE *f = fopen(raw, "r+b");
        uint16_t bad = 100;
        assert_true(f && fseek(f, 2 * 1234, SEEK_SET) == 0 && fwrite(&bad, 2, 1, f) == 1 && fclose(f) == 0);
        for (int i = 0; i < 30; i++)
            next(l);
        tg_batch b;
        for (int again = 0; again < 2; again++) {
            assert_int_equal(tg_loader_next(l, &b), TENG_FORMAT);
            assert_non_null(strstr(teng_error(), "raw.u16: token 1234 is 100"));
            teng_error_clear();
        }
        assert_int_equal(tg_loader_seek(l, 0), TENG_OK);
        next(l);
        tg_loader_close(&l);
    }
}

static void a_batch_allocates_nothing(void **state)
{
    (void)state;
    write_numbers(numbers, 1006, NULL, 0);
    for (int prefetch = 0; prefetch < 4; prefetch += 3) {
        tg_loader_options o = base_options();
        o.prefetch = prefetch;
        tg_loader *l = open_loader(&o);
        next(l);
        uint64_t before = tg_alloc_count();
        for (int i = 0; i < 100; i++)
            next(l);
        assert_int_equal(tg_alloc_count(), before);
        tg_loader_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_epoch_holds_each_sample_once, nothing_pending),
        cmocka_unit_test_teardown(batches_run_into_the_next_epoch_or_not, nothing_pending),
        cmocka_unit_test_teardown(ranks_share_the_order, nothing_pending),
        cmocka_unit_test_teardown(micro_batches_are_the_same_on_any_number_of_ranks, nothing_pending),
        cmocka_unit_test_teardown(prefetch_and_seek_change_nothing, nothing_pending),
        cmocka_unit_test_teardown(documents_are_not_crossed, nothing_pending),
        cmocka_unit_test_teardown(buckets_lose_no_token, nothing_pending),
        cmocka_unit_test_teardown(evaluation_predicts_each_token_once, nothing_pending),
        cmocka_unit_test_teardown(several_files_and_a_split, nothing_pending),
        cmocka_unit_test_teardown(text_is_read_directly, nothing_pending),
        cmocka_unit_test_teardown(refusals, nothing_pending),
        cmocka_unit_test_teardown(errors_arrive_in_order, nothing_pending),
        cmocka_unit_test_teardown(a_batch_allocates_nothing, nothing_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
