/*
 * A lock that lasts as long as its process: an open-file-description lock on a file that holds the owner's
 * process id. The system releases it however the process ends, so no stale lock ever needs removing; the file
 * itself stays. Advisory: it stops only programs that ask.
 */
#include "base/file.h"

#include "base/fail.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct tg_lock {
    int fd;
};

static teng_status held_by_another(int fd, const char *path)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 0)
        return tg_fail(TENG_STATE, "%s is locked by the running process %ld: stop it, or use another folder",
                       path, pid);
    return tg_fail(TENG_STATE, "%s is locked by another running process: stop it, or use another folder",
                   path);
}

teng_status tg_lock_take(const char *path, tg_lock **out)
{
    *out = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "cannot open the lock file %s", path);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    teng_status status = TENG_OK;
    if (fcntl(fd, F_OFD_SETLK, &whole) != 0) {
        bool held = errno == EAGAIN || errno == EACCES;
        status = held ? held_by_another(fd, path) : tg_fail_errno(TENG_IO, errno, "cannot lock %s", path);
    } else {
        char text[32];
        int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
        /* The lock is what counts; the id is only for the other side's message. */
        if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
            status = tg_fail_errno(TENG_IO, errno, "cannot write the process id to %s", path);
        else if (!(*out = tg_alloc(sizeof **out)))
            status = TENG_MEMORY;
    }
    if (*out)
        (*out)->fd = fd;
    else
        close(fd);
    return status;
}

void tg_lock_release(tg_lock **lock)
{
    if (!lock || !*lock) return;
    (void)!ftruncate((*lock)->fd, 0); /* no id of a process that no longer holds it */
    close((*lock)->fd);
    tg_free(*lock);
    *lock = NULL;
}
