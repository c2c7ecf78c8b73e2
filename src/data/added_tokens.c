/*
 * Added tokens: strings such as "<|im_start|>" that stand for one id wherever they occur. The leftmost match
 * counts, the longest of those; options lstrip, rstrip and single_word as in Hugging Face's added_vocabulary.
 * A bitmap of first byte pairs makes text without any of them cost about one load per byte. No automaton:
 * contents of one set have few distinct lengths, and each costs one hash look-up at the rare places that pass
 * the bitmap.
 */
#include "base/mem.h"
#include "data/tokenizer_impl.h"
#include "data/utf8_scan.h"

#include <stdlib.h>
#include <string.h>

static int longer_first(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

bool tg_added_set_init(tg_added_set *set, const tg_tokenizer *t, bool normalized)
{
    set->index = tg_strmap_create();
    if (!set->index) return false;
    for (size_t i = 0; i < t->added.len; i++) {
        const tg_added *a = &t->added.data[i];
        if (a->normalized != normalized || a->len == 0) continue;
        if (!tg_strmap_set(set->index, a->content, a->len, (int64_t)i, NULL)) return false;
        unsigned first = (unsigned char)a->content[0];
        if (a->len == 1) {
            memset(set->pairs + first * 32, 0xFF, 32);
        } else {
            unsigned second = (unsigned char)a->content[1];
            set->pairs[first * 32 + second / 8] |= (uint8_t)(1u << (second % 8));
        }
        bool known = false;
        for (size_t k = 0; k < set->lengths.len; k++)
            known |= set->lengths.data[k] == a->len;
        if (!known && !tg_vec_push(&set->lengths, a->len)) return false;
    }
    if (set->lengths.len == 0) return true;
    qsort(set->lengths.data, set->lengths.len, sizeof *set->lengths.data, longer_first);
    set->shortest = set->lengths.data[set->lengths.len - 1];
    return true;
}

void tg_added_set_free(tg_added_set *set)
{
    tg_strmap_destroy(&set->index);
    tg_vec_free(&set->lengths);
}

static const tg_added *match_at(const tg_tokenizer *t, const tg_added_set *set, const char *text, size_t n)
{
    for (size_t k = 0; k < set->lengths.len; k++) {
        int64_t index;
        size_t len = set->lengths.data[k];
        if (len <= n && tg_strmap_get(set->index, text, len, &index)) return &t->added.data[index];
    }
    return NULL;
}

static bool word_before(const unsigned char *text, size_t begin, size_t at)
{
    uint32_t c;
    if (at == begin) return false;
    size_t from = tg_utf8_back(text, at);
    return tg_utf8_char(text + from, at - from, &c) && tg_utf8_is_word(c);
}

static size_t spaces_before(const unsigned char *text, size_t begin, size_t at)
{
    while (at > begin) {
        uint32_t c;
        size_t from = tg_utf8_back(text, at);
        if (!tg_utf8_char(text + from, at - from, &c) || !tg_utf8_is_space(c)) break;
        at = from;
    }
    return at;
}

static size_t spaces_after(const unsigned char *text, size_t at, size_t end)
{
    uint32_t c;
    int len;
    while ((len = tg_utf8_char(text + at, end - at, &c)) > 0 && tg_utf8_is_space(c))
        at += (size_t)len;
    return at;
}

bool tg_added_split(const tg_tokenizer *t, const tg_added_set *set, bool special, const char *text,
                    size_t begin, size_t end, tg_spans *out)
{
    const unsigned char *u = (const unsigned char *)text;
    size_t done = begin, i = begin;
    while (set->lengths.len && i + set->shortest <= end) {
        unsigned first = u[i], second = i + 1 < end ? u[i + 1] : 0;
        const tg_added *a = NULL;
        if (set->pairs[first * 32 + second / 8] >> (second % 8) & 1) a = match_at(t, set, text + i, end - i);
        if (!a) {
            i++;
            continue;
        }
        size_t from = i, to = i + a->len;
        i = to;
        if (a->special && !special) continue;
        uint32_t next;
        if (a->single_word &&
            (word_before(u, begin, from) || (tg_utf8_char(u + to, end - to, &next) && tg_utf8_is_word(next))))
            continue;
        if (a->lstrip) from = spaces_before(u, done, from);
        if (a->rstrip) i = to = spaces_after(u, to, end);
        if (done < from && !tg_vec_push(out, ((tg_span){done, from, TG_TOKEN_NONE}))) return false;
        if (!tg_vec_push(out, ((tg_span){from, to, a->id}))) return false;
        done = to;
    }
    return done == end || tg_vec_push(out, ((tg_span){done, end, TG_TOKEN_NONE}));
}
