/* Attributes of cast. */
#ifndef TG_OP_CAST_H
#define TG_OP_CAST_H

#include <stdint.h>

typedef struct tg_cast_attr {
    int64_t to; /* teng_dtype */
} tg_cast_attr;

#endif
