/*
 * The table of keys for people and shells: text, JSON, docs/configuration.md, completion. Everything but the
 * introduction of the page comes from config.def.
 */
#include "config/config_key.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

static const char page_head[] =
    "# Configuration\n"
    "\n"
    "Made from `src/config/config.def` by `teng config --markdown`; a test compares the two. Do not edit.\n"
    "\n"
    "A run is described by one YAML file; `key=value` words on the command line override it:\n"
    "\n"
    "```\n"
    "teng train configs/llama-tiny.yaml train.steps=20 'data.files=[a.txt, b.txt]'\n"
    "```\n"
    "\n"
    "- Keys are written nested (`train:`, below it `  steps: 20`) or dotted (`train.steps: 20`).\n"
    "- `base: other.yaml` at the top level, relative to the file that says it, is read first; the file "
    "overrides it.\n"
    "- A key that is unknown, given twice, of the wrong type or out of range is an error with file, line and "
    "column.\n"
    "- `null` unsets a key whose default is unset.\n"
    "- A relative path in a file is taken from the folder of that file when it exists there, else from the "
    "current\n"
    "  directory. On the command line it is taken from the current directory. `run.dir` is always taken from "
    "there.\n"
    "- The run folder keeps the resolved configuration: every value, with where it came from.\n";

/* "model.rope_scaling.factor" is in "model.rope_scaling". */
static size_t section_length(const tg_config_key *key)
{
    return (size_t)(tg_config_key_leaf(key) - key->name) - 1;
}

static const char *section_help(const tg_config_key *key)
{
    size_t end = section_length(key), start = end;
    while (start > 0 && key->name[start - 1] != '.')
        start--;
    for (size_t i = 0; i < tg_config_section_count; i++) {
        const char *name = tg_config_sections[i].name;
        if (strlen(name) == end - start && strncmp(name, key->name + start, end - start) == 0)
            return tg_config_sections[i].help;
    }
    return "";
}

static const char *default_text(const tg_config_key *key)
{
    return strcmp(key->def, "null") == 0 ? "unset" : key->def;
}

/* Type and range in words: "whole number, at least 1"; "one of graph, pynative"; "path, or the word bytes".
 */
static void put_type(tg_strbuf *out, const tg_config_key *key)
{
    char range[TG_RANGE_TEXT];
    tg_config_range_text(key, range);
    const char *kind = tg_config_kind_text(key->kind);
    if (!*range)
        tg_strbuf_puts(out, kind);
    else if (key->kind == TG_KIND_PATH)
        tg_strbuf_printf(out, "%s, or the word %s", kind, range);
    else if (key->kind == TG_KIND_STRING || key->kind == TG_KIND_ENUM)
        tg_strbuf_printf(out, "one of %s", range);
    else
        tg_strbuf_printf(out, "%s, %s", kind, range);
}

/* Text in lines of at most 100 columns, each indented by four. */
static void put_wrapped(tg_strbuf *out, const char *text)
{
    size_t column = 0;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column && column + 1 + n > 96) {
            tg_strbuf_putc(out, '\n');
            column = 0;
        }
        tg_strbuf_puts(out, column ? " " : "    ");
        tg_strbuf_add(out, text, n);
        column += n + 1;
        text += n + (text[n] == ' ');
    }
    tg_strbuf_putc(out, '\n');
}

static void put_key(tg_strbuf *out, tg_config_format format, const tg_config_key *key)
{
    if (format == TG_CONFIG_TEXT) {
        tg_strbuf_printf(out, "%s: ", key->name);
        put_type(out, key);
        tg_strbuf_printf(out, " (default %s)\n", default_text(key));
        put_wrapped(out, key->help);
        return;
    }
    tg_strbuf_printf(out, "| `%s` | ", key->name);
    put_type(out, key);
    tg_strbuf_printf(out, " | `%s` | %s |\n", default_text(key), key->help);
}

static void put_section(tg_strbuf *out, tg_config_format format, const tg_config_key *first)
{
    int n = (int)section_length(first);
    if (format == TG_CONFIG_TEXT) {
        tg_strbuf_printf(out, "%s[%.*s] %s\n", out->len ? "\n" : "", n, first->name, section_help(first));
        return;
    }
    tg_strbuf_printf(
        out, "\n## %.*s\n\n%s\n\n| key | type and range | default | meaning |\n| --- | --- | --- | --- |\n",
        n, first->name, section_help(first));
}

static char *help_json(const bool *wanted)
{
    json_t *list = json_array();
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        if (!wanted[i]) continue;
        const tg_config_key *key = &tg_config_keys[i];
        char range[TG_RANGE_TEXT];
        json_t *one =
            json_pack("{s:s, s:s, s:s, s:s, s:s}", "key", key->name, "type", tg_config_kind_text(key->kind),
                      "range", tg_config_range_text(key, range), "default", key->def, "help", key->help);
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            tg_fail(TENG_MEMORY, "list of keys: out of memory");
            return NULL;
        }
    }
    char *text = tg_json_text(list, 2);
    json_decref(list);
    return text;
}

char *tg_config_help(tg_config_format format, const char *only)
{
    bool wanted[TG_CONFIG_KEY_COUNT] = {false};
    size_t found = 0, n = only ? strlen(only) : 0;
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const char *name = tg_config_keys[i].name;
        wanted[i] = !only || (strncmp(name, only, n) == 0 && (name[n] == '\0' || name[n] == '.'));
        found += wanted[i];
    }
    if (!found) {
        const char *near = tg_config_key_suggest(only);
        tg_fail(TENG_INVALID, "no configuration key or section \"%.80s\"%s%s%s", only,
                near ? "; did you mean \"" : "", near ? near : "",
                near ? "\"?" : "; `teng config` lists every key");
        return NULL;
    }
    if (format == TG_CONFIG_JSON) return help_json(wanted);
    tg_strbuf out = {0};
    if (format == TG_CONFIG_MARKDOWN && !only) tg_strbuf_puts(&out, page_head);
    const tg_config_key *last = NULL;
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        if (!wanted[i]) continue;
        if (!last || section_length(last) != section_length(key) ||
            strncmp(last->name, key->name, section_length(key)) != 0)
            put_section(&out, format, key);
        put_key(&out, format, key);
        last = key;
    }
    return tg_strbuf_take(&out);
}

/* Adds "key=word" when it goes on from what was typed. */
static void offer(tg_strbuf *out, const char *typed, const char *key, const char *word, size_t n)
{
    size_t k = strlen(key), t = strlen(typed);
    if (t > k + 1 + n || strncmp(typed + k + 1, word, t - k - 1) != 0) return;
    tg_strbuf_printf(out, "%s=%.*s\n", key, (int)n, word);
}

char *tg_config_complete(const char *word)
{
    tg_strbuf out = {0};
    size_t n = strlen(word);
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        size_t k = strlen(key->name);
        if (n <= k) {
            if (strncmp(key->name, word, n) == 0) tg_strbuf_printf(&out, "%s=\n", key->name);
            continue;
        }
        if (strncmp(key->name, word, k) != 0 || word[k] != '=') continue;
        if (key->kind == TG_KIND_BOOL || key->kind == TG_KIND_OPT_BOOL) {
            offer(&out, word, key->name, "true", 4);
            offer(&out, word, key->name, "false", 5);
        }
        for (const char *const *c = key->choices; c && *c; c++)
            offer(&out, word, key->name, *c, strlen(*c));
        bool words = key->kind == TG_KIND_STRING || key->kind == TG_KIND_PATH;
        for (const char *at = words ? key->range : ""; *at;) {
            size_t len = strcspn(at, "|");
            offer(&out, word, key->name, at, len);
            at += len + (at[len] == '|');
        }
    }
    return tg_strbuf_take(&out);
}
