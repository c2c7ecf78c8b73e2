/* The word table. Not base/strmap.h: it is cleared some thousand times a run and adds with one look-up. */
#include "data/word_count.h"

#include "base/fail.h"
#include "base/mem.h"

#include <string.h>

static bool grow(tg_word_table *t)
{
    size_t slots = t->slots ? (t->mask + 1) * 2 : 1024;
    uint32_t *fresh = tg_calloc(slots, sizeof *fresh);
    if (!fresh) return false;
    for (size_t i = 0; i < t->words.len; i++) {
        size_t k = t->words.data[i].hash & (slots - 1);
        while (fresh[k])
            k = (k + 1) & (slots - 1);
        fresh[k] = (uint32_t)i + 1;
    }
    tg_free(t->slots);
    t->slots = fresh;
    t->mask = slots - 1;
    return true;
}

bool tg_word_add(tg_word_table *t, uint64_t hash, const char *word, size_t len, int64_t count)
{
    if ((t->words.len + 1) * 2 > t->mask && !grow(t)) return false;
    size_t k = hash & t->mask;
    for (; t->slots[k]; k = (k + 1) & t->mask) {
        tg_word *w = &t->words.data[t->slots[k] - 1];
        if (w->hash != hash || w->len != len || memcmp(t->bytes.data + w->at, word, len) != 0) continue;
        w->count += count;
        return true;
    }
    if (t->words.len >= UINT32_MAX - 1) {
        tg_fail(TENG_UNSUPPORTED, "more than %u distinct words", UINT32_MAX - 1);
        return false;
    }
    if (!tg_vec_reserve(&t->bytes, t->bytes.len + len)) return false;
    tg_word w = {hash, count, t->bytes.len, len};
    if (!tg_vec_push(&t->words, w)) return false;
    memcpy(t->bytes.data + t->bytes.len, word, len);
    t->bytes.len += len;
    t->slots[k] = (uint32_t)t->words.len;
    return true;
}

void tg_word_table_clear(tg_word_table *t)
{
    t->words.len = t->bytes.len = 0;
    if (t->slots) memset(t->slots, 0, (t->mask + 1) * sizeof *t->slots);
}

void tg_word_table_free(tg_word_table *t)
{
    tg_vec_free(&t->words);
    tg_vec_free(&t->bytes);
    tg_free(t->slots);
    t->slots = NULL;
    t->mask = 0;
}
