/* The console: redrawn line, plain lines, quiet, widths, the log file. A clock of the test's own decides the
 * cadence. */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "monitor/progress.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define LOG_NAME "test_progress.log"

static double now;
static double test_clock(void)
{
    return now;
}

typedef struct screen {
    char *data;
    size_t size;
    FILE *file;
    tg_progress *p;
} screen;

static void begin(screen *s, tg_progress_options options)
{
    s->file = open_memstream(&s->data, &s->size);
    assert_non_null(s->file);
    options.out = s->file;
    options.clock = test_clock;
    now = 100;
    assert_int_equal(tg_progress_open(&options, &s->p), TENG_OK);
}

static void assert_shown(screen *s, const char *expect)
{
    tg_progress_close(&s->p);
    assert_null(s->p);
    fclose(s->file);
    assert_string_equal(s->data, expect);
    free(s->data); /* of open_memstream, not of ours */
}

static tg_metrics_step step(int64_t n)
{
    return (tg_metrics_step){.step = n,
                             .loss = 3.25f,
                             .lr = 3e-4f,
                             .grad_norm = 0.5f,
                             .tokens = n * 100,
                             .tokens_per_s = 52100,
                             .mfu = 0.412,
                             .step_ms = 1000};
}

static void put(screen *s, int64_t n)
{
    tg_metrics_step line = step(n);
    tg_progress_step(s->p, &line);
}

#define FULL "loss 3.2500  lr 3.00e-04  norm 0.5  52.1 k tok/s  MFU 41.2 %"

static void test_plain(void **state)
{
    (void)state;
    screen s;
    begin(&s, (tg_progress_options){.style = TG_PROGRESS_AUTO, .steps = 200}); /* no terminal: plain */
    put(&s, 1);
    now += 0.5;
    put(&s, 2); /* too soon */
    now += 0.6;
    put(&s, 3);
    tg_progress_eval(s.p, &(tg_metrics_eval){3, 3.5f, 1.25, 10});
    tg_progress_eval(s.p, &(tg_metrics_eval){3, 3.5f, (double)NAN, 10});
    now += 100;
    put(&s, 100);
    now += 4; /* a twentieth of 101 s is more */
    put(&s, 110);
    put(&s, 200); /* the last is always shown */
    assert_shown(&s, "step 1/200  " FULL "  3 min 19 s left\n"
                     "step 3/200  " FULL "  3 min 17 s left\n"
                     "step 3  validation loss 3.5000  1.2500 bits per byte\n"
                     "step 3  validation loss 3.5000\n"
                     "step 100/200  " FULL "  1 min 40 s left\n"
                     "step 200/200  " FULL "\n");
}

static void test_terminal(void **state)
{
    (void)state;
    screen s;
    begin(&s, (tg_progress_options){.style = TG_PROGRESS_TERMINAL, .steps = 60, .width = 200});
    put(&s, 1);
    now += 0.05;
    put(&s, 2); /* less than a tenth of a second */
    now += 0.06;
    put(&s, 3);
    tg_progress_say(s.p, "saved %s", "x");
    tg_progress_say(s.p, "again");
    put(&s, 60);
    assert_shown(&s, "\rstep 1/60  " FULL "  59.0 s left\033[K"
                     "\rstep 3/60  " FULL "  57.0 s left\033[K"
                     "\r\033[Ksaved x\n"
                     "again\n"
                     "\rstep 60/60  " FULL "\033[K\n");
}

/* One redraw at a width: what stands on the screen. */
static void assert_width(int width, const char *expect)
{
    screen s;
    begin(&s, (tg_progress_options){.style = TG_PROGRESS_TERMINAL, .steps = 60, .width = width});
    put(&s, 1);
    char whole[256];
    snprintf(whole, sizeof whole, "\r%s\033[K\n", expect);
    assert_true((int)strlen(expect) < width);
    assert_shown(&s, whole);
}

static void test_width(void **state)
{
    (void)state;
    assert_width(86, "step 1/60  loss 3.2500  lr 3.00e-04  norm 0.5  52.1 k tok/s  MFU 41.2 %  59.0 s left");
    assert_width(80, "step 1/60  loss 3.2500  lr 3.00e-04  norm 0.5  52.1 k tok/s  59.0 s left");
    assert_width(70, "step 1/60  loss 3.2500  norm 0.5  52.1 k tok/s  59.0 s left");
    assert_width(55, "step 1/60  loss 3.2500  52.1 k tok/s  59.0 s left");
    assert_width(40, "step 1/60  loss 3.2500  59.0 s left");
    assert_width(30, "step 1/60  loss 3.2500");
    assert_width(12, "step 1/60");
    assert_width(6, "step ");
}

static void test_unknown_figures(void **state)
{
    (void)state;
    screen s;
    begin(&s, (tg_progress_options){.style = TG_PROGRESS_PLAIN});
    tg_metrics_step line = step(7);
    line.mfu = (double)NAN;
    line.loss = NAN;
    tg_progress_step(s.p, &line);
    assert_shown(&s, "step 7  loss nan  lr 3.00e-04  norm 0.5  52.1 k tok/s\n");
}

static void test_quiet_and_sink(void **state)
{
    (void)state;
    unlink(LOG_NAME);
    screen s;
    begin(&s, (tg_progress_options){.style = TG_PROGRESS_QUIET, .steps = 9, .log_path = LOG_NAME});
    put(&s, 1);
    tg_log_set_sink(tg_progress_sink, s.p);
    tg_debug("detail");
    tg_info("note");
    tg_warn("careful");
    tg_log(TG_LOG_ERROR, "bad");
    tg_log_set_sink(NULL, NULL);
    assert_shown(&s, "warning: careful\nerror: bad\n");

    begin(&s,
          (tg_progress_options){.style = TG_PROGRESS_PLAIN, .steps = 9, .log_path = LOG_NAME}); /* appends */
    tg_progress_sink(s.p, TG_LOG_DEBUG, "more detail");
    tg_progress_sink(s.p, TG_LOG_INFO, "more");
    assert_shown(&s, "more\n");

    static const char *const expect[] = {"step 1/9  " FULL "  8.0 s left",
                                         "debug: detail",
                                         "note",
                                         "warning: careful",
                                         "error: bad",
                                         "debug: more detail",
                                         "more"};
    char *log;
    assert_int_equal(tg_file_read(LOG_NAME, &log, NULL), TENG_OK);
    char *line = log;
    for (size_t i = 0; i < sizeof expect / sizeof *expect; i++) {
        char *newline = strchr(line, '\n');
        assert_non_null(newline);
        *newline = 0;
        assert_int_equal(line[10], 'T'); /* 2026-03-01T12:34:56Z and a space come first */
        assert_int_equal(line[20], ' ');
        assert_string_equal(line + 21, expect[i]);
        line = newline + 1;
    }
    assert_int_equal(*line, 0);
    tg_free(log);
    unlink(LOG_NAME);
}

static void test_no_console(void **state)
{
    (void)state;
    tg_progress *p;
    unlink(LOG_NAME);
    assert_int_equal(tg_progress_open(&(tg_progress_options){.log_path = LOG_NAME, .steps = 1}, &p), TENG_OK);
    tg_metrics_step line = step(1);
    tg_progress_step(p, &line);
    tg_progress_close(&p);
    assert_true(tg_file_size(LOG_NAME) > 30);
    unlink(LOG_NAME);
    assert_int_equal(tg_progress_open(&(tg_progress_options){.log_path = "no-such-folder/log"}, &p), TENG_IO);
    assert_non_null(strstr(teng_error(), "no-such-folder/log: cannot open the log"));
    assert_null(p);
    teng_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),          cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_width),          cmocka_unit_test(test_unknown_figures),
        cmocka_unit_test(test_quiet_and_sink), cmocka_unit_test(test_no_console),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
