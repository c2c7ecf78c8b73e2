/*
 * Token streams → batches. The order of samples is a pure function of (seed, epoch, index); one number, the
 * cursor (samples consumed so far by all ranks), says where a run is, and seek is O(1). A background thread
 * may prepare batches ahead; what it gives is the same with and without it. Not thread-safe: one caller per
 * loader.
 */
#ifndef TG_DATA_LOADER_H
#define TG_DATA_LOADER_H

#include "data/corpus.h"

#define TG_LABEL_IGNORE (-100)
#define TG_MAX_BUCKETS 16

typedef enum tg_packing {
    TG_PACK_CROSS,    /* one continuous stream: samples may hold parts of several documents */
    TG_PACK_DOCUMENT, /* a sample holds tokens of one document only, padded at the end */
} tg_packing;
typedef enum tg_split { TG_SPLIT_ALL, TG_SPLIT_TRAIN, TG_SPLIT_VAL } tg_split;

typedef struct tg_loader_options {
    const char *const *files; /* token files, text files or folders; all of one kind */
    int n_files;
    const tg_tokenizer *tokenizer; /* needed for text; may be NULL for token files. Must outlive the loader */
    tg_corpus_options corpus;      /* how text is read; val_fraction and seed also split token files */
    tg_split split;                /* which part of the documents; ALL when val_fraction is 0 */
    tg_token_format format;        /* of token files */
    int64_t eos;                   /* raw token files: token that ends documents; -1 none */
    uint32_t vocab_limit;          /* tokens must be below it; 0: the tokenizer's or the file's vocabulary */

    bool synthetic; /* no files: random tokens below vocab_limit, drawn from the seed */

    int64_t seq_len;                     /* tokens of a sample; with buckets: the largest bucket */
    int64_t seq_buckets[TG_MAX_BUCKETS]; /* ascending; n_buckets 0: every batch has seq_len */
    int n_buckets;       /* DOCUMENT: a batch takes the smallest bucket that holds its longest sample (of all
                            ranks).       CROSS: every n_buckets batches visit each bucket once, in an order drawn
                            from       the seed */
    int64_t rows;        /* sequences per batch on this rank */
    int64_t rank, ranks; /* of those that share the batch; ranks 0 counts as 1 */
    /* Micro-batches that the whole batch is cut into; 0 counts as 1. Each is shared by the ranks: piece m of
     * rank k begins at sample cursor + (m * ranks + k) * rows / pieces, so that micro-batch m has the same
     * samples whatever the number of ranks. */
    int64_t pieces;
    tg_packing packing;
    uint64_t seed;
    bool shuffle;
    bool drop_last; /* an epoch ends at a whole batch; else batches run on into the next epoch */
    bool once; /* evaluation: in order, one pass, every token predicted once, last window padded with ignored
                  labels; implies no shuffle */
    int32_t pad;  /* token id of padding; -1: eos if known, else 0 */
    int prefetch; /* batches prepared ahead by a thread; 0: no thread */
} tg_loader_options;

/* tokens and labels are [rows, seq], row-major, owned by the loader, valid until the next call on it. labels
 * are already shifted: labels[t] is the token after tokens[t], or TG_LABEL_IGNORE. */
typedef struct tg_batch {
    const int32_t *tokens, *labels;
    int64_t rows, seq; /* rows == 0: the pass is over (once) */
    int64_t valid;     /* labels that count, this rank */
    int64_t epoch;     /* of the first sample of the batch, all ranks */
    uint64_t cursor;   /* after this batch: what to save to go on behind it */
} tg_batch;

typedef struct tg_loader_info {
    uint64_t tokens, documents; /* of the chosen split */
    uint64_t text_bytes;        /* 0: not known */
    uint64_t samples;           /* per epoch, all ranks */
    uint64_t batches;           /* per epoch, rounded down (once: up) */
    double wait_seconds;        /* time next() has waited for the prefetch thread */
} tg_loader_info;

typedef struct tg_loader tg_loader;
teng_status tg_loader_open(const tg_loader_options *options, tg_loader **out);
void tg_loader_close(tg_loader **l);
teng_status tg_loader_next(tg_loader *l, tg_batch *out);
uint64_t tg_loader_cursor(const tg_loader *l); /* after the last batch given out */
teng_status tg_loader_seek(tg_loader *l, uint64_t cursor);
tg_loader_info tg_loader_info_get(const tg_loader *l);
/* A hash of samples from all over an epoch: two loaders that read the same files give the same, whatever part
 * of a batch is theirs. 0: synthetic, or a sample cannot be read. */
uint64_t tg_loader_fingerprint(const tg_loader *l);

#endif
