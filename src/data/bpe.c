/*
 * Byte-pair encoding of one word: join, again and again, the adjacent pair of lowest rank (the leftmost of
 * equals). Short words scan for the minimum; long ones keep a heap, so that a megabyte of spaces costs n log
 * n. A small direct-mapped cache per thread remembers short words: most words of a text are a few thousand
 * different ones.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "data/tokenizer_impl.h"
#include "data/utf8_scan.h"

#include <string.h>
#include <xxhash.h>

#define SHORT_WORD 96 /* symbols; above, the heap is faster */
#define NO_RANK UINT32_MAX

bool tg_merge_table_init(tg_merge_table *m, size_t count)
{
    size_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    m->slots = tg_alloc(slots * sizeof *m->slots);
    if (!m->slots) return false;
    memset(m->slots, 0xFF, slots * sizeof *m->slots);
    m->mask = slots - 1;
    m->count = 0;
    return true;
}

void tg_merge_table_put(tg_merge_table *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t result)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & m->mask;
    while (m->slots[i].left != TG_TOKEN_NONE && !(m->slots[i].left == left && m->slots[i].right == right))
        i = (i + 1) & m->mask;
    m->count += m->slots[i].left == TG_TOKEN_NONE;
    m->slots[i] = (tg_merge){left, right, rank, result};
}

/* ---- the symbols a word starts from ---- */

static bool put_unknown(const tg_tokenizer *t, tg_scratch *s, bool *unk_before)
{
    bool fuse = t->fuse_unk && *unk_before;
    *unk_before = t->unk != TG_TOKEN_NONE;
    return t->unk == TG_TOKEN_NONE || fuse || tg_vec_push(&s->symbol, t->unk);
}

static bool symbols_of(const tg_tokenizer *t, tg_scratch *s, const char *word, size_t len)
{
    const unsigned char *u = (const unsigned char *)word;
    bool unk_before = false;
    s->symbol.len = 0;
    if (!tg_vec_reserve(&s->symbol, len)) return false;
    for (size_t i = 0; i < len;) {
        int n = t->byte_level ? 1 : tg_utf8_char(u + i, len - i, NULL);
        int64_t id;
        bool all_bytes = t->byte_fallback;
        if (t->byte_level && t->byte_id[u[i]] != TG_TOKEN_NONE) {
            s->symbol.data[s->symbol.len++] = t->byte_id[u[i]];
            unk_before = false;
        } else if (!t->byte_level && tg_strmap_get(t->by_key, word + i, (size_t)n, &id)) {
            if (!tg_vec_push(&s->symbol, (uint32_t)id)) return false;
            unk_before = false;
        } else {
            for (int k = 0; k < n; k++)
                all_bytes = all_bytes && t->byte_id[u[i + (size_t)k]] != TG_TOKEN_NONE;
            for (int k = 0; all_bytes && k < n; k++) {
                if (!tg_vec_push(&s->symbol, t->byte_id[u[i + (size_t)k]])) return false;
                unk_before = false;
            }
            if (!all_bytes && !put_unknown(t, s, &unk_before)) return false;
        }
        i += (size_t)n;
    }
    return true;
}

/* ---- merging ---- */

static size_t merge_short(const tg_tokenizer *t, uint32_t *symbol, size_t n)
{
    uint32_t rank[SHORT_WORD], result[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++) {
        const tg_merge *m = tg_merge_find(&t->merges, symbol[i], symbol[i + 1]);
        rank[i] = m ? m->rank : NO_RANK;
        result[i] = m ? m->result : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == NO_RANK) break;
        symbol[best] = result[best];
        n--;
        memmove(symbol + best + 1, symbol + best + 2, (n - best - 1) * sizeof *symbol);
        if (n - best > 1) {
            memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
            memmove(result + best, result + best + 1, (n - best - 1) * sizeof *result);
            const tg_merge *m = tg_merge_find(&t->merges, symbol[best], symbol[best + 1]);
            rank[best] = m ? m->rank : NO_RANK;
            result[best] = m ? m->result : 0;
        }
        if (best > 0) {
            const tg_merge *m = tg_merge_find(&t->merges, symbol[best - 1], symbol[best]);
            rank[best - 1] = m ? m->rank : NO_RANK;
            result[best - 1] = m ? m->result : 0;
        }
    }
    return n;
}

static bool before(tg_heap_item a, tg_heap_item b)
{
    return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static bool heap_push(tg_scratch *s, tg_heap_item item)
{
    if (!tg_vec_push(&s->heap, item)) return false;
    size_t i = s->heap.len - 1;
    while (i > 0 && before(item, s->heap.data[(i - 1) / 2])) {
        s->heap.data[i] = s->heap.data[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap.data[i] = item;
    return true;
}

static tg_heap_item heap_pop(tg_scratch *s)
{
    tg_heap_item top = s->heap.data[0], last = s->heap.data[--s->heap.len];
    size_t n = s->heap.len, i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(s->heap.data[child + 1], s->heap.data[child])) child++;
        if (!before(s->heap.data[child], last)) break;
        s->heap.data[i] = s->heap.data[child];
    }
    if (n) s->heap.data[i] = last;
    return top;
}

/* The pair that begins at `at`: its rank is stored, and a heap item is valid while its rank equals the stored
 * one. */
static bool look(const tg_tokenizer *t, tg_scratch *s, uint32_t at, uint32_t n)
{
    uint32_t next = s->after.data[at];
    const tg_merge *m = next < n ? tg_merge_find(&t->merges, s->symbol.data[at], s->symbol.data[next]) : NULL;
    s->rank.data[at] = m ? m->rank : NO_RANK;
    if (!m) return true;
    s->result.data[at] = m->result;
    return heap_push(s, (tg_heap_item){m->rank, at});
}

static bool merge_long(const tg_tokenizer *t, tg_scratch *s)
{
    uint32_t n = (uint32_t)s->symbol.len;
    if (!tg_vec_reserve(&s->rank, n) || !tg_vec_reserve(&s->result, n) || !tg_vec_reserve(&s->prev, n) ||
        !tg_vec_reserve(&s->after, n))
        return false;
    uint32_t *symbol = s->symbol.data, *prev = s->prev.data, *after = s->after.data;
    s->heap.len = 0;
    for (uint32_t i = 0; i < n; i++) {
        prev[i] = i - 1; /* UINT32_MAX before the first */
        after[i] = i + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!look(t, s, i, n)) return false;
    }
    while (s->heap.len) {
        tg_heap_item top = heap_pop(s);
        if (s->rank.data[top.at] != top.rank) continue;
        uint32_t at = top.at, gone = after[at];
        symbol[at] = s->result.data[at];
        symbol[gone] = TG_TOKEN_NONE;
        s->rank.data[gone] = NO_RANK;
        after[at] = after[gone];
        if (after[at] < n) prev[after[at]] = at;
        if (!look(t, s, at, n)) return false;
        if (prev[at] != UINT32_MAX && !look(t, s, prev[at], n)) return false;
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (symbol[i] != TG_TOKEN_NONE) symbol[kept++] = symbol[i];
    }
    s->symbol.len = kept;
    return true;
}

static bool append(tg_ids *out, const uint32_t *ids, size_t n)
{
    if (!tg_vec_reserve(out, out->len + n)) return false;
    if (n) memcpy(out->data + out->len, ids, n * sizeof *ids);
    out->len += n;
    return true;
}

bool tg_bpe_byte(const tg_tokenizer *t, unsigned char byte, tg_ids *out)
{
    uint32_t id = t->byte_id[byte] != TG_TOKEN_NONE ? t->byte_id[byte] : t->unk;
    return id == TG_TOKEN_NONE || append(out, &id, 1);
}

/* A byte tokenizer has no merges: each byte is its token. */
static bool copy_bytes(const tg_tokenizer *t, const char *word, size_t len, tg_ids *out)
{
    if (!tg_vec_reserve(out, out->len + len)) return false;
    for (size_t i = 0; i < len; i++)
        out->data[out->len + i] = t->byte_id[(unsigned char)word[i]];
    out->len += len;
    return true;
}

teng_status tg_bpe_word(const tg_tokenizer *t, tg_scratch *s, const char *word, size_t len, tg_ids *out)
{
    if (t->plain_bytes) return copy_bytes(t, word, len, out) ? TENG_OK : TENG_MEMORY;
    uint64_t hash = 0;
    tg_cache_slot *slot = NULL;
    if (len <= sizeof slot->key) {
        hash = XXH3_64bits(word, len);
        slot = &s->cache[hash & (TG_CACHE_SLOTS - 1)];
        if (slot->hash == hash && slot->len == len && memcmp(slot->key, word, len) == 0)
            return append(out, slot->ids, slot->count) ? TENG_OK : TENG_MEMORY;
    } else if (len >= UINT32_MAX / 2) {
        return tg_fail(TENG_UNSUPPORTED, "%s: one word of %zu bytes; the limit is %u", t->name, len,
                       UINT32_MAX / 2);
    }
    int64_t whole;
    if (t->ignore_merges && tg_strmap_get(t->by_key, word, len, &whole)) {
        s->symbol.len = 0;
        if (!tg_vec_push(&s->symbol, (uint32_t)whole)) return TENG_MEMORY;
    } else {
        if (!symbols_of(t, s, word, len)) return TENG_MEMORY;
        if (s->symbol.len <= SHORT_WORD)
            s->symbol.len = merge_short(t, s->symbol.data, s->symbol.len);
        else if (!merge_long(t, s))
            return TENG_MEMORY;
    }
    if (slot && s->symbol.len <= sizeof slot->ids / sizeof *slot->ids) {
        slot->hash = hash;
        slot->len = (uint8_t)len;
        slot->count = (uint8_t)s->symbol.len;
        memcpy(slot->key, word, len);
        memcpy(slot->ids, s->symbol.data, s->symbol.len * sizeof *slot->ids);
    }
    return append(out, s->symbol.data, s->symbol.len) ? TENG_OK : TENG_MEMORY;
}
