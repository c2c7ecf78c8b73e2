/*
 * Messages between ranks of one host: rings of bytes in memory that they share, one for each pair, direction
 * and kind (what a collective moves, what a pipeline sends ahead). A copy in, a copy out, and whoever waits
 * sleeps in the kernel until the other side has moved something: an MPI that is asked again and again takes
 * the core from the computation beside it, and moves a large message only while both sides ask.
 *
 * What does not fit into a ring of messages sent ahead is put there by a thread, as the receiver makes room.
 * Not here: other hosts (comm_mpi.c).
 */
#include "comm/comm_shared.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    KINDS = 2,
    RING = 4 << 20,   /* bytes at most: stays in a cache */
    LEAST = 64 << 10, /* below, MPI is as good */
    TOTAL = 48 << 20, /* of all rings of a host: containers have little shared memory */
    PIECE = 128 << 10 /* copied before the other side may see it; who sleeps is woken when no more fits */
};

/* Counts what others moved for one rank; main for what waits in calls, pump for its thread. */
typedef struct bell {
    _Alignas(64) atomic_uint count;
    atomic_uint waits;
} bell;
typedef struct ring { /* one writes, one reads */
    _Alignas(64) atomic_size_t written;
    _Alignas(64) atomic_size_t read;
} ring;
typedef struct header {
    uint64_t tag, bytes;
} header;

typedef struct message { /* sent ahead, or arrived before it was asked for */
    tg_shared_flow flow;
    header head;
} message;

struct tg_shared {
    int index, size;
    size_t room; /* bytes of a ring */
    char *memory;
    size_t bytes;
    bool *blocked;         /* [2][KINDS][size] in tg_shared_move */
    TG_VEC(message) early; /* arrived */
    /* the thread that sends ahead */
    tg_thread *thread;
    pthread_mutex_t lock;
    TG_VEC(message) queue;
    bool ends;
};

/* ---- where what lies ---- */
static bell *bell_of(const tg_shared *s, int rank, bool pump)
{
    return (bell *)(void *)s->memory + 2 * rank + pump;
}

static size_t ring_bytes(size_t room)
{
    return sizeof(ring) + room;
}

static ring *ring_of(const tg_shared *s, int from, int to, int kind)
{
    const size_t pair = (size_t)(from * (s->size - 1) + (to > from ? to - 1 : to));
    return (ring *)(void *)(s->memory + sizeof(bell) * 2 * (size_t)s->size +
                            (pair * KINDS + (size_t)kind) * ring_bytes(s->room));
}

static int kind_of(int tag)
{
    return tag >= TG_TAG_MESSAGE;
}

/* ---- waiting ---- */
static void ring_bell(bell *b)
{
    atomic_fetch_add(&b->count, 1);
    if (atomic_load(&b->waits)) syscall(SYS_futex, &b->count, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static void sleep_on(bell *b, unsigned seen, int milliseconds)
{
    const struct timespec t = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    atomic_fetch_add(&b->waits, 1);
    syscall(SYS_futex, &b->count, FUTEX_WAIT, seen, &t, NULL, 0);
    atomic_fetch_sub(&b->waits, 1);
}

unsigned tg_shared_seen(const tg_shared *s)
{
    return atomic_load(&bell_of(s, s->index, false)->count);
}

void tg_shared_sleep(tg_shared *s, unsigned seen, int milliseconds)
{
    sleep_on(bell_of(s, s->index, false), seen, milliseconds);
}

/* ---- rings ---- */
/* n bytes at position `at` of the ring begin there; how many lie before its end: the others are at its begin.
 */
static char *place_in(const tg_shared *s, ring *r, size_t at, size_t n, size_t *first)
{
    const size_t begin = at % s->room;
    *first = n < s->room - begin ? n : s->room - begin;
    return (char *)(r + 1) + begin;
}

static size_t write_some(const tg_shared *s, ring *r, const void *data, size_t n)
{
    const size_t written = atomic_load_explicit(&r->written, memory_order_relaxed);
    const size_t room = s->room - (written - atomic_load_explicit(&r->read, memory_order_acquire));
    if (n > room) n = room;
    if (n > PIECE) n = PIECE;
    if (!n) return 0;
    size_t first;
    char *at = place_in(s, r, written, n, &first);
    memcpy(at, data, first);
    memcpy(r + 1, (const char *)data + first, n - first);
    atomic_store_explicit(&r->written, written + n, memory_order_release);
    return n;
}

static size_t read_some(const tg_shared *s, ring *r, void *data, size_t n)
{
    const size_t read = atomic_load_explicit(&r->read, memory_order_relaxed);
    const size_t there = atomic_load_explicit(&r->written, memory_order_acquire) - read;
    if (n > there) n = there;
    if (n > PIECE) n = PIECE;
    if (!n) return 0;
    size_t first;
    const char *at = place_in(s, r, read, n, &first);
    memcpy(data, at, first);
    memcpy((char *)data + first, r + 1, n - first);
    atomic_store_explicit(&r->read, read + n, memory_order_release);
    return n;
}

/* A header is written and read whole. */
static bool has_room(const tg_shared *s, const ring *r, size_t n)
{
    return s->room - (atomic_load_explicit(&r->written, memory_order_relaxed) -
                      atomic_load_explicit(&r->read, memory_order_acquire)) >=
           n;
}

static bool has_bytes(const ring *r, size_t n)
{
    return atomic_load_explicit(&r->written, memory_order_acquire) -
               atomic_load_explicit(&r->read, memory_order_relaxed) >=
           n;
}

/* True when anything was written. */
static bool push(const tg_shared *s, tg_shared_flow *f)
{
    const int kind = kind_of(f->tag);
    ring *r = ring_of(s, s->index, f->peer, kind);
    bool any = false;
    if (f->at == 0) {
        const header h = {(uint64_t)f->tag, f->bytes};
        if (!has_room(s, r, sizeof h)) return false;
        write_some(s, r, &h, sizeof h);
        f->at = sizeof h;
        any = true;
    }
    for (size_t n; f->at < f->bytes + sizeof(header); f->at += n, any = true) {
        const size_t at = f->at - sizeof(header);
        n = write_some(s, r, f->data + at, f->bytes - at);
        if (!n) break;
    }
    f->done = f->at == f->bytes + sizeof(header);
    if (any) ring_bell(bell_of(s, f->peer, false));
    return any;
}

static bool pull_data(const tg_shared *s, tg_shared_flow *f)
{
    const int kind = kind_of(f->tag);
    ring *r = ring_of(s, f->peer, s->index, kind);
    bool any = false;
    for (size_t n; f->at < f->bytes + sizeof(header); f->at += n, any = true) {
        const size_t at = f->at - sizeof(header);
        n = read_some(s, r, f->data + at, f->bytes - at);
        if (!n) break;
    }
    f->done = f->at == f->bytes + sizeof(header);
    if (any) ring_bell(bell_of(s, f->peer, kind == 1));
    return any;
}

/* ---- messages that came before they were asked for ---- */
/* The one that is arriving now from this rank, or the first with the tag that has arrived; -1: none. */
static int find_early(const tg_shared *s, int peer, int tag, bool arriving)
{
    for (size_t i = 0; i < s->early.len; i++) {
        const message *m = &s->early.data[i];
        if (m->flow.peer == peer && (arriving ? !m->flow.done : m->flow.tag == tag)) return (int)i;
    }
    return -1;
}

static teng_status take_early(tg_shared *s, tg_shared_flow *f, int which, size_t *got)
{
    message *m = &s->early.data[which];
    *got = m->flow.bytes;
    if (m->flow.bytes != f->bytes) return TENG_STATE;
    memcpy(f->data, m->flow.data, f->bytes);
    tg_free(m->flow.data);
    memmove(m, m + 1, (s->early.len - (size_t)which - 1) * sizeof *m);
    s->early.len--;
    f->done = true;
    return TENG_OK;
}

static teng_status put_aside(tg_shared *s, int peer, const header *h)
{
    const message m = {.flow = {.peer = peer,
                                .tag = (int)h->tag,
                                .data = tg_alloc(h->bytes + 1),
                                .bytes = h->bytes,
                                .at = sizeof *h,
                                .done = h->bytes == 0}};
    if (m.flow.data && tg_vec_push(&s->early, m)) return TENG_OK;
    tg_free(m.flow.data);
    return TENG_MEMORY;
}

/* TENG_STATE without a message: what came is of *got bytes, or another kind of call. */
static teng_status pull(tg_shared *s, tg_shared_flow *f, bool *moved, size_t *got)
{
    const int kind = kind_of(f->tag);
    ring *r = ring_of(s, f->peer, s->index, kind);
    header h;
    while (f->at == 0) {
        int early = kind ? find_early(s, f->peer, f->tag, true) : -1;
        if (early >= 0) {
            *moved = pull_data(s, &s->early.data[early].flow) || *moved;
            if (!s->early.data[early].flow.done) return TENG_OK;
        }
        early = kind ? find_early(s, f->peer, f->tag, false) : -1;
        if (early >= 0) {
            *moved = true;
            return take_early(s, f, early, got);
        }
        if (!has_bytes(r, sizeof h)) return TENG_OK;
        read_some(s, r, &h, sizeof h);
        *moved = true;
        ring_bell(bell_of(s, f->peer, kind == 1));
        if (h.tag != (uint64_t)f->tag && kind) {
            TG_TRY(put_aside(s, f->peer, &h));
            continue;
        }
        *got = h.tag == (uint64_t)f->tag ? h.bytes : SIZE_MAX;
        if (*got != f->bytes) return TENG_STATE;
        f->at = sizeof h;
    }
    *moved = pull_data(s, f) || *moved;
    return TENG_OK;
}

teng_status tg_shared_move(tg_shared *s, tg_shared_flow *flows, int n, bool *moved, int *which, size_t *got)
{
    memset(s->blocked, 0, sizeof *s->blocked * 2 * KINDS * (size_t)s->size);
    for (int i = 0; i < n; i++) {
        tg_shared_flow *f = &flows[i];
        bool *blocked = &s->blocked[((f->send ? KINDS : 0) + kind_of(f->tag)) * s->size + f->peer];
        if (f->done || *blocked) continue;
        teng_status status = TENG_OK;
        *which = i;
        if (f->send)
            *moved = push(s, f) || *moved;
        else
            status = pull(s, f, moved, got);
        if (status != TENG_OK) return status;
        *blocked = !f->done; /* messages of a pair keep their order */
    }
    return TENG_OK;
}

/* ---- sending ahead ---- */
/* All of the queue that fits; under the lock. */
static void push_queue(tg_shared *s)
{
    size_t kept = 0;
    memset(s->blocked + 2 * KINDS * s->size, 0, sizeof *s->blocked * (size_t)s->size);
    for (size_t i = 0; i < s->queue.len; i++) {
        message m = s->queue.data[i];
        bool *blocked = &s->blocked[2 * KINDS * s->size + m.flow.peer];
        if (!*blocked) push(s, &m.flow);
        *blocked = *blocked || !m.flow.done;
        if (m.flow.done)
            tg_free(m.flow.data);
        else
            s->queue.data[kept++] = m;
    }
    s->queue.len = kept;
}

static void pump(void *arg)
{
    tg_shared *s = arg;
    bell *b = bell_of(s, s->index, true);
    for (;;) {
        const unsigned seen = atomic_load(&b->count);
        pthread_mutex_lock(&s->lock);
        push_queue(s);
        const bool ends = s->ends;
        pthread_mutex_unlock(&s->lock);
        if (ends) return;
        sleep_on(b, seen, 1000);
    }
}

teng_status tg_shared_send_later(tg_shared *s, int peer, int tag, void *data, size_t bytes)
{
    const message m = {.flow = {.peer = peer, .tag = tag, .send = true, .data = data, .bytes = bytes}};
    pthread_mutex_lock(&s->lock);
    const bool kept = tg_vec_push(&s->queue, m);
    if (kept) push_queue(s);
    const bool left = s->queue.len > 0;
    pthread_mutex_unlock(&s->lock);
    if (!kept) tg_free(data);
    if (!kept) return TENG_MEMORY;
    if (!left) return TENG_OK;
    if (!s->thread) TG_TRY(tg_thread_start("messages", pump, s, &s->thread));
    ring_bell(bell_of(s, s->index, true));
    return TENG_OK;
}

/* ---- open and close ---- */
static teng_status map(tg_shared *s, const char *name, bool create)
{
    const int fd = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "shared memory %s", name);
    int err = create ? posix_fallocate(fd, 0, (off_t)s->bytes) : 0;
    void *at = err ? MAP_FAILED : mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!err && at == MAP_FAILED) err = errno;
    close(fd);
    if (err) return tg_fail_errno(TENG_IO, err, "%zu bytes of shared memory", s->bytes);
    s->memory = at;
    return TENG_OK;
}

teng_status tg_shared_open(const char *name, int index, int size, bool create, tg_shared **out)
{
    const size_t rings = (size_t)size * (size_t)(size - 1) * KINDS;
    size_t room = TOTAL / rings / LEAST * LEAST;
    if (room < LEAST) return tg_fail(TENG_UNSUPPORTED, "%d ranks of a host are too many for rings", size);
    if (room > RING) room = RING;
    tg_shared *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    *s = (tg_shared){.index = index, .size = size, .room = room};
    s->bytes = sizeof(bell) * 2 * (size_t)size + rings * ring_bytes(room);
    pthread_mutex_init(&s->lock, NULL);
    s->blocked = tg_calloc((2 * KINDS + 1) * (size_t)size, sizeof *s->blocked);
    const teng_status status = s->blocked ? map(s, name, create) : TENG_MEMORY;
    if (status != TENG_OK) {
        tg_shared_close(&s, false);
        return status;
    }
    *out = s;
    return TENG_OK;
}

void tg_shared_unlink(const char *name)
{
    shm_unlink(name);
}

static bool is_empty(tg_shared *s)
{
    pthread_mutex_lock(&s->lock);
    const bool empty = s->queue.len == 0;
    pthread_mutex_unlock(&s->lock);
    return empty;
}

void tg_shared_close(tg_shared **shared, bool wait)
{
    tg_shared *s = *shared;
    if (!s) return;
    while (wait && s->thread && !is_empty(s))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (s->thread) {
        pthread_mutex_lock(&s->lock);
        s->ends = true;
        pthread_mutex_unlock(&s->lock);
        ring_bell(bell_of(s, s->index, true));
        tg_thread_join(&s->thread);
    }
    for (size_t i = 0; i < s->queue.len; i++)
        tg_free(s->queue.data[i].flow.data);
    for (size_t i = 0; i < s->early.len; i++)
        tg_free(s->early.data[i].flow.data);
    tg_vec_free(&s->queue);
    tg_vec_free(&s->early);
    if (s->memory) munmap(s->memory, s->bytes);
    pthread_mutex_destroy(&s->lock);
    tg_free(s->blocked);
    tg_free(s);
    *shared = NULL;
}
