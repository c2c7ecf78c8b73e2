/*
 * Tables of cos and sin for rope, shared between all calls with equal positions and options (every layer of a
 * model, forward and backward), counted, freed with the last user. Any thread may call.
 */
#ifndef TG_OP_ROPE_TABLE_H
#define TG_OP_ROPE_TABLE_H

#include "op/row_map.h"
#include "teng/ops.h"

typedef struct tg_rope_table {
    int64_t rotary_dim;  /* even */
    const float *angles; /* [T][rotary_dim]: cos of rotary_dim/2 frequencies, then sin */
} tg_rope_table;

typedef struct tg_rope_positions_attr {
    teng_rope_options rope; /* first: kernels of rope read it too */
    int64_t room;           /* positions are below it */
} tg_rope_positions_attr;

/* Frequency i of rotary_dim / 2 in radians per position, as the options scale it for a sequence of `length`.
 */
double tg_rope_frequency(const teng_rope_options *o, int64_t rotary_dim, int64_t i, int64_t length);
static inline tg_row_map tg_rope_rows(const teng_rope_options *o)
{
    return (tg_row_map){o->offset, o->turn, o->later};
}
/* T positions as tg_rope_rows has them; o->inverse does not matter. NULL and an error when memory is out. */
tg_rope_table *tg_rope_table_get(int64_t t, int64_t rotary_dim, const teng_rope_options *o);
void tg_rope_table_put(void *table); /* the release of kernels */

#endif
