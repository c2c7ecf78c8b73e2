/*
 * Running a plan: binds its places to memory once, then runs kernels in order. Decides nothing, allocates
 * nothing in a run.
 */
#ifndef TG_EXEC_EXEC_H
#define TG_EXEC_EXEC_H

#include "device/store.h"
#include "plan/plan.h"

/* One block of device memory that plans run in turn (sequence lengths, evaluation): as big as the biggest. */
typedef struct tg_exec_block tg_exec_block;
tg_exec_block *tg_exec_block_create(tg_device *dev);
void tg_exec_block_destroy(tg_exec_block **block);
size_t tg_exec_block_bytes(const tg_exec_block *block);
/* From the next run on, of every plan in this block (borrowed); NULL: none, and nothing is measured. */
void tg_exec_block_probe(tg_exec_block *block, const tg_probe *probe);

typedef struct tg_exec tg_exec;
/* Binds the plan (borrowed) to the store (missing entries are added) and the block (grown if need be). */
teng_status tg_exec_create(const tg_plan *plan, tg_store *store, tg_exec_block *block, tg_exec **out);
/* The same of a plan with slots: what phases leave for each other lies in `slot`, a block of one micro-batch
 * under way. Feed inputs right before the first phase that reads them. */
teng_status tg_exec_create_slot(const tg_plan *plan, tg_store *store, tg_exec_block *block,
                                tg_exec_block *slot, tg_exec **out);
/* Where an output, or else an input, lies; NULL: there is none, or nothing reads it. */
void *tg_exec_at(tg_exec *exec, const char *name);
void tg_exec_destroy(tg_exec **exec);
/* Copies host data to a graph input; the sizes are the plan's. An unknown name is an error. Another plan that
 * ran in the same block since has overwritten the inputs. */
teng_status tg_exec_feed(tg_exec *exec, const char *input, const void *data);
bool tg_exec_has_input(const tg_exec *exec, const char *input);
/* Runs phases first … last. A kernel's failure is reported with its layer and source line. */
teng_status tg_exec_run(tg_exec *exec, tg_phase first, tg_phase last);
/* The same, and watch sees each node after it has run, views aside. *stopped: watch said so. */
teng_status tg_exec_run_watched(tg_exec *exec, tg_phase first, tg_phase last, tg_node_watch *watch,
                                void *user, bool *stopped);
/* Copies a named output to host memory. */
teng_status tg_exec_fetch(tg_exec *exec, const char *output, void *data, size_t bytes);

#endif
