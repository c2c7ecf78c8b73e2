/* Attributes of add_positions. */
#ifndef TG_OP_ADD_POSITIONS_H
#define TG_OP_ADD_POSITIONS_H

#include "op/row_map.h"

typedef struct tg_add_positions_attr {
    tg_row_map rows; /* row t of x takes this row of the table */
} tg_add_positions_attr;

#endif
