/* What the CPU is and what it reaches: model, cores, caches, memory, and a measured peak for MFU and `teng
 * devices`. */
#ifndef TG_DEVICE_CPU_INFO_H
#define TG_DEVICE_CPU_INFO_H

#include "base/json.h"

typedef struct tg_cpu_info {
    char model[128];                        /* "unknown CPU" when the system does not say */
    int cores;                              /* logical cores this process may run on */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /* of one core, one core, one socket; 0 when unknown */
    uint64_t memory_bytes;                  /* physical memory, or the cgroup's limit when lower */
} tg_cpu_info;
void tg_cpu_info_get(tg_cpu_info *out);

typedef struct tg_cpu_peak {
    double f32_gflops;
    double bf16_gflops;    /* 0 when this CPU (or limit) has no bf16 products */
    double bandwidth_gb_s; /* triad, 10^9 bytes a second */
    int threads;
} tg_cpu_peak;
/* Best of a few oneDNN products (1024 to 2048 cubes) and a triad with the current OpenMP threads and
 * instruction-set limit; about 0.3 s. Kept in $XDG_CACHE_HOME/teng (or
 * ~/.cache/teng)/peak-<model>-<isa>-<threads>.json; a cache that cannot be read or written is no error.
 * `fresh` measures again. */
teng_status tg_cpu_measure_peak(bool fresh, tg_cpu_peak *out);

/* {"model":…,"cores":…,"caches":{…},"memory_bytes":…,"isa":{"best","used","available"},"peak":{…}}; peak may
 * be NULL (left out). New reference, NULL when memory is out. */
json_t *tg_cpu_info_json(const tg_cpu_info *info, const tg_cpu_peak *peak);

#endif
