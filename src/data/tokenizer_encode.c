/*
 * Text → ids. Texts become work items: added tokens, and pieces of text that may be encoded on their own
 * (whole segments, or cuts of them between a letter and white space, where none of the known patterns joins).
 * Items run on all OpenMP threads; their ids are put together in order, so the result does not depend on the
 * number of threads.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "data/tokenizer_impl.h"
#include "data/utf8_scan.h"

#include <omp.h>
#include <string.h>

#define ITEM_BYTES ((size_t)64 << 10)  /* aim of a work item */
#define ALONE_BYTES ((size_t)32 << 10) /* below this in total, one thread is faster */

/* ---- scratch ---- */

void tg_scratch_destroy(tg_scratch *s)
{
    if (!s) return;
    tg_free_aligned(s->cache);
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    tg_vec_free(&s->symbol);
    tg_vec_free(&s->rank);
    tg_vec_free(&s->result);
    tg_vec_free(&s->prev);
    tg_vec_free(&s->after);
    tg_vec_free(&s->heap);
    tg_vec_free(&s->points);
    tg_vec_free(&s->spans);
    tg_vec_free(&s->ids);
    tg_strbuf_free(&s->text[0]);
    tg_strbuf_free(&s->text[1]);
    tg_free(s);
}

static tg_scratch *scratch_create(const tg_tokenizer *t)
{
    tg_scratch *s = tg_calloc(1, sizeof *s);
    if (!s) return NULL;
    size_t bytes = TG_CACHE_SLOTS * sizeof *s->cache;
    s->cache = tg_alloc_aligned(bytes);
    s->match = pcre2_match_data_create(1, t->pcre);
    s->context = pcre2_match_context_create(t->pcre);
    s->stack = pcre2_jit_stack_create(32 << 10, 16 << 20, t->pcre);
    if (!s->cache || !s->match || !s->context || !s->stack) {
        tg_fail(TENG_MEMORY, "%s: no memory to encode", t->name);
        tg_scratch_destroy(s);
        return NULL;
    }
    memset(s->cache, 0, bytes);
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

tg_scratch *tg_scratch_take(const tg_tokenizer *t)
{
    tg_tokenizer *pool = (tg_tokenizer *)(uintptr_t)t; /* the pool is the one part that changes */
    pthread_mutex_lock(&pool->lock);
    tg_scratch *s = pool->pool;
    if (s) pool->pool = s->next;
    pthread_mutex_unlock(&pool->lock);
    return s ? s : scratch_create(t);
}

void tg_scratch_give(const tg_tokenizer *t, tg_scratch *s)
{
    tg_tokenizer *pool = (tg_tokenizer *)(uintptr_t)t;
    pthread_mutex_lock(&pool->lock);
    s->next = pool->pool;
    pool->pool = s;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- one piece of text ---- */

typedef struct words {
    const tg_tokenizer *t;
    tg_scratch *s;
    tg_ids *out;
} words;

static teng_status encode_word(void *user, const char *word, size_t len)
{
    words *w = user;
    return tg_bpe_word(w->t, w->s, word, len, w->out);
}

static teng_status encode_segment(const words *w, const char *text, size_t n)
{
    const tg_tokenizer *t = w->t;
    if (!t->prefix_space || n == 0 || text[0] == ' ')
        return tg_pretokenize(t, w->s, text, n, encode_word, (void *)w);
    tg_strbuf b = {0};
    tg_strbuf_putc(&b, ' ');
    tg_strbuf_add(&b, text, n);
    teng_status status =
        b.failed ? TENG_MEMORY : tg_pretokenize(t, w->s, b.data, b.len, encode_word, (void *)w);
    tg_strbuf_free(&b);
    return status;
}

/* Valid UTF-8 between two added tokens (or a cut of it). */
static teng_status encode_valid(const words *w, const char *text, size_t n, bool at_start, bool first,
                                bool special)
{
    const tg_tokenizer *t = w->t;
    if (t->n_norm == 0) return encode_segment(w, text, n);
    TG_TRY(tg_normalize(t, w->s, at_start, first, text, n, &text, &n));
    if (t->norm_set.lengths.len == 0) return encode_segment(w, text, n);
    w->s->spans.len = 0;
    if (!tg_added_split(t, &t->norm_set, special, text, 0, n, &w->s->spans)) return TENG_MEMORY;
    for (size_t i = 0; i < w->s->spans.len; i++) {
        tg_span span = w->s->spans.data[i];
        if (span.id == TG_TOKEN_NONE)
            TG_TRY(encode_segment(w, text + span.begin, span.end - span.begin));
        else if (!tg_vec_push(w->out, span.id))
            return TENG_MEMORY;
    }
    return TENG_OK;
}

typedef struct item {
    const char *text;
    size_t len;
    uint32_t id; /* TG_TOKEN_NONE: text */
    bool at_start, first;
    int thread; /* whose ids hold the result, and where */
    size_t at, count;
} item;
typedef TG_VEC(item) items;

static teng_status encode_item(const tg_tokenizer *t, tg_scratch *s, const item *it, uint32_t flags,
                               tg_ids *out)
{
    if (it->id != TG_TOKEN_NONE) return tg_vec_push(out, it->id) ? TENG_OK : TENG_MEMORY;
    words w = {t, s, out};
    const unsigned char *u = (const unsigned char *)it->text;
    for (size_t i = 0; i < it->len;) {
        size_t valid = tg_utf8_prefix(u + i, it->len - i);
        if (valid) {
            bool start = it->at_start && i == 0;
            TG_TRY(
                encode_valid(&w, it->text + i, valid, start, start && it->first, flags & TG_ENCODE_SPECIAL));
        }
        i += valid;
        size_t bad = tg_utf8_invalid(u + i, it->len - i);
        for (size_t k = 0; k < bad; k++) {
            if (!tg_bpe_byte(t, u[i + k], out)) return TENG_MEMORY;
        }
        i += bad;
    }
    return TENG_OK;
}

/* ---- cutting ---- */

/* The first place at or after `from` between a letter and white space; n when there is none. */
static size_t cut_after(const unsigned char *u, size_t n, size_t from)
{
    for (size_t i = from ? from : 1; i < n; i++) {
        if (u[i] != ' ' && u[i] != '\n' && u[i] != '\t' && u[i] != '\r') continue;
        unsigned char c = u[i - 1] | 0x20;
        if (c >= 'a' && c <= 'z') return i;
        if (u[i - 1] < 0x80) continue;
        uint32_t cp;
        size_t back = i >= 4 ? i - 4 : 0;
        for (size_t k = i - 1; k >= back; k--) { /* not assumed to be valid UTF-8 */
            if (tg_utf8_char(u + k, i - k, &cp) == (int)(i - k)) {
                if (tg_utf8_is_letter(cp)) return i;
                break;
            }
            if (k == 0) break;
        }
    }
    return n;
}

size_t tg_tokenizer_cut(const tg_tokenizer *t, const void *text, size_t n, size_t want)
{
    return t->cut_outside && want < n ? cut_after(text, n, want) : n;
}

static bool add_text(const tg_tokenizer *t, const char *text, tg_span span, bool first, items *out)
{
    bool start = true;
    while (span.begin < span.end) {
        size_t left = span.end - span.begin, len = left;
        if (t->cut_inside && left > ITEM_BYTES)
            len = cut_after((const unsigned char *)text + span.begin, left, ITEM_BYTES);
        item it = {.text = text + span.begin,
                   .len = len,
                   .id = TG_TOKEN_NONE,
                   .at_start = start,
                   .first = start && first};
        if (!tg_vec_push(out, it)) return false;
        span.begin += len;
        start = false;
    }
    return true;
}

static bool add_ids(const tg_ids *ids, items *out)
{
    for (size_t i = 0; i < ids->len; i++) {
        if (!tg_vec_push(out, ((item){.id = ids->data[i]}))) return false;
    }
    return true;
}

static bool add_items(const tg_tokenizer *t, const tg_text *text, uint32_t flags, tg_spans *spans, items *out)
{
    bool special = flags & TG_ENCODE_SPECIAL;
    if ((flags & TG_ENCODE_TEMPLATE) && !add_ids(&t->prefix, out)) return false;
    spans->len = 0;
    if (!tg_added_split(t, &t->raw_set, special, text->data, 0, text->len, spans)) return false;
    if (t->n_norm == 0 &&
        t->norm_set.lengths.len) { /* no normalizer: its added tokens can be found here too */
        size_t n = spans->len;
        for (size_t i = 0; i < n; i++) {
            tg_span s = spans->data[i];
            if (s.id != TG_TOKEN_NONE
                    ? !tg_vec_push(spans, s)
                    : !tg_added_split(t, &t->norm_set, special, text->data, s.begin, s.end, spans))
                return false;
        }
        memmove(spans->data, spans->data + n, (spans->len - n) * sizeof *spans->data);
        spans->len -= n;
    }
    for (size_t i = 0; i < spans->len; i++) {
        tg_span s = spans->data[i];
        if (s.id != TG_TOKEN_NONE ? !tg_vec_push(out, ((item){.id = s.id}))
                                  : !add_text(t, text->data, s, s.begin == 0, out))
            return false;
    }
    return !(flags & TG_ENCODE_TEMPLATE) || add_ids(&t->suffix, out);
}

/* ---- all items ---- */

static teng_status run_parallel(const tg_tokenizer *t, items *list, uint32_t flags, tg_ids *out,
                                size_t threads)
{
    tg_scratch **scratch = tg_calloc(threads, sizeof *scratch);
    if (!scratch) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (size_t i = 0; i < threads && status == TENG_OK; i++) {
        scratch[i] = tg_scratch_take(t);
        if (scratch[i])
            scratch[i]->ids.len = 0;
        else
            status = TENG_MEMORY;
    }
    tg_error error = {0};
    if (status == TENG_OK) {
#pragma omp parallel for num_threads((int)threads) schedule(dynamic, 1)
        for (size_t i = 0; i < list->len; i++) {
            item *it = &list->data[i];
            it->thread = omp_get_thread_num();
            tg_ids *ids = &scratch[it->thread]->ids;
            it->at = ids->len;
            teng_status s = encode_item(t, scratch[it->thread], it, flags, ids);
            it->count = ids->len - it->at;
            if (s != TENG_OK) {
#pragma omp critical(tg_encode_error)
                if (error.status == TENG_OK) tg_error_take(&error);
                teng_error_clear();
            }
        }
        status = error.status;
        if (status != TENG_OK) tg_error_give(&error);
    }
    size_t total = out->len;
    for (size_t i = 0; i < list->len; i++)
        total += list->data[i].count;
    if (status == TENG_OK && !tg_vec_reserve(out, total)) status = TENG_MEMORY;
    for (size_t i = 0; i < list->len && status == TENG_OK; i++) {
        item *it = &list->data[i];
        if (it->count)
            memcpy(out->data + out->len, scratch[it->thread]->ids.data + it->at,
                   it->count * sizeof *out->data);
        it->at = out->len;
        out->len += it->count;
    }
    for (size_t i = 0; i < threads; i++) {
        if (scratch[i]) tg_scratch_give(t, scratch[i]);
    }
    tg_free(scratch);
    return status;
}

static teng_status run_alone(const tg_tokenizer *t, items *list, uint32_t flags, tg_ids *out)
{
    tg_scratch *s = tg_scratch_take(t);
    if (!s) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (size_t i = 0; i < list->len && status == TENG_OK; i++) {
        list->data[i].at = out->len;
        status = encode_item(t, s, &list->data[i], flags, out);
        list->data[i].count = out->len - list->data[i].at;
    }
    tg_scratch_give(t, s);
    return status;
}

teng_status tg_tokenizer_encode_batch(const tg_tokenizer *t, const tg_text *texts, size_t n, uint32_t flags,
                                      tg_ids *out, size_t *ends)
{
    items list = {0};
    tg_spans spans = {0};
    teng_status status = TENG_OK;
    size_t bytes = 0, old = out->len;
    for (size_t i = 0; i < n && status == TENG_OK; i++) {
        bytes += texts[i].len;
        if (!add_items(t, &texts[i], flags, &spans, &list)) status = TENG_MEMORY;
        if (ends) ends[i] = list.len; /* items for now */
    }
    tg_vec_free(&spans);
    size_t threads = (size_t)omp_get_max_threads();
    if (threads > list.len) threads = list.len;
    if (status == TENG_OK && list.len)
        status = threads < 2 || bytes < ALONE_BYTES || omp_in_parallel()
                     ? run_alone(t, &list, flags, out)
                     : run_parallel(t, &list, flags, out, threads);
    for (size_t i = 0; i < n && ends && status == TENG_OK; i++)
        ends[i] = ends[i] == 0 ? old : list.data[ends[i] - 1].at + list.data[ends[i] - 1].count;
    if (status != TENG_OK) out->len = old;
    tg_vec_free(&list);
    return status;
}

teng_status tg_tokenizer_encode(const tg_tokenizer *t, const void *text, size_t n, uint32_t flags,
                                tg_ids *out)
{
    return tg_tokenizer_encode_batch(t, &(tg_text){text, n}, 1, flags, out, NULL);
}
