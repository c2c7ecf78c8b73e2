/* Encoding and training of a tokenizer, on a file or on a drawn text of words that follow Zipf's law. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define WORDS 20000
#define OWN_VOCAB 8192 /* of the tokenizer that is trained when none is named */
#define MAX_PASSES 64

typedef struct bench {
    const tg_bench_tokenizer_options *options;
    char *text, *drawn; /* drawn: path of the text's file, to be removed */
    size_t size;
    tg_tokenizer *tokenizer;
    tg_bench_stat encode, train;
    uint64_t tokens, hash;
} bench;

/* ---- text ---- */
static void spell(uint64_t key, uint64_t word, tg_strbuf *out)
{
    const uint64_t letters = 2 + tg_rng_below(key, word * 16, 9);
    for (uint64_t i = 0; i < letters; i++)
        tg_strbuf_putc(out, (char)('a' + tg_rng_below(key, word * 16 + 1 + i, 26)));
}

/* Word r comes as often as 1/r; a sentence has about a dozen. */
static teng_status draw_text(uint64_t seed, uint64_t bytes, tg_strbuf *out)
{
    const uint64_t words = tg_rng_key(seed, "words"), order = tg_rng_key(seed, "text");
    for (uint64_t i = 0; out->len < bytes && !out->failed; i++) {
        spell(words, (uint64_t)exp(tg_rng_double(order, 2 * i) * log(WORDS)), out);
        const uint64_t after = tg_rng_below(order, 2 * i + 1, 60);
        tg_strbuf_puts(out, after == 0 ? ".\n" : after < 5 ? ". " : after < 8 ? ", " : " ");
    }
    return out->failed ? tg_fail(TENG_MEMORY, "the text to be measured on: out of memory") : TENG_OK;
}

/* A training reads files. */
static teng_status write_drawn(bench *b)
{
    const char *tmp = getenv("TMPDIR");
    b->drawn = tg_asprintf("%s/teng-bench-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!b->drawn) return TENG_MEMORY;
    const int fd = mkstemp(b->drawn);
    if (fd < 0) {
        const teng_status status =
            tg_fail_errno(TENG_IO, errno, "%s: the drawn text cannot be written; set TMPDIR", b->drawn);
        tg_free(b->drawn);
        b->drawn = NULL;
        return status;
    }
    close(fd);
    return tg_file_write(b->drawn, b->text, b->size);
}

static teng_status get_text(bench *b)
{
    if (b->options->file) return tg_file_read(b->options->file, &b->text, &b->size);
    tg_strbuf text = {0};
    const teng_status status = draw_text(b->options->seed, b->options->drawn_bytes, &text);
    b->size = text.len;
    b->text = status == TENG_OK ? tg_strbuf_take(&text) : NULL;
    tg_strbuf_free(&text);
    if (status != TENG_OK) return status;
    const bool trains = !b->options->tokenizer || b->options->train_vocab;
    return b->text ? trains ? write_drawn(b) : TENG_OK : TENG_MEMORY;
}

/* ---- measuring ---- */
static teng_status train(bench *b, uint32_t vocab, tg_tokenizer **out)
{
    const char *path = b->options->file ? b->options->file : b->drawn;
    const tg_bpe_options options = {.vocab_size = vocab};
    return tg_bpe_train(&options, &path, 1, out);
}

static teng_status get_tokenizer(bench *b)
{
    const char *name = b->options->tokenizer;
    if (!name) return train(b, OWN_VOCAB, &b->tokenizer);
    return strcmp(name, "bytes") == 0 ? tg_tokenizer_bytes(NULL, 0, &b->tokenizer)
                                      : tg_tokenizer_load(name, &b->tokenizer);
}

/* XXH3 of the ids as little-endian numbers, whatever the machine. */
static uint64_t hash_ids(const tg_ids *ids)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) return 0;
    XXH3_64bits_reset(state);
    unsigned char block[4096];
    for (size_t i = 0; i < ids->len;) {
        size_t n = 0;
        for (; n < sizeof block && i < ids->len; i++)
            for (int shift = 0; shift < 32; shift += 8)
                block[n++] = (unsigned char)(ids->data[i] >> shift);
        XXH3_64bits_update(state, block, n);
    }
    const uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

/* The first pass, which warms up, is not counted. */
static teng_status measure_encode(bench *b)
{
    double seconds[MAX_PASSES];
    const int64_t passes = b->options->passes < MAX_PASSES ? b->options->passes : MAX_PASSES;
    tg_ids ids = {0};
    teng_status status = TENG_OK;
    for (int64_t i = 0; i <= passes && status == TENG_OK; i++) {
        ids.len = 0;
        const double begin = tg_clock_seconds();
        status = tg_tokenizer_encode(b->tokenizer, b->text, b->size, 0, &ids);
        if (i > 0) seconds[i - 1] = tg_clock_seconds() - begin;
    }
    if (status == TENG_OK) {
        b->encode = tg_bench_stat_of(seconds, passes);
        b->tokens = ids.len;
        b->hash = hash_ids(&ids);
    }
    tg_vec_free(&ids);
    return status;
}

static teng_status measure_train(bench *b)
{
    double seconds[MAX_PASSES];
    const int64_t passes = b->options->passes < 3 ? b->options->passes : 3;
    for (int64_t i = 0; i < passes; i++) {
        tg_tokenizer *t = NULL;
        const double begin = tg_clock_seconds();
        TG_TRY(train(b, b->options->train_vocab, &t));
        seconds[i] = tg_clock_seconds() - begin;
        tg_tokenizer_destroy(&t);
    }
    b->train = tg_bench_stat_of(seconds, passes);
    return TENG_OK;
}

static teng_status measure(bench *b)
{
    TG_TRY(get_text(b));
    if (b->size == 0)
        return tg_fail(TENG_INVALID, "%s is empty: there is nothing to encode", b->options->file);
    TG_TRY(get_tokenizer(b));
    TG_TRY(measure_encode(b));
    return b->options->train_vocab ? measure_train(b) : TENG_OK;
}

static json_t *figures(const bench *b)
{
    char hash[32];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)b->hash);
    const double mb = (double)b->size * 1e-6;
    json_t *o =
        json_pack("{s:f, s:o, s:I, s:I, s:I, s:s, s:f}", "mb_per_s", mb / b->encode.median, "encode_s",
                  tg_bench_stat_json(b->encode), "bytes", (json_int_t)b->size, "tokens",
                  (json_int_t)b->tokens, "vocab_size", (json_int_t)tg_tokenizer_vocab_size(b->tokenizer),
                  "ids_hash", hash, "bytes_per_token", (double)b->size / (double)b->tokens);
    if (!o || !b->train.n) return o;
    json_t *t = json_pack("{s:f, s:o, s:I}", "train_mb_per_s", mb / b->train.median, "train_s",
                          tg_bench_stat_json(b->train), "train_vocab", (json_int_t)b->options->train_vocab);
    const int failed = !t || json_object_update(o, t);
    json_decref(t);
    if (!failed) return o;
    json_decref(o);
    return NULL;
}

teng_status tg_bench_tokenizer(const tg_bench_tokenizer_options *options, json_t **out)
{
    bench b = {.options = options};
    teng_status status = measure(&b);
    if (status == TENG_OK) status = tg_bench_answer(figures(&b), out);
    if (b.drawn) unlink(b.drawn);
    tg_free(b.drawn);
    tg_free(b.text);
    tg_tokenizer_destroy(&b.tokenizer);
    return status;
}
