/*
 * Saving beside training. There is one job with one staging buffer; it is either idle (in the queue `idle`),
 * being filled by submit, or on its way through the thread (to be written, or only to get its memory).
 * Whoever took it from a queue owns it, so nothing else needs a lock, and outcomes travel in it back to the
 * caller's thread.
 */
#include "ckpt/checkpoint.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/vec.h"
#include "tensor/desc.h"

#include <stdatomic.h>
#include <string.h>

#define TOUCH ((size_t)2 << 20) /* bytes between two looks at `closing` */
#define PAGE ((size_t)4096)

typedef struct job {
    int64_t step;
    TG_VEC(tg_ckpt_item) items;
    json_t *state;
    tg_arena *names;
    unsigned char *staging;
    size_t staging_bytes;
    size_t prepare; /* not 0: the thread is to get a staging buffer of so many bytes, and no save */
    double stall;
    bool has_outcome;
    tg_ckpt_done outcome;
} job;

struct tg_ckpt_writer {
    char *root;
    int keep_max;
    bool async;
    tg_ckpt_team team;
    job job;
    tg_queue *idle, *jobs;
    tg_thread *thread;
    _Atomic bool closing;
    TG_VEC(tg_ckpt_done) finished; /* not reported yet: from `reported` on */
    size_t reported;
    tg_error last;
};

static size_t aligned(size_t bytes)
{
    return (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
}

size_t tg_ckpt_staging_bytes(const tg_ckpt_item *items, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += aligned(tg_desc_bytes(&items[i].desc));
    return total;
}

/* Saves and records the outcome; the thread's pending error is as before. */
static void run_save(tg_ckpt_writer *w, int64_t step, const tg_ckpt_item *items, size_t n,
                     const json_t *state, tg_ckpt_done *out)
{
    tg_error before;
    tg_error_take(&before);
    double start = tg_clock_seconds();
    *out = (tg_ckpt_done){.step = step};
    for (size_t i = 0; i < n; i++)
        out->bytes += tg_desc_bytes(&items[i].desc);
    if (w->team.ranks > 1)
        tg_ckpt_write_part(w->root, step, w->team, items, n, &out->files);
    else
        tg_ckpt_save(w->root, step, items, n, state, w->keep_max);
    tg_error_take(&out->error);
    out->seconds = tg_clock_seconds() - start;
    if (before.status != TENG_OK) tg_error_give(&before);
}

static teng_status grow_staging(job *j, size_t need)
{
    if (need <= j->staging_bytes) return TENG_OK;
    tg_free_aligned(j->staging);
    j->staging_bytes = 0;
    j->staging = tg_alloc_aligned(need);
    if (!j->staging) return tg_fail_context("staging buffer of an asynchronous checkpoint");
    j->staging_bytes = need;
    return TENG_OK;
}

/* Memory is there when its pages have been written to, which for gigabytes takes seconds. What fails here
 * fails again, and is told, when a save needs it. */
static void prepare(tg_ckpt_writer *w, job *j)
{
    if (grow_staging(j, j->prepare) != TENG_OK) teng_error_clear();
    for (size_t at = 0; at < j->staging_bytes; at += PAGE) {
        if (at % TOUCH == 0 && atomic_load_explicit(&w->closing, memory_order_relaxed)) break;
        ((volatile unsigned char *)j->staging)[at] = 0;
    }
    j->prepare = 0;
}

static void writer_main(void *arg)
{
    tg_ckpt_writer *w = arg;
    void *item;
    while (tg_queue_get(w->jobs, &item)) {
        job *j = item;
        if (j->prepare) {
            prepare(w, j);
        } else {
            run_save(w, j->step, j->items.data, j->items.len, j->state, &j->outcome);
            j->outcome.stall = j->stall;
            j->has_outcome = true;
        }
        tg_queue_put(w->idle, j);
    }
}

static teng_status start(tg_ckpt_writer *w)
{
    if (!w->root) return teng_error_status();
    if (!w->async) return TENG_OK;
    w->idle = tg_queue_create(1);
    w->jobs = tg_queue_create(1);
    if (!w->idle || !w->jobs) return teng_error_status();
    tg_queue_put(w->idle, &w->job);
    return tg_thread_start("ckpt-writer", writer_main, w, &w->thread);
}

teng_status tg_ckpt_writer_create(const char *root, int keep_max, bool async, tg_ckpt_team team,
                                  tg_ckpt_writer **out)
{
    *out = NULL;
    tg_ckpt_writer *w = tg_calloc(1, sizeof *w);
    if (!w) return teng_error_status();
    w->keep_max = keep_max;
    w->async = async;
    w->team = team;
    w->root = tg_strdup(root);
    teng_status status = start(w);
    if (status != TENG_OK)
        tg_ckpt_writer_destroy(&w);
    else
        *out = w;
    return status;
}

static void record(tg_ckpt_writer *w, const tg_ckpt_done *done)
{
    w->last = done->error;
    if (!tg_vec_push(&w->finished, *done)) json_decref(done->files); /* out of memory: status() still tells */
}

/* Takes the idle job, waiting for it if asked, and records its outcome. NULL: a save is being written. */
static job *take_idle(tg_ckpt_writer *w, bool wait)
{
    void *item;
    if (!(wait ? tg_queue_get(w->idle, &item) : tg_queue_try_get(w->idle, &item))) return NULL;
    job *j = item;
    if (j->has_outcome) record(w, &j->outcome);
    j->has_outcome = false;
    return j;
}

static teng_status fill(job *j, int64_t step, const tg_ckpt_item *items, size_t n, const json_t *state)
{
    size_t at = 0;
    TG_TRY(grow_staging(j, tg_ckpt_staging_bytes(items, n)));
    tg_arena_destroy(&j->names);
    json_decref(j->state);
    j->state = state ? json_deep_copy(state) : NULL;
    j->names = tg_arena_create();
    j->items.len = 0;
    if (!j->names || (state && !j->state) || !tg_vec_reserve(&j->items, n)) return teng_error_status();
    for (size_t i = 0; i < n; i++) {
        size_t bytes = tg_desc_bytes(&items[i].desc);
        tg_ckpt_item copy = items[i];
        copy.name = items[i].name ? tg_arena_strdup(j->names, items[i].name) : NULL;
        copy.group = items[i].group ? tg_arena_strdup(j->names, items[i].group) : NULL;
        if (items[i].part) {
            tg_ckpt_part *part = tg_arena_alloc(j->names, sizeof *part);
            if (!part) return teng_error_status();
            *part = *items[i].part;
            copy.part = part;
        }
        if ((items[i].name && !copy.name) || (items[i].group && !copy.group)) return teng_error_status();
        if (items[i].data) {
            if (bytes) memcpy(j->staging + at, items[i].data, bytes);
            copy.data = j->staging + at;
        }
        at += aligned(bytes);
        j->items.data[j->items.len++] = copy;
    }
    j->step = step;
    return TENG_OK;
}

void tg_ckpt_writer_write(tg_ckpt_writer *w, int64_t step, const tg_ckpt_item *items, size_t n,
                          const json_t *state)
{
    const double start_time = tg_clock_seconds();
    tg_ckpt_done done;
    if (w->async) tg_queue_put(w->idle, take_idle(w, true));
    run_save(w, step, items, n, state, &done);
    done.stall = tg_clock_seconds() - start_time;
    record(w, &done);
}

teng_status tg_ckpt_writer_submit(tg_ckpt_writer *w, int64_t step, const tg_ckpt_item *items, size_t n,
                                  const json_t *state)
{
    double start_time = tg_clock_seconds();
    if (!w->async) {
        tg_ckpt_writer_write(w, step, items, n, state);
        return TENG_OK;
    }
    job *j = take_idle(w, true);
    teng_status status = fill(j, step, items, n, state);
    j->stall = tg_clock_seconds() - start_time;
    tg_queue_put(status == TENG_OK ? w->jobs : w->idle, j);
    return status;
}

void tg_ckpt_writer_prepare(tg_ckpt_writer *w, const tg_ckpt_item *items, size_t n)
{
    job *j = w->async ? take_idle(w, false) : NULL;
    if (!j) return; /* a save is on its way: it has the buffer */
    j->prepare = tg_ckpt_staging_bytes(items, n);
    tg_queue_put(j->prepare ? w->jobs : w->idle, j);
}

bool tg_ckpt_writer_poll(tg_ckpt_writer *w, tg_ckpt_done *out)
{
    job *j = w->async ? take_idle(w, false) : NULL;
    if (j) tg_queue_put(w->idle, j);
    if (w->reported == w->finished.len) return false;
    *out = w->finished.data[w->reported++];
    if (w->reported == w->finished.len) w->reported = w->finished.len = 0;
    return true;
}

static teng_status outcome(const tg_ckpt_writer *w)
{
    return w->last.status == TENG_OK ? TENG_OK : tg_error_give(&w->last);
}

teng_status tg_ckpt_writer_status(tg_ckpt_writer *w)
{
    job *j = w->async ? take_idle(w, false) : NULL;
    if (j) tg_queue_put(w->idle, j);
    return outcome(w);
}

teng_status tg_ckpt_writer_wait(tg_ckpt_writer *w)
{
    if (w->async) tg_queue_put(w->idle, take_idle(w, true));
    return outcome(w);
}

void tg_ckpt_writer_destroy(tg_ckpt_writer **writer)
{
    if (!writer || !*writer) return;
    tg_ckpt_writer *w = *writer;
    atomic_store_explicit(&w->closing, true, memory_order_relaxed);
    if (w->jobs) tg_queue_close(w->jobs); /* the thread finishes what it has */
    tg_thread_join(&w->thread);
    tg_queue_destroy(&w->jobs);
    tg_queue_destroy(&w->idle);
    tg_free_aligned(w->job.staging);
    tg_vec_free(&w->job.items);
    tg_arena_destroy(&w->job.names);
    json_decref(w->job.state);
    for (size_t i = w->reported; i < w->finished.len; i++)
        json_decref(w->finished.data[i].files);
    tg_vec_free(&w->finished);
    tg_free(w->root);
    tg_free(w);
    *writer = NULL;
}
