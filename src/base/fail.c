/*
 * The pending error of each thread. It lives in thread-local storage of fixed size, so that reporting a
 * failure never allocates and works when memory is out. It is not a log: only the first failure is kept,
 * because what fails after it usually fails because of it.
 */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local tg_error pending;

static const char *const status_names[TENG_STATUS_COUNT] = {
    [TENG_OK] = "ok",         [TENG_INVALID] = "invalid", [TENG_IO] = "io",
    [TENG_FORMAT] = "format", [TENG_MEMORY] = "memory",   [TENG_UNSUPPORTED] = "unsupported",
    [TENG_STATE] = "state",   [TENG_NUMERIC] = "numeric", [TENG_INTERRUPTED] = "interrupted",
};

const char *teng_status_name(teng_status status)
{
    return (unsigned)status < TENG_STATUS_COUNT ? status_names[status] : "unknown";
}

const char *teng_error(void)
{
    return pending.message;
}

teng_status teng_error_status(void)
{
    return pending.status;
}

void teng_error_clear(void)
{
    pending.status = TENG_OK;
    pending.message[0] = '\0';
}

const char *teng_version(void)
{
    return TG_VERSION;
}

/* Ends a message that did not fit with "..." so that nobody takes it for the whole; n is what vsnprintf
 * wanted. */
static void mark_cut(char *message, size_t room, int n)
{
    if (n >= 0 && (size_t)n >= room) memcpy(message + room - 4, "...", 4);
}

static void TENG_PRINTF(2, 0) set_pending(teng_status code, const char *fmt, va_list args)
{
    pending.status = code;
    mark_cut(pending.message, sizeof pending.message,
             vsnprintf(pending.message, sizeof pending.message, fmt, args));
}

teng_status tg_fail(teng_status code, const char *fmt, ...)
{
    if (pending.status != TENG_OK) return code;
    va_list args;
    va_start(args, fmt);
    set_pending(code, fmt, args);
    va_end(args);
    return code;
}

teng_status tg_fail_errno(teng_status code, int err, const char *fmt, ...)
{
    if (pending.status != TENG_OK) return code;
    va_list args;
    va_start(args, fmt);
    set_pending(code, fmt, args);
    va_end(args);
    char reason[128];
    /* The GNU strerror_r, which may return a static string instead of filling the buffer. */
    const char *text = strerror_r(err, reason, sizeof reason);
    size_t len = strlen(pending.message);
    const int n = snprintf(pending.message + len, sizeof pending.message - len, ": %s", text);
    if (len + 4 < sizeof pending.message) mark_cut(pending.message + len, sizeof pending.message - len, n);
    return code;
}

teng_status tg_fail_context(const char *fmt, ...)
{
    if (pending.status == TENG_OK) return TENG_OK;
    char context[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(context, sizeof context, fmt, args);
    va_end(args);
    mark_cut(context, sizeof context, n);
    size_t head = strlen(context), tail = strlen(pending.message), room = sizeof pending.message;
    bool cut = head + 2 + tail >= room;
    if (cut) tail = room - 1 - head - 2;
    memmove(pending.message + head + 2, pending.message, tail);
    memcpy(pending.message, context, head);
    memcpy(pending.message + head, ": ", 2);
    pending.message[head + 2 + tail] = '\0';
    if (cut) memcpy(pending.message + room - 4, "...", 4);
    return pending.status;
}

void tg_error_take(tg_error *out)
{
    *out = pending;
    teng_error_clear();
}

teng_status tg_error_give(const tg_error *error)
{
    if (pending.status == TENG_OK) pending = *error;
    return error->status;
}

enum { NEAREST_MAX = 64 }; /* longer names than this have no neighbours */

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance with swaps of neighbours (optimal string alignment); both strings at most NEAREST_MAX long.
 */
static int edit_distance(const char *a, const char *b)
{
    int la = (int)strlen(a), lb = (int)strlen(b);
    int rows[3][NEAREST_MAX + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= lb; j++) {
        before[j] = 0;
        last[j] = j;
    }
    for (int i = 1; i <= la; i++) {
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int change = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min3(change, last[j] + 1, row[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        int *t = before;
        before = last;
        last = row;
        row = t;
    }
    return last[lb];
}

const char *tg_nearest_name(const char *name, const char *const *names, int n)
{
    size_t len = strlen(name);
    if (len > NEAREST_MAX) return NULL;
    int limit = len / 3 > 2 ? (int)(len / 3) : 2;
    if (limit >= (int)len) limit = (int)len - 1; /* a change of every letter is no misspelling */
    const char *best = NULL;
    int best_distance = limit + 1;
    for (int i = 0; i < n; i++) {
        if (!names[i] || strlen(names[i]) > NEAREST_MAX) continue;
        int d = edit_distance(name, names[i]);
        if (d < best_distance) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}
