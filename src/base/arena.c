/*
 * Arenas: zeroed memory cut from growing blocks and freed at once. Objects never move. A request larger than
 * the block size gets a block of its own behind the current one. Not for memory that is freed piece by piece.
 */
#include "base/mem.h"

#include "base/fail.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_BLOCK = 4 << 10, LARGEST_BLOCK = 1 << 20, UNIT = 16 };

typedef struct block {
    struct block *next;
    size_t used, cap;
    _Alignas(UNIT) unsigned char data[];
} block;

struct tg_arena {
    block *blocks; /* the first is the one small requests are cut from */
    size_t next_cap;
    size_t bytes; /* handed out, rounded up to UNIT */
};

tg_arena *tg_arena_create(void)
{
    tg_arena *arena = tg_calloc(1, sizeof *arena);
    if (arena) arena->next_cap = FIRST_BLOCK;
    return arena;
}

void tg_arena_destroy(tg_arena **arena)
{
    if (!arena || !*arena) return;
    for (block *b = (*arena)->blocks, *next; b; b = next) {
        next = b->next;
        tg_free(b);
    }
    tg_free(*arena);
    *arena = NULL;
}

/* The block to cut `bytes` from, or NULL when memory is out. */
static block *block_for(tg_arena *arena, size_t bytes)
{
    block *first = arena->blocks;
    if (first && first->cap - first->used >= bytes) return first;
    bool own = bytes > arena->next_cap / 4;
    size_t cap = own ? bytes : arena->next_cap;
    block *b = tg_calloc(1, sizeof *b + cap);
    if (!b) return NULL;
    b->cap = cap;
    if (own && first) { /* keep cutting small pieces from the block in use */
        b->next = first->next;
        first->next = b;
        return b;
    }
    b->next = first;
    arena->blocks = b;
    if (!own && arena->next_cap < LARGEST_BLOCK) arena->next_cap *= 2;
    return b;
}

void *tg_arena_alloc(tg_arena *arena, size_t bytes)
{
    if (bytes == 0) bytes = 1;
    if (bytes > SIZE_MAX / 2) {
        tg_fail(TENG_MEMORY, "out of memory: %zu bytes are more than an address can hold", bytes);
        return NULL;
    }
    size_t rounded = (bytes + UNIT - 1) / UNIT * UNIT;
    block *b = block_for(arena, rounded);
    if (!b) return NULL;
    void *p = b->data + b->used;
    b->used += rounded;
    arena->bytes += rounded;
    return p;
}

char *tg_arena_strdup(tg_arena *arena, const char *s)
{
    size_t size = strlen(s) + 1;
    char *copy = tg_arena_alloc(arena, size);
    if (copy) memcpy(copy, s, size);
    return copy;
}

char *tg_arena_printf(tg_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : tg_arena_alloc(arena, (size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

size_t tg_arena_bytes(const tg_arena *arena)
{
    return arena->bytes;
}
