/*
 * A board in shared memory on which the ranks of one host write what they do, so that the others can say it
 * when they wait too long, and see at once that a process is gone. Not a means of communication: nobody waits
 * on it. Ranks of other hosts are not on it; of them MPI's launcher tells.
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

enum { TEXT = 480 };
typedef struct slot {
    atomic_int pid; /* 0: not there (another host, or closed) */
    atomic_uint change;
    double since; /* clock seconds: CLOCK_MONOTONIC is the host's */
    char text[TEXT];
} slot;
struct tg_board {
    slot *slots;
    int rank, size;
};

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
    *b = (tg_board){at, rank, size};
    tg_board_write(b, "starting");
    atomic_store(&b->slots[rank].pid, (int)getpid());
    *out = b;
    return TENG_OK;
}

void tg_board_unlink(const char *name)
{
    shm_unlink(name);
}

void tg_board_close(tg_board **board)
{
    tg_board *b = *board;
    if (!b) return;
    atomic_store(&b->slots[b->rank].pid, 0);
    munmap(b->slots, sizeof(slot) * (size_t)b->size);
    tg_free(b);
    *board = NULL;
}

/* change is odd while the text is being written. */
void tg_board_write(tg_board *b, const char *text)
{
    slot *s = &b->slots[b->rank];
    atomic_fetch_add(&s->change, 1);
    s->since = tg_clock_seconds();
    snprintf(s->text, TEXT, "%s", text);
    atomic_fetch_add(&s->change, 1);
}

bool tg_board_read(const tg_board *b, int rank, char *text, size_t size, double *seconds)
{
    slot *s = &b->slots[rank];
    if (!atomic_load(&s->pid)) return false;
    for (int tries = 0; tries < 100; tries++) {
        const unsigned before = atomic_load(&s->change);
        snprintf(text, size, "%.*s", TEXT - 1, s->text);
        *seconds = tg_clock_seconds() - s->since;
        if (!(before & 1u) && atomic_load(&s->change) == before) return true;
    }
    return false;
}

/* A killed process stays in the table as a zombie until its launcher has seen it. */
static bool gone(int pid)
{
    char path[64], state = 0;
    if (kill(pid, 0) != 0) return errno == ESRCH;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    const bool read = fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    fclose(f);
    return read && (state == 'Z' || state == 'X');
}

int tg_board_dead(const tg_board *b, int *pid)
{
    for (int r = 0; r < b->size; r++) {
        *pid = atomic_load(&b->slots[r].pid);
        if (r != b->rank && *pid && gone(*pid)) return r;
    }
    return -1;
}
