/*
 * Writing and pruning checkpoints. Order of events: files into step-….tmp, each fsynced; state.json last; the
 * folder takes its name; only then are older checkpoints removed. Whatever goes wrong before the rename
 * leaves the former checkpoints untouched; what goes wrong after it (an old folder that cannot be removed) is
 * a warning.
 */
#include "ckpt/checkpoint.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/ckpt_layout.h"
#include "ckpt/folder_swap.h"
#include "ckpt/pieces.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool plain_name(const char *s)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return s && *s && s[strspn(s, allowed)] == '\0';
}

static teng_status check_arguments(const char *root, int64_t step, const tg_ckpt_item *items, size_t n,
                                   const json_t *state)
{
    if (step < 0)
        return tg_fail(TENG_INVALID, "%s: a checkpoint of step %" PRId64 " cannot be saved", root, step);
    if (state && !json_is_object(state))
        return tg_fail(TENG_INVALID, "%s: the state of a checkpoint must be a JSON object", root);
    for (size_t i = 0; i < n; i++)
        if (!plain_name(items[i].group))
            return tg_fail(TENG_INVALID,
                           "%s: tensor \"%.200s\" has the group \"%.100s\": letters, digits, _ and - only",
                           root, items[i].name ? items[i].name : "", items[i].group ? items[i].group : "");
    return TENG_OK;
}

static int by_name(const void *a, const void *b)
{
    const tg_ckpt_item *x = a, *y = b;
    return strcmp(x->name ? x->name : "", y->name ? y->name : "");
}

/* One file: the items of one group, gathered into `picked`. In the order of their names: a state that was
 * read has another order in memory than one that was made, and gives the same bytes. */
static teng_status write_group(const char *folder, const char *group, tg_ckpt_team team,
                               const tg_ckpt_item *items, size_t n, tg_ckpt_item *picked, json_t *files)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(items[i].group, group) == 0) picked[count++] = items[i];
    qsort(picked, count, sizeof *picked, by_name);
    char *name = team.ranks > 1 ? tg_asprintf("%s.%05d.safetensors", group, team.rank)
                                : tg_asprintf("%s.safetensors", group);
    char *path = name ? tg_path_join(folder, name) : NULL;
    json_t *metadata = tg_pieces_metadata(picked, count);
    tg_st_digest digest;
    char hash[17];
    teng_status status =
        path && metadata ? tg_st_write(path, picked, count, metadata, &digest) : teng_error_status();
    if (status == TENG_OK) {
        snprintf(hash, sizeof hash, "%016" PRIx64, digest.xxh3);
        json_t *about = json_pack("{s:I, s:s}", "bytes", (json_int_t)digest.bytes, "xxh3", hash);
        if (json_object_set_new(files, name, about) != 0)
            status = tg_fail(TENG_MEMORY, "%s: out of memory", path);
    }
    json_decref(metadata);
    tg_free(name);
    tg_free(path);
    return status;
}

static teng_status write_groups(const char *folder, tg_ckpt_team team, const tg_ckpt_item *items, size_t n,
                                json_t *files)
{
    tg_ckpt_item *picked = tg_calloc(n + 1, sizeof *picked);
    teng_status status = picked ? TENG_OK : teng_error_status();
    for (size_t i = 0; i < n && status == TENG_OK; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = strcmp(items[k].group, items[i].group) != 0;
        if (first) status = write_group(folder, items[i].group, team, items, n, picked, files);
    }
    tg_free(picked);
    return status;
}

/* state.json: the caller's members, then ours. */
static teng_status make_state(int64_t step, tg_ckpt_team team, const json_t *state, json_t *files,
                              json_t **out)
{
    char hash[17];
    json_t *whole = state ? json_copy((json_t *)(uintptr_t)state) : json_object();
    json_t *about = json_pack("{s:i, s:O}", "version",
                              team.ranks > 1 ? TG_CKPT_VERSION_PARTS : TG_CKPT_VERSION, "files", files);
    *out = whole;
    if (json_object_set_new(whole, "step", json_integer((json_int_t)step)) != 0 ||
        json_object_set_new(whole, "checkpoint", about) != 0)
        return tg_fail(TENG_MEMORY, "out of memory for the state of a checkpoint");
    TG_TRY(tg_ckpt_state_hash(whole, hash));
    if (json_object_set_new(about, "xxh3", json_string(hash)) != 0)
        return tg_fail(TENG_MEMORY, "out of memory for the state of a checkpoint");
    return TENG_OK;
}

static teng_status write_state(const char *folder, int64_t step, tg_ckpt_team team, const json_t *state,
                               json_t *files)
{
    json_t *whole = NULL;
    teng_status status = make_state(step, team, state, files, &whole);
    char *path = tg_path_join(folder, "state.json");
    if (status == TENG_OK) status = path ? tg_json_save_file(path, whole) : teng_error_status();
    json_decref(whole);
    tg_free(path);
    return status;
}

/* Folders that a save or a removal left behind when the process was killed. */
static teng_status remove_stale(const char *root)
{
    tg_ckpt_steps stale;
    TG_TRY(tg_ckpt_list(root, ".tmp", &stale));
    teng_status status = TENG_OK;
    for (size_t i = 0; i < stale.len && status == TENG_OK; i++) {
        char *path = tg_ckpt_folder(root, stale.data[i], ".tmp");
        status = path ? tg_remove_tree(path) : teng_error_status();
        tg_free(path);
    }
    tg_vec_free(&stale);
    return status;
}

static teng_status make_root(const char *root)
{
    if (tg_path_is_dir(root)) return TENG_OK;
    TG_TRY(tg_mkdirs(root));
    char *parent = tg_asprintf("%s/..", root);
    teng_status status = parent ? tg_fsync_dir(parent) : teng_error_status();
    tg_free(parent);
    return status;
}

/* Renames root/step-<step> so that it no longer counts. */
static teng_status rename_step(const char *root, int64_t step, const char *suffix)
{
    char *from = tg_ckpt_folder(root, step, ""), *to = tg_ckpt_folder(root, step, suffix);
    teng_status status = from && to ? tg_remove_tree(to) : teng_error_status();
    if (status == TENG_OK) status = tg_rename(from, to);
    tg_free(from);
    tg_free(to);
    return status;
}

static teng_status set_aside_later(const char *root, int64_t step)
{
    tg_ckpt_steps steps;
    TG_TRY(tg_ckpt_list(root, "", &steps));
    teng_status status = TENG_OK;
    for (size_t i = 0; i < steps.len && status == TENG_OK; i++) {
        if (steps.data[i] <= step) continue;
        status = rename_step(root, steps.data[i], ".superseded");
        if (status == TENG_OK)
            tg_warn("%s: step-%08" PRId64 " is later than the step %" PRId64
                    " just saved, so training left it behind; it is "
                    "now step-%08" PRId64 ".superseded",
                    root, steps.data[i], step, steps.data[i]);
    }
    tg_vec_free(&steps);
    return status;
}

teng_status tg_ckpt_prune(const char *root, int keep_max)
{
    tg_ckpt_steps steps;
    if (keep_max <= 0) return TENG_OK;
    TG_TRY(tg_ckpt_list(root, "", &steps));
    teng_status status = TENG_OK;
    for (size_t i = 0; i + (size_t)keep_max < steps.len && status == TENG_OK; i++) {
        /* renamed first: half-removed under its own name it would look damaged */
        status = rename_step(root, steps.data[i], ".tmp");
        char *path = tg_ckpt_folder(root, steps.data[i], ".tmp");
        if (status == TENG_OK) status = path ? tg_remove_tree(path) : teng_error_status();
        tg_free(path);
    }
    tg_vec_free(&steps);
    return status;
}

/* After the checkpoint is safe: its predecessors. A failure here is no failure of the save. */
static void tidy(const char *root, int64_t step, const char *temp, bool exchanged, int keep_max)
{
    tg_error before, after;
    tg_error_take(&before);
    teng_status status = exchanged ? tg_remove_tree(temp) : TENG_OK;
    if (status == TENG_OK) status = set_aside_later(root, step);
    if (status == TENG_OK) status = tg_ckpt_prune(root, keep_max);
    tg_error_take(&after);
    if (status != TENG_OK)
        tg_warn("the checkpoint of step %" PRId64 " was saved, but old ones could not be removed: %s", step,
                after.message);
    if (before.status != TENG_OK) tg_error_give(&before);
}

static teng_status not_saved(int64_t step)
{
    return tg_fail_context("the checkpoint of step %" PRId64 " was not saved", step);
}

teng_status tg_ckpt_begin(const char *root, int64_t step)
{
    TG_TRY(make_root(root));
    TG_TRY(remove_stale(root));
    char *temp = tg_ckpt_folder(root, step, ".tmp");
    const teng_status status = temp ? tg_mkdirs(temp) : teng_error_status();
    tg_free(temp);
    return status == TENG_OK ? TENG_OK : not_saved(step);
}

teng_status tg_ckpt_write_part(const char *root, int64_t step, tg_ckpt_team team, const tg_ckpt_item *items,
                               size_t n, json_t **files)
{
    *files = NULL;
    TG_TRY(check_arguments(root, step, items, n, NULL));
    char *temp = tg_ckpt_folder(root, step, ".tmp");
    *files = json_object();
    teng_status status = temp ? write_groups(temp, team, items, n, *files) : teng_error_status();
    tg_free(temp);
    if (status == TENG_OK) return TENG_OK;
    json_decref(*files);
    *files = NULL;
    return not_saved(step);
}

teng_status tg_ckpt_commit(const char *root, int64_t step, tg_ckpt_team team, const json_t *state,
                           json_t *files, int keep_max)
{
    bool exchanged = false;
    char *temp = tg_ckpt_folder(root, step, ".tmp"), *place = tg_ckpt_folder(root, step, "");
    teng_status status = temp && place ? write_state(temp, step, team, state, files) : teng_error_status();
    if (status == TENG_OK) status = tg_folder_swap(temp, place, &exchanged);
    if (status == TENG_OK)
        tidy(root, step, temp, exchanged, keep_max);
    else
        not_saved(step);
    tg_free(temp);
    tg_free(place);
    return status;
}

void tg_ckpt_abandon(const char *root, int64_t step)
{
    tg_error pending;
    tg_error_take(&pending);
    char *temp = tg_ckpt_folder(root, step, ".tmp");
    if (temp) tg_remove_tree(temp);
    tg_free(temp);
    teng_error_clear();
    if (pending.status != TENG_OK) tg_error_give(&pending);
}

teng_status tg_ckpt_save(const char *root, int64_t step, const tg_ckpt_item *items, size_t n,
                         const json_t *state, int keep_max)
{
    const tg_ckpt_team alone = {0, 1};
    json_t *files = NULL;
    TG_TRY(check_arguments(root, step, items, n, state));
    TG_TRY(tg_ckpt_begin(root, step));
    teng_status status = tg_ckpt_write_part(root, step, alone, items, n, &files);
    if (status == TENG_OK) status = tg_ckpt_commit(root, step, alone, state, files, keep_max);
    json_decref(files);
    if (status != TENG_OK) tg_ckpt_abandon(root, step);
    return status;
}
