/*
 * Exchange of two folders with Linux's renameat2. A file system without it (some network ones) gets three
 * renames: for a moment the place is then empty, and the old folder is whole beside it.
 */
#include "ckpt/folder_swap.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static teng_status swap_by_renames(const char *built, const char *place)
{
    char *aside = tg_asprintf("%s.aside", place);
    if (!aside) return teng_error_status();
    teng_status status = tg_rename(place, aside);
    if (status == TENG_OK) status = tg_rename(built, place);
    if (status == TENG_OK) status = tg_rename(aside, built);
    tg_free(aside);
    return status;
}

static teng_status sync_parent(const char *path)
{
    char *parent = tg_asprintf("%s/..", path);
    teng_status status = parent ? tg_fsync_dir(parent) : teng_error_status();
    tg_free(parent);
    return status;
}

teng_status tg_folder_swap(const char *built, const char *place, bool *exchanged)
{
    *exchanged = false;
    TG_TRY(tg_fsync_dir(built));
    if (!tg_path_exists(place)) return tg_rename(built, place);
    *exchanged = true;
    if (renameat2(AT_FDCWD, built, AT_FDCWD, place, RENAME_EXCHANGE) == 0) return sync_parent(place);
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return swap_by_renames(built, place);
    return tg_fail_errno(TENG_IO, errno, "cannot exchange the folders %s and %s", built, place);
}
