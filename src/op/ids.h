/* Token ids, positions and labels as kernels meet them: checked before anything is read or written through
 * them. */
#ifndef TG_OP_IDS_H
#define TG_OP_IDS_H

#include "teng/operator.h"

/* TENG_INVALID, naming the first position, its id and the limit, unless 0 <= ids[p] < vocab for all p < n. */
teng_status tg_ids_check(const int32_t *ids, int64_t n, int64_t vocab);
/* As above for labels; those equal to `ignore` are skipped, the others are counted in *valid. */
teng_status tg_labels_check(const int32_t *labels, int64_t n, int64_t vocab, int64_t ignore, int64_t *valid);
/* What a loss is divided by: input i, the optional `valid` (f32 scalar), when it is there, else `own`. */
double tg_labels_divisor(const teng_kernel_args *args, int i, int64_t own);

/* As above for positions of rows in sequences of at most `room`. */
teng_status tg_positions_check(const int32_t *positions, int64_t n, int64_t room);

#endif
