/* Runs a plan the suspicious way: memory outside a buffer's lifetime is poison (see poison_run.c). */
#ifndef TENG_TESTS_POISON_RUN_H
#define TENG_TESTS_POISON_RUN_H

#include "device/store.h"
#include "plan/plan.h"

/* Gives an input its value. */
typedef void poison_feed(void *user, const teng_tensor *input, void *to);

/* Steps of `first` … `last` in a block of its own, which the caller frees with tg_free_aligned. A block that
 * is handed in is used again, without feeding: the update after several micro-batches. Fails the test when a
 * step's operands overlap in a way that its operator does not allow. */
unsigned char *poison_run(const tg_plan *plan, tg_store *store, unsigned char *block, tg_phase first,
                          tg_phase last, poison_feed *feed, void *user);
/* Where a value lies after the run. */
const void *poison_value(const tg_plan *plan, tg_store *store, const unsigned char *block,
                         const teng_tensor *v);

#endif
