/*
 * A board in shared memory on which the ranks of one host write what they do, so that the others can say it
 * when they wait too long, and see at once that a process is gone. Not a means of communication: nobody waits
 * on it. Ranks of other hosts are not on it.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "comm/comm_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ABSENT /* another host's */, HERE, ENDED, LEFT /* an error of its own */, FOLLOWED };

#define STALE_SECONDS 1.0 /* who waits looks every LOOK_MS (comm_mpi.c) */

/* Written by one thread at a time; `change` is odd meanwhile. */
typedef struct line {
    atomic_uint change;
    double since; /* clock seconds: CLOCK_MONOTONIC is the host's */
    char text[TG_BOARD_TEXT];
} line;
typedef struct slot {
    atomic_int state, pid;
    atomic_llong step;
    atomic_int waits_for;       /* a rank, whose message has not come; -1: none */
    _Atomic double waits_since; /* the last time it has looked for it: a process that hangs looks no more */
    line doing, call, why;
} slot;
struct tg_board {
    slot *slots;
    int rank, size;
    bool blind; /* processes of this host do not see each other (containers) */
};

static void write_line(line *l, const char *text)
{
    size_t n = strnlen(text, TG_BOARD_TEXT - 1);
    atomic_fetch_add(&l->change, 1);
    l->since = tg_clock_seconds();
    memcpy(l->text, text, n);
    l->text[n] = 0;
    atomic_fetch_add(&l->change, 1);
}

static bool read_line(line *l, char text[TG_BOARD_TEXT], double *seconds)
{
    for (int tries = 0; tries < 1000; tries++) {
        const unsigned before = atomic_load(&l->change);
        memcpy(text, l->text, TG_BOARD_TEXT);
        text[TG_BOARD_TEXT - 1] = 0;
        *seconds = tg_clock_seconds() - l->since;
        if (!(before & 1u) && atomic_load(&l->change) == before) return true;
    }
    return false;
}

teng_status tg_board_open(const char *name, int rank, int size, bool create, tg_board **out)
{
    const size_t bytes = sizeof(slot) * (size_t)size;
    const int fd = shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "shared memory %s of the ranks of this host", name);
    void *at = MAP_FAILED;
    if (!create || ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int err = errno;
    close(fd);
    if (at == MAP_FAILED)
        return tg_fail_errno(TENG_IO, err, "shared memory %s of the ranks of this host", name);
    tg_board *b = tg_alloc(sizeof *b);
    if (!b) {
        munmap(at, bytes);
        return TENG_MEMORY;
    }
    *b = (tg_board){at, rank, size, false};
    slot *own = &b->slots[rank];
    atomic_store(&own->step, -1);
    atomic_store(&own->waits_for, -1);
    write_line(&own->doing, "its start");
    atomic_store(&own->pid, (int)getpid());
    atomic_store(&own->state, HERE);
    *out = b;
    return TENG_OK;
}

void tg_board_unlink(const char *name)
{
    shm_unlink(name);
}

void tg_board_start(tg_board *b)
{
    for (int r = 0; r < b->size; r++)
        if (atomic_load(&b->slots[r].state) == HERE && kill(atomic_load(&b->slots[r].pid), 0) != 0)
            b->blind = true;
}

void tg_board_close(tg_board **board)
{
    tg_board *b = *board;
    if (!b) return;
    int here = HERE;
    atomic_compare_exchange_strong(&b->slots[b->rank].state, &here, ENDED);
    munmap(b->slots, sizeof(slot) * (size_t)b->size);
    tg_free(b);
    *board = NULL;
}

void tg_board_step(tg_board *b, int64_t step)
{
    atomic_store(&b->slots[b->rank].step, step);
}

void tg_board_doing(tg_board *b, const char *text)
{
    write_line(&b->slots[b->rank].doing, text);
}

void tg_board_call(tg_board *b, const char *text)
{
    write_line(&b->slots[b->rank].call, text);
}

void tg_board_leave(tg_board *b, const char *why, bool follows)
{
    write_line(&b->slots[b->rank].why, why);
    atomic_store(&b->slots[b->rank].state, follows ? FOLLOWED : LEFT);
}

/* The kernel's letter for what the process does ('T': stopped); 0: unknown. */
static char state_of(int pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    const bool read = fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    fclose(f);
    return read ? state : '\0';
}

/* A killed process stays in the table as a zombie until its launcher has seen it. */
static bool gone(int pid)
{
    if (kill(pid, 0) != 0) return errno == ESRCH;
    const char state = state_of(pid);
    return state == 'Z' || state == 'X';
}

void tg_board_waits(tg_board *b, int peer)
{
    slot *own = &b->slots[b->rank];
    atomic_store(&own->waits_since, tg_clock_seconds());
    atomic_store(&own->waits_for, peer);
}

int tg_board_cause(const tg_board *b, int rank)
{
    for (int steps = 0; steps < b->size; steps++) {
        slot *s = &b->slots[rank];
        const int next = atomic_load(&s->waits_for);
        if (atomic_load(&s->state) != HERE || next < 0 || next == b->rank ||
            tg_clock_seconds() - atomic_load(&s->waits_since) > STALE_SECONDS)
            return rank;
        rank = next;
    }
    return rank;
}

bool tg_board_read(const tg_board *b, int rank, char *text, size_t size)
{
    slot *s = &b->slots[rank];
    char doing[TG_BOARD_TEXT], call[TG_BOARD_TEXT], step[40] = "";
    double since = 0, called = 0;
    if (atomic_load(&s->state) == ABSENT) return false;
    if (!read_line(&s->doing, doing, &since) || !read_line(&s->call, call, &called)) return false;
    const long long k = atomic_load(&s->step);
    const char *halted = !b->blind && state_of(atomic_load(&s->pid)) == 'T' ? "; its process is stopped" : "";
    if (k >= 0) snprintf(step, sizeof step, "step %lld, ", k);
    if (call[0])
        snprintf(text, size, "%s%s, and for %.1f s in %s%s", step, doing, called, call, halted);
    else
        snprintf(text, size, "%s%s%s, for %.1f s%s", step, doing,
                 atomic_load(&s->state) == ENDED ? " (it has ended)" : "", since, halted);
    return true;
}

/* What happened to a rank: 3 died, 2 left by itself, 1 followed another, 0 nothing. The worst is the cause.
 */
static int fate(const tg_board *b, int rank)
{
    const slot *s = &b->slots[rank];
    const int state = atomic_load(&s->state);
    if (state == LEFT) return 2;
    if (state == FOLLOWED) return 1;
    return state == HERE && !b->blind && gone(atomic_load(&s->pid)) && atomic_load(&s->state) == HERE ? 3 : 0;
}

int tg_board_lost(const tg_board *b, char *why, size_t size)
{
    int worst = 0, rank = -1;
    for (int r = 0; r < b->size; r++) {
        const int f = r == b->rank ? 0 : fate(b, r);
        if (f > worst) worst = f, rank = r;
    }
    if (rank < 0) return -1;
    char text[2 * TG_BOARD_TEXT] = "";
    double seconds;
    if (worst == 3) {
        tg_board_read(b, rank, text, sizeof text);
        snprintf(why, size, "(process %d) is gone; it was last seen in %s", atomic_load(&b->slots[rank].pid),
                 text);
    } else {
        read_line(&b->slots[rank].why, text, &seconds);
        snprintf(why, size, "has stopped: %s", text);
    }
    return rank;
}

bool tg_board_alone(const tg_board *b)
{
    for (int r = 0; r < b->size; r++)
        if (r != b->rank && atomic_load(&b->slots[r].state) == HERE && !gone(atomic_load(&b->slots[r].pid)))
            return false;
    return true;
}
