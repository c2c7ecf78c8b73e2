/*
 * ring_attention: attention of a sequence that is split over ranks (Liu et al. 2023, "Ring attention with
 * blockwise transformers"). Each rank keeps its queries while blocks of keys and values go round; results are
 * merged by their log Σ exp. With causal attention rank i of n has the pieces i and 2n - 1 - i of 2n equal
 * ones of the sequence, one behind the other, so that all have as much to do; without, piece i of n.
 *
 * The parallel room puts them in the place of attention and attention_grad where the context axis splits
 * dimension 1 of q, k and v: same operands, same outputs, all local; options are the node's.
 */
#ifndef TG_OP_RING_ATTENTION_H
#define TG_OP_RING_ATTENTION_H

#include "op/attention/attention.h"

typedef struct tg_ring_attr {
    teng_attention_options options; /* shift 0; window with causal alone */
    int64_t axes, parts, index;     /* a tg_axis_set, the ranks along it, this one's place among them */
} tg_ring_attr;

/* Pieces of the sequence that a rank has, and where piece p of rank `index` begins, in rows of which a piece
 * has `rows`. */
static inline int64_t tg_ring_pieces(const tg_ring_attr *a)
{
    return a->options.causal && a->parts > 1 ? 2 : 1;
}
static inline int64_t tg_ring_begin(const tg_ring_attr *a, int64_t rows, int64_t index, int64_t p)
{
    if (tg_ring_pieces(a) == 1) return index * rows;
    return (p ? 2 * a->parts - 1 - index : index) * rows;
}

#endif
