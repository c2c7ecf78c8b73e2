/* The store of named device buffers: a list of entries and an index by name. Each entry is one allocation. */
#include "device/store.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "tensor/desc.h"

#include <string.h>

struct tg_store {
    tg_device *dev;
    tg_strmap *index;
    char *spill_dir;
    tg_spill *spill;
    TG_VEC(tg_store_entry *) entries;
};

tg_store *tg_store_create(tg_device *dev)
{
    tg_store *s = tg_calloc(1, sizeof *s);
    if (!s) return NULL;
    s->dev = dev;
    s->index = tg_strmap_create();
    if (!s->index) tg_store_destroy(&s);
    return s;
}

static void free_entry(const tg_store *s, tg_store_entry *e)
{
    if (e->on_disk)
        tg_spill_unmap(e->data, tg_desc_bytes(&e->desc));
    else
        tg_device_free(s->dev, e->data);
    tg_free((void *)(uintptr_t)e->name);
    tg_free(e);
}

void tg_store_destroy(tg_store **store)
{
    tg_store *s = *store;
    if (!s) return;
    for (size_t i = 0; i < s->entries.len; i++)
        free_entry(s, s->entries.data[i]);
    tg_vec_free(&s->entries);
    tg_strmap_destroy(&s->index);
    tg_spill_destroy(&s->spill);
    tg_free(s->spill_dir);
    tg_free(s);
    *store = NULL;
}

tg_device *tg_store_device(const tg_store *store)
{
    return store->dev;
}

static teng_status take_room(tg_store *store, tg_store_entry *e)
{
    tg_spill *spill = NULL;
    const size_t bytes = tg_desc_bytes(&e->desc);
    if (!e->on_disk) {
        e->data = tg_device_alloc(store->dev, bytes);
        return e->data ? TENG_OK : teng_error_status();
    }
    TG_TRY(tg_store_spill(store, &spill));
    if (!spill) return tg_fail(TENG_STATE, "memory.offload needs a folder (offload.path)");
    TG_TRY(tg_spill_add(spill, e->name, bytes, &e->offset));
    return tg_spill_map(spill, e->offset, bytes, &e->data);
}

static teng_status add(tg_store *store, tg_store_kind kind, bool on_disk, const char *name,
                       const teng_desc *desc, tg_store_entry **out)
{
    tg_store_entry *e = tg_store_find(store, name);
    if (e) {
        char have[TG_DESC_TEXT], want[TG_DESC_TEXT];
        if (e->kind != kind || !tg_desc_equal(&e->desc, desc))
            return tg_fail(TENG_INVALID, "%s is %s in the store, %s is asked for", name,
                           tg_desc_text(have, &e->desc), tg_desc_text(want, desc));
        if (on_disk && !e->on_disk)
            return tg_fail(TENG_STATE, "%s is in memory already, and shall be on disk", name);
        *out = e;
        return TENG_OK;
    }
    e = tg_calloc(1, sizeof *e);
    if (!e) return TENG_MEMORY;
    *e = (tg_store_entry){.name = tg_strdup(name), .desc = *desc, .kind = kind, .on_disk = on_disk};
    teng_status status = e->name ? take_room(store, e) : TENG_MEMORY;
    if (status == TENG_OK &&
        (!tg_vec_reserve(&store->entries, store->entries.len + 1) ||
         !tg_strmap_set(store->index, name, strlen(name), (int64_t)store->entries.len, NULL)))
        status = TENG_MEMORY;
    if (status != TENG_OK) {
        free_entry(store, e);
        tg_fail_context("%s", name);
        return status;
    }
    store->entries.data[store->entries.len++] = e;
    *out = e;
    return TENG_OK;
}

teng_status tg_store_add(tg_store *store, tg_store_kind kind, const char *name, const teng_desc *desc,
                         tg_store_entry **out)
{
    return add(store, kind, false, name, desc, out);
}

teng_status tg_store_add_on_disk(tg_store *store, tg_store_kind kind, const char *name, const teng_desc *desc,
                                 tg_store_entry **out)
{
    return add(store, kind, true, name, desc, out);
}

void tg_store_rest(const tg_store_entry *entry)
{
    if (entry->on_disk) tg_spill_rest(entry->data, tg_desc_bytes(&entry->desc));
}

tg_store_entry *tg_store_find(const tg_store *store, const char *name)
{
    int64_t i;
    return tg_strmap_get(store->index, name, strlen(name), &i) ? store->entries.data[i] : NULL;
}

size_t tg_store_count(const tg_store *store)
{
    return store->entries.len;
}

tg_store_entry *tg_store_at(const tg_store *store, size_t i)
{
    return store->entries.data[i];
}

size_t tg_store_bytes(const tg_store *store, tg_store_kind kind)
{
    size_t bytes = 0;
    for (size_t i = 0; i < store->entries.len; i++)
        if (store->entries.data[i]->kind == kind && !store->entries.data[i]->on_disk)
            bytes += tg_desc_bytes(&store->entries.data[i]->desc);
    return bytes;
}

teng_status tg_store_spill_to(tg_store *store, const char *dir)
{
    store->spill_dir = tg_strdup(dir);
    return store->spill_dir ? TENG_OK : TENG_MEMORY;
}

teng_status tg_store_spill(tg_store *store, tg_spill **out)
{
    *out = NULL;
    if (!store->spill_dir) return TENG_OK;
    if (!store->spill) TG_TRY(tg_spill_create(store->spill_dir, &store->spill));
    *out = store->spill;
    return TENG_OK;
}
