/*
 * The CPU as a device. A block is zeroed by all threads in the fixed pieces that later kernels use, so that
 * each page lies near a thread that works on it. There is one implicit stream and every call is done when it
 * returns.
 */
#include "device/cpu/cpu_device.h"

#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_gemm.h"
#include "device/cpu_info.h"
#include "device/cpu_isa.h"

#include <omp.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#define MAX_THREADS 4096
#define PARALLEL_BYTES ((size_t)1 << 20) /* below this, starting threads costs more than it saves */

static void fill_zero(char *ptr, size_t bytes)
{
    if (bytes < PARALLEL_BYTES) {
        memset(ptr, 0, bytes);
        return;
    }
#pragma omp parallel
    {
        size_t n = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
        size_t pages = (bytes + 4095) / 4096;
        size_t lo = pages * me / n * 4096, hi = pages * (me + 1) / n * 4096;
        if (hi > bytes) hi = bytes;
        if (lo < hi) memset(ptr + lo, 0, hi - lo);
    }
}

static teng_status cpu_open(int threads, tg_device **out)
{
    if (threads < 0 || threads > MAX_THREADS)
        return tg_fail(TENG_INVALID, "%d threads: use 1 to %d, or 0 for all cores of this process", threads,
                       MAX_THREADS);
    const char *forced = getenv("TENG_CPU_ISA");
    if (forced && forced[0]) TG_TRY(tg_cpu_isa_limit(NULL));
    if (tg_cpu_isa_best() < 0) TG_TRY(tg_cpu_isa_limit(NULL));
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    const char *wanted = getenv("OMP_NUM_THREADS"); /* may have been set since OpenMP read it */
    if (!threads) threads = wanted ? atoi(wanted) : info.cores;
    if (threads < 1 || threads > MAX_THREADS) threads = omp_get_max_threads();
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    tg_device *dev = tg_calloc(1, sizeof *dev);
    if (!dev) return TENG_MEMORY;
    dev->ops = &tg_cpu_device_ops;
    dev->info = (tg_device_info){.kind = "cpu",
                                 .threads = threads,
                                 .isa = tg_cpu_isa_current(),
                                 .unified = true,
                                 .bf16 = tg_gemm_native(TENG_BF16),
                                 .f16 = tg_gemm_native(TENG_F16),
                                 .memory_bytes = info.memory_bytes};
    snprintf(dev->info.name, sizeof dev->info.name, "%s", info.model);
    *out = dev;
    return TENG_OK;
}

static void cpu_close(tg_device *dev)
{
    tg_free(dev);
}

static void *cpu_alloc(tg_device *dev, size_t bytes)
{
    (void)dev;
    void *ptr = tg_alloc_aligned(bytes);
    if (ptr) fill_zero(ptr, bytes);
    return ptr;
}

static void cpu_free(tg_device *dev, void *ptr)
{
    (void)dev;
    tg_free_aligned(ptr);
}

static teng_status cpu_copy(tg_device *dev, void *stream, tg_copy_kind kind, void *dst, const void *src,
                            size_t bytes)
{
    (void)dev, (void)stream, (void)kind;
    memmove(dst, src, bytes);
    return TENG_OK;
}

static teng_status cpu_zero(tg_device *dev, void *stream, void *ptr, size_t bytes)
{
    (void)dev, (void)stream;
    fill_zero(ptr, bytes);
    return TENG_OK;
}

static teng_status cpu_stream_create(tg_device *dev, void **stream)
{
    (void)dev;
    *stream = NULL;
    return TENG_OK;
}

static void cpu_stream_destroy(tg_device *dev, void *stream)
{
    (void)dev, (void)stream;
}

static teng_status cpu_stream_sync(tg_device *dev, void *stream)
{
    (void)dev, (void)stream;
    return TENG_OK;
}

const tg_device_ops tg_cpu_device_ops = {
    "cpu",    cpu_open, cpu_close,         cpu_alloc,          cpu_free,
    cpu_copy, cpu_zero, cpu_stream_create, cpu_stream_destroy, cpu_stream_sync};
