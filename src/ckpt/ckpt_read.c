/*
 * Finding and reading checkpoints. Nothing is guessed: a damaged checkpoint is named, and an older one is
 * used only when the caller has said so.
 */
#include "ckpt/checkpoint.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "ckpt/ckpt_layout.h"
#include "ckpt/pieces.h"
#include "tensor/desc.h"

#include <string.h>

/* ---- finding ---- */

teng_status tg_ckpt_verify(const char *path)
{
    json_t *state;
    TG_TRY(tg_ckpt_check(path, true, &state));
    json_decref(state);
    return TENG_OK;
}

/* Verifies folder `step`; *path is its path when it is whole, else NULL and *damage says why. */
static teng_status try_step(const char *root, int64_t step, char **path, tg_error *damage)
{
    *path = tg_ckpt_folder(root, step, "");
    if (!*path) return teng_error_status();
    if (tg_ckpt_verify(*path) == TENG_OK) return TENG_OK;
    tg_error_take(damage);
    tg_free(*path);
    *path = NULL;
    return damage->status == TENG_MEMORY ? tg_error_give(damage) : TENG_OK;
}

static teng_status find_whole(const char *root, const tg_ckpt_steps *steps, char **path, tg_error *first)
{
    for (size_t i = steps->len; i > 0 && !*path; i--) {
        tg_error damage = {.status = TENG_OK, .message = ""};
        TG_TRY(try_step(root, steps->data[i - 1], path, &damage));
        if (i == steps->len) *first = damage;
    }
    return TENG_OK;
}

static teng_status latest(const char *root, bool allow_older, char **path)
{
    tg_ckpt_steps steps;
    tg_error damage = {.status = TENG_OK, .message = ""};
    TG_TRY(tg_ckpt_list(root, "", &steps));
    teng_status status = find_whole(root, &steps, path, &damage);
    tg_vec_free(&steps);
    if (status != TENG_OK || damage.status == TENG_OK) return status;
    if (*path && allow_older) {
        tg_warn("%s; using %s instead", damage.message, *path);
        return TENG_OK;
    }
    if (*path)
        tg_fail(damage.status,
                "%s; the newest whole one is %s: remove the damaged folder to go on from there",
                damage.message, *path);
    else
        tg_fail(damage.status, "%s; no older one in %s is whole", damage.message, root);
    tg_free(*path);
    *path = NULL;
    return damage.status;
}

teng_status tg_ckpt_latest(const char *root, bool allow_older, char **path)
{
    tg_error before; /* a pending error of the caller's must not be taken for damage found here */
    *path = NULL;
    tg_error_take(&before);
    teng_status status = latest(root, allow_older, path);
    if (before.status != TENG_OK) {
        teng_error_clear();
        tg_error_give(&before);
    }
    return status;
}

/* ---- reading ---- */

typedef struct group_files {
    char *name;
    TG_VEC(tg_st_file *) files; /* one, or one of each rank that had something to write */
    tg_pieces *tensors;
} group_files;

struct tg_ckpt {
    char *path;
    json_t *state;
    int64_t step;
    TG_VEC(group_files) groups;
};

static group_files *find_group(const tg_ckpt *ck, const char *name, size_t len)
{
    for (size_t i = 0; i < ck->groups.len; i++)
        if (strncmp(ck->groups.data[i].name, name, len) == 0 && !ck->groups.data[i].name[len])
            return &ck->groups.data[i];
    return NULL;
}

/* Adds a file "<group>.safetensors" or "<group>.<rank>.safetensors". */
static teng_status open_file(tg_ckpt *ck, const char *file)
{
    static const char suffix[] = ".safetensors";
    size_t len = strlen(file), tail = sizeof suffix - 1, stem = strcspn(file, ".");
    if (len <= tail || strcmp(file + len - tail, suffix) != 0)
        return tg_fail(TENG_FORMAT, "checkpoint %s: state.json lists %.200s, which is no safetensors file",
                       ck->path, file);
    group_files *g = find_group(ck, file, stem);
    if (!g) {
        group_files fresh = {.name = tg_strndup(file, stem)};
        if (!fresh.name || !tg_vec_push(&ck->groups, fresh)) {
            tg_free(fresh.name);
            return teng_error_status();
        }
        g = &ck->groups.data[ck->groups.len - 1];
    }
    if (!tg_vec_push(&g->files, NULL)) return teng_error_status();
    char *path = tg_path_join(ck->path, file);
    teng_status status = path ? tg_st_open(path, &g->files.data[g->files.len - 1]) : teng_error_status();
    tg_free(path);
    return status;
}

static teng_status open_all(tg_ckpt *ck, bool verify)
{
    const char *file;
    json_t *about;
    TG_TRY(tg_ckpt_check(ck->path, verify, &ck->state));
    TG_TRY(tg_json_get_int(ck->state, "state.json", "step", true, &ck->step));
    json_object_foreach(json_object_get(json_object_get(ck->state, "checkpoint"), "files"), file, about)
    {
        TG_TRY(open_file(ck, file));
    }
    for (size_t i = 0; i < ck->groups.len; i++) {
        group_files *g = &ck->groups.data[i];
        if (tg_pieces_create(g->files.data, g->files.len, &g->tensors) != TENG_OK)
            return tg_fail_context("checkpoint %s", ck->path);
    }
    return TENG_OK;
}

teng_status tg_ckpt_open(const char *path, bool verify, tg_ckpt **out)
{
    *out = NULL;
    if (!tg_path_is_dir(path)) return tg_fail(TENG_IO, "%s: there is no such checkpoint folder", path);
    tg_ckpt *ck = tg_calloc(1, sizeof *ck);
    if (!ck) return teng_error_status();
    ck->path = tg_strdup(path);
    teng_status status = ck->path ? open_all(ck, verify) : teng_error_status();
    if (status != TENG_OK)
        tg_ckpt_close(&ck);
    else
        *out = ck;
    return status;
}

void tg_ckpt_close(tg_ckpt **ck)
{
    if (!ck || !*ck) return;
    for (size_t i = 0; i < (*ck)->groups.len; i++) {
        group_files *g = &(*ck)->groups.data[i];
        tg_pieces_destroy(&g->tensors);
        for (size_t f = 0; f < g->files.len; f++)
            tg_st_close(&g->files.data[f]);
        tg_vec_free(&g->files);
        tg_free(g->name);
    }
    tg_vec_free(&(*ck)->groups);
    json_decref((*ck)->state);
    tg_free((*ck)->path);
    tg_free(*ck);
    *ck = NULL;
}

int64_t tg_ckpt_step(const tg_ckpt *ck)
{
    return ck->step;
}

const json_t *tg_ckpt_state(const tg_ckpt *ck)
{
    return ck->state;
}

const char *tg_ckpt_path(const tg_ckpt *ck)
{
    return ck->path;
}

size_t tg_ckpt_count(const tg_ckpt *ck, const char *name)
{
    const group_files *g = find_group(ck, name, strlen(name));
    return g ? tg_pieces_count(g->tensors) : 0;
}

const tg_st_tensor *tg_ckpt_at(const tg_ckpt *ck, const char *name, size_t i)
{
    const group_files *g = find_group(ck, name, strlen(name));
    return g ? tg_pieces_at(g->tensors, i) : NULL;
}

const tg_st_tensor *tg_ckpt_find(const tg_ckpt *ck, const char *group, const char *name)
{
    const group_files *g = find_group(ck, group, strlen(group));
    return g ? tg_pieces_find(g->tensors, name) : NULL;
}

teng_status tg_ckpt_load(const tg_ckpt *ck, const char *group, const char *name, const teng_desc *want,
                         void *dst)
{
    const tg_st_tensor *t = tg_ckpt_find(ck, group, name);
    char have_text[TG_DESC_TEXT], want_text[TG_DESC_TEXT];
    if (!t)
        return tg_fail(
            TENG_FORMAT,
            "checkpoint %s: tensor \"%.200s\" is not in %s.safetensors: was the checkpoint written by "
            "another model or optimizer?",
            ck->path, name, group);
    if (!tg_desc_equal(&t->desc, want))
        return tg_fail(
            TENG_FORMAT, "checkpoint %s: tensor \"%.200s\" of %s.safetensors is %s, this run needs %s",
            ck->path, name, group, tg_desc_text(have_text, &t->desc), tg_desc_text(want_text, want));
    return tg_st_read(t, want, dst);
}
