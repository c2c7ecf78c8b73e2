/*
 * Watches the steps that profile.steps names and fills a profile (monitor/profile.h): a probe in the step
 * for operators, and calls of the loop for what the host does. Every function takes NULL, which is a run
 * without a profile, and does nothing for steps that are not asked for.
 */
#ifndef TG_TRAIN_PROFILER_H
#define TG_TRAIN_PROFILER_H

#include "monitor/profile.h"
#include "train/core.h"

typedef struct tg_profiler tg_profiler;
/* Of cfg's profile.steps; *out stays NULL when that is unset. cfg and core are borrowed. */
teng_status tg_profiler_create(const tg_config *cfg, tg_core *core, tg_profiler **out);
void tg_profiler_destroy(tg_profiler **profiler);

/* Around tg_core_train_step: step is the number it will have, wait_s what it waited for the batch. Times are
 * clock seconds. */
void tg_profiler_begin_step(tg_profiler *p, int64_t step);
void tg_profiler_ran(tg_profiler *p, double wait_s);
/* Work of the host since `begin`, between a step and the next; beside: by the thread that keeps books, of a
 * step that was inside. */
void tg_profiler_host(tg_profiler *p, tg_profile_part part, double begin);
void tg_profiler_beside(tg_profiler *p, tg_profile_part part, double begin);
/* The next step's time begins. */
void tg_profiler_end_step(tg_profiler *p);
bool tg_profiler_is_inside(const tg_profiler *p); /* of a step that is profiled */

/* The last of the steps is over: write, once. When a run ends before that, written is what there is. */
bool tg_profiler_is_due(const tg_profiler *p);
/* DIR/trace.json and DIR/profile.json; nothing when no step was seen or all is written. */
teng_status tg_profiler_write(tg_profiler *p, const char *dir, bool *written);

#endif
