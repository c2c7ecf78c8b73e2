/*
 * Hardware services behind a small table: memory, copies, streams, capabilities. Each kind of device ("cpu")
 * is one table. It knows no operator: kernels are chosen by the op room from the device's kind and
 * instruction set.
 */
#ifndef TG_DEVICE_DEVICE_H
#define TG_DEVICE_DEVICE_H

#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_device tg_device;

typedef struct tg_device_info {
    const char *kind;      /* "cpu": the word kernels are listed under */
    char name[128];        /* "AMD EPYC 9555" */
    int threads;           /* compute threads */
    int isa;               /* CPU: the TG_CPU_… limit in force when opened */
    bool unified;          /* device memory is host memory: pointers may be dereferenced by the host */
    bool bf16, f16;        /* has instructions for products in that type */
    uint64_t memory_bytes; /* what a process can use: physical memory, or the cgroup's limit when lower */
} tg_device_info;

typedef enum tg_copy_kind { TG_COPY_TO_DEVICE, TG_COPY_TO_HOST, TG_COPY_ON_DEVICE } tg_copy_kind;

typedef struct tg_device_ops {
    const char *kind;
    teng_status (*open)(int threads, tg_device **out);
    void (*close)(tg_device *dev);
    void *(*alloc)(tg_device *dev, size_t bytes); /* zeroed, 64-byte aligned at least; NULL and an error */
    void (*free)(tg_device *dev, void *ptr);
    teng_status (*copy)(tg_device *dev, void *stream, tg_copy_kind kind, void *dst, const void *src,
                        size_t bytes);
    teng_status (*zero)(tg_device *dev, void *stream, void *ptr, size_t bytes);
    teng_status (*stream_create)(tg_device *dev, void **stream);
    void (*stream_destroy)(tg_device *dev, void *stream);
    teng_status (*stream_sync)(tg_device *dev, void *stream);
} tg_device_ops;

struct tg_device {
    const tg_device_ops *ops;
    tg_device_info info;
};

/* Opens a device by kind. threads 0: OMP_NUM_THREADS, or the cores this process may run on. On the CPU this
 * sets OpenMP's thread count for the process, fixed (no dynamic adjustment), and the instruction-set limit
 * when TENG_CPU_ISA is set. Unknown kinds are TENG_INVALID and list the known ones. */
teng_status tg_device_open(const char *kind, int threads, tg_device **out);
void tg_device_close(tg_device **dev); /* NULL inside is fine; nulls it */

/* One block of device memory, zeroed. */
void *tg_device_alloc(tg_device *dev, size_t bytes);
void tg_device_free(tg_device *dev, void *ptr);
/* Ordered on the stream. The host may touch its side only after tg_stream_sync. CPU: done on return. */
teng_status tg_device_copy(tg_device *dev, void *stream, tg_copy_kind kind, void *dst, const void *src,
                           size_t bytes);
teng_status tg_device_zero(tg_device *dev, void *stream, void *ptr, size_t bytes);
/* A queue of work. The CPU's is NULL and everything on it is synchronous. */
teng_status tg_stream_create(tg_device *dev, void **stream);
void tg_stream_destroy(tg_device *dev, void **stream);
teng_status tg_stream_sync(tg_device *dev, void *stream);

/* Names of the kinds in this build, NULL-terminated. */
const char *const *tg_device_kinds(void);

#endif
