/* Files: mapping, whole reads, crash-safe writes, folders, locks. Errors name the path and the system's
 * reason. */
#ifndef TG_BASE_FILE_H
#define TG_BASE_FILE_H

#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Read-only map of a whole file. An empty file gives data "" and size 0. */
typedef struct tg_map {
    const unsigned char *data;
    size_t size;
} tg_map;
teng_status tg_map_open(const char *path, tg_map *out);
void tg_map_close(tg_map *map); /* twice is harmless */
/* Bytes of a map that are not needed for now: the process gives their memory back, and reads them anew if
 * need be. */
void tg_map_forget(const void *data, size_t bytes);

/* Whole file as a NUL-terminated heap string (tg_free). size may be NULL. "-" reads standard input. */
teng_status tg_file_read(const char *path, char **data, size_t *size);

/* A file that appears under its name only when it is complete: written to "<path>.tmp.<pid>", fsynced,
 * renamed, folder fsynced. abort removes the temporary. Disk full is a TENG_IO error that says so. */
typedef struct tg_writer tg_writer;
teng_status tg_writer_open(const char *path, tg_writer **out);
teng_status tg_writer_put(tg_writer *w, const void *data, size_t bytes);
uint64_t tg_writer_offset(const tg_writer *w);
teng_status tg_writer_seek(tg_writer *w, uint64_t offset); /* to patch a header */
teng_status tg_writer_commit(tg_writer **w); /* destroys w, also on failure (then the temporary is gone) */
void tg_writer_abort(tg_writer **w);
teng_status tg_file_write(const char *path, const void *data, size_t bytes); /* the four steps at once */
teng_status tg_file_copy(const char *from, const char *to);                  /* atomic */

bool tg_path_exists(const char *path);
bool tg_path_is_dir(const char *path);
int64_t tg_file_size(const char *path); /* -1 when absent */
teng_status tg_mkdirs(const char *path);
teng_status tg_fsync_dir(const char *path);
teng_status tg_rename(const char *from, const char *to); /* and fsyncs the parent folder */
teng_status tg_remove_tree(const char *path);            /* no error when absent */
/* Sorted names in a folder, without "." and ".."; free with tg_names_free. */
teng_status tg_list_dir(const char *path, char ***names, size_t *count);
void tg_names_free(char **names, size_t count);
char *tg_path_join(const char *dir, const char *name); /* heap string */
const char *tg_path_base(const char *path);            /* the part after the last '/' */

/* Advisory lock on a file, released when the process ends, however it ends. A held lock is a TENG_STATE error
 * that names the holder's process id. */
typedef struct tg_lock tg_lock;
teng_status tg_lock_take(const char *path, tg_lock **out);
void tg_lock_release(tg_lock **lock);

#endif
