/*
 * A trained model at work: continuing text and being measured on text. How logits come about is in predict.c.
 */
#include "base/fail.h"
#include "base/rng.h"
#include "tensor/desc.h"
#include "train/lm_impl.h"

#include <math.h>
#include <string.h>

#define TAIL 8           /* tokens decoded again with a new one, whose text may depend on them */
#define EVAL_TOKENS 2048 /* of one evaluation batch, about */

/* ---- choosing a token ---- */
typedef struct candidate {
    float logit;
    uint32_t id;
    double weight;
} candidate;

typedef struct writing { /* one text in the making */
    tg_lm *lm;
    const tg_sampling *sampling;
    uint64_t key;
    tg_ids ids; /* prompt and what was added */
    tg_predictor predictor;
    candidate *candidates; /* [usable] */
    size_t n_candidates;
    tg_strbuf before, after; /* scratch */
    tg_strbuf held;          /* bytes of a character that is not whole yet */
    tg_text_sink *sink;
    void *user;
} writing;

/* ---- a heap of candidates, the likeliest at its top; of equals that of the lowest token ---- */
static bool likelier(const candidate *a, const candidate *b)
{
    return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void sink_down(candidate *c, size_t n, size_t at)
{
    const candidate moved = c[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && likelier(&c[child + 1], &c[child])) child++;
        if (!likelier(&c[child], &moved)) break;
        c[at] = c[child];
    }
    c[at] = moved;
}

static void make_heap(candidate *c, size_t n)
{
    for (size_t at = n / 2; at-- > 0;)
        sink_down(c, n, at);
}

/* The likeliest of the heap c[n] goes to c[n - 1], where the heap ends no more. */
static candidate *take_likeliest(candidate *c, size_t n)
{
    const candidate top = c[0];
    c[0] = c[n - 1];
    sink_down(c, n - 1, 0);
    c[n - 1] = top;
    return &c[n - 1];
}

/* Tokens that have a text; *best is the most likely, the lowest of equals. */
static teng_status collect(writing *w, uint32_t *best)
{
    float top = 0;
    w->n_candidates = 0;
    for (uint32_t id = 0; id < w->lm->usable; id++) {
        size_t len;
        const float logit = w->predictor.logits[id];
        if (!tg_tokenizer_token(w->lm->tokenizer, id, &len)) continue;
        if (isnan(logit) || logit == INFINITY)
            return tg_fail(TENG_NUMERIC,
                           "the model gave %g as the logit of token %u: its weights are damaged",
                           (double)logit, id);
        if (w->n_candidates == 0 || logit > top) {
            top = logit;
            *best = id;
        }
        w->candidates[w->n_candidates++] = (candidate){.logit = logit, .id = id};
    }
    return w->n_candidates ? TENG_OK : tg_fail(TENG_FORMAT, "the tokenizer has no tokens");
}

/* softmax(logit / temperature) without the division by its sum. */
static double weight(const writing *w, const candidate *c, float top)
{
    return exp(((double)c->logit - (double)top) / w->sampling->temperature);
}

/* The top_k likeliest, of these the likeliest that together have top_p of the weight; leaves them at the
 * front, the likeliest first. Returns their weight. */
static double cut(writing *w, float top)
{
    const tg_sampling *s = w->sampling;
    const size_t n = w->n_candidates, most = s->top_k > 0 && (uint64_t)s->top_k < n ? (size_t)s->top_k : n;
    candidate *c = w->candidates;
    double sum = 0, kept = 0;
    size_t count = 0, taken = 0;
    make_heap(c, n);
    if (most < n) { /* few: all are taken before their sum is known */
        for (; taken < most; taken++)
            sum += weight(w, take_likeliest(c, n - taken), top);
    } else {
        for (size_t i = 0; i < n; i++)
            sum += weight(w, &c[i], top);
    }
    while (count < most && (count == 0 || s->top_p >= 1 || kept < s->top_p * sum)) {
        candidate *next = count < taken ? &c[n - 1 - count] : take_likeliest(c, n - count);
        next->weight = weight(w, next, top);
        kept += next->weight;
        count++;
    }
    for (size_t i = 0; i < count && i < n - 1 - i; i++) { /* from the end to the front */
        const candidate swap = c[i];
        c[i] = c[n - 1 - i];
        c[n - 1 - i] = swap;
    }
    w->n_candidates = count;
    return kept;
}

static teng_status choose(writing *w, int64_t draw, uint32_t *id)
{
    const tg_sampling *s = w->sampling;
    TG_TRY(collect(w, id));
    if (s->temperature == 0) return TENG_OK;
    const float top = w->predictor.logits[*id];
    double left = 0;
    if (s->top_k > 0 || s->top_p < 1)
        left = cut(w, top);
    else
        for (size_t i = 0; i < w->n_candidates; i++)
            left += w->candidates[i].weight = weight(w, &w->candidates[i], top);
    left *= tg_rng_double(w->key, (uint64_t)draw);
    for (size_t i = 0; i < w->n_candidates; i++) {
        if (w->candidates[i].weight > 0) *id = w->candidates[i].id;
        left -= w->candidates[i].weight;
        if (left < 0) break;
    }
    return TENG_OK;
}

/* ---- text out ---- */
/* Bytes at the end that begin a character and do not end it. */
static size_t unfinished(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)text[n - back];
        if ((c & 0xC0) == 0x80) continue; /* a later byte of a character */
        const size_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return len > back ? back : 0;
    }
    return 0;
}

/* Hands over the held bytes, all of them or whole characters only. False: the sink wants no more. */
static bool hand_over(writing *w, bool all)
{
    const size_t rest = all ? 0 : unfinished(tg_strbuf_str(&w->held), w->held.len);
    const size_t n = w->held.len - rest;
    if (n == 0) return true;
    const bool more = w->sink(w->user, w->held.data, n);
    memmove(w->held.data, w->held.data + n, rest);
    w->held.len = rest;
    w->held.data[rest] = '\0';
    return more;
}

/* The text that a new token adds is the difference that it makes to the text of the last few. */
static teng_status append(writing *w, uint32_t id, bool *more)
{
    const size_t n = w->ids.len, begin = n > TAIL ? n - TAIL : 0;
    if (!tg_vec_push(&w->ids, id)) return TENG_MEMORY;
    tg_strbuf_clear(&w->before);
    tg_strbuf_clear(&w->after);
    const tg_tokenizer *t = w->lm->tokenizer;
    TG_TRY(tg_tokenizer_decode(t, w->ids.data + begin, n - begin, true, &w->before));
    TG_TRY(tg_tokenizer_decode(t, w->ids.data + begin, n + 1 - begin, true, &w->after));
    if (w->after.len > w->before.len)
        tg_strbuf_add(&w->held, w->after.data + w->before.len, w->after.len - w->before.len);
    if (w->held.failed || w->before.failed || w->after.failed)
        return tg_fail(TENG_MEMORY, "out of memory for the text");
    *more = hand_over(w, false);
    return TENG_OK;
}

/* ---- generation ---- */
static bool is_end(const tg_lm *lm, uint32_t id)
{
    for (size_t i = 0; i < lm->ends.len; i++)
        if (lm->ends.data[i] == id) return true;
    return false;
}

/* The prompt as the tokenizer's template has it, but for an end token behind it; a text must begin somewhere.
 */
static teng_status encode_prompt(writing *w, const char *prompt, size_t len)
{
    const tg_tokenizer *t = w->lm->tokenizer;
    const int64_t eos = tg_tokenizer_eos(t), bos = tg_tokenizer_bos(t);
    tg_ids plain = {0};
    teng_status status = tg_tokenizer_encode(t, prompt, len, TG_ENCODE_SPECIAL, &plain);
    const bool own_end = plain.len && (int64_t)plain.data[plain.len - 1] == eos;
    const size_t least = plain.len;
    tg_vec_free(&plain);
    if (status == TENG_OK)
        status = tg_tokenizer_encode(t, prompt, len, TG_ENCODE_SPECIAL | TG_ENCODE_TEMPLATE, &w->ids);
    if (status != TENG_OK) return status;
    if (!own_end && w->ids.len > least && w->ids.len > 1 && (int64_t)w->ids.data[w->ids.len - 1] == eos)
        w->ids.len--;
    if (w->ids.len) return TENG_OK;
    const int64_t first = bos >= 0 ? bos : eos;
    if (first < 0)
        return tg_fail(TENG_INVALID, "the prompt is empty and the tokenizer has no token that begins or ends "
                                     "a text: give a prompt");
    return tg_vec_push(&w->ids, (uint32_t)first) ? TENG_OK : TENG_MEMORY;
}

static teng_status check_sampling(const tg_sampling *s)
{
    if (!(s->temperature >= 0) || isinf(s->temperature))
        return tg_fail(TENG_INVALID, "temperature %g: it must be 0 (the likeliest token) or more",
                       s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return tg_fail(TENG_INVALID, "top-p %g: it must be in (0, 1]; 1 keeps all tokens", s->top_p);
    if (s->top_k < 0)
        return tg_fail(TENG_INVALID, "top-k %lld: it must be 0 (all tokens) or more", (long long)s->top_k);
    if (s->max_tokens < 0)
        return tg_fail(TENG_INVALID, "%lld tokens cannot be generated", (long long)s->max_tokens);
    return TENG_OK;
}

static teng_status write_text(writing *w)
{
    const int64_t max_tokens = w->sampling->max_tokens, n = (int64_t)w->ids.len;
    const int64_t most = max_tokens < INT64_MAX - n ? n + max_tokens : INT64_MAX;
    bool more = true;
    TG_TRY(tg_predictor_open(&w->predictor, w->lm, !w->sampling->no_cache, most));
    for (int64_t i = 0; i < max_tokens && more; i++) {
        uint32_t id = 0;
        TG_TRY(tg_predictor_next(&w->predictor, w->ids.data, (int64_t)w->ids.len));
        TG_TRY(choose(w, i, &id));
        if (is_end(w->lm, id)) break;
        TG_TRY(append(w, id, &more));
    }
    if (more) hand_over(w, true);
    return TENG_OK;
}

teng_status tg_lm_generate(tg_lm *lm, const char *prompt, size_t prompt_len, const tg_sampling *sampling,
                           tg_text_sink *sink, void *user)
{
    TG_TRY(check_sampling(sampling));
    writing w = {.lm = lm,
                 .sampling = sampling,
                 .key = tg_rng_key(sampling->seed, "sample"),
                 .sink = sink,
                 .user = user};
    teng_status status = encode_prompt(&w, prompt, prompt_len);
    if (status == TENG_OK) {
        w.candidates = tg_calloc((size_t)lm->usable + 1, sizeof *w.candidates);
        status = w.candidates ? write_text(&w) : TENG_MEMORY;
    }
    tg_vec_free(&w.ids);
    tg_predictor_close(&w.predictor);
    tg_free(w.candidates);
    tg_strbuf_free(&w.before);
    tg_strbuf_free(&w.after);
    tg_strbuf_free(&w.held);
    return status;
}

/* ---- evaluation ---- */
teng_status tg_lm_eval(tg_lm *lm, const char *const *files, size_t n, int64_t seq_len, tg_eval_result *out)
{
    const int64_t len = seq_len > 0 ? seq_len : lm->info.max_positions;
    const tg_loader_options options = {.files = files,
                                       .n_files = (int)n,
                                       .tokenizer = lm->tokenizer,
                                       .corpus = {.add_eos = true},
                                       .split = TG_SPLIT_ALL,
                                       .eos = tg_tokenizer_eos(lm->tokenizer),
                                       .vocab_limit = (uint32_t)lm->info.vocab_size,
                                       .seq_len = len,
                                       .rows = len < EVAL_TOKENS ? EVAL_TOKENS / len : 1,
                                       .ranks = 1,
                                       .packing = TG_PACK_CROSS,
                                       .once = true,
                                       .pad = -1};
    tg_loader *loader;
    TG_TRY(tg_loader_open(&options, &loader));
    const tg_source source = tg_source_of_loader(loader);
    tg_core_eval_result r;
    const teng_status status = tg_core_eval(lm->core, &source, 0, lm->tokenizer, &r);
    const tg_loader_info info = tg_loader_info_get(loader);
    tg_loader_close(&loader);
    if (status != TENG_OK) return status;
    *out = (tg_eval_result){
        .nats_per_token = r.loss,
        .bits_per_byte = r.bytes ? r.loss * (double)r.tokens / (double)r.bytes / log(2.0) : NAN,
        .perplexity = exp(r.loss),
        .tokens = r.tokens,
        .bytes = r.bytes,
        .windows = (int64_t)info.samples,
        .window_len = len,
    };
    return TENG_OK;
}
