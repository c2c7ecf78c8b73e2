/*
 * Moving rows of bytes on all threads, for the operators that only place data elsewhere. They work on element
 * sizes, so every dtype is served. Included by kernel files only.
 */
#ifndef TG_OP_CPU_COPY_H
#define TG_OP_CPU_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TG_COPY_CHUNK ((int64_t)65536)     /* bytes: one piece of work */
#define TG_COPY_PARALLEL ((int64_t)131072) /* bytes below which one thread is faster */

/* rows × bytes from src to dst, whose rows begin src_step and dst_step bytes apart. */
static inline void tg_copy_rows(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t bytes,
                                int64_t rows)
{
    if (bytes == 0 || rows == 0) return;
    const int64_t parts = (bytes + TG_COPY_CHUNK - 1) / TG_COPY_CHUNK;
#pragma omp parallel for schedule(static) if (rows * bytes >= TG_COPY_PARALLEL)
    for (int64_t u = 0; u < rows * parts; u++) {
        const int64_t r = parts == 1 ? u : u / parts, begin = parts == 1 ? 0 : u % parts * TG_COPY_CHUNK;
        const int64_t n = bytes - begin < TG_COPY_CHUNK ? bytes - begin : TG_COPY_CHUNK;
        memcpy(dst + r * dst_step + begin, src + r * src_step + begin, (size_t)n);
    }
}

/* Clears rows × bytes at dst, whose rows begin dst_step bytes apart. */
static inline void tg_zero_rows(char *dst, int64_t dst_step, int64_t bytes, int64_t rows)
{
    if (bytes == 0 || rows == 0) return;
    const int64_t parts = (bytes + TG_COPY_CHUNK - 1) / TG_COPY_CHUNK;
#pragma omp parallel for schedule(static) if (rows * bytes >= TG_COPY_PARALLEL)
    for (int64_t u = 0; u < rows * parts; u++) {
        const int64_t begin = u % parts * TG_COPY_CHUNK;
        const int64_t n = bytes - begin < TG_COPY_CHUNK ? bytes - begin : TG_COPY_CHUNK;
        memset(dst + u / parts * dst_step + begin, 0, (size_t)n);
    }
}

#endif
