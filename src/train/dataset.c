/* Public datasets: a token loader or a function of the user's, both as a source of batches for the core. */
#include "base/fail.h"
#include "tensor/desc.h"
#include "train/model_impl.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(TENG_MAX_INPUTS == TG_CORE_MAX_IN, "a batch of a dataset is a batch of the core");

/* ---- tokens ---- */
teng_token_options teng_token_options_default(void)
{
    return (teng_token_options){.seq_len = 256,
                                .batch_size = 8,
                                .packing = TENG_PACK_CROSS,
                                .shuffle = true,
                                .seed = 1,
                                .prefetch = 4};
}

static tg_loader_options loader_options(const teng_token_options *o, const tg_tokenizer *tokenizer)
{
    return (tg_loader_options){
        .files = o->files,
        .n_files = o->n_files,
        .tokenizer = tokenizer,
        .corpus = {.separator = o->separator,
                   .add_eos = true,
                   .val_fraction = o->val_fraction,
                   .seed = o->seed},
        .split = o->part == TENG_PART_TRAIN ? TG_SPLIT_TRAIN
                 : o->part == TENG_PART_VAL ? TG_SPLIT_VAL
                                            : TG_SPLIT_ALL,
        .eos = tg_tokenizer_eos(tokenizer),
        .vocab_limit = (uint32_t)o->vocab_size,
        .seq_len = o->seq_len,
        .rows = o->batch_size,
        .ranks = 1,
        .packing = o->packing == TENG_PACK_DOCUMENT ? TG_PACK_DOCUMENT : TG_PACK_CROSS,
        .seed = o->seed,
        .shuffle = o->shuffle && !o->once,
        .once = o->once,
        .pad = -1,
        .prefetch = o->prefetch,
    };
}

static teng_status check_tokens(const teng_token_options *o)
{
    if (o->n_files < 1 || !o->files)
        return tg_fail(TENG_INVALID,
                       "teng_dataset_tokens: no files; name text files, token files or folders");
    if (o->vocab_size < 0 || o->vocab_size > UINT32_MAX)
        return tg_fail(TENG_INVALID, "teng_dataset_tokens: vocab_size %" PRId64 " is out of range",
                       o->vocab_size);
    if (o->part != TENG_PART_ALL && !(o->val_fraction > 0))
        return tg_fail(
            TENG_INVALID,
            "teng_dataset_tokens: part asks for a split and val_fraction is %g: nothing is held back",
            o->val_fraction);
    return TENG_OK;
}

static teng_status open_tokens(teng_dataset *d, const teng_token_options *o)
{
    TG_TRY(check_tokens(o));
    TG_TRY(o->tokenizer ? tg_tokenizer_load(o->tokenizer, &d->tokenizer)
                        : tg_tokenizer_bytes(NULL, 0, &d->tokenizer));
    const uint32_t known = tg_tokenizer_vocab_size(d->tokenizer);
    if (o->vocab_size && known > o->vocab_size)
        return tg_fail(TENG_INVALID,
                       "teng_dataset_tokens: the tokenizer has %u tokens and vocab_size is %" PRId64
                       ": a model of that size cannot read them",
                       known, o->vocab_size);
    const tg_loader_options options = loader_options(o, d->tokenizer);
    TG_TRY(tg_loader_open(&options, &d->loader));
    const tg_loader_info info = tg_loader_info_get(d->loader);
    d->source = tg_source_of_loader(d->loader);
    d->once = o->once;
    d->length = info.batches > 0 ? (int64_t)info.batches : 1;
    d->identity =
        tg_asprintf("%" PRIu64 " tokens, sequences of %" PRId64 ", %s, %s, seed %" PRIu64, info.tokens,
                    o->seq_len, o->packing == TENG_PACK_DOCUMENT ? "packed by document" : "packed across",
                    options.shuffle ? "shuffled" : "in order", o->seed);
    return d->identity ? TENG_OK : TENG_MEMORY;
}

teng_dataset *teng_dataset_tokens(const teng_token_options *options)
{
    teng_dataset *d = tg_calloc(1, sizeof *d);
    if (d && open_tokens(d, options) != TENG_OK) teng_dataset_destroy(&d);
    return d;
}

/* ---- batches of the user's own ---- */
static teng_status check_batch(const teng_dataset *d, const teng_batch *b)
{
    char got[TG_DESC_TEXT], limit[TG_DESC_TEXT];
    for (int i = 0; i < d->n; i++) {
        const teng_desc *is = &b->desc[i], *most = &d->desc[i];
        bool ok = is->dtype == most->dtype && is->ndim == most->ndim && is->dims[0] == b->desc[0].dims[0];
        for (int k = 0; ok && k < is->ndim; k++)
            ok = is->dims[k] >= 1 && is->dims[k] <= most->dims[k];
        if (!ok)
            return tg_fail(TENG_INVALID,
                           "batch %" PRId64 " of epoch %" PRId64 ": input %s is %s; at most %s is possible, "
                           "and all inputs must have as many rows",
                           b->index, b->epoch, d->name[i], tg_desc_text(got, is), tg_desc_text(limit, most));
    }
    return TENG_OK;
}

static teng_status fill_next(void *user, tg_source_batch *out)
{
    teng_dataset *d = user;
    const uint64_t length = (uint64_t)d->length;
    teng_batch b = {
        .n = d->n, .epoch = (int64_t)(d->cursor / length), .index = (int64_t)(d->cursor % length)};
    memcpy(b.desc, d->desc, sizeof b.desc);
    memcpy(b.data, d->data, sizeof b.data);
    const teng_status status = d->fill(d->user, &b);
    if (status != TENG_OK)
        return tg_fail(status, "the fill function failed at batch %" PRId64 " of epoch %" PRId64, b.index,
                       b.epoch);
    TG_TRY(check_batch(d, &b));
    d->cursor++;
    *out = (tg_source_batch){.n_in = d->n, .labels = d->labels, .epoch = (double)d->cursor / (double)length};
    for (int i = 0; i < d->n; i++) {
        out->desc[i] = b.desc[i];
        out->data[i] = d->data[i];
        out->name[i] = d->name[i];
    }
    return TENG_OK;
}

static uint64_t fill_cursor(void *user)
{
    return ((teng_dataset *)user)->cursor;
}

static teng_status fill_seek(void *user, uint64_t cursor)
{
    ((teng_dataset *)user)->cursor = cursor;
    return TENG_OK;
}

static teng_status add_input(teng_dataset *d, const teng_input *input)
{
    char text[TG_DESC_TEXT];
    const char *name = input->name ? input->name : "";
    if (input->desc.ndim < 1 || input->desc.ndim > TENG_MAX_DIMS || tg_desc_numel(&input->desc) < 1)
        return tg_fail(TENG_INVALID, "teng_dataset_create: input %s is %s; dimension 0 must be the batch",
                       name, tg_desc_text(text, &input->desc));
    if (!*name) return tg_fail(TENG_INVALID, "teng_dataset_create: input %d has no name", d->n);
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->name[i], name) == 0)
            return tg_fail(TENG_INVALID, "teng_dataset_create: two inputs are named %s", name);
    if (strcmp(name, "labels") == 0 && input->desc.dtype == TENG_I32) d->labels = d->n;
    const int i = d->n++;
    d->name[i] = tg_strdup(name);
    d->desc[i] = input->desc;
    d->data[i] = tg_alloc_aligned(tg_desc_bytes(&input->desc));
    return d->name[i] && d->data[i] ? TENG_OK : TENG_MEMORY;
}

static teng_status open_inputs(teng_dataset *d, const teng_input *inputs, int n, int64_t length)
{
    if (n < 1 || n > TENG_MAX_INPUTS || !inputs)
        return tg_fail(TENG_INVALID, "teng_dataset_create: %d inputs; 1 to %d are possible", n,
                       TENG_MAX_INPUTS);
    if (length < 1)
        return tg_fail(TENG_INVALID, "teng_dataset_create: an epoch of %" PRId64 " batches", length);
    if (!d->fill) return tg_fail(TENG_INVALID, "teng_dataset_create: the fill function is NULL");
    d->labels = -1;
    d->length = length;
    d->source = (tg_source){.user = d, .next = fill_next, .cursor = fill_cursor, .seek = fill_seek};
    for (int i = 0; i < n; i++)
        TG_TRY(add_input(d, &inputs[i]));
    char text[TG_DESC_TEXT];
    d->identity =
        tg_asprintf("%" PRId64 " batches, %s %s", length, d->name[0], tg_desc_text(text, &d->desc[0]));
    return d->identity ? TENG_OK : TENG_MEMORY;
}

teng_dataset *teng_dataset_create(const teng_input *inputs, int n_inputs, int64_t length,
                                  teng_batch_fill *fill, void *user)
{
    teng_dataset *d = tg_calloc(1, sizeof *d);
    if (!d) return NULL;
    d->fill = fill;
    d->user = user;
    if (open_inputs(d, inputs, n_inputs, length) != TENG_OK) teng_dataset_destroy(&d);
    return d;
}

/* ---- any dataset ---- */
void teng_dataset_destroy(teng_dataset **dataset)
{
    teng_dataset *d = *dataset;
    if (!d) return;
    tg_loader_close(&d->loader);
    tg_tokenizer_destroy(&d->tokenizer);
    for (int i = 0; i < d->n; i++) {
        tg_free(d->name[i]);
        tg_free_aligned(d->data[i]);
    }
    tg_free(d->identity);
    tg_free(d);
    *dataset = NULL;
}

int64_t teng_dataset_length(const teng_dataset *dataset)
{
    return dataset->length;
}

int64_t teng_dataset_vocab_size(const teng_dataset *dataset)
{
    return dataset->tokenizer ? (int64_t)tg_tokenizer_vocab_size(dataset->tokenizer) : 0;
}
