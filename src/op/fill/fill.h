/* Attributes of fill. */
#ifndef TG_OP_FILL_H
#define TG_OP_FILL_H

#include "teng/operator.h"

typedef struct tg_fill_attr {
    int64_t dtype; /* teng_dtype */
    teng_dims dims;
    double value;
} tg_fill_attr;

#endif
