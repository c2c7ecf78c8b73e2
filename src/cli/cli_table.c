/* See cli_table.h. Units are the ends of names: _bytes are shown in KiB and MiB, all else as it is. */
#include "cli/cli_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL = 160 };

/* Four digits, without an exponent where they are enough. */
static void number(double x, char *out, size_t size)
{
    const double a = fabs(x);
    if (a >= 1e9)
        snprintf(out, size, "%.4g", x);
    else if (a >= 1000 || x == 0)
        snprintf(out, size, "%.0f", x);
    else
        snprintf(out, size, a >= 100 ? "%.1f" : a >= 10 ? "%.2f" : a >= 1 ? "%.3f" : "%.4g", x);
}

static bool is_bytes(const char *key)
{
    const size_t n = strlen(key);
    return strcmp(key, "bytes") == 0 || (n > 6 && strcmp(key + n - 6, "_bytes") == 0) ||
           strstr(key, "_bytes_per_") != NULL;
}

static void stat(const json_t *value, bool brief, char *out)
{
    char median[32], min[32], max[32];
    number(json_number_value(json_object_get(value, "median")), median, sizeof median);
    number(json_number_value(json_object_get(value, "min")), min, sizeof min);
    number(json_number_value(json_object_get(value, "max")), max, sizeof max);
    if (brief)
        snprintf(out, CELL, "%s (%s-%s)", median, min, max);
    else
        snprintf(out, CELL, "%s (%s to %s, n %lld)", median, min, max,
                 (long long)json_integer_value(json_object_get(value, "n")));
}

static void cell(const char *key, const json_t *value, bool brief, char *out)
{
    char bytes[32];
    if (json_object_get(value, "median"))
        stat(value, brief, out);
    else if (json_is_string(value))
        snprintf(out, CELL, "%s", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(out, CELL, "%s", json_is_true(value) ? "yes" : "no");
    else if (!json_is_number(value))
        snprintf(out, CELL, "-");
    else if (is_bytes(key))
        snprintf(out, CELL, "%s", tg_format_bytes(bytes, json_number_value(value)));
    else if (json_is_integer(value))
        snprintf(out, CELL, "%lld", (long long)json_integer_value(value));
    else
        number(json_real_value(value), out, CELL);
}

/* Length in characters of UTF-8 text. */
static size_t width(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static void put_padded(tg_strbuf *out, const char *text, size_t wide, bool left)
{
    const int pad = (int)(wide > width(text) ? wide - width(text) : 0);
    if (!left) tg_strbuf_printf(out, "%*s", pad, "");
    tg_strbuf_puts(out, text);
    if (left) tg_strbuf_printf(out, "%*s", pad, "");
}

/* One line an object; the columns are the first one's members. */
static void put_list(const json_t *list, tg_strbuf *out)
{
    const char *key;
    json_t *sample = json_array_get(list, 0), *row, *value;
    size_t i, column = 0, wide[32] = {0};
    char text[CELL];
    json_object_foreach(sample, key, value)
    {
        if (column == 32) break;
        wide[column] = strlen(key);
        json_array_foreach(list, i, row)
        {
            cell(key, json_object_get(row, key), true, text);
            if (width(text) > wide[column]) wide[column] = width(text);
        }
        column++;
    }
    for (size_t line = 0; line <= json_array_size(list); line++) {
        column = 0;
        json_object_foreach(sample, key, value)
        {
            if (column == 32) break;
            if (line == 0)
                snprintf(text, sizeof text, "%s", key);
            else
                cell(key, json_object_get(json_array_get(list, line - 1), key), true, text);
            if (column) tg_strbuf_puts(out, "  ");
            put_padded(out, text, wide[column++], json_is_string(value));
        }
        tg_strbuf_putc(out, '\n');
    }
}

static void put_members(const json_t *object, const char *before, tg_strbuf *out)
{
    const char *key;
    json_t *value;
    char text[CELL];
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const json_t *line = json_object_get(value, "line"); /* of the machine: it says all in one */
        if (json_is_array(value)) {
            put_list(value, out);
        } else if (json_is_object(value) && !line && !json_object_get(value, "median")) {
            put_members(value, key, out);
        } else {
            cell(key, line ? line : value, false, text);
            char name[128];
            snprintf(name, sizeof name, "%s%s%s", before, *before ? "." : "", key);
            tg_strbuf_printf(out, "%-27s %s\n", name, text);
        }
    }
}

void tg_cli_table(const json_t *answer, tg_strbuf *out)
{
    put_members(answer, "", out);
}
