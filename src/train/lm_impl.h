/* Inside of a model for use: opened by lm_open.c, put to work by generate.c. */
#ifndef TG_TRAIN_LM_IMPL_H
#define TG_TRAIN_LM_IMPL_H

#include "train/core.h"

struct tg_lm {
    teng_cell *cell;
    tg_lm_info info;
    tg_tokenizer *tokenizer;
    tg_core *core;
    tg_ids ends;     /* tokens that end a text */
    uint32_t usable; /* tokens from here on are unknown to the tokenizer: padding of the vocabulary */
};

#endif
