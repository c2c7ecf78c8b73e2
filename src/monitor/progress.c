/*
 * The console of a run. All printing goes through emit(), which takes the updating line away, writes the new
 * text and lets the line come back with the next step. It measures no training: rates come from the trainer.
 */
#include "monitor/progress.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_SECONDS 0.1
#define LINE_MIN_SECONDS 1.0 /* plain lines: at least and at most so far apart */
#define LINE_MAX_SECONDS 60.0
#define LINE_SHARE 0.05 /* of the time run so far: lines grow rarer as the run grows old */
#define RATE_WEIGHT 0.1 /* of the newest step in the mean that "time left" rests on */

struct tg_progress {
    tg_progress_options opt;
    bool terminal, quiet;
    FILE *log;
    pthread_mutex_t lock;
    double started, drawn, lined; /* clock of opening, of the last redraw, of the last plain line */
    double step_seconds;          /* smoothed; 0 before the first step */
    bool any, line_open;          /* a step was seen; the updating line stands on the screen */
    tg_strbuf text;
};

static bool can_redraw(FILE *out)
{
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && term[0] && strcmp(term, "dumb");
}

teng_status tg_progress_open(const tg_progress_options *options, tg_progress **out)
{
    *out = NULL;
    tg_progress *p = tg_calloc(1, sizeof *p);
    if (!p) return TENG_MEMORY;
    p->opt = *options;
    if (!p->opt.clock) p->opt.clock = tg_clock_seconds;
    p->opt.log_path = NULL;
    if (options->log_path) {
        p->log = fopen(options->log_path, "ae");
        if (!p->log) {
            int err = errno;
            tg_free(p);
            return tg_fail_errno(TENG_IO, err, "%s: cannot open the log for appending", options->log_path);
        }
    }
    p->quiet = options->style == TG_PROGRESS_QUIET;
    p->terminal = options->out && (options->style == TG_PROGRESS_TERMINAL ||
                                   (options->style == TG_PROGRESS_AUTO && can_redraw(options->out)));
    p->started = p->opt.clock();
    p->drawn = p->lined = -INFINITY;
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return TENG_OK;
}

static void erase(tg_progress *p)
{
    if (p->line_open) fputs("\r\033[K", p->opt.out);
    p->line_open = false;
}

void tg_progress_close(tg_progress **progress)
{
    tg_progress *p = progress ? *progress : NULL;
    if (!p) return;
    if (p->line_open) {
        fputc('\n', p->opt.out);
        fflush(p->opt.out);
    }
    if (p->log) fclose(p->log);
    pthread_mutex_destroy(&p->lock);
    tg_strbuf_free(&p->text);
    tg_free(p);
    *progress = NULL;
}

/* One line to the log file, and to the console if shown. The lock is held. */
static void emit(tg_progress *p, const char *label, const char *line, bool shown)
{
    if (p->log) {
        char iso[32];
        fprintf(p->log, "%s %s%s\n", tg_clock_iso(iso, tg_clock_unix()), label, line);
        fflush(p->log);
    }
    if (!shown || !p->opt.out) return;
    erase(p);
    fprintf(p->opt.out, "%s%s\n", label, line);
    fflush(p->opt.out);
}

/* ---- the line of a step ---- */

static int columns(const tg_progress *p)
{
    if (p->opt.width > 0) return p->opt.width;
    struct winsize size;
    if (!ioctl(fileno(p->opt.out), TIOCGWINSZ, &size) && size.ws_col > 0) return size.ws_col;
    return 80;
}

enum { FIELD_SIZE = 64 };
typedef struct field {
    int rank; /* when room is short, fields of the highest rank go first */
    char text[FIELD_SIZE];
} field;

static int make_fields(const tg_progress *p, const tg_metrics_step *s, field *f)
{
    int n = 0;
    char buf[32];
    long long step = s->step, steps = p->opt.steps;
    f[n].rank = 0;
    if (steps > 0)
        snprintf(f[n++].text, FIELD_SIZE, "step %lld/%lld", step, steps);
    else
        snprintf(f[n++].text, FIELD_SIZE, "step %lld", step);
    f[n].rank = 1;
    snprintf(f[n++].text, FIELD_SIZE, "loss %.4f", (double)s->loss);
    f[n].rank = 5;
    snprintf(f[n++].text, FIELD_SIZE, "lr %.2e", (double)s->lr);
    f[n].rank = 4;
    snprintf(f[n++].text, FIELD_SIZE, "norm %.3g", (double)s->grad_norm);
    f[n].rank = 3;
    snprintf(f[n++].text, FIELD_SIZE, "%s tok/s", tg_format_count(buf, s->tokens_per_s));
    if (isfinite(s->mfu)) {
        f[n].rank = 6;
        snprintf(f[n++].text, FIELD_SIZE, "MFU %.1f %%", s->mfu * 100);
    }
    if (steps > step && p->step_seconds > 0) {
        f[n].rank = 2;
        double left = p->step_seconds * (double)(steps - step);
        snprintf(f[n++].text, FIELD_SIZE, "%s left", tg_format_seconds(buf, left));
    }
    return n;
}

/* The fields that fit into `room` columns, in order. */
static void compose(const tg_progress *p, const tg_metrics_step *s, size_t room, tg_strbuf *out)
{
    field f[8];
    int n = make_fields(p, s, f);
    for (;;) {
        size_t width = 0;
        int worst = 0;
        for (int i = 0; i < n; i++) {
            width += strlen(f[i].text) + (i ? 2 : 0);
            if (f[i].rank > f[worst].rank) worst = i;
        }
        if (width <= room || n == 1) break;
        memmove(f + worst, f + worst + 1, (size_t)(n - worst - 1) * sizeof *f);
        n--;
    }
    tg_strbuf_clear(out);
    for (int i = 0; i < n; i++)
        tg_strbuf_printf(out, "%s%s", i ? "  " : "", f[i].text);
    if (out->len > room) { /* a window narrower than its first field */
        out->data[room] = 0;
        out->len = room;
    }
}

static bool line_is_due(const tg_progress *p, int64_t step, double now)
{
    if (!p->any || (p->opt.steps > 0 && step >= p->opt.steps)) return true;
    double wait = (now - p->started) * LINE_SHARE;
    wait = wait < LINE_MIN_SECONDS ? LINE_MIN_SECONDS : wait > LINE_MAX_SECONDS ? LINE_MAX_SECONDS : wait;
    return now - p->lined >= wait;
}

void tg_progress_step(tg_progress *p, const tg_metrics_step *s)
{
    pthread_mutex_lock(&p->lock);
    double now = p->opt.clock();
    double seconds = s->step_ms / 1000;
    p->step_seconds =
        p->step_seconds > 0 ? p->step_seconds + RATE_WEIGHT * (seconds - p->step_seconds) : seconds;
    bool due = line_is_due(p, s->step, now), last = p->opt.steps > 0 && s->step >= p->opt.steps;
    if (due) {
        compose(p, s, SIZE_MAX, &p->text);
        emit(p, "", tg_strbuf_str(&p->text), !p->quiet && !p->terminal);
        p->lined = now;
    }
    if (p->terminal && !p->quiet && (last || !p->any || now - p->drawn >= REDRAW_SECONDS)) {
        int room = columns(p) - 1; /* the last column would wrap on some terminals */
        compose(p, s, room > 0 ? (size_t)room : 0, &p->text);
        fprintf(p->opt.out, "\r%s\033[K", tg_strbuf_str(&p->text));
        fflush(p->opt.out);
        p->line_open = true;
        p->drawn = now;
    }
    p->any = true;
    pthread_mutex_unlock(&p->lock);
}

void tg_progress_eval(tg_progress *p, const tg_metrics_eval *e)
{
    char bits[48] = "";
    if (isfinite(e->bits_per_byte)) snprintf(bits, sizeof bits, "  %.4f bits per byte", e->bits_per_byte);
    tg_progress_say(p, "step %lld  validation loss %.4f%s", (long long)e->step, (double)e->val_loss, bits);
}

void tg_progress_say(tg_progress *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char line[4096];
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    pthread_mutex_lock(&p->lock);
    emit(p, "", line, !p->quiet);
    pthread_mutex_unlock(&p->lock);
}

void tg_progress_sink(void *progress, tg_log_level level, const char *line)
{
    tg_progress *p = progress;
    static const char *const labels[] = {"debug: ", "", "warning: ", "error: "};
    pthread_mutex_lock(&p->lock);
    emit(p, labels[level], line, level >= TG_LOG_WARN || (level == TG_LOG_INFO && !p->quiet));
    pthread_mutex_unlock(&p->lock);
}
