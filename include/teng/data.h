/*
 * Datasets: where batches come from. Token datasets read text or token files; others call a function of yours
 * for each batch. A dataset has one cursor, so that a resumed training sees the batches it would have seen.
 *
 * Not thread-safe: a dataset belongs to one thread at a time.
 */
#ifndef TENG_DATA_H
#define TENG_DATA_H

#include "teng/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct teng_dataset teng_dataset;

typedef enum teng_packing {
    TENG_PACK_CROSS,    /* documents joined end to end and cut into sequences */
    TENG_PACK_DOCUMENT, /* a sequence holds one document, padded; padding is never scored */
} teng_packing;
typedef enum teng_part { TENG_PART_ALL, TENG_PART_TRAIN, TENG_PART_VAL } teng_part;

/* Inputs of each batch: "tokens" and "labels", i32 [batch_size, seq_len]; a label is the token that follows,
 * or -100 (not scored). Strings and arrays are needed only while the dataset is made. */
typedef struct teng_token_options {
    const char *const *files; /* text, Markdown, JSON lines, folders of these; or token files */
    int n_files;
    const char *tokenizer; /* a tokenizer.json or a folder that holds one; NULL: one token a byte */
    const char *separator; /* text files are cut into documents here; NULL: one document a file */
    int64_t vocab_size;    /* of the model: larger tokens are refused; 0: the tokenizer's */
    int64_t seq_len, batch_size;
    teng_packing packing;
    bool shuffle; /* another order each epoch, a function of (seed, epoch) alone */
    uint64_t seed;
    double val_fraction; /* share of the documents that belongs to TENG_PART_VAL, by seed */
    teng_part part;
    bool once;    /* for evaluation: in order, one pass, each token predicted once, the end padded */
    int prefetch; /* batches made ahead by a thread; 0: each when it is needed */
} teng_token_options;
/* seq_len 256, batch_size 8, packed across documents, shuffled by seed 1, prefetch 4, no validation part. */
TENG_API teng_token_options teng_token_options_default(void);
/* NULL on failure. */
TENG_API teng_dataset *teng_dataset_tokens(const teng_token_options *options);

/* ---- batches of your own ---- */
#define TENG_MAX_INPUTS 8
/* One operand of the model. Dimension 0 of every input is the batch: micro-batches are cut along it. The loss
 * operand comes last: teng_model_forward calls the model without it. An i32 input named "labels" weights
 * micro-batches by its entries other than -100. */
typedef struct teng_input {
    const char *name; /* unique */
    teng_desc desc;
} teng_input;
typedef struct teng_batch {
    int n;
    teng_desc
        desc[TENG_MAX_INPUTS];   /* preset to the inputs'; dimensions may be made smaller (shorter batches) */
    void *data[TENG_MAX_INPUTS]; /* room for the inputs' descriptions; to be filled, row-major */
    int64_t epoch, index;        /* which batch: index counts 0 … length - 1 in each epoch */
} teng_batch;
/* Fills a batch. It must be a function of (epoch, index) alone for a resumed training to equal an unbroken
 * one. A status other than TENG_OK (see teng_fail) ends the training with it. */
typedef teng_status teng_batch_fill(void *user, teng_batch *batch);
/* length: batches of an epoch. inputs are copied; user must outlive the dataset. NULL on failure. */
TENG_API teng_dataset *teng_dataset_create(const teng_input *inputs, int n_inputs, int64_t length,
                                           teng_batch_fill *fill, void *user);

/* ---- any dataset ---- */
TENG_API void teng_dataset_destroy(teng_dataset **dataset);
/* Batches of one epoch: 3 epochs are 3 · teng_dataset_length(d) steps. */
TENG_API int64_t teng_dataset_length(const teng_dataset *dataset);
/* Tokens that the tokenizer knows; 0 for a dataset of your own. */
TENG_API int64_t teng_dataset_vocab_size(const teng_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
