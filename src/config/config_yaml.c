/*
 * YAML text to a flat list of entries "section.key → scalar or list", each with its line and column. libyaml
 * does the reading; this file refuses what a configuration has no use for (aliases, tags, several documents,
 * lists of lists) so that untrusted files stay small and simple. It knows no key.
 */
#include "config/config_key.h"

#include "base/fail.h"

#include <string.h>
#include <yaml.h>

#define MAX_DEPTH 8       /* maps inside maps; the table needs three */
#define MAX_BYTES 1048576 /* of one file */
#define MAX_ENTRIES 10000 /* of one file, list items included */

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    tg_arena *arena;
    const char *name;
    tg_config_entries *out;
    size_t seen;
} reader;

static int line_of(const reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

static int column_of(const reader *r)
{
    return (int)r->event.start_mark.column + 1;
}

#define refuse(r, ...) refuse_at((r)->name, line_of(r), column_of(r), __VA_ARGS__)
static teng_status refuse_at(const char *name, int line, int column, const char *what)
{
    char place[TG_CONFIG_SOURCE_TEXT];
    return tg_fail(TENG_FORMAT, "%s: %s", tg_config_place(place, name, line, column), what);
}

/* Moves to the next event. */
static teng_status next(reader *r)
{
    if (r->has_event) yaml_event_delete(&r->event);
    r->has_event = false;
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        const yaml_parser_t *p = &r->parser;
        if (p->error == YAML_MEMORY_ERROR) return tg_fail(TENG_MEMORY, "%s: out of memory", r->name);
        if (p->error == YAML_READER_ERROR)
            return tg_fail(TENG_FORMAT, "%s: not YAML text: %s at byte %zu", r->name, p->problem,
                           p->problem_offset);
        char place[TG_CONFIG_SOURCE_TEXT];
        tg_config_place(place, r->name, (int)p->problem_mark.line + 1, (int)p->problem_mark.column + 1);
        return tg_fail(TENG_FORMAT, "%s: not YAML: %s%s%s", place, p->context ? p->context : "",
                       p->context ? ", " : "", p->problem ? p->problem : "syntax error");
    }
    r->has_event = true;
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT)
        return refuse(r, "aliases (*name) are not supported; write the value itself");
    const unsigned char *anchor = NULL, *tag = NULL;
    if (e->type == YAML_SCALAR_EVENT) anchor = e->data.scalar.anchor, tag = e->data.scalar.tag;
    if (e->type == YAML_SEQUENCE_START_EVENT)
        anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag;
    if (e->type == YAML_MAPPING_START_EVENT)
        anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag;
    if (anchor) return refuse(r, "anchors (&name) are not supported; write the value where it is wanted");
    if (tag) return refuse(r, "tags (!name) are not supported; the key decides the type");
    return TENG_OK;
}

static teng_status read_scalar(reader *r, tg_config_item *out)
{
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length) return refuse(r, "the value holds a zero byte");
    if (++r->seen > MAX_ENTRIES) return refuse(r, "more than 10000 values in one file");
    *out = (tg_config_item){tg_arena_strdup(r->arena, text),
                            r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE, line_of(r), column_of(r)};
    return out->text ? TENG_OK : teng_error_status();
}

/* The value at the current event, which is no map. */
static teng_status read_plain_value(reader *r, tg_config_entry *out)
{
    out->line = line_of(r);
    out->column = column_of(r);
    if (r->event.type == YAML_SCALAR_EVENT) {
        tg_config_item *item = tg_arena_alloc(r->arena, sizeof *item);
        if (!item) return teng_error_status();
        out->shape = TG_SHAPE_SCALAR;
        out->items = item;
        out->count = 1;
        return read_scalar(r, item);
    }
    TG_VEC(tg_config_item) items = {0};
    out->shape = TG_SHAPE_LIST;
    teng_status s = next(r);
    while (s == TENG_OK && r->event.type != YAML_SEQUENCE_END_EVENT) {
        tg_config_item item = {0};
        if (r->event.type != YAML_SCALAR_EVENT)
            s = refuse(r, "a list may hold only texts and numbers, no lists or maps");
        else
            s = read_scalar(r, &item);
        if (s == TENG_OK && !tg_vec_push(&items, item)) s = teng_error_status();
        if (s == TENG_OK) s = next(r);
    }
    if (s == TENG_OK && items.len) {
        tg_config_item *kept = tg_arena_alloc(r->arena, items.len * sizeof *kept);
        if (kept) memcpy(kept, items.data, items.len * sizeof *kept);
        out->items = kept;
        out->count = items.len;
        if (!kept) s = teng_error_status();
    }
    tg_vec_free(&items);
    return s;
}

/* The members of the map whose start is the current event; prefix is "" or the dotted name of the map. */
static teng_status read_map(reader *r, const char *prefix, int depth)
{
    if (depth > MAX_DEPTH)
        return refuse(r, "maps are nested too deeply; the deepest key is section.group.name");
    for (;;) {
        TG_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return TENG_OK;
        if (r->event.type != YAML_SCALAR_EVENT) return refuse(r, "a key must be a word, not a list or a map");
        tg_config_item key = {0};
        TG_TRY(read_scalar(r, &key));
        tg_config_entry entry = {.key_line = key.line, .key_column = key.column};
        entry.key = *prefix ? tg_arena_printf(r->arena, "%s.%s", prefix, key.text) : key.text;
        if (!entry.key) return teng_error_status();
        TG_TRY(next(r));
        bool is_map = r->event.type == YAML_MAPPING_START_EVENT;
        if (is_map) {
            entry.shape = TG_SHAPE_MAP;
            entry.line = line_of(r);
            entry.column = column_of(r);
        } else {
            TG_TRY(read_plain_value(r, &entry));
        }
        if (!tg_vec_push(r->out, entry)) return teng_error_status();
        if (is_map) TG_TRY(read_map(r, entry.key, depth + 1));
    }
}

/* From the start of the stream to the first event of the document's content; *empty when there is none. */
static teng_status open_document(reader *r, bool *empty)
{
    TG_TRY(next(r)); /* stream start */
    TG_TRY(next(r)); /* document start, or stream end */
    *empty = r->event.type == YAML_STREAM_END_EVENT;
    return *empty ? TENG_OK : next(r);
}

static teng_status close_document(reader *r)
{
    TG_TRY(next(r)); /* document end */
    TG_TRY(next(r)); /* stream end, or another document */
    if (r->event.type != YAML_STREAM_END_EVENT)
        return refuse(r, "a second document (---) in one file; keep one");
    return TENG_OK;
}

static teng_status reader_open(reader *r, tg_arena *arena, const char *name, const char *text, size_t len)
{
    *r = (reader){.arena = arena, .name = name};
    if (len > MAX_BYTES)
        return tg_fail(TENG_FORMAT, "%s: %zu bytes; a configuration has at most %d", name, len, MAX_BYTES);
    if (!yaml_parser_initialize(&r->parser)) return tg_fail(TENG_MEMORY, "%s: out of memory", name);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);
    return TENG_OK;
}

static void reader_close(reader *r)
{
    if (r->has_event) yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}

static teng_status read_root_map(reader *r)
{
    bool empty;
    TG_TRY(open_document(r, &empty));
    if (empty) return TENG_OK;
    bool is_null = r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0;
    if (r->event.type == YAML_MAPPING_START_EVENT)
        TG_TRY(read_map(r, "", 1));
    else if (!is_null)
        return refuse(r, "a configuration is a map of sections and keys (\"train:\", then \"  steps: 100\")");
    return close_document(r);
}

teng_status tg_config_read_yaml(tg_arena *arena, const char *name, const char *text, size_t len,
                                tg_config_entries *out)
{
    reader r;
    TG_TRY(reader_open(&r, arena, name, text, len));
    r.out = out;
    teng_status s = read_root_map(&r);
    reader_close(&r);
    return s;
}

static teng_status read_root_value(reader *r, tg_config_entry *out)
{
    bool empty;
    TG_TRY(open_document(r, &empty));
    if (empty) { /* "key=" or only blanks: null */
        static const tg_config_item nothing = {"", true, 1, 1};
        out->shape = TG_SHAPE_SCALAR;
        out->items = &nothing;
        out->count = 1;
        return TENG_OK;
    }
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return refuse(
            r, "a map is given where one value or a list [a, b] is wanted; quote a text that holds \": \"");
    TG_TRY(read_plain_value(r, out));
    return close_document(r);
}

teng_status tg_config_read_value(tg_arena *arena, const char *name, const char *text, tg_config_entry *out)
{
    reader r;
    TG_TRY(reader_open(&r, arena, name, text, strlen(text)));
    teng_status s = read_root_value(&r, out);
    reader_close(&r);
    return s;
}
