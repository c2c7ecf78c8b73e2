/*
 * teng model info, convert and diff. A folder is opened through the model it describes, so that whatever was
 * written or counted has been checked; only the comparison looks at tensors alone.
 */
#include "train/model_folder.h"

#include "base/fail.h"
#include "base/file.h"
#include "ckpt/hf_folder.h"
#include "tensor/desc.h"
#include "train/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct folder {
    json_t *config;
    teng_cell *cell;
    tg_core *core;
    tg_weights *weights;
} folder;

static teng_status open_folder(folder *f, const char *dir)
{
    TG_TRY(tg_hf_read_config(dir, &f->config));
    f->cell = tg_lm_create_json(f->config);
    if (!f->cell) return teng_error_status();
    TG_TRY(tg_weights_open(dir, &f->weights));
    static const char *const passes[] = {"default"};
    const tg_step_options options = {.micro_batches = 1, .passes = passes, .n_passes = 1};
    TG_TRY(tg_core_create(f->cell, "cpu", 0, &options, NULL, &f->core));
    return tg_core_load_weights(f->core, f->weights);
}

static void close_folder(folder *f)
{
    tg_weights_close(&f->weights);
    tg_core_destroy(&f->core);
    teng_cell_destroy(&f->cell);
    json_decref(f->config);
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
    teng_status status = open_folder(&f, dir);
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
static teng_status convert_items(tg_folder_items *items, teng_dtype dtype, void **memory)
{
    size_t bytes = 0, at = 0;
    if (dtype == TENG_F32) return TENG_OK;
    for (size_t i = 0; i < items->len; i++)
        bytes += (size_t)(tg_desc_numel(&items->data[i].desc) * teng_dtype_size(dtype));
    *memory = tg_alloc(bytes + 1);
    if (!*memory) return TENG_MEMORY;
    for (size_t i = 0; i < items->len; i++) {
        tg_ckpt_item *item = &items->data[i];
        char *to = (char *)*memory + at;
        tg_convert(dtype, to, item->desc.dtype, item->data, tg_desc_numel(&item->desc));
        item->desc.dtype = dtype;
        item->data = to;
        at += tg_desc_bytes(&item->desc);
    }
    return TENG_OK;
}

static teng_status write_folder(folder *f, const char *in, const char *out, teng_dtype dtype,
                                uint64_t shard_bytes)
{
    tg_arena *arena = tg_arena_create();
    tg_folder_items items = {0};
    void *memory = NULL;
    json_t *config = NULL;
    const char *full = teng_lm_config(f->cell);
    teng_status status = arena ? tg_json_parse("config.json", full, strlen(full), &config) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_hf_set_dtype(config, dtype);
    if (status == TENG_OK) status = tg_core_folder_items(f->core, arena, &items);
    if (status == TENG_OK) status = convert_items(&items, dtype, &memory);
    if (status == TENG_OK) {
        const tg_hf_folder written = {.config = config,
                                      .items = items.data,
                                      .item_count = items.len,
                                      .shard_bytes = shard_bytes,
                                      .tokenizer_dir = in};
        status = tg_hf_save(out, &written);
    }
    json_decref(config);
    tg_vec_free(&items);
    tg_free(memory);
    tg_arena_destroy(&arena);
    return status;
}

teng_status tg_folder_convert(const char *in, const char *out, teng_dtype dtype, uint64_t shard_bytes)
{
    folder f = {0};
    teng_status status = open_folder(&f, in);
    if (status == TENG_OK && dtype == TENG_DTYPE_COUNT) {
        const teng_dtype first = tg_weights_at(f.weights, 0)->desc.dtype;
        dtype = first == TENG_F16 || first == TENG_BF16 ? first : TENG_F32;
    }
    if (status == TENG_OK) status = write_folder(&f, in, out, dtype, shard_bytes);
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

static teng_status compare_tensor(const tg_st_tensor *a, const tg_st_tensor *b, tg_folder_diffs *out)
{
    char ta[TG_DESC_TEXT], tb[TG_DESC_TEXT];
    teng_desc same = a->desc;
    same.dtype = b->desc.dtype;
    if (!tg_desc_equal(&same, &b->desc))
        return add_problem(out, a->name,
                           tg_asprintf("%s and %s", tg_desc_text(ta, &a->desc), tg_desc_text(tb, &b->desc)));
    tg_diff diff;
    tg_compare(a->desc.dtype, a->data, b->desc.dtype, b->data, tg_desc_numel(&a->desc), &diff);
    const bool bits =
        a->desc.dtype == b->desc.dtype && memcmp(a->data, b->data, tg_desc_bytes(&a->desc)) == 0;
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

teng_status tg_folder_compare(const char *a, const char *b, tg_folder_diffs *out)
{
    tg_weights *wa = NULL, *wb = NULL;
    *out = (tg_folder_diffs){0};
    teng_status status = tg_weights_open(a, &wa);
    if (status == TENG_OK) status = tg_weights_open(b, &wb);
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
