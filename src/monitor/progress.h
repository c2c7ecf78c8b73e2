/*
 * What a person sees of a run: one updating line on a terminal, plain lines now and then when piped, nothing
 * when quiet; and the run folder's log.txt, always plain with time stamps. The application creates it with
 * the FILE it wants; nothing else prints. Calls may come from any thread.
 */
#ifndef TG_MONITOR_PROGRESS_H
#define TG_MONITOR_PROGRESS_H

#include "base/log.h"
#include "monitor/metrics.h"

#include <stdio.h>

typedef struct tg_progress tg_progress;

typedef enum tg_progress_style {
    TG_PROGRESS_AUTO,     /* terminal when `out` is one that can move its cursor, else plain */
    TG_PROGRESS_TERMINAL, /* one line, redrawn at most ten times a second */
    TG_PROGRESS_PLAIN, /* a line after the first and last step and at growing intervals between (1 s … 1 min)
                        */
    TG_PROGRESS_QUIET, /* warnings and errors only */
} tg_progress_style;

typedef struct tg_progress_options {
    FILE *out; /* NULL: the log file only */
    tg_progress_style style;
    const char *log_path;  /* appended to; NULL: no log file */
    int64_t steps;         /* planned in total */
    int width;             /* columns; 0 asks the terminal (80 when it does not say) */
    double (*clock)(void); /* seconds; NULL is tg_clock_seconds. For tests */
} tg_progress_options;

teng_status tg_progress_open(const tg_progress_options *options, tg_progress **out);
void tg_progress_close(tg_progress **progress); /* ends an updating line */

void tg_progress_step(tg_progress *p, const tg_metrics_step *s);
void tg_progress_eval(tg_progress *p, const tg_metrics_eval *e);
/* A line of its own, above the updating one; in quiet mode to the log file only. */
void tg_progress_say(tg_progress *p, const char *fmt, ...) TENG_PRINTF(2, 3);
/* For tg_log_set_sink(tg_progress_sink, progress). Debug lines go to the log file only. Clear the sink before
 * tg_progress_close. */
void tg_progress_sink(void *progress, tg_log_level level, const char *line);

#endif
