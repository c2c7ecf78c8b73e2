/*
 * The first half of training: words and how often they occur, on all cores. Text is read in blocks, a block
 * is cut into tasks, each task counts into a table of its own and then adds that to shared tables, one per
 * group of hashes. Memory: the distinct words once, one block, and a small table per thread.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "data/bpe_count.h"
#include "data/documents.h"
#include "data/utf8_scan.h"

#include <omp.h>
#include <string.h>
#include <xxhash.h>

#define BLOCK_BYTES ((size_t)16 << 20)
#define TASK_BYTES ((size_t)128 << 10)
#define LONGEST_TASK ((size_t)4 << 20) /* text without any place to cut is cut here, between characters */
#define SHARDS 64

typedef struct counter {
    tg_tokenizer *t; /* only its pre-tokenizer is used */
    tg_strbuf block;
    TG_VEC(size_t) ends; /* of the tasks in the block */
    tg_word_table shard[SHARDS];
    pthread_mutex_t lock[SHARDS];
    int threads;
} counter;

typedef struct local {
    tg_word_table table;
    tg_scratch *scratch;
} local;

static teng_status count_word(void *user, const char *word, size_t len)
{
    local *l = user;
    if (len < 2) return TENG_OK; /* nothing to merge */
    return tg_word_add(&l->table, XXH3_64bits(word, len), word, len, 1) ? TENG_OK : TENG_MEMORY;
}

static teng_status count_task(const counter *c, local *l, const char *text, size_t n)
{
    const unsigned char *u = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        size_t valid = tg_utf8_prefix(u + i, n - i);
        TG_TRY(tg_pretokenize(c->t, l->scratch, text + i, valid, count_word, l));
        i += valid;
        i += tg_utf8_invalid(u + i, n - i);
    }
    return TENG_OK;
}

static teng_status add_to_shards(counter *c, const tg_word_table *table)
{
    for (size_t i = 0; i < table->words.len; i++) {
        const tg_word *w = &table->words.data[i];
        size_t k = w->hash >> 58;
        pthread_mutex_lock(&c->lock[k]);
        bool ok = tg_word_add(&c->shard[k], w->hash, table->bytes.data + w->at, w->len, w->count);
        pthread_mutex_unlock(&c->lock[k]);
        if (!ok) return TENG_MEMORY;
    }
    return TENG_OK;
}

static teng_status count_block(counter *c)
{
    tg_error error = {0};
    size_t tasks = c->ends.len;
#pragma omp parallel num_threads(c->threads)
    {
        local l = {.scratch = tg_scratch_take(c->t)};
        teng_status status = l.scratch ? TENG_OK : TENG_MEMORY;
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < tasks; i++) {
            size_t begin = i ? c->ends.data[i - 1] : 0;
            if (status == TENG_OK) status = count_task(c, &l, c->block.data + begin, c->ends.data[i] - begin);
            if (status == TENG_OK) status = add_to_shards(c, &l.table);
            tg_word_table_clear(&l.table);
        }
        if (status != TENG_OK) {
#pragma omp critical(tg_count_error)
            if (error.status == TENG_OK) tg_error_take(&error);
            teng_error_clear();
        }
        tg_word_table_free(&l.table);
        if (l.scratch) tg_scratch_give(c->t, l.scratch);
    }
    c->ends.len = 0;
    tg_strbuf_clear(&c->block);
    return error.status == TENG_OK ? TENG_OK : tg_error_give(&error);
}

/* Adds a document to the block, cut into tasks; counts the block whenever it is full. */
static teng_status add_document(counter *c, const char *text, size_t n)
{
    while (n) {
        size_t len = tg_tokenizer_cut(c->t, text, n < LONGEST_TASK ? n : LONGEST_TASK, TASK_BYTES);
        while (len < n && len > 1 && ((unsigned char)text[len] & 0xC0) == 0x80)
            len--;
        tg_strbuf_add(&c->block, text, len);
        if (c->block.failed) return tg_fail(TENG_MEMORY, "no memory for a block of text");
        if (!tg_vec_push(&c->ends, c->block.len)) return TENG_MEMORY;
        if (c->block.len >= BLOCK_BYTES) TG_TRY(count_block(c));
        text += len;
        n -= len;
    }
    return TENG_OK;
}

static teng_status read_all(counter *c, const tg_bpe_options *options, tg_documents *docs)
{
    double start = tg_clock_seconds(), told = 0;
    for (;;) {
        tg_document doc;
        bool end;
        TG_TRY(tg_documents_next(docs, &doc, &end));
        if (end) break;
        TG_TRY(add_document(c, doc.text, doc.len));
        double now = tg_clock_seconds();
        if (!options->progress || now - told < 0.2) continue;
        told = now;
        tg_bpe_progress p = {.phase = "count", .seconds = now - start};
        tg_documents_position(docs, &p.done, &p.total);
        for (int k = 0; k < SHARDS; k++)
            p.words += c->shard[k].words.len;
        options->progress(options->user, &p);
    }
    return count_block(c);
}

/* Moves the shards into one table. */
static teng_status join(counter *c, tg_word_table *out)
{
    for (int k = 0; k < SHARDS; k++) {
        for (size_t i = 0; i < c->shard[k].words.len; i++) {
            const tg_word *w = &c->shard[k].words.data[i];
            tg_word copy = {w->hash, w->count, out->bytes.len, w->len};
            if (!tg_vec_push(&out->words, copy) || !tg_vec_reserve(&out->bytes, out->bytes.len + w->len))
                return TENG_MEMORY;
            memcpy(out->bytes.data + out->bytes.len, c->shard[k].bytes.data + w->at, w->len);
            out->bytes.len += w->len;
        }
        tg_word_table_free(&c->shard[k]);
    }
    return TENG_OK;
}

teng_status tg_bpe_count(const tg_bpe_options *options, tg_tokenizer *t, const char *const *inputs,
                         int n_inputs, tg_word_table *out)
{
    tg_documents *docs = NULL;
    counter *c = tg_calloc(1, sizeof *c);
    if (!c) return TENG_MEMORY;
    c->t = t;
    c->threads = options->threads > 0 ? options->threads : omp_get_max_threads();
    for (int k = 0; k < SHARDS; k++)
        pthread_mutex_init(&c->lock[k], NULL);
    teng_status status = tg_documents_open(inputs, n_inputs, options->json_field, NULL, &docs);
    if (status == TENG_OK) status = read_all(c, options, docs);
    if (status == TENG_OK) status = join(c, out);
    tg_documents_close(&docs);
    for (int k = 0; k < SHARDS; k++) {
        tg_word_table_free(&c->shard[k]);
        pthread_mutex_destroy(&c->lock[k]);
    }
    tg_vec_free(&c->ends);
    tg_strbuf_free(&c->block);
    tg_free(c);
    return status;
}
