/* Attributes of embedding and embedding_grad. */
#ifndef TG_OP_EMBEDDING_H
#define TG_OP_EMBEDDING_H

#include "teng/operator.h"

/* The table is a piece of a vocabulary: rows begin, begin + 1, … of `total`. Ids of other pieces give zeros
 * and take no gradient; ids outside 0 … total - 1 are an error of the run. total 0: the table is all. */
typedef struct tg_embedding_attr {
    int64_t begin, total;
} tg_embedding_attr;
typedef struct tg_embedding_grad_attr {
    tg_embedding_attr piece;
    int64_t vocab; /* rows of the table */
} tg_embedding_grad_attr;

#endif
