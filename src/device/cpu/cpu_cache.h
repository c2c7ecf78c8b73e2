/* Files of this machine's figures in the user's cache folder (cpu_peak.c). */
#ifndef TG_DEVICE_CPU_CACHE_H
#define TG_DEVICE_CPU_CACHE_H

#include "base/json.h"

/* $XDG_CACHE_HOME/teng (or ~/.cache/teng)/<what>-<model>-<isa>-<threads>.json; heap; NULL: no home. */
char *tg_cpu_cache_path(const char *what, int threads);
/* Atomic; makes the folder. */
teng_status tg_cpu_cache_save(const char *path, const json_t *json);

#endif
