/* Threads for the loader and the checkpoint writer, and a bounded queue between them. Compute uses OpenMP. */
#ifndef TG_BASE_THREAD_H
#define TG_BASE_THREAD_H

#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct tg_thread tg_thread;
typedef void tg_thread_main(void *arg);
teng_status tg_thread_start(const char *name, tg_thread_main *main_fn, void *arg, tg_thread **out);
void tg_thread_join(tg_thread **thread);

/* Bounded queue of pointers. put waits while it is full, get while it is empty. After close, put fails at
 * once and get fails when the queue has run dry. */
typedef struct tg_queue tg_queue;
tg_queue *tg_queue_create(size_t capacity);
void tg_queue_destroy(tg_queue **queue);
bool tg_queue_put(tg_queue *queue, void *item);
bool tg_queue_get(tg_queue *queue, void **item);
bool tg_queue_try_get(tg_queue *queue, void **item);
void tg_queue_close(tg_queue *queue);

#endif
