/*
 * The layout of a checkpoint folder and the test whether one is whole. Sizes and hashes of all files are in
 * state.json, and state.json carries a hash of itself, so that no flipped bit goes unseen.
 */
#include "ckpt/ckpt_layout.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"

#define XXH_STATIC_LINKING_ONLY /* the state on the stack instead of xxHash's own malloc */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

char *tg_ckpt_folder(const char *root, int64_t step, const char *suffix)
{
    return tg_asprintf("%s/step-%08" PRId64 "%s", root, step, suffix);
}

bool tg_ckpt_parse_name(const char *name, const char *suffix, int64_t *step)
{
    char again[64];
    if (strncmp(name, "step-", 5) != 0) return false;
    long long value = strtoll(name + 5, NULL, 10);
    *step = (int64_t)value;
    snprintf(again, sizeof again, "step-%08lld%s", value, suffix);
    return value >= 0 && strcmp(name, again) == 0;
}

static int rising(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

teng_status tg_ckpt_list(const char *root, const char *suffix, tg_ckpt_steps *out)
{
    char **names;
    size_t count;
    int64_t step;
    *out = (tg_ckpt_steps){0};
    if (!tg_path_exists(root)) return TENG_OK;
    TG_TRY(tg_list_dir(root, &names, &count));
    teng_status status = TENG_OK;
    for (size_t i = 0; i < count && status == TENG_OK; i++)
        if (tg_ckpt_parse_name(names[i], suffix, &step) && !tg_vec_push(out, step))
            status = teng_error_status();
    tg_names_free(names, count);
    if (status != TENG_OK)
        tg_vec_free(out);
    else if (out->len)
        qsort(out->data, out->len, sizeof *out->data, rising);
    return status;
}

static void hash_text(char *text, uint64_t hash)
{
    snprintf(text, 17, "%016" PRIx64, hash);
}

teng_status tg_ckpt_state_hash(const json_t *state, char *text)
{
    json_t *bare = json_copy((json_t *)(uintptr_t)state);
    json_t *about = json_copy(json_object_get(state, "checkpoint"));
    json_object_del(about, "xxh3");
    char *compact = json_object_set_new(bare, "checkpoint", about) == 0 ? tg_json_text(bare, 0) : NULL;
    json_decref(bare);
    if (!compact) return tg_fail(TENG_MEMORY, "out of memory for the hash of a checkpoint's state");
    hash_text(text, tg_hash64(compact, strlen(compact), 0));
    tg_free(compact);
    return TENG_OK;
}

teng_status tg_ckpt_file_hash(const char *path, uint64_t *bytes, char *text)
{
    static const size_t step = 4 << 20;
    tg_map map;
    XXH3_state_t hash;
    TG_TRY(tg_map_open(path, &map));
    *bytes = map.size;
    XXH3_INITSTATE(&hash);
    XXH3_64bits_reset(&hash);
    for (size_t at = 0; at < map.size; at += step) { /* the file may be larger than memory */
        const size_t n = map.size - at < step ? map.size - at : step;
        XXH3_64bits_update(&hash, map.data + at, n);
        tg_map_forget(map.data + at, n);
    }
    hash_text(text, XXH3_64bits_digest(&hash));
    tg_map_close(&map);
    return TENG_OK;
}

static teng_status check_file(const char *folder, const char *name, const json_t *about, bool hashes)
{
    int64_t bytes = 0;
    const char *want = NULL;
    TG_TRY(tg_json_get_int(about, "state.json", "bytes", true, &bytes));
    TG_TRY(tg_json_get_string(about, "state.json", "xxh3", true, &want));
    if (!*name || strchr(name, '/'))
        return tg_fail(TENG_FORMAT, "state.json: \"%.200s\" is not the name of a file in the folder", name);
    char *path = tg_path_join(folder, name);
    if (!path) return teng_error_status();
    int64_t found = tg_file_size(path);
    uint64_t size = 0;
    char have[17];
    teng_status status = TENG_OK;
    if (found < 0)
        status = tg_fail(TENG_FORMAT, "%s is missing", name);
    else if (found != bytes)
        status = tg_fail(TENG_FORMAT, "%s has %lld bytes, %lld were written", name, (long long)found,
                         (long long)bytes);
    else if (hashes)
        status = tg_ckpt_file_hash(path, &size, have);
    if (status == TENG_OK && hashes && strcmp(have, want) != 0)
        status = tg_fail(TENG_FORMAT, "%s has the hash %s, %s was written: its %lld bytes have changed", name,
                         have, want, (long long)bytes);
    tg_free(path);
    return status;
}

static teng_status check_state(const char *folder, const json_t *state, bool hashes)
{
    const json_t *about = json_object_get(state, "checkpoint");
    int64_t version = 0;
    const char *want = NULL, *name;
    json_t *file;
    char have[17];
    if (!json_is_object(about))
        return tg_fail(TENG_FORMAT,
                       "state.json: the object \"checkpoint\" is missing: not a checkpoint of teng");
    TG_TRY(tg_json_get_int(about, "state.json: checkpoint", "version", true, &version));
    if (version != TG_CKPT_VERSION && version != TG_CKPT_VERSION_PARTS)
        return tg_fail(TENG_UNSUPPORTED,
                       "state.json: checkpoint.version is %lld, this program reads versions %d and %d",
                       (long long)version, TG_CKPT_VERSION, TG_CKPT_VERSION_PARTS);
    TG_TRY(tg_json_get_string(about, "state.json: checkpoint", "xxh3", true, &want));
    TG_TRY(tg_ckpt_state_hash(state, have));
    if (strcmp(have, want) != 0)
        return tg_fail(TENG_FORMAT, "state.json has the hash %s, %s was written: it has changed", have, want);
    json_t *files = json_object_get(about, "files");
    if (!json_is_object(files)) return tg_fail(TENG_FORMAT, "state.json: checkpoint.files is missing");
    json_object_foreach(files, name, file)
    {
        TG_TRY(check_file(folder, name, file, hashes));
    }
    return TENG_OK;
}

teng_status tg_ckpt_check(const char *path, bool hashes, json_t **state)
{
    *state = NULL;
    char *file = tg_path_join(path, "state.json");
    if (!file) return teng_error_status();
    teng_status status =
        tg_path_exists(file) ? tg_json_load_file(file, state) : tg_fail(TENG_FORMAT, "state.json is missing");
    tg_free(file);
    if (status == TENG_OK) status = check_state(path, *state, hashes);
    if (status == TENG_OK) return TENG_OK;
    json_decref(*state);
    *state = NULL;
    tg_fail_context("checkpoint %s cannot be used", path);
    return status;
}
