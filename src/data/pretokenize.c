/*
 * Pre-tokenizers: text → words, by regular expressions that PCRE2 compiles to machine code. Patterns are
 * written for Oniguruma (Hugging Face) or Rust's regex (tiktoken); what differs in PCRE2 is rewritten here:
 * \s means White_Space there, and \h or \v more in PCRE2. Not a regex engine, and no special case for any
 * pattern.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "data/tokenizer_impl.h"

#include <string.h>

#define SPACE "\\t-\\r\\x{85}\\p{Z}" /* White_Space as members of a class */

static const struct {
    const char *name, *pattern;
} patterns[] = {
    {"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"llama3",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"nanochat",
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
     "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
    {"o200k", "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
              "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
              "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
              "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
              "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    /* Spellings of the same found in files. */
    {"cl100k",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {NULL, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {NULL, "\\p{N}"},
    {NULL, "\\p{N}+"},
    {NULL, "\\p{N}{1,3}"},
};

const char *tg_pattern_named(const char *name)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (patterns[i].name && strcmp(patterns[i].name, name) == 0) return patterns[i].pattern;
    }
    return name;
}

bool tg_pattern_cuttable(const char *pattern)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (strcmp(patterns[i].pattern, pattern) == 0) return true;
    }
    return false;
}

/* The escape \c. */
static teng_status translate_escape(const char *where, const char *pattern, char c, bool in_class,
                                    tg_strbuf *out)
{
    if (c == 'h' || c == 'H' || (c == 'S' && in_class))
        return tg_fail(TENG_UNSUPPORTED, "%s: \\%c in the pattern \"%s\" is not implemented", where, c,
                       pattern);
    if (c == 's')
        tg_strbuf_puts(out, in_class ? SPACE : "[" SPACE "]");
    else if (c == 'S')
        tg_strbuf_puts(out, "[^" SPACE "]");
    else
        tg_strbuf_printf(out, "\\%c", c);
    return TENG_OK;
}

/* Length of what opens at p and belongs together: "[^]" outside a class, "[:alpha:]" inside; 0: nothing. */
static size_t opening(const char *p, bool in_class)
{
    if (*p != '[') return 0;
    if (in_class) {
        const char *end = p[1] == ':' ? strstr(p, ":]") : NULL;
        return end ? (size_t)(end + 2 - p) : 0;
    }
    size_t n = 1;
    n += p[n] == '^';
    n += p[n] == ']';
    return n;
}

/* Oniguruma → PCRE2; refuses what only Oniguruma has. */
static teng_status translate(const char *where, const char *p, tg_strbuf *out)
{
    bool in_class = false;
    for (size_t i = 0; p[i];) {
        size_t n = opening(p + i, in_class);
        if (p[i] == '\\' && p[i + 1]) {
            TG_TRY(translate_escape(where, p, p[i + 1], in_class, out));
            i += 2;
            continue;
        }
        if (n == 0 && in_class && (p[i] == '[' || strncmp(p + i, "&&", 2) == 0))
            return tg_fail(TENG_UNSUPPORTED,
                           "%s: nested or intersected classes in the pattern \"%s\" are not implemented",
                           where, p);
        if (n)
            in_class = true;
        else if (p[i] == ']')
            in_class = false;
        n = n ? n : 1;
        tg_strbuf_add(out, p + i, n);
        i += n;
    }
    return TENG_OK;
}

teng_status tg_pattern_compile(const char *where, const char *pattern, pcre2_general_context *memory,
                               tg_pre_step *out)
{
    tg_strbuf text = {0};
    teng_status status = translate(where, pattern, &text);
    pcre2_compile_context *context = pcre2_compile_context_create(memory);
    out->pattern = tg_strdup(pattern);
    if (status == TENG_OK && (text.failed || !context || !out->pattern))
        status = tg_fail(TENG_MEMORY, "%s: no memory for the pattern", where);
    if (status == TENG_OK) {
        int code;
        PCRE2_SIZE at;
        out->code = pcre2_compile((PCRE2_SPTR)tg_strbuf_str(&text), text.len,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
        if (!out->code) {
            PCRE2_UCHAR message[200];
            pcre2_get_error_message(code, message, sizeof message);
            status = tg_fail(TENG_FORMAT,
                             "%s: the pattern \"%s\" is not a regular expression: %s at offset %zu of \"%s\"",
                             where, pattern, (const char *)message, (size_t)at, tg_strbuf_str(&text));
        } else {
            /* Without machine code (some systems forbid it) the interpreter does the work. */
            bool clean = teng_error_status() == TENG_OK;
            out->jit = pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE) == 0;
            if (clean) status = teng_error_status(); /* memory ran out */
        }
    }
    pcre2_compile_context_free(context);
    tg_strbuf_free(&text);
    return status;
}

/* The pieces of one regex step, in order, joined as its behavior says, go to the next step. */
typedef struct pieces {
    const tg_tokenizer *t;
    tg_scratch *s;
    tg_word_fn *word;
    void *user;
} pieces;
typedef struct split_state {
    const char *text;
    size_t begin, end; /* pending piece */
    bool have, last_match;
    int step;
} split_state;

static teng_status run_step(const pieces *p, int step, const char *text, size_t n);

static teng_status flush(const pieces *p, split_state *st)
{
    if (!st->have) return TENG_OK;
    st->have = false;
    return run_step(p, st->step + 1, st->text + st->begin, st->end - st->begin);
}

static teng_status piece(const pieces *p, split_state *st, size_t begin, size_t end, bool match)
{
    if (begin == end) return TENG_OK;
    const tg_pre_step *step = &p->t->pre[st->step];
    if (step->invert) match = !match;
    bool join = false;
    switch (step->behavior) {
    case TG_ISOLATED:
        return run_step(p, st->step + 1, st->text + begin, end - begin);
    case TG_REMOVED:
        return match ? TENG_OK : run_step(p, st->step + 1, st->text + begin, end - begin);
    case TG_CONTIGUOUS:
        join = match == st->last_match;
        break;
    case TG_MERGE_PREVIOUS:
        join = match && !st->last_match;
        break;
    case TG_MERGE_NEXT:
        join = !match && st->last_match;
        break;
    }
    st->last_match = match;
    if (join && st->have) {
        st->end = end;
        return TENG_OK;
    }
    TG_TRY(flush(p, st));
    st->begin = begin;
    st->end = end;
    st->have = true;
    return TENG_OK;
}

static teng_status run_step(const pieces *p, int step, const char *text, size_t n)
{
    if (step == p->t->n_pre) return p->word(p->user, text, n);
    const tg_pre_step *pre = &p->t->pre[step];
    split_state st = {.text = text, .step = step};
    PCRE2_SIZE *found = pcre2_get_ovector_pointer(p->s->match);
    size_t done = 0, from = 0;
    while (from < n) {
        int rc = pre->jit ? pcre2_jit_match(pre->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK,
                                            p->s->match, p->s->context)
                          : pcre2_match(pre->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, p->s->match,
                                        p->s->context);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            PCRE2_UCHAR message[200];
            pcre2_get_error_message(rc, message, sizeof message);
            return tg_fail(TENG_UNSUPPORTED,
                           "%s: the pattern \"%s\" gave up on a text of %zu bytes at byte %zu: %s",
                           p->t->name, pre->pattern, n, from, (const char *)message);
        }
        size_t begin = found[0], end = found[1];
        if (end <= begin) { /* an empty match splits nothing; go one character on */
            from = begin < from ? from : begin;
            do
                from++;
            while (from < n && ((unsigned char)text[from] & 0xC0) == 0x80);
            continue;
        }
        TG_TRY(piece(p, &st, done, begin, false));
        TG_TRY(piece(p, &st, begin, end, true));
        done = from = end;
    }
    TG_TRY(piece(p, &st, done, n, false));
    return flush(p, &st);
}

teng_status tg_pretokenize(const tg_tokenizer *t, tg_scratch *s, const char *text, size_t n, tg_word_fn *word,
                           void *user)
{
    pieces p = {t, s, word, user};
    return n ? run_step(&p, 0, text, n) : TENG_OK;
}
