/*
 * The tokenizer of a run: where it comes from and what of it goes into the run folder. A run that continues a
 * model folder takes its files as they are, so that special tokens, chat template and settings of generation
 * arrive with the trained model; any other run writes a tokenizer.json.
 */
#include "base/fail.h"
#include "base/file.h"
#include "train/run_impl.h"

#include <string.h>

/* The tokenizer.json beside the weights that the run begins from, unless another is named; NULL: none. */
static teng_status of_model(const tg_config *cfg, char **out)
{
    *out = NULL;
    if (!cfg->model.from || tg_config_is_given(cfg, "data.tokenizer")) return TENG_OK;
    *out = tg_path_join(cfg->model.from, "tokenizer.json");
    if (!*out) return TENG_MEMORY;
    if (tg_path_exists(*out)) return TENG_OK;
    tg_free(*out);
    *out = NULL;
    return TENG_OK;
}

teng_status tg_run_open_tokenizer(const tg_config *cfg, tg_tokenizer **out)
{
    char *own = NULL;
    TG_TRY(of_model(cfg, &own));
    const char *name = own ? own : cfg->data.tokenizer;
    const teng_status status =
        strcmp(name, "bytes") == 0 ? tg_tokenizer_bytes(NULL, 0, out) : tg_tokenizer_load(name, out);
    tg_free(own);
    return status == TENG_OK ? TENG_OK : tg_fail_context("data.tokenizer");
}

teng_status tg_run_write_tokenizer(const tg_config *cfg, const tg_tokenizer *tokenizer)
{
    char *own = NULL;
    TG_TRY(of_model(cfg, &own));
    const bool copy = own != NULL;
    tg_free(own);
    if (copy) return tg_hf_copy_side_files(cfg->model.from, cfg->run.dir);
    char *path = tg_path_join(cfg->run.dir, "tokenizer.json");
    const teng_status status = path ? tg_tokenizer_save(tokenizer, path) : TENG_MEMORY;
    tg_free(path);
    return status;
}

teng_status tg_run_remove_tokenizer(const tg_config *cfg)
{
    for (int i = 0; tg_hf_side_files[i]; i++) {
        char *path = tg_path_join(cfg->run.dir, tg_hf_side_files[i]);
        const teng_status status = path ? tg_remove_tree(path) : TENG_MEMORY;
        tg_free(path);
        if (status != TENG_OK) return status;
    }
    return TENG_OK;
}
