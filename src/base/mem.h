/*
 * The one door to the heap, and arenas. Counting lets a test prove that a training step allocates nothing;
 * fail-at lets a test make any allocation fail. Every function may be called from any thread.
 */
#ifndef TG_BASE_MEM_H
#define TG_BASE_MEM_H

#include "teng/status.h"

#include <stddef.h>
#include <stdint.h>

#define TG_ALIGN 64 /* bytes: cache line, and one AVX-512 register */

/* NULL and a pending TENG_MEMORY error on failure. tg_alloc(0) gives a unique pointer. */
void *tg_alloc(size_t bytes);               /* uninitialised */
void *tg_alloc_quiet(size_t bytes);         /* the same, and no error is recorded when it fails */
void *tg_calloc(size_t count, size_t size); /* zeroed, overflow checked */
void *tg_realloc(void *ptr, size_t bytes);  /* old block is kept on failure */
void tg_free(void *ptr);                    /* NULL allowed */
/* Aligned to TG_ALIGN (or 2 MiB, with transparent huge pages advised, when bytes >= 4 MiB); free with
 * tg_free_aligned. */
void *tg_alloc_aligned(size_t bytes);
void tg_free_aligned(void *ptr);
char *tg_strdup(const char *s);
char *tg_strndup(const char *s, size_t n);
char *tg_asprintf(const char *fmt, ...) TENG_PRINTF(1, 2);

/* Allocations made so far by the calls above, whole process. */
uint64_t tg_alloc_count(void);
/* The n-th allocation from now fails (n = 1 is the next); 0 switches this off. For tests. */
void tg_alloc_fail_at(uint64_t n);

/* Arena: many small objects, one free. Memory is zeroed. Not thread-safe. */
typedef struct tg_arena tg_arena;
tg_arena *tg_arena_create(void);
void tg_arena_destroy(tg_arena **arena);
void *tg_arena_alloc(tg_arena *arena, size_t bytes); /* aligned to 16; NULL on failure */
char *tg_arena_strdup(tg_arena *arena, const char *s);
char *tg_arena_printf(tg_arena *arena, const char *fmt, ...) TENG_PRINTF(2, 3);
size_t tg_arena_bytes(const tg_arena *arena);

#endif
