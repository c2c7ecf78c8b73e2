/*
 * tokenizer.json → tokenizer. The file is untrusted: every member is checked, ids are bounded, and errors
 * name the file and the member. A component whose type changes the result and is not implemented is refused
 * by its name. tokenizer_steps.c reads the components (normalizer, pre_tokenizer, …), this file the
 * vocabulary and the merges.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/tokenizer_parse.h"
#include "data/utf8_scan.h"

#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

static teng_status check_id(const tg_tokenizer *t, const char *content, json_int_t id)
{
    if (id >= 0 && id <= TG_MAX_TOKEN_ID) return TENG_OK;
    return tg_fail(TENG_FORMAT, "%s: token \"%.80s\" has the id %lld; ids lie in 0 … %d", t->name, content,
                   (long long)id, TG_MAX_TOKEN_ID);
}

/* Sizes the token tables by the largest id of the vocabulary and the added tokens. */
static teng_status size_tables(tg_tokenizer *t, json_t *vocab, const json_t *added)
{
    json_int_t largest = -1;
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        if (!json_is_integer(value))
            return tg_fail(TENG_FORMAT, "%s: model.vocab: the id of token \"%.80s\" is not an integer",
                           t->name, key);
        TG_TRY(check_id(t, key, json_integer_value(value)));
        if (json_integer_value(value) > largest) largest = json_integer_value(value);
    }
    size_t i;
    json_array_foreach(added, i, value)
    {
        int64_t id = 0;
        char where[300];
        snprintf(where, sizeof where, "%s: added_tokens[%zu]", t->name, i);
        TG_TRY(tg_json_get_int(value, where, "id", true, &id));
        TG_TRY(check_id(t, "(added)", id));
        if (id > largest) largest = id;
    }
    if (largest < 0) return tg_fail(TENG_FORMAT, "%s: model.vocab holds no token", t->name);
    t->vocab_size = (uint32_t)largest + 1;
    t->token_at = tg_calloc(t->vocab_size, sizeof *t->token_at);
    t->token_len = tg_calloc(t->vocab_size, sizeof *t->token_len);
    t->token_flags = tg_calloc(t->vocab_size, 1);
    return t->token_at && t->token_len && t->token_flags ? TENG_OK : TENG_MEMORY;
}

static teng_status set_token(tg_tokenizer *t, uint32_t id, const char *bytes, size_t len, uint8_t flags)
{
    if (t->bytes.len + len > UINT32_MAX)
        return tg_fail(TENG_FORMAT, "%s: tokens of more than 4 GiB", t->name);
    t->token_at[id] = (uint32_t)t->bytes.len;
    t->token_len[id] = (uint32_t)len;
    t->token_flags[id] |= flags;
    tg_strbuf_add(&t->bytes, bytes, len);
    return t->bytes.failed ? TENG_MEMORY : TENG_OK;
}

/* "Ġthe" → " the"; false when a character stands for no byte. */
static bool byte_level_bytes(const char *key, tg_strbuf *out)
{
    const unsigned char *u = (const unsigned char *)key;
    size_t n = strlen(key);
    tg_strbuf_clear(out);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = tg_utf8_char(u + i, n - i, &cp), byte = len ? tg_char_byte(cp) : -1;
        if (byte < 0) return false;
        tg_strbuf_putc(out, (char)byte);
        i += (size_t)len;
    }
    return true;
}

/* "<0x0A>" → 10, else -1. */
static int byte_token(const char *key)
{
    if (strlen(key) != 6 || strncmp(key, "<0x", 3) != 0 || key[5] != '>') return -1;
    char *end;
    long v = strtol(key + 3, &end, 16);
    return end == key + 5 && key[3] != '+' && key[3] != '-' ? (int)v : -1;
}

/* What decode writes for a SentencePiece-style token. */
static void piece_bytes(const tg_tokenizer *t, const char *key, tg_strbuf *out)
{
    int byte = t->byte_fallback ? byte_token(key) : -1;
    tg_strbuf_clear(out);
    if (byte >= 0) {
        tg_strbuf_putc(out, (char)byte);
        return;
    }
    size_t len = t->replace_from ? strlen(t->replace_from) : 0;
    while (*key) {
        const char *hit = len ? strstr(key, t->replace_from) : NULL;
        tg_strbuf_add(out, key, hit ? (size_t)(hit - key) : strlen(key));
        if (!hit) break;
        tg_strbuf_puts(out, t->replace_to);
        key = hit + len;
    }
}

static teng_status read_vocab(tg_tokenizer *t, json_t *vocab)
{
    const char *key;
    json_t *value;
    tg_strbuf bytes = {0};
    teng_status status = TENG_OK;
    for (int b = 0; b < 256; b++)
        t->byte_id[b] = TG_TOKEN_NONE;
    json_object_foreach(vocab, key, value)
    {
        uint32_t id = (uint32_t)json_integer_value(value);
        if (t->token_flags[id]) {
            status =
                tg_fail(TENG_FORMAT, "%s: model.vocab: id %u belongs to two tokens, the second is \"%.80s\"",
                        t->name, id, key);
            break;
        }
        bool symbol = true; /* can come out of merging */
        if (t->byte_level) {
            symbol = byte_level_bytes(key, &bytes);
            if (!symbol) {
                tg_strbuf_clear(&bytes);
                tg_strbuf_puts(&bytes, key);
            }
            if (symbol && bytes.len == 1) t->byte_id[(unsigned char)bytes.data[0]] = id;
        } else {
            int byte = t->byte_fallback ? byte_token(key) : -1;
            if (byte >= 0) t->byte_id[byte] = id;
            piece_bytes(t, key, &bytes);
        }
        const char *k = t->byte_level ? tg_strbuf_str(&bytes) : key;
        size_t k_len = t->byte_level ? bytes.len : strlen(key);
        if (bytes.failed || (symbol && !tg_strmap_set(t->by_key, k, k_len, id, NULL))) {
            status = tg_fail(TENG_MEMORY, "%s: no memory for the vocabulary", t->name);
            break;
        }
        status = set_token(t, id, tg_strbuf_str(&bytes), bytes.len, TG_TOKEN_USED);
        if (status != TENG_OK) break;
    }
    tg_strbuf_free(&bytes);
    return status;
}

/* ---- merges ---- */

static bool key_id(const tg_tokenizer *t, const char *key, size_t len, tg_strbuf *bytes, uint32_t *id)
{
    int64_t found;
    char *copy = tg_strndup(key, len);
    if (!copy) return false;
    bool ok = !t->byte_level || byte_level_bytes(copy, bytes);
    if (!t->byte_level) {
        tg_strbuf_clear(bytes);
        tg_strbuf_puts(bytes, copy);
    }
    tg_free(copy);
    ok = ok && !bytes->failed && tg_strmap_get(t->by_key, tg_strbuf_str(bytes), bytes->len, &found);
    if (ok) *id = (uint32_t)found;
    return ok;
}

static teng_status read_merge(tg_tokenizer *t, size_t i, json_t *m, tg_strbuf *bytes, tg_strbuf *joined)
{
    const char *left, *right;
    size_t left_len, right_len;
    if (json_is_string(m)) {
        left = json_string_value(m);
        const char *space = strchr(left, ' ');
        if (!space || strchr(space + 1, ' '))
            return tg_fail(TENG_FORMAT,
                           "%s: model.merges[%zu] = \"%.80s\" is not two tokens with a space between",
                           t->name, i, left);
        left_len = (size_t)(space - left);
        right = space + 1;
        right_len = strlen(right);
    } else if (json_is_array(m) && json_array_size(m) == 2 && json_is_string(json_array_get(m, 0)) &&
               json_is_string(json_array_get(m, 1))) {
        left = json_string_value(json_array_get(m, 0));
        right = json_string_value(json_array_get(m, 1));
        left_len = strlen(left);
        right_len = strlen(right);
    } else {
        return tg_fail(TENG_FORMAT, "%s: model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]", t->name,
                       i);
    }
    tg_strbuf_clear(joined);
    tg_strbuf_add(joined, left, left_len);
    tg_strbuf_add(joined, right, right_len);
    uint32_t a, b, c;
    const char *missing = NULL;
    size_t missing_len = 0;
    if (!key_id(t, left, left_len, bytes, &a)) {
        missing = left;
        missing_len = left_len;
    } else if (!key_id(t, right, right_len, bytes, &b)) {
        missing = right;
        missing_len = right_len;
    } else if (!key_id(t, tg_strbuf_str(joined), joined->len, bytes, &c)) {
        missing = tg_strbuf_str(joined);
        missing_len = joined->len;
    }
    if (missing)
        return tg_fail(TENG_FORMAT, "%s: model.merges[%zu] needs the token \"%.*s\", which model.vocab lacks",
                       t->name, i, missing_len > 80 ? 80 : (int)missing_len, missing);
    tg_merge_table_put(&t->merges, a, b, (uint32_t)i, c);
    return TENG_OK;
}

static teng_status read_merges(tg_tokenizer *t, const json_t *model)
{
    json_t *merges = json_object_get(model, "merges"), *m;
    if (!json_is_array(merges)) return tg_fail(TENG_FORMAT, "%s: model.merges is not a list", t->name);
    t->n_merges = json_array_size(merges);
    if (!tg_merge_table_init(&t->merges, t->n_merges)) return TENG_MEMORY;
    tg_strbuf bytes = {0}, joined = {0};
    teng_status status = TENG_OK;
    size_t i;
    json_array_foreach(merges, i, m)
    {
        status = read_merge(t, i, m, &bytes, &joined);
        if (status != TENG_OK) break;
    }
    tg_strbuf_free(&bytes);
    tg_strbuf_free(&joined);
    return status;
}

/* ---- added tokens ---- */

static teng_status read_added(tg_tokenizer *t, size_t i, const json_t *entry)
{
    char where[300];
    snprintf(where, sizeof where, "%s: added_tokens[%zu]", t->name, i);
    tg_added a = {.normalized = true};
    int64_t id = 0;
    const char *content = NULL;
    TG_TRY(tg_json_get_int(entry, where, "id", true, &id));
    TG_TRY(tg_json_get_string(entry, where, "content", true, &content));
    TG_TRY(tg_json_get_bool(entry, where, "special", false, &a.special));
    a.normalized = !a.special;
    TG_TRY(tg_json_get_bool(entry, where, "normalized", false, &a.normalized));
    TG_TRY(tg_json_get_bool(entry, where, "single_word", false, &a.single_word));
    TG_TRY(tg_json_get_bool(entry, where, "lstrip", false, &a.lstrip));
    TG_TRY(tg_json_get_bool(entry, where, "rstrip", false, &a.rstrip));
    if (!*content) return tg_fail(TENG_FORMAT, "%s: content is empty", where);
    a.id = (uint32_t)id;
    if (t->token_flags[id] & TG_TOKEN_ADDED)
        return tg_fail(TENG_FORMAT, "%s: id %u of \"%.80s\" is taken by an added token before it", where,
                       a.id, content);
    a.content = tg_strdup(content);
    a.len = strlen(content);
    if (!a.content) return TENG_MEMORY;
    if (a.normalized && t->n_norm) { /* it is looked for in normalized text, in its normalized form */
        const char *text;
        size_t len;
        tg_scratch *s = tg_scratch_take(t);
        if (!s) {
            tg_free(a.content);
            return TENG_MEMORY;
        }
        bool meta = t->norm[t->n_norm - 1].kind == TG_NORM_META; /* belongs to the pre-tokenizer */
        teng_status status = tg_normalize(t, s, !meta, false, content, a.len, &text, &len);
        char *changed = status == TENG_OK ? tg_strndup(text, len) : NULL;
        tg_scratch_give(t, s);
        tg_free(a.content);
        if (!changed) return status == TENG_OK ? TENG_MEMORY : status;
        a.content = changed;
        a.len = len;
    }
    if (!tg_vec_push(&t->added, a)) {
        tg_free(a.content);
        return TENG_MEMORY;
    }
    uint8_t flags = (uint8_t)(TG_TOKEN_USED | TG_TOKEN_ADDED | (a.special ? TG_TOKEN_SPECIAL : 0));
    return set_token(t, a.id, content, strlen(content), flags);
}

/* ---- the whole ---- */

static teng_status read_model(tg_tokenizer *t, const json_t *root, json_t **vocab)
{
    char where[300];
    snprintf(where, sizeof where, "%s: model", t->name);
    json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) return tg_fail(TENG_FORMAT, "%s: no object \"model\"", t->name);
    const char *type = "BPE", *unk = NULL, *prefix = NULL, *suffix = NULL;
    double dropout = 0;
    TG_TRY(tg_json_get_string(model, where, "type", false, &type));
    if (strcmp(type, "BPE") != 0)
        return tg_fail(TENG_UNSUPPORTED, "%s: model.type \"%s\" is not implemented; BPE is", t->name, type);
    TG_TRY(tg_json_get_string(model, where, "unk_token", false, &unk));
    TG_TRY(tg_json_get_string(model, where, "continuing_subword_prefix", false, &prefix));
    TG_TRY(tg_json_get_string(model, where, "end_of_word_suffix", false, &suffix));
    TG_TRY(tg_json_get_real(model, where, "dropout", false, &dropout));
    TG_TRY(tg_json_get_bool(model, where, "byte_fallback", false, &t->byte_fallback));
    TG_TRY(tg_json_get_bool(model, where, "fuse_unk", false, &t->fuse_unk));
    TG_TRY(tg_json_get_bool(model, where, "ignore_merges", false, &t->ignore_merges));
    if (prefix && *prefix)
        return tg_fail(TENG_UNSUPPORTED, "%s: model.continuing_subword_prefix \"%s\" is not implemented",
                       t->name, prefix);
    if (suffix && *suffix)
        return tg_fail(TENG_UNSUPPORTED, "%s: model.end_of_word_suffix \"%s\" is not implemented", t->name,
                       suffix);
    if (dropout != 0)
        return tg_fail(TENG_UNSUPPORTED, "%s: model.dropout %g is not implemented; set it to null", t->name,
                       dropout);
    *vocab = json_object_get(model, "vocab");
    if (!json_is_object(*vocab)) return tg_fail(TENG_FORMAT, "%s: model.vocab is not an object", t->name);
    TG_TRY(size_tables(t, *vocab, json_object_get(root, "added_tokens")));
    TG_TRY(read_vocab(t, *vocab));
    TG_TRY(read_merges(t, model));
    t->unk = TG_TOKEN_NONE;
    if (unk) {
        json_t *id = json_object_get(*vocab, unk);
        if (!id)
            return tg_fail(TENG_FORMAT, "%s: model.unk_token \"%.80s\" is not in model.vocab", t->name, unk);
        t->unk = (uint32_t)json_integer_value(id);
    }
    return TENG_OK;
}

static uint64_t hash_of(const tg_tokenizer *t, const json_t *root)
{
    uint64_t h = t->vocab_size;
    for (uint32_t id = 0; id < t->vocab_size; id++)
        h = tg_hash64(tg_strbuf_str(&t->bytes) + t->token_at[id], t->token_len[id], h + t->token_flags[id]);
    uint64_t sum = 0; /* the table's order does not matter */
    for (size_t i = 0; i <= t->merges.mask; i++)
        sum += t->merges.slots[i].left == TG_TOKEN_NONE ? 0
                                                        : tg_hash64(&t->merges.slots[i], sizeof(tg_merge), 1);
    h = tg_hash64(&sum, sizeof sum, h);
    static const char *const steps[] = {"normalizer", "pre_tokenizer"};
    for (int i = 0; i < 2; i++) {
        const json_t *step = json_object_get(root, steps[i]);
        char *text = step ? tg_json_text(step, 0) : NULL;
        if (text) h = tg_hash64(text, strlen(text), h);
        tg_free(text);
    }
    return h;
}

static void find_ends(tg_tokenizer *t)
{
    static const char *const eos[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"};
    static const char *const bos[] = {"<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>"};
    t->bos = t->prefix.len ? (int64_t)t->prefix.data[0] : -1;
    t->eos = t->suffix.len ? (int64_t)t->suffix.data[t->suffix.len - 1] : -1;
    for (size_t i = 0; t->eos < 0 && i < sizeof eos / sizeof *eos; i++)
        t->eos = tg_tokenizer_id(t, eos[i]);
    for (size_t i = 0; t->bos < 0 && i < sizeof bos / sizeof *bos; i++)
        t->bos = tg_tokenizer_id(t, bos[i]);
}

static void find_cuts(tg_tokenizer *t)
{
    t->cut_inside = t->byte_level && !t->prefix_space;
    for (int i = 0; i < t->n_norm; i++)
        t->cut_inside = t->cut_inside && t->norm[i].kind <= TG_NORM_NFKD && t->norm_set.lengths.len == 0;
    for (int i = 0; i < t->n_pre; i++)
        t->cut_inside = t->cut_inside && tg_pattern_cuttable(t->pre[i].pattern);
    t->plain_bytes = t->byte_level && t->n_merges == 0 && !t->ignore_merges;
    int missing = 0;
    for (int b = 0; b < 256; b++)
        missing += t->byte_id[b] == TG_TOKEN_NONE;
    t->plain_bytes = t->plain_bytes && missing == 0;
    if (t->plain_bytes && t->n_pre == 0) t->cut_inside = true;
    t->cut_outside = t->cut_inside;
    for (size_t i = 0; i < t->added.len; i++)
        t->cut_outside = t->cut_outside && !strpbrk(t->added.data[i].content, " \t\r\n");
    if (missing && t->unk == TG_TOKEN_NONE && (t->byte_level || t->byte_fallback))
        tg_warn("%s: %d of 256 bytes have no token; text that needs them loses them", t->name, missing);
}

static teng_status build(tg_tokenizer *t, const json_t *root)
{
    json_t *vocab, *entry;
    if (!json_is_object(root)) return tg_fail(TENG_FORMAT, "%s: not a JSON object", t->name);
    t->pcre = tg_pcre_memory();
    t->by_key = tg_strmap_create();
    if (!t->pcre || !t->by_key) return TENG_MEMORY;
    json_t *added = json_object_get(root, "added_tokens");
    if (added && !json_is_array(added) && !json_is_null(added))
        return tg_fail(TENG_FORMAT, "%s: added_tokens is not a list", t->name);
    TG_TRY(tg_steps_read(t, root));
    TG_TRY(read_model(t, root, &vocab));
    size_t i;
    json_array_foreach(added, i, entry)
    {
        json_t *in_vocab = json_object_get(vocab, json_string_value(json_object_get(entry, "content")));
        int64_t id = json_integer_value(json_object_get(entry, "id"));
        if (in_vocab && json_integer_value(in_vocab) != id)
            return tg_fail(TENG_FORMAT, "%s: added_tokens[%zu] has id %lld, model.vocab gives it %lld",
                           t->name, i, (long long)id, (long long)json_integer_value(in_vocab));
        if (!in_vocab && t->token_flags[id] & TG_TOKEN_USED)
            return tg_fail(TENG_FORMAT, "%s: added_tokens[%zu]: id %lld belongs to another token", t->name, i,
                           (long long)id);
        TG_TRY(read_added(t, i, entry));
    }
    if (!tg_added_set_init(&t->raw_set, t, false) || !tg_added_set_init(&t->norm_set, t, true))
        return TENG_MEMORY;
    TG_TRY(tg_template_read(t, root));
    find_cuts(t);
    find_ends(t);
    t->hash = hash_of(t, root);
    return TENG_OK;
}

teng_status tg_tokenizer_parse(const char *name, const char *text, size_t len, tg_tokenizer **out)
{
    *out = NULL;
    tg_tokenizer *t = tg_calloc(1, sizeof *t);
    if (!t) return TENG_MEMORY;
    pthread_mutex_init(&t->lock, NULL);
    t->name = tg_strdup(name);
    t->json = tg_strndup(text, len);
    t->json_len = len;
    json_t *root = NULL;
    teng_status status = t->name && t->json ? tg_json_parse(name, text, len, &root) : TENG_MEMORY;
    if (status == TENG_OK) status = build(t, root);
    json_decref(root);
    if (status != TENG_OK) {
        if (teng_error_status() == TENG_OK) tg_fail(status, "%s: no memory for the tokenizer", name);
        tg_tokenizer_destroy(&t);
    }
    *out = t;
    return status;
}
