/*
 * A model against a dump. Layout of a dump (safetensors): input_ids and labels i64 [B, T] (labels already
 * shifted, -100 ignored), logits [B, T, V], loss [1], grad.<parameter>, and adamw_loss [steps], the losses
 * before each step of an AdamW training on that one batch, whose settings golden.json beside the dump holds.
 * Every tensor of the dump and every parameter of the model must find its partner.
 */
#include "train/verify.h"

#include "base/fail.h"
#include "base/file.h"
#include "ckpt/hf_folder.h"
#include "tensor/desc.h"
#include "train/core.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum item_kind { LOSS, LOGITS, GRAD, CURVE, ITEM_KINDS } item_kind;

typedef struct tolerance {
    double limit;
    const char *why;
} tolerance;
static const tolerance
    f32_tolerances[ITEM_KINDS] =
        {
            [LOSS] = {1e-6, "f32: a mean of rounded terms, about 16 units in the last place"},
            [LOGITS] = {1e-5, "f32: products of all layers summed in another order"},
            [GRAD] = {2e-5, "f32: as logits, forward and backward"},
            [CURVE] = {1e-4, "f32: what rounding grows to over the steps of training"},
},
    bf16_tolerances[ITEM_KINDS] =
        {
            [LOSS] = {2e-3, "bf16: logits off by a few units of 2^-8, averaged over the labels"},
            [LOGITS] = {2e-2, "bf16: each layer rounds to 8 bits, errors add up as a random walk"},
            [GRAD] = {6e-2, "bf16: as logits, forward and backward"},
            [CURVE] = {2e-2, "bf16: what rounding grows to over the steps of training"},
},
    f16_tolerances[ITEM_KINDS] = {
        [LOSS] = {2e-4, "fp16: logits off by a few units of 2^-11, averaged over the labels"},
        [LOGITS] = {3e-3, "fp16: each layer rounds to 11 bits, errors add up as a random walk"},
        [GRAD] = {1e-2, "fp16: as logits, forward and backward"},
        [CURVE] = {5e-3, "fp16: what rounding grows to over the steps of training"},
};

static const tolerance *tolerances_of(const teng_precision *p)
{
    if (p->level == TENG_O0) return f32_tolerances;
    return p->dtype == TENG_F16 ? f16_tolerances : bf16_tolerances;
}

typedef struct golden {
    const char *path;
    tg_st_file *file;
    bool *used; /* by index of the file's tensors */
    double lr, beta1, beta2, eps, decay, clip;
    int64_t rows, cols;
    int32_t *tokens, *labels; /* [rows, cols] */
} golden;

typedef struct subject { /* the model that is looked at */
    teng_cell *cell;
    tg_lm_info info;
    tg_core *core;
    const tg_param_info *params;
    size_t n_params;
    tg_loss_scale_options scaling;
    tg_loss_scale scale; /* of fp16, else 1 */
} subject;

/* ---- the dump ---- */
static const tg_st_tensor *take(golden *g, const char *name)
{
    for (size_t i = 0; i < tg_st_count(g->file); i++) {
        const tg_st_tensor *t = tg_st_at(g->file, i);
        if (strcmp(t->name, name) != 0) continue;
        g->used[i] = true;
        return t;
    }
    return NULL;
}

static teng_status read_recipe(golden *g)
{
    *g = (golden){
        .path = g->path, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1};
    char *path = tg_asprintf("%.*sgolden.json", (int)(tg_path_base(g->path) - g->path), g->path);
    if (!path) return TENG_MEMORY;
    json_t *json = NULL;
    teng_status status = TENG_OK;
    if (tg_path_exists(path))
        status = tg_json_load_file(path, &json);
    else if (!(json = json_object()))
        status = TENG_MEMORY;
    const char *optimizer = "AdamW", *decay = "all parameters";
    if (status == TENG_OK) status = tg_json_get_string(json, path, "optimizer", false, &optimizer);
    if (status == TENG_OK) status = tg_json_get_string(json, path, "decay", false, &decay);
    if (status == TENG_OK) status = tg_json_get_real(json, path, "lr", false, &g->lr);
    if (status == TENG_OK) status = tg_json_get_real(json, path, "eps", false, &g->eps);
    if (status == TENG_OK) status = tg_json_get_real(json, path, "weight_decay", false, &g->decay);
    if (status == TENG_OK) status = tg_json_get_real(json, path, "clip_grad_norm", false, &g->clip);
    const json_t *betas = json_object_get(json, "betas");
    if (betas) {
        g->beta1 = json_number_value(json_array_get(betas, 0));
        g->beta2 = json_number_value(json_array_get(betas, 1));
    }
    if (status == TENG_OK && (strcmp(optimizer, "AdamW") != 0 || strcmp(decay, "all parameters") != 0))
        status = tg_fail(TENG_UNSUPPORTED,
                         "%s: optimizer \"%s\" with decay of \"%s\"; AdamW with decay of \"all parameters\" "
                         "can be compared",
                         path, optimizer, decay);
    json_decref(json);
    tg_free(path);
    return status;
}

/* Ids of the batch as i32 [rows, cols]; each within the vocabulary, or -100 where that is allowed. */
static teng_status read_ids(golden *g, const char *name, int64_t vocab, bool may_ignore, int32_t **out)
{
    const tg_st_tensor *t = take(g, name);
    char text[TG_DESC_TEXT];
    if (!t) return tg_fail(TENG_FORMAT, "%s holds no tensor %s", g->path, name);
    if (t->desc.ndim != 2 || (t->desc.dtype != TENG_I64 && t->desc.dtype != TENG_I32) ||
        tg_desc_numel(&t->desc) == 0)
        return tg_fail(TENG_FORMAT, "%s: %s is %s; i64 [batch, tokens] is needed", g->path, name,
                       tg_desc_text(text, &t->desc));
    if (g->rows && (g->rows != t->desc.dims[0] || g->cols != t->desc.dims[1]))
        return tg_fail(TENG_FORMAT, "%s: %s is %s; input_ids have %lld rows of %lld", g->path, name,
                       tg_desc_text(text, &t->desc), (long long)g->rows, (long long)g->cols);
    g->rows = t->desc.dims[0];
    g->cols = t->desc.dims[1];
    const int64_t n = tg_desc_numel(&t->desc);
    *out = tg_calloc((size_t)n, sizeof **out);
    if (!*out) return TENG_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = 0;
        tg_convert(TENG_I64, &id, t->desc.dtype, (const char *)t->data + i * teng_dtype_size(t->desc.dtype),
                   1);
        if ((id < 0 || id >= vocab) && !(may_ignore && id == TENG_IGNORE_INDEX))
            return tg_fail(TENG_FORMAT, "%s: %s[%lld,%lld] = %lld is outside the vocabulary of %lld", g->path,
                           name, (long long)(i / g->cols), (long long)(i % g->cols), (long long)id,
                           (long long)vocab);
        (*out)[i] = (int32_t)id;
    }
    return TENG_OK;
}

static teng_status open_golden(golden *g, int64_t vocab)
{
    TG_TRY(read_recipe(g));
    TG_TRY(tg_st_open(g->path, &g->file));
    g->used = tg_calloc(tg_st_count(g->file) + 1, sizeof *g->used);
    if (!g->used) return TENG_MEMORY;
    TG_TRY(read_ids(g, "input_ids", vocab, false, &g->tokens));
    return read_ids(g, "labels", vocab, true, &g->labels);
}

static void close_golden(golden *g)
{
    tg_st_close(&g->file);
    tg_free(g->used);
    tg_free(g->tokens);
    tg_free(g->labels);
}

/* ---- the model ---- */
static teng_status open_cell(subject *s, const char *dir)
{
    json_t *config;
    TG_TRY(tg_hf_read_config(dir, &config));
    s->cell = tg_lm_create_json(config);
    json_decref(config);
    return s->cell ? tg_lm_get_info(s->cell, &s->info) : teng_error_status();
}

static teng_status open_core(subject *s, const char *dir, const golden *g, const tg_verify_options *o)
{
    static const char *const passes[] = {"default"};
    const tg_step_options options = {
        .pynative = o->pynative,
        .optimizer = TG_CFG_OPTIMIZER_ADAMW,
        .beta1 = g->beta1,
        .beta2 = g->beta2,
        .eps = g->eps,
        .weight_decay = g->decay,
        .clip_norm = g->clip,
        .decay_norms = true,
        .decay_biases = true,
        .decay_embeddings = true,
        .micro_batches = 1,
        .passes = passes,
        .n_passes = 1,
        .no_dropout = true,
        .precision = o->precision,
    };
    const bool fp16 = o->precision.level != TENG_O0 && o->precision.dtype == TENG_F16;
    s->scaling = tg_loss_scale_fill((tg_loss_scale_options){.mode = fp16 ? TG_SCALE_DYNAMIC : TG_SCALE_NONE,
                                                            .initial = fp16 ? 65536 : 0});
    s->scale = tg_loss_scale_begin(&s->scaling);
    TG_TRY(tg_core_create(s->cell, o->device, o->threads, &options, NULL, &s->core));
    TG_TRY(tg_nn_params(s->cell, &s->params, &s->n_params));
    return tg_core_load_path(s->core, dir);
}

/* ---- items ---- */
static tg_verify_item *add_item(tg_verify_report *r, const char *name, item_kind kind)
{
    const tg_verify_item fresh = {
        .name = tg_strdup(name), .tolerance = r->tolerances[kind].limit, .why = r->tolerances[kind].why};
    if (!fresh.name || !tg_vec_push(&r->items, fresh)) {
        tg_free(fresh.name);
        return NULL;
    }
    return &r->items.data[r->items.len - 1];
}

static teng_status add_problem(tg_verify_report *r, const char *name, item_kind kind, char *problem)
{
    tg_verify_item *item = problem ? add_item(r, name, kind) : NULL;
    if (!item) {
        tg_free(problem);
        return TENG_MEMORY;
    }
    item->problem = problem;
    return TENG_OK;
}

/* The dump's tensor of that name, NULL (and an item that says so) when it is missing or of another shape. */
static teng_status find_partner(golden *g, tg_verify_report *r, const char *name, item_kind kind,
                                const teng_desc *desc, const tg_st_tensor **out)
{
    char theirs[TG_DESC_TEXT], ours[TG_DESC_TEXT];
    const tg_st_tensor *t = take(g, name);
    *out = NULL;
    if (!t) return add_problem(r, name, kind, tg_strdup("missing in the dump"));
    teng_desc same = t->desc;
    same.dtype = desc->dtype;
    if (!tg_dtype_is_float(t->desc.dtype) || !tg_desc_equal(&same, desc))
        return add_problem(r, name, kind,
                           tg_asprintf("%s in the dump, %s in the model", tg_desc_text(theirs, &t->desc),
                                       tg_desc_text(ours, desc)));
    *out = t;
    return TENG_OK;
}

static teng_status compare(golden *g, tg_verify_report *r, const char *name, item_kind kind,
                           const teng_desc *desc, const float *ours)
{
    const tg_st_tensor *t;
    TG_TRY(find_partner(g, r, name, kind, desc, &t));
    if (!t) return TENG_OK;
    tg_diff diff;
    tg_compare(desc->dtype, ours, t->desc.dtype, t->data, tg_desc_numel(desc), &diff);
    if (diff.nonfinite_a || diff.nonfinite_b)
        return add_problem(r, name, kind,
                           tg_asprintf("not finite: %lld of %lld values here, %lld in the dump",
                                       (long long)diff.nonfinite_a, (long long)diff.count,
                                       (long long)diff.nonfinite_b));
    tg_verify_item *item = add_item(r, name, kind);
    if (!item) return TENG_MEMORY;
    item->error = diff.rel_l2;
    item->max_abs = diff.max_abs;
    item->holds = item->error <= item->tolerance;
    if (diff.worst >= 0) tg_desc_index_text(item->worst, desc, diff.worst);
    return TENG_OK;
}

/* Losses: each must agree by itself. */
static teng_status compare_losses(golden *g, tg_verify_report *r, const char *name, item_kind kind,
                                  const double *ours, int64_t n)
{
    const teng_desc desc = tg_desc_make(TENG_F32, 1, &n);
    const tg_st_tensor *t;
    TG_TRY(find_partner(g, r, name, kind, &desc, &t));
    tg_verify_item *item = t ? add_item(r, name, kind) : NULL;
    if (!item) return t ? TENG_MEMORY : TENG_OK;
    item->holds = true;
    for (int64_t i = 0; i < n; i++) {
        const double theirs = tg_load_double(t->desc.dtype, t->data, i), off = fabs(ours[i] - theirs);
        const double error = isfinite(off) ? off / fmax(fabs(theirs), 1e-30) : INFINITY;
        item->holds &= error <= item->tolerance;
        if (error <= item->error) continue;
        item->error = error;
        item->max_abs = off;
        tg_desc_index_text(item->worst, &desc, i);
    }
    return TENG_OK;
}

/* ---- what is compared ---- */
static tg_step_feed feed_of(const golden *g, teng_desc desc[2], const void *data[2])
{
    static const char *const names[] = {"tokens", "labels"};
    desc[0] = desc[1] = tg_desc_make(TENG_I32, 2, (const int64_t[]){g->rows, g->cols});
    data[0] = g->tokens;
    data[1] = g->labels;
    return (tg_step_feed){.in_desc = desc, .in = data, .in_name = names, .n_in = 2, .weight = 1};
}

static teng_status verify_logits(subject *s, golden *g, const tg_step_feed *feed, tg_verify_report *r)
{
    const teng_desc desc = tg_desc_make(TENG_F32, 3, (const int64_t[]){g->rows, g->cols, s->info.vocab_size});
    float *logits = tg_alloc(tg_desc_bytes(&desc));
    if (!logits) return TENG_MEMORY;
    teng_status status = tg_step_forward(s->core->step, feed, logits, tg_desc_bytes(&desc));
    if (status == TENG_OK) status = compare(g, r, "logits", LOGITS, &desc, logits);
    tg_free(logits);
    return status;
}

static double norm_of(teng_dtype dtype, const void *data, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = tg_load_double(dtype, data, i);
        sum += v * v;
    }
    return sqrt(sum);
}

/* A gradient that is zero but for rounding (a router that normalises over one expert) has no relative error.
 */
static void forgive_noise(golden *g, const subject *s, float *const *grads, tg_verify_report *r)
{
    static const char why[] = "f32: both norms are below 1e-6 of all gradients' norm, which is rounding";
    double whole = 0;
    for (size_t i = 0; i < s->n_params; i++)
        whole = hypot(whole, norm_of(TENG_F32, grads[i], tg_desc_numel(&s->params[i].desc)));
    for (size_t i = 0; i < r->items.len; i++) {
        tg_verify_item *item = &r->items.data[i];
        if (item->holds || item->problem || strncmp(item->name, "grad.", 5) != 0) continue;
        const tg_st_tensor *t = tg_st_find(g->file, item->name);
        size_t p = 0;
        while (p < s->n_params && strcmp(s->params[p].name, item->name + 5) != 0)
            p++;
        const int64_t n = tg_desc_numel(&t->desc);
        if (p == s->n_params || !(norm_of(t->desc.dtype, t->data, n) < 1e-6 * whole) ||
            !(norm_of(TENG_F32, grads[p], n) < 1e-6 * whole))
            continue;
        item->holds = true;
        item->tolerance = INFINITY;
        item->why = why;
    }
}

/* A dump may hold the gradients of a fused parameter under the names that files have. */
static teng_status compare_grad(subject *s, golden *g, const tg_param_info *param, const float *grad,
                                tg_verify_report *r)
{
    tg_lm_parts parts = {0};
    char *name = tg_asprintf("grad.%s", param->name);
    teng_status status = name ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && !tg_st_find(g->file, name)) status = tg_lm_file_parts(s->cell, param, &parts);
    if (status == TENG_OK && !parts.len) status = compare(g, r, name, GRAD, &param->desc, grad);
    for (size_t i = 0; i < parts.len && status == TENG_OK; i++) {
        const tg_lm_part *part = &parts.data[i];
        char *own = tg_asprintf("grad.%s", part->name);
        status = own ? compare(g, r, own, GRAD, &part->desc, grad + part->offset) : TENG_MEMORY;
        tg_free(own);
    }
    tg_lm_parts_free(&parts);
    tg_free(name);
    return status;
}

static teng_status compare_grads(subject *s, golden *g, float *const *grads, tg_verify_report *r)
{
    for (size_t i = 0; i < s->n_params; i++)
        TG_TRY(compare_grad(s, g, &s->params[i], grads[i], r));
    forgive_noise(g, s, grads, r);
    return TENG_OK;
}

/* Gradients at the largest loss scale that overflows none of them, and divided by it. */
static teng_status scaled_grads(subject *s, const tg_step_feed *feed, double *loss, float *const *grads,
                                float *all, int64_t n)
{
    bool again = true;
    while (again) {
        bool finite = true;
        const float scale = (float)s->scale.scale;
        TG_TRY(tg_step_grads(s->core->step, feed, s->scale.scale, loss, grads));
        for (int64_t i = 0; i < n; i++) {
            finite &= isfinite(all[i]);
            all[i] /= scale;
        }
        again = tg_loss_scale_adjust(&s->scale, &s->scaling, finite, isfinite(*loss));
    }
    return TENG_OK;
}

/* The loss is what evaluation gives and what the step with gradients gives; the worse counts. */
static teng_status verify_loss_and_grads(subject *s, golden *g, const tg_step_feed *feed, tg_verify_report *r)
{
    int64_t total = 0;
    for (size_t i = 0; i < s->n_params; i++)
        total += tg_desc_numel(&s->params[i].desc);
    float *all = tg_alloc(sizeof(float) * (size_t)total), **grads = tg_calloc(s->n_params, sizeof *grads);
    double loss[2] = {0};
    teng_status status = all && grads ? TENG_OK : TENG_MEMORY;
    for (size_t i = 0, at = 0; i < s->n_params && status == TENG_OK; i++) {
        grads[i] = all + at;
        at += (size_t)tg_desc_numel(&s->params[i].desc);
    }
    if (status == TENG_OK) status = tg_step_eval(s->core->step, feed, &loss[0]);
    if (status == TENG_OK) status = scaled_grads(s, feed, &loss[1], grads, all, total);
    if (status == TENG_OK) {
        const tg_st_tensor *t = take(g, "loss");
        const double theirs = t && tg_dtype_is_float(t->desc.dtype) && tg_desc_numel(&t->desc) > 0
                                  ? tg_load_double(t->desc.dtype, t->data, 0)
                                  : 0;
        const int worse = fabs(loss[1] - theirs) > fabs(loss[0] - theirs) || isnan(loss[1]);
        status = compare_losses(g, r, "loss", LOSS, &loss[worse], 1);
    }
    if (status == TENG_OK) status = compare_grads(s, g, grads, r);
    tg_free(grads);
    tg_free(all);
    return status;
}

/* Last of all, since it changes the weights. */
static teng_status verify_curve(subject *s, golden *g, const tg_step_feed *feed, tg_verify_report *r)
{
    const tg_st_tensor *t = tg_st_find(g->file, "adamw_loss");
    r->steps = t && t->desc.ndim == 1 ? t->desc.dims[0] : 0;
    double *losses = tg_calloc((size_t)r->steps + 1, sizeof *losses);
    teng_status status = losses ? TENG_OK : TENG_MEMORY;
    for (int64_t i = 0; i < r->steps && status == TENG_OK; i++) {
        tg_step_result result = {0};
        status = tg_step_train(s->core->step, i + 1, g->lr, s->scale.scale, feed, &result);
        losses[i] = result.loss;
        if (tg_loss_scale_adjust(&s->scale, &s->scaling, result.finite, result.loss_finite)) i--;
    }
    if (status == TENG_OK) status = compare_losses(g, r, "adamw_loss", CURVE, losses, r->steps);
    tg_free(losses);
    return status;
}

static teng_status add_unexpected(golden *g, tg_verify_report *r)
{
    for (size_t i = 0; i < tg_st_count(g->file); i++)
        if (!g->used[i])
            TG_TRY(add_problem(r, tg_st_at(g->file, i)->name, GRAD,
                               tg_strdup("unexpected: the model has no such value")));
    return TENG_OK;
}

static int worst_first(const void *a, const void *b)
{
    const tg_verify_item *x = a, *y = b;
    const double u = x->problem ? INFINITY : x->error / x->tolerance,
                 v = y->problem ? INFINITY : y->error / y->tolerance;
    if (u != v) return u > v ? -1 : 1;
    return strcmp(x->name, y->name);
}

static teng_status verify(subject *s, golden *g, const char *dir, const tg_verify_options *o,
                          tg_verify_report *r)
{
    teng_desc desc[2];
    const void *data[2];
    TG_TRY(open_cell(s, dir));
    TG_TRY(open_golden(g, s->info.vocab_size));
    TG_TRY(open_core(s, dir, g, o));
    r->info = s->info;
    r->tolerances = tolerances_of(&o->precision);
    r->rows = g->rows;
    r->cols = g->cols;
    const tg_step_feed feed = feed_of(g, desc, data);
    TG_TRY(verify_logits(s, g, &feed, r));
    TG_TRY(verify_loss_and_grads(s, g, &feed, r));
    TG_TRY(verify_curve(s, g, &feed, r));
    TG_TRY(add_unexpected(g, r));
    qsort(r->items.data, r->items.len, sizeof *r->items.data, worst_first);
    for (size_t i = 0; i < r->items.len; i++)
        r->failed += !r->items.data[i].holds;
    return TENG_OK;
}

teng_status tg_verify(const char *model_dir, const char *golden_path, const tg_verify_options *options,
                      tg_verify_report *out)
{
    *out = (tg_verify_report){0};
    subject s = {0};
    golden g = {.path = golden_path};
    const teng_status status = verify(&s, &g, model_dir, options, out);
    close_golden(&g);
    tg_core_destroy(&s.core);
    teng_cell_destroy(&s.cell);
    return status;
}

void tg_verify_free(tg_verify_report *report)
{
    for (size_t i = 0; i < report->items.len; i++) {
        tg_free(report->items.data[i].name);
        tg_free(report->items.data[i].problem);
    }
    tg_vec_free(&report->items);
}
