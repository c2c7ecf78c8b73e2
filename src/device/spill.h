/*
 * The next tier: a file beside the memory, moved to and from by a thread while the caller computes. Used for
 * values of a step that need not be in memory all the time. The file has no name as long as it lives:
 * whatever ends the process, nothing is left behind. Requests are served in order.
 */
#ifndef TG_DEVICE_SPILL_H
#define TG_DEVICE_SPILL_H

#include "teng/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tg_spill tg_spill;

/* dir is made when it is absent. */
teng_status tg_spill_create(const char *dir, tg_spill **out);
void tg_spill_destroy(tg_spill **spill); /* waits for what is under way */
/* Room of zeros, at a multiple of the page size. It is taken from the disk now: one that is full later is no
 * matter. what: for the message. */
teng_status tg_spill_add(tg_spill *spill, const char *what, size_t bytes, uint64_t *offset);
/* Room number `slot`, made or made larger: for values that do not outlive a step. */
teng_status tg_spill_slot(tg_spill *spill, int slot, size_t bytes, uint64_t *offset);
uint64_t tg_spill_bytes(const tg_spill *spill); /* of the file */

/* Start moving bytes and give a ticket; the memory, and `what`, are the thread's until wait has returned.
 * After a failure nothing is moved any more, and every wait fails with it: the file then holds a mixture of
 * steps. */
uint64_t tg_spill_read(tg_spill *spill, const char *what, uint64_t offset, size_t bytes, void *to);
uint64_t tg_spill_write(tg_spill *spill, const char *what, uint64_t offset, size_t bytes, const void *from);
teng_status tg_spill_wait(tg_spill *spill, uint64_t ticket);
/* Until nothing is under way; fails after a failure. */
teng_status tg_spill_wait_all(tg_spill *spill);
/* What was moved so far, and how long callers waited for it. */
typedef struct tg_spill_books {
    uint64_t read, written;
    double waited; /* seconds */
} tg_spill_books;
tg_spill_books tg_spill_books_get(tg_spill *spill);

/* A part of the file as memory: for what the host does now and then, while nothing is under way. */
teng_status tg_spill_map(tg_spill *spill, uint64_t offset, size_t bytes, void **out);
void tg_spill_unmap(void *map, size_t bytes);
/* The pages of a map that were touched leave this process's memory; their bytes stay. */
void tg_spill_rest(void *map, size_t bytes);

#endif
