/*
 * Crash-safe files: bytes go to "<path>.tmp.<pid>", and only a complete, synced file takes the final name.
 * What cannot be renamed over (a pipe, /dev/stdout) is written directly. Not thread-safe; one writer for a
 * path.
 */
#include "base/file.h"

#include "base/fail.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 256 << 10 };

struct tg_writer {
    int fd;
    bool direct; /* no temporary: path is a device or a pipe */
    char *path, *temp;
    uint64_t offset; /* of the next byte, buffered ones included */
    size_t used;
    unsigned char buffer[BUFFER];
};

static void destroy(tg_writer **w)
{
    if ((*w)->fd >= 0) close((*w)->fd);
    tg_free((*w)->path);
    tg_free((*w)->temp);
    tg_free(*w);
    *w = NULL;
}

/* Follows symbolic links, so that the file behind a link is replaced and the link stays. */
static char *final_path(const char *path, bool *direct)
{
    struct stat st;
    *direct = false;
    if (stat(path, &st) != 0) return tg_strdup(path);
    if (S_ISDIR(st.st_mode)) {
        tg_fail(TENG_IO, "cannot write %s: it is a folder", path);
        return NULL;
    }
    *direct = !S_ISREG(st.st_mode);
    char real[PATH_MAX];
    return tg_strdup(!*direct && realpath(path, real) ? real : path);
}

teng_status tg_writer_open(const char *path, tg_writer **out)
{
    *out = NULL;
    tg_writer *w = tg_alloc(sizeof *w);
    if (!w) return TENG_MEMORY;
    w->fd = -1;
    w->used = 0;
    w->offset = 0;
    w->temp = NULL;
    w->path = final_path(path, &w->direct);
    if (w->path) w->temp = w->direct ? tg_strdup(path) : tg_asprintf("%s.tmp.%ld", w->path, (long)getpid());
    if (!w->path || !w->temp) {
        destroy(&w);
        return teng_error_status();
    }
    int flags = w->direct ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC;
    w->fd = open(w->temp, flags | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        teng_status status = tg_fail_errno(TENG_IO, errno, "cannot create %s", w->temp);
        destroy(&w);
        return status;
    }
    *out = w;
    return TENG_OK;
}

static teng_status write_failed(const tg_writer *w, int err)
{
    if (err == ENOSPC || err == EDQUOT)
        return tg_fail(TENG_IO,
                       "cannot write %s: the disk is full (%s) at byte %llu; free some space and try again",
                       w->path, err == ENOSPC ? "no space left on device" : "disk quota exceeded",
                       (unsigned long long)w->offset);
    return tg_fail_errno(TENG_IO, err, "cannot write %s at byte %llu", w->path,
                         (unsigned long long)w->offset);
}

static teng_status write_all(tg_writer *w, const unsigned char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return write_failed(w, n < 0 ? errno : EIO);
        data += n;
        bytes -= (size_t)n;
    }
    return TENG_OK;
}

static teng_status flush(tg_writer *w)
{
    size_t used = w->used;
    w->used = 0;
    return write_all(w, w->buffer, used);
}

teng_status tg_writer_put(tg_writer *w, const void *data, size_t bytes)
{
    if (bytes > BUFFER - w->used) TG_TRY(flush(w));
    if (bytes >= BUFFER) {
        TG_TRY(write_all(w, data, bytes));
    } else if (bytes) {
        memcpy(w->buffer + w->used, data, bytes);
        w->used += bytes;
    }
    w->offset += bytes;
    return TENG_OK;
}

uint64_t tg_writer_offset(const tg_writer *w)
{
    return w->offset;
}

teng_status tg_writer_seek(tg_writer *w, uint64_t offset)
{
    TG_TRY(flush(w));
    if (offset > INT64_MAX || lseek(w->fd, (off_t)offset, SEEK_SET) < 0)
        return tg_fail_errno(TENG_IO, offset > INT64_MAX ? EOVERFLOW : errno,
                             "cannot seek in %s to byte %llu", w->path, (unsigned long long)offset);
    w->offset = offset;
    return TENG_OK;
}

/* Syncs and closes; some file systems report a full disk only here. */
static teng_status finish(tg_writer *w)
{
    TG_TRY(flush(w));
    /* Pipes and devices cannot be synced. */
    if (fsync(w->fd) != 0 && !(w->direct && (errno == EINVAL || errno == EROFS)))
        return write_failed(w, errno);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 && errno != EINTR) return write_failed(w, errno);
    return w->direct ? TENG_OK : tg_rename(w->temp, w->path);
}

teng_status tg_writer_commit(tg_writer **w)
{
    teng_status status = finish(*w);
    if (status != TENG_OK)
        tg_writer_abort(w);
    else
        destroy(w);
    return status;
}

void tg_writer_abort(tg_writer **w)
{
    if (!w || !*w) return;
    if (!(*w)->direct) unlink((*w)->temp);
    destroy(w);
}

teng_status tg_file_write(const char *path, const void *data, size_t bytes)
{
    tg_writer *w;
    TG_TRY(tg_writer_open(path, &w));
    teng_status status = tg_writer_put(w, data, bytes);
    if (status == TENG_OK) return tg_writer_commit(&w);
    tg_writer_abort(&w);
    return status;
}

teng_status tg_file_copy(const char *from, const char *to)
{
    tg_map map;
    TG_TRY(tg_map_open(from, &map));
    teng_status status = tg_file_write(to, map.data, map.size);
    tg_map_close(&map);
    return status;
}
