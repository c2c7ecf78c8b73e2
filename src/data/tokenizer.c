/*
 * A tokenizer's life and its look-ups: load, save, destroy, decode, names. Saving writes the text it was made
 * from, so that a file that passes through teng keeps every byte, also of members teng does not use.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer_impl.h"

#include <string.h>

/* "eos_token": "…" or {"content": "…"} of tokenizer_config.json. */
static void config_token(const tg_tokenizer *t, const json_t *root, const char *key, int64_t *id)
{
    const json_t *v = json_object_get(root, key);
    if (json_is_object(v)) v = json_object_get(v, "content");
    int64_t found = json_is_string(v) ? tg_tokenizer_id(t, json_string_value(v)) : -1;
    if (found >= 0) *id = found;
}

static teng_status read_config(tg_tokenizer *t, const char *file)
{
    size_t dir = (size_t)(tg_path_base(file) - file);
    char *path = tg_asprintf("%.*stokenizer_config.json", (int)dir, file);
    if (!path) return TENG_MEMORY;
    json_t *root = NULL;
    teng_status status = tg_path_exists(path) ? tg_json_load_file_real(path, &root) : TENG_OK;
    tg_free(path);
    if (status == TENG_OK && root) {
        config_token(t, root, "eos_token", &t->eos);
        config_token(t, root, "bos_token", &t->bos);
    }
    json_decref(root);
    return status;
}

teng_status tg_tokenizer_load(const char *path, tg_tokenizer **out)
{
    *out = NULL;
    char *text = NULL;
    size_t len;
    char *file = tg_path_is_dir(path) ? tg_path_join(path, "tokenizer.json") : tg_strdup(path);
    if (!file) return TENG_MEMORY;
    teng_status status = tg_file_read(file, &text, &len);
    if (status == TENG_OK) status = tg_tokenizer_parse(file, text, len, out);
    if (status == TENG_OK) status = read_config(*out, file);
    if (status != TENG_OK) tg_tokenizer_destroy(out);
    tg_free(text);
    tg_free(file);
    return status;
}

teng_status tg_tokenizer_save(const tg_tokenizer *t, const char *path)
{
    return tg_file_write(path, t->json, t->json_len);
}

void tg_tokenizer_destroy(tg_tokenizer **out)
{
    tg_tokenizer *t = *out;
    if (!t) return;
    while (t->pool) {
        tg_scratch *s = t->pool;
        t->pool = s->next;
        tg_scratch_destroy(s);
    }
    for (int i = 0; i < t->n_norm; i++) {
        tg_free(t->norm[i].from);
        tg_free(t->norm[i].to);
    }
    for (int i = 0; i < t->n_pre; i++) {
        pcre2_code_free(t->pre[i].code);
        tg_free(t->pre[i].pattern);
    }
    for (size_t i = 0; i < t->added.len; i++)
        tg_free(t->added.data[i].content);
    tg_vec_free(&t->added);
    tg_added_set_free(&t->raw_set);
    tg_added_set_free(&t->norm_set);
    tg_vec_free(&t->prefix);
    tg_vec_free(&t->suffix);
    tg_strmap_destroy(&t->by_key);
    tg_strbuf_free(&t->bytes);
    tg_free(t->token_at);
    tg_free(t->token_len);
    tg_free(t->token_flags);
    tg_free(t->merges.slots);
    tg_free(t->replace_from);
    tg_free(t->replace_to);
    tg_free(t->name);
    tg_free(t->json);
    pcre2_general_context_free(t->pcre);
    pthread_mutex_destroy(&t->lock);
    tg_free(t);
    *out = NULL;
}

/* ---- ids → bytes ---- */

teng_status tg_tokenizer_decode(const tg_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                                tg_strbuf *out)
{
    int strip = t->strip_start;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = ids[i];
        if (id >= t->vocab_size || !(t->token_flags[id] & TG_TOKEN_USED))
            return tg_fail(TENG_INVALID, "%s: token %zu of the input is %u; the vocabulary has %s", t->name,
                           i, id, id >= t->vocab_size ? "fewer tokens" : "no token with this id");
        if (skip_special && t->token_flags[id] & TG_TOKEN_SPECIAL) continue;
        const char *bytes = t->bytes.data + t->token_at[id];
        size_t len = t->token_len[id];
        for (; strip > 0 && len > 0 && *bytes == ' '; strip--, bytes++)
            len--;
        strip = 0;
        tg_strbuf_add(out, bytes, len);
    }
    return out->failed ? tg_fail(TENG_MEMORY, "%s: no memory to decode %zu tokens", t->name, n) : TENG_OK;
}

/* ---- look-ups ---- */

uint32_t tg_tokenizer_vocab_size(const tg_tokenizer *t)
{
    return t->vocab_size;
}

const char *tg_tokenizer_token(const tg_tokenizer *t, uint32_t id, size_t *len)
{
    if (id >= t->vocab_size || !(t->token_flags[id] & TG_TOKEN_USED)) return NULL;
    if (len) *len = t->token_len[id];
    return tg_strbuf_str(&t->bytes) + t->token_at[id];
}

int64_t tg_tokenizer_id(const tg_tokenizer *t, const char *content)
{
    size_t len = strlen(content);
    for (size_t i = 0; i < t->added.len; i++) {
        uint32_t id = t->added.data[i].id;
        if (t->token_len[id] == len && memcmp(t->bytes.data + t->token_at[id], content, len) == 0) return id;
    }
    int64_t id;
    return tg_strmap_get(t->by_key, content, len, &id) ? id : -1;
}

bool tg_tokenizer_is_special(const tg_tokenizer *t, uint32_t id)
{
    return id < t->vocab_size && t->token_flags[id] & TG_TOKEN_SPECIAL;
}

int64_t tg_tokenizer_eos(const tg_tokenizer *t)
{
    return t->eos;
}

int64_t tg_tokenizer_bos(const tg_tokenizer *t)
{
    return t->bos;
}

uint64_t tg_tokenizer_hash(const tg_tokenizer *t)
{
    return t->hash;
}

json_t *tg_tokenizer_info_json(const tg_tokenizer *t)
{
    json_t *special = json_array(), *patterns = json_array(), *forms = json_array();
    static const char *const norms[] = {"NFC", "NFD", "NFKC", "NFKD", "prepend", "replace", "metaspace"};
    size_t tokens = 0;
    for (uint32_t id = 0; id < t->vocab_size; id++)
        tokens += t->token_flags[id] & TG_TOKEN_USED;
    for (size_t i = 0; i < t->added.len; i++) {
        uint32_t id = t->added.data[i].id;
        if (!t->added.data[i].special) continue;
        json_array_append_new(special, json_pack("{s:I, s:s%}", "id", (json_int_t)id, "content",
                                                 t->bytes.data + t->token_at[id], (size_t)t->token_len[id]));
    }
    for (int i = 0; i < t->n_pre; i++)
        json_array_append_new(patterns, json_string(t->pre[i].pattern));
    for (int i = 0; i < t->n_norm; i++)
        json_array_append_new(forms, json_string(norms[t->norm[i].kind]));
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)t->hash);
    json_t *info = json_pack(
        "{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "name", t->name, "type", "BPE",
        "byte_level", (int)t->byte_level, "vocab_size", (json_int_t)t->vocab_size, "tokens",
        (json_int_t)tokens, "merges", (json_int_t)t->n_merges, "added_tokens", (json_int_t)t->added.len,
        "special_tokens", special, "patterns", patterns, "normalizer", forms, "hash", hash);
    if (info) {
        json_object_set_new(info, "eos", t->eos < 0 ? json_null() : json_integer(t->eos));
        json_object_set_new(info, "bos", t->bos < 0 ? json_null() : json_integer(t->bos));
    }
    return info;
}
