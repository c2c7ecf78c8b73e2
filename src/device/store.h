/*
 * The store: named device buffers that outlive a step (parameters, optimizer moments, gradient accumulators).
 * Plans of several sequence lengths, evaluation and eager steps all bind to the same entries. Entries never
 * move.
 */
#ifndef TG_DEVICE_STORE_H
#define TG_DEVICE_STORE_H

#include "device/device.h"
#include "device/spill.h"
#include "teng/tensor.h"

typedef enum tg_store_kind { TG_STORE_PARAM, TG_STORE_STATE } tg_store_kind;
typedef struct tg_store_entry {
    const char *name;
    teng_desc desc;
    tg_store_kind kind;
    void *data; /* device memory, zeroed when it was added; of one on disk: a map of the file */
    bool on_disk;
    uint64_t offset; /* in the file, of one on disk */
    bool loaded;     /* holds initial, loaded or trained values; false: the zeros it was born with */
} tg_store_entry;

typedef struct tg_store tg_store;
tg_store *tg_store_create(tg_device *dev);
void tg_store_destroy(tg_store **store);
tg_device *tg_store_device(const tg_store *store);
/* The entry of that name, made when absent. An existing one of another shape, dtype or kind is an error. */
teng_status tg_store_add(tg_store *store, tg_store_kind kind, const char *name, const teng_desc *desc,
                         tg_store_entry **out);
tg_store_entry *tg_store_find(const tg_store *store, const char *name); /* NULL when absent */
size_t tg_store_count(const tg_store *store);
tg_store_entry *tg_store_at(const tg_store *store, size_t i); /* in the order they were added */
/* The folder of a file for entries and values that shall not be in memory, which is made when it is first
 * asked for; NULL without a folder. Owned by the store. */
teng_status tg_store_spill_to(tg_store *store, const char *dir);
teng_status tg_store_spill(tg_store *store, tg_spill **out);
/* As add, of an entry that lies in that file. Its data may be used as memory while no step runs; rest then
 * takes the pages that were touched out of memory again. */
teng_status tg_store_add_on_disk(tg_store *store, tg_store_kind kind, const char *name, const teng_desc *desc,
                                 tg_store_entry **out);
void tg_store_rest(const tg_store_entry *entry);                  /* of one in memory: nothing */
size_t tg_store_bytes(const tg_store *store, tg_store_kind kind); /* in memory */

#endif
