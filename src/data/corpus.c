/*
 * Documents → tokens. Small documents are encoded in batches, so that all cores work on many at once; large
 * ones in pieces cut where the tokenizer allows it, so that memory stays bounded. Where the tokens go (files,
 * memory) is the sink's business.
 */
#include "data/corpus.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/documents.h"

#include <math.h>
#include <string.h>

#define BATCH_BYTES ((size_t)4 << 20)
#define PIECE_BYTES ((size_t)16 << 20)

/* ---- the split ---- */

bool tg_corpus_is_val(const tg_corpus_split *s, uint64_t d)
{
    if (s->val_fraction <= 0 || (int64_t)d == s->forced_train) return false;
    return (int64_t)d == s->forced_val || tg_rng_double(s->key, d) < s->val_fraction;
}

teng_status tg_corpus_split_make(uint64_t seed, uint64_t documents, double val_fraction, tg_corpus_split *out)
{
    *out = (tg_corpus_split){tg_rng_key(seed, "split"), val_fraction, -1, -1};
    if (!(val_fraction >= 0 && val_fraction < 1))
        return tg_fail(TENG_INVALID, "the validation fraction is %g; it lies in 0 … 1, without 1",
                       val_fraction);
    if (val_fraction <= 0 || documents == 0) return TENG_OK;
    if (documents == 1)
        return tg_fail(TENG_INVALID,
                       "1 document cannot be split into training and validation: give more documents, a "
                       "separator that cuts it, files of their own for validation, or the fraction 0");
    double least = INFINITY, most = -INFINITY;
    uint64_t first = 0, last = 0, val = 0;
    for (uint64_t d = 0; d < documents; d++) {
        double draw = tg_rng_double(out->key, d);
        val += draw < val_fraction;
        if (draw < least) {
            least = draw;
            first = d;
        }
        if (draw > most) {
            most = draw;
            last = d;
        }
    }
    if (val == 0) out->forced_val = (int64_t)first;
    if (val == documents) out->forced_train = (int64_t)last;
    return TENG_OK;
}

/* ---- documents → sink ---- */

typedef struct sink {
    /* Tokens of the open document, then its end. scored: they may be labels. */
    teng_status (*add)(void *user, const uint32_t *tokens, size_t n, bool scored);
    teng_status (*end)(void *user, uint64_t text_bytes);
    void *user;
} sink;

typedef struct piece {
    size_t at, len;
    bool scored, last; /* last: the document ends here */
    uint64_t text_bytes;
} piece;

typedef struct flow {
    const tg_tokenizer *t;
    const tg_corpus_options *options;
    const sink *to;
    uint32_t flags;
    tg_strbuf text; /* the batch */
    TG_VEC(piece) pieces;
    TG_VEC(tg_text) texts;
    TG_VEC(size_t) ends;
    tg_ids ids;
    tg_corpus_progress p;
    tg_corpus_report *report;
    void *user;
    double start, told;
} flow;

static void tell(flow *f, const tg_documents *docs, bool always)
{
    double now = tg_clock_seconds();
    f->p.seconds = now - f->start;
    if (!f->report || (!always && now - f->told < 0.2)) return;
    f->told = now;
    tg_documents_position(docs, &f->p.input_bytes, &f->p.input_total);
    f->report(f->user, &f->p);
}

static teng_status end_document(flow *f, uint64_t text_bytes)
{
    if (f->options->add_eos) {
        uint32_t eos = (uint32_t)tg_tokenizer_eos(f->t);
        TG_TRY(f->to->add(f->to->user, &eos, 1, true));
        f->p.tokens++;
    }
    return f->to->end(f->to->user, text_bytes);
}

static teng_status flush(flow *f)
{
    size_t n = f->pieces.len, done = 0;
    f->ids.len = f->texts.len = 0;
    if (!tg_vec_reserve(&f->texts, n) || !tg_vec_reserve(&f->ends, n)) return TENG_MEMORY;
    for (size_t i = 0; i < n; i++)
        f->texts.data[i] = (tg_text){tg_strbuf_str(&f->text) + f->pieces.data[i].at, f->pieces.data[i].len};
    if (n) TG_TRY(tg_tokenizer_encode_batch(f->t, f->texts.data, n, f->flags, &f->ids, f->ends.data));
    for (size_t i = 0; i < n; i++) {
        const piece *p = &f->pieces.data[i];
        TG_TRY(f->to->add(f->to->user, f->ids.data + done, f->ends.data[i] - done, p->scored));
        f->p.tokens += f->ends.data[i] - done;
        done = f->ends.data[i];
        if (p->last) TG_TRY(end_document(f, p->text_bytes));
    }
    f->pieces.len = 0;
    tg_strbuf_clear(&f->text);
    return TENG_OK;
}

static teng_status add_large(flow *f, const tg_document *doc)
{
    for (size_t at = 0; at < doc->len;) {
        size_t n = tg_tokenizer_cut(f->t, doc->text + at, doc->len - at, PIECE_BYTES);
        f->ids.len = 0;
        TG_TRY(tg_tokenizer_encode(f->t, doc->text + at, n, f->flags, &f->ids));
        TG_TRY(f->to->add(f->to->user, f->ids.data, f->ids.len, true));
        f->p.tokens += f->ids.len;
        at += n;
    }
    return end_document(f, doc->len);
}

static teng_status add_document(flow *f, const tg_document *doc)
{
    f->p.documents++;
    if (doc->len == 0) {
        f->p.empty++;
        return TENG_OK;
    }
    f->p.text_bytes += doc->len;
    if (doc->len > BATCH_BYTES && !doc->prompt) {
        TG_TRY(flush(f));
        return add_large(f, doc);
    }
    size_t at = f->text.len;
    tg_strbuf_add(&f->text, doc->text, doc->len);
    if (f->text.failed) return tg_fail(TENG_MEMORY, "no memory for %zu bytes of text", doc->len);
    if (doc->prompt && !tg_vec_push(&f->pieces, ((piece){.at = at, .len = doc->prompt}))) return TENG_MEMORY;
    piece rest = {at + doc->prompt, doc->len - doc->prompt, true, true, doc->len};
    if (!tg_vec_push(&f->pieces, rest)) return TENG_MEMORY;
    return f->text.len >= BATCH_BYTES ? flush(f) : TENG_OK;
}

static teng_status run_flow(flow *f, const char *const *inputs, int n_inputs)
{
    tg_documents *docs;
    tg_document doc;
    bool end = false;
    f->start = tg_clock_seconds();
    f->flags = f->options->parse_special ? TG_ENCODE_SPECIAL : 0;
    if (f->options->add_eos && tg_tokenizer_eos(f->t) < 0)
        return tg_fail(
            TENG_INVALID,
            "documents shall end with an end token, but the tokenizer has none that is known: name it in "
            "tokenizer_config.json (eos_token) or switch the end token off");
    TG_TRY(tg_documents_open(inputs, n_inputs, f->options->json_field, f->options->separator, &docs));
    teng_status status = TENG_OK;
    while (status == TENG_OK) {
        status = tg_documents_next(docs, &doc, &end);
        if (status != TENG_OK || end) break;
        status = add_document(f, &doc);
        tell(f, docs, false);
    }
    if (status == TENG_OK) status = flush(f);
    if (status == TENG_OK) tell(f, docs, true);
    tg_documents_close(&docs);
    tg_strbuf_free(&f->text);
    tg_vec_free(&f->pieces);
    tg_vec_free(&f->texts);
    tg_vec_free(&f->ends);
    tg_vec_free(&f->ids);
    return status;
}

/* ---- to files ---- */

typedef struct file_sink {
    tg_token_writer *part[2]; /* training, validation */
    tg_corpus_split split;
    uint64_t documents;
} file_sink;

static teng_status file_add(void *user, const uint32_t *tokens, size_t n, bool scored)
{
    file_sink *s = user;
    if (!scored)
        return tg_fail(TENG_UNSUPPORTED,
                       "lines with \"prompt\" and \"completion\" cannot go into token files, which do not "
                       "say what is scored: name the .jsonl file in data.files");
    return tg_token_writer_add(s->part[tg_corpus_is_val(&s->split, s->documents)], tokens, n);
}

static teng_status file_end(void *user, uint64_t text_bytes)
{
    file_sink *s = user;
    return tg_token_writer_end(s->part[tg_corpus_is_val(&s->split, s->documents++)], text_bytes);
}

static teng_status write_once(flow *f, file_sink *s, const char *const *inputs, int n_inputs,
                              const tg_token_info *info, const char *train_path, const char *val_path)
{
    TG_TRY(tg_token_writer_open(train_path, info, &s->part[0]));
    if (val_path) TG_TRY(tg_token_writer_open(val_path, info, &s->part[1]));
    TG_TRY(run_flow(f, inputs, n_inputs));
    if (s->documents == 0) return tg_fail(TENG_INVALID, "%s: the inputs hold no text", inputs[0]);
    return TENG_OK;
}

static teng_status commit(file_sink *s, tg_corpus_result *result)
{
    result->train = *tg_token_writer_info(s->part[0]);
    if (s->part[1]) result->val = *tg_token_writer_info(s->part[1]);
    TG_TRY(tg_token_writer_commit(&s->part[0]));
    return s->part[1] ? tg_token_writer_commit(&s->part[1]) : TENG_OK;
}

teng_status tg_corpus_prepare(const tg_tokenizer *t, const tg_corpus_options *options,
                              const char *const *inputs, int n_inputs, tg_token_format format,
                              const char *train_path, const char *val_path, tg_corpus_report *report,
                              void *user, tg_corpus_result *result)
{
    tg_token_info info = {.format = format,
                          .vocab_size = tg_tokenizer_vocab_size(t),
                          .tokenizer_hash = tg_tokenizer_hash(t),
                          .eos = options->add_eos ? tg_tokenizer_eos(t) : -1};
    file_sink s = {0};
    sink to = {file_add, file_end, &s};
    flow f = {.t = t, .options = options, .to = &to, .report = report, .user = user};
    if (options->val_fraction > 0 && !val_path)
        return tg_fail(TENG_INVALID, "a validation fraction of %g needs a file to write it to",
                       options->val_fraction);
    if (options->val_fraction <= 0) val_path = NULL;
    *result = (tg_corpus_result){0};
    TG_TRY(tg_corpus_split_make(options->seed, 0, options->val_fraction, &s.split));
    teng_status status = write_once(&f, &s, inputs, n_inputs, &info, train_path, val_path);
    if (status == TENG_OK)
        status = tg_corpus_split_make(options->seed, s.documents, options->val_fraction, &s.split);
    if (status == TENG_OK && (s.split.forced_val >= 0 || s.split.forced_train >= 0)) {
        /* The draws left one part empty; now that the number of documents is known, write again. */
        tg_token_writer_abort(&s.part[0]);
        tg_token_writer_abort(&s.part[1]);
        s.documents = 0;
        f = (flow){.t = t, .options = options, .to = &to, .report = report, .user = user};
        status = write_once(&f, &s, inputs, n_inputs, &info, train_path, val_path);
    }
    if (status == TENG_OK) status = commit(&s, result);
    tg_token_writer_abort(&s.part[0]);
    tg_token_writer_abort(&s.part[1]);
    result->empty = f.p.empty;
    result->seconds = f.p.seconds;
    return status;
}

/* ---- to memory ---- */

typedef struct memory_sink {
    tg_ids tokens;
    TG_VEC(uint64_t) ends, bytes;
    TG_VEC(uint8_t) score; /* empty until something is not scored */
    uint64_t text_bytes;
} memory_sink;

static teng_status memory_add(void *user, const uint32_t *tokens, size_t n, bool scored)
{
    memory_sink *s = user;
    size_t len = s->tokens.len;
    if (n == 0) return TENG_OK;
    if (!tg_vec_reserve(&s->tokens, len + n)) return TENG_MEMORY;
    memcpy(s->tokens.data + len, tokens, n * sizeof *tokens);
    s->tokens.len += n;
    if (scored && s->score.len == 0) return TENG_OK;
    if (!tg_vec_reserve(&s->score, len + n)) return TENG_MEMORY;
    if (s->score.len < len) memset(s->score.data + s->score.len, 1, len - s->score.len);
    memset(s->score.data + len, scored, n);
    s->score.len = len + n;
    return TENG_OK;
}

static teng_status memory_end(void *user, uint64_t text_bytes)
{
    memory_sink *s = user;
    s->text_bytes += text_bytes;
    return tg_vec_push(&s->ends, s->tokens.len) && tg_vec_push(&s->bytes, text_bytes) ? TENG_OK : TENG_MEMORY;
}

teng_status tg_corpus_load(const tg_tokenizer *t, const tg_corpus_options *options, const char *const *inputs,
                           int n_inputs, tg_token_file **out)
{
    memory_sink s = {0};
    sink to = {memory_add, memory_end, &s};
    flow f = {.t = t, .options = options, .to = &to};
    *out = NULL;
    teng_status status = run_flow(&f, inputs, n_inputs);
    if (status == TENG_OK && s.tokens.len == 0)
        status = tg_fail(TENG_INVALID, "%s: the inputs hold no text", inputs[0]);
    if (status != TENG_OK) {
        tg_vec_free(&s.tokens);
        tg_vec_free(&s.ends);
        tg_vec_free(&s.bytes);
        tg_vec_free(&s.score);
        return status;
    }
    tg_token_info info = {.vocab_size = tg_tokenizer_vocab_size(t),
                          .tokens = s.tokens.len,
                          .documents = s.ends.len,
                          .text_bytes = s.text_bytes,
                          .tokenizer_hash = tg_tokenizer_hash(t),
                          .eos = options->add_eos ? tg_tokenizer_eos(t) : -1};
    return tg_token_file_from_memory(inputs[0], &info, s.tokens.data, s.ends.data, s.bytes.data, s.score.data,
                                     out);
}

bool tg_corpus_is_text(const char *path)
{
    static const char *const token_files[] = {".tok", ".bin", ".idx", ".u16", ".u32"};
    size_t n = strlen(path);
    if (tg_path_is_dir(path)) return true;
    for (size_t i = 0; i < sizeof token_files / sizeof *token_files; i++) {
        size_t m = strlen(token_files[i]);
        if (n > m && strcmp(path + n - m, token_files[i]) == 0) return false;
    }
    return tg_path_exists(path) || strrchr(tg_path_base(path), '.');
}
