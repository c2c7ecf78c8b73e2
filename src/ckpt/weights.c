/*
 * A set of weights under one map of names: a single safetensors file, or an index with shards. The index must
 * agree with its shards in both directions; a model with a tensor missing or taken from the wrong file would
 * train on.
 */
#include "ckpt/checkpoint.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/vec.h"

#include <string.h>

struct tg_weights {
    TG_VEC(tg_st_file *) files;
    TG_VEC(const tg_st_tensor *) tensors;
    tg_strmap *by_name;
    tg_ckpt *ck; /* of a checkpoint, which then owns the tensors; NULL: files do */
};

static teng_status add_tensor(tg_weights *w, const tg_st_tensor *t)
{
    int64_t former;
    if (tg_strmap_get(w->by_name, t->name, strlen(t->name), &former))
        return tg_fail(TENG_FORMAT, "tensor \"%.200s\" is in two files: %s and %s", t->name,
                       w->tensors.data[former]->file, t->file);
    return tg_strmap_set(w->by_name, t->name, strlen(t->name), (int64_t)w->tensors.len, NULL) &&
                   tg_vec_push(&w->tensors, t)
               ? TENG_OK
               : teng_error_status();
}

/* Opens one file and enters its tensors. */
static teng_status add_file(tg_weights *w, const char *path)
{
    tg_st_file *file;
    TG_TRY(tg_st_open(path, &file));
    if (!tg_vec_push(&w->files, file)) {
        tg_st_close(&file);
        return teng_error_status();
    }
    for (size_t i = 0; i < tg_st_count(file); i++)
        TG_TRY(add_tensor(w, tg_st_at(file, i)));
    return TENG_OK;
}

static teng_status add_checkpoint(tg_weights *w, const char *path)
{
    TG_TRY(tg_ckpt_open(path, false, &w->ck));
    for (size_t i = 0; i < tg_ckpt_count(w->ck, "model"); i++)
        TG_TRY(add_tensor(w, tg_ckpt_at(w->ck, "model", i)));
    return TENG_OK;
}

/* A shard is a file beside the index: a name with a folder in it could reach anywhere. */
static teng_status check_shard_name(const char *index, const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value);
    if (!name) return tg_fail(TENG_FORMAT, "%s: weight_map.%.200s must be a file name", index, tensor);
    if (!*name || strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        return tg_fail(TENG_FORMAT,
                       "%s: weight_map.%.200s: \"%.200s\" is not the name of a file beside the index", index,
                       tensor, name);
    return TENG_OK;
}

static char *beside(const char *path, const char *name)
{
    return tg_asprintf("%.*s%s", (int)(tg_path_base(path) - path), path, name);
}

static teng_status add_shards(tg_weights *w, const char *index, json_t *weight_map, tg_strmap *shards)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value)
    {
        bool existed;
        TG_TRY(check_shard_name(index, tensor, value));
        const char *name = json_string_value(value);
        if (!tg_strmap_set(shards, name, strlen(name), 0, &existed)) return teng_error_status();
        if (existed) continue;
        char *path = beside(index, name);
        if (!path) return teng_error_status();
        teng_status status =
            tg_path_exists(path)
                ? add_file(w, path)
                : tg_fail(TENG_IO, "%s: the shard %.200s, which holds tensor \"%.200s\", is missing", index,
                          name, tensor);
        tg_free(path);
        TG_TRY(status);
    }
    return TENG_OK;
}

static teng_status check_index(const tg_weights *w, const char *index, json_t *weight_map)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value)
    {
        const tg_st_tensor *t = tg_weights_find(w, tensor);
        const char *name = json_string_value(value);
        if (!t || strcmp(tg_path_base(t->file), name) != 0)
            return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\" is listed for %.200s, but %s%s", index, tensor,
                           name, t ? "lies in " : "that file does not hold it", t ? t->file : "");
    }
    for (size_t i = 0; i < w->tensors.len; i++)
        if (!json_object_get(weight_map, w->tensors.data[i]->name))
            return tg_fail(TENG_FORMAT, "%s: tensor \"%.200s\" lies in %s, but the index does not list it",
                           index, w->tensors.data[i]->name, w->tensors.data[i]->file);
    return TENG_OK;
}

static teng_status add_index(tg_weights *w, const char *path)
{
    json_t *index = NULL;
    TG_TRY(tg_json_load_file(path, &index));
    json_t *weight_map = json_object_get(index, "weight_map");
    tg_strmap *shards = tg_strmap_create();
    teng_status status = shards ? TENG_OK : teng_error_status();
    if (!json_is_object(weight_map))
        status = tg_fail(TENG_FORMAT, "%s: the object \"weight_map\" is missing", path);
    if (status == TENG_OK) status = add_shards(w, path, weight_map, shards);
    if (status == TENG_OK) status = check_index(w, path, weight_map);
    tg_strmap_destroy(&shards);
    json_decref(index);
    return status;
}

/* What a folder without safetensors may hold instead, so that the message can help. */
static teng_status nothing_found(const char *dir)
{
    char *pickle = tg_path_join(dir, "pytorch_model.bin");
    bool has_pickle = pickle && tg_path_exists(pickle);
    tg_free(pickle);
    return tg_fail(TENG_IO,
                   "%s: neither model.safetensors nor model.safetensors.index.json is in this folder%s", dir,
                   has_pickle ? " (pytorch_model.bin is a pickle, which is never read: convert it with "
                                "save_pretrained(..., safe_serialization=True))"
                              : "");
}

static teng_status add_folder(tg_weights *w, const char *dir)
{
    char *single = tg_path_join(dir, "model.safetensors"),
         *index = tg_path_join(dir, "model.safetensors.index.json"), *state = tg_path_join(dir, "state.json");
    teng_status status;
    if (!single || !index || !state)
        status = teng_error_status();
    else if (tg_path_exists(single)) /* the order that transformers looks in */
        status = add_file(w, single);
    else if (tg_path_exists(index))
        status = add_index(w, index);
    else if (tg_path_exists(state))
        status = add_checkpoint(w, dir);
    else
        status = nothing_found(dir);
    tg_free(single);
    tg_free(state);
    tg_free(index);
    return status;
}

teng_status tg_weights_open(const char *path, tg_weights **out)
{
    *out = NULL;
    tg_weights *w = tg_calloc(1, sizeof *w);
    if (!w) return teng_error_status();
    w->by_name = tg_strmap_create();
    size_t len = strlen(path);
    teng_status status;
    if (!w->by_name)
        status = teng_error_status();
    else if (tg_path_is_dir(path))
        status = add_folder(w, path);
    else if (len > 5 && strcmp(path + len - 5, ".json") == 0)
        status = add_index(w, path);
    else
        status = add_file(w, path);
    if (status != TENG_OK)
        tg_weights_close(&w);
    else
        *out = w;
    return status;
}

void tg_weights_close(tg_weights **weights)
{
    if (!weights || !*weights) return;
    tg_weights *w = *weights;
    for (size_t i = 0; i < w->files.len; i++)
        tg_st_close(&w->files.data[i]);
    tg_vec_free(&w->files);
    tg_ckpt_close(&w->ck);
    tg_vec_free(&w->tensors);
    tg_strmap_destroy(&w->by_name);
    tg_free(w);
    *weights = NULL;
}

size_t tg_weights_count(const tg_weights *weights)
{
    return weights->tensors.len;
}

const tg_st_tensor *tg_weights_at(const tg_weights *weights, size_t i)
{
    return i < weights->tensors.len ? weights->tensors.data[i] : NULL;
}

const tg_st_tensor *tg_weights_find(const tg_weights *weights, const char *name)
{
    int64_t i;
    return tg_strmap_get(weights->by_name, name, strlen(name), &i) ? weights->tensors.data[i] : NULL;
}
