/*
 * Hash map from byte strings to 64-bit values. Entries stand in insertion order in one array; a table of
 * 32-bit slots with linear probing points into it. Nothing is ever removed: no user needs it, and without it
 * probing needs no tombstones.
 */
#include "base/strmap.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/vec.h"

#include <string.h>
#include <xxhash.h>

typedef struct entry {
    const char *key;
    size_t len;
    uint64_t hash;
    int64_t value;
} entry;

struct tg_strmap {
    TG_VEC(entry) entries;
    uint32_t *slots;   /* entry index + 1; 0 is free */
    size_t slot_count; /* a power of two, at least 4/3 of the entries */
    tg_arena *keys;
};

enum { FIRST_SLOTS = 16 };

uint64_t tg_hash64(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

tg_strmap *tg_strmap_create(void)
{
    tg_strmap *map = tg_calloc(1, sizeof *map);
    if (!map) return NULL;
    map->keys = tg_arena_create();
    map->slots = tg_calloc(FIRST_SLOTS, sizeof *map->slots);
    map->slot_count = FIRST_SLOTS;
    if (!map->keys || !map->slots) tg_strmap_destroy(&map);
    return map;
}

void tg_strmap_destroy(tg_strmap **map)
{
    if (!map || !*map) return;
    tg_arena_destroy(&(*map)->keys);
    tg_vec_free(&(*map)->entries);
    tg_free((*map)->slots);
    tg_free(*map);
    *map = NULL;
}

/* The slot that holds the key, or the free slot where it belongs. */
static size_t find_slot(const tg_strmap *map, const void *key, size_t len, uint64_t hash)
{
    size_t mask = map->slot_count - 1, i = (size_t)hash & mask;
    for (; map->slots[i]; i = (i + 1) & mask) {
        const entry *e = &map->entries.data[map->slots[i] - 1];
        if (e->hash == hash && e->len == len && (len == 0 || memcmp(e->key, key, len) == 0)) break;
    }
    return i;
}

static bool grow_slots(tg_strmap *map)
{
    size_t count = map->slot_count * 2;
    uint32_t *slots = tg_calloc(count, sizeof *slots);
    if (!slots) return false;
    for (size_t k = 0; k < map->entries.len; k++) {
        size_t i = (size_t)map->entries.data[k].hash & (count - 1);
        while (slots[i])
            i = (i + 1) & (count - 1);
        slots[i] = (uint32_t)(k + 1);
    }
    tg_free(map->slots);
    map->slots = slots;
    map->slot_count = count;
    return true;
}

static bool insert(tg_strmap *map, const void *key, size_t len, uint64_t hash, int64_t value)
{
    if (map->entries.len >= UINT32_MAX - 1) {
        tg_fail(TENG_MEMORY, "a string map holds at most %u entries", UINT32_MAX - 1);
        return false;
    }
    if ((map->entries.len + 1) * 4 > map->slot_count * 3 && !grow_slots(map)) return false;
    char *copy = tg_arena_alloc(map->keys, len + 1); /* zeroed: ends with NUL */
    if (!copy) return false;
    if (len) memcpy(copy, key, len);
    entry e = {copy, len, hash, value};
    if (!tg_vec_push(&map->entries, e)) return false;
    map->slots[find_slot(map, key, len, hash)] = (uint32_t)map->entries.len;
    return true;
}

bool tg_strmap_set(tg_strmap *map, const void *key, size_t len, int64_t value, bool *existed)
{
    uint64_t hash = tg_hash64(key, len, 0);
    uint32_t slot = map->slots[find_slot(map, key, len, hash)];
    if (existed) *existed = slot != 0;
    if (!slot) return insert(map, key, len, hash, value);
    map->entries.data[slot - 1].value = value;
    return true;
}

bool tg_strmap_get(const tg_strmap *map, const void *key, size_t len, int64_t *value)
{
    uint32_t slot = map->slots[find_slot(map, key, len, tg_hash64(key, len, 0))];
    if (!slot) return false;
    *value = map->entries.data[slot - 1].value;
    return true;
}

size_t tg_strmap_count(const tg_strmap *map)
{
    return map->entries.len;
}

const char *tg_strmap_key(const tg_strmap *map, size_t i, size_t *len)
{
    if (len) *len = map->entries.data[i].len;
    return map->entries.data[i].key;
}

int64_t tg_strmap_value(const tg_strmap *map, size_t i)
{
    return map->entries.data[i].value;
}
