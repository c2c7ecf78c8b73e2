/*
 * Operators that communicate: what redistributes a value over the axes of a mesh. They are put between the
 * nodes of a rank's graph by the parallel room, after differentiation, and find their group when they run, so
 * that a plan can be made without any other rank. With parts = 1 they copy.
 */
#ifndef TG_OP_COLLECTIVE_COLLECTIVE_H
#define TG_OP_COLLECTIVE_COLLECTIVE_H

#include "comm/comm.h"
#include "teng/operator.h"

/* all_reduce: y = the sum (or maximum) of the ranks' x; of several inputs at once, up to TENG_MAX_OUT. */
typedef struct tg_all_reduce_attr {
    int64_t axes;  /* a tg_axis_set */
    int64_t parts; /* ranks in the group */
    int64_t op;    /* a tg_reduce */
} tg_all_reduce_attr;
/* all_gather: the ranks' pieces of dimension dim put together; reduce_scatter: this rank's piece of the sum.
 * The pieces of a dimension of `total` elements are those of tg_mesh_cut(total, parts, index).
 * gather_into: the whole is overwritten by the ranks' pieces of its dimension dim (in whole, piece; updates
 * 0). */
typedef struct tg_pieces_attr {
    int64_t axes, parts, index;
    int64_t dim, total;
} tg_pieces_attr;
/* all_to_all: x is this rank's piece of from_total along from_dim and whole (to_total) along to_dim; y the
 * other way round. */
typedef struct tg_all_to_all_attr {
    int64_t axes, parts, index;
    int64_t from_dim, to_dim;
    int64_t from_total, to_total;
} tg_all_to_all_attr;

/* The ranks along axes, of whom a plan said that there are `parts`; NULL and no error with one: this rank is
 * all. */
teng_status tg_collective_group(int64_t axes, int64_t parts, tg_group **out);

#endif
