/*
 * Posted calls: one thread makes them in order, so that the main thread computes meanwhile. A call that is
 * made directly waits until all that was posted before is done: every rank then communicates in the same
 * order, and only one thread at a time talks to the backend.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/vec.h"
#include "comm/comm_impl.h"

#include <pthread.h>

typedef struct job {
    teng_status (*call)(void *user);
    void *user;
} job;
struct tg_comm_thread {
    tg_thread *thread;
    pthread_t self; /* set by the thread before its first job */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    TG_VEC(job) jobs; /* all since the queue was empty; the first `taken` are begun */
    size_t taken;
    tg_ticket posted, done;
    bool ends, running;
    tg_error error; /* of the first job that failed: all later ones fail too */
};

static void work(void *arg)
{
    struct tg_comm_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    t->self = pthread_self();
    t->running = true;
    for (;;) {
        while (t->taken == t->jobs.len && !t->ends)
            pthread_cond_wait(&t->changed, &t->lock);
        if (t->taken == t->jobs.len) break;
        const job j = t->jobs.data[t->taken++];
        const bool skip = t->error.status != TENG_OK;
        pthread_mutex_unlock(&t->lock);
        const teng_status status = skip ? TENG_OK : j.call(j.user);
        pthread_mutex_lock(&t->lock);
        if (status != TENG_OK && t->error.status == TENG_OK) tg_error_take(&t->error);
        if (t->taken == t->jobs.len) t->taken = t->jobs.len = 0;
        t->done++;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
}

static teng_status begin(tg_comm *comm)
{
    struct tg_comm_thread *t = tg_calloc(1, sizeof *t);
    if (!t) return TENG_MEMORY;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    comm->thread = t;
    const teng_status status = tg_thread_start("communication", work, t, &t->thread);
    if (status != TENG_OK) tg_comm_thread_end(comm);
    return status;
}

void tg_comm_thread_end(tg_comm *comm)
{
    struct tg_comm_thread *t = comm->thread;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    tg_thread_join(&t->thread);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    tg_vec_free(&t->jobs);
    tg_free(t);
    comm->thread = NULL;
}

tg_ticket tg_comm_post(tg_comm *comm, teng_status (*call)(void *user), void *user)
{
    if (!comm->thread && begin(comm) != TENG_OK) return 0;
    struct tg_comm_thread *t = comm->thread;
    pthread_mutex_lock(&t->lock);
    const bool kept = tg_vec_push(&t->jobs, ((job){call, user}));
    const tg_ticket ticket = kept ? ++t->posted : 0;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return ticket;
}

teng_status tg_comm_wait(tg_comm *comm, tg_ticket ticket)
{
    struct tg_comm_thread *t = comm->thread;
    if (!ticket || !t) return ticket ? TENG_OK : teng_error_status();
    const double began = tg_clock_seconds();
    pthread_mutex_lock(&t->lock);
    while (t->done < ticket)
        pthread_cond_wait(&t->changed, &t->lock);
    const tg_error error = t->error;
    pthread_mutex_unlock(&t->lock);
    comm->times.exposed += tg_clock_seconds() - began;
    return error.status == TENG_OK ? TENG_OK : tg_error_give(&error);
}

bool tg_comm_on_thread(const tg_comm *comm)
{
    struct tg_comm_thread *t = comm->thread;
    if (!t) return false;
    pthread_mutex_lock(&t->lock);
    const bool own = t->running && pthread_equal(t->self, pthread_self());
    pthread_mutex_unlock(&t->lock);
    return own;
}

teng_status tg_comm_drain(tg_comm *comm)
{
    struct tg_comm_thread *t = comm->thread;
    if (!t || tg_comm_on_thread(comm)) return TENG_OK;
    pthread_mutex_lock(&t->lock);
    const tg_ticket last = t->posted;
    pthread_mutex_unlock(&t->lock);
    return last ? tg_comm_wait(comm, last) : TENG_OK;
}
