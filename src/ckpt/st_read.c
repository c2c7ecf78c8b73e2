/*
 * Reading a safetensors file: u64 N, N bytes of JSON, then the data. The header comes from strangers: every
 * number is checked before it is used, and the tensors must tile the data exactly. Values are given out
 * straight from the map; only a tensor that lies misaligned in the file (old writers did not pad) is copied.
 */
#include "ckpt/safetensors.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "tensor/desc.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors holds little-endian values; this machine needs a swap on reading and writing"
#endif

typedef struct entry {
    tg_st_tensor t;      /* first: tg_st_at gives its address */
    uint64_t begin, end; /* in the data */
    void *copy;          /* aligned copy, or NULL */
} entry;

struct tg_st_file {
    char *path;
    tg_map map; /* of a file; empty for memory */
    const unsigned char *bytes;
    size_t size, data_start;
    json_t *header;
    entry *entries;
    size_t n;
    tg_strmap *by_name;
};

typedef unsigned long long ull;

static teng_status read_header(tg_st_file *f)
{
    uint64_t n;
    if (f->size < 8)
        return tg_fail(TENG_FORMAT,
                       "%s: %zu bytes are too few for a safetensors file (8 bytes of header length)", f->path,
                       f->size);
    memcpy(&n, f->bytes, 8);
    if (n > TG_ST_HEADER_MAX)
        return tg_fail(
            TENG_FORMAT,
            "%s: at offset 0 the header length is %llu, above the limit of %u bytes: not a safetensors file?",
            f->path, (ull)n, TG_ST_HEADER_MAX);
    if (n > f->size - 8)
        return tg_fail(
            TENG_FORMAT,
            "%s: at offset 0 the header length is %llu, but only %zu bytes follow: the file is truncated",
            f->path, (ull)n, f->size - 8);
    f->data_start = 8 + (size_t)n;
    if (n < 2 || f->bytes[8] != '{')
        return tg_fail(TENG_FORMAT, "%s: at offset 8 the header must begin with '{'", f->path);
    if (tg_json_parse("header at offset 8", (const char *)f->bytes + 8, (size_t)n, &f->header) != TENG_OK)
        return tg_fail_context("%s", f->path);
    return TENG_OK;
}

static teng_status check_metadata(const tg_st_file *f, json_t *meta)
{
    const char *key;
    json_t *value;
    if (!json_is_object(meta))
        return tg_fail(TENG_FORMAT, "%s: __metadata__ in the header must be an object", f->path);
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value))
            return tg_fail(TENG_FORMAT, "%s: the value of __metadata__.%.100s in the header must be a string",
                           f->path, key);
    }
    return TENG_OK;
}

/* A whole number >= 0 from an array. */
static bool get_size(const json_t *array, size_t i, uint64_t *out)
{
    const json_t *v = json_array_get(array, i);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static teng_status parse_shape(const tg_st_file *f, entry *e, const json_t *shape, uint64_t *bytes)
{
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape))
        return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\": \"shape\" must be an array", f->path, e->t.name);
    if (rank > TENG_MAX_DIMS)
        return tg_fail(TENG_UNSUPPORTED, "%s: tensor \"%.200s\" has %zu dimensions; at most %d are supported",
                       f->path, e->t.name, rank, TENG_MAX_DIMS);
    e->t.desc.ndim = (int)rank;
    /* The product without zeros must fit too, so that no order of multiplying can overflow. */
    uint64_t product = (uint64_t)teng_dtype_size(e->t.desc.dtype);
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        uint64_t dim;
        if (!get_size(shape, i, &dim))
            return tg_fail(TENG_FORMAT,
                           "%s: tensor \"%.200s\": dimension %zu of its shape is not a whole number >= 0",
                           f->path, e->t.name, i);
        if (dim == 0)
            empty = true;
        else if (__builtin_mul_overflow(product, dim, &product) || product > INT64_MAX)
            return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\": its shape gives more than 2^63 bytes",
                           f->path, e->t.name);
        e->t.desc.dims[i] = (int64_t)dim;
    }
    *bytes = empty ? 0 : product;
    return TENG_OK;
}

static teng_status parse_entry(const tg_st_file *f, entry *e, const json_t *value)
{
    const char *name = e->t.name, *dtype = json_string_value(json_object_get(value, "dtype"));
    const json_t *offsets = json_object_get(value, "data_offsets");
    uint64_t data = f->size - f->data_start, bytes = 0;
    if (!dtype)
        return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\": the header lacks \"dtype\" (a string)", f->path,
                       name);
    e->t.desc = (teng_desc){.dtype = teng_dtype_parse(dtype), .ndim = 0, .dims = {0}};
    if (e->t.desc.dtype == TENG_DTYPE_COUNT)
        return tg_fail(TENG_UNSUPPORTED,
                       "%s: tensor \"%.200s\" has the element type %.40s, which is not supported (F64, F32, "
                       "F16, BF16, I8 "
                       "to I64, U8 to U64, BOOL are)",
                       f->path, name, dtype);
    TG_TRY(parse_shape(f, e, json_object_get(value, "shape"), &bytes));
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !get_size(offsets, 0, &e->begin) ||
        !get_size(offsets, 1, &e->end))
        return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\": \"data_offsets\" must be two whole numbers >= 0",
                       f->path, name);
    if (e->begin > e->end || e->end > data)
        return tg_fail(TENG_FORMAT,
                       "%s: tensor \"%.200s\": data offsets [%llu, %llu] do not lie in the %llu bytes of "
                       "data (the file ends "
                       "at offset %zu)%s",
                       f->path, name, (ull)e->begin, (ull)e->end, (ull)data, f->size,
                       e->begin > e->end ? "" : ": the file is truncated or damaged");
    e->t.offset = f->data_start + e->begin;
    if (e->end - e->begin != bytes) {
        char text[TG_DESC_TEXT];
        return tg_fail(
            TENG_FORMAT,
            "%s: tensor \"%.200s\" at offset %llu: %s needs %llu bytes, its data offsets give %llu", f->path,
            name, (ull)e->t.offset, tg_desc_text(text, &e->t.desc), (ull)bytes, (ull)(e->end - e->begin));
    }
    return TENG_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->t.name, y->t.name);
}

/* The tensors must lie end to end, from the first to the last byte of the data. */
static teng_status check_tiling(const tg_st_file *f)
{
    uint64_t at = 0, data = f->size - f->data_start;
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->entries[i];
        if (e->begin < at)
            return tg_fail(
                TENG_FORMAT,
                "%s: tensor \"%.200s\" at offset %llu overlaps tensor \"%.200s\", which ends at %llu",
                f->path, e->t.name, (ull)e->t.offset, f->entries[i - 1].t.name, (ull)(f->data_start + at));
        if (e->begin > at)
            return tg_fail(TENG_FORMAT,
                           "%s: %llu bytes at offset %llu, before tensor \"%.200s\", belong to no tensor",
                           f->path, (ull)(e->begin - at), (ull)(f->data_start + at), e->t.name);
        at = e->end;
    }
    if (at != data)
        return tg_fail(TENG_FORMAT,
                       "%s: %llu bytes at offset %llu, after the last tensor, belong to no tensor", f->path,
                       (ull)(data - at), (ull)(f->data_start + at));
    return TENG_OK;
}

static teng_status place(const tg_st_file *f, entry *e)
{
    const unsigned char *p = f->bytes + e->t.offset;
    size_t size = (size_t)teng_dtype_size(e->t.desc.dtype), bytes = (size_t)(e->end - e->begin);
    e->t.data = p;
    if ((uintptr_t)p % size == 0) return TENG_OK;
    e->copy = tg_alloc_aligned(bytes);
    if (!e->copy) return tg_fail_context("%s: tensor \"%.200s\"", f->path, e->t.name);
    if (bytes) memcpy(e->copy, p, bytes);
    e->t.data = e->copy;
    return TENG_OK;
}

static teng_status read_entries(tg_st_file *f)
{
    const char *name;
    json_t *value;
    f->entries = tg_calloc(json_object_size(f->header) + 1, sizeof *f->entries);
    f->by_name = tg_strmap_create();
    if (!f->entries || !f->by_name) return teng_error_status();
    json_object_foreach(f->header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            TG_TRY(check_metadata(f, value));
            continue;
        }
        entry *e = &f->entries[f->n++];
        e->t.name = name;
        e->t.file = f->path;
        TG_TRY(parse_entry(f, e, value));
    }
    qsort(f->entries, f->n, sizeof *f->entries, by_offset);
    TG_TRY(check_tiling(f));
    for (size_t i = 0; i < f->n; i++) {
        TG_TRY(place(f, &f->entries[i]));
        const char *key = f->entries[i].t.name;
        if (!tg_strmap_set(f->by_name, key, strlen(key), (int64_t)i, NULL)) return teng_error_status();
    }
    return TENG_OK;
}

static teng_status open_bytes(tg_st_file *f)
{
    TG_TRY(read_header(f));
    return read_entries(f);
}

teng_status tg_st_open_memory(const char *name, const void *data, size_t size, tg_st_file **out)
{
    *out = NULL;
    tg_st_file *f = tg_calloc(1, sizeof *f);
    if (!f) return teng_error_status();
    f->bytes = data;
    f->size = size;
    f->path = tg_strdup(name);
    teng_status status = f->path ? open_bytes(f) : teng_error_status();
    if (status != TENG_OK)
        tg_st_close(&f);
    else
        *out = f;
    return status;
}

teng_status tg_st_open(const char *path, tg_st_file **out)
{
    tg_map map;
    *out = NULL;
    TG_TRY(tg_map_open(path, &map));
    teng_status status = tg_st_open_memory(path, map.data, map.size, out);
    if (status != TENG_OK)
        tg_map_close(&map);
    else
        (*out)->map = map;
    return status;
}

void tg_st_close(tg_st_file **file)
{
    if (!file || !*file) return;
    tg_st_file *f = *file;
    for (size_t i = 0; i < f->n; i++)
        tg_free_aligned(f->entries[i].copy);
    tg_free(f->entries);
    tg_strmap_destroy(&f->by_name);
    json_decref(f->header);
    tg_map_close(&f->map);
    tg_free(f->path);
    tg_free(f);
    *file = NULL;
}

size_t tg_st_count(const tg_st_file *file)
{
    return file->n;
}

const tg_st_tensor *tg_st_at(const tg_st_file *file, size_t i)
{
    return i < file->n ? &file->entries[i].t : NULL;
}

const tg_st_tensor *tg_st_find(const tg_st_file *file, const char *name)
{
    int64_t i;
    return tg_strmap_get(file->by_name, name, strlen(name), &i) ? &file->entries[i].t : NULL;
}

const char *tg_st_metadata(const tg_st_file *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

/* Elements of the box in the tensor's own type. */
static teng_status gather(const tg_st_tensor *t, const tg_box *box, void *dst)
{
    const tg_box whole = tg_box_whole(&t->desc);
    const tg_st_piece own = {t->data, whole}, *pieces = t->data ? &own : t->pieces;
    const size_t n = t->data ? 1 : t->n_pieces, size = (size_t)teng_dtype_size(t->desc.dtype);
    int64_t copied = 0;
    for (size_t i = 0; i < n; i++)
        copied += tg_box_copy(size, &pieces[i].box, pieces[i].data, box, dst);
    if (copied == tg_box_numel(box)) return TENG_OK;
    return tg_fail(
        TENG_FORMAT,
        "%s: the pieces of tensor \"%.200s\" hold %lld of the %lld elements that are needed: a file "
        "of the checkpoint is missing or written twice",
        t->file, t->name, (long long)copied, (long long)tg_box_numel(box));
}

teng_status tg_st_check(const tg_st_tensor *t, const teng_desc *want)
{
    char have_text[TG_DESC_TEXT], want_text[TG_DESC_TEXT];
    teng_desc same = t->desc;
    same.dtype = want->dtype;
    const bool convertible =
        t->desc.dtype == want->dtype || (tg_dtype_is_float(t->desc.dtype) && tg_dtype_is_float(want->dtype));
    if (tg_desc_equal(&same, want) && convertible) return TENG_OK;
    return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\" is %s, but %s is needed", t->file, t->name,
                   tg_desc_text(have_text, &t->desc), tg_desc_text(want_text, want));
}

void tg_st_forget(const tg_st_tensor *t)
{
    if (t->data) tg_map_forget(t->data, tg_desc_bytes(&t->desc));
    for (size_t i = 0; i < t->n_pieces; i++)
        tg_map_forget(t->pieces[i].data,
                      (size_t)tg_box_numel(&t->pieces[i].box) * (size_t)teng_dtype_size(t->desc.dtype));
}

teng_status tg_st_read_box(const tg_st_tensor *t, const teng_desc *whole, const tg_box *box, void *dst)
{
    TG_TRY(tg_st_check(t, whole));
    const tg_box all = tg_box_whole(whole);
    const int64_t n = tg_box_numel(box);
    if (t->data && tg_box_equal(box, &all)) {
        tg_convert(whole->dtype, dst, t->desc.dtype, t->data, n);
        return TENG_OK;
    }
    if (t->desc.dtype == whole->dtype) return gather(t, box, dst);
    void *own = tg_alloc((size_t)n * (size_t)teng_dtype_size(t->desc.dtype) + 1);
    if (!own) return TENG_MEMORY;
    const teng_status status = gather(t, box, own);
    if (status == TENG_OK) tg_convert(whole->dtype, dst, t->desc.dtype, own, n);
    tg_free(own);
    return status;
}

teng_status tg_st_read(const tg_st_tensor *t, const teng_desc *want, void *dst)
{
    const tg_box all = tg_box_whole(want);
    return tg_st_read_box(t, want, &all, dst);
}
