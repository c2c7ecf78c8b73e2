/*
 * What people see of steps. A step becomes a record, complete when it is made; telling it (metrics.jsonl, the
 * owner's console) needs nothing of the training. Without a data sink a record is told at once; in one it
 * goes to a thread that tells records, in order, while the next step computes. It is not the place where
 * figures are worked out: run.c does that, where the step ran.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/thread.h"
#include "train/run_impl.h"

enum { IN_QUEUE = 62, RECORDS = IN_QUEUE + 2 /* one is being told, one is being made */ };

struct tg_run_books {
    tg_run *run;
    tg_queue *queue;
    tg_thread *thread;
    tg_run_record records[RECORDS];
    size_t next;
};

void tg_run_tell(tg_run *run, const tg_run_event *event)
{
    if (run->sink) run->sink(run->user, event);
}

void tg_run_tell_text(tg_run *run, tg_run_event_kind kind, int64_t step, const char *text)
{
    const tg_run_event event = {.kind = kind, .step = step, .steps = run->cfg->train.steps, .text = text};
    tg_run_tell(run, &event);
}

void tg_run_keep_books(tg_run *run, int64_t step, teng_status status)
{
    if (status == TENG_OK) return;
    tg_run_tell_text(run, TG_RUN_NOTE, step, teng_error());
    teng_error_clear();
}

static void tell_record(tg_run *run, tg_run_record *r)
{
    const int64_t step = r->line.step;
    if (r->counts) {
        if (run->metrics) tg_run_keep_books(run, step, tg_metrics_put_step(run->metrics, &r->line));
        tg_run_tell(run, &r->event);
    }
    if (!r->note) return;
    if (run->metrics) tg_run_keep_books(run, step, tg_metrics_put_note(run->metrics, step, r->note));
    tg_run_tell_text(run, TG_RUN_NOTE, step, r->note);
    tg_free(r->note);
    r->note = NULL;
}

static void tell_records(void *user)
{
    tg_run_books *books = user;
    void *item;
    while (tg_queue_get(books->queue, &item)) {
        tg_run_record *record = item;
        const double begin = tg_clock_seconds();
        tell_record(books->run, record);
        if (record->profiled) tg_profiler_beside(books->run->profiler, TG_PROFILE_BOOKS, begin);
    }
}

teng_status tg_run_open_books(tg_run *run)
{
    tg_run_books *b = tg_calloc(1, sizeof *b);
    if (!b) return TENG_MEMORY;
    b->run = run;
    b->queue = tg_queue_create(IN_QUEUE);
    const teng_status status =
        b->queue ? tg_thread_start("teng-books", tell_records, b, &b->thread) : TENG_MEMORY;
    run->books = b;
    if (status != TENG_OK) tg_run_close_books(run);
    return status;
}

void tg_run_close_books(tg_run *run)
{
    tg_run_books *b = run->books;
    if (!b) return;
    if (b->queue) tg_queue_close(b->queue);
    if (b->thread) tg_thread_join(&b->thread);
    tg_queue_destroy(&b->queue);
    tg_free(b);
    run->books = NULL;
}

void tg_run_put_record(tg_run *run, const tg_run_record *record)
{
    tg_run_books *b = run->books;
    const double begin = record->profiled ? tg_clock_seconds() : 0;
    tg_run_record *r = b ? &b->records[b->next++ % RECORDS] : &(tg_run_record){0};
    *r = *record;
    if (!b || !tg_queue_put(b->queue, r)) tell_record(run, r);
    if (record->profiled) tg_profiler_host(run->profiler, TG_PROFILE_BOOKS, begin);
}
