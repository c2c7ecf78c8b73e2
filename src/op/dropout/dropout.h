/* Dropout's draw: element i of a call is kept or not as a pure function of (key, step, stream, i). */
#ifndef TG_OP_DROPOUT_H
#define TG_OP_DROPOUT_H

#include "base/rng.h"
#include "op/row_map.h"
#include "teng/operator.h"
#include "tensor/desc.h"

#define TG_DROPOUT_STEP_BITS 40 /* steps below 2^40, streams below 2^24 */
#define TG_DROPOUT_STREAMS ((int64_t)1 << (64 - TG_DROPOUT_STEP_BITS))

typedef struct tg_dropout_attr {
    double p;
    int64_t stream;
    /* Of a shard: the dimensions of the whole (n = 0: this is it), where the shard begins in each, and for
     * one of them, where it turns to a second piece of the whole. */
    teng_dims whole, begin;
    int64_t axis, turn, later;
} tg_dropout_attr;

/* Element i of x is element *index of the whole, and the *run elements from it on follow on there. */
static inline void tg_dropout_whole(const tg_dropout_attr *attr, const teng_desc *x, int64_t i,
                                    int64_t *index, int64_t *run)
{
    int64_t step = 1;
    bool inside = true; /* so far all of the whole's dimensions are all in the shard */
    *index = 0;
    *run = 1;
    for (int d = x->ndim - 1; d >= 0; step *= attr->whole.v[d--]) {
        const int64_t n = x->dims[d], at = i % n;
        tg_row_map rows = {attr->begin.v[d], 0, 0};
        if (d == attr->axis && attr->turn) rows = (tg_row_map){rows.begin, attr->turn, attr->later};
        *index += tg_row_at(&rows, at) * step;
        if (inside) *run += ((rows.turn > at ? rows.turn : n) - at - 1) * step;
        inside = inside && n == attr->whole.v[d] && !rows.turn;
        i /= n;
    }
}

/* High half of the generator's counter; the low half is i / 4, element i takes word i mod 4. */
static inline uint64_t tg_dropout_counter(uint64_t step, int64_t stream)
{
    return (uint64_t)stream << TG_DROPOUT_STEP_BITS | (step & (((uint64_t)1 << TG_DROPOUT_STEP_BITS) - 1));
}
/* A word below this is dropped. */
static inline uint32_t tg_dropout_threshold(double p)
{
    return (uint32_t)(p * 0x1p32);
}

#endif
