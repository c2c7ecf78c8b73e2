/*
 * Text ↔ token ids: byte-pair encoding read from and written to Hugging Face's tokenizer.json. A tokenizer is
 * immutable once made; every function may be called from several threads at once. Any bytes are accepted:
 * bytes that are not valid UTF-8 become byte tokens, so decode(encode(x)) == x unless the file itself asks
 * for a normalizer (NFC, …) that changes text. What a file asks for and is not implemented is refused by
 * name.
 */
#ifndef TG_DATA_TOKENIZER_H
#define TG_DATA_TOKENIZER_H

#include "base/strbuf.h"
#include "base/vec.h"
#include "teng/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_tokenizer tg_tokenizer;
typedef TG_VEC(uint32_t) tg_ids; /* zero-initialise; free with tg_vec_free */

/* path: a tokenizer.json, or a folder that holds one. A tokenizer_config.json beside it names bos and eos. */
teng_status tg_tokenizer_load(const char *path, tg_tokenizer **out);
/* The same from text; `name` stands in error messages. */
teng_status tg_tokenizer_parse(const char *name, const char *text, size_t len, tg_tokenizer **out);
/* A tiktoken rank file (lines "base64 rank"); pattern: "gpt2", "llama3" (= cl100k), "qwen2", "o200k", or a
 * regex. specials get the ids after the last rank. */
teng_status tg_tokenizer_load_tiktoken(const char *path, const char *pattern, const char *const *specials,
                                       int n_specials, tg_tokenizer **out);
/* The byte tokenizer: ids 0 … 255 are the bytes, then the special tokens (NULL, 0: only "<|endoftext|>"). */
teng_status tg_tokenizer_bytes(const char *const *specials, int n_specials, tg_tokenizer **out);
teng_status tg_tokenizer_save(const tg_tokenizer *t, const char *path); /* tokenizer.json, atomic */
void tg_tokenizer_destroy(tg_tokenizer **t);

enum {
    TG_ENCODE_SPECIAL = 1,  /* special tokens written out in the text ("<|endoftext|>") become their ids;
                               without  it they are ordinary text (documents of unknown origin) */
    TG_ENCODE_TEMPLATE = 2, /* add what the file's post-processor adds (bos, eos) */
};
/* Appends the ids of n bytes to out. Large inputs use all OpenMP threads. */
teng_status tg_tokenizer_encode(const tg_tokenizer *t, const void *text, size_t n, uint32_t flags,
                                tg_ids *out);
/* Many texts at once, in parallel: ends[i] is the length of out after text i. */
typedef struct tg_text {
    const char *data;
    size_t len;
} tg_text;
teng_status tg_tokenizer_encode_batch(const tg_tokenizer *t, const tg_text *texts, size_t n, uint32_t flags,
                                      tg_ids *out, size_t *ends);
/* A length <= n at which text may be cut with no effect on the ids, at least `want` where such a place
 * exists; n when the tokenizer allows no cut. */
size_t tg_tokenizer_cut(const tg_tokenizer *t, const void *text, size_t n, size_t want);
/* Appends the bytes of ids. skip_special leaves special tokens out. An unknown id is an error with its place.
 */
teng_status tg_tokenizer_decode(const tg_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special,
                                tg_strbuf *out);

uint32_t tg_tokenizer_vocab_size(const tg_tokenizer *t); /* largest id + 1 */
/* Bytes of a token; NULL when the id is not used. Not NUL-terminated. */
const char *tg_tokenizer_token(const tg_tokenizer *t, uint32_t id, size_t *len);
int64_t tg_tokenizer_id(const tg_tokenizer *t, const char *content); /* an added token, or whole token; -1 */
bool tg_tokenizer_is_special(const tg_tokenizer *t, uint32_t id);
int64_t tg_tokenizer_eos(const tg_tokenizer *t); /* -1: none known */
int64_t tg_tokenizer_bos(const tg_tokenizer *t);
uint64_t tg_tokenizer_hash(const tg_tokenizer *t);     /* of vocabulary, merges, pattern and added tokens */
json_t *tg_tokenizer_info_json(const tg_tokenizer *t); /* new reference; NULL when memory is out */

/* ---- training ---- */
typedef struct tg_bpe_progress {
    const char *phase;    /* "count", "merge" */
    uint64_t done, total; /* bytes, merges */
    uint64_t words;       /* distinct words so far */
    double seconds;
} tg_bpe_progress;
typedef struct tg_bpe_options {
    uint32_t vocab_size;         /* all tokens: specials + 256 bytes + merges */
    const char *pattern;         /* NULL: "qwen2"; or as in tg_tokenizer_load_tiktoken */
    const char *const *specials; /* NULL: "<|endoftext|>" */
    int n_specials;
    int threads;              /* 0: all */
    int64_t min_frequency;    /* 0: 2 */
    uint32_t max_token_bytes; /* 0: no limit */
    const char *json_field;   /* field of .jsonl lines; NULL: "text" */
    void (*progress)(void *user, const tg_bpe_progress *p);
    void *user;
} tg_bpe_options;
/* Trains on text files, .jsonl files and folders of them. Reads in bounded chunks: memory follows the number
 * of distinct words. The result is a function of the text alone: not of threads, not of the order of the
 * inputs. */
teng_status tg_bpe_train(const tg_bpe_options *options, const char *const *inputs, int n_inputs,
                         tg_tokenizer **out);

#endif
