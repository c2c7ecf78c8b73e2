/*
 * Tokenizers that do not come from a tokenizer.json: the byte tokenizer, tiktoken rank files, and what the
 * trainer has learned. Each is written out as tokenizer.json text and then parsed like any other, so there is
 * one constructor, and what is saved is what runs.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer_impl.h"
#include "data/utf8_scan.h"

#include <stdlib.h>
#include <string.h>

static void add_key(tg_strbuf *b, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char utf8[4];
        uint32_t cp = tg_byte_char((unsigned char)bytes[i]);
        if (cp == '"' || cp == '\\') tg_strbuf_putc(b, '\\');
        tg_strbuf_add(b, utf8, (size_t)tg_utf8_put(cp, utf8));
    }
}

static void add_string(tg_strbuf *b, const char *s)
{
    json_t *v = json_string(s);
    char *text = v ? tg_json_text(v, 0) : NULL;
    if (text)
        tg_strbuf_puts(b, text);
    else
        b->failed = true;
    tg_free(text);
    json_decref(v);
}

static void add_special(tg_strbuf *b, uint32_t id, const char *content, bool last)
{
    tg_strbuf_printf(b, "    {\"id\": %u, \"content\": ", id);
    add_string(b, content);
    tg_strbuf_printf(b,
                     ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                     "\"special\": true}%s\n",
                     last ? "" : ",");
}

static void add_pre_tokenizer(tg_strbuf *b, const char *pattern)
{
    bool gpt2 = pattern && strcmp(pattern, tg_pattern_named("gpt2")) == 0;
    const char *level = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                        "\"use_regex\": %s}";
    tg_strbuf_puts(b, "  \"pre_tokenizer\": ");
    if (pattern && !gpt2) {
        tg_strbuf_puts(b, "{\"type\": \"Sequence\", \"pretokenizers\": [\n"
                          "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        add_string(b, pattern);
        tg_strbuf_puts(b, "}, \"behavior\": \"Isolated\", \"invert\": false},\n    ");
    }
    tg_strbuf_printf(b, level, gpt2 ? "true" : "false");
    tg_strbuf_puts(b, pattern && !gpt2 ? "]},\n" : ",\n");
}

teng_status tg_tokenizer_make(const char *name, const tg_model_text *m, tg_tokenizer **out)
{
    *out = NULL;
    uint32_t special_at = m->specials_first ? 0 : (uint32_t)m->n_tokens;
    uint32_t token_at = m->specials_first ? (uint32_t)m->n_specials : 0;
    tg_strbuf b = {0};
    tg_strbuf_puts(&b, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                       "  \"added_tokens\": [\n");
    for (int i = 0; i < m->n_specials; i++)
        add_special(&b, special_at + (uint32_t)i, m->specials[i], i + 1 == m->n_specials);
    tg_strbuf_puts(&b, "  ],\n  \"normalizer\": null,\n");
    add_pre_tokenizer(&b, m->pattern);
    tg_strbuf_puts(
        &b, "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"trim_offsets\": false, \"use_regex\": false},\n"
            "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
            "\"use_regex\": true},\n"
            "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
            "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
            "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n");
    tg_strbuf_printf(&b, "    \"ignore_merges\": %s,\n    \"vocab\": {\n",
                     m->ignore_merges ? "true" : "false");
    for (int i = 0; m->specials_first && i < m->n_specials; i++) {
        tg_strbuf_puts(&b, "      ");
        add_string(&b, m->specials[i]);
        tg_strbuf_printf(&b, ": %d%s\n", i, m->n_tokens ? "," : "");
    }
    for (size_t i = 0; i < m->n_tokens; i++) {
        tg_strbuf_puts(&b, "      \"");
        add_key(&b, m->tokens[i].data, m->tokens[i].len);
        tg_strbuf_printf(&b, "\": %zu%s\n", token_at + i, i + 1 < m->n_tokens ? "," : "");
    }
    tg_strbuf_puts(&b, "    },\n    \"merges\": [\n");
    for (size_t i = 0; i < m->n_merges; i++) {
        const tg_text *left = &m->tokens[m->merges[i][0] - token_at],
                      *right = &m->tokens[m->merges[i][1] - token_at];
        tg_strbuf_puts(&b, "      \"");
        add_key(&b, left->data, left->len);
        tg_strbuf_putc(&b, ' ');
        add_key(&b, right->data, right->len);
        tg_strbuf_puts(&b, i + 1 < m->n_merges ? "\",\n" : "\"\n");
    }
    tg_strbuf_puts(&b, "    ]\n  }\n}\n");
    teng_status status = b.failed ? tg_fail(TENG_MEMORY, "%s: no memory for the tokenizer", name)
                                  : tg_tokenizer_parse(name, tg_strbuf_str(&b), b.len, out);
    tg_strbuf_free(&b);
    return status;
}

static const char *const default_specials[] = {"<|endoftext|>"};

teng_status tg_tokenizer_bytes(const char *const *specials, int n_specials, tg_tokenizer **out)
{
    char bytes[256];
    tg_text tokens[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (tg_text){bytes + i, 1};
    }
    tg_model_text m = {.specials = specials ? specials : default_specials,
                       .n_specials = specials ? n_specials : 1,
                       .tokens = tokens,
                       .n_tokens = 256};
    return tg_tokenizer_make("the byte tokenizer", &m, out);
}

/* ---- tiktoken ---- */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes up to the first character that is no digit; returns the bytes written. */
static size_t base64(const char **p, const char *end, char *out)
{
    uint32_t bits = 0;
    int have = 0, d;
    size_t n = 0;
    for (; *p < end && (d = base64_digit(**p)) >= 0; (*p)++) {
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (char)(bits >> have);
        }
    }
    while (*p < end && **p == '=')
        (*p)++;
    return n;
}

typedef struct pair_rank {
    uint32_t left, right, rank;
} pair_rank;
typedef struct ranks {
    char *store;
    tg_text *tokens;
    size_t n;
    TG_VEC(pair_rank) pairs;
    tg_strmap *index;
} ranks;

static teng_status read_ranks(const char *path, const char *text, size_t len, ranks *r)
{
    size_t lines = 0, used = 0;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    r->store = tg_alloc(len + 1);
    r->tokens = tg_calloc(lines + 1, sizeof *r->tokens);
    r->index = tg_strmap_create();
    if (!r->store || !r->tokens || !r->index) return TENG_MEMORY;
    const char *p = text, *end = text + len;
    while (p < end) {
        char *bytes = r->store + used, *stop;
        size_t n = base64(&p, end, bytes);
        unsigned long rank = 0;
        if (p < end && *p == ' ')
            rank = strtoul(p + 1, &stop, 10);
        else
            stop = NULL;
        if (n == 0 || !stop || stop == p + 1 || rank != r->n)
            return tg_fail(TENG_FORMAT, "%s:%zu: not \"base64 rank\" with the rank %zu", path, r->n + 1,
                           r->n);
        bool existed;
        r->tokens[r->n] = (tg_text){bytes, n};
        if (!tg_strmap_set(r->index, bytes, n, (int64_t)r->n, &existed)) return TENG_MEMORY;
        if (existed)
            return tg_fail(TENG_FORMAT, "%s:%zu: the same token as on a line before", path, r->n + 1);
        r->n++;
        used += n;
        for (p = stop; p < end && (*p == '\n' || *p == '\r');)
            p++;
    }
    return r->n ? TENG_OK : tg_fail(TENG_FORMAT, "%s: the file holds no token", path);
}

static int by_rank(const void *a, const void *b)
{
    const pair_rank *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

/* tiktoken joins any two neighbours whose bytes together are a token; as merges: every such pair, by rank. */
static teng_status find_pairs(ranks *r)
{
    for (size_t i = 0; i < r->n; i++) {
        for (size_t cut = 1; cut < r->tokens[i].len; cut++) {
            int64_t a, b;
            if (!tg_strmap_get(r->index, r->tokens[i].data, cut, &a) ||
                !tg_strmap_get(r->index, r->tokens[i].data + cut, r->tokens[i].len - cut, &b))
                continue;
            if (!tg_vec_push(&r->pairs, ((pair_rank){(uint32_t)a, (uint32_t)b, (uint32_t)i})))
                return TENG_MEMORY;
        }
    }
    if (r->pairs.len) qsort(r->pairs.data, r->pairs.len, sizeof *r->pairs.data, by_rank);
    return TENG_OK;
}

teng_status tg_tokenizer_load_tiktoken(const char *path, const char *pattern, const char *const *specials,
                                       int n_specials, tg_tokenizer **out)
{
    *out = NULL;
    char *text = NULL;
    size_t len;
    ranks r = {0};
    uint32_t(*merges)[2] = NULL;
    teng_status status = tg_file_read(path, &text, &len);
    if (status == TENG_OK) status = read_ranks(path, text, len, &r);
    if (status == TENG_OK) status = find_pairs(&r);
    if (status == TENG_OK && !(merges = tg_alloc((r.pairs.len + 1) * sizeof *merges))) status = TENG_MEMORY;
    if (status == TENG_OK) {
        for (size_t i = 0; i < r.pairs.len; i++) {
            merges[i][0] = r.pairs.data[i].left;
            merges[i][1] = r.pairs.data[i].right;
        }
        tg_model_text m = {.pattern = tg_pattern_named(pattern),
                           .specials = specials,
                           .n_specials = n_specials,
                           .tokens = r.tokens,
                           .n_tokens = r.n,
                           .merges = (const uint32_t(*)[2])merges,
                           .n_merges = r.pairs.len,
                           .ignore_merges = true};
        status = tg_tokenizer_make(path, &m, out);
    }
    tg_free(merges);
    tg_vec_free(&r.pairs);
    tg_strmap_destroy(&r.index);
    tg_free(r.tokens);
    tg_free(r.store);
    tg_free(text);
    return status;
}
