/*
 * JSON on top of jansson: errors in teng's words, checked members, and a printer whose floats read back to
 * the same bits with as few digits as possible (jansson prints 0.1 as 0.10000000000000001 or loses bits).
 * Integers stay integers. Duplicate keys, NUL characters and integers beyond 64 bits are refused.
 */
#include "base/json.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 2048 }; /* jansson's own limit when reading */

static teng_status parse(const char *name, const char *text, size_t len, size_t flags, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &error);
    if (*out) return TENG_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return tg_fail(TENG_MEMORY, "%s: out of memory while reading JSON of %zu bytes", name, len);
    if (len == 0) return tg_fail(TENG_FORMAT, "%s: the file is empty, a JSON value is needed", name);
    return tg_fail(TENG_FORMAT, "%s:%d:%d: not valid JSON: %s", name, error.line, error.column, error.text);
}

teng_status tg_json_parse(const char *name, const char *text, size_t len, json_t **out)
{
    return parse(name, text, len, 0, out);
}

static teng_status load_file(const char *path, size_t flags, json_t **out)
{
    tg_map map;
    *out = NULL;
    TG_TRY(tg_map_open(path, &map));
    teng_status status = parse(path, (const char *)map.data, map.size, flags, out);
    tg_map_close(&map);
    return status;
}

teng_status tg_json_load_file(const char *path, json_t **out)
{
    return load_file(path, 0, out);
}

teng_status tg_json_load_file_real(const char *path, json_t **out)
{
    return load_file(path, JSON_DECODE_INT_AS_REAL, out);
}

/* A number's text as JSON wants it: a point whatever the locale, and a mark that it is not an integer. */
static void finish_real(char *buf)
{
    char *comma = strchr(buf, ',');
    if (comma) *comma = '.';
    if (!strpbrk(buf, ".e")) strcat(buf, ".0");
}

/* Shortest text that reads back to the same double; buf >= 40 bytes. */
static void print_double(char *buf, double value)
{
    if (!isfinite(value)) {
        strcpy(buf, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value) break;
    }
    finish_real(buf);
}

char *tg_json_float(char *buf, float value)
{
    char text[32] = "null"; /* not buf: a sanitizer build warns that snprintf's target might be NULL */
    if (!isfinite(value)) return strcpy(buf, text);
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    finish_real(text);
    return strcpy(buf, text);
}

/* jansson keeps strings as valid UTF-8, which passes through. */
static void print_string(tg_strbuf *b, const char *s, size_t len)
{
    tg_strbuf_putc(b, '"');
    for (size_t i = 0, start = 0; i <= len; i++) {
        unsigned char c = i < len ? (unsigned char)s[i] : 0;
        if (i < len && c >= 0x20 && c != '"' && c != '\\') continue;
        tg_strbuf_add(b, s + start, i - start);
        start = i + 1;
        if (i == len) break;
        const char *at = strchr("\"\\\b\f\n\r\t", c);
        if (c && at)
            tg_strbuf_printf(b, "\\%c", "\"\\bfnrt"[at - "\"\\\b\f\n\r\t"]);
        else
            tg_strbuf_printf(b, "\\u%04x", c);
    }
    tg_strbuf_putc(b, '"');
}

/* Before each member and before the closing bracket. */
static void new_line(tg_strbuf *b, int indent, int depth)
{
    if (indent > 0) tg_strbuf_printf(b, "\n%*s", indent * depth, "");
}

static teng_status print_value(tg_strbuf *b, const json_t *value, int indent, int depth);

static teng_status print_object(tg_strbuf *b, const json_t *object, int indent, int depth)
{
    json_t *obj = (json_t *)(uintptr_t)object; /* jansson's iterators take no const */
    const char *before = "";
    tg_strbuf_putc(b, '{');
    for (void *it = json_object_iter(obj); it; it = json_object_iter_next(obj, it)) {
        tg_strbuf_puts(b, before);
        new_line(b, indent, depth + 1);
        const char *key = json_object_iter_key(it);
        print_string(b, key, strlen(key));
        tg_strbuf_puts(b, indent > 0 ? ": " : ":");
        TG_TRY(print_value(b, json_object_iter_value(it), indent, depth + 1));
        before = ",";
    }
    if (*before) new_line(b, indent, depth);
    tg_strbuf_putc(b, '}');
    return TENG_OK;
}

static teng_status print_array(tg_strbuf *b, const json_t *array, int indent, int depth)
{
    size_t n = json_array_size(array);
    tg_strbuf_putc(b, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) tg_strbuf_putc(b, ',');
        new_line(b, indent, depth + 1);
        TG_TRY(print_value(b, json_array_get(array, i), indent, depth + 1));
    }
    if (n) new_line(b, indent, depth);
    tg_strbuf_putc(b, ']');
    return TENG_OK;
}

static teng_status print_value(tg_strbuf *b, const json_t *value, int indent, int depth)
{
    if (depth > MAX_DEPTH)
        return tg_fail(TENG_INVALID, "a JSON value is nested deeper than %d levels", MAX_DEPTH);
    char number[40];
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return print_object(b, value, indent, depth);
    case JSON_ARRAY:
        return print_array(b, value, indent, depth);
    case JSON_STRING:
        print_string(b, json_string_value(value), json_string_length(value));
        return TENG_OK;
    case JSON_INTEGER:
        tg_strbuf_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return TENG_OK;
    case JSON_REAL:
        print_double(number, json_real_value(value));
        tg_strbuf_puts(b, number);
        return TENG_OK;
    case JSON_TRUE:
        tg_strbuf_puts(b, "true");
        return TENG_OK;
    case JSON_FALSE:
        tg_strbuf_puts(b, "false");
        return TENG_OK;
    case JSON_NULL:
        break;
    }
    tg_strbuf_puts(b, "null");
    return TENG_OK;
}

char *tg_json_text(const json_t *value, int indent)
{
    tg_strbuf b = {0};
    if (!value) {
        tg_fail(TENG_INVALID, "no JSON value to print (memory ran out while it was built?)");
        return NULL;
    }
    if (print_value(&b, value, indent, 0) != TENG_OK) b.failed = true;
    return tg_strbuf_take(&b);
}

teng_status tg_json_save_file(const char *path, const json_t *value)
{
    char *text = tg_json_text(value, 2);
    if (!text) return tg_fail_context("%s", path);
    size_t len = strlen(text);
    text[len] = '\n'; /* in place of the NUL: the length is known */
    teng_status status = tg_file_write(path, text, len + 1);
    tg_free(text);
    return status;
}

/* The member, NULL when it is missing or null; *status tells whether that is an error. */
static const json_t *member(const json_t *obj, const char *where, const char *key, bool required,
                            teng_status *status)
{
    *status = TENG_OK;
    if (!json_is_object(obj)) {
        *status = tg_fail(TENG_FORMAT, "%s: an object with the key \"%s\" is needed", where, key);
        return NULL;
    }
    const json_t *v = json_object_get(obj, key);
    if (v && !json_is_null(v)) return v;
    if (required) *status = tg_fail(TENG_FORMAT, "%s: the key \"%s\" is missing", where, key);
    return NULL;
}

static teng_status wrong_type(const json_t *v, const char *where, const char *key, const char *wanted)
{
    char *text = tg_json_text(v, 0);
    if (!text) return teng_error_status();
    bool longer = strlen(text) > 60;
    teng_status status = tg_fail(TENG_FORMAT, "%s: the key \"%s\" must be %s, found %.60s%s", where, key,
                                 wanted, text, longer ? "..." : "");
    tg_free(text);
    return status;
}

teng_status tg_json_get_int(const json_t *obj, const char *where, const char *key, bool required,
                            int64_t *out)
{
    teng_status status;
    const json_t *v = member(obj, where, key, required, &status);
    if (!v) return status;
    if (!json_is_integer(v)) return wrong_type(v, where, key, "an integer");
    *out = (int64_t)json_integer_value(v);
    return TENG_OK;
}

teng_status tg_json_get_real(const json_t *obj, const char *where, const char *key, bool required,
                             double *out)
{
    teng_status status;
    const json_t *v = member(obj, where, key, required, &status);
    if (!v) return status;
    if (!json_is_number(v)) return wrong_type(v, where, key, "a number");
    *out = json_number_value(v);
    return TENG_OK;
}

teng_status tg_json_get_bool(const json_t *obj, const char *where, const char *key, bool required, bool *out)
{
    teng_status status;
    const json_t *v = member(obj, where, key, required, &status);
    if (!v) return status;
    if (!json_is_boolean(v)) return wrong_type(v, where, key, "true or false");
    *out = json_is_true(v);
    return TENG_OK;
}

teng_status tg_json_get_string(const json_t *obj, const char *where, const char *key, bool required,
                               const char **out)
{
    teng_status status;
    const json_t *v = member(obj, where, key, required, &status);
    if (!v) return status;
    if (!json_is_string(v)) return wrong_type(v, where, key, "a string");
    *out = json_string_value(v);
    return TENG_OK;
}
