/*
 * Documents → token files, and documents → tokens in memory. Inputs are text files (one document each, or cut
 * at a separator), .jsonl files (one document a line) and folders (searched for .txt, .md and .jsonl, sorted
 * by name). The split into training and validation is by document: a hash of (seed, document number) decides.
 */
#ifndef TG_DATA_CORPUS_H
#define TG_DATA_CORPUS_H

#include "data/token_file.h"
#include "data/tokenizer.h"

typedef struct tg_corpus_options {
    const char *json_field; /* NULL: "text" */
    const char
        *separator;      /* text files are cut at this string, which is dropped; NULL: one document a file */
    bool add_eos;        /* each document ends with the tokenizer's end token */
    bool parse_special;  /* special tokens written out in the text count as such */
    double val_fraction; /* of the documents, [0, 1) */
    uint64_t seed;
} tg_corpus_options;

typedef struct tg_corpus_progress {
    uint64_t documents, empty; /* read so far; of which without text (dropped) */
    uint64_t text_bytes, tokens;
    uint64_t input_bytes, input_total;
    double seconds;
} tg_corpus_progress;
typedef void tg_corpus_report(void *user, const tg_corpus_progress *p);

typedef struct tg_corpus_result {
    tg_token_info train, val;
    uint64_t empty;
    double seconds;
} tg_corpus_result;

/* Writes train_path and, when val_fraction > 0, val_path. report (may be NULL) is called a few times a
 * second. */
teng_status tg_corpus_prepare(const tg_tokenizer *t, const tg_corpus_options *options,
                              const char *const *inputs, int n_inputs, tg_token_format format,
                              const char *train_path, const char *val_path, tg_corpus_report *report,
                              void *user, tg_corpus_result *result);
/* All documents as one token array in memory; no split (the loader splits). .jsonl lines with "prompt" and
 * "completion" and no text field: only the completion (and the end token) is scored; token files cannot hold
 * that, so prepare refuses such lines. */
teng_status tg_corpus_load(const tg_tokenizer *t, const tg_corpus_options *options, const char *const *inputs,
                           int n_inputs, tg_token_file **out);
/* The split of `documents` documents: number d is validation when its draw is below the fraction. Where that
 * leaves a part empty, the document with the smallest (largest) draw goes there all the same: forced, else
 * -1. An error for a fraction outside [0, 1) and for a single document. */
typedef struct tg_corpus_split {
    uint64_t key;
    double val_fraction;
    int64_t forced_val, forced_train;
} tg_corpus_split;
teng_status tg_corpus_split_make(uint64_t seed, uint64_t documents, double val_fraction,
                                 tg_corpus_split *out);
bool tg_corpus_is_val(const tg_corpus_split *split, uint64_t d);
/* True when the path names text (a folder, .txt, .md, .jsonl, …) rather than token files (.tok, .bin, .idx,
 * .u16, .u32). */
bool tg_corpus_is_text(const char *path);

#endif
