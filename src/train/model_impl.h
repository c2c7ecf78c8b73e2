/* Inside of the public training interface: what a teng_model and a teng_dataset hold. Shared by model.c
 * (making, training, evaluation), model_io.c (values in and out), dataset.c and callbacks.c. */
#ifndef TG_TRAIN_MODEL_IMPL_H
#define TG_TRAIN_MODEL_IMPL_H

#include "teng/train.h"
#include "train/core.h"

struct teng_model {
    tg_core *core;
    tg_schedule schedule; /* steps 0: those of the training */
    uint64_t seed;
    struct tg_arena *arena; /* texts of the options */
};

struct teng_dataset {
    tg_source source; /* user: this dataset, or the loader */
    char *identity;   /* one line; a checkpoint's place means something only in an equal dataset */
    int64_t length;
    /* tokens */
    tg_loader *loader; /* NULL: batches of the user's own */
    tg_tokenizer *tokenizer;
    bool once;
    /* batches of the user's own */
    teng_batch_fill *fill;
    void *user;
    int n, labels;
    char *name[TENG_MAX_INPUTS];
    teng_desc desc[TENG_MAX_INPUTS];
    void *data[TENG_MAX_INPUTS];
    uint64_t cursor; /* batches given out */
};

/* Initial values for what nothing has loaded. */
teng_status tg_model_ready(teng_model *model);

#endif
