/*
 * The second half of training: join the most frequent pair of neighbours, again and again (Sennrich et al.
 * 2016). Counts of pairs are kept up to date, and a heap with stale entries gives the next pair: an entry
 * whose count is no longer true goes back with the true one. Equal counts: the pair with the smaller ids, as
 * in Hugging Face's trainer, whose order of ids is kept too: special tokens, the 256 bytes by character, then
 * the merges.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "data/bpe_count.h"
#include "data/utf8_scan.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    size_t at; /* its symbols */
    uint32_t len;
    int64_t count;
} word;
typedef struct pair {
    uint32_t left, right;
    int64_t count;
    uint64_t stamp;         /* of the last merge that raised the count */
    TG_VEC(uint32_t) where; /* words that may hold it */
} pair;
typedef struct entry { /* of the heap */
    int64_t count;
    uint32_t pair;
} entry;

typedef struct trainer {
    const tg_bpe_options *options;
    uint32_t first; /* id of the first byte token: the number of specials */
    TG_VEC(word) words;
    uint32_t *symbols;
    TG_VEC(pair) pairs;
    uint32_t *slots; /* index + 1 into pairs */
    size_t mask;
    TG_VEC(entry) heap;
    TG_VEC(uint32_t) raised; /* pairs whose count the current merge raised */
    uint64_t merge;
    TG_VEC(tg_text) tokens; /* from id `first` on */
    tg_arena *arena;
    tg_strmap *index; /* token bytes → id */
    TG_VEC(tg_merge) merges;
} trainer;

/* ---- pairs ---- */

static size_t slot_of(const trainer *r, uint32_t left, uint32_t right)
{
    size_t k = (size_t)(((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u >> 32) & r->mask;
    for (; r->slots[k]; k = (k + 1) & r->mask) {
        const pair *p = &r->pairs.data[r->slots[k] - 1];
        if (p->left == left && p->right == right) break;
    }
    return k;
}

static bool grow_pairs(trainer *r)
{
    size_t slots = r->slots ? (r->mask + 1) * 2 : 1 << 16;
    uint32_t *fresh = tg_calloc(slots, sizeof *fresh);
    if (!fresh) return false;
    tg_free(r->slots);
    r->slots = fresh;
    r->mask = slots - 1;
    for (size_t i = 0; i < r->pairs.len; i++)
        fresh[slot_of(r, r->pairs.data[i].left, r->pairs.data[i].right)] = (uint32_t)i + 1;
    return true;
}

/* Changes a pair's count; a rise says that word w may hold the pair now. */
static bool change(trainer *r, uint32_t left, uint32_t right, int64_t by, uint32_t w)
{
    if ((r->pairs.len + 1) * 2 > r->mask && !grow_pairs(r)) return false;
    size_t k = slot_of(r, left, right);
    if (!r->slots[k]) {
        if (!tg_vec_push(&r->pairs, ((pair){.left = left, .right = right, .stamp = UINT64_MAX})))
            return false;
        r->slots[k] = (uint32_t)r->pairs.len;
    }
    uint32_t index = r->slots[k] - 1;
    pair *p = &r->pairs.data[index];
    p->count += by;
    if (by <= 0) return true;
    if (p->stamp != r->merge) {
        p->stamp = r->merge;
        if (!tg_vec_push(&r->raised, index)) return false;
    }
    return (p->where.len && p->where.data[p->where.len - 1] == w) || tg_vec_push(&p->where, w);
}

/* ---- the heap ---- */

static bool better(const trainer *r, entry a, entry b)
{
    if (a.count != b.count) return a.count > b.count;
    const pair *p = &r->pairs.data[a.pair], *q = &r->pairs.data[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static bool push(trainer *r, uint32_t index)
{
    entry e = {r->pairs.data[index].count, index};
    if (e.count <= 0) return true;
    if (!tg_vec_push(&r->heap, e)) return false;
    size_t i = r->heap.len - 1;
    for (; i > 0 && better(r, e, r->heap.data[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap.data[i] = r->heap.data[(i - 1) / 2];
    r->heap.data[i] = e;
    return true;
}

static entry pop(trainer *r)
{
    entry top = r->heap.data[0], last = r->heap.data[--r->heap.len];
    size_t n = r->heap.len, i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(r, r->heap.data[child + 1], r->heap.data[child])) child++;
        if (!better(r, r->heap.data[child], last)) break;
        r->heap.data[i] = r->heap.data[child];
    }
    if (n) r->heap.data[i] = last;
    return top;
}

static bool push_raised(trainer *r)
{
    for (size_t i = 0; i < r->raised.len; i++) {
        if (!push(r, r->raised.data[i])) return false;
    }
    r->raised.len = 0;
    r->merge++;
    return true;
}

/* ---- set-up ---- */

static int by_character(const void *a, const void *b)
{
    uint32_t x = tg_byte_char(*(const unsigned char *)a), y = tg_byte_char(*(const unsigned char *)b);
    return x < y ? -1 : x > y;
}

static bool add_token(trainer *r, const char *bytes, size_t len)
{
    return tg_strmap_set(r->index, bytes, len, r->first + (int64_t)r->tokens.len, NULL) &&
           tg_vec_push(&r->tokens, ((tg_text){bytes, len}));
}

static bool add_alphabet(trainer *r, uint32_t id_of[256])
{
    unsigned char *bytes = tg_arena_alloc(r->arena, 256);
    if (!bytes) return false;
    for (int b = 0; b < 256; b++)
        bytes[b] = (unsigned char)b;
    qsort(bytes, 256, 1, by_character);
    for (uint32_t i = 0; i < 256; i++) {
        id_of[bytes[i]] = r->first + i;
        if (!add_token(r, (const char *)bytes + i, 1)) return false;
    }
    return true;
}

static bool add_words(trainer *r, const tg_word_table *table)
{
    uint32_t id_of[256];
    if (!add_alphabet(r, id_of)) return false;
    r->symbols = tg_alloc((table->bytes.len + 1) * sizeof *r->symbols);
    if (!r->symbols || !tg_vec_reserve(&r->words, table->words.len)) return false;
    for (size_t i = 0; i < table->words.len; i++) {
        const tg_word *w = &table->words.data[i];
        const unsigned char *bytes = (const unsigned char *)table->bytes.data + w->at;
        r->words.data[r->words.len++] = (word){w->at, (uint32_t)w->len, w->count};
        for (size_t k = 0; k < w->len; k++)
            r->symbols[w->at + k] = id_of[bytes[k]];
        for (size_t k = 1; k < w->len; k++) {
            if (!change(r, id_of[bytes[k - 1]], id_of[bytes[k]], w->count, (uint32_t)i)) return false;
        }
    }
    return push_raised(r);
}

/* ---- merging ---- */

static bool merge_in_word(trainer *r, uint32_t index, uint32_t left, uint32_t right, uint32_t joined)
{
    word *w = &r->words.data[index];
    uint32_t *s = r->symbols + w->at, kept = 0;
    for (uint32_t i = 0; i < w->len; kept++) {
        if (s[i] != left || i + 1 == w->len || s[i + 1] != right) {
            s[kept] = s[i++];
            continue;
        }
        if (kept > 0 && (!change(r, s[kept - 1], left, -w->count, index) ||
                         !change(r, s[kept - 1], joined, w->count, index)))
            return false;
        if (i + 2 < w->len &&
            (!change(r, right, s[i + 2], -w->count, index) || !change(r, joined, s[i + 2], w->count, index)))
            return false;
        s[kept] = joined;
        i += 2;
    }
    w->len = kept;
    return true;
}

/* The id of the joined token: a new one, unless another pair made the same bytes before. */
static bool joined_token(trainer *r, const pair *p, uint32_t *id)
{
    tg_text a = r->tokens.data[p->left - r->first], b = r->tokens.data[p->right - r->first];
    char *bytes = tg_arena_alloc(r->arena, a.len + b.len);
    int64_t found;
    if (!bytes) return false;
    memcpy(bytes, a.data, a.len);
    memcpy(bytes + a.len, b.data, b.len);
    if (tg_strmap_get(r->index, bytes, a.len + b.len, &found)) {
        *id = (uint32_t)found;
        return true;
    }
    *id = r->first + (uint32_t)r->tokens.len;
    return add_token(r, bytes, a.len + b.len);
}

static bool merge_pair(trainer *r, uint32_t index)
{
    uint32_t id;
    pair p = r->pairs.data[index]; /* the array may move */
    if (!joined_token(r, &p, &id)) return false;
    r->pairs.data[index].where.data = NULL;
    r->pairs.data[index].where.len = r->pairs.data[index].where.cap = 0;
    bool ok = tg_vec_push(&r->merges, ((tg_merge){p.left, p.right, 0, id}));
    for (size_t i = 0; i < p.where.len && ok; i++)
        ok = merge_in_word(r, p.where.data[i], p.left, p.right, id);
    tg_vec_free(&p.where);
    r->pairs.data[index].count = 0;
    return ok && push_raised(r);
}

static void tell(const trainer *r, double start, double *told)
{
    double now = tg_clock_seconds();
    if (!r->options->progress || now - *told < 0.2) return;
    *told = now;
    tg_bpe_progress p = {"merge", r->tokens.len - 256, r->options->vocab_size - r->first - 256, r->words.len,
                         now - start};
    r->options->progress(r->options->user, &p);
}

static bool merge_all(trainer *r)
{
    int64_t least = r->options->min_frequency > 0 ? r->options->min_frequency : 2;
    double start = tg_clock_seconds(), told = 0;
    while (r->heap.len && r->first + r->tokens.len < r->options->vocab_size) {
        entry top = pop(r);
        const pair *p = &r->pairs.data[top.pair];
        if (p->count != top.count) {
            if (p->count > 0 && p->count < top.count && !push(r, top.pair)) return false;
            continue;
        }
        if (top.count < least) break;
        size_t bytes = r->tokens.data[p->left - r->first].len + r->tokens.data[p->right - r->first].len;
        if (r->options->max_token_bytes && bytes > r->options->max_token_bytes) continue;
        if (!merge_pair(r, top.pair)) return false;
        tell(r, start, &told);
    }
    return true;
}

/* A pair may have been merged twice, when its right or left token came to be in a second way. */
static teng_status finish(trainer *r, const char *pattern, const char *const *specials, tg_tokenizer **out)
{
    uint32_t(*merges)[2] = tg_alloc((r->merges.len + 1) * sizeof *merges);
    tg_merge_table seen = {0};
    if (!merges || !tg_merge_table_init(&seen, r->merges.len)) {
        tg_free(merges);
        return TENG_MEMORY;
    }
    size_t n = 0;
    for (size_t i = 0; i < r->merges.len; i++) {
        const tg_merge *m = &r->merges.data[i];
        if (tg_merge_find(&seen, m->left, m->right)) continue;
        tg_merge_table_put(&seen, m->left, m->right, 0, m->result);
        merges[n][0] = m->left;
        merges[n++][1] = m->right;
    }
    tg_model_text model = {.pattern = pattern,
                           .specials = specials,
                           .n_specials = (int)r->first,
                           .specials_first = true,
                           .tokens = r->tokens.data,
                           .n_tokens = r->tokens.len,
                           .merges = (const uint32_t(*)[2])merges,
                           .n_merges = n};
    teng_status status = tg_tokenizer_make("the trained tokenizer", &model, out);
    tg_free(seen.slots);
    tg_free(merges);
    return status;
}

static void trainer_free(trainer *r)
{
    for (size_t i = 0; i < r->pairs.len; i++)
        tg_vec_free(&r->pairs.data[i].where);
    tg_vec_free(&r->pairs);
    tg_vec_free(&r->words);
    tg_vec_free(&r->heap);
    tg_vec_free(&r->raised);
    tg_vec_free(&r->tokens);
    tg_vec_free(&r->merges);
    tg_free(r->symbols);
    tg_free(r->slots);
    tg_arena_destroy(&r->arena);
    tg_strmap_destroy(&r->index);
}

teng_status tg_bpe_train(const tg_bpe_options *options, const char *const *inputs, int n_inputs,
                         tg_tokenizer **out)
{
    static const char *const end_of_text[] = {"<|endoftext|>"};
    const char *const *specials = options->specials ? options->specials : end_of_text;
    int n_specials = options->specials ? options->n_specials : 1;
    const char *pattern = tg_pattern_named(options->pattern ? options->pattern : "qwen2");
    *out = NULL;
    if (options->vocab_size < 256 + (uint32_t)n_specials || options->vocab_size > TG_MAX_TOKEN_ID)
        return tg_fail(
            TENG_INVALID,
            "vocab_size %u is out of range: the 256 bytes and %d special tokens need %d, the limit is %d",
            options->vocab_size, n_specials, 256 + n_specials, TG_MAX_TOKEN_ID);
    trainer r = {.options = options,
                 .first = (uint32_t)n_specials,
                 .arena = tg_arena_create(),
                 .index = tg_strmap_create()};
    tg_word_table table = {0};
    tg_tokenizer *cutter = NULL; /* bytes behind the pattern: cuts text into words as the result will */
    tg_model_text plain = {.pattern = pattern};
    char bytes[256];
    tg_text alphabet[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        alphabet[i] = (tg_text){bytes + i, 1};
    }
    plain.tokens = alphabet;
    plain.n_tokens = 256;
    teng_status status = r.arena && r.index ? tg_tokenizer_make("the pattern", &plain, &cutter) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_bpe_count(options, cutter, inputs, n_inputs, &table);
    tg_tokenizer_destroy(&cutter);
    if (status == TENG_OK && (!add_words(&r, &table) || !merge_all(&r))) status = TENG_MEMORY;
    tg_word_table_free(&table);
    if (status == TENG_OK) status = finish(&r, pattern, specials, out);
    trainer_free(&r);
    return status;
}
