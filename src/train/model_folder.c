/*
 * teng model info, convert and diff. A folder is opened through the model it describes, so that whatever was
 * written or counted has been checked; only the comparison looks at tensors alone. Values stay in their
 * files: a model may be larger than memory.
 */
#include "train/model_folder.h"

#include "base/fail.h"
#include "base/file.h"
#include "ckpt/hf_folder.h"
#include "tensor/desc.h"
#include "train/lm_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct folder {
    tg_lm_places at;
    json_t *config;
    teng_cell *cell;
    tg_weights *weights;
    tg_arena *arena;
    tg_folder_items items; /* as the family names them; values are read when they are needed */
} folder;

/* dtype TENG_DTYPE_COUNT: that of the first tensor, when it is a float of 16 bits, else f32. */
static teng_status open_folder(folder *f, const char *dir, teng_dtype dtype)
{
    TG_TRY(tg_lm_places_find(dir, &f->at));
    TG_TRY(tg_hf_read_config(f->at.config, &f->config));
    f->cell = tg_lm_create_json(f->config);
    f->arena = tg_arena_create();
    if (!f->cell) return teng_error_status();
    if (!f->arena) return TENG_MEMORY;
    TG_TRY(tg_weights_open(f->at.weights, &f->weights));
    const tg_st_tensor *first = tg_weights_at(f->weights, 0);
    if (dtype == TENG_DTYPE_COUNT)
        dtype = first && (first->desc.dtype == TENG_F16 || first->desc.dtype == TENG_BF16) ? first->desc.dtype
                                                                                           : TENG_F32;
    return tg_core_items_of_weights(f->cell, f->weights, dtype, f->arena, &f->items);
}

static void close_folder(folder *f)
{
    tg_vec_free(&f->items);
    tg_arena_destroy(&f->arena);
    tg_weights_close(&f->weights);
    teng_cell_destroy(&f->cell);
    json_decref(f->config);
    tg_lm_places_free(&f->at);
}

/* ---- info ---- */
static teng_status train_memory(const folder *f, tg_folder_info *out)
{
    const tg_param_info *params;
    size_t n;
    int64_t products = out->lm.tied ? out->lm.vocab_size * out->lm.hidden_size : 0, small = 0;
    TG_TRY(tg_nn_params(f->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        const teng_role role = params[i].init.role;
        if (role == TENG_ROLE_WEIGHT) products += tg_desc_numel(&params[i].desc);
        if (role == TENG_ROLE_BIAS || role == TENG_ROLE_NORM) small += tg_desc_numel(&params[i].desc);
    }
    const uint64_t f32 = (uint64_t)out->lm.params * 4 * 4;
    out->train_bytes[TENG_O0] = f32;
    out->train_bytes[TENG_O1] = out->train_bytes[TENG_O2] = f32 + (uint64_t)products * 2;
    out->train_bytes[TENG_O3] = f32 + (uint64_t)(products + small) * 2;
    return TENG_OK;
}

teng_status tg_folder_get_info(const char *dir, tg_folder_info *out)
{
    folder f = {0};
    *out = (tg_folder_info){0};
    teng_status status = open_folder(&f, dir, TENG_DTYPE_COUNT);
    if (status == TENG_OK) status = tg_lm_get_info(f.cell, &out->lm);
    if (status == TENG_OK) {
        out->tensors = tg_weights_count(f.weights);
        for (size_t i = 0; i < out->tensors; i++) {
            const tg_st_tensor *t = tg_weights_at(f.weights, i);
            out->bytes += tg_desc_bytes(&t->desc);
            out->elements[t->desc.dtype] += tg_desc_numel(&t->desc);
        }
        out->flops_per_token = tg_lm_flops_per_token(&out->lm, out->lm.max_positions);
        status = train_memory(&f, out);
        out->lm.embedding = NULL; /* the cell's */
    }
    close_folder(&f);
    return status;
}

/* ---- convert ---- */
static teng_status write_folder(folder *f, const char *out, uint64_t shard_bytes)
{
    json_t *config = NULL;
    const char *full = teng_lm_config(f->cell);
    teng_status status = tg_json_parse("config.json", full, strlen(full), &config);
    if (status == TENG_OK) status = tg_hf_set_dtype(config, f->items.data[0].desc.dtype);
    if (status == TENG_OK) {
        const tg_hf_folder written = {.config = config,
                                      .items = f->items.data,
                                      .item_count = f->items.len,
                                      .shard_bytes = shard_bytes,
                                      .tokenizer_dir = f->at.tokenizer};
        status = tg_hf_save(out, &written);
    }
    json_decref(config);
    return status;
}

teng_status tg_folder_convert(const char *in, const char *out, teng_dtype dtype, uint64_t shard_bytes)
{
    folder f = {0};
    teng_status status = open_folder(&f, in, dtype);
    if (status == TENG_OK) status = write_folder(&f, out, shard_bytes);
    close_folder(&f);
    return status;
}

/* ---- diff ---- */
static teng_status add_diff(tg_folder_diffs *out, const char *name, char *problem, tg_folder_diff diff,
                            bool is_problem)
{
    diff.name = tg_strdup(name);
    diff.problem = problem;
    if (diff.name && (problem || !is_problem) && tg_vec_push(out, diff)) return TENG_OK;
    tg_free(diff.name);
    tg_free(problem);
    return TENG_MEMORY;
}

static teng_status add_problem(tg_folder_diffs *out, const char *name, char *problem)
{
    return add_diff(out, name, problem, (tg_folder_diff){0}, true);
}

/* In the file, or of a tensor in pieces put together in *own. NULL and an error. */
static const void *values_of(const tg_st_tensor *t, void **own)
{
    if (t->data) return t->data;
    *own = tg_alloc(tg_desc_bytes(&t->desc) + 1);
    return *own && tg_st_read(t, &t->desc, *own) == TENG_OK ? *own : NULL;
}

static teng_status compare_tensor(const tg_st_tensor *a, const tg_st_tensor *b, tg_folder_diffs *out)
{
    char ta[TG_DESC_TEXT], tb[TG_DESC_TEXT];
    teng_desc same = a->desc;
    same.dtype = b->desc.dtype;
    if (!tg_desc_equal(&same, &b->desc))
        return add_problem(out, a->name,
                           tg_asprintf("%s and %s", tg_desc_text(ta, &a->desc), tg_desc_text(tb, &b->desc)));
    tg_diff diff;
    void *own[2] = {NULL, NULL};
    const void *x = values_of(a, &own[0]), *y = values_of(b, &own[1]);
    if (x && y) tg_compare(a->desc.dtype, x, b->desc.dtype, y, tg_desc_numel(&a->desc), &diff);
    const bool bits = x && y && a->desc.dtype == b->desc.dtype && memcmp(x, y, tg_desc_bytes(&a->desc)) == 0;
    tg_free(own[0]);
    tg_free(own[1]);
    tg_st_forget(a);
    tg_st_forget(b);
    if (!x || !y) return teng_error_status();
    return add_diff(out, a->name, NULL,
                    (tg_folder_diff){.same_bits = bits, .max_abs = diff.max_abs, .rel_l2 = diff.rel_l2},
                    false);
}

static int worst_first(const void *a, const void *b)
{
    const tg_folder_diff *x = a, *y = b;
    const double u = x->problem ? INFINITY : x->rel_l2, v = y->problem ? INFINITY : y->rel_l2;
    if (u != v) return u > v ? -1 : 1;
    if (x->same_bits != y->same_bits) return x->same_bits ? 1 : -1;
    return strcmp(x->name, y->name);
}

static teng_status compare_all(const tg_weights *a, const tg_weights *b, tg_folder_diffs *out)
{
    for (size_t i = 0; i < tg_weights_count(a); i++) {
        const tg_st_tensor *t = tg_weights_at(a, i), *other = tg_weights_find(b, t->name);
        if (other)
            TG_TRY(compare_tensor(t, other, out));
        else
            TG_TRY(add_problem(out, t->name, tg_strdup("only in the first")));
    }
    for (size_t i = 0; i < tg_weights_count(b); i++)
        if (!tg_weights_find(a, tg_weights_at(b, i)->name))
            TG_TRY(add_problem(out, tg_weights_at(b, i)->name, tg_strdup("only in the second")));
    if (out->len) qsort(out->data, out->len, sizeof *out->data, worst_first);
    return TENG_OK;
}

/* Of a run folder those that count; weights alone need no configuration beside them. */
static teng_status open_weights(const char *path, tg_weights **out)
{
    tg_lm_places at = {0};
    const bool found = tg_path_is_dir(path) && tg_lm_places_find(path, &at) == TENG_OK;
    if (!found) teng_error_clear();
    const teng_status status = tg_weights_open(found ? at.weights : path, out);
    tg_lm_places_free(&at);
    return status;
}

teng_status tg_folder_compare(const char *a, const char *b, tg_folder_diffs *out)
{
    tg_weights *wa = NULL, *wb = NULL;
    *out = (tg_folder_diffs){0};
    teng_status status = open_weights(a, &wa);
    if (status == TENG_OK) status = open_weights(b, &wb);
    if (status == TENG_OK) status = compare_all(wa, wb, out);
    tg_weights_close(&wa);
    tg_weights_close(&wb);
    return status;
}

void tg_folder_diffs_free(tg_folder_diffs *diffs)
{
    for (size_t i = 0; i < diffs->len; i++) {
        tg_free(diffs->data[i].name);
        tg_free(diffs->data[i].problem);
    }
    tg_vec_free(diffs);
}
