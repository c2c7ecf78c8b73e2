/* One step and one evaluation over a source of batches. State on disk: core_state.c. */
#include "train/core.h"

#include "base/clock.h"
#include "base/fail.h"
#include "device/cpu_isa.h"
#include "tensor/desc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct tg_core_cut {        /* one micro-batch of a batch */
    teng_desc desc[TG_CORE_MAX_IN]; /* what the graph is made for */
    const void *data[TG_CORE_MAX_IN];
    void *columns[TG_CORE_MAX_IN]; /* copies of this rank's positions; NULL: none are needed */
    size_t column_bytes[TG_CORE_MAX_IN];
    int64_t here; /* labels of this rank, and how many of them count */
    int64_t valid;
    int64_t tokens; /* of all ranks */
} cut;

teng_status tg_core_add(tg_core *core, tg_store_kind kind, const char *name, const teng_desc *desc,
                        tg_store_entry **out)
{
    const unsigned away = kind == TG_STORE_PARAM ? TG_OFFLOAD_PARAMETERS : TG_OFFLOAD_OPTIMIZER;
    return (core->options.offload & away ? tg_store_add_on_disk : tg_store_add)(core->store, kind, name, desc,
                                                                                out);
}

/* Memory for every parameter; initial values or a file's come later. */
static teng_status add_params(tg_core *c)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(c->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_store_entry *entry;
        TG_TRY(tg_core_add(c, TG_STORE_PARAM, params[i].name, &params[i].desc, &entry));
    }
    return TENG_OK;
}

teng_status tg_core_create(teng_cell *cell, const char *device, int threads, const tg_step_options *options,
                           tg_team *team, tg_core **out)
{
    if (!cell)
        return teng_error_status() != TENG_OK ? teng_error_status()
                                              : tg_fail(TENG_INVALID, "the model is NULL");
    tg_core *c = tg_calloc(1, sizeof *c);
    if (!c) return TENG_MEMORY;
    c->cell = cell;
    c->team = team;
    c->options = *options;
    if (c->options.micro_batches < 1) c->options.micro_batches = 1;
    c->options.loss_scale = tg_loss_scale_fill(c->options.loss_scale);
    c->scale = tg_loss_scale_begin(&c->options.loss_scale);
    c->cuts = tg_calloc((size_t)c->options.micro_batches + 1, sizeof *c->cuts); /* and one of an evaluation */
    c->feeds = tg_calloc((size_t)c->options.micro_batches, sizeof *c->feeds);
    teng_status status = c->cuts && c->feeds ? tg_device_open(device, threads, &c->dev) : TENG_MEMORY;
    if (status == TENG_OK) {
        c->store = tg_store_create(c->dev);
        if (c->store && c->options.offload && c->options.offload_path)
            status = tg_store_spill_to(c->store, c->options.offload_path);
    }
    if (status == TENG_OK) {
        status = c->store ? tg_step_create(cell, c->store, &c->options, &c->step) : TENG_MEMORY;
    }
    if (status == TENG_OK && !tg_team_is_many(team)) status = add_params(c);
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
    for (int64_t m = 0; c->cuts && m <= c->options.micro_batches; m++)
        for (int i = 0; i < TG_CORE_MAX_IN; i++)
            tg_free_aligned(c->cuts[m].columns[i]);
    tg_free(c->stage);
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

/* This rank's positions of rows [rows, T, …]: with n context ranks piece i and piece 2n-1-i of 2n, so that
 * all have as much to do under a causal mask. */
static teng_status cut_columns(const teng_desc *whole, const void *data, int64_t rows, int index, int count,
                               cut *c, int i)
{
    const int64_t piece = whole->dims[1] / (2 * count);
    size_t element = (size_t)teng_dtype_size(whole->dtype);
    for (int d = 2; d < whole->ndim; d++)
        element *= (size_t)whole->dims[d];
    if (whole->dims[1] % (2 * count))
        return tg_fail(TENG_INVALID,
                       "sequences of %lld positions cannot be cut into two equal pieces for each of %d ranks "
                       "(parallel.context)",
                       (long long)whole->dims[1], count);
    const size_t bytes = (size_t)piece * element, row = (size_t)whole->dims[1] * element;
    if (2 * bytes * (size_t)rows > c->column_bytes[i]) {
        tg_free_aligned(c->columns[i]);
        c->column_bytes[i] = 0;
        c->columns[i] = tg_alloc_aligned(2 * bytes * (size_t)rows);
        if (!c->columns[i]) return TENG_MEMORY;
        c->column_bytes[i] = 2 * bytes * (size_t)rows;
    }
    for (int64_t r = 0; r < rows; r++) {
        const char *from = (const char *)data + (size_t)r * row;
        char *to = (char *)c->columns[i] + (size_t)r * 2 * bytes;
        memcpy(to, from + (size_t)index * bytes, bytes);
        memcpy(to + bytes, from + (size_t)(2 * count - 1 - index) * bytes, bytes);
    }
    c->data[i] = c->columns[i];
    return TENG_OK;
}

/* Micro-batch m of k: rows of every input, and how many of its labels count. In a graph the ranks share what
 * is the micro-batch of all of them; pynative knows this rank's rows alone. */
static teng_status cut_rows(const tg_core *core, const tg_source_batch *b, bool shared, int64_t m, int64_t k,
                            cut *out)
{
    int index, ranks, column, columns;
    tg_team_rows(core->team, &index, &ranks);
    tg_team_columns(core->team, &column, &columns);
    const int64_t given = b->desc[0].dims[0], pieces = shared ? k : k * ranks;
    if (given % pieces) {
        char shares[48] = "";
        if (ranks > 1) snprintf(shares, sizeof shares, " x %d ranks", ranks);
        return tg_fail(TENG_INVALID, "train.micro_batches=%lld%s does not divide the batch of %lld sequences",
                       (long long)k, shares, (long long)(shared ? given * ranks : given));
    }
    const int64_t own = given / pieces, begin = shared ? m * own : (m * ranks + index) * own;
    int64_t own_tokens = own;
    for (int i = 0; i < b->n_in; i++) {
        const teng_desc *whole = &b->desc[i];
        const size_t row = whole->dims[0] ? tg_desc_bytes(whole) / (size_t)whole->dims[0] : 0;
        out->desc[i] = *whole;
        out->desc[i].dims[0] = core->options.pynative ? own : own * ranks;
        out->data[i] = (const char *)b->data[i] + row * (size_t)begin;
        if (columns > 1 && whole->ndim > 1)
            TG_TRY(cut_columns(whole, out->data[i], own, column, columns, out, i));
    }
    out->here = out->valid = own;
    if (b->labels >= 0) {
        teng_desc labels = b->desc[b->labels];
        labels.dims[0] = own;
        own_tokens = tg_desc_numel(&labels);
        out->here = own_tokens / (labels.ndim > 1 ? columns : 1);
        out->valid = count_valid(out->data[b->labels], out->here);
    }
    out->tokens = own_tokens * ranks;
    return TENG_OK;
}

static tg_step_feed feed_of(const tg_source_batch *b, const cut *c)
{
    return (tg_step_feed){
        .in_desc = c->desc, .in = c->data, .in_name = b->name, .n_in = b->n_in, .weight = 1.0};
}

/* Many ranks: the one that went wrong first tells all. */
static teng_status share_overflow(tg_team *team, tg_overflow *o)
{
    if (!tg_team_is_many(team)) return TENG_OK;
    const int64_t worst = INT64_MAX / 2, at = o->micro_batch << 32 | o->order;
    int64_t first = o->found ? at : worst, source;
    tg_group *world = tg_comm_world(team->comm);
    TG_TRY(tg_comm_all_reduce(world, TG_REDUCE_MIN, TENG_I64, &first, &first, 1));
    if (first == worst) return TENG_OK;
    source = o->found && at == first ? team->rank : INT64_MAX;
    TG_TRY(tg_comm_all_reduce(world, TG_REDUCE_MIN, TENG_I64, &source, &source, 1));
    TG_TRY(tg_comm_broadcast(world, (int)source, o, sizeof *o));
    char text[sizeof o->text];
    memcpy(text, o->text, sizeof text);
    snprintf(o->text, sizeof o->text, "rank %d, %.700s", (int)source, text);
    return TENG_OK;
}

/* Books of a step that ran; of one that was dropped also where it went wrong. */
static teng_status note_result(tg_core *core, const tg_step_result *r, tg_core_result *out)
{
    out->loss = r->loss;
    out->grad_norm = r->grad_norm;
    out->finite = r->finite;
    out->scale = core->scale.scale;
    if (!r->finite) {
        TG_TRY(tg_step_find_overflow(core->step, core->applied + 1, core->scale.scale, core->feeds,
                                     &core->overflow));
        TG_TRY(share_overflow(core->team, &core->overflow));
    }
    out->again = tg_loss_scale_adjust(&core->scale, &core->options.loss_scale, r->finite, r->loss_finite);
    return TENG_OK;
}

/* What each micro-batch's mean loss weighs in the step's. A graph of many ranks has the mean over all of
 * them; pynative has that of this rank, whose share of the labels counts. */
static teng_status weigh_cuts(tg_core *core)
{
    const int64_t k = core->options.micro_batches;
    int64_t valid = 0, few[64], *counts = k <= 64 ? few : tg_alloc(sizeof *counts * (size_t)k);
    if (!counts) return TENG_MEMORY;
    for (int64_t m = 0; m < k; m++)
        counts[m] = core->cuts[m].valid;
    const teng_status status = tg_team_sum_labels(core->team, counts, (int)k);
    for (int64_t m = 0; m < k; m++)
        valid += counts[m];
    for (int64_t m = 0; m < k; m++) {
        const int64_t mine = core->options.pynative ? core->cuts[m].valid : counts[m];
        core->feeds[m].weight = valid ? (double)mine / (double)valid : 0.0;
    }
    if (counts != few) tg_free(counts);
    return status;
}

static teng_status train_cuts(tg_core *core, const tg_source_batch *b, bool shared, double lr,
                              tg_core_result *out)
{
    tg_step_feed *feeds = core->feeds;
    const int64_t k = core->options.micro_batches;
    out->tokens = 0;
    for (int64_t m = 0; m < k; m++) {
        TG_TRY(cut_rows(core, b, shared, m, k, &core->cuts[m]));
        feeds[m] = feed_of(b, &core->cuts[m]);
        out->tokens += core->cuts[m].tokens;
    }
    TG_TRY(weigh_cuts(core));
    tg_step_result r;
    TG_TRY(tg_step_train(core->step, core->applied + 1, lr, core->scale.scale, feeds, &r));
    return note_result(core, &r, out);
}

teng_status tg_core_train_step(tg_core *core, const tg_source *source, double lr, tg_core_result *out)
{
    const double begin = tg_clock_seconds();
    tg_source_batch b = {0};
    if (core->again) TG_TRY(source->seek(source->user, core->cursor));
    if (tg_team_is_many(core->team)) tg_comm_step(core->team->comm, core->done + 1);
    TG_TRY(source->next(source->user, &b));
    out->wait_s = tg_clock_seconds() - begin;
    if (b.n_in < 1 || b.desc[0].ndim < 1)
        return tg_fail(TENG_INVALID, "the data source gave an empty batch while training");
    TG_TRY(train_cuts(core, &b, source->shared, lr, out));
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
static int64_t scored_bytes(const tg_source_batch *b, const cut *c, const tg_tokenizer *tokenizer)
{
    const int32_t *labels = c->data[b->labels];
    int64_t bytes = 0, n = c->here;
    for (int64_t i = 0; i < n; i++) {
        size_t len = 0;
        if (labels[i] >= 0 && !tg_tokenizer_is_special(tokenizer, (uint32_t)labels[i]) &&
            tg_tokenizer_token(tokenizer, (uint32_t)labels[i], &len))
            bytes += (int64_t)len;
    }
    return bytes;
}

/* One batch into sum and the counts, of all ranks. */
static teng_status score(tg_core *core, const tg_source_batch *b, bool shared, const tg_tokenizer *tokenizer,
                         double *sum, tg_core_eval_result *out)
{
    cut *whole = &core->cuts[core->options.micro_batches];
    double loss;
    TG_TRY(cut_rows(core, b, shared, 0, 1, whole));
    const tg_step_feed feed = feed_of(b, whole);
    int64_t counts[2] = {whole->valid, 0}, own = whole->valid;
    if (tokenizer && b->labels >= 0) counts[1] = scored_bytes(b, whole, tokenizer);
    TG_TRY(tg_team_sum_labels(core->team, counts, 2));
    TG_TRY(tg_step_eval(core->step, &feed, &loss));
    *sum += loss * (double)(core->options.pynative ? own : counts[0]);
    out->tokens += counts[0];
    out->bytes += counts[1];
    return TENG_OK;
}

teng_status tg_core_eval(tg_core *core, const tg_source *source, int64_t max_batches,
                         const tg_tokenizer *tokenizer, tg_core_eval_result *out)
{
    *out = (tg_core_eval_result){0};
    double sum = 0;
    for (int64_t i = 0; max_batches == 0 || i < max_batches; i++) {
        tg_source_batch b = {0};
        TG_TRY(source->next(source->user, &b));
        if (b.n_in == 0 || b.desc[0].dims[0] == 0) break;
        TG_TRY(score(core, &b, source->shared, tokenizer, &sum, out));
    }
    if (out->tokens == 0) return tg_fail(TENG_INVALID, "evaluation: there is no token to score");
    if (core->options.pynative) TG_TRY(tg_team_sum(core->team, &sum, 1));
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
    return (tg_source){loader, loader_next, loader_cursor, loader_seek, .shared = true};
}
