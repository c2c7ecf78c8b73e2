/*
 * Where buffers lie in one block: each has a size and an interval of steps during which it is live; two that
 * are live together must not overlap. Pure: no graph, no device.
 */
#ifndef TG_PLAN_LAYOUT_H
#define TG_PLAN_LAYOUT_H

#include "teng/status.h"

#include <stddef.h>

typedef struct tg_buffer {
    size_t bytes;
    int first, last; /* steps, both included */
    size_t offset;   /* result, a multiple of TG_ALIGN */
    int value;       /* id of the first value that lies here; -1: workspace */
} tg_buffer;

/* Sets all offsets; *block is the size needed, *live_peak the largest sum of live sizes (a lower bound) and
 * *peak_step where it is. Greedy by size, each at the lowest offset that fits. O(n²). */
teng_status tg_layout(tg_buffer *buffers, size_t n, size_t *block, size_t *live_peak, int *peak_step);

#endif
