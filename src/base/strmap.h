/* Hash map from byte strings to 64-bit values (xxHash, open addressing). Keys are copied. Not thread-safe. */
#ifndef TG_BASE_STRMAP_H
#define TG_BASE_STRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_strmap tg_strmap;

tg_strmap *tg_strmap_create(void);
void tg_strmap_destroy(tg_strmap **map);
/* Sets key → value; *existed (may be NULL) tells whether the key was there. False when memory is out. */
bool tg_strmap_set(tg_strmap *map, const void *key, size_t len, int64_t value, bool *existed);
/* Value of a key in *value; false when absent. */
bool tg_strmap_get(const tg_strmap *map, const void *key, size_t len, int64_t *value);
size_t tg_strmap_count(const tg_strmap *map);
/* Visits entries in insertion order: i from 0 to count - 1. */
const char *tg_strmap_key(const tg_strmap *map, size_t i, size_t *len);
int64_t tg_strmap_value(const tg_strmap *map, size_t i);

/* 64-bit and 128-bit-strength content hashes (xxHash XXH3), also used as file checksums. */
uint64_t tg_hash64(const void *data, size_t len, uint64_t seed);

#endif
