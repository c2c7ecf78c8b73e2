/* Between the two halves of the trainer: bpe_count.c (text → word counts) and bpe_train.c (word counts →
 * merges). */
#ifndef TG_DATA_BPE_COUNT_H
#define TG_DATA_BPE_COUNT_H

#include "data/tokenizer_impl.h"
#include "data/word_count.h"

/* Counts the words (of two bytes and more) that t's pre-tokenizer finds in the inputs. */
teng_status tg_bpe_count(const tg_bpe_options *options, tg_tokenizer *t, const char *const *inputs,
                         int n_inputs, tg_word_table *out);

#endif
