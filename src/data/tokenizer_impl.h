/*
 * The inside of a tokenizer, shared by the files of this room that make and use one. Everything here is
 * constant once tg_tokenizer_parse has returned, except the pool of scratch memory, which a mutex guards.
 *
 * The way of a text: added tokens cut it into segments; the normalizer rewrites a segment; the pre-tokenizer
 * cuts it into words; BPE merges the symbols of a word (bytes, or characters in SentencePiece-style files)
 * into tokens.
 */
#ifndef TG_DATA_TOKENIZER_IMPL_H
#define TG_DATA_TOKENIZER_IMPL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/strmap.h"
#include "data/tokenizer.h"

#include <pcre2.h>
#include <pthread.h>

#define TG_TOKEN_NONE UINT32_MAX
#define TG_MAX_TOKEN_ID                                                                                      \
    ((1 << 22) - 1) /* far above any real vocabulary; bounds what a hostile file can ask for */
#define TG_MAX_STEPS 8

/* ---- normalizer and pre-tokenizer ---- */
typedef enum tg_norm_kind {
    TG_NORM_NFC,
    TG_NORM_NFD,
    TG_NORM_NFKC,
    TG_NORM_NFKD,
    TG_NORM_PREPEND,
    TG_NORM_REPLACE,
    TG_NORM_META /* Metaspace: spaces become `to`, `to` goes in front */
} tg_norm_kind;
typedef enum tg_meta_prepend { TG_META_NEVER, TG_META_FIRST, TG_META_ALWAYS } tg_meta_prepend;
typedef struct tg_norm_step {
    tg_norm_kind kind;
    tg_meta_prepend prepend;
    char *from, *to;
} tg_norm_step;

typedef enum tg_behavior {
    TG_ISOLATED,
    TG_REMOVED,
    TG_CONTIGUOUS,
    TG_MERGE_PREVIOUS,
    TG_MERGE_NEXT
} tg_behavior;
typedef struct tg_pre_step { /* a split by regex */
    pcre2_code *code;
    char *pattern; /* as the file spells it */
    bool jit;
    tg_behavior behavior;
    bool invert;
} tg_pre_step;

/* ---- added tokens ---- */
typedef struct tg_added {
    uint32_t id;
    char *content;
    size_t len;
    bool special, single_word, lstrip, rstrip, normalized;
} tg_added;
typedef struct tg_added_set { /* matched by longest content at the leftmost place */
    tg_strmap *index;         /* content → index into tg_tokenizer.added */
    uint8_t pairs[8192];      /* bit per two first bytes that begin some content */
    TG_VEC(size_t) lengths;   /* distinct lengths, longest first */
    size_t shortest;
} tg_added_set;
typedef struct tg_span { /* id == TG_TOKEN_NONE: text */
    size_t begin, end;
    uint32_t id;
} tg_span;
typedef TG_VEC(tg_span) tg_spans;

/* ---- merges ---- */
typedef struct tg_merge {
    uint32_t left, right, rank, result; /* left TG_TOKEN_NONE: empty slot */
} tg_merge;
typedef struct tg_merge_table {
    tg_merge *slots;
    size_t mask, count;
} tg_merge_table;
bool tg_merge_table_init(tg_merge_table *m, size_t count);
/* Adds a pair or, if it is there, gives it the new rank. */
void tg_merge_table_put(tg_merge_table *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t result);
static inline const tg_merge *tg_merge_find(const tg_merge_table *m, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    for (size_t i = (size_t)(h >> 32) & m->mask;; i = (i + 1) & m->mask) {
        const tg_merge *s = &m->slots[i];
        if (s->left == left && s->right == right) return s;
        if (s->left == TG_TOKEN_NONE) return NULL;
    }
}

enum { TG_TOKEN_USED = 1, TG_TOKEN_ADDED = 2, TG_TOKEN_SPECIAL = 4 };

struct tg_scratch;
struct tg_tokenizer {
    char *name, *json; /* where it came from; its tokenizer.json */
    size_t json_len;

    uint32_t vocab_size;            /* largest id + 1 */
    tg_strbuf bytes;                /* of all tokens, as decode writes them */
    uint32_t *token_at, *token_len; /* [vocab_size] */
    uint8_t *token_flags;
    tg_strmap *by_key; /* symbols of the model → id: bytes (byte-level) or UTF-8 */

    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    bool plain_bytes; /* 256 byte tokens and nothing to merge */
    uint32_t unk;
    uint32_t byte_id[256]; /* byte-level: the byte's token; else its <0xNN>; TG_TOKEN_NONE: missing */
    tg_merge_table merges;
    size_t n_merges;

    tg_norm_step norm[TG_MAX_STEPS];
    int n_norm;
    bool prefix_space; /* ByteLevel add_prefix_space */
    tg_pre_step pre[TG_MAX_STEPS];
    int n_pre;
    bool cut_inside;  /* a segment may be cut between a letter and white space */
    bool cut_outside; /* and no added token can be hit by that */

    TG_VEC(tg_added) added;
    tg_added_set raw_set, norm_set;  /* matched before and after the normalizer */
    tg_ids prefix, suffix;           /* of the post-processor */
    char *replace_from, *replace_to; /* SentencePiece-style decoder: "▁" → " " */
    int strip_start;                 /* spaces dropped at the start of decoded text */
    int64_t bos, eos;
    uint64_t hash;

    pcre2_general_context *pcre;
    pthread_mutex_t lock;
    struct tg_scratch *pool;
};

/* ---- what one thread needs while encoding ---- */
typedef struct tg_cache_slot { /* one cache line */
    uint64_t hash;
    uint8_t len, count;
    char key[22];
    uint32_t ids[8];
} tg_cache_slot;
#define TG_CACHE_SLOTS (1u << 15)
typedef struct tg_heap_item {
    uint32_t rank, at;
} tg_heap_item;
typedef struct tg_scratch {
    struct tg_scratch *next;
    tg_cache_slot *cache;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    TG_VEC(uint32_t) symbol, rank, result, prev, after;
    TG_VEC(tg_heap_item) heap;
    tg_strbuf text[2]; /* normalizer */
    TG_VEC(int32_t) points;
    tg_spans spans;
    tg_ids ids;
} tg_scratch;
tg_scratch *tg_scratch_take(const tg_tokenizer *t); /* NULL: memory */
void tg_scratch_give(const tg_tokenizer *t, tg_scratch *s);
void tg_scratch_destroy(tg_scratch *s);

/* ---- the steps ---- */
/* Named pattern or the regex itself. */
const char *tg_pattern_named(const char *name);
/* True for patterns that never join a letter with white space behind it. */
bool tg_pattern_cuttable(const char *pattern);
teng_status tg_pattern_compile(const char *where, const char *pattern, pcre2_general_context *memory,
                               tg_pre_step *out);
/* Calls word() for each piece of valid UTF-8 text. */
typedef teng_status tg_word_fn(void *user, const char *word, size_t len);
teng_status tg_pretokenize(const tg_tokenizer *t, tg_scratch *s, const char *text, size_t n, tg_word_fn *word,
                           void *user);
/* Normalizes valid UTF-8: *out points to text itself or into the scratch. */
teng_status tg_normalize(const tg_tokenizer *t, tg_scratch *s, bool at_start, bool first, const char *text,
                         size_t n, const char **out, size_t *out_len);
bool tg_added_set_init(tg_added_set *set, const tg_tokenizer *t, bool normalized);
void tg_added_set_free(tg_added_set *set);
/* Appends the spans of text[begin, end); the offsets are those of text. */
bool tg_added_split(const tg_tokenizer *t, const tg_added_set *set, bool special, const char *text,
                    size_t begin, size_t end, tg_spans *out);
/* Appends the tokens of one word. */
teng_status tg_bpe_word(const tg_tokenizer *t, tg_scratch *s, const char *word, size_t len, tg_ids *out);
/* One byte that is not part of valid UTF-8. */
bool tg_bpe_byte(const tg_tokenizer *t, unsigned char byte, tg_ids *out);

/* ---- making one ---- */
/* The tokenizer.json text of a byte-level BPE model. tokens[i] (bytes) has id first_id + i … see
 * tokenizer_make.c. */
typedef struct tg_model_text {
    const char *pattern; /* NULL: no split */
    const char *const *specials;
    int n_specials;
    bool specials_first;   /* ids of the specials: 0 … or after the tokens */
    const tg_text *tokens; /* bytes of the other tokens, in id order */
    size_t n_tokens;
    const uint32_t (*merges)[2]; /* pairs of ids */
    size_t n_merges;
    bool ignore_merges;
} tg_model_text;
teng_status tg_tokenizer_make(const char *name, const tg_model_text *model, tg_tokenizer **out);

#endif
