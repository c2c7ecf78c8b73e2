/*
 * Log lines on their way to the application's sink. The sink runs under a lock, so lines never mix and a sink
 * that was replaced is never called again; it must not log itself. Not a file writer: the application
 * decides.
 */
#include "base/log.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tg_log_sink *current_sink;
static void *current_user;

void tg_log_set_sink(tg_log_sink *sink, void *user)
{
    pthread_mutex_lock(&lock);
    current_sink = sink;
    current_user = user;
    pthread_mutex_unlock(&lock);
}

static void send_line(tg_log_level level, const char *line)
{
    pthread_mutex_lock(&lock);
    if (current_sink) current_sink(current_user, level, line);
    pthread_mutex_unlock(&lock);
}

void tg_log(tg_log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    char *whole = NULL;
    /* malloc's own failure is no reason to disturb the caller's pending error: the cut line is sent then. */
    if (n >= (int)sizeof line && (whole = tg_alloc_quiet((size_t)n + 1)))
        vsnprintf(whole, (size_t)n + 1, fmt, again);
    va_end(again);
    send_line(level, whole ? whole : line);
    tg_free(whole);
}
