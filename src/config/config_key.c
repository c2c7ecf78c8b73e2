/*
 * The table of keys and questions about it: finding a key, guessing the meant one, ranges in words. The rows
 * come from config.def. It reads and writes no values.
 */
#include "config/config_key.h"

#include "base/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TG_CHOICES(type) static const char *const type##_names[] = {
#define TG_CHOICE(constant, text) [constant] = text,
#define TG_CHOICES_END(type)                                                                                 \
    NULL                                                                                                     \
    }                                                                                                        \
    ;                                                                                                        \
    _Static_assert(sizeof(type) == sizeof(unsigned), "enumerations are stored as unsigned");
#include "config/config.def"

const tg_config_key tg_config_keys[TG_CONFIG_KEY_COUNT] = {
#define TG_KEY(section, field, kind, def, range, help)                                                       \
    {#section "." #field, TG_KIND_##kind, offsetof(tg_config, section.field), def, range, help, NULL},
#define TG_ENUM(section, field, type, def, help)                                                             \
    {#section "." #field, TG_KIND_ENUM, offsetof(tg_config, section.field), def, "", help, type##_names},
#include "config/config.def"
};

const tg_config_section tg_config_sections[] = {
#define TG_SECTION(name, help) {#name, help},
#define TG_SECTION_END(name)
#include "config/config.def"
};
const size_t tg_config_section_count = sizeof tg_config_sections / sizeof *tg_config_sections;

const tg_config_key *tg_config_key_find(const char *name)
{
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++)
        if (strcmp(tg_config_keys[i].name, name) == 0) return &tg_config_keys[i];
    return NULL;
}

size_t tg_config_key_index(const tg_config_key *key)
{
    return (size_t)(key - tg_config_keys);
}

const char *tg_config_key_leaf(const tg_config_key *key)
{
    return strrchr(key->name, '.') + 1;
}

bool tg_config_is_section(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++)
        if (strncmp(tg_config_keys[i].name, name, n) == 0 && tg_config_keys[i].name[n] == '.') return true;
    return false;
}

const char *tg_config_key_suggest(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *leaf = dot ? dot + 1 : name;
    const char *names[TG_CONFIG_KEY_COUNT];
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        if (strcmp(tg_config_key_leaf(&tg_config_keys[i]), leaf) == 0) return tg_config_keys[i].name;
        names[i] = tg_config_keys[i].name;
    }
    const char *near = tg_nearest_name(name, names, TG_CONFIG_KEY_COUNT);
    if (near) return near;
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++)
        names[i] = tg_config_key_leaf(&tg_config_keys[i]);
    near = tg_nearest_name(leaf, names, TG_CONFIG_KEY_COUNT);
    for (size_t i = 0; near && i < TG_CONFIG_KEY_COUNT; i++)
        if (names[i] == near) return tg_config_keys[i].name;
    return NULL;
}

/* The ends of "[1, inf)". The table test makes sure that every range reads. */
typedef struct interval {
    double lo, hi;
    bool lo_open, hi_open;
} interval;

static bool read_interval(const char *range, interval *out)
{
    if (*range != '[' && *range != '(') return false;
    *out = (interval){.lo_open = *range == '('};
    char *end;
    out->lo = strtod(range + 1, &end); /* whole numbers and inf only: no decimal point, whatever the locale */
    out->hi = strtod(end + 1, &end);
    out->hi_open = *end == ')';
    return true;
}

bool tg_config_in_range(const char *range, double x)
{
    interval r;
    if (!read_interval(range, &r)) return true;
    return (r.lo_open ? x > r.lo : x >= r.lo) && (r.hi_open ? x < r.hi : x <= r.hi);
}

/* "a|b|c" or a list of names as "a, b, c". */
static char *join_choices(const tg_config_key *key, char *buf)
{
    size_t n = 0;
    if (key->choices) {
        for (const char *const *c = key->choices; *c; c++)
            n += (size_t)snprintf(buf + n, TG_RANGE_TEXT - n, "%s%s", n ? ", " : "", *c);
        return buf;
    }
    for (const char *c = key->range; *c && n + 3 < TG_RANGE_TEXT; c++) {
        buf[n++] = *c == '|' ? ',' : *c;
        if (*c == '|') buf[n++] = ' ';
    }
    buf[n] = '\0';
    return buf;
}

char *tg_config_range_text(const tg_config_key *key, char *buf)
{
    interval r;
    if (!read_interval(key->range, &r)) return join_choices(key, buf);
    char lo[32], hi[32];
    tg_config_real_text(lo, r.lo);
    tg_config_real_text(hi, r.hi);
    bool endless = r.hi_open && r.hi > 1e300;
    if (endless)
        snprintf(buf, TG_RANGE_TEXT, "%s %s", r.lo_open ? "above" : "at least", lo);
    else if (!r.lo_open && !r.hi_open)
        snprintf(buf, TG_RANGE_TEXT, "from %s to %s", lo, hi);
    else
        snprintf(buf, TG_RANGE_TEXT, "%s %s, %s %s", r.lo_open ? "above" : "at least", lo,
                 r.hi_open ? "below" : "at most", hi);
    return buf;
}

const char *tg_config_kind_text(tg_config_kind kind)
{
    static const char *const texts[TG_KIND_COUNT] = {
        [TG_KIND_INT] = "whole number",
        [TG_KIND_OPT_INT] = "whole number",
        [TG_KIND_REAL] = "number",
        [TG_KIND_OPT_REAL] = "number",
        [TG_KIND_BOOL] = "true or false",
        [TG_KIND_OPT_BOOL] = "true or false",
        [TG_KIND_STRING] = "text",
        [TG_KIND_PATH] = "path",
        [TG_KIND_SIZE] = "bytes, or a size as 512MiB, 2GiB, 1.5GB",
        [TG_KIND_STRINGS] = "list of texts",
        [TG_KIND_PATHS] = "list of paths",
        [TG_KIND_INTS] = "list of whole numbers",
        [TG_KIND_ENUM] = "choice",
    };
    return texts[kind];
}
