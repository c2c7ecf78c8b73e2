/* Placement rules that many operators share. Rules of one operator alone stand in its own file. */
#ifndef TG_OP_PLACE_RULES_H
#define TG_OP_PLACE_RULES_H

#include "teng/operator.h"

/* Inputs broadcast to the shape of output 0, all outputs of that shape: splitting an output dimension splits
 * the inputs that have it. An input that lacks the dimension, or has 1 there, stays replicated. */
void tg_place_elementwise(const teng_op_call *call, teng_place_rules *rules);
/* Linear in the inputs whose bits are set, jointly: when those are partial and the others replicated, every
 * output is partial. */
void tg_place_linear(const teng_op_call *call, teng_place_rules *rules, uint32_t inputs);
/* Rows are all dimensions that input `rows_of` has: for each of them a rule in which the inputs of the set
 * `in_rows` and the outputs of the set `out_rows` are split along it, other inputs are replicated and other
 * outputs partial (sums over rows). */
void tg_place_rows(const teng_op_call *call, teng_place_rules *rules, int rows_of, uint32_t in_rows,
                   uint32_t out_rows);

/* The localize of what holds rows begin, begin + 1, … of a vocabulary of `total` (0: all of it): piece
 * `index` of `parts` of those `vocab` rows. Returns how many it has. */
int64_t tg_place_cut_vocabulary(int64_t vocab, int64_t parts, int64_t index, int64_t *begin, int64_t *total);

#endif
