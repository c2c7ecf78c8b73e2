/*
 * The next tier: named tensors in a file instead of memory, moved by a thread while the caller computes. Used
 * for optimizer states that a step reads and writes once. The file has no name as long as it lives: whatever
 * ends the process, nothing is left behind. Requests are served in order.
 */
#ifndef TG_DEVICE_SPILL_H
#define TG_DEVICE_SPILL_H

#include "teng/status.h"
#include "teng/tensor.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tg_spill tg_spill;
typedef struct tg_spill_entry {
    const char *name;
    teng_desc desc;
    uint64_t offset;
    size_t bytes;
} tg_spill_entry;

/* dir is made when it is absent. */
teng_status tg_spill_create(const char *dir, tg_spill **out);
void tg_spill_destroy(tg_spill **spill); /* waits for what is under way */
/* Room for a tensor of zeros; one of that name that is there already must have that shape. The room is taken
 * now: a disk that is full later is no matter. */
teng_status tg_spill_add(tg_spill *spill, const char *name, const teng_desc *desc, int *index);
int tg_spill_count(const tg_spill *spill);
const tg_spill_entry *tg_spill_at(const tg_spill *spill, int index);

/* Start moving a tensor and give a ticket; the memory is the thread's until wait has returned. After a
 * failure nothing is moved any more, and every wait fails with it: the file then holds a mixture of steps. */
uint64_t tg_spill_read(tg_spill *spill, int index, void *to);
uint64_t tg_spill_write(tg_spill *spill, int index, const void *from);
teng_status tg_spill_wait(tg_spill *spill, uint64_t ticket);
/* All tensors as they are in the file, for reading until the next call of this or of destroy; entry i lies at
 * its offset. Fails after a failure. */
teng_status tg_spill_map(tg_spill *spill, const unsigned char **base);
void tg_spill_unmap(tg_spill *spill); /* gives the pages of the map back */

#endif
