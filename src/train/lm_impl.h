/* Inside of a model for use: opened by lm_open.c, put to work by generate.c and predict.c. */
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
    tg_step *writer; /* runs with caches of keys and values for `room` tokens; NULL before the first */
    int64_t room;
};

/* Where a model for use lies: folders, or files, heap strings. */
typedef struct tg_lm_places {
    char *config, *weights, *tokenizer;
} tg_lm_places;
/* Of a model folder, a run folder (its newest whole checkpoint; model/ when it has none) or a checkpoint of a
 * run. Free with tg_lm_places_free in any case. */
teng_status tg_lm_places_find(const char *dir, tg_lm_places *out);
void tg_lm_places_free(tg_lm_places *places);

/* Reads a text that grows and gives the logits of what follows it (predict.c). */
typedef struct tg_predictor {
    tg_lm *lm;
    bool cached;
    int64_t kept;                /* tokens of the text whose keys and values lie in the caches */
    int32_t *tokens, *positions; /* of the window that runs */
    float *logits;               /* [vocab_size] after tg_predictor_next */
} tg_predictor;
/* tokens: how long the text will be; a longer one is right, but slow. One predictor a model at a time has the
 * caches. */
teng_status tg_predictor_open(tg_predictor *p, tg_lm *lm, bool cached, int64_t tokens);
/* The text is ids[n], n > 0; the first tokens are those of the call before. */
teng_status tg_predictor_next(tg_predictor *p, const uint32_t *ids, int64_t n);
void tg_predictor_close(tg_predictor *p);

#endif
