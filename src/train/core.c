/* One step and one evaluation over a source of batches. State on disk: core_state.c. */
#include "train/core.h"

#include "base/clock.h"
#include "base/fail.h"
#include "device/cpu_isa.h"
#include "tensor/desc.h"

#include <math.h>

typedef struct tg_core_cut { /* one micro-batch of a batch */
    teng_desc desc[TG_CORE_MAX_IN];
    const void *data[TG_CORE_MAX_IN];
    int64_t valid, tokens;
} cut;

/* Memory for every parameter; initial values or a file's come later. */
static teng_status add_params(tg_core *c)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(c->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_store_entry *entry;
        TG_TRY(tg_store_add(c->store, TG_STORE_PARAM, params[i].name, &params[i].desc, &entry));
    }
    return TENG_OK;
}

teng_status tg_core_create(teng_cell *cell, const char *device, int threads, const tg_step_options *options,
                           tg_core **out)
{
    if (!cell)
        return teng_error_status() != TENG_OK ? teng_error_status()
                                              : tg_fail(TENG_INVALID, "the model is NULL");
    tg_core *c = tg_calloc(1, sizeof *c);
    if (!c) return TENG_MEMORY;
    c->cell = cell;
    c->options = *options;
    if (c->options.micro_batches < 1) c->options.micro_batches = 1;
    c->options.loss_scale = tg_loss_scale_fill(c->options.loss_scale);
    c->scale = tg_loss_scale_begin(&c->options.loss_scale);
    c->cuts = tg_calloc((size_t)c->options.micro_batches, sizeof *c->cuts);
    c->feeds = tg_calloc((size_t)c->options.micro_batches, sizeof *c->feeds);
    teng_status status = c->cuts && c->feeds ? tg_device_open(device, threads, &c->dev) : TENG_MEMORY;
    if (status == TENG_OK) {
        c->store = tg_store_create(c->dev);
        if (c->store && c->options.offload != TG_CFG_OFFLOAD_NONE && c->options.offload_path)
            status = tg_store_spill_to(c->store, c->options.offload_path);
    }
    if (status == TENG_OK) {
        status = c->store ? tg_step_create(cell, c->store, &c->options, &c->step) : TENG_MEMORY;
    }
    if (status == TENG_OK) status = add_params(c);
    if (status != TENG_OK) {
        tg_core_destroy(&c);
        return status;
    }
    *out = c;
    return TENG_OK;
}

void tg_core_destroy(tg_core **core)
{
    tg_core *c = *core;
    if (!c) return;
    tg_step_destroy(&c->step);
    tg_store_destroy(&c->store);
    tg_device_close(&c->dev);
    tg_free(c->cuts);
    tg_free(c->feeds);
    tg_free(c);
    *core = NULL;
}

/* ---- micro-batches ---- */
static int64_t count_valid(const int32_t *labels, int64_t n)
{
    int64_t valid = 0;
    for (int64_t i = 0; i < n; i++)
        valid += labels[i] != TG_LABEL_IGNORE;
    return valid;
}

/* Rows r·i/k … of every input, and how many of its labels count. */
static void cut_rows(const tg_source_batch *b, int64_t begin, int64_t end, cut *out)
{
    for (int i = 0; i < b->n_in; i++) {
        const teng_desc *whole = &b->desc[i];
        const size_t row = whole->dims[0] ? tg_desc_bytes(whole) / (size_t)whole->dims[0] : 0;
        out->desc[i] = *whole;
        out->desc[i].dims[0] = end - begin;
        out->data[i] = (const char *)b->data[i] + row * (size_t)begin;
    }
    out->valid = out->tokens = end - begin;
    if (b->labels >= 0) {
        out->tokens = tg_desc_numel(&out->desc[b->labels]);
        out->valid = count_valid(out->data[b->labels], out->tokens);
    }
}

static tg_step_feed feed_of(const tg_source_batch *b, const cut *c)
{
    return (tg_step_feed){
        .in_desc = c->desc, .in = c->data, .in_name = b->name, .n_in = b->n_in, .weight = 1.0};
}

/* Books of a step that ran; of one that was dropped also where it went wrong. */
static teng_status note_result(tg_core *core, const tg_step_result *r, tg_core_result *out)
{
    out->loss = r->loss;
    out->grad_norm = r->grad_norm;
    out->finite = r->finite;
    out->scale = core->scale.scale;
    if (!r->finite)
        TG_TRY(tg_step_find_overflow(core->step, core->applied + 1, core->scale.scale, core->feeds,
                                     &core->overflow));
    out->again = tg_loss_scale_adjust(&core->scale, &core->options.loss_scale, r->finite, r->loss_finite);
    return TENG_OK;
}

static teng_status train_cuts(tg_core *core, const tg_source_batch *b, double lr, tg_core_result *out)
{
    cut *cuts = core->cuts;
    tg_step_feed *feeds = core->feeds;
    const int64_t k = core->options.micro_batches, rows = b->desc[0].dims[0];
    int64_t valid = 0;
    out->tokens = 0;
    for (int64_t m = 0; m < k; m++) {
        cut_rows(b, rows / k * m, rows / k * (m + 1), &cuts[m]);
        feeds[m] = feed_of(b, &cuts[m]);
        valid += cuts[m].valid;
        out->tokens += cuts[m].tokens;
    }
    for (int64_t m = 0; m < k; m++)
        feeds[m].weight = valid ? (double)cuts[m].valid / (double)valid : 0.0;
    tg_step_result r;
    TG_TRY(tg_step_train(core->step, core->applied + 1, lr, core->scale.scale, feeds, &r));
    return note_result(core, &r, out);
}

teng_status tg_core_train_step(tg_core *core, const tg_source *source, double lr, tg_core_result *out)
{
    const int64_t k = core->options.micro_batches;
    const double begin = tg_clock_seconds();
    tg_source_batch b = {0};
    if (core->again) TG_TRY(source->seek(source->user, core->cursor));
    TG_TRY(source->next(source->user, &b));
    out->wait_s = tg_clock_seconds() - begin;
    if (b.n_in < 1 || b.desc[0].ndim < 1)
        return tg_fail(TENG_INVALID, "the data source gave an empty batch while training");
    if (b.desc[0].dims[0] % k)
        return tg_fail(TENG_INVALID, "train.micro_batches=%lld does not divide the batch of %lld sequences",
                       (long long)k, (long long)b.desc[0].dims[0]);
    TG_TRY(train_cuts(core, &b, lr, out));
    core->again = out->again;
    if (out->again) return TENG_OK;
    core->done++;
    core->applied += out->finite;
    core->tokens += out->tokens;
    core->epoch = b.epoch;
    core->cursor = source->cursor(source->user);
    return TENG_OK;
}

void tg_core_dropped_text(const tg_core *core, const tg_core_result *r, tg_strbuf *out)
{
    const tg_overflow *o = &core->overflow;
    tg_strbuf_printf(
        out, "step %lld was dropped: loss %g, gradient norm %g; weights and optimizer are unchanged; ",
        (long long)core->done + r->again, r->loss, isnan(r->grad_norm) ? (double)NAN : r->grad_norm);
    if (o->found && core->options.micro_batches > 1)
        tg_strbuf_printf(out, "micro-batch %lld, ", (long long)o->micro_batch);
    tg_strbuf_puts(out, o->text);
    if (core->options.loss_scale.mode == TG_SCALE_NONE) return;
    tg_strbuf_printf(out, "; the loss scale was %g", r->scale);
    if (r->again) tg_strbuf_printf(out, ", the same batch is tried again with %g", core->scale.scale);
}

teng_status tg_core_check_dropped(const tg_core *core)
{
    if (core->scale.in_row < core->options.loss_scale.max_overflows) return TENG_OK;
    return tg_fail(
        TENG_NUMERIC,
        "%lld steps in a row had a loss or gradient that is not finite: lower optimizer.lr, or look "
        "at the data%s; the last checkpoint is from before. The last of them: %s",
        (long long)core->scale.in_row,
        core->options.loss_scale.mode == TG_SCALE_NONE ? "" : ", or train in bf16 (precision.dtype=bf16)",
        core->overflow.text);
}

/* ---- evaluation ---- */
static int64_t scored_bytes(const tg_source_batch *b, const tg_tokenizer *tokenizer)
{
    const int32_t *labels = b->data[b->labels];
    const int64_t n = tg_desc_numel(&b->desc[b->labels]);
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t len = 0;
        if (labels[i] >= 0 && !tg_tokenizer_is_special(tokenizer, (uint32_t)labels[i]) &&
            tg_tokenizer_token(tokenizer, (uint32_t)labels[i], &len))
            bytes += (int64_t)len;
    }
    return bytes;
}

teng_status tg_core_eval(tg_core *core, const tg_source *source, int64_t max_batches,
                         const tg_tokenizer *tokenizer, tg_core_eval_result *out)
{
    *out = (tg_core_eval_result){0};
    double sum = 0;
    for (int64_t i = 0; max_batches == 0 || i < max_batches; i++) {
        tg_source_batch b = {0};
        cut whole;
        double loss;
        TG_TRY(source->next(source->user, &b));
        if (b.n_in == 0 || b.desc[0].dims[0] == 0) break;
        cut_rows(&b, 0, b.desc[0].dims[0], &whole);
        const tg_step_feed feed = feed_of(&b, &whole);
        TG_TRY(tg_step_eval(core->step, &feed, &loss));
        sum += loss * (double)whole.valid;
        out->tokens += whole.valid;
        if (tokenizer && b.labels >= 0) out->bytes += scored_bytes(&b, tokenizer);
    }
    if (out->tokens == 0) return tg_fail(TENG_INVALID, "evaluation: there is no token to score");
    out->loss = sum / (double)out->tokens;
    return TENG_OK;
}

/* ---- a loader as a source ---- */
static teng_status loader_next(void *user, tg_source_batch *out)
{
    tg_batch b;
    TG_TRY(tg_loader_next(user, &b));
    const int64_t dims[2] = {b.rows, b.seq};
    const teng_desc desc = tg_desc_make(TENG_I32, 2, dims);
    *out = (tg_source_batch){.n_in = b.rows ? 2 : 0,
                             .desc = {desc, desc},
                             .data = {b.tokens, b.labels},
                             .name = {"tokens", "labels"},
                             .labels = 1,
                             .epoch = (double)b.epoch};
    const tg_loader_info info = tg_loader_info_get(user);
    if (info.samples) out->epoch = (double)b.cursor / (double)info.samples;
    return TENG_OK;
}

static uint64_t loader_cursor(void *user)
{
    return tg_loader_cursor(user);
}

static teng_status loader_seek(void *user, uint64_t cursor)
{
    return tg_loader_seek(user, cursor);
}

tg_source tg_source_of_loader(tg_loader *loader)
{
    return (tg_source){loader, loader_next, loader_cursor, loader_seek};
}
