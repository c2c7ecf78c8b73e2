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

/* The old folder goes aside, the new one in, the old one to where the new one was. */
static bool swap_by_renames(const char *built, const char *place, const char *aside)
{
    return rename(place, aside) == 0 && rename(built, place) == 0 && rename(aside, built) == 0;
}

static teng_status swap(const char *built, const char *place, const char *aside, bool *exchanged)
{
    if (!tg_path_exists(place)) {
        if (rename(built, place) == 0) return TENG_OK;
        return tg_fail_errno(TENG_IO, errno, "cannot rename %s to %s", built, place);
    }
    *exchanged = true;
    if (renameat2(AT_FDCWD, built, AT_FDCWD, place, RENAME_EXCHANGE) == 0) return TENG_OK;
    bool lacking = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
    if (lacking && swap_by_renames(built, place, aside)) return TENG_OK;
    return tg_fail_errno(TENG_IO, errno, "cannot exchange the folders %s and %s", built, place);
}

teng_status tg_folder_swap(const char *built, const char *place, bool *exchanged)
{
    *exchanged = false;
    TG_TRY(tg_fsync_dir(built));
    /* allocated first: once the folder has its name, only the disk can fail */
    char *parent = tg_asprintf("%s/..", place), *aside = tg_asprintf("%s.aside", place);
    teng_status status = parent && aside ? swap(built, place, aside, exchanged) : teng_error_status();
    if (status == TENG_OK) status = tg_fsync_dir(parent);
    tg_free(parent);
    tg_free(aside);
    return status;
}
