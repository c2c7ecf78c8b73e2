/* Errors, answers and the line of long work. No command is known here. */
#include "cli/cli_console.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/utf8_scan.h"

#include <omp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool line_open; /* the updating line stands on the screen */

static void end_line(void)
{
    if (line_open) fputc('\n', stderr);
    line_open = false;
}

int tg_cli_failed(const tg_cli_base *base)
{
    end_line();
    fflush(stdout);
    const char *message = teng_error();
    fprintf(stderr, "teng %s: %s\n", base->command->name, *message ? message : "failed without a message");
    return TG_EXIT_FAILURE;
}

int tg_cli_misused(const tg_cli_command *command, const tg_cli_group *group)
{
    const char *name = command ? command->name : group ? group->name : "", *gap = *name ? " " : "";
    fprintf(stderr, "teng%s%s: %s\n", gap, name, teng_error());
    if (command) fprintf(stderr, "usage: teng %s%s%s\n", name, *command->words ? " " : "", command->words);
    fprintf(stderr, "`teng help%s%s` shows more.\n", gap, name);
    return TG_EXIT_USAGE;
}

static void warning_sink(void *command, tg_log_level level, const char *line)
{
    if (level < TG_LOG_WARN) return;
    end_line();
    fprintf(stderr, "teng %s: warning: %s\n", ((const tg_cli_command *)command)->name, line);
}

void tg_cli_log_warnings(const tg_cli_base *base)
{
    tg_log_set_sink(warning_sink, (void *)(uintptr_t)base->command);
}

int tg_cli_put_text(const tg_cli_base *base, char *text)
{
    if (!text) return tg_cli_failed(base);
    fputs(text, stdout);
    tg_free(text);
    return TG_EXIT_OK;
}

int tg_cli_put_json(const tg_cli_base *base, json_t *value)
{
    if (!value) tg_fail(TENG_MEMORY, "the answer as JSON: out of memory");
    char *text = value ? tg_json_text(value, 2) : NULL;
    json_decref(value);
    if (!text) return tg_cli_failed(base);
    puts(text);
    tg_free(text);
    return TG_EXIT_OK;
}

json_t *tg_cli_json_text(const char *bytes, size_t n)
{
    tg_strbuf clean = {0};
    const unsigned char *p = (const unsigned char *)bytes;
    while (n) {
        size_t good = tg_utf8_prefix(p, n);
        tg_strbuf_add(&clean, p, good);
        size_t bad = good < n ? tg_utf8_invalid(p + good, n - good) : 0;
        for (size_t i = 0; i < bad; i++)
            tg_strbuf_puts(&clean, "\xEF\xBF\xBD");
        p += good + bad;
        n -= good + bad;
    }
    json_t *text = clean.failed ? NULL : json_stringn(tg_strbuf_str(&clean), clean.len);
    tg_strbuf_free(&clean);
    return text;
}

void tg_cli_status_line(bool last, const char *fmt, ...)
{
    static double shown = -1;
    static int terminal = -1;
    if (terminal < 0) {
        const char *term = getenv("TERM");
        terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    }
    double now = tg_clock_seconds();
    if (shown < 0) shown = terminal ? now - 1 : now; /* short work prints its end only */
    if (!last && now - shown < (terminal ? 0.1 : 10)) return;
    shown = now;
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fprintf(stderr, terminal ? "\r%s\033[K" : "%s\n", line);
    fflush(stderr);
    line_open = terminal;
    if (last) end_line();
}

enum { CLEAN_UP_MAX = 4 };
static char unfinished[CLEAN_UP_MAX][4096];
static volatile sig_atomic_t unfinished_count;

static void on_signal(int number)
{
    for (int i = 0; i < unfinished_count; i++)
        unlink(unfinished[i]);
    signal(number, SIG_DFL);
    raise(number);
}

void tg_cli_clean_up(const char *path)
{
    int i = unfinished_count;
    if (i == CLEAN_UP_MAX) return;
    snprintf(unfinished[i], sizeof unfinished[i], "%s.tmp.%ld", path, (long)getpid());
    unfinished_count = i + 1;
    struct sigaction end = {.sa_handler = on_signal};
    sigemptyset(&end.sa_mask);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
}

teng_status tg_cli_open_tokenizer(const char *path, tg_tokenizer **out)
{
    return strcmp(path, "bytes") == 0 ? tg_tokenizer_bytes(NULL, 0, out) : tg_tokenizer_load(path, out);
}

void tg_cli_set_threads(int64_t threads)
{
    if (threads > 0) omp_set_num_threads((int)threads);
}
