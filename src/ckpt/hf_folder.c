/*
 * Hugging Face style model folders: read the JSON, write the whole folder. The new folder is built beside the
 * old one and exchanged with it, so a crash never leaves a config of one model with the weights of another.
 */
#include "ckpt/hf_folder.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/folder_swap.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const tg_hf_side_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "spiece.model",
    "tekken.json",
    "vocab.txt",
    "generation_config.json",
    "preprocessor_config.json",
    NULL,
};

static teng_status read_object(const char *dir, const char *name, bool required, json_t **out)
{
    *out = NULL;
    char *path = tg_path_join(dir, name);
    if (!path) return teng_error_status();
    teng_status status = TENG_OK;
    if (tg_path_exists(path))
        status = tg_json_load_file(path, out);
    else if (required)
        status = tg_fail(TENG_IO, "%s: %s is missing: not a model folder?", dir, name);
    if (*out && !json_is_object(*out)) {
        status = tg_fail(TENG_FORMAT, "%s: a JSON object is expected", path);
        json_decref(*out);
        *out = NULL;
    }
    tg_free(path);
    return status;
}

teng_status tg_hf_read_config(const char *dir, json_t **out)
{
    return read_object(dir, "config.json", true, out);
}

teng_status tg_hf_read_generation_config(const char *dir, json_t **out)
{
    return read_object(dir, "generation_config.json", false, out);
}

teng_status tg_hf_set_dtype(json_t *config, teng_dtype dtype)
{
    const char *key = json_object_get(config, "torch_dtype") ? "torch_dtype" : "dtype";
    const char *name = dtype == TENG_F32 ? "float32" : dtype == TENG_F16 ? "float16" : "bfloat16";
    if (json_object_set_new(config, key, json_string(name)) == 0) return TENG_OK;
    return tg_fail(TENG_MEMORY, "config.json: out of memory");
}

/* ---- writing ---- */

static teng_status save_json(const char *dir, const char *name, const json_t *value)
{
    char *path = tg_path_join(dir, name);
    teng_status status = path ? tg_json_save_file(path, value) : teng_error_status();
    tg_free(path);
    return status;
}

static teng_status copy_into(const char *dir, const char *from)
{
    char *to = tg_path_join(dir, tg_path_base(from));
    teng_status status = to ? tg_file_copy(from, to) : teng_error_status();
    tg_free(to);
    return status;
}

teng_status tg_hf_copy_side_files(const char *from_dir, const char *to_dir)
{
    for (int i = 0; tg_hf_side_files[i]; i++) {
        char *from = tg_path_join(from_dir, tg_hf_side_files[i]);
        if (!from) return teng_error_status();
        teng_status status = tg_path_exists(from) ? copy_into(to_dir, from) : TENG_OK;
        tg_free(from);
        TG_TRY(status);
    }
    return TENG_OK;
}

static teng_status write_all(const char *dir, const tg_hf_folder *f)
{
    json_t *metadata =
        f->metadata ? json_incref((json_t *)(uintptr_t)f->metadata) : json_pack("{s:s}", "format", "pt");
    teng_status status = tg_st_write_sharded(dir, "model", f->items, f->item_count, f->shard_bytes, metadata);
    json_decref(metadata);
    TG_TRY(status);
    TG_TRY(save_json(dir, "config.json", f->config));
    if (f->tokenizer_dir) TG_TRY(tg_hf_copy_side_files(f->tokenizer_dir, dir));
    if (f->generation_config) TG_TRY(save_json(dir, "generation_config.json", f->generation_config));
    for (size_t i = 0; i < f->extra_count; i++)
        TG_TRY(copy_into(dir, f->extra_files[i]));
    return TENG_OK;
}

static bool is_weights(const char *name)
{
    static const char *const tails[] = {".safetensors", ".safetensors.index.json"};
    size_t len = strlen(name);
    if (strncmp(name, "model", 5) != 0) return false;
    for (int i = 0; i < 2; i++) {
        size_t tail = strlen(tails[i]);
        if (len > tail && strcmp(name + len - tail, tails[i]) == 0) return true;
    }
    return false;
}

/* Brings one entry of the old folder along: files by a link (a copy where links do not work), folders by a
 * move. */
static teng_status keep_entry(const char *from_dir, const char *to_dir, const char *name, bool folders)
{
    char *from = tg_path_join(from_dir, name), *to = tg_path_join(to_dir, name);
    teng_status status = from && to ? TENG_OK : teng_error_status();
    if (status == TENG_OK && !tg_path_exists(to) && tg_path_is_dir(from) == folders) {
        if (folders)
            status = tg_rename(from, to);
        else if (link(from, to) != 0)
            status = tg_file_copy(from, to);
    }
    tg_free(from);
    tg_free(to);
    return status;
}

static teng_status keep_others(const char *from_dir, const char *to_dir, bool folders)
{
    char **names;
    size_t count;
    TG_TRY(tg_list_dir(from_dir, &names, &count));
    teng_status status = TENG_OK;
    for (size_t i = 0; i < count && status == TENG_OK; i++)
        if (!is_weights(names[i])) status = keep_entry(from_dir, to_dir, names[i], folders);
    tg_names_free(names, count);
    return status;
}

/* Nothing, an empty folder, or a model folder may be replaced. */
static teng_status check_place(const char *dir)
{
    if (!tg_path_exists(dir)) return TENG_OK;
    if (!tg_path_is_dir(dir))
        return tg_fail(TENG_IO, "cannot save a model to %s: a file of that name exists", dir);
    char **names;
    size_t count;
    bool has_config = false;
    TG_TRY(tg_list_dir(dir, &names, &count));
    for (size_t i = 0; i < count; i++)
        has_config = has_config || strcmp(names[i], "config.json") == 0;
    tg_names_free(names, count);
    if (count == 0 || has_config) return TENG_OK;
    return tg_fail(
        TENG_INVALID,
        "cannot save a model to %s: the folder has other content and no config.json; choose a new name", dir);
}

static teng_status build_and_swap(const char *built, const char *dir, const tg_hf_folder *folder)
{
    bool exists = tg_path_exists(dir), exchanged = false;
    TG_TRY(tg_remove_tree(built));
    TG_TRY(tg_mkdirs(built));
    TG_TRY(write_all(built, folder));
    if (exists) TG_TRY(keep_others(dir, built, false));
    TG_TRY(tg_folder_swap(built, dir, &exchanged));
    return exchanged ? keep_others(built, dir, true) : TENG_OK;
}

teng_status tg_hf_save(const char *dir, const tg_hf_folder *folder)
{
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (!json_is_object(folder->config))
        return tg_fail(TENG_INVALID, "%s: the configuration of a model must be a JSON object", dir);
    char *place = tg_strndup(dir, len), *built = tg_asprintf("%.*s.saving", (int)len, dir);
    teng_status status = place && built ? check_place(place) : teng_error_status();
    if (status == TENG_OK) {
        status = build_and_swap(built, place, folder);
        teng_status removed = tg_remove_tree(built);
        if (status == TENG_OK) status = removed;
    }
    tg_free(place);
    tg_free(built);
    return status;
}
