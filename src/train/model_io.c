/* Values in and out of a public model: resume, forward, single parameters, files and folders of weights. */
#include "base/fail.h"
#include "base/file.h"
#include "tensor/desc.h"
#include "train/model_impl.h"

#include <inttypes.h>
#include <string.h>

/* ---- resume ---- */
static teng_status same_training(const teng_model *m, const teng_dataset *d, const tg_ckpt *ck)
{
    const json_t *state = tg_ckpt_state(ck);
    int64_t seed = 0;
    const char *identity = NULL;
    TG_TRY(tg_json_get_int(state, "state.json", "seed", true, &seed));
    TG_TRY(tg_json_get_string(state, "state.json", "dataset", false, &identity));
    if ((uint64_t)seed != m->seed)
        return tg_fail(TENG_INVALID,
                       "checkpoint %s was made with seed %" PRId64 ", the model has seed %" PRIu64
                       ": give it the same",
                       tg_ckpt_path(ck), seed, m->seed);
    if (d && identity && strcmp(identity, d->identity) != 0)
        return tg_fail(
            TENG_INVALID,
            "checkpoint %s is of a training on another dataset (%s) than this one (%s): give the same "
            "data, or no dataset to begin it anew",
            tg_ckpt_path(ck), identity, d->identity);
    return TENG_OK;
}

teng_status teng_model_resume(teng_model *model, teng_dataset *dataset, const char *dir)
{
    char *latest = NULL;
    tg_ckpt *ck = NULL;
    TG_TRY(tg_ckpt_latest(dir, false, &latest));
    if (!latest) return TENG_OK;
    teng_status status = tg_ckpt_open(latest, false, &ck);
    tg_free(latest);
    if (status == TENG_OK) status = same_training(model, dataset, ck);
    if (status == TENG_OK) status = tg_core_restore(model->core, ck, dataset ? &dataset->source : NULL);
    tg_ckpt_close(&ck);
    return status;
}

/* ---- values ---- */
teng_status teng_model_forward(teng_model *model, const teng_input *inputs, const void *const *data, int n,
                               float *out, int64_t n_out)
{
    if (n < 1 || n >= TENG_MAX_INPUTS)
        return tg_fail(TENG_INVALID, "teng_model_forward: %d inputs; 1 to %d are possible", n,
                       TENG_MAX_INPUTS - 1);
    TG_TRY(tg_model_ready(model));
    teng_desc desc[TENG_MAX_INPUTS] = {0};
    const char *name[TENG_MAX_INPUTS];
    for (int i = 0; i < n; i++) {
        desc[i] = inputs[i].desc;
        name[i] = inputs[i].name;
    }
    /* A forward leaves out the last operand, which in training is the labels. */
    desc[n] = tg_desc_make(TENG_I32, 0, NULL);
    name[n] = "labels";
    const tg_step_feed feed = {.in_desc = desc, .in = data, .in_name = name, .n_in = n + 1, .weight = 1.0};
    return tg_step_forward(model->core->step, &feed, out, sizeof *out * (size_t)n_out);
}

teng_status teng_model_read(teng_model *model, const char *name, float *out, int64_t n)
{
    TG_TRY(tg_model_ready(model));
    const tg_store_entry *e = tg_store_find(model->core->store, name);
    if (!e || e->kind != TG_STORE_PARAM)
        return tg_fail(TENG_INVALID, "teng_model_read: the model has no parameter %s", name);
    if (tg_desc_numel(&e->desc) != n) {
        char text[TG_DESC_TEXT];
        return tg_fail(TENG_INVALID, "teng_model_read: parameter %s is %s, room is for %" PRId64 " floats",
                       name, tg_desc_text(text, &e->desc), n);
    }
    return tg_device_copy(model->core->dev, NULL, TG_COPY_TO_HOST, out, e->data, tg_desc_bytes(&e->desc));
}

/* ---- files ---- */
static bool is_weights_file(const char *path)
{
    static const char end[] = ".safetensors";
    const size_t n = strlen(path), m = sizeof end - 1;
    return n > m && strcmp(path + n - m, end) == 0;
}

static teng_status save_file(tg_core *core, const char *path)
{
    tg_arena *arena = tg_arena_create();
    tg_folder_items items = {0};
    teng_status status = arena ? tg_core_folder_items(core, arena, &items) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_st_write(path, items.data, items.len, NULL, NULL);
    tg_vec_free(&items);
    tg_arena_destroy(&arena);
    return status;
}

/* The tokenizer is no file yet: it is written into the folder when that is there. */
static teng_status save_folder(tg_core *core, const char *dir, const tg_tokenizer *tokenizer)
{
    TG_TRY(tg_core_save_folder(core, dir, tokenizer, NULL));
    if (!tokenizer) return TENG_OK;
    char *path = tg_path_join(dir, "tokenizer.json");
    const teng_status status = path ? tg_tokenizer_save(tokenizer, path) : TENG_MEMORY;
    tg_free(path);
    return status;
}

teng_status teng_model_save(teng_model *model, const char *path, const teng_dataset *dataset)
{
    TG_TRY(tg_model_ready(model));
    return is_weights_file(path) ? save_file(model->core, path)
                                 : save_folder(model->core, path, dataset ? dataset->tokenizer : NULL);
}

teng_status teng_model_load(teng_model *model, const char *path)
{
    return tg_core_load_path(model->core, path);
}
