/*
 * Opening a trained model for use: finds configuration, weights and tokenizer in a Hugging Face style folder
 * or in a run folder. Of a run the newest checkpoint counts, since model/ is complete only when a run has
 * ended.
 */
#include "base/fail.h"
#include "base/file.h"
#include "ckpt/hf_folder.h"
#include "train/lm_impl.h"

#include <string.h>

void tg_lm_places_free(tg_lm_places *p)
{
    tg_free(p->config);
    tg_free(p->weights);
    tg_free(p->tokenizer);
    *p = (tg_lm_places){0};
}

static bool holds(const char *dir, const char *name)
{
    char *path = tg_path_join(dir, name);
    const bool there = path && tg_path_exists(path);
    tg_free(path);
    return there;
}

/* The newest checkpoint's weights; without a checkpoint those in model/, of a finished run. */
static teng_status run_weights(const char *dir, const char *model, char **out)
{
    char *root = tg_path_join(dir, "checkpoints"), *latest = NULL;
    teng_status status = root ? tg_ckpt_latest(root, true, &latest) : TENG_MEMORY;
    tg_free(root);
    if (status == TENG_OK && latest) {
        *out = tg_strdup(latest);
    } else if (status == TENG_OK) {
        if (!holds(model, "model.safetensors") && !holds(model, "model.safetensors.index.json"))
            return tg_fail(TENG_STATE, "run %s has no checkpoint yet: there are no weights to use", dir);
        *out = tg_strdup(model);
    }
    tg_free(latest);
    return status != TENG_OK ? status : *out ? TENG_OK : TENG_MEMORY;
}

/* A run folder, and one of its checkpoints or NULL: the newest. */
static teng_status run_places(const char *dir, const char *checkpoint, tg_lm_places *p)
{
    p->config = tg_path_join(dir, "model");
    if (!p->config) return TENG_MEMORY;
    if (!holds(p->config, "config.json"))
        return tg_fail(TENG_INVALID,
                       "%s holds no model: neither config.json (a model folder) nor model/config.json (a run "
                       "folder, or one of its checkpoints)",
                       checkpoint ? checkpoint : dir);
    p->tokenizer = tg_strdup(holds(p->config, "tokenizer.json") ? p->config : dir);
    if (!p->tokenizer) return TENG_MEMORY;
    if (!checkpoint) return run_weights(dir, p->config, &p->weights);
    p->weights = tg_strdup(checkpoint);
    return p->weights ? TENG_OK : TENG_MEMORY;
}

teng_status tg_lm_places_find(const char *dir, tg_lm_places *p)
{
    *p = (tg_lm_places){0};
    if (!tg_path_is_dir(dir))
        return tg_fail(TENG_IO,
                       "%s is not a folder; name a model folder (which holds config.json) or a run folder",
                       dir);
    if (holds(dir, "config.json")) {
        *p = (tg_lm_places){tg_strdup(dir), tg_strdup(dir), tg_strdup(dir)};
        return p->config && p->weights && p->tokenizer ? TENG_OK : TENG_MEMORY;
    }
    if (!holds(dir, "state.json")) return run_places(dir, NULL, p);
    char *run = tg_path_join(dir, "../.."); /* RUN/checkpoints/step-00000100 */
    const teng_status status = run ? run_places(run, dir, p) : TENG_MEMORY;
    tg_free(run);
    return status;
}

/* ---- tokens that end a text ---- */
static teng_status add_end(tg_lm *lm, const json_t *id)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= lm->info.vocab_size)
        return TENG_OK; /* some files name a token that the model does not have */
    return tg_vec_push(&lm->ends, (uint32_t)json_integer_value(id)) ? TENG_OK : TENG_MEMORY;
}

/* eos_token_id of the generation configuration, else of the model's: a number or a list; and the tokenizer's.
 */
static teng_status find_ends(tg_lm *lm, const char *dir, const json_t *config)
{
    json_t *generation = NULL;
    TG_TRY(tg_hf_read_generation_config(dir, &generation));
    const json_t *eos = json_object_get(generation, "eos_token_id");
    if (!eos || json_is_null(eos)) eos = json_object_get(config, "eos_token_id");
    teng_status status = add_end(lm, eos);
    for (size_t i = 0; i < json_array_size(eos) && status == TENG_OK; i++)
        status = add_end(lm, json_array_get(eos, i));
    json_decref(generation);
    const int64_t own = tg_tokenizer_eos(lm->tokenizer);
    if (status == TENG_OK && own >= 0 && !tg_vec_push(&lm->ends, (uint32_t)own)) status = TENG_MEMORY;
    return status;
}

/* ---- the parts ---- */
static teng_status open_cell(tg_lm *lm, const json_t *config)
{
    lm->cell = tg_lm_create_json(config);
    if (!lm->cell) return teng_error_status();
    TG_TRY(tg_lm_score_labels_only(lm->cell));
    return tg_lm_get_info(lm->cell, &lm->info);
}

static teng_status open_tokenizer(tg_lm *lm, const tg_lm_places *p)
{
    TG_TRY(tg_tokenizer_load(p->tokenizer, &lm->tokenizer));
    lm->usable = tg_tokenizer_vocab_size(lm->tokenizer);
    if ((int64_t)lm->usable <= lm->info.vocab_size) return TENG_OK;
    return tg_fail(TENG_FORMAT,
                   "the tokenizer in %s has %u tokens and the model in %s has vocab_size %lld: they do not "
                   "belong together",
                   p->tokenizer, lm->usable, p->config, (long long)lm->info.vocab_size);
}

/* Weights that are all of one 16-bit type stay so: half the memory, and half of what each token has to read.
 */
static teng_status keep_type(tg_lm *lm, const tg_weights *weights)
{
    const teng_dtype type = tg_weights_at(weights, 0) ? tg_weights_at(weights, 0)->desc.dtype : TENG_F32;
    if (type != TENG_BF16 && type != TENG_F16) return TENG_OK;
    for (size_t i = 0; i < tg_weights_count(weights); i++)
        if (tg_weights_at(weights, i)->desc.dtype != type) return TENG_OK;
    return tg_lm_store_weights(lm->cell, type);
}

static teng_status open_weights(tg_lm *lm, const char *path, const tg_device *dev)
{
    static const char *const passes[] = {"default"};
    const tg_step_options options = {.micro_batches = 1, .passes = passes, .n_passes = 1};
    tg_weights *weights;
    TG_TRY(tg_weights_open(path, &weights));
    teng_status status = keep_type(lm, weights);
    if (status == TENG_OK)
        status = tg_core_create(lm->cell, dev->info.kind, dev->info.threads, &options, NULL, &lm->core);
    if (status == TENG_OK) status = tg_core_load_weights(lm->core, weights);
    tg_weights_close(&weights);
    return status;
}

static teng_status open_from(tg_lm *lm, const tg_lm_places *p, const tg_device *dev)
{
    json_t *config;
    TG_TRY(tg_hf_read_config(p->config, &config));
    teng_status status = open_cell(lm, config);
    if (status == TENG_OK) status = open_tokenizer(lm, p);
    if (status == TENG_OK) status = find_ends(lm, p->config, config);
    json_decref(config);
    if (status != TENG_OK) return status;
    return open_weights(lm, p->weights, dev);
}

teng_status tg_lm_open(const char *dir, tg_device *dev, tg_lm **out)
{
    tg_lm_places p = {0};
    tg_lm *lm = tg_calloc(1, sizeof *lm);
    teng_status status = lm ? tg_lm_places_find(dir, &p) : TENG_MEMORY;
    if (status == TENG_OK) status = open_from(lm, &p, dev);
    tg_lm_places_free(&p);
    if (status != TENG_OK) {
        tg_lm_close(&lm);
        return status;
    }
    *out = lm;
    return TENG_OK;
}

void tg_lm_close(tg_lm **lm)
{
    tg_lm *l = *lm;
    if (!l) return;
    tg_step_destroy(&l->writer);
    tg_core_destroy(&l->core);
    teng_cell_destroy(&l->cell);
    tg_tokenizer_destroy(&l->tokenizer);
    tg_vec_free(&l->ends);
    tg_free(l);
    *lm = NULL;
}

const tg_tokenizer *tg_lm_tokenizer(const tg_lm *lm)
{
    return lm->tokenizer;
}

teng_cell *tg_lm_cell(tg_lm *lm)
{
    return lm->cell;
}
