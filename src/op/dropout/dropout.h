/* Dropout's draw: element i of a call is kept or not as a pure function of (key, step, stream, i). */
#ifndef TG_OP_DROPOUT_H
#define TG_OP_DROPOUT_H

#include "base/rng.h"

#define TG_DROPOUT_STEP_BITS 40 /* steps below 2^40, streams below 2^24 */
#define TG_DROPOUT_STREAMS ((int64_t)1 << (64 - TG_DROPOUT_STEP_BITS))

typedef struct tg_dropout_attr {
    double p;
    int64_t stream;
} tg_dropout_attr;

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
