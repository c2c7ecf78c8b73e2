/*
 * One value: from the YAML text to the field of tg_config, checked against the kind, the range and the words
 * of its key, and back to YAML and JSON. Every message says place, key, value, limit. What two keys owe each
 * other is not known here.
 */
#include "config/config_key.h"

#include "base/fail.h"
#include "base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything a check of one value needs. */
typedef struct target {
    tg_config *cfg;
    const tg_config_key *key;
    const tg_config_entry *entry;
    const char *file, *dir;
} target;

static void *field_of(const tg_config *cfg, const tg_config_key *key)
{
    return (char *)(uintptr_t)cfg + key->offset;
}

static bool is_list_kind(tg_config_kind kind)
{
    return kind == TG_KIND_STRINGS || kind == TG_KIND_PATHS || kind == TG_KIND_INTS;
}

static bool is_null(const tg_config_item *item)
{
    return item->plain && (!*item->text || strcmp(item->text, "null") == 0 || strcmp(item->text, "~") == 0);
}

char *tg_config_place(char *buf, const char *file, int line, int column)
{
    if (!file)
        snprintf(buf, TG_CONFIG_SOURCE_TEXT, "default");
    else if (line <= 0)
        snprintf(buf, TG_CONFIG_SOURCE_TEXT, "%.400s", file);
    else
        snprintf(buf, TG_CONFIG_SOURCE_TEXT, "%.400s:%d:%d", file, line, column);
    for (char *c = buf; *c; c++) /* a file name may hold anything; a place is one line */
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    json_t *utf8 = json_string(buf); /* NULL when it is not, or when a character was cut in two */
    for (char *c = buf; *c && !utf8; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    json_decref(utf8);
    return buf;
}

static const char *place_of(const target *t, const tg_config_item *item, char *buf)
{
    bool in_text = t->entry->key_line > 0; /* command line and program have no lines */
    int line = item ? item->line : t->entry->line, column = item ? item->column : t->entry->column;
    return tg_config_place(buf, t->file, in_text ? line : 0, column);
}

static teng_status wrong_type(const target *t, const tg_config_item *item)
{
    char place[TG_CONFIG_SOURCE_TEXT], limit[TG_RANGE_TEXT];
    const char *name = t->key->name, *want = tg_config_kind_text(t->key->kind);
    place_of(t, item, place);
    tg_config_range_text(t->key, limit);
    const char *join = *limit ? ", " : "";
    if (!item)
        return tg_fail(TENG_INVALID, "%s: %s: a list is given where one value is wanted (%s%s%s)", place,
                       name, want, join, limit);
    if (is_null(item))
        return tg_fail(TENG_INVALID, "%s: %s has no value; wanted: %s%s%s (default %s)", place, name, want,
                       join, limit, t->key->def);
    return tg_fail(TENG_INVALID, "%s: %s: %s\"%.80s\" is not of the type wanted: %s%s%s", place, name,
                   item->plain ? "" : "the quoted text ", item->text, want, join, limit);
}

static teng_status out_of_range(const target *t, const tg_config_item *item)
{
    char place[TG_CONFIG_SOURCE_TEXT], limit[TG_RANGE_TEXT];
    return tg_fail(TENG_INVALID, "%s: %s = %.80s is out of range; it must be %s", place_of(t, item, place),
                   t->key->name, item->text, tg_config_range_text(t->key, limit));
}

/* Number of the word in the key's choices, or -1 with an error that lists them. */
static int find_choice(const target *t, const tg_config_item *item)
{
    char place[TG_CONFIG_SOURCE_TEXT], limit[TG_RANGE_TEXT];
    int n = 0;
    for (; t->key->choices[n]; n++)
        if (strcmp(t->key->choices[n], item->text) == 0) return n;
    const char *near = tg_nearest_name(item->text, t->key->choices, n);
    tg_fail(TENG_INVALID, "%s: %s = \"%.80s\" is not one of: %s%s%s%s", place_of(t, item, place),
            t->key->name, item->text, tg_config_range_text(t->key, limit), near ? "; did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
    return -1;
}

/* Whether text is one of the words of range "a|b". */
static bool is_word_of(const char *range, const char *text)
{
    size_t n = strlen(text);
    for (const char *at = range; n && (at = strstr(at, text)); at++)
        if ((at == range || at[-1] == '|') && (at[n] == '\0' || at[n] == '|')) return true;
    return false;
}

static teng_status store_int(const target *t, const tg_config_item *item, int64_t *out)
{
    if (!item->plain || !tg_config_read_int(item->text, out)) return wrong_type(t, item);
    return tg_config_in_range(t->key->range, (double)*out) ? TENG_OK : out_of_range(t, item);
}

static teng_status store_real(const target *t, const tg_config_item *item, double *out)
{
    if (!item->plain || !tg_config_read_real(item->text, out)) return wrong_type(t, item);
    return tg_config_in_range(t->key->range, *out) ? TENG_OK : out_of_range(t, item);
}

static teng_status store_bool(const target *t, const tg_config_item *item, bool *out)
{
    *out = strcmp(item->text, "true") == 0;
    if (!item->plain || (!*out && strcmp(item->text, "false") != 0)) return wrong_type(t, item);
    return TENG_OK;
}

/* Heap copies would need a free each; strings live in the configuration's arena. */
static teng_status store_text(const target *t, const tg_config_item *item, const char **out)
{
    char place[TG_CONFIG_SOURCE_TEXT], limit[TG_RANGE_TEXT];
    json_t *utf8 = json_string(item->text); /* NULL when it is not UTF-8 */
    if (!utf8)
        return tg_fail(TENG_INVALID, "%s: %s is not valid UTF-8; rename the file or write the text in UTF-8",
                       place_of(t, item, place), t->key->name);
    json_decref(utf8);
    bool is_path = t->key->kind == TG_KIND_PATH || t->key->kind == TG_KIND_PATHS;
    if (is_path && !*item->text)
        return tg_fail(TENG_INVALID, "%s: %s is an empty path", place_of(t, item, place), t->key->name);
    if (!is_path && *t->key->range && !is_word_of(t->key->range, item->text))
        return tg_fail(TENG_INVALID, "%s: %s = \"%.80s\" is not one of: %s", place_of(t, item, place),
                       t->key->name, item->text, tg_config_range_text(t->key, limit));
    *out = tg_arena_strdup(t->cfg->arena, item->text);
    return *out ? TENG_OK : teng_error_status();
}

/* dir/path as an absolute path, if that exists: *out stays as it is otherwise. The last part keeps its name
 * even when it is a link, because the ending of a file's name says what is in it. */
static teng_status locate(tg_arena *arena, const char *dir, const char *path, bool *found, const char **out)
{
    char folder[PATH_MAX];
    const char *full = tg_arena_printf(arena, "%s/%s", dir, path);
    if (!full) return teng_error_status();
    *found = tg_path_exists(full);
    if (!*found) return TENG_OK;
    const char *last = tg_path_base(full);
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) last = NULL;
    const char *parent = last ? tg_arena_printf(arena, "%.*s", (int)(last - full), full) : full;
    if (!parent) return teng_error_status();
    if (!realpath(parent, folder)) return tg_fail_errno(TENG_IO, errno, "%s", parent);
    *out = last ? tg_arena_printf(arena, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, last)
                : tg_arena_strdup(arena, folder);
    return *out ? TENG_OK : teng_error_status();
}

/* The path made absolute by the rule stated at tg_config_load. */
static teng_status store_path(const target *t, const tg_config_item *item, const char **out)
{
    TG_TRY(store_text(t, item, out));
    const char *path = *out;
    if (*path == '/' || is_word_of(t->key->range, path)) return TENG_OK;
    bool found = false;
    if (t->dir) TG_TRY(locate(t->cfg->arena, t->dir, path, &found, out));
    return found ? TENG_OK : locate(t->cfg->arena, ".", path, &found, out);
}

static teng_status store_list(const target *t, void *field)
{
    size_t n = t->entry->count;
    bool ints = t->key->kind == TG_KIND_INTS, paths = t->key->kind == TG_KIND_PATHS;
    size_t size = ints ? sizeof(int64_t) : sizeof(char *);
    if (t->entry->shape == TG_SHAPE_SCALAR && is_null(t->entry->items)) return wrong_type(t, t->entry->items);
    void *items = tg_arena_alloc(t->cfg->arena, n ? n * size : size);
    if (!items) return teng_error_status();
    for (size_t i = 0; i < n; i++) {
        const tg_config_item *item = &t->entry->items[i];
        if (ints)
            TG_TRY(store_int(t, item, (int64_t *)items + i));
        else
            TG_TRY((paths ? store_path : store_text)(t, item, (const char **)items + i));
    }
    if (ints)
        *(tg_config_ints *)field = (tg_config_ints){items, n};
    else
        *(tg_config_strings *)field = (tg_config_strings){items, n};
    return TENG_OK;
}

static teng_status store_scalar(const target *t, const tg_config_item *item, void *field)
{
    if (is_null(item)) {
        if (strcmp(t->key->def, "null") != 0) return wrong_type(t, item);
        switch (t->key->kind) {
        case TG_KIND_OPT_INT:
            *(tg_config_opt_int *)field = (tg_config_opt_int){0};
            break;
        case TG_KIND_OPT_REAL:
            *(tg_config_opt_real *)field = (tg_config_opt_real){0};
            break;
        case TG_KIND_OPT_BOOL:
            *(tg_config_opt_bool *)field = (tg_config_opt_bool){0};
            break;
        default:
            *(const char **)field = NULL;
            break;
        }
        return TENG_OK;
    }
    int64_t n = 0;
    double x = 0;
    bool b = false;
    uint64_t bytes = 0;
    const char *text = NULL;
    int choice;
    switch (t->key->kind) {
    case TG_KIND_INT:
    case TG_KIND_OPT_INT:
        TG_TRY(store_int(t, item, &n));
        if (t->key->kind == TG_KIND_INT)
            *(int64_t *)field = n;
        else
            *(tg_config_opt_int *)field = (tg_config_opt_int){true, n};
        return TENG_OK;
    case TG_KIND_REAL:
    case TG_KIND_OPT_REAL:
        TG_TRY(store_real(t, item, &x));
        if (t->key->kind == TG_KIND_REAL)
            *(double *)field = x;
        else
            *(tg_config_opt_real *)field = (tg_config_opt_real){true, x};
        return TENG_OK;
    case TG_KIND_BOOL:
    case TG_KIND_OPT_BOOL:
        TG_TRY(store_bool(t, item, &b));
        if (t->key->kind == TG_KIND_BOOL)
            *(bool *)field = b;
        else
            *(tg_config_opt_bool *)field = (tg_config_opt_bool){true, b};
        return TENG_OK;
    case TG_KIND_SIZE:
        if (!tg_config_read_size(item->text, &bytes)) return wrong_type(t, item);
        *(uint64_t *)field = bytes;
        return TENG_OK;
    case TG_KIND_ENUM:
        choice = find_choice(t, item);
        if (choice < 0) return teng_error_status();
        *(unsigned *)field = (unsigned)choice;
        return TENG_OK;
    default:
        TG_TRY((t->key->kind == TG_KIND_PATH ? store_path : store_text)(t, item, &text));
        *(const char **)field = text;
        return TENG_OK;
    }
}

/* One text for a list of given words may be several: "optimizer, parameters". */
static teng_status split_words(const target *t, tg_config_entry *entry)
{
    const tg_config_item whole = entry->items[0];
    size_t n = 1;
    for (const char *c = whole.text; (c = strchr(c, ',')); c++)
        n++;
    tg_config_item *items = tg_arena_alloc(t->cfg->arena, n * sizeof *items);
    char *text = tg_arena_strdup(t->cfg->arena, whole.text);
    if (!items || !text) return teng_error_status();
    for (size_t i = 0; i < n; i++) {
        char *next = text + strcspn(text, ","), *end = next;
        text += strspn(text, " ");
        while (end > text && end[-1] == ' ')
            end--;
        items[i] = whole;
        items[i].text = text;
        text = next + (*next != '\0');
        *end = '\0';
    }
    entry->items = items;
    entry->count = n;
    return TENG_OK;
}

teng_status tg_config_store(tg_config *cfg, const tg_config_key *key, const tg_config_entry *entry,
                            const char *file, const char *dir)
{
    tg_config_entry words = *entry;
    target t = {cfg, key, entry, file, dir};
    if (key->kind == TG_KIND_STRINGS && *key->range && entry->shape == TG_SHAPE_SCALAR) {
        TG_TRY(split_words(&t, &words));
        t.entry = &words;
    }
    if (is_list_kind(key->kind))
        TG_TRY(store_list(&t, field_of(cfg, key)));
    else if (entry->shape == TG_SHAPE_LIST)
        return wrong_type(&t, NULL);
    else
        TG_TRY(store_scalar(&t, entry->items, field_of(cfg, key)));
    bool in_text = entry->key_line > 0;
    cfg->sources[tg_config_key_index(key)] =
        (tg_config_source){file, in_text ? entry->line : 0, in_text ? entry->column : 0};
    return TENG_OK;
}

bool tg_config_is_set(const tg_config *cfg, const tg_config_key *key)
{
    const void *field = field_of(cfg, key);
    switch (key->kind) {
    case TG_KIND_OPT_INT:
        return ((const tg_config_opt_int *)field)->set;
    case TG_KIND_OPT_REAL:
        return ((const tg_config_opt_real *)field)->set;
    case TG_KIND_OPT_BOOL:
        return ((const tg_config_opt_bool *)field)->set;
    case TG_KIND_STRING:
    case TG_KIND_PATH:
        return *(const char *const *)field != NULL;
    default:
        return true;
    }
}

/* One character as a double-quoted YAML text may hold it; returns its length in bytes, 1 for each byte of a
 * character that needs no escape. Escaped are what YAML takes for line ends and what its readers refuse. */
static size_t put_char(tg_strbuf *out, const unsigned char *c)
{
    static const struct {
        const char *utf8, *escape;
    } special[] = {
        {"\"", "\\\""},
        {"\\", "\\\\"},
        {"\xe2\x80\xa8", "\\u2028"},
        {"\xe2\x80\xa9", "\\u2029"},
        {"\xef\xbb\xbf", "\\uFEFF"},
        {"\xef\xbf\xbe", "\\uFFFE"},
        {"\xef\xbf\xbf", "\\uFFFF"},
    };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        size_t n = strlen(special[i].utf8);
        if (strncmp((const char *)c, special[i].utf8, n) != 0) continue;
        tg_strbuf_puts(out, special[i].escape);
        return n;
    }
    bool c1 = c[0] == 0xc2 && c[1] < 0xa0; /* U+0080 to U+009F */
    if (*c < 0x20 || *c == 0x7f || c1)
        tg_strbuf_printf(out, "\\x%02X", c1 ? c[1] : c[0]);
    else
        tg_strbuf_putc(out, (char)*c);
    return c1 ? 2 : 1;
}

/* Texts that YAML could take for something else, or that hold more than plain words, are quoted. */
static void put_text(tg_strbuf *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const taken[] = {"null", "true", "false", "..."};
    double x;
    bool simple =
        *text && *text != '-' && text[strspn(text, plain)] == '\0' && !tg_config_read_real(text, &x);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        simple = simple && strcmp(text, taken[i]) != 0;
    if (simple) {
        tg_strbuf_puts(out, text);
        return;
    }
    tg_strbuf_putc(out, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c;)
        c += put_char(out, c);
    tg_strbuf_putc(out, '"');
}

void tg_config_value_yaml(const tg_config *cfg, const tg_config_key *key, tg_strbuf *out)
{
    const void *field = field_of(cfg, key);
    char buf[32];
    if (!tg_config_is_set(cfg, key)) {
        tg_strbuf_puts(out, "null");
        return;
    }
    switch (key->kind) {
    case TG_KIND_INT:
        tg_strbuf_printf(out, "%" PRId64, *(const int64_t *)field);
        break;
    case TG_KIND_OPT_INT:
        tg_strbuf_printf(out, "%" PRId64, ((const tg_config_opt_int *)field)->value);
        break;
    case TG_KIND_REAL:
        tg_strbuf_puts(out, tg_config_real_text(buf, *(const double *)field));
        break;
    case TG_KIND_OPT_REAL:
        tg_strbuf_puts(out, tg_config_real_text(buf, ((const tg_config_opt_real *)field)->value));
        break;
    case TG_KIND_BOOL:
        tg_strbuf_puts(out, *(const bool *)field ? "true" : "false");
        break;
    case TG_KIND_OPT_BOOL:
        tg_strbuf_puts(out, ((const tg_config_opt_bool *)field)->value ? "true" : "false");
        break;
    case TG_KIND_SIZE:
        tg_strbuf_puts(out, tg_config_size_text(buf, *(const uint64_t *)field));
        break;
    case TG_KIND_ENUM:
        tg_strbuf_puts(out, key->choices[*(const unsigned *)field]);
        break;
    case TG_KIND_INTS: {
        const tg_config_ints *list = field;
        tg_strbuf_putc(out, '[');
        for (size_t i = 0; i < list->count; i++)
            tg_strbuf_printf(out, "%s%" PRId64, i ? ", " : "", list->items[i]);
        tg_strbuf_putc(out, ']');
        break;
    }
    case TG_KIND_STRINGS:
    case TG_KIND_PATHS: {
        const tg_config_strings *list = field;
        tg_strbuf_putc(out, '[');
        for (size_t i = 0; i < list->count; i++) {
            if (i) tg_strbuf_puts(out, ", ");
            put_text(out, list->items[i]);
        }
        tg_strbuf_putc(out, ']');
        break;
    }
    default:
        put_text(out, *(const char *const *)field);
        break;
    }
}

json_t *tg_config_value_json(const tg_config *cfg, const tg_config_key *key)
{
    const void *field = field_of(cfg, key);
    if (!tg_config_is_set(cfg, key)) return json_null();
    json_t *list;
    switch (key->kind) {
    case TG_KIND_INT:
        return json_integer(*(const int64_t *)field);
    case TG_KIND_OPT_INT:
        return json_integer(((const tg_config_opt_int *)field)->value);
    case TG_KIND_REAL:
        return json_real(*(const double *)field);
    case TG_KIND_OPT_REAL:
        return json_real(((const tg_config_opt_real *)field)->value);
    case TG_KIND_BOOL:
        return json_boolean(*(const bool *)field);
    case TG_KIND_OPT_BOOL:
        return json_boolean(((const tg_config_opt_bool *)field)->value);
    case TG_KIND_SIZE:
        return json_integer((json_int_t) * (const uint64_t *)field);
    case TG_KIND_ENUM:
        return json_string(key->choices[*(const unsigned *)field]);
    case TG_KIND_INTS:
        list = json_array();
        for (size_t i = 0; i < ((const tg_config_ints *)field)->count; i++)
            json_array_append_new(list, json_integer(((const tg_config_ints *)field)->items[i]));
        return list;
    case TG_KIND_STRINGS:
    case TG_KIND_PATHS:
        list = json_array();
        for (size_t i = 0; i < ((const tg_config_strings *)field)->count; i++)
            json_array_append_new(list, json_string(((const tg_config_strings *)field)->items[i]));
        return list;
    default:
        return json_string(*(const char *const *)field);
    }
}
