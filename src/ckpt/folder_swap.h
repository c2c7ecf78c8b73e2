/* A folder built beside its place takes that place in one step; readers see all of the old one or all of the
 * new. */
#ifndef TG_CKPT_FOLDER_SWAP_H
#define TG_CKPT_FOLDER_SWAP_H

#include "teng/status.h"

#include <stdbool.h>

/* `built` becomes `place` and the parent folder is fsynced. When `place` existed, the two are exchanged and
 * *exchanged is true: `built` then names the old folder, which the caller removes. */
teng_status tg_folder_swap(const char *built, const char *place, bool *exchanged);

#endif
