/* The file, its thread and a ring of requests between them. */
#include "device/spill.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RING = 64, PAGE = 4096 };

typedef struct request {
    const char *what;
    uint64_t offset;
    size_t bytes;
    void *to;         /* read */
    const void *from; /* write */
} request;

typedef struct room {
    uint64_t offset;
    size_t bytes;
} room;

struct tg_spill {
    char *dir;
    int file;
    TG_VEC(room) slots;
    uint64_t bytes;
    tg_spill_books books;
    tg_thread *thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    request ring[RING];
    uint64_t asked,
        done; /* requests; a ticket is the number of requests when it was asked, itself included */
    bool closing;
    int failure; /* errno */
    bool failed_write;
    char failed[160]; /* what could not be moved */
};

/* errno, 0 when all was moved. */
static int move_bytes(const tg_spill *s, const request *r)
{
    for (size_t at = 0; at < r->bytes;) {
        const off_t where = (off_t)(r->offset + at);
        const ssize_t n = r->to ? pread(s->file, (char *)r->to + at, r->bytes - at, where)
                                : pwrite(s->file, (const char *)r->from + at, r->bytes - at, where);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0)
            return EIO; /* the file is shorter than it was made */
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

static void note(tg_spill *s, const request *r, int err)
{
    *(r->to ? &s->books.read : &s->books.written) += r->bytes;
    if (!err) return;
    s->failure = err;
    s->failed_write = r->from != NULL;
    snprintf(s->failed, sizeof s->failed, "%.150s", r->what);
}

static void serve(void *arg)
{
    tg_spill *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->done == s->asked && !s->closing)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->done == s->asked) break;
        const request r = s->ring[s->done % RING];
        if (!s->failure) {
            pthread_mutex_unlock(&s->lock);
            const int err = move_bytes(s, &r);
            pthread_mutex_lock(&s->lock);
            note(s, &r, err);
        }
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

/* A file without a name: made and unlinked, where O_TMPFILE is not to be had. */
static teng_status open_file(tg_spill *s)
{
    TG_TRY(tg_mkdirs(s->dir));
    s->file = open(s->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->file >= 0) return TENG_OK;
    char *path = tg_asprintf("%s/teng-offload.XXXXXX", s->dir);
    if (!path) return TENG_MEMORY;
    s->file = mkostemp(path, O_CLOEXEC);
    teng_status status = TENG_OK;
    if (s->file < 0)
        status = tg_fail_errno(TENG_IO, errno, "cannot make a file in %s", s->dir);
    else
        unlink(path);
    tg_free(path);
    return status;
}

teng_status tg_spill_create(const char *dir, tg_spill **out)
{
    *out = NULL;
    tg_spill *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    s->file = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->dir = tg_strdup(dir);
    teng_status status = s->dir ? open_file(s) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_thread_start("offload", serve, s, &s->thread);
    if (status != TENG_OK) {
        tg_spill_destroy(&s);
        return tg_fail_context("offload.path");
    }
    *out = s;
    return TENG_OK;
}

void tg_spill_destroy(tg_spill **spill)
{
    tg_spill *s = *spill;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    tg_thread_join(&s->thread);
    if (s->file >= 0) close(s->file);
    tg_vec_free(&s->slots);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tg_free(s->dir);
    tg_free(s);
    *spill = NULL;
}

teng_status tg_spill_add(tg_spill *s, const char *what, size_t bytes, uint64_t *offset)
{
    const uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    const int err = whole ? posix_fallocate(s->file, (off_t)s->bytes, (off_t)whole) : 0;
    char a[32], b[32];
    if (err)
        return tg_fail_errno(
            TENG_IO, err,
            "offload.path: %s has no room for %s, %s after %s of others; name another disk, or "
            "take memory.offload out",
            s->dir, what, tg_format_bytes(a, (double)bytes), tg_format_bytes(b, (double)s->bytes));
    *offset = s->bytes;
    s->bytes += whole;
    return TENG_OK;
}

/* A room that is too small is given back to the disk, and another one taken. */
teng_status tg_spill_slot(tg_spill *s, int slot, size_t bytes, uint64_t *offset)
{
    while (s->slots.len <= (size_t)slot)
        if (!tg_vec_push(&s->slots, ((room){0}))) return TENG_MEMORY;
    room *r = &s->slots.data[slot];
    if (r->bytes < bytes) {
        if (r->bytes)
            fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->offset, (off_t)r->bytes);
        r->bytes = 0;
        TG_TRY(tg_spill_add(s, "an activation", bytes, &r->offset));
        r->bytes = bytes;
    }
    *offset = r->offset;
    return TENG_OK;
}

uint64_t tg_spill_bytes(const tg_spill *s)
{
    return s->bytes;
}

static uint64_t ask(tg_spill *s, request r)
{
    pthread_mutex_lock(&s->lock);
    while (s->asked - s->done == RING)
        pthread_cond_wait(&s->changed, &s->lock);
    s->ring[s->asked++ % RING] = r;
    const uint64_t ticket = s->asked;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return ticket;
}

uint64_t tg_spill_read(tg_spill *s, const char *what, uint64_t offset, size_t bytes, void *to)
{
    return ask(s, (request){.what = what, .offset = offset, .bytes = bytes, .to = to});
}

uint64_t tg_spill_write(tg_spill *s, const char *what, uint64_t offset, size_t bytes, const void *from)
{
    return ask(s, (request){.what = what, .offset = offset, .bytes = bytes, .from = from});
}

teng_status tg_spill_wait(tg_spill *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->lock);
    if (s->done < ticket) {
        const double begin = tg_clock_seconds();
        while (s->done < ticket)
            pthread_cond_wait(&s->changed, &s->lock);
        s->books.waited += tg_clock_seconds() - begin;
    }
    const int err = s->failure;
    pthread_mutex_unlock(&s->lock);
    if (!err) return TENG_OK;
    return tg_fail_errno(
        TENG_IO, err,
        "offload: %s %s %s the file in %s failed; the step is half done and what the file held is lost, the "
        "last checkpoint is good",
        s->failed_write ? "writing" : "reading", s->failed, s->failed_write ? "to" : "from", s->dir);
}

teng_status tg_spill_wait_all(tg_spill *s)
{
    return tg_spill_wait(s, s->asked);
}

tg_spill_books tg_spill_books_get(tg_spill *s)
{
    pthread_mutex_lock(&s->lock);
    const tg_spill_books books = s->books;
    pthread_mutex_unlock(&s->lock);
    return books;
}

teng_status tg_spill_map(tg_spill *s, uint64_t offset, size_t bytes, void **out)
{
    *out = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED, s->file, (off_t)offset);
    if (*out != MAP_FAILED) return TENG_OK;
    *out = NULL;
    return tg_fail_errno(TENG_IO, errno, "offload: mapping the file in %s", s->dir);
}

void tg_spill_unmap(void *map, size_t bytes)
{
    if (map) munmap(map, bytes ? bytes : 1);
}

void tg_spill_rest(void *map, size_t bytes)
{
    if (map && bytes) madvise(map, bytes, MADV_DONTNEED);
}
