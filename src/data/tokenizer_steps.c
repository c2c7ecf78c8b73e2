/*
 * The components around the model in a tokenizer.json: normalizer, pre_tokenizer, decoder, post_processor.
 * Each list of known types is here and nowhere else; what is not in it is refused with its name, because
 * ignoring it would give other ids than the file's author meant.
 */
#include "base/fail.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer_parse.h"

#include <string.h>

static void *pcre_alloc(PCRE2_SIZE n, void *user)
{
    (void)user;
    return tg_alloc(n);
}

static void pcre_free(void *p, void *user)
{
    (void)user;
    tg_free(p);
}

pcre2_general_context *tg_pcre_memory(void)
{
    return pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
}

/* A component is an object with a type; `part` is its place in the file. */
static teng_status type_of(const tg_tokenizer *t, const char *part, const json_t *c, const char **type)
{
    if (!json_is_object(c)) return tg_fail(TENG_FORMAT, "%s: %s is not an object", t->name, part);
    char where[300];
    snprintf(where, sizeof where, "%s: %s", t->name, part);
    return tg_json_get_string(c, where, "type", true, type);
}

static teng_status unknown(const tg_tokenizer *t, const char *part, const char *type)
{
    return tg_fail(TENG_UNSUPPORTED, "%s: %s of type \"%s\" is not implemented", t->name, part, type);
}

typedef teng_status component_fn(tg_tokenizer *t, const json_t *c);

/* Calls fn for the members of a Sequence. */
static teng_status each(tg_tokenizer *t, const char *part, const char *key, const json_t *c, component_fn *fn)
{
    json_t *list = json_object_get(c, key), *member;
    if (!json_is_array(list))
        return tg_fail(TENG_FORMAT, "%s: %s: Sequence without a list \"%s\"", t->name, part, key);
    size_t i;
    json_array_foreach(list, i, member)
    {
        TG_TRY(fn(t, member));
    }
    return TENG_OK;
}

/* ---- normalizer ---- */

static teng_status add_norm(tg_tokenizer *t, tg_norm_kind kind, const char *from, const char *to)
{
    if (t->n_norm == TG_MAX_STEPS)
        return tg_fail(TENG_UNSUPPORTED, "%s: normalizer of more than %d steps", t->name, TG_MAX_STEPS);
    tg_norm_step *s = &t->norm[t->n_norm++];
    s->kind = kind;
    s->from = from ? tg_strdup(from) : NULL;
    s->to = to ? tg_strdup(to) : NULL;
    return (from && !s->from) || (to && !s->to) ? TENG_MEMORY : TENG_OK;
}

/* {"pattern": {"String": "…"}, "content": "…"} of a normalizer or decoder Replace. */
static teng_status read_replace(const tg_tokenizer *t, const char *part, const json_t *c, const char **from,
                                const char **to)
{
    char where[300];
    snprintf(where, sizeof where, "%s: %s: Replace", t->name, part);
    json_t *pattern = json_object_get(c, "pattern");
    if (json_object_get(pattern, "Regex"))
        return tg_fail(TENG_UNSUPPORTED, "%s with a Regex pattern is not implemented", where);
    TG_TRY(tg_json_get_string(pattern, where, "String", true, from));
    TG_TRY(tg_json_get_string(c, where, "content", true, to));
    return **from ? TENG_OK : tg_fail(TENG_FORMAT, "%s: the pattern is empty", where);
}

static teng_status read_normalizer(tg_tokenizer *t, const json_t *c)
{
    static const struct {
        const char *type;
        tg_norm_kind kind;
    } forms[] = {{"NFC", TG_NORM_NFC}, {"NFD", TG_NORM_NFD}, {"NFKC", TG_NORM_NFKC}, {"NFKD", TG_NORM_NFKD}};
    const char *type = NULL, *from, *to = NULL;
    TG_TRY(type_of(t, "normalizer", c, &type));
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(type, forms[i].type) == 0) return add_norm(t, forms[i].kind, NULL, NULL);
    }
    if (strcmp(type, "Sequence") == 0) return each(t, "normalizer", "normalizers", c, read_normalizer);
    if (strcmp(type, "Prepend") == 0) {
        TG_TRY(tg_json_get_string(c, t->name, "prepend", true, &to));
        return add_norm(t, TG_NORM_PREPEND, NULL, to);
    }
    if (strcmp(type, "Replace") == 0) {
        TG_TRY(read_replace(t, "normalizer", c, &from, &to));
        return add_norm(t, TG_NORM_REPLACE, from, to);
    }
    return unknown(t, "normalizer", type);
}

/* ---- pre_tokenizer ---- */

static teng_status add_split(tg_tokenizer *t, const char *pattern, tg_behavior behavior, bool invert)
{
    if (t->n_pre == TG_MAX_STEPS)
        return tg_fail(TENG_UNSUPPORTED, "%s: pre_tokenizer of more than %d splits", t->name, TG_MAX_STEPS);
    tg_pre_step *s = &t->pre[t->n_pre++];
    s->behavior = behavior;
    s->invert = invert;
    char where[300];
    snprintf(where, sizeof where, "%s: pre_tokenizer", t->name);
    return tg_pattern_compile(where, pattern, t->pcre, s);
}

/* A literal string as a pattern: punctuation escaped. */
static char *literal(const char *s)
{
    tg_strbuf b = {0};
    for (; *s; s++) {
        if (strchr("\\^$.[|()?*+{-&#]}", *s)) tg_strbuf_putc(&b, '\\');
        tg_strbuf_putc(&b, *s);
    }
    return tg_strbuf_take(&b);
}

static teng_status read_split(tg_tokenizer *t, const json_t *c)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    char where[300];
    snprintf(where, sizeof where, "%s: pre_tokenizer: Split", t->name);
    const char *behavior = NULL, *text = NULL;
    bool invert = false;
    TG_TRY(tg_json_get_string(c, where, "behavior", true, &behavior));
    TG_TRY(tg_json_get_bool(c, where, "invert", false, &invert));
    int kind = 0;
    while (kind < 5 && strcmp(names[kind], behavior) != 0)
        kind++;
    if (kind == 5)
        return tg_fail(TENG_UNSUPPORTED, "%s: behavior \"%s\" is not implemented", where, behavior);
    json_t *pattern = json_object_get(c, "pattern");
    if (!json_is_object(pattern)) return tg_fail(TENG_FORMAT, "%s: no object \"pattern\"", where);
    TG_TRY(tg_json_get_string(pattern, where, "Regex", false, &text));
    if (text) return add_split(t, text, (tg_behavior)kind, invert);
    TG_TRY(tg_json_get_string(pattern, where, "String", true, &text));
    if (!*text) return tg_fail(TENG_FORMAT, "%s: the pattern is empty", where);
    char *escaped = literal(text);
    teng_status status = escaped ? add_split(t, escaped, (tg_behavior)kind, invert) : TENG_MEMORY;
    tg_free(escaped);
    return status;
}

static teng_status read_metaspace(tg_tokenizer *t, const json_t *c)
{
    char where[300];
    snprintf(where, sizeof where, "%s: pre_tokenizer: Metaspace", t->name);
    const char *mark = "\xe2\x96\x81", *scheme = NULL;
    bool prefix = true, split = true;
    TG_TRY(tg_json_get_string(c, where, "replacement", false, &mark));
    TG_TRY(tg_json_get_string(c, where, "prepend_scheme", false, &scheme));
    TG_TRY(tg_json_get_bool(c, where, "add_prefix_space", false, &prefix));
    TG_TRY(tg_json_get_bool(c, where, "split", false, &split));
    if (!scheme) scheme = prefix ? "always" : "never";
    if (t->n_pre) return tg_fail(TENG_UNSUPPORTED, "%s behind another step is not implemented", where);
    if (!*mark) return tg_fail(TENG_FORMAT, "%s: the replacement is empty", where);
    TG_TRY(add_norm(t, TG_NORM_META, NULL, mark));
    tg_norm_step *s = &t->norm[t->n_norm - 1];
    if (strcmp(scheme, "always") == 0)
        s->prepend = TG_META_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        s->prepend = TG_META_FIRST;
    else if (strcmp(scheme, "never") == 0)
        s->prepend = TG_META_NEVER;
    else
        return tg_fail(TENG_UNSUPPORTED, "%s: prepend_scheme \"%s\" is not implemented", where, scheme);
    if (!split) return TENG_OK;
    char *pattern = literal(mark);
    teng_status status = pattern ? add_split(t, pattern, TG_MERGE_NEXT, false) : TENG_MEMORY;
    tg_free(pattern);
    return status;
}

static teng_status read_pre(tg_tokenizer *t, const json_t *c)
{
    const char *type = NULL;
    TG_TRY(type_of(t, "pre_tokenizer", c, &type));
    if (strcmp(type, "Sequence") == 0) return each(t, "pre_tokenizer", "pretokenizers", c, read_pre);
    if (t->byte_level)
        return tg_fail(TENG_UNSUPPORTED, "%s: pre_tokenizer: \"%s\" behind ByteLevel is not implemented",
                       t->name, type);
    if (strcmp(type, "Split") == 0) return read_split(t, c);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(t, c);
    if (strcmp(type, "Digits") == 0) {
        bool single = false;
        TG_TRY(tg_json_get_bool(c, t->name, "individual_digits", false, &single));
        return add_split(t, single ? "\\p{N}" : "\\p{N}+", TG_ISOLATED, false);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        bool regex = true, prefix = true;
        TG_TRY(tg_json_get_bool(c, t->name, "use_regex", false, &regex));
        TG_TRY(tg_json_get_bool(c, t->name, "add_prefix_space", false, &prefix));
        if (prefix && t->n_pre)
            return tg_fail(
                TENG_UNSUPPORTED,
                "%s: pre_tokenizer: ByteLevel with add_prefix_space behind a split is not implemented",
                t->name);
        t->byte_level = true;
        t->prefix_space = prefix;
        return regex ? add_split(t, tg_pattern_named("gpt2"), TG_ISOLATED, false) : TENG_OK;
    }
    return unknown(t, "pre_tokenizer", type);
}

/* ---- decoder ---- */

static teng_status read_decoder(tg_tokenizer *t, const json_t *c)
{
    const char *type = NULL, *from, *to;
    TG_TRY(type_of(t, "decoder", c, &type));
    if (strcmp(type, "Sequence") == 0) return each(t, "decoder", "decoders", c, read_decoder);
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0)
        return TENG_OK;
    if (strcmp(type, "Replace") == 0 || strcmp(type, "Metaspace") == 0) {
        bool meta = *type == 'M';
        const char *scheme = "always", *mark = "\xe2\x96\x81";
        if (meta) {
            TG_TRY(tg_json_get_string(c, t->name, "prepend_scheme", false, &scheme));
            TG_TRY(tg_json_get_string(c, t->name, "replacement", false, &mark));
            from = mark;
            to = " ";
            t->strip_start = strcmp(scheme, "never") != 0;
        } else {
            TG_TRY(read_replace(t, "decoder", c, &from, &to));
        }
        if (t->replace_from)
            return tg_fail(TENG_UNSUPPORTED, "%s: decoder: a second Replace is not implemented", t->name);
        if (!*from) return tg_fail(TENG_FORMAT, "%s: decoder: Metaspace: the replacement is empty", t->name);
        t->replace_from = tg_strdup(from);
        t->replace_to = tg_strdup(to);
        return t->replace_from && t->replace_to ? TENG_OK : TENG_MEMORY;
    }
    if (strcmp(type, "Strip") == 0) {
        const char *content = " ";
        int64_t start = 0, stop = 0;
        TG_TRY(tg_json_get_string(c, t->name, "content", false, &content));
        TG_TRY(tg_json_get_int(c, t->name, "start", false, &start));
        TG_TRY(tg_json_get_int(c, t->name, "stop", false, &stop));
        if (strcmp(content, " ") != 0 || stop != 0 || start < 0 || start > 16)
            return tg_fail(TENG_UNSUPPORTED,
                           "%s: decoder: Strip of \"%s\" (start %lld, stop %lld) is not implemented", t->name,
                           content, (long long)start, (long long)stop);
        t->strip_start = (int)start;
        return TENG_OK;
    }
    return unknown(t, "decoder", type);
}

static teng_status optional(tg_tokenizer *t, const json_t *root, const char *key, component_fn *fn)
{
    const json_t *c = json_object_get(root, key);
    return !c || json_is_null(c) ? TENG_OK : fn(t, c);
}

teng_status tg_steps_read(tg_tokenizer *t, const json_t *root)
{
    TG_TRY(optional(t, root, "normalizer", read_normalizer));
    TG_TRY(optional(t, root, "pre_tokenizer", read_pre));
    return optional(t, root, "decoder", read_decoder);
}

/* ---- post_processor ---- */

static teng_status read_template(tg_tokenizer *t, const json_t *c)
{
    json_t *single = json_object_get(c, "single"), *special = json_object_get(c, "special_tokens"), *part;
    if (!json_is_array(single))
        return tg_fail(TENG_FORMAT, "%s: post_processor: TemplateProcessing without a list \"single\"",
                       t->name);
    bool after = false;
    size_t i, k;
    json_array_foreach(single, i, part)
    {
        if (json_object_get(part, "Sequence")) {
            if (after)
                return tg_fail(TENG_UNSUPPORTED, "%s: post_processor: two Sequences in \"single\"", t->name);
            after = true;
            continue;
        }
        const char *name = json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        json_t *ids = json_object_get(json_object_get(special, name ? name : ""), "ids"), *id;
        if (!json_is_array(ids))
            return tg_fail(TENG_FORMAT, "%s: post_processor: single[%zu] names no token of special_tokens",
                           t->name, i);
        json_array_foreach(ids, k, id)
        {
            json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
            if (v < 0 || v >= (json_int_t)t->vocab_size)
                return tg_fail(TENG_FORMAT,
                               "%s: post_processor: token \"%.80s\" has an id that is not in the vocabulary",
                               t->name, name);
            if (!tg_vec_push(after ? &t->suffix : &t->prefix, (uint32_t)v)) return TENG_MEMORY;
        }
    }
    return TENG_OK;
}

static teng_status read_post(tg_tokenizer *t, const json_t *c)
{
    const char *type = NULL;
    TG_TRY(type_of(t, "post_processor", c, &type));
    if (strcmp(type, "Sequence") == 0) return each(t, "post_processor", "processors", c, read_post);
    if (strcmp(type, "ByteLevel") == 0) return TENG_OK; /* moves offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, c);
    return unknown(t, "post_processor", type);
}

teng_status tg_template_read(tg_tokenizer *t, const json_t *root)
{
    return optional(t, root, "post_processor", read_post);
}
