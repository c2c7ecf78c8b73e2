/*
 * Normalizers: Unicode normal forms through utf8proc, and the string rewriting of SentencePiece-style files.
 * Text that a normal form cannot change is recognised by code point ranges and passed through. Not here:
 * lower-casing, accent stripping and the like, which language models of this kind do not use;
 * tokenizer_parse.c refuses them by name.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "data/tokenizer_impl.h"
#include "data/utf8_scan.h"

#include <string.h>
#include <utf8proc.h>

/* True for characters that are in NFC, do not combine with what stands before them, and have class 0. */
static bool inert(uint32_t c)
{
    return c < 0x300 || (c >= 0x3400 && c <= 0x9FFF) || (c >= 0x2002 && c <= 0x20CF) ||
           (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x309B && c <= 0x30FF) ||
           (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xFF00 && c <= 0xFFEF) || (c >= 0x1F300 && c <= 0x1FAFF) ||
           (c >= 0x400 && c <= 0x482) || (c >= 0x48A && c <= 0x52F);
}

static bool unchanged(tg_norm_kind kind, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (i + 8 <= n && (memcpy(&eight, p + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        uint32_t c;
        i += (size_t)tg_utf8_char(p + i, n - i, &c);
        if (c >= 0x80 && (kind != TG_NORM_NFC || !inert(c))) return false;
    }
    return true;
}

static teng_status normal_form(const tg_tokenizer *t, tg_scratch *s, tg_norm_kind kind, const char *text,
                               size_t n, tg_strbuf *out)
{
    int flags = UTF8PROC_STABLE;
    flags |= kind == TG_NORM_NFC || kind == TG_NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (kind == TG_NORM_NFKC || kind == TG_NORM_NFKD) flags |= UTF8PROC_COMPAT;
    utf8proc_ssize_t points = -1;
    for (size_t want = n + 64;; want = (size_t)points + 1) {
        if (!tg_vec_reserve(&s->points, want)) return TENG_MEMORY;
        points = utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, s->points.data,
                                    (utf8proc_ssize_t)s->points.cap - 1, (utf8proc_option_t)flags);
        if (points < 0)
            return tg_fail(TENG_FORMAT, "%s: the normalizer failed on %zu bytes: %s", t->name, n,
                           utf8proc_errmsg(points));
        if ((size_t)points < s->points.cap) break;
    }
    /* Re-encoding is in place and needs one spare element for its terminating zero. */
    utf8proc_ssize_t bytes = utf8proc_reencode(s->points.data, points, (utf8proc_option_t)flags);
    if (bytes < 0)
        return tg_fail(TENG_FORMAT, "%s: the normalizer failed on %zu bytes: %s", t->name, n,
                       utf8proc_errmsg(bytes));
    tg_strbuf_add(out, s->points.data, (size_t)bytes);
    return TENG_OK;
}

static void replace(tg_strbuf *out, const char *text, size_t n, const char *from, const char *to)
{
    size_t len = strlen(from), done = 0;
    while (done < n) {
        const char *hit = memmem(text + done, n - done, from, len);
        if (!hit) break;
        tg_strbuf_add(out, text + done, (size_t)(hit - text) - done);
        tg_strbuf_puts(out, to);
        done = (size_t)(hit - text) + len;
    }
    tg_strbuf_add(out, text + done, n - done);
}

/* at_start: the text follows an added token or nothing; first: it is the very start of the input. */
teng_status tg_normalize(const tg_tokenizer *t, tg_scratch *s, bool at_start, bool first, const char *text,
                         size_t n, const char **out, size_t *out_len)
{
    for (int i = 0, turn = 0; i < t->n_norm; i++) {
        const tg_norm_step *step = &t->norm[i];
        bool form = step->kind <= TG_NORM_NFKD;
        if (n == 0 || (form && unchanged(step->kind, (const unsigned char *)text, n))) continue;
        if (step->kind == TG_NORM_PREPEND && !at_start) continue;
        tg_strbuf *b = &s->text[turn];
        tg_strbuf_clear(b);
        if (form) {
            TG_TRY(normal_form(t, s, step->kind, text, n, b));
        } else if (step->kind == TG_NORM_PREPEND) {
            tg_strbuf_puts(b, step->to);
            tg_strbuf_add(b, text, n);
        } else if (step->kind == TG_NORM_REPLACE) {
            replace(b, text, n, step->from, step->to);
        } else {
            size_t len = strlen(step->to);
            bool wanted =
                at_start && (step->prepend == TG_META_ALWAYS || (step->prepend == TG_META_FIRST && first));
            bool there = text[0] == ' ' || (n >= len && memcmp(text, step->to, len) == 0);
            if (wanted && !there) tg_strbuf_puts(b, step->to);
            replace(b, text, n, " ", step->to);
        }
        if (b->failed) return tg_fail(TENG_MEMORY, "%s: no memory to normalize %zu bytes", t->name, n);
        text = tg_strbuf_str(b);
        n = b->len;
        turn = !turn;
    }
    *out = text;
    *out_len = n;
    return TENG_OK;
}
