/*
 * Threads and a bounded queue over POSIX threads. New threads block all signals, so that a stop request
 * reaches the main thread, which knows what to do with it. Not for compute: kernels use OpenMP.
 */
#include "base/thread.h"

#include "base/fail.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

struct tg_thread {
    pthread_t handle;
    tg_thread_main *main_fn;
    void *arg;
    char name[16]; /* the kernel's limit, NUL included */
};

static void *thread_entry(void *arg)
{
    tg_thread *t = arg;
    pthread_setname_np(pthread_self(), t->name);
    t->main_fn(t->arg);
    return NULL;
}

teng_status tg_thread_start(const char *name, tg_thread_main *main_fn, void *arg, tg_thread **out)
{
    tg_thread *t = tg_calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return TENG_MEMORY;
    t->main_fn = main_fn;
    t->arg = arg;
    snprintf(t->name, sizeof t->name, "%.15s", name);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&t->handle, NULL, thread_entry, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) {
        tg_free(t);
        return tg_fail_errno(TENG_STATE, err, "cannot start the thread \"%s\"", name);
    }
    *out = t;
    return TENG_OK;
}

void tg_thread_join(tg_thread **thread)
{
    if (!thread || !*thread) return;
    pthread_join((*thread)->handle, NULL);
    tg_free(*thread);
    *thread = NULL;
}

struct tg_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed_full, changed_empty;
    size_t capacity, first, count;
    bool closed;
    void *items[];
};

tg_queue *tg_queue_create(size_t capacity)
{
    if (capacity < 1 || capacity > SIZE_MAX / 16) {
        tg_fail(TENG_INVALID, "a queue of %zu items cannot be made: at least 1 is needed", capacity);
        return NULL;
    }
    tg_queue *q = tg_calloc(1, sizeof *q + capacity * sizeof q->items[0]);
    if (!q) return NULL;
    q->capacity = capacity;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed_full, NULL);
    pthread_cond_init(&q->changed_empty, NULL);
    return q;
}

void tg_queue_destroy(tg_queue **queue)
{
    if (!queue || !*queue) return;
    pthread_mutex_destroy(&(*queue)->lock);
    pthread_cond_destroy(&(*queue)->changed_full);
    pthread_cond_destroy(&(*queue)->changed_empty);
    tg_free(*queue);
    *queue = NULL;
}

bool tg_queue_put(tg_queue *q, void *item)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == q->capacity && !q->closed)
        pthread_cond_wait(&q->changed_full, &q->lock);
    bool ok = !q->closed;
    if (ok) {
        q->items[(q->first + q->count++) % q->capacity] = item;
        pthread_cond_signal(&q->changed_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

static bool get(tg_queue *q, void **item, bool wait)
{
    pthread_mutex_lock(&q->lock);
    while (wait && q->count == 0 && !q->closed)
        pthread_cond_wait(&q->changed_empty, &q->lock);
    bool ok = q->count > 0;
    if (ok) {
        *item = q->items[q->first];
        q->first = (q->first + 1) % q->capacity;
        q->count--;
        pthread_cond_signal(&q->changed_full);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool tg_queue_get(tg_queue *queue, void **item)
{
    return get(queue, item, true);
}

bool tg_queue_try_get(tg_queue *queue, void **item)
{
    return get(queue, item, false);
}

void tg_queue_close(tg_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->changed_full);
    pthread_cond_broadcast(&q->changed_empty);
    pthread_mutex_unlock(&q->lock);
}
