/*
 * The one door to the heap: malloc with counting, a switch that makes a chosen allocation fail, and errors in
 * words. Blocks carry no header, so a pointer from tg_alloc is a pointer from malloc. Not a pool and not a
 * device allocator.
 */
#include "base/mem.h"

#include "base/fail.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };

static atomic_uint_fast64_t alloc_count;
static atomic_int_fast64_t fail_countdown; /* 0 is off; the allocation that takes it from 1 to 0 fails */

uint64_t tg_alloc_count(void)
{
    return atomic_load_explicit(&alloc_count, memory_order_relaxed);
}

void tg_alloc_fail_at(uint64_t n)
{
    atomic_store(&fail_countdown, (int_fast64_t)n);
}

/* Counts one allocation; false when the test switch says that this one fails. */
static bool admit(void)
{
    atomic_fetch_add_explicit(&alloc_count, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) <= 0) return true;
    return atomic_fetch_sub(&fail_countdown, 1) != 1;
}

static void *out_of_memory(size_t bytes)
{
    tg_fail(TENG_MEMORY, "out of memory: the system refused %zu bytes (%.1f MiB)", bytes,
            (double)bytes / (1024.0 * 1024.0));
    return NULL;
}

void *tg_alloc_quiet(size_t bytes)
{
    return admit() ? malloc(bytes ? bytes : 1) : NULL;
}

void *tg_alloc(size_t bytes)
{
    void *p = tg_alloc_quiet(bytes);
    return p ? p : out_of_memory(bytes);
}

void *tg_calloc(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) {
        tg_fail(TENG_MEMORY, "out of memory: %zu elements of %zu bytes are more than an address can hold",
                count, size);
        return NULL;
    }
    size_t bytes = count * size;
    void *p = admit() ? calloc(1, bytes ? bytes : 1) : NULL;
    return p ? p : out_of_memory(bytes);
}

void *tg_realloc(void *ptr, size_t bytes)
{
    void *p = admit() ? realloc(ptr, bytes ? bytes : 1) : NULL;
    return p ? p : out_of_memory(bytes);
}

void tg_free(void *ptr)
{
    free(ptr);
}

void *tg_alloc_aligned(size_t bytes)
{
    size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : TG_ALIGN;
    void *p = NULL;
    if (bytes > SIZE_MAX - align || !admit()) return out_of_memory(bytes);
    size_t rounded = bytes ? (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN : TG_ALIGN;
    if (posix_memalign(&p, align, rounded) != 0) return out_of_memory(bytes);
    /* Advice only: without huge pages everything works, slower. */
    if (align == HUGE_PAGE) (void)madvise(p, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return p;
}

void tg_free_aligned(void *ptr)
{
    free(ptr);
}

char *tg_strdup(const char *s)
{
    return tg_strndup(s, strlen(s));
}

char *tg_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = tg_alloc(len + 1);
    if (!copy) return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *tg_asprintf(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : tg_alloc((size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}
