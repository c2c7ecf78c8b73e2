/*
 * Growing byte strings, and numbers printed as people read them. A failed append is remembered in the buffer,
 * so that a long chain of appends is checked once, at the end.
 */
#include "base/strbuf.h"

#include "base/fail.h"
#include "base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Room for n more bytes and the NUL; false (and .failed) when memory is out. */
static bool make_room(tg_strbuf *b, size_t n)
{
    if (b->failed) return false;
    if (n < b->cap - b->len) return true;
    if (n > SIZE_MAX / 4 || b->len > SIZE_MAX / 4) {
        tg_fail(TENG_MEMORY, "out of memory: a text of %zu + %zu bytes is more than an address can hold",
                b->len, n);
        b->failed = true;
        return false;
    }
    size_t want = b->cap ? b->cap : 32;
    while (want - b->len <= n)
        want *= 2;
    char *data = tg_realloc(b->data, want);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = want;
    return true;
}

void tg_strbuf_free(tg_strbuf *b)
{
    tg_free(b->data);
    *b = (tg_strbuf){0};
}

void tg_strbuf_clear(tg_strbuf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = '\0';
}

void tg_strbuf_add(tg_strbuf *b, const void *bytes, size_t n)
{
    if (!make_room(b, n)) return;
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void tg_strbuf_puts(tg_strbuf *b, const char *s)
{
    tg_strbuf_add(b, s, strlen(s));
}

void tg_strbuf_putc(tg_strbuf *b, char c)
{
    tg_strbuf_add(b, &c, 1);
}

void tg_strbuf_printf(tg_strbuf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        b->failed = true;
    else if (make_room(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

const char *tg_strbuf_str(const tg_strbuf *b)
{
    return b->data ? b->data : "";
}

char *tg_strbuf_take(tg_strbuf *b)
{
    if (!b->failed && !b->data) tg_strbuf_add(b, "", 0);
    char *text = b->failed ? NULL : b->data;
    if (b->failed) tg_free(b->data);
    *b = (tg_strbuf){0};
    return text;
}

/* value / base^k and its unit, so that three or four digits are left. */
static char *format_scaled(char *buf, double value, double base, const char *const *units, int count,
                           const char *plain)
{
    int k = 0;
    double shown = value;
    while (k + 1 < count && fabs(shown) >= base) {
        shown /= base;
        k++;
    }
    if (k == 0)
        snprintf(buf, 32, shown == floor(shown) ? "%.0f%s" : "%.2f%s", shown, plain);
    else
        snprintf(buf, 32, fabs(shown) < 10 ? "%.2f %s" : "%.1f %s", shown, units[k]);
    return buf;
}

char *tg_format_bytes(char *buf, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return format_scaled(buf, bytes, 1024.0, units, 6, " B");
}

char *tg_format_count(char *buf, double count)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    return format_scaled(buf, count, 1000.0, units, 6, "");
}

char *tg_format_seconds(char *buf, double seconds)
{
    if (!(fabs(seconds) < 1e9)) {
        snprintf(buf, 32, "unknown");
    } else if (seconds < 1e-3) {
        snprintf(buf, 32, "%.1f us", seconds * 1e6);
    } else if (seconds < 1.0) {
        snprintf(buf, 32, "%.1f ms", seconds * 1e3);
    } else if (seconds < 59.95) {
        snprintf(buf, 32, "%.1f s", seconds);
    } else {
        int64_t s = (int64_t)(seconds + 0.5);
        if (s < 3600)
            snprintf(buf, 32, "%d min %02d s", (int)(s / 60), (int)(s % 60));
        else
            snprintf(buf, 32, "%d h %02d min", (int)(s / 3600), (int)(s % 3600 / 60));
    }
    return buf;
}
