/* See saver.h. What a rank alone may know (its writer has finished, a file failed) is agreed upon first. */
#include "train/saver.h"

#include "base/fail.h"
#include "base/vec.h"

#include <string.h>

struct tg_saver {
    tg_ckpt_writer *writer;
    tg_team *team;
    char *root;
    int keep_max;
    bool open;     /* a save of many ranks is on its way */
    json_t *state; /* of it */
    bool has_own;  /* this rank has written: own */
    tg_ckpt_done own;
    TG_VEC(tg_ckpt_done) finished; /* not told yet */
    tg_error last;
};

teng_status tg_saver_create(const char *root, int keep_max, bool async, tg_team *team, tg_saver **out)
{
    tg_saver *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    const tg_ckpt_team ranks = {team ? team->rank : 0, team ? team->ranks : 1};
    s->team = tg_team_is_many(team) ? team : NULL;
    s->keep_max = keep_max;
    s->root = tg_strdup(root);
    const teng_status status =
        s->root ? tg_ckpt_writer_create(root, keep_max, async, ranks, &s->writer) : TENG_MEMORY;
    if (status != TENG_OK) tg_saver_destroy(&s);
    *out = s;
    return status;
}

void tg_saver_destroy(tg_saver **saver)
{
    tg_saver *s = *saver;
    if (!s) return;
    tg_ckpt_writer_destroy(&s->writer);
    if (s->open && tg_team_is_first(s->team) && s->own.step) tg_ckpt_abandon(s->root, s->own.step);
    json_decref(s->own.files);
    json_decref(s->state);
    tg_vec_free(&s->finished);
    tg_free(s->root);
    tg_free(s);
    *saver = NULL;
}

/* ---- many ranks ---- */
static teng_status merge_files(const char *texts, int ranks, json_t **out)
{
    *out = json_object();
    for (int r = 0; r < ranks; r++, texts += strlen(texts) + 1) {
        json_t *files = NULL;
        TG_TRY(tg_json_parse("the files of a rank", texts, strlen(texts), &files));
        const int failed = json_object_update(*out, files);
        json_decref(files);
        if (failed) return tg_fail(TENG_MEMORY, "out of memory for the list of a checkpoint's files");
    }
    return TENG_OK;
}

/* All ranks have written: rank 0 gives the folder its name. */
static teng_status commit(tg_saver *s)
{
    char *own = tg_json_text(s->own.files, 0), *all = NULL;
    json_t *files = NULL;
    teng_status status = tg_team_agree(s->team, own ? TENG_OK : TENG_MEMORY);
    if (status == TENG_OK) status = tg_team_gather_text(s->team, own, &all);
    if (status == TENG_OK) {
        if (tg_team_is_first(s->team)) {
            status = merge_files(all, s->team->ranks, &files);
            if (status == TENG_OK)
                status = tg_ckpt_commit(s->root, s->own.step, (tg_ckpt_team){0, s->team->ranks}, s->state,
                                        files, s->keep_max);
        }
        status = tg_team_agree(s->team, status);
    }
    json_decref(files);
    tg_free(own);
    tg_free(all);
    return status;
}

static teng_status add_bytes(tg_saver *s, uint64_t *bytes)
{
    return tg_comm_all_reduce(tg_comm_world(s->team->comm), TG_REDUCE_SUM, TENG_U64, bytes, bytes, 1);
}

/* Every rank has its outcome. */
static void finish(tg_saver *s)
{
    tg_ckpt_done done = s->own;
    tg_error before;
    tg_error_take(&before);
    teng_status status =
        tg_team_agree(s->team, s->own.error.status == TENG_OK ? TENG_OK : tg_error_give(&s->own.error));
    if (status == TENG_OK) status = commit(s);
    if (status != TENG_OK && tg_team_is_first(s->team)) tg_ckpt_abandon(s->root, s->own.step);
    tg_error_take(&done.error);
    done.error.status = status;
    if (status == TENG_OK && add_bytes(s, &done.bytes) != TENG_OK) tg_error_take(&done.error);
    json_decref(s->own.files);
    s->own.files = done.files = NULL;
    s->open = s->has_own = false;
    s->last = done.error;
    (void)tg_vec_push(&s->finished, done);
    if (before.status != TENG_OK) tg_error_give(&before);
}

static void settle(tg_saver *s, bool wait)
{
    if (!s->open) return;
    if (wait && tg_ckpt_writer_wait(s->writer) != TENG_OK) teng_error_clear(); /* told by the outcome */
    if (!s->has_own) s->has_own = tg_ckpt_writer_poll(s->writer, &s->own);
    int32_t waiting = !s->has_own;
    if (tg_team_max(s->team, &waiting, 1) == TENG_OK && !waiting) finish(s);
}

static teng_status submit_many(tg_saver *s, const tg_core *core, json_t *state, bool last)
{
    settle(s, true);
    teng_status status = tg_team_is_first(s->team) ? tg_ckpt_begin(s->root, core->done) : TENG_OK;
    TG_TRY(tg_team_agree(s->team, status));
    status = tg_core_submit(core, s->writer, state, last);
    if (status == TENG_OK) {
        json_decref(s->state);
        s->state = json_deep_copy(state);
        if (!s->state) status = TENG_MEMORY;
    }
    status = tg_team_agree(s->team, status);
    s->open = status == TENG_OK;
    s->own = (tg_ckpt_done){.step = core->done};
    if (s->open) return TENG_OK;
    if (tg_ckpt_writer_wait(s->writer) != TENG_OK) { /* of ranks that could submit */
    }
    if (tg_ckpt_writer_poll(s->writer, &s->own)) json_decref(s->own.files);
    s->own.files = NULL;
    if (tg_team_is_first(s->team)) tg_ckpt_abandon(s->root, core->done);
    return status;
}

/* ---- any ---- */
void tg_saver_prepare(tg_saver *s, const tg_core *core)
{
    tg_core_prepare_saves(core, s->writer);
}

teng_status tg_saver_submit(tg_saver *s, const tg_core *core, json_t *state, bool last)
{
    return s->team ? submit_many(s, core, state, last) : tg_core_submit(core, s->writer, state, last);
}

bool tg_saver_poll(tg_saver *s, tg_ckpt_done *out)
{
    if (!s->team) return tg_ckpt_writer_poll(s->writer, out);
    if (!s->finished.len) settle(s, false);
    if (!s->finished.len) return false;
    *out = s->finished.data[0];
    memmove(s->finished.data, s->finished.data + 1, --s->finished.len * sizeof *s->finished.data);
    return true;
}

teng_status tg_saver_wait(tg_saver *s)
{
    if (!s->team) return tg_ckpt_writer_wait(s->writer);
    settle(s, true);
    return s->last.status == TENG_OK ? TENG_OK : tg_error_give(&s->last);
}
