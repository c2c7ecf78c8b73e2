/*
 * Batches from samples. Which samples a batch holds follows from the cursor alone; the prefetch thread only
 * runs the same function earlier. Buffers are made once and circulate between two queues: free and ready.
 */
#include "data/loader.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strmap.h"
#include "base/thread.h"
#include "data/sample_source.h"

#include <inttypes.h>
#include <string.h>

#define MAX_BATCH_TOKENS ((int64_t)1 << 31)

typedef struct slot {
    tg_batch batch;
    int32_t *tokens, *labels;
    tg_error error;
} slot;

struct tg_loader {
    tg_loader_options o;
    tg_sample_source *source; /* NULL: synthetic */
    tg_sample_scratch scratch;
    uint64_t group;   /* rows of all ranks */
    uint64_t samples; /* of an epoch, as the order counts them; UINT64_MAX: synthetic */
    int32_t pad;
    uint64_t order_key, bucket_key, token_key;
    slot *slots;
    int n_slots;
    slot *held;        /* given out by the last next() */
    uint64_t given;    /* cursor behind the last batch given out */
    uint64_t produced; /* cursor of the producer */
    tg_error failed;
    double wait;
    tg_thread *thread;
    tg_queue *ready, *free;
};

/* ---- which samples ---- */

static uint64_t shuffled(const tg_loader *l, uint64_t epoch, uint64_t i)
{
    return l->o.shuffle ? tg_rng_permute(tg_rng_key(l->order_key + epoch, "epoch"), l->samples, i) : i;
}

/* CROSS with buckets: batch number b takes bucket *k; every n_buckets batches, a period, take each once.
 * Returns the period; *offset: where the bucket begins in its samples. */
static uint64_t bucket_of(const tg_loader *l, uint64_t b, int *k, int64_t *offset)
{
    uint64_t n = (uint64_t)l->o.n_buckets, period = b / n;
    *k = (int)tg_rng_permute(tg_rng_key(l->bucket_key + period, "period"), n, b % n);
    *offset = 0;
    for (int i = 0; i < *k; i++)
        *offset += l->o.seq_buckets[i];
    return period;
}

static int64_t bucket_for(const tg_loader *l, int64_t longest)
{
    for (int i = 0; i < l->o.n_buckets; i++) {
        if (l->o.seq_buckets[i] >= longest) return l->o.seq_buckets[i];
    }
    return l->o.seq_len;
}

static void synthetic_row(const tg_loader *l, uint64_t sample, int64_t seq, int32_t *tokens, int32_t *labels)
{
    for (int64_t t = 0; t <= seq; t++) {
        tg_rand4 r = tg_philox(l->token_key, (uint64_t)t / 4, sample);
        int32_t v = (int32_t)(((uint64_t)r.v[t % 4] * l->o.vocab_limit) >> 32);
        if (t < seq) tokens[t] = v;
        if (t > 0) labels[t - 1] = v;
    }
}

/* Sample number `g`, counted over all epochs, in the order of this run. */
static uint64_t index_of(const tg_loader *l, uint64_t g, int64_t *epoch)
{
    *epoch = (int64_t)(g / l->samples);
    return shuffled(l, g / l->samples, g % l->samples);
}

static bool sample_exists(const tg_loader *l, uint64_t g)
{
    return !l->o.once || g < l->samples;
}

static int64_t longest_of(const tg_loader *l, uint64_t first)
{
    int64_t longest = 1;
    for (uint64_t r = 0; r < l->group; r++) {
        int64_t epoch;
        if (!sample_exists(l, first + r)) break;
        int64_t n = tg_sample_source_length(l->source, index_of(l, first + r, &epoch));
        if (n > longest) longest = n;
    }
    return longest;
}

static void ignored_row(int64_t seq, int32_t pad, int32_t *tokens, int32_t *labels)
{
    for (int64_t t = 0; t < seq; t++) {
        tokens[t] = pad;
        labels[t] = TG_LABEL_IGNORE;
    }
}

/* The place of this rank's row r in the whole batch. */
static uint64_t place_of_row(const tg_loader_options *o, int64_t r)
{
    const int64_t each = o->rows / o->pieces;
    return (uint64_t)((r / each * o->ranks + o->rank) * each + r % each);
}

static teng_status make_batch(const tg_loader *l, uint64_t cursor, slot *s)
{
    uint64_t first = cursor; /* sample number of the first row of rank 0 */
    int64_t seq = l->o.seq_len, offset = 0;
    tg_batch *b = &s->batch;
    *b = (tg_batch){.tokens = s->tokens, .labels = s->labels, .rows = l->o.rows, .cursor = cursor + l->group};
    if (!sample_exists(l, first)) {
        b->rows = 0;
        b->cursor = cursor;
        return TENG_OK;
    }
    if (l->o.n_buckets && l->o.packing == TG_PACK_DOCUMENT && l->source) {
        seq = bucket_for(l, longest_of(l, first));
    } else if (l->o.n_buckets && !l->o.once) {
        int k;
        first = bucket_of(l, cursor / l->group, &k, &offset) * l->group;
        seq = l->o.seq_buckets[k];
    }
    b->seq = seq;
    if (l->source) index_of(l, first, &b->epoch);
    for (int64_t r = 0; r < l->o.rows; r++) {
        uint64_t g = first + place_of_row(&l->o, r);
        int32_t *tokens = s->tokens + r * seq, *labels = s->labels + r * seq;
        if (!l->source) {
            synthetic_row(l, cursor + (g - first), seq, tokens, labels);
            b->valid += seq;
        } else if (sample_exists(l, g)) {
            int64_t epoch;
            TG_TRY(tg_sample_source_read(l->source, &l->scratch, index_of(l, g, &epoch), offset, seq, l->pad,
                                         tokens, labels, &b->valid));
        } else {
            ignored_row(seq, l->pad, tokens, labels);
        }
    }
    return TENG_OK;
}

/* ---- the thread ---- */

static void produce(void *arg)
{
    tg_loader *l = arg;
    void *item;
    while (tg_queue_get(l->free, &item)) {
        slot *s = item;
        s->error.status = make_batch(l, l->produced, s);
        if (s->error.status != TENG_OK) tg_error_take(&s->error);
        bool last = s->error.status != TENG_OK || s->batch.rows == 0;
        l->produced = s->batch.cursor;
        if (!tg_queue_put(l->ready, s) || last) break;
    }
}

static void stop(tg_loader *l)
{
    if (l->ready) tg_queue_close(l->ready);
    if (l->free) tg_queue_close(l->free);
    tg_thread_join(&l->thread);
    tg_queue_destroy(&l->ready);
    tg_queue_destroy(&l->free);
    l->held = NULL;
}

static teng_status start(tg_loader *l)
{
    if (l->o.prefetch <= 0) return TENG_OK;
    l->ready = tg_queue_create((size_t)l->n_slots);
    l->free = tg_queue_create((size_t)l->n_slots);
    if (!l->ready || !l->free) return TENG_MEMORY;
    for (int i = 0; i < l->n_slots; i++)
        tg_queue_put(l->free, &l->slots[i]);
    return tg_thread_start("teng-loader", produce, l, &l->thread);
}

/* ---- opening ---- */

static teng_status check_buckets(const tg_loader_options *o)
{
    if (o->n_buckets < 0 || o->n_buckets > TG_MAX_BUCKETS)
        return tg_fail(TENG_INVALID, "%d sequence buckets; at most %d are possible", o->n_buckets,
                       TG_MAX_BUCKETS);
    for (int i = 0; i < o->n_buckets; i++) {
        if (o->seq_buckets[i] < 1 || (i && o->seq_buckets[i] <= o->seq_buckets[i - 1]))
            return tg_fail(TENG_INVALID,
                           "sequence bucket %d is %" PRId64 "; buckets are positive and ascending", i,
                           o->seq_buckets[i]);
    }
    if (o->n_buckets && o->seq_buckets[o->n_buckets - 1] != o->seq_len)
        return tg_fail(TENG_INVALID,
                       "the largest sequence bucket is %" PRId64 ", the sequence length %" PRId64
                       "; they must be equal",
                       o->seq_buckets[o->n_buckets - 1], o->seq_len);
    return TENG_OK;
}

static teng_status check(const tg_loader_options *o)
{
    if (o->seq_len < 1 || o->rows < 1 || o->rows > MAX_BATCH_TOKENS / o->seq_len)
        return tg_fail(TENG_INVALID,
                       "a batch of %" PRId64 " rows of %" PRId64
                       " tokens; both are at least 1, the product at most %" PRId64,
                       o->rows, o->seq_len, MAX_BATCH_TOKENS);
    if (o->ranks < 1 || o->rank < 0 || o->rank >= o->ranks)
        return tg_fail(TENG_INVALID, "rank %" PRId64 " of %" PRId64 ": ranks count from 0", o->rank,
                       o->ranks);
    if (o->pieces < 1 || o->rows % o->pieces)
        return tg_fail(TENG_INVALID, "%" PRId64 " rows of a rank cannot be cut into %" PRId64 " equal pieces",
                       o->rows, o->pieces);
    if (o->prefetch < 0 || o->prefetch > 1024)
        return tg_fail(TENG_INVALID, "prefetch %d; it lies in 0 … 1024", o->prefetch);
    if (o->synthetic && (o->vocab_limit == 0 || o->once))
        return tg_fail(TENG_INVALID, "synthetic data needs a vocabulary and has no end");
    return check_buckets(o);
}

static teng_status set_up_order(tg_loader *l)
{
    l->group = (uint64_t)l->o.rows * (uint64_t)l->o.ranks;
    l->order_key = tg_rng_key(l->o.seed, "order");
    l->bucket_key = tg_rng_key(l->o.seed, "buckets");
    l->token_key = tg_rng_key(l->o.seed, "synthetic");
    l->samples = UINT64_MAX;
    l->pad = l->o.pad >= 0 ? l->o.pad : 0;
    if (!l->source) return TENG_OK;
    l->samples = tg_sample_source_count(l->source);
    int64_t eos = tg_sample_source_eos(l->source);
    if (eos < 0 && l->o.tokenizer) eos = tg_tokenizer_eos(l->o.tokenizer);
    if (l->o.pad < 0 && eos >= 0) l->pad = (int32_t)eos;
    if (!l->o.drop_last || l->o.once) return TENG_OK;
    if (l->samples < l->group)
        return tg_fail(TENG_INVALID,
                       "%s: %" PRIu64 " sequences make no batch of %" PRIu64
                       "; use more text, a smaller batch, or "
                       "let batches run on into the next epoch",
                       l->o.files[0], l->samples, l->group);
    l->samples -= l->samples % l->group;
    return TENG_OK;
}

static teng_status make_buffers(tg_loader *l)
{
    size_t longest = (size_t)l->o.seq_len + 1, tokens = (size_t)(l->o.rows * l->o.seq_len);
    l->n_slots = l->o.prefetch > 0 ? l->o.prefetch + 2 : 1;
    l->scratch.tokens = tg_alloc(longest * sizeof *l->scratch.tokens);
    l->scratch.score = tg_alloc(longest);
    l->slots = tg_calloc((size_t)l->n_slots, sizeof *l->slots);
    if (!l->scratch.tokens || !l->scratch.score || !l->slots) return TENG_MEMORY;
    for (int i = 0; i < l->n_slots; i++) {
        l->slots[i].tokens = tg_alloc_aligned(tokens * sizeof(int32_t));
        l->slots[i].labels = tg_alloc_aligned(tokens * sizeof(int32_t));
        if (!l->slots[i].tokens || !l->slots[i].labels) return TENG_MEMORY;
    }
    return TENG_OK;
}

teng_status tg_loader_open(const tg_loader_options *options, tg_loader **out)
{
    *out = NULL;
    tg_loader *l = tg_calloc(1, sizeof *l);
    if (!l) return TENG_MEMORY;
    l->o = *options;
    if (l->o.ranks == 0) l->o.ranks = 1;
    if (l->o.pieces == 0) l->o.pieces = 1;
    if (l->o.once) l->o.shuffle = false;
    teng_status status = check(&l->o);
    if (status == TENG_OK && !l->o.synthetic) status = tg_sample_source_open(&l->o, &l->source);
    if (status == TENG_OK) status = set_up_order(l);
    if (status == TENG_OK) status = make_buffers(l);
    if (status == TENG_OK) status = start(l);
    if (status != TENG_OK) tg_loader_close(&l);
    *out = l;
    return status;
}

void tg_loader_close(tg_loader **loader)
{
    tg_loader *l = *loader;
    if (!l) return;
    stop(l);
    tg_sample_source_close(&l->source);
    for (int i = 0; i < l->n_slots && l->slots; i++) {
        tg_free_aligned(l->slots[i].tokens);
        tg_free_aligned(l->slots[i].labels);
    }
    tg_free(l->slots);
    tg_free(l->scratch.tokens);
    tg_free(l->scratch.score);
    tg_free(l);
    *loader = NULL;
}

/* ---- use ---- */

static teng_status next_from_thread(tg_loader *l, slot **s)
{
    void *item;
    if (l->held) tg_queue_put(l->free, l->held);
    l->held = NULL;
    double begin = tg_clock_seconds();
    if (!tg_queue_get(l->ready, &item)) return tg_fail(TENG_STATE, "the loader's thread has ended");
    l->wait += tg_clock_seconds() - begin;
    *s = item;
    return TENG_OK;
}

teng_status tg_loader_next(tg_loader *l, tg_batch *out)
{
    slot *s = &l->slots[0];
    *out = (tg_batch){.cursor = l->given};
    if (l->failed.status != TENG_OK) return tg_error_give(&l->failed);
    if (l->o.once && !sample_exists(l, l->given)) return TENG_OK;
    if (l->thread) {
        TG_TRY(next_from_thread(l, &s));
        if (s->error.status != TENG_OK) {
            l->failed = s->error;
            return tg_error_give(&l->failed);
        }
        l->held = s;
    } else {
        TG_TRY(make_batch(l, l->given, s));
    }
    *out = s->batch;
    l->given = s->batch.cursor;
    return TENG_OK;
}

uint64_t tg_loader_cursor(const tg_loader *l)
{
    return l->given;
}

teng_status tg_loader_seek(tg_loader *l, uint64_t cursor)
{
    bool cross_buckets = l->o.n_buckets && !l->o.once && (l->o.packing == TG_PACK_CROSS || !l->source);
    if (cross_buckets && cursor % l->group)
        return tg_fail(TENG_INVALID,
                       "the data cursor %" PRIu64 " is no whole number of batches of %" PRIu64
                       " sequences: with sequence buckets a run goes on with the batch size it began with",
                       cursor, l->group);
    stop(l);
    l->failed.status = TENG_OK;
    l->given = l->produced = cursor;
    return start(l);
}

tg_loader_info tg_loader_info_get(const tg_loader *l)
{
    tg_loader_info info = {.wait_seconds = l->wait};
    if (!l->source) return info;
    tg_sample_source_info(l->source, &info);
    bool periods = l->o.n_buckets && !l->o.once && l->o.packing == TG_PACK_CROSS;
    info.samples = l->samples * (periods ? (uint64_t)l->o.n_buckets : 1);
    info.batches = (info.samples + (l->o.once ? l->group - 1 : 0)) / l->group;
    return info;
}

uint64_t tg_loader_fingerprint(const tg_loader *l)
{
    enum { SAMPLES = 64 };
    const size_t longest = (size_t)l->o.seq_len + 1;
    uint64_t hash = l->samples;
    if (!l->source) return 0;
    /* Beside the thread, which has the loader's own scratch. */
    tg_sample_scratch scratch = {tg_alloc(longest * sizeof(int32_t)), tg_alloc(longest)};
    int32_t *row = tg_alloc(2 * longest * sizeof *row);
    for (uint64_t i = 0; i < SAMPLES && scratch.tokens && scratch.score && row; i++) {
        const uint64_t sample = l->samples < SAMPLES ? i % l->samples : l->samples / SAMPLES * i;
        const int64_t seq = l->o.n_buckets ? l->o.seq_buckets[0] : l->o.seq_len;
        int64_t valid = 0;
        if (tg_sample_source_read(l->source, &scratch, sample, 0, seq, l->pad, row, row + longest, &valid) !=
            TENG_OK) {
            teng_error_clear();
            hash = 0;
            break;
        }
        hash = tg_hash64(row, (size_t)seq * sizeof *row, hash);
        hash = tg_hash64(row + longest, (size_t)seq * sizeof *row, hash);
    }
    tg_free(scratch.tokens);
    tg_free(scratch.score);
    tg_free(row);
    return hash;
}
