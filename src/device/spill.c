/* The file, its thread and a ring of requests between them. */
#include "device/spill.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "base/vec.h"
#include "tensor/desc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RING = 64, PAGE = 4096 };

typedef struct request {
    int index;
    void *to;         /* read */
    const void *from; /* write */
} request;

struct tg_spill {
    char *dir;
    int file;
    TG_VEC(tg_spill_entry) entries;
    uint64_t bytes;
    unsigned char *map;
    size_t map_bytes;
    tg_thread *thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    request ring[RING];
    uint64_t asked,
        done; /* requests; a ticket is the number of requests when it was asked, itself included */
    bool closing;
    int failure; /* errno */
    int failed_index;
    bool failed_write;
};

/* errno, 0 when all was moved. */
static int move_bytes(const tg_spill *s, const request *r)
{
    const tg_spill_entry *e = &s->entries.data[r->index];
    for (size_t at = 0; at < e->bytes;) {
        const off_t where = (off_t)(e->offset + at);
        const ssize_t n = r->to ? pread(s->file, (char *)r->to + at, e->bytes - at, where)
                                : pwrite(s->file, (const char *)r->from + at, e->bytes - at, where);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0)
            return EIO; /* the file is shorter than it was made */
        else if (errno != EINTR)
            return errno;
    }
    return 0;
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
            s->failure = err;
            s->failed_index = r.index;
            s->failed_write = r.from != NULL;
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
    tg_spill_unmap(s);
    if (s->file >= 0) close(s->file);
    for (size_t i = 0; i < s->entries.len; i++)
        tg_free((void *)(uintptr_t)s->entries.data[i].name);
    tg_vec_free(&s->entries);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tg_free(s->dir);
    tg_free(s);
    *spill = NULL;
}

static teng_status same_shape(const tg_spill_entry *e, const teng_desc *desc)
{
    char have[TG_DESC_TEXT], want[TG_DESC_TEXT];
    if (tg_desc_equal(&e->desc, desc)) return TENG_OK;
    return tg_fail(TENG_INVALID, "%s is %s in the offload file, %s is asked for", e->name,
                   tg_desc_text(have, &e->desc), tg_desc_text(want, desc));
}

teng_status tg_spill_add(tg_spill *s, const char *name, const teng_desc *desc, int *index)
{
    for (size_t i = 0; i < s->entries.len; i++)
        if (strcmp(s->entries.data[i].name, name) == 0) {
            *index = (int)i;
            return same_shape(&s->entries.data[i], desc);
        }
    const size_t bytes = tg_desc_bytes(desc), room = (bytes + PAGE - 1) / PAGE * PAGE;
    if (room) {
        const int err = posix_fallocate(s->file, (off_t)s->bytes, (off_t)room);
        char a[32], b[32];
        if (err)
            return tg_fail_errno(
                TENG_IO, err,
                "offload.path: %s has no room for %s, %s after %s of others; name another disk, or "
                "take memory.offload out",
                s->dir, name, tg_format_bytes(a, (double)bytes), tg_format_bytes(b, (double)s->bytes));
    }
    const tg_spill_entry e = {tg_strdup(name), *desc, s->bytes, bytes};
    tg_spill_wait(s, s->asked); /* the thread reads the list of entries */
    if (!e.name || !tg_vec_push(&s->entries, e)) {
        tg_free((void *)(uintptr_t)e.name);
        return TENG_MEMORY;
    }
    s->bytes += room;
    *index = (int)s->entries.len - 1;
    return TENG_OK;
}

int tg_spill_count(const tg_spill *s)
{
    return (int)s->entries.len;
}

const tg_spill_entry *tg_spill_at(const tg_spill *s, int index)
{
    return &s->entries.data[index];
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

uint64_t tg_spill_read(tg_spill *s, int index, void *to)
{
    return ask(s, (request){.index = index, .to = to});
}

uint64_t tg_spill_write(tg_spill *s, int index, const void *from)
{
    return ask(s, (request){.index = index, .from = from});
}

teng_status tg_spill_wait(tg_spill *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->lock);
    while (s->done < ticket)
        pthread_cond_wait(&s->changed, &s->lock);
    const int err = s->failure;
    pthread_mutex_unlock(&s->lock);
    if (!err) return TENG_OK;
    return tg_fail_errno(
        TENG_IO, err,
        "offload: %s %s %s the file in %s failed; the step is half done and its states are lost, the last "
        "checkpoint is good",
        s->failed_write ? "writing" : "reading", s->entries.data[s->failed_index].name,
        s->failed_write ? "to" : "from", s->dir);
}

void tg_spill_unmap(tg_spill *s)
{
    if (s->map) munmap(s->map, s->map_bytes);
    s->map = NULL;
}

teng_status tg_spill_map(tg_spill *s, const unsigned char **base)
{
    TG_TRY(tg_spill_wait(s, s->asked));
    tg_spill_unmap(s);
    *base = NULL;
    if (!s->bytes) return TENG_OK;
    s->map_bytes = (size_t)s->bytes;
    void *map = mmap(NULL, s->map_bytes, PROT_READ, MAP_SHARED, s->file, 0);
    if (map == MAP_FAILED) return tg_fail_errno(TENG_IO, errno, "offload: mapping the file in %s", s->dir);
    *base = s->map = map;
    return TENG_OK;
}
