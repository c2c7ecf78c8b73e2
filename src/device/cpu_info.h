/* What the CPU is and what it reaches: model, cores, caches, memory, and a measured peak for MFU and `teng
 * devices`. */
#ifndef TG_DEVICE_CPU_INFO_H
#define TG_DEVICE_CPU_INFO_H

#include "base/json.h"
#include "teng/tensor.h"

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

/* Rates of single runs, for those who want the spread: the first TG_CPU_RATES of as many as fit the seconds,
 * and at least one. */
enum { TG_CPU_RATES = 256 };
typedef struct tg_cpu_rates {
    double rate[TG_CPU_RATES]; /* GFLOP/s, or 10^9 bytes a second */
    int n;
} tg_cpu_rates;
/* A oneDNN product of cubes of that size. */
teng_status tg_cpu_time_product(teng_dtype dtype, int64_t size, double seconds, tg_cpu_rates *out);
/* Bytes read and written count. Arrays are far larger than the last cache. */
typedef enum tg_cpu_stream { TG_CPU_READ, TG_CPU_COPY, TG_CPU_TRIAD } tg_cpu_stream;
teng_status tg_cpu_time_stream(tg_cpu_stream kind, double seconds, tg_cpu_rates *out);

/* The machine in one line, as the current settings use it: "AMD EPYC 9555, 2 cores, 2 threads, v4bf, oneDNN
 * 2.6.3". buf >= TG_CPU_LINE bytes; returns buf. */
#define TG_CPU_LINE 256
char *tg_cpu_line(char *buf);

/* {"model":…,"cores":…,"caches":{…},"memory_bytes":…,"isa":{"best","used","available"},"peak":{…}}; peak may
 * be NULL (left out). New reference, NULL when memory is out. */
json_t *tg_cpu_info_json(const tg_cpu_info *info, const tg_cpu_peak *peak);

#endif
