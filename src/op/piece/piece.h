/* Attributes of piece. */
#ifndef TG_OP_PIECE_H
#define TG_OP_PIECE_H

#include <stdint.h>

typedef struct tg_piece_attr {
    int64_t begin, size; /* rows: indices of dimension 0 */
} tg_piece_attr;

#endif
