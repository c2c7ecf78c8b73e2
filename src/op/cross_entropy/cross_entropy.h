/* Attributes of cross_entropy_grad and logits_lse; cross_entropy has the first member alone. */
#ifndef TG_OP_CROSS_ENTROPY_H
#define TG_OP_CROSS_ENTROPY_H

#include <stdint.h>

/* The logits are a piece of a vocabulary: entries begin, begin + 1, … of `total`; 0: they are all. */
typedef struct tg_cross_entropy_attr {
    int64_t ignore_index;
    int64_t begin, total;
} tg_cross_entropy_attr;
typedef struct tg_logits_lse_attr {
    tg_cross_entropy_attr piece;
    int64_t parts; /* pieces of the logits, cut as by tg_mesh_cut */
} tg_logits_lse_attr;

#endif
