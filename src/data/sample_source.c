/*
 * The stream behind the samples. It consists of extents: runs of tokens in a file that belong to the chosen
 * split (the whole file when nothing is split off). CROSS cuts the joined extents into equal pieces, DOCUMENT
 * cuts each document into pieces. Positions are found by binary search, so opening costs at most one entry
 * per document.
 */
#include "data/sample_source.h"

#include "base/fail.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define VERIFY_BYTES ((uint64_t)256 << 20) /* files up to here are read through when opened */

typedef struct extent {
    uint32_t file;
    uint64_t begin, first; /* position in the file, in the stream */
    uint64_t len;
} extent;
typedef struct document {
    uint32_t file;
    uint64_t begin, len;
    uint64_t first; /* number of its first sample */
} document;

struct tg_sample_source {
    tg_token_file **files;
    int n_files;
    TG_VEC(extent) extents;
    TG_VEC(document) documents; /* DOCUMENT only */
    uint64_t total;             /* tokens of the stream */
    uint64_t n_documents, text_bytes, samples;
    int64_t seq; /* labels of a sample: seq_len, or the sum of the buckets */
    bool document, once, bytes_known;
};

/* ---- files ---- */

static teng_status open_file(tg_sample_source *s, const tg_loader_options *o, int i, uint32_t limit)
{
    const char *path = o->files[i];
    tg_token_open open = {.format = o->format, .vocab_limit = limit, .eos = o->eos};
    TG_TRY(tg_token_file_open(path, &open, &s->files[i]));
    const tg_token_info *info = tg_token_file_info(s->files[i]);
    if (o->tokenizer && info->tokenizer_hash && info->tokenizer_hash != tg_tokenizer_hash(o->tokenizer))
        return tg_fail(TENG_INVALID,
                       "%s was made with another tokenizer (%016" PRIx64 ", this one is %016" PRIx64
                       "): prepare it again, or use the tokenizer it was made with",
                       path, info->tokenizer_hash, tg_tokenizer_hash(o->tokenizer));
    if (info->tokens * (uint64_t)info->token_bytes <= VERIFY_BYTES) return tg_token_file_verify(s->files[i]);
    return TENG_OK;
}

static teng_status open_files(tg_sample_source *s, const tg_loader_options *o)
{
    int text = 0;
    if (o->n_files < 1) return tg_fail(TENG_INVALID, "no data file was named (data.files)");
    for (int i = 0; i < o->n_files; i++)
        text += tg_corpus_is_text(o->files[i]);
    if (text && text < o->n_files)
        return tg_fail(TENG_INVALID, "%s and %s: text and token files cannot be mixed", o->files[0],
                       o->files[o->n_files - 1]);
    s->n_files = text ? 1 : o->n_files;
    s->files = tg_calloc((size_t)s->n_files, sizeof(tg_token_file *));
    if (!s->files) return TENG_MEMORY;
    uint32_t limit = o->vocab_limit;
    if (o->tokenizer && limit && tg_tokenizer_vocab_size(o->tokenizer) > limit && text)
        return tg_fail(TENG_INVALID, "the tokenizer has %u tokens, the model's vocabulary only %u",
                       tg_tokenizer_vocab_size(o->tokenizer), limit);
    if (!limit && o->tokenizer) limit = tg_tokenizer_vocab_size(o->tokenizer);
    if (text) {
        if (!o->tokenizer)
            return tg_fail(TENG_INVALID, "%s is text: reading it needs a tokenizer", o->files[0]);
        return tg_corpus_load(o->tokenizer, &o->corpus, o->files, o->n_files, &s->files[0]);
    }
    for (int i = 0; i < o->n_files; i++)
        TG_TRY(open_file(s, o, i, limit));
    return TENG_OK;
}

/* ---- the stream ---- */

static bool add_extent(tg_sample_source *s, uint32_t file, uint64_t begin, uint64_t end)
{
    extent *last = s->extents.len ? &s->extents.data[s->extents.len - 1] : NULL;
    uint64_t first = s->total;
    if (begin == end) return true;
    s->total += end - begin;
    if (last && last->file == file && last->begin + last->len == begin) {
        last->len += end - begin;
        return true;
    }
    return tg_vec_push(&s->extents, ((extent){file, begin, first, end - begin}));
}

static bool add_document(tg_sample_source *s, uint32_t file, uint64_t begin, uint64_t end)
{
    if (end - begin < 2) return true; /* nothing to predict */
    document d = {file, begin, end - begin, s->samples};
    s->samples += (end - begin - 1 + (uint64_t)s->seq - 1) / (uint64_t)s->seq;
    return tg_vec_push(&s->documents, d);
}

static bool add_file(tg_sample_source *s, const tg_loader_options *o, const tg_corpus_split *split,
                     uint32_t file, uint64_t first_document)
{
    const tg_token_info *info = tg_token_file_info(s->files[file]);
    bool whole = split->val_fraction <= 0;
    s->bytes_known = s->bytes_known && info->text_bytes > 0;
    if (whole && !s->document) {
        s->n_documents += info->documents;
        s->text_bytes += info->text_bytes;
        return add_extent(s, file, 0, info->tokens);
    }
    for (uint64_t d = 0; d < info->documents; d++) {
        uint64_t begin, end, bytes;
        bool val = tg_corpus_is_val(split, first_document + d);
        if (!whole && val != (o->split == TG_SPLIT_VAL)) continue;
        tg_token_file_document(s->files[file], d, &begin, &end, &bytes);
        s->n_documents++;
        s->text_bytes += bytes;
        if (!add_extent(s, file, begin, end) || (s->document && !add_document(s, file, begin, end)))
            return false;
    }
    return true;
}

static teng_status too_short(const tg_sample_source *s, const tg_loader_options *o)
{
    static const char *const parts[] = {"", " in the training part", " in the validation part"};
    if (s->once || s->document || s->total < 3)
        return tg_fail(TENG_INVALID,
                       "%s: %" PRIu64
                       " tokens%s: too few to predict one from another; at least 2 in one %s are needed",
                       o->files[0], s->total, parts[o->split], s->document ? "document" : "stream");
    return tg_fail(TENG_INVALID,
                   "%s: the text is shorter than one sequence: %" PRIu64 " tokens%s, %" PRId64
                   " are needed (%s + 1). Use "
                   "more text, or a sequence length of at most %" PRIu64,
                   o->files[0], s->total, parts[o->split], s->seq + 1,
                   o->n_buckets ? "the sum of the buckets" : "the sequence length", s->total - 1);
}

static teng_status build(tg_sample_source *s, const tg_loader_options *o)
{
    uint64_t documents = 0, first = 0;
    tg_corpus_split split = {.forced_val = -1, .forced_train = -1};
    for (int i = 0; i < s->n_files; i++)
        documents += tg_token_file_info(s->files[i])->documents;
    if (o->split != TG_SPLIT_ALL)
        TG_TRY(tg_corpus_split_make(o->corpus.seed, documents, o->corpus.val_fraction, &split));
    if (o->split == TG_SPLIT_VAL && split.val_fraction <= 0)
        return tg_fail(TENG_INVALID, "the validation part was asked for, and the validation fraction is 0");
    for (int i = 0; i < s->n_files; i++) {
        if (!add_file(s, o, &split, (uint32_t)i, first)) return TENG_MEMORY;
        first += tg_token_file_info(s->files[i])->documents;
    }
    if (!s->document) {
        uint64_t labels = s->total ? s->total - 1 : 0, seq = (uint64_t)s->seq;
        s->samples = s->once ? (labels + seq - 1) / seq : labels / seq;
    }
    return s->samples ? TENG_OK : too_short(s, o);
}

teng_status tg_sample_source_open(const tg_loader_options *o, tg_sample_source **out)
{
    *out = NULL;
    tg_sample_source *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    s->document = o->packing == TG_PACK_DOCUMENT;
    s->once = o->once;
    s->bytes_known = true;
    s->seq = o->seq_len;
    if (!s->document && !s->once && o->n_buckets) {
        s->seq = 0;
        for (int i = 0; i < o->n_buckets; i++)
            s->seq += o->seq_buckets[i];
    }
    teng_status status = open_files(s, o);
    if (status == TENG_OK) status = build(s, o);
    if (status != TENG_OK) tg_sample_source_close(&s);
    *out = s;
    return status;
}

void tg_sample_source_close(tg_sample_source **source)
{
    tg_sample_source *s = *source;
    if (!s) return;
    for (int i = 0; i < s->n_files && s->files; i++)
        tg_token_file_close(&s->files[i]);
    tg_free(s->files);
    tg_vec_free(&s->extents);
    tg_vec_free(&s->documents);
    tg_free(s);
    *source = NULL;
}

uint64_t tg_sample_source_count(const tg_sample_source *s)
{
    return s->samples;
}

void tg_sample_source_info(const tg_sample_source *s, tg_loader_info *info)
{
    info->tokens = s->total;
    info->documents = s->n_documents;
    info->text_bytes = s->bytes_known ? s->text_bytes : 0;
}

int64_t tg_sample_source_eos(const tg_sample_source *s)
{
    return tg_token_file_info(s->files[0])->eos;
}

/* ---- samples ---- */

static const document *document_of(const tg_sample_source *s, uint64_t i)
{
    size_t lo = 0, hi = s->documents.len;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->documents.data[mid].first <= i)
            lo = mid;
        else
            hi = mid;
    }
    return &s->documents.data[lo];
}

int64_t tg_sample_source_length(const tg_sample_source *s, uint64_t i)
{
    uint64_t begin = i * (uint64_t)s->seq, end = s->total;
    if (s->document) {
        const document *d = document_of(s, i);
        begin = (i - d->first) * (uint64_t)s->seq;
        end = d->len;
    }
    uint64_t left = end - 1 - begin;
    return left < (uint64_t)s->seq ? (int64_t)left : s->seq;
}

/* n tokens from position pos of the stream, and whether each may be a label. */
static teng_status read_stream(const tg_sample_source *s, uint64_t pos, uint64_t n, int32_t *out,
                               uint8_t *score)
{
    size_t lo = 0, hi = s->extents.len;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->extents.data[mid].first <= pos)
            lo = mid;
        else
            hi = mid;
    }
    for (; n; lo++) {
        const extent *e = &s->extents.data[lo];
        uint64_t skip = pos - e->first, part = e->len - skip < n ? e->len - skip : n;
        TG_TRY(tg_token_file_read(s->files[e->file], e->begin + skip, part, out));
        tg_token_file_score(s->files[e->file], e->begin + skip, part, score);
        pos += part;
        out += part;
        score += part;
        n -= part;
    }
    return TENG_OK;
}

teng_status tg_sample_source_read(const tg_sample_source *s, const tg_sample_scratch *scratch, uint64_t i,
                                  int64_t offset, int64_t seq, int32_t pad, int32_t *tokens, int32_t *labels,
                                  int64_t *valid)
{
    uint64_t want = (uint64_t)seq + 1, have;
    if (s->document) {
        const document *d = document_of(s, i);
        uint64_t begin = (i - d->first) * (uint64_t)s->seq;
        have = d->len - begin < want ? d->len - begin : want;
        TG_TRY(tg_token_file_read(s->files[d->file], d->begin + begin, have, scratch->tokens));
        tg_token_file_score(s->files[d->file], d->begin + begin, have, scratch->score);
    } else {
        uint64_t begin = i * (uint64_t)s->seq + (uint64_t)offset;
        have = s->total - begin < want ? s->total - begin : want;
        TG_TRY(read_stream(s, begin, have, scratch->tokens, scratch->score));
    }
    for (int64_t t = 0; t < seq; t++) {
        bool next = (uint64_t)t + 1 < have && scratch->score[t + 1];
        tokens[t] = (uint64_t)t < have ? scratch->tokens[t] : pad;
        labels[t] = next ? scratch->tokens[t + 1] : TG_LABEL_IGNORE;
        *valid += next;
    }
    return TENG_OK;
}
