/*
 * The public model: a coat around the core. Making it from options, the training loop with its callbacks,
 * evaluation. Ready callbacks are in callbacks.c, values in and out of a model in model_io.c; runs of the
 * program, which live in a folder, are in run.c.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "train/model_impl.h"

#include <inttypes.h>

/* ---- options ---- */
static const char *const standard_passes[] = {"default"};

teng_model_options teng_model_options_default(void)
{
    return (teng_model_options){
        .mode = TENG_GRAPH,
        .device = "cpu",
        .seed = 1,
        .micro_batches = 1,
        .optimizer = {.kind = TENG_ADAMW,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .momentum = 0.9,
                      .weight_decay = 0.1,
                      .clip_norm = 1},
        .schedule = {.kind = TENG_CONSTANT, .lr = 3e-4, .min_lr_ratio = 0.1},
        .passes = standard_passes,
        .n_passes = 1,
    };
}

static teng_status check_options(const teng_model_options *o)
{
    const teng_optimizer *p = &o->optimizer;
    const teng_schedule *s = &o->schedule;
    const double big = 1e30;
    const struct {
        const char *name;
        double value, low, high;
        bool high_out; /* the upper end does not belong to the range */
    } ranges[] = {
        {"mode", o->mode, TENG_GRAPH, TENG_PYNATIVE, false},
        {"threads", o->threads, 0, 4096, false},
        {"micro_batches", (double)o->micro_batches, 1, 65536, false},
        {"optimizer.kind", p->kind, TENG_ADAMW, TENG_SGD, false},
        {"optimizer.beta1", p->beta1, 0, 1, true},
        {"optimizer.beta2", p->beta2, 0, 1, true},
        {"optimizer.eps", p->eps, 1e-300, big, false},
        {"optimizer.momentum", p->momentum, 0, 1, true},
        {"optimizer.weight_decay", p->weight_decay, 0, big, false},
        {"optimizer.clip_norm", p->clip_norm, 0, big, false},
        {"schedule.kind", s->kind, TENG_CONSTANT, TENG_WSD, false},
        {"schedule.lr", s->lr, 0, big, false},
        {"schedule.steps", (double)s->steps, 0, big, false},
        {"schedule.warmup_steps", (double)s->warmup_steps, 0, big, false},
        {"schedule.decay_steps", (double)s->decay_steps, s->kind == TENG_WSD, big, false},
        {"schedule.min_lr_ratio", s->min_lr_ratio, 0, 1, false},
        {"n_passes", o->n_passes, 0, 256, false},
        {"recompute", o->recompute, TENG_RECOMPUTE_NONE, TENG_RECOMPUTE_AUTO, false},
        {"n_recompute_layers", o->n_recompute_layers, 0, 65536, false},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const double v = ranges[i].value;
        if (!(v >= ranges[i].low && (ranges[i].high_out ? v < ranges[i].high : v <= ranges[i].high)))
            return tg_fail(TENG_INVALID, "teng_model_options: %s is %g; it must be in [%g, %g%s",
                           ranges[i].name, v, ranges[i].low, ranges[i].high, ranges[i].high_out ? ")" : "]");
    }
    return TENG_OK;
}

static tg_loss_scale_options loss_scale(const teng_model_options *o)
{
    static const tg_loss_scale_mode modes[] = {[TENG_LOSS_SCALE_NONE] = TG_SCALE_NONE,
                                               [TENG_LOSS_SCALE_FIXED] = TG_SCALE_FIXED,
                                               [TENG_LOSS_SCALE_DYNAMIC] = TG_SCALE_DYNAMIC};
    const teng_loss_scale *l = &o->loss_scale;
    const bool fp16 = o->precision.level != TENG_O0 && o->precision.dtype == TENG_F16;
    return (tg_loss_scale_options){.mode = l->mode == TENG_LOSS_SCALE_DEFAULT
                                               ? (fp16 ? TG_SCALE_DYNAMIC : TG_SCALE_NONE)
                                               : modes[l->mode],
                                   .initial = l->initial,
                                   .factor = l->factor,
                                   .minimum = l->minimum,
                                   .window = l->window,
                                   .max_overflows = l->max_overflows};
}

static tg_step_options step_options(const teng_model_options *o, const char *const *passes)
{
    const teng_optimizer *p = &o->optimizer;
    return (tg_step_options){
        .pynative = o->mode == TENG_PYNATIVE,
        .optimizer = p->kind == TENG_SGD ? TG_CFG_OPTIMIZER_SGD : TG_CFG_OPTIMIZER_ADAMW,
        .beta1 = p->beta1,
        .beta2 = p->beta2,
        .eps = p->eps,
        .weight_decay = p->weight_decay,
        .momentum = p->momentum,
        .clip_norm = p->clip_norm,
        .nesterov = p->nesterov,
        .decay_norms = p->decay_norms,
        .decay_biases = p->decay_biases,
        .decay_embeddings = p->decay_embeddings,
        .micro_batches = o->micro_batches,
        .passes = passes,
        .n_passes = (size_t)o->n_passes,
        .memory_budget = o->memory_budget,
        .offload = o->offload_optimizer ? TG_OFFLOAD_OPTIMIZER : 0,
        .offload_path = o->offload_optimizer,
        .recompute = (tg_cfg_recompute)o->recompute,
        .recompute_layers = o->recompute_layers,
        .n_recompute_layers = (size_t)o->n_recompute_layers,
        .precision = o->precision,
        .loss_scale = loss_scale(o),
        .seed = o->seed,
    };
}

static tg_schedule schedule_of(const teng_schedule *s)
{
    static const tg_cfg_schedule kinds[] = {
        [TENG_CONSTANT] = TG_CFG_SCHEDULE_CONSTANT,
        [TENG_LINEAR] = TG_CFG_SCHEDULE_LINEAR,
        [TENG_COSINE] = TG_CFG_SCHEDULE_COSINE,
        [TENG_WSD] = TG_CFG_SCHEDULE_WSD,
    };
    return (tg_schedule){.kind = kinds[s->kind],
                         .lr = s->lr,
                         .min_lr_ratio = s->min_lr_ratio,
                         .steps = s->steps,
                         .warmup_steps = s->warmup_steps,
                         .decay_steps = s->decay_steps};
}

/* ---- life ---- */
static teng_status create(teng_model *m, teng_cell *net, const teng_model_options *o)
{
    TG_TRY(check_options(o));
    m->arena = tg_arena_create();
    const char **passes =
        m->arena ? tg_arena_alloc(m->arena, sizeof *passes * ((size_t)o->n_passes + 1)) : NULL;
    if (!passes) return TENG_MEMORY;
    for (int i = 0; i < o->n_passes; i++)
        if (!(passes[i] = tg_arena_strdup(m->arena, o->passes[i]))) return TENG_MEMORY;
    const tg_step_options step = step_options(o, passes);
    m->schedule = schedule_of(&o->schedule);
    m->seed = o->seed;
    return tg_core_create(net, o->device ? o->device : "cpu", o->threads, &step, NULL, &m->core);
}

teng_model *teng_model_create(teng_cell *net, const teng_model_options *options)
{
    const teng_model_options standard = teng_model_options_default();
    teng_model *m = tg_calloc(1, sizeof *m);
    if (m && create(m, net, options ? options : &standard) != TENG_OK) teng_model_destroy(&m);
    return m;
}

void teng_model_destroy(teng_model **model)
{
    teng_model *m = *model;
    if (!m) return;
    tg_core_destroy(&m->core);
    tg_arena_destroy(&m->arena);
    tg_free(m);
    *model = NULL;
}

int64_t teng_model_step(const teng_model *model)
{
    return model->core->done;
}

const char *teng_model_overflow(const teng_model *model)
{
    return model->core->overflow.text;
}

teng_status tg_model_ready(teng_model *model)
{
    return tg_core_init(model->core, model->seed);
}

/* ---- training ---- */
typedef teng_status callback_fn(teng_callback *self, teng_train_info *info);

/* A failure of the user's function that says nothing is given a message. */
static teng_status call_back(teng_callback *self, callback_fn *fn, teng_train_info *info)
{
    const teng_status status = fn ? fn(self, info) : TENG_OK;
    return status == TENG_OK ? TENG_OK
                             : tg_fail(status, "a callback ended the training at step %" PRId64, info->step);
}

typedef struct training {
    teng_model *model;
    teng_callback *callbacks;
    int n, begun;
    teng_train_info info;
    tg_schedule schedule;
} training;

static teng_status begin(training *t)
{
    TG_TRY(tg_model_ready(t->model));
    for (; t->begun < t->n; t->begun++) {
        teng_callback *c = &t->callbacks[t->begun];
        TG_TRY(call_back(c, c->on_begin, &t->info));
    }
    return TENG_OK;
}

static teng_status one_step(training *t)
{
    tg_core *core = t->model->core;
    teng_train_info *info = &t->info;
    tg_core_result r;
    const double start = tg_clock_seconds();
    info->lr = tg_schedule_at(&t->schedule, core->done + 1);
    TG_TRY(tg_core_train_step(core, &info->dataset->source, info->lr, &r));
    info->seconds = tg_clock_seconds() - start;
    info->tokens_per_s = info->seconds > 0 ? (double)r.tokens / info->seconds : 0;
    info->step = core->done;
    info->epoch = core->epoch;
    info->loss = r.loss;
    info->loss_scale = r.scale;
    info->grad_norm = r.grad_norm;
    info->finite = r.finite;
    info->step_tokens = r.tokens;
    info->tokens = core->tokens;
    for (int i = 0; i < t->n; i++) {
        teng_callback *c = &t->callbacks[i];
        TG_TRY(call_back(c, c->on_step, info));
    }
    return tg_core_check_dropped(core);
}

static teng_status end(training *t, teng_status status)
{
    tg_error first = {0}, later;
    if (status != TENG_OK) tg_error_take(&first);
    t->info.status = status;
    for (int i = t->begun - 1; i >= 0; i--) {
        teng_callback *c = &t->callbacks[i];
        const teng_status ended = c->on_end ? c->on_end(c, &t->info) : TENG_OK;
        if (ended == TENG_OK) continue;
        if (teng_error_status() == TENG_OK)
            tg_fail(ended, "callback %d failed at the end of the training", i);
        tg_error_take(first.status == TENG_OK ? &first : &later);
    }
    return first.status == TENG_OK ? TENG_OK : tg_error_give(&first);
}

teng_status teng_model_train(teng_model *model, teng_dataset *dataset, int64_t steps,
                             teng_callback *callbacks, int n_callbacks)
{
    if (!model || !dataset)
        return teng_error_status() != TENG_OK
                   ? teng_error_status()
                   : tg_fail(TENG_INVALID, "teng_model_train: the %s is NULL", model ? "dataset" : "model");
    if (dataset->once)
        return tg_fail(TENG_INVALID, "teng_model_train: the dataset ends after one pass (once is set); it is "
                                     "for teng_model_eval");
    if (steps < 1) return tg_fail(TENG_INVALID, "teng_model_train: %" PRId64 " steps", steps);
    training t = {.model = model, .callbacks = callbacks, .n = n_callbacks, .schedule = model->schedule};
    if (t.schedule.steps == 0) t.schedule.steps = steps;
    t.info = (teng_train_info){.model = model,
                               .dataset = dataset,
                               .step = model->core->done,
                               .steps = steps,
                               .epoch = model->core->epoch,
                               .finite = true,
                               .tokens = model->core->tokens};
    teng_status status = begin(&t);
    while (status == TENG_OK && model->core->done < steps && !t.info.stop)
        status = one_step(&t);
    return end(&t, status);
}

/* ---- evaluation ---- */
teng_status teng_model_eval(teng_model *model, teng_dataset *dataset, int64_t max_batches,
                            teng_eval_info *out)
{
    if (!model || !dataset)
        return teng_error_status() != TENG_OK
                   ? teng_error_status()
                   : tg_fail(TENG_INVALID, "teng_model_eval: the %s is NULL", model ? "dataset" : "model");
    TG_TRY(tg_model_ready(model));
    const tg_source *source = &dataset->source;
    const uint64_t place = source->cursor(source->user);
    const int64_t most = max_batches > 0 && max_batches < dataset->length ? max_batches : dataset->length;
    tg_core_eval_result r = {0};
    TG_TRY(source->seek(source->user, 0));
    const teng_status status = tg_core_eval(model->core, source, most, dataset->tokenizer, &r);
    const teng_status back = source->seek(source->user, place);
    if (status != TENG_OK || back != TENG_OK) return status != TENG_OK ? status : back;
    *out = (teng_eval_info){r.loss, r.tokens, r.bytes};
    return TENG_OK;
}
