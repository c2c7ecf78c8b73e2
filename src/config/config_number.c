/*
 * Numbers and sizes as text. Both directions are the same in every locale, and what is printed reads back to
 * the same value; strtod and printf alone promise neither.
 */
#include "config/config_key.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies text without "_" between digits; false when it is too long or holds other than the allowed
 * characters. */
static bool copy_number(const char *text, const char *allowed, char *buf, size_t room)
{
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '_') {
            if (c == text || !isdigit((unsigned char)c[-1]) || !isdigit((unsigned char)c[1])) return false;
            continue;
        }
        if (n + 1 >= room || (!isdigit((unsigned char)*c) && !strchr(allowed, *c))) return false;
        buf[n++] = *c;
    }
    buf[n] = '\0';
    return n > 0;
}

bool tg_config_read_int(const char *text, int64_t *out)
{
    char buf[64], *end;
    if (!copy_number(text, "+-", buf, sizeof buf)) return false;
    errno = 0;
    long long v = strtoll(buf, &end, 10);
    if (*end || end == buf || errno) return false;
    *out = v;
    return true;
}

bool tg_config_read_real(const char *text, double *out)
{
    char buf[128], *end;
    if (!copy_number(text, "+-.eE", buf, sizeof buf)) return false;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) return false;
    double v = strtod_l(buf, &end, c);
    freelocale(c);
    if (*end || end == buf || !isfinite(v)) return false;
    *out = v;
    return true;
}

char *tg_config_real_text(char *buf, double x)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t old = c ? uselocale(c) : (locale_t)0;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, x);
        if (strtod(buf, NULL) == x) break;
    }
    if (c) {
        uselocale(old);
        freelocale(c);
    }
    return buf;
}

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30},      {"MiB", 1ull << 20},
    {"KiB", 1ull << 10}, {"TB", 1000000000000ull}, {"GB", 1000000000ull},
    {"MB", 1000000ull},  {"kB", 1000ull},          {"B", 1ull},
};
#define UNITS (sizeof units / sizeof *units)

bool tg_config_read_size(const char *text, uint64_t *out)
{
    char number[64];
    size_t n = strspn(text, "0123456789._");
    if (n == 0 || n >= sizeof number) return false;
    memcpy(number, text, n);
    number[n] = '\0';
    const char *unit = text + n + strspn(text + n, " ");
    if (!*unit && unit != text + n) return false;
    uint64_t scale = *unit ? 0 : 1;
    for (size_t i = 0; i < UNITS; i++)
        if (strcmp(unit, units[i].name) == 0) scale = units[i].bytes;
    int64_t whole;
    if (scale && tg_config_read_int(number, &whole)) {
        if ((uint64_t)whole > (uint64_t)INT64_MAX / scale) return false;
        *out = (uint64_t)whole * scale;
        return true;
    }
    double real;
    if (!scale || !tg_config_read_real(number, &real) || real * (double)scale >= 0x1p63) return false;
    *out = (uint64_t)(real * (double)scale);
    return true;
}

char *tg_config_size_text(char *buf, uint64_t bytes)
{
    for (size_t i = 0; i < 4; i++)
        if (bytes && bytes % units[i].bytes == 0) {
            snprintf(buf, 32, "%" PRIu64 "%s", bytes / units[i].bytes, units[i].name);
            return buf;
        }
    snprintf(buf, 32, "%" PRIu64, bytes);
    return buf;
}
