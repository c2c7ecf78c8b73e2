/* Small language models and batches for them, for the tests of steps (tiny_lm.c). */
#ifndef TENG_TESTS_TINY_LM_H
#define TENG_TESTS_TINY_LM_H

#include "train/core.h"

enum { TINY_VOCAB = 61, TINY_ROWS = 4, TINY_SEQ = 24, TINY_MAX = TINY_ROWS * TINY_SEQ * 2 };

/* config.json of a model: "llama" (grouped heads, tied), "gpt2" (with dropout), "qwen3" (normed heads,
 * untied), "mixtral" (experts). */
const char *tiny_config(const char *family);
/* AdamW, clip 1, as configurations have it by default. */
tg_step_options tiny_options(void);
tg_core *tiny_core(teng_cell *cell, const tg_step_options *options);

/* Batches of random tokens: batch i is a function of i alone. */
typedef struct tiny_data {
    int64_t rows, seq; /* of the next batch */
    int64_t other_seq; /* of every second batch; 0: seq */
    bool ragged;       /* ignored labels, unevenly spread over the rows */
    uint64_t next;     /* number of the next batch */
    int32_t tokens[TINY_MAX], labels[TINY_MAX];
} tiny_data;
tg_source tiny_source(tiny_data *data);

/* One step; fails the test on an error. */
tg_core_result tiny_step(tg_core *core, tiny_data *data, double lr);
/* Whether all parameters and optimizer states of two cores are the same bits; names the first that is not. */
void tiny_assert_same_state(const tg_core *a, const tg_core *b);

#endif
