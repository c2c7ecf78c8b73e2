/*
 * Files and folders: mapping, whole reads, listing, renaming, removing. Each error names the path and what
 * the system said. Writing is in writer.c, locks are in lock.c.
 */
#include "base/file.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/vec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static teng_status map_fd(int fd, const char *path, tg_map *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return tg_fail_errno(TENG_IO, errno, "cannot read %s", path);
    if (!S_ISREG(st.st_mode))
        return tg_fail(TENG_IO, "cannot read %s: it is %s, a regular file is needed", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
    if (st.st_size == 0) {
        *out = (tg_map){(const unsigned char *)"", 0};
        return TENG_OK;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return tg_fail_errno(TENG_IO, errno, "cannot map %s", path);
    *out = (tg_map){data, (size_t)st.st_size};
    return TENG_OK;
}

teng_status tg_map_open(const char *path, tg_map *out)
{
    *out = (tg_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "cannot open %s", path);
    teng_status status = map_fd(fd, path, out);
    close(fd);
    return status;
}

void tg_map_close(tg_map *map)
{
    if (map->size) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (tg_map){0};
}

void tg_map_forget(const void *data, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page,
                    end = ((uintptr_t)data + bytes) / page * page; /* whole pages alone */
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static teng_status read_fd(int fd, const char *path, tg_strbuf *text)
{
    static const size_t step = 64 << 10;
    unsigned char *chunk = tg_alloc(step);
    if (!chunk) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (;;) {
        ssize_t n = read(fd, chunk, step);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = tg_fail_errno(TENG_IO, errno, "cannot read %s at byte %zu", path, text->len);
        if (n <= 0) break;
        tg_strbuf_add(text, chunk, (size_t)n);
        if (text->failed) {
            status = TENG_MEMORY;
            break;
        }
    }
    tg_free(chunk);
    return status;
}

teng_status tg_file_read(const char *path, char **data, size_t *size)
{
    *data = NULL;
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "cannot open %s", path);
    tg_strbuf text = {0};
    teng_status status = read_fd(fd, standard ? "standard input" : path, &text);
    if (!standard) close(fd);
    size_t len = text.len;
    if (status == TENG_OK && !(*data = tg_strbuf_take(&text))) status = TENG_MEMORY;
    tg_strbuf_free(&text);
    if (status == TENG_OK && size) *size = len;
    return status;
}

bool tg_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool tg_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int64_t tg_file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

teng_status tg_mkdirs(const char *path)
{
    char *part = tg_strdup(path);
    if (!part) return TENG_MEMORY;
    teng_status status = TENG_OK;
    for (char *p = part; *p && status == TENG_OK;) {
        p += strspn(p, "/");
        p += strcspn(p, "/");
        char end = *p;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && !(errno == EEXIST && tg_path_is_dir(part)) && !tg_path_is_dir(part))
            status = tg_fail_errno(TENG_IO, errno, "cannot make the folder %s", part);
        *p = end;
    }
    tg_free(part);
    return status;
}

teng_status tg_fsync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tg_fail_errno(TENG_IO, errno, "cannot open the folder %s", path);
    /* File systems that cannot sync a folder say EINVAL: nothing more can be asked of them. */
    int err = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    return err ? tg_fail_errno(TENG_IO, err, "cannot sync the folder %s", path) : TENG_OK;
}

teng_status tg_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0) return tg_fail_errno(TENG_IO, errno, "cannot rename %s to %s", from, to);
    size_t len = strlen(to);
    while (len && to[len - 1] == '/')
        len--;
    while (len && to[len - 1] != '/')
        len--;
    char *parent = len ? tg_strndup(to, len) : tg_strdup(".");
    if (!parent) return TENG_MEMORY;
    teng_status status = tg_fsync_dir(parent);
    tg_free(parent);
    return status;
}

/* nftw has no argument for its caller: the path that failed is kept for the message. */
static _Thread_local char *failed_path;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    if (remove(path) == 0 || errno == ENOENT) return 0;
    int err = errno;
    failed_path = tg_strdup(path);
    errno = err;
    return -1;
}

teng_status tg_remove_tree(const char *path)
{
    failed_path = NULL;
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return TENG_OK;
    teng_status status = tg_fail_errno(TENG_IO, errno, "cannot remove %s", failed_path ? failed_path : path);
    tg_free(failed_path);
    failed_path = NULL;
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef TG_VEC(char *) name_list;

static teng_status read_names(DIR *dir, const char *path, name_list *list)
{
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e && errno) return tg_fail_errno(TENG_IO, errno, "cannot list the folder %s", path);
        if (!e) return TENG_OK;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *name = tg_strdup(e->d_name);
        if (!name || !tg_vec_push(list, name)) {
            tg_free(name);
            return TENG_MEMORY;
        }
    }
}

teng_status tg_list_dir(const char *path, char ***names, size_t *count)
{
    *names = NULL;
    *count = 0;
    DIR *dir = opendir(path);
    if (!dir) return tg_fail_errno(TENG_IO, errno, "cannot list the folder %s", path);
    name_list list = {0};
    teng_status status = read_names(dir, path, &list);
    closedir(dir);
    if (status != TENG_OK) {
        tg_names_free(list.data, list.len);
        return status;
    }
    if (list.len) qsort(list.data, list.len, sizeof *list.data, by_bytes);
    *names = list.data;
    *count = list.len;
    return TENG_OK;
}

void tg_names_free(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        tg_free(names[i]);
    tg_free(names);
}

char *tg_path_join(const char *dir, const char *name)
{
    size_t len = strlen(dir);
    if (len == 0 || name[0] == '/') return tg_strdup(name);
    return tg_asprintf(dir[len - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

const char *tg_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
