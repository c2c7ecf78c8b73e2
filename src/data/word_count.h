/* How often each word occurs: a hash table of byte strings with counts, built for speed by the trainer alone.
 */
#ifndef TG_DATA_WORD_COUNT_H
#define TG_DATA_WORD_COUNT_H

#include "base/vec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_word {
    uint64_t hash;
    int64_t count;
    size_t at; /* its bytes: table.bytes.data + at */
    size_t len;
} tg_word;
typedef struct tg_word_table { /* zero-initialise */
    TG_VEC(tg_word) words;
    TG_VEC(char) bytes;
    uint32_t *slots; /* index + 1 into words */
    size_t mask;
} tg_word_table;

/* Adds count to a word; false when memory is out. */
bool tg_word_add(tg_word_table *t, uint64_t hash, const char *word, size_t len, int64_t count);
void tg_word_table_clear(tg_word_table *t); /* empty, keeps the memory */
void tg_word_table_free(tg_word_table *t);

#endif
