/* Between tokenizer_parse.c (vocabulary, merges) and tokenizer_steps.c (the components around the model). */
#ifndef TG_DATA_TOKENIZER_PARSE_H
#define TG_DATA_TOKENIZER_PARSE_H

#include "data/tokenizer_impl.h"

/* PCRE2's allocations through base/mem.h. */
pcre2_general_context *tg_pcre_memory(void);
/* normalizer, pre_tokenizer, decoder: sets the steps, byte_level and the decoder's fields. */
teng_status tg_steps_read(tg_tokenizer *t, const json_t *root);
/* post_processor: prefix and suffix; after the tokens are known. */
teng_status tg_template_read(tg_tokenizer *t, const json_t *root);

#endif
