/*
 * Checkpoints of a run, written by one rank or by many together. A save of many ranks is begun together, each
 * rank writes its files beside training, and when all have written, at a later step, it is committed: one
 * folder takes its name for all, or none does.
 */
#ifndef TG_TRAIN_SAVER_H
#define TG_TRAIN_SAVER_H

#include "train/core.h"

typedef struct tg_saver tg_saver;
/* team is borrowed. async as in tg_ckpt_writer_create. */
teng_status tg_saver_create(const char *root, int keep_max, bool async, tg_team *team, tg_saver **out);
/* Waits for what is being written here; a save of many ranks that was not committed stays uncommitted. */
void tg_saver_destroy(tg_saver **saver);
/* tg_core_prepare_saves; not collective. */
void tg_saver_prepare(tg_saver *s, const tg_core *core);
/* Collective, as all below. As tg_core_submit; a former save is finished first. */
teng_status tg_saver_submit(tg_saver *s, const tg_core *core, json_t *state, bool last);
/* The outcome of a save that all ranks have finished, once each, the same on all of them. Never waits for a
 * file. */
bool tg_saver_poll(tg_saver *s, tg_ckpt_done *out);
/* Waits until nothing is being written; the outcome of the last save. */
teng_status tg_saver_wait(tg_saver *s);

#endif
