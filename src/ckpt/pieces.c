/*
 * Pieces of tensors: what a rank's file says of its boxes, and the wholes that they make up. The text comes
 * from a file, so every number is checked against the shapes before a box is believed.
 */
#include "ckpt/pieces.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"
#include "tensor/desc.h"

#include <stdlib.h>
#include <string.h>

static const char key_parts[] = "teng.parts";

/* ---- writing ---- */
static json_t *part_json(const tg_ckpt_part *part)
{
    json_t *shape = json_array(), *box = json_array();
    for (int d = 0; d < part->box.ndim; d++) {
        json_array_append_new(shape, json_integer((json_int_t)part->whole.dims[d]));
        json_array_append_new(box, json_pack("[I, I, I, I]", (json_int_t)part->box.begin[d],
                                             (json_int_t)part->box.size[d], (json_int_t)part->box.runs[d],
                                             (json_int_t)part->box.stride[d]));
    }
    json_t *all = json_pack("{s:o, s:o}", "shape", shape, "box", box);
    const bool whole =
        json_array_size(shape) == (size_t)part->box.ndim && json_array_size(box) == (size_t)part->box.ndim;
    if (all && whole) return all;
    json_decref(all);
    return NULL;
}

json_t *tg_pieces_metadata(const tg_ckpt_item *items, size_t n)
{
    json_t *metadata = json_pack("{s:s}", "format", "pt"), *parts = json_object();
    bool failed = !metadata || !parts;
    for (size_t i = 0; i < n && !failed; i++)
        if (items[i].part) failed = json_object_set_new(parts, items[i].name, part_json(items[i].part)) != 0;
    if (!failed && json_object_size(parts) > 0) {
        char *text = tg_json_text(parts, 0);
        failed = !text || json_object_set_new(metadata, key_parts, json_string(text)) != 0;
        tg_free(text);
    }
    json_decref(parts);
    if (!failed) return metadata;
    json_decref(metadata);
    tg_fail(TENG_MEMORY, "out of memory for what a checkpoint's file holds");
    return NULL;
}

/* ---- reading ---- */
typedef struct merged {
    tg_st_tensor t; /* first: tg_pieces_at gives its address */
    TG_VEC(tg_st_piece) pieces;
    int64_t elements; /* in all pieces */
} merged;

struct tg_pieces {
    TG_VEC(merged) all;
    tg_strmap *by_name;
};

static bool read_numbers(const json_t *list, int64_t *out, size_t n)
{
    if (!json_is_array(list) || json_array_size(list) != n) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
        out[i] = json_integer_value(v);
    }
    return true;
}

/* The box of tensor t and its whole, out of the object {"shape": …, "box": …}. */
static bool read_part(const json_t *part, const tg_st_tensor *t, teng_desc *whole, tg_box *box)
{
    const json_t *shape = json_object_get(part, "shape"), *dims = json_object_get(part, "box");
    const int n = t->desc.ndim;
    int64_t sizes[TENG_MAX_DIMS] = {0};
    if (!read_numbers(shape, sizes, (size_t)n) || !json_is_array(dims) || json_array_size(dims) != (size_t)n)
        return false;
    *whole = tg_desc_make(t->desc.dtype, n, sizes);
    box->ndim = n;
    int64_t left = INT64_MAX / 16; /* elements that a whole may have */
    for (int d = 0; d < n; d++) {
        int64_t v[4];
        if (!read_numbers(json_array_get(dims, (size_t)d), v, 4)) return false;
        box->begin[d] = v[0];
        box->size[d] = v[1];
        box->runs[d] = v[2];
        box->stride[d] = v[3];
        if (sizes[d] > left) return false;
        if (sizes[d]) left /= sizes[d];
    }
    if (!tg_box_fits(box, whole)) return false;
    for (int d = 0; d < n; d++)
        if (box->size[d] * box->runs[d] != t->desc.dims[d]) return false;
    return true;
}

static teng_status add_piece(tg_pieces *p, const tg_st_tensor *t, const teng_desc *whole, const tg_box *box)
{
    int64_t at = 0;
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    if (!tg_strmap_get(p->by_name, t->name, strlen(t->name), &at)) {
        merged fresh = {.t = *t};
        fresh.t.desc = *whole;
        at = (int64_t)p->all.len;
        if (!tg_strmap_set(p->by_name, t->name, strlen(t->name), at, NULL) || !tg_vec_push(&p->all, fresh))
            return TENG_MEMORY;
    }
    merged *m = &p->all.data[at];
    if (!tg_desc_equal(&m->t.desc, whole))
        return tg_fail(TENG_FORMAT, "tensor \"%.200s\" is a part of %s in %s and of %s in %s", t->name,
                       tg_desc_text(a, &m->t.desc), m->t.file, tg_desc_text(b, whole), t->file);
    m->elements += tg_box_numel(box);
    const tg_st_piece piece = {t->data, *box};
    return tg_vec_push(&m->pieces, piece) ? TENG_OK : TENG_MEMORY;
}

static teng_status add_file(tg_pieces *p, const tg_st_file *file)
{
    const char *text = tg_st_metadata(file, key_parts);
    const char *path = tg_st_count(file) ? tg_st_at(file, 0)->file : "a checkpoint's file";
    json_t *parts = NULL;
    size_t used = 0;
    if (text) TG_TRY(tg_json_parse(path, text, strlen(text), &parts));
    teng_status status = TENG_OK;
    for (size_t i = 0; i < tg_st_count(file) && status == TENG_OK; i++) {
        const tg_st_tensor *t = tg_st_at(file, i);
        const json_t *part = json_object_get(parts, t->name);
        teng_desc whole = t->desc;
        tg_box box = tg_box_whole(&whole);
        used += part != NULL;
        if (part && !read_part(part, t, &whole, &box))
            status =
                tg_fail(TENG_FORMAT, "%s: what its metadata says of tensor \"%.200s\" is no part of a tensor",
                        path, t->name);
        if (status == TENG_OK) status = add_piece(p, t, &whole, &box);
    }
    if (status == TENG_OK && used != json_object_size(parts))
        status =
            tg_fail(TENG_FORMAT, "%s: its metadata names %zu parts of tensors, %zu of them are in the file",
                    path, json_object_size(parts), used);
    json_decref(parts);
    return status;
}

static int file_order(const void *a, const void *b)
{
    const tg_st_tensor *x = &((const merged *)a)->t, *y = &((const merged *)b)->t;
    const int sx = teng_dtype_size(x->desc.dtype), sy = teng_dtype_size(y->desc.dtype);
    return sx != sy ? sy - sx : strcmp(x->name, y->name);
}

/* Every whole has all its elements. What lies in one piece that is all of it needs no pieces. */
static teng_status finish(tg_pieces *p, bool sort)
{
    if (sort && p->all.len) qsort(p->all.data, p->all.len, sizeof *p->all.data, file_order);
    for (size_t i = 0; i < p->all.len; i++) {
        merged *m = &p->all.data[i];
        const int64_t want = tg_desc_numel(&m->t.desc);
        if (m->elements != want)
            return tg_fail(
                TENG_FORMAT,
                "tensor \"%.200s\": its %zu pieces hold %lld elements, and the whole has %lld: a file "
                "of the checkpoint is missing or written twice",
                m->t.name, m->pieces.len, (long long)m->elements, (long long)want);
        const tg_box whole = tg_box_whole(&m->t.desc);
        const bool in_one = m->pieces.len == 1 && tg_box_equal(&m->pieces.data[0].box, &whole);
        m->t.data = in_one ? m->pieces.data[0].data : NULL;
        m->t.pieces = in_one ? NULL : m->pieces.data;
        m->t.n_pieces = in_one ? 0 : m->pieces.len;
        if (!tg_strmap_set(p->by_name, m->t.name, strlen(m->t.name), (int64_t)i, NULL)) return TENG_MEMORY;
    }
    return TENG_OK;
}

teng_status tg_pieces_create(tg_st_file *const *files, size_t n, tg_pieces **out)
{
    *out = NULL;
    tg_pieces *p = tg_calloc(1, sizeof *p);
    if (!p) return TENG_MEMORY;
    p->by_name = tg_strmap_create();
    teng_status status = p->by_name ? TENG_OK : TENG_MEMORY;
    for (size_t i = 0; i < n && status == TENG_OK; i++)
        status = add_file(p, files[i]);
    if (status == TENG_OK) status = finish(p, n > 1);
    if (status != TENG_OK) tg_pieces_destroy(&p);
    *out = p;
    return status;
}

void tg_pieces_destroy(tg_pieces **pieces)
{
    tg_pieces *p = *pieces;
    if (!p) return;
    for (size_t i = 0; i < p->all.len; i++)
        tg_vec_free(&p->all.data[i].pieces);
    tg_vec_free(&p->all);
    tg_strmap_destroy(&p->by_name);
    tg_free(p);
    *pieces = NULL;
}

size_t tg_pieces_count(const tg_pieces *pieces)
{
    return pieces->all.len;
}

const tg_st_tensor *tg_pieces_at(const tg_pieces *pieces, size_t i)
{
    return i < pieces->all.len ? &pieces->all.data[i].t : NULL;
}

const tg_st_tensor *tg_pieces_find(const tg_pieces *pieces, const char *name)
{
    int64_t i;
    return tg_strmap_get(pieces->by_name, name, strlen(name), &i) ? &pieces->all.data[i].t : NULL;
}
