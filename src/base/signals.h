/*
 * Signals that ask for a stop. They are waited for by a thread of their own, and no other thread takes them:
 * oneDNN's fp32 products for AVX-512 keep the address of a heap block in the stack pointer, so that the frame
 * of a handler in a thread that computes would be written over the heap (docs/decisions/0009).
 */
#ifndef TG_BASE_SIGNALS_H
#define TG_BASE_SIGNALS_H

#include "teng/status.h"

/* Called in the thread that waits, one signal at a time; it may do what any thread may. */
typedef void tg_signals_taken(int number);
/* SIGINT, SIGTERM and SIGUSR1 of this process go to `taken` from now on. To be called once, in the main
 * thread, before there are others: threads inherit that they do not take them. */
teng_status tg_signals_watch(tg_signals_taken *taken);
/* What would have happened without: the process ends by that signal. Only from `taken`. */
void tg_signals_default(int number);

#endif
