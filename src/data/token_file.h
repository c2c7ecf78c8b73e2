/*
 * Files of token ids behind one reader: teng's own (.tok), nanoGPT (.bin, raw u16/u32), llm.c (.bin with a
 * header), Megatron (.bin + .idx), and token arrays in memory. A file is one stream of tokens cut into
 * documents. Files are mapped, never trusted: every offset is checked when opened, every token when read.
 */
#ifndef TG_DATA_TOKEN_FILE_H
#define TG_DATA_TOKEN_FILE_H

#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tg_token_format {
    TG_TOKENS_AUTO,
    TG_TOKENS_TENG,
    TG_TOKENS_NANOGPT,
    TG_TOKENS_LLMC,
    TG_TOKENS_MEGATRON,
    TG_TOKENS_MEMORY,
    TG_TOKENS_FORMAT_COUNT
} tg_token_format;
const char *tg_token_format_name(tg_token_format format); /* "teng", "nanogpt", … */
tg_token_format tg_token_format_parse(const char *name);  /* TG_TOKENS_FORMAT_COUNT when unknown */

typedef struct tg_token_info {
    tg_token_format format;
    int token_bytes;     /* 1, 2 or 4 */
    uint32_t vocab_size; /* as the file says; 0: it does not say */
    uint64_t tokens, documents;
    uint64_t text_bytes;     /* of the documents; 0: not known */
    uint64_t tokenizer_hash; /* 0: not known */
    int64_t eos;             /* token that ends each document; -1: none or not known */
} tg_token_info;

typedef struct tg_token_open {
    tg_token_format format; /* AUTO: by content, then by name (.u32: raw u32; other raw files: u16 when the
                               vocabulary is at most 65536, else u32) */
    uint32_t vocab_limit;   /* tokens must be below it; 0: whatever the file says */
    int64_t eos;            /* raw and llm.c files: documents end after this token; -1: one document */
    bool verify;            /* read everything now: checksums, tokens below the limit */
} tg_token_open;

typedef struct tg_token_file tg_token_file;
/* options may be NULL. path of a Megatron pair: either file, or the name without extension. */
teng_status tg_token_file_open(const char *path, const tg_token_open *options, tg_token_file **out);
/* Tokens in memory. Takes the arrays over (tg_free), also on failure. doc_ends[d]: tokens up to the end of
 * document d; doc_bytes[d]: its text bytes (may be NULL); score[i] == 0: token i is never a label (may be
 * NULL). */
teng_status tg_token_file_from_memory(const char *name, const tg_token_info *info, uint32_t *tokens,
                                      uint64_t *doc_ends, uint64_t *doc_bytes, uint8_t *score,
                                      tg_token_file **out);
void tg_token_file_close(tg_token_file **f);
const tg_token_info *tg_token_file_info(const tg_token_file *f);
const char *tg_token_file_path(const tg_token_file *f);
/* n tokens from position pos. A token at or above the limit is an error with file, position and value. */
teng_status tg_token_file_read(const tg_token_file *f, uint64_t pos, uint64_t n, int32_t *out);
/* score[0 … n) of tokens from pos; all 1 when the file has no scores. */
void tg_token_file_score(const tg_token_file *f, uint64_t pos, uint64_t n, uint8_t *out);
/* Tokens [begin, end) and text bytes (0: not known) of document d. */
void tg_token_file_document(const tg_token_file *f, uint64_t d, uint64_t *begin, uint64_t *end,
                            uint64_t *bytes);
/* Reads everything: block checksums (the bad block's offset is named) and the range of every token. */
teng_status tg_token_file_verify(const tg_token_file *f);

/* ---- writing ---- */
typedef struct tg_token_writer tg_token_writer;
/* info: format, vocab_size, tokenizer_hash, eos. The width follows the format and the vocabulary. Megatron
 * writes <path> and the .idx beside it; path should end in .bin. Nothing appears before commit. */
teng_status tg_token_writer_open(const char *path, const tg_token_info *info, tg_token_writer **out);
teng_status tg_token_writer_add(tg_token_writer *w, const uint32_t *tokens,
                                size_t n);                                /* to the open document */
teng_status tg_token_writer_end(tg_token_writer *w, uint64_t text_bytes); /* ends the document */
teng_status tg_token_writer_commit(tg_token_writer **w);                  /* destroys w, also on failure */
void tg_token_writer_abort(tg_token_writer **w);
const tg_token_info *tg_token_writer_info(const tg_token_writer *w); /* counts so far */

#endif
