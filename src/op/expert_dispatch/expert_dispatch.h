/*
 * Rows of a mixture of experts on their way to the ranks that have the experts, and back (Lepikhin et al.
 * 2020, GShard; no capacity, nothing is dropped). On the expert axis each rank has tokens of its own, sorted
 * by expert (moe_sort), and E / parts of the E experts.
 *
 *     rows [M, C] sorted by expert, counts [E]    this rank's tokens
 *        expert_dispatch → there [M · parts, C] sorted by this rank's experts, and within an expert by the
 *        rank they come from; own_counts [E / parts]; received [parts, E / parts]
 *     grouped_matmul(there, w of the own experts, own_counts), and so on: rows behind the last are zero
 *        expert_return(…, counts, received) → [M, C] in the order of `rows`
 *
 * M · parts is the worst case, all tokens to one rank. Each is the other's transpose, so in the backward pass
 * the gradient of returned rows is dispatched and that of dispatched rows returned, with the same counts and
 * received. To the parallel room rows that are "there" are a placement of their own on the expert axis: they
 * have the shape of whole rows, operators that work row by row keep it, grouped_outer of two such gives the
 * weights' gradient S(0) on this axis (and a summand on the data axis).
 */
#ifndef TG_OP_EXPERT_DISPATCH_H
#define TG_OP_EXPERT_DISPATCH_H

#include "teng/operator.h"

typedef struct tg_expert_attr { /* of expert_dispatch and expert_return */
    int64_t axes, parts;        /* a tg_axis_set, the ranks along it */
} tg_expert_attr;

#endif
