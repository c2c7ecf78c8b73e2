/*
 * Checkpoints of a run. One checkpoint is a folder root/step-00000040/ with one safetensors file per group of
 * tensors and state.json: the caller's object, the step, and under "checkpoint" the size and XXH3 hash of
 * each file and of state.json itself. A folder is written under the name step-….tmp, every file fsynced, then
 * renamed and the root fsynced: a half-written checkpoint is never seen, whenever the machine stops.
 *
 * Many ranks write one checkpoint together: each its own files "<group>.<rank>.safetensors", with the parts
 * of tensors that it stands for; the metadata of a file says which boxes of which wholes they are. Reading
 * puts the wholes together whatever the number of ranks, of those that wrote and of those that read.
 *
 * root is the folder of all checkpoints of one run (<run>/checkpoints). Two processes must not save to one
 * root: the run's lock sees to that, not this file.
 */
#ifndef TG_CKPT_CHECKPOINT_H
#define TG_CKPT_CHECKPOINT_H

#include "base/fail.h"
#include "ckpt/safetensors.h"

/* ---- saving ---- */
/* Writes root/step-<step>/ (root is made when absent), then prunes. state: object or NULL; "step" and
 * "checkpoint" are set here. An existing folder of the same step is replaced. Folders of later steps belong
 * to a run that was left behind (training went on from an older checkpoint): they are renamed to
 * step-….superseded, with a warning in the log. On failure nothing of it stays on disk and older checkpoints
 * are as they were. keep_max <= 0: keep all. */
teng_status tg_ckpt_save(const char *root, int64_t step, const tg_ckpt_item *items, size_t n,
                         const json_t *state, int keep_max);
/* The same in stages, for ranks that share a folder; between them the ranks wait for each other and tell each
 * other of failures (the caller's part). Each stage is safe to leave out after a failure of an earlier one,
 * but for abandon. */
typedef struct tg_ckpt_team {
    int rank, ranks; /* of those that save together; 0 ranks: one */
} tg_ckpt_team;
/* Rank 0: makes the folder that all write to, after what killed saves left behind is removed. */
teng_status tg_ckpt_begin(const char *root, int64_t step);
/* Every rank: its files. *files: {name: {"bytes", "xxh3"}}, a new reference. */
teng_status tg_ckpt_write_part(const char *root, int64_t step, tg_ckpt_team team, const tg_ckpt_item *items,
                               size_t n, json_t **files);
/* Rank 0, when all have written: state.json with the files of all, the folder takes its name, older ones are
 * pruned. */
teng_status tg_ckpt_commit(const char *root, int64_t step, tg_ckpt_team team, const json_t *state,
                           json_t *files, int keep_max);
/* Rank 0, after any failure: nothing of it stays; the pending error is as before. */
void tg_ckpt_abandon(const char *root, int64_t step);
/* Removes all but the keep_max latest checkpoints, oldest first. keep_max <= 0 does nothing. */
teng_status tg_ckpt_prune(const char *root, int keep_max);

/* ---- finding ---- */
/* *path: folder of the latest checkpoint (heap string), every size and hash of it verified; NULL when there
 * is none. When the latest is damaged: an error that names the damage and the newest whole one, or, with
 * allow_older, that older one and a warning in the log. */
teng_status tg_ckpt_latest(const char *root, bool allow_older, char **path);
/* Verifies sizes and hashes of one checkpoint folder. */
teng_status tg_ckpt_verify(const char *path);

/* ---- reading ---- */
typedef struct tg_ckpt tg_ckpt;
/* Opens one checkpoint folder. verify: check hashes too (tg_ckpt_latest has done so already); sizes and the
 * structure of all files are always checked. */
teng_status tg_ckpt_open(const char *path, bool verify, tg_ckpt **out);
void tg_ckpt_close(tg_ckpt **ck);
int64_t tg_ckpt_step(const tg_ckpt *ck);
const json_t *
tg_ckpt_state(const tg_ckpt *ck); /* borrowed: the caller's object, "step" and "checkpoint" added */
const char *tg_ckpt_path(const tg_ckpt *ck);
size_t tg_ckpt_count(const tg_ckpt *ck, const char *group); /* 0 when there is no such group */
const tg_st_tensor *tg_ckpt_at(const tg_ckpt *ck, const char *group, size_t i);
const tg_st_tensor *tg_ckpt_find(const tg_ckpt *ck, const char *group,
                                 const char *name); /* NULL when absent */
/* Copies a tensor to dst. Shape and element type must be those of `want`: resume is bit-equal or an error
 * that names the checkpoint, the tensor and both descriptions. */
teng_status tg_ckpt_load(const tg_ckpt *ck, const char *group, const char *name, const teng_desc *want,
                         void *dst);

/* ---- the writer: saving beside training ---- */
typedef struct tg_ckpt_writer tg_ckpt_writer;
/* The outcome of one save. */
typedef struct tg_ckpt_done {
    int64_t step;
    tg_error error; /* status TENG_OK, or what went wrong; a later save may succeed */
    double seconds; /* writing */
    double stall;   /* seconds that submit kept the caller (async: waiting for the former save and copying) */
    uint64_t bytes; /* tensors */
    json_t *files; /* of a rank among several: what it wrote, for the commit; the reference is the caller's */
} tg_ckpt_done;
/* Staging memory that a save of these items needs. */
size_t tg_ckpt_staging_bytes(const tg_ckpt_item *items, size_t n);
/* Of a rank among several (team.ranks > 1) the writer does what tg_ckpt_write_part says, and an outcome is
 * that of this rank's files: begin before the submit and the commit after the outcome are the caller's, who
 * can talk with the other ranks. async: a thread writes, from a staging buffer that prepare or the first
 * submit allocates: a run that never saves while it trains never has one. Not async: submit writes at once
 * and there is no staging buffer. */
teng_status tg_ckpt_writer_create(const char *root, int keep_max, bool async, tg_ckpt_team team,
                                  tg_ckpt_writer **out);
/* The thread gets the staging buffer for saves of these items, with its pages, so that the first submit only
 * copies (one that comes before that is done waits for it). Returns at once. Nothing where saves are not
 * async.
 */
void tg_ckpt_writer_prepare(tg_ckpt_writer *w, const tg_ckpt_item *items, size_t n);
/* Takes a snapshot of items and state; on return the caller may change them. Waits while a former save is
 * being written. TENG_OK means taken: the outcome of the save itself, in both modes, comes from poll, status
 * or wait. */
teng_status tg_ckpt_writer_submit(tg_ckpt_writer *w, int64_t step, const tg_ckpt_item *items, size_t n,
                                  const json_t *state);
/* Writes on this thread, from the items themselves, after a save that is still being written: the last one of
 * a run, beside which nothing happens. The outcome comes as that of a submit. */
void tg_ckpt_writer_write(tg_ckpt_writer *w, int64_t step, const tg_ckpt_item *items, size_t n,
                          const json_t *state);
/* True when a save has finished that was not reported yet; never waits. Each outcome is reported once, in
 * order. */
bool tg_ckpt_writer_poll(tg_ckpt_writer *w, tg_ckpt_done *out);
/* Outcome of the last finished save, its message pending; TENG_OK before the first. Never waits. */
teng_status tg_ckpt_writer_status(tg_ckpt_writer *w);
/* Waits until nothing is being written, then as status. */
teng_status tg_ckpt_writer_wait(tg_ckpt_writer *w);
void tg_ckpt_writer_destroy(tg_ckpt_writer **w); /* waits; the last save is finished */

#endif
