/*
 * Writing safetensors: one file, or shards with an index. The header is known before the data, so values
 * stream from where they are; nothing is gathered. The hash of the file is taken on the way, a block at a
 * time while it is in the cache.
 */
#include "ckpt/safetensors.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "tensor/desc.h"

#define XXH_STATIC_LINKING_ONLY /* the state on the stack instead of xxHash's own malloc */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BLOCK = 1 << 20, DATA_ALIGN = 8 };

/* ---- checks ---- */

static teng_status check_metadata(const char *path, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (metadata && !json_is_object(metadata))
        return tg_fail(TENG_INVALID, "%s: metadata of a safetensors file must be an object", path);
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value))
            return tg_fail(TENG_INVALID,
                           "%s: metadata \"%.100s\" must be a string (safetensors allows nothing else)", path,
                           key);
    }
    return TENG_OK;
}

static teng_status check_item(const char *path, const tg_ckpt_item *item)
{
    const teng_desc *d = &item->desc;
    if (!item->name || strcmp(item->name, "__metadata__") == 0)
        return tg_fail(TENG_INVALID, "%s: %s cannot be the name of a tensor", path,
                       item->name ? item->name : "NULL");
    if (teng_dtype_size(d->dtype) == 0 || d->ndim < 0 || d->ndim > TENG_MAX_DIMS)
        return tg_fail(TENG_INVALID,
                       "%s: tensor \"%.200s\" has no valid description (type %d, %d dimensions)", path,
                       item->name, (int)d->dtype, d->ndim);
    for (int i = 0; i < d->ndim; i++)
        if (d->dims[i] < 0)
            return tg_fail(TENG_INVALID, "%s: tensor \"%.200s\": dimension %d is %lld", path, item->name, i,
                           (long long)d->dims[i]);
    if (!item->data && !item->fetch && tg_desc_bytes(d) > 0)
        return tg_fail(TENG_INVALID, "%s: tensor \"%.200s\" has no data", path, item->name);
    return TENG_OK;
}

static teng_status check_items(const char *path, const tg_ckpt_item *items, size_t n)
{
    tg_strmap *names = tg_strmap_create();
    teng_status status = names ? TENG_OK : teng_error_status();
    for (size_t i = 0; i < n && status == TENG_OK; i++) {
        bool existed = false;
        status = check_item(path, &items[i]);
        if (status != TENG_OK) break;
        if (!tg_strmap_set(names, items[i].name, strlen(items[i].name), 0, &existed))
            status = teng_error_status();
        else if (existed)
            status = tg_fail(TENG_INVALID, "%s: two tensors have the name \"%.200s\"", path, items[i].name);
    }
    tg_strmap_destroy(&names);
    return status;
}

/* ---- one file ---- */

static int file_order(const void *a, const void *b)
{
    const tg_ckpt_item *x = *(const tg_ckpt_item *const *)a, *y = *(const tg_ckpt_item *const *)b;
    int sx = teng_dtype_size(x->desc.dtype), sy = teng_dtype_size(y->desc.dtype);
    return sx != sy ? sy - sx : strcmp(x->name, y->name);
}

static json_t *describe(const teng_desc *d, uint64_t begin)
{
    char dtype[16];
    const char *name = teng_dtype_name(d->dtype);
    size_t len = strlen(name);
    for (size_t i = 0; i <= len; i++)
        dtype[i] = (char)toupper((unsigned char)name[i]);
    json_t *shape = json_array();
    for (int i = 0; i < d->ndim; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)d->dims[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + tg_desc_bytes(d)));
}

/* The header's text, spaces added so that the data begins at a multiple of 8. */
static teng_status make_header(const char *path, const tg_ckpt_item **order, size_t n, const json_t *metadata,
                               char **text, size_t *len)
{
    json_t *header = json_object();
    uint64_t at = 0;
    teng_status status = TENG_OK;
    if (metadata && json_object_set(header, "__metadata__", (json_t *)(uintptr_t)metadata) != 0)
        status = tg_fail(TENG_MEMORY, "%s: out of memory for the header", path);
    for (size_t i = 0; i < n && status == TENG_OK; i++) {
        if (json_object_set_new(header, order[i]->name, describe(&order[i]->desc, at)) != 0)
            status = tg_fail(TENG_INVALID,
                             "%s: tensor %zu: its name \"%.200s\" is not valid UTF-8, or memory is out", path,
                             i, order[i]->name);
        at += tg_desc_bytes(&order[i]->desc);
    }
    char *bare = status == TENG_OK ? tg_json_text(header, 0) : NULL;
    json_decref(header);
    if (!bare) return tg_fail_context("%s", path);
    size_t used = strlen(bare), full = (used + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    char *padded = full > TG_ST_HEADER_MAX ? NULL : tg_realloc(bare, full + 1);
    if (!padded) {
        tg_free(bare);
        return tg_fail(
            TENG_INVALID,
            "%s: the header needs %zu bytes, above the format's limit of %u: fewer tensors or shards", path,
            full, TG_ST_HEADER_MAX);
    }
    memset(padded + used, ' ', full - used);
    *text = padded;
    *len = full;
    return TENG_OK;
}

static teng_status put(tg_writer *w, XXH3_state_t *hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    while (bytes) {
        size_t step = bytes < BLOCK ? bytes : BLOCK;
        XXH3_64bits_update(hash, p, step);
        TG_TRY(tg_writer_put(w, p, step));
        p += step;
        bytes -= step;
    }
    return TENG_OK;
}

static teng_status put_tensor(tg_writer *w, XXH3_state_t *hash, const tg_ckpt_item *item)
{
    const size_t bytes = tg_desc_bytes(&item->desc);
    if (item->data || !item->fetch) return put(w, hash, item->data, bytes);
    void *copy = tg_alloc_aligned(bytes + 1);
    if (!copy) return TENG_MEMORY;
    teng_status status = item->fetch(item->user, item, copy);
    if (status == TENG_OK) status = put(w, hash, copy, bytes);
    tg_free_aligned(copy);
    return status;
}

static teng_status put_all(tg_writer *w, XXH3_state_t *hash, const tg_ckpt_item **order, size_t n,
                           const char *header, size_t header_len)
{
    uint64_t len = header_len;
    TG_TRY(put(w, hash, &len, sizeof len));
    TG_TRY(put(w, hash, header, header_len));
    for (size_t i = 0; i < n; i++)
        TG_TRY(put_tensor(w, hash, order[i]));
    return TENG_OK;
}

static teng_status write_ordered(const char *path, const tg_ckpt_item **order, size_t n,
                                 const json_t *metadata, tg_st_digest *digest)
{
    XXH3_state_t hash;
    char *header = NULL;
    size_t header_len = 0;
    tg_writer *w;
    XXH3_INITSTATE(&hash);
    XXH3_64bits_reset(&hash);
    TG_TRY(make_header(path, order, n, metadata, &header, &header_len));
    teng_status status = tg_writer_open(path, &w);
    if (status == TENG_OK) {
        status = put_all(w, &hash, order, n, header, header_len);
        if (digest) *digest = (tg_st_digest){.bytes = tg_writer_offset(w), .xxh3 = XXH3_64bits_digest(&hash)};
        if (status == TENG_OK)
            status = tg_writer_commit(&w);
        else
            tg_writer_abort(&w);
    }
    tg_free(header);
    return status;
}

teng_status tg_st_write(const char *path, const tg_ckpt_item *items, size_t n, const json_t *metadata,
                        tg_st_digest *digest)
{
    TG_TRY(check_metadata(path, metadata));
    TG_TRY(check_items(path, items, n));
    const tg_ckpt_item **order = tg_calloc(n + 1, sizeof *order);
    if (!order) return teng_error_status();
    for (size_t i = 0; i < n; i++)
        order[i] = &items[i];
    qsort(order, n, sizeof *order, file_order);
    teng_status status = write_ordered(path, order, n, metadata, digest);
    tg_free(order);
    return status;
}

/* ---- shards ---- */

/* How many items from items[from] on fit a shard; at least one. */
static size_t shard_length(const tg_ckpt_item *items, size_t n, size_t from, uint64_t max_bytes)
{
    uint64_t used = tg_desc_bytes(&items[from].desc);
    size_t i = from + 1;
    for (; i < n; i++) {
        uint64_t bytes = tg_desc_bytes(&items[i].desc);
        if (bytes > max_bytes || used > max_bytes - bytes) break;
        used += bytes;
    }
    return i - from;
}

static teng_status write_shards(const char *dir, const char *stem, const tg_ckpt_item *items, size_t n,
                                size_t shards, uint64_t max_bytes, const json_t *metadata, json_t *weight_map)
{
    size_t from = 0;
    for (size_t s = 1; s <= shards; s++) {
        size_t len = shard_length(items, n, from, max_bytes);
        char *path = tg_asprintf("%s/%s-%05zu-of-%05zu.safetensors", dir, stem, s, shards);
        if (!path) return teng_error_status();
        teng_status status = tg_st_write(path, items + from, len, metadata, NULL);
        for (size_t i = from; i < from + len && status == TENG_OK; i++)
            if (json_object_set_new(weight_map, items[i].name, json_string(tg_path_base(path))) != 0)
                status = tg_fail(TENG_MEMORY, "%s: out of memory for the index", dir);
        tg_free(path);
        TG_TRY(status);
        from += len;
    }
    return TENG_OK;
}

static teng_status write_index(const char *dir, const char *stem, uint64_t total, json_t *weight_map)
{
    char *path = tg_asprintf("%s/%s.safetensors.index.json", dir, stem);
    json_t *index =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total, "weight_map", weight_map);
    teng_status status = path ? tg_json_save_file(path, index) : teng_error_status();
    json_decref(index);
    tg_free(path);
    return status;
}

teng_status tg_st_write_sharded(const char *dir, const char *stem, const tg_ckpt_item *items, size_t n,
                                uint64_t max_shard_bytes, const json_t *metadata)
{
    uint64_t total = 0;
    TG_TRY(check_items(dir, items, n)); /* over all shards: a name may stand in one only */
    for (size_t i = 0; i < n; i++)
        total += tg_desc_bytes(&items[i].desc);
    if (max_shard_bytes == 0 || total <= max_shard_bytes) {
        char *path = tg_asprintf("%s/%s.safetensors", dir, stem);
        if (!path) return teng_error_status();
        teng_status status = tg_st_write(path, items, n, metadata, NULL);
        tg_free(path);
        return status;
    }
    size_t shards = 0;
    for (size_t from = 0; from < n; from += shard_length(items, n, from, max_shard_bytes))
        shards++;
    json_t *weight_map = json_object();
    teng_status status = write_shards(dir, stem, items, n, shards, max_shard_bytes, metadata, weight_map);
    if (status == TENG_OK) status = write_index(dir, stem, total, weight_map);
    json_decref(weight_map);
    return status;
}
