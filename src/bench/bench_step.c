/*
 * Training steps on drawn tokens: forward, backward, clip and update of the configuration's own model, as a
 * run makes them, on one rank or on all that were started together. No run folder, no data, no checkpoint, no
 * evaluation: what is measured is the step.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/vec.h"
#include "plan/plan.h"
#include "tensor/desc.h"
#include "train/run_impl.h"
#include "train/step.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

#define PEAK_SECONDS 0.25
#define LONG_SECONDS 2.0 /* of steps; the rate of products is measured again after them */

struct tg_bench_step {
    const tg_config *cfg;
    tg_tokenizer *tokenizer; /* for its size, when the model does not say it */
    teng_cell *lm;
    tg_lm_info info;
    tg_team *team; /* NULL: one rank */
    tg_parallel_options split;
    tg_core *core;
    const tg_plan *plan; /* NULL in PYNATIVE; of this rank */
    /* drawn batches */
    uint64_t key, batches;
    int32_t *tokens; /* [rows, seq] and as many labels */
    /* measured */
    double began, modelled, planned, ready, first_end, first_loss, last_loss, best_gflops;
    uint64_t base_rss, peak_rss;
    int64_t dropped;
    tg_comm_counts counts; /* of the timed steps */
    TG_VEC(double) seconds, waits, peaks;
};

/* ---- batches ---- */
static teng_status next_batch(void *user, tg_source_batch *out)
{
    tg_bench_step *b = user;
    const int64_t rows = b->cfg->train.batch_size, seq = b->cfg->train.seq_len, n = rows * seq;
    const uint64_t first = b->batches++ * (uint64_t)(rows * (seq + 1));
    for (int64_t r = 0; r < rows; r++) {
        int32_t *tokens = b->tokens + r * seq, *labels = b->tokens + n + r * seq;
        for (int64_t t = 0; t <= seq; t++) {
            const int32_t id = (int32_t)tg_rng_below(b->key, first + (uint64_t)(r * (seq + 1) + t),
                                                     (uint64_t)b->info.vocab_size);
            if (t < seq) tokens[t] = id;
            if (t > 0) labels[t - 1] = id;
        }
    }
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){rows, seq});
    *out = (tg_source_batch){.n_in = 2,
                             .desc = {desc, desc},
                             .data = {b->tokens, b->tokens + n},
                             .name = {"tokens", "labels"},
                             .labels = 1};
    return TENG_OK;
}

static uint64_t cursor(void *user)
{
    return ((const tg_bench_step *)user)->batches;
}

static teng_status seek(void *user, uint64_t to)
{
    ((tg_bench_step *)user)->batches = to;
    return TENG_OK;
}

/* ---- open, run, close ---- */
/* Of the ranks that were started together; one alone has no team. */
static teng_status open_team(tg_bench_step *b, tg_step_options *options)
{
    const tg_comm *comm = tg_comm_current();
    if (!comm || tg_comm_size(comm) == 1) return TENG_OK;
    TG_TRY(tg_team_open(&b->team));
    TG_TRY(tg_team_hello(b->team));
    TG_TRY(tg_team_bind(b->team, b->cfg));
    tg_run_parallel_options(b->cfg, &b->team->mesh, b->team->rank, &b->split);
    options->parallel = &b->split;
    return TENG_OK;
}

static teng_status open_parts(tg_bench_step *b)
{
    const tg_config *cfg = b->cfg;
    b->began = tg_clock_seconds();
    b->base_rss = tg_current_rss();
    TG_TRY(tg_run_prepare_context(cfg));
    if (!cfg->model.vocab_size.set && !cfg->model.from) TG_TRY(tg_run_open_tokenizer(cfg, &b->tokenizer));
    TG_TRY(tg_run_open_model(cfg, b->tokenizer, &b->lm, &b->info));
    tg_step_options options = tg_run_step_options(cfg);
    TG_TRY(open_team(b, &options));
    TG_TRY(
        tg_core_create(b->lm, cfg->context.device, (int)cfg->context.threads, &options, b->team, &b->core));
    b->modelled = tg_clock_seconds();
    TG_TRY(tg_run_choose_products(cfg, b->lm, b->core->dev, &options, b->team, NULL, NULL));
    TG_TRY(tg_run_plan_micro_batch(cfg, b->core->step, &b->plan));
    teng_desc desc[2];
    const tg_step_feed shapes = tg_run_shapes(cfg, cfg->train.micro_batches, desc);
    TG_TRY(tg_core_lay_out(b->core, &shapes));
    b->planned = tg_clock_seconds();
    TG_TRY(tg_core_init(b->core, (uint64_t)cfg->context.seed));
    b->key = tg_rng_key((uint64_t)cfg->context.seed, "bench");
    b->tokens = tg_calloc((size_t)(2 * cfg->train.batch_size * cfg->train.seq_len), sizeof *b->tokens);
    tg_peak_rss_reset(); /* planning may have measured the machine */
    b->ready = tg_clock_seconds();
    return b->tokens ? TENG_OK : TENG_MEMORY;
}

teng_status tg_bench_step_open(const tg_config *cfg, tg_bench_step **out)
{
    tg_bench_step *b = tg_calloc(1, sizeof *b);
    if (!b) return TENG_MEMORY;
    b->cfg = cfg;
    const teng_status status = open_parts(b);
    if (status != TENG_OK) {
        tg_bench_step_close(&b);
        return status;
    }
    *out = b;
    return TENG_OK;
}

void tg_bench_step_close(tg_bench_step **step)
{
    tg_bench_step *b = *step;
    if (!b) return;
    tg_core_destroy(&b->core);
    tg_team_close(&b->team);
    teng_cell_destroy(&b->lm);
    tg_tokenizer_destroy(&b->tokenizer);
    tg_vec_free(&b->seconds);
    tg_vec_free(&b->waits);
    tg_vec_free(&b->peaks);
    tg_free(b->tokens);
    tg_free(b);
    *step = NULL;
}

/* ---- interruption ---- */
static atomic_bool stop_requested;

void tg_bench_stop(void)
{
    stop_requested = true;
}

bool tg_bench_stopped(void)
{
    if (stop_requested) tg_fail(TENG_INTERRUPTED, "the measurement was interrupted");
    return stop_requested;
}

uint64_t tg_bench_step_bytes(tg_bench_step *b)
{
    if (b->plan) return tg_plan_bytes(b->plan);
    size_t peak;
    tg_eager_bytes(b->core->step->eager, &peak);
    return tg_store_bytes(b->core->store, TG_STORE_PARAM) + tg_store_bytes(b->core->store, TG_STORE_STATE) +
           peak;
}

tg_core *tg_bench_step_core(tg_bench_step *step)
{
    return step->core;
}

teng_status tg_bench_step_run(tg_bench_step *b, int64_t n, bool timed)
{
    const tg_source source = {.user = b, .next = next_batch, .cursor = cursor, .seek = seek};
    omp_set_num_threads(b->core->dev->info.threads); /* another one may have been open since */
    tg_comm_counts before = {0};
    if (timed && b->team) tg_comm_count(b->team->comm, NULL, &before);
    for (int64_t i = 0; i < n; i++) {
        if (tg_bench_stopped()) return TENG_INTERRUPTED;
        tg_core_result r;
        const double lr = tg_schedule_lr(b->cfg, b->core->done + 1), begin = tg_clock_seconds();
        TG_TRY(tg_core_train_step(b->core, &source, lr, &r));
        const double end = tg_clock_seconds();
        if (b->first_end == 0) {
            b->first_end = end;
            b->first_loss = r.loss;
        }
        b->last_loss = r.loss;
        b->dropped += !r.finite;
        if (timed && (!tg_vec_push(&b->seconds, end - begin) || !tg_vec_push(&b->waits, r.wait_s)))
            return TENG_MEMORY;
    }
    if (timed && b->team) tg_comm_count(b->team->comm, &before, &b->counts);
    const uint64_t rss = tg_peak_rss();
    if (rss > b->peak_rss) b->peak_rss = rss;
    return TENG_OK;
}

/* ---- figures ---- */
/* Of the products. */
static teng_dtype product_dtype(const tg_config *cfg)
{
    if (cfg->precision.level == TG_CFG_PRECISION_O0) return TENG_F32;
    return cfg->precision.dtype == TG_CFG_DTYPE16_FP16 ? TENG_F16 : TENG_BF16;
}

teng_status tg_bench_step_peak(tg_bench_step *b)
{
    tg_bench_stat s;
    TG_TRY(tg_bench_matmul_peak(product_dtype(b->cfg), PEAK_SECONDS, &s));
    if (s.max > b->best_gflops) b->best_gflops = s.max;
    tg_peak_rss_reset(); /* what the products took is no part of the step */
    return tg_vec_push(&b->peaks, s.median) ? TENG_OK : TENG_MEMORY;
}

tg_bench_step_figures tg_bench_step_get(tg_bench_step *b)
{
    const double start = tg_process_start(), from = start < 0 ? b->began : start;
    tg_bench_step_figures f = {
        .flops_per_token = tg_lm_flops_per_token(&b->info, b->cfg->train.seq_len),
        .matmul_peak_gflops = tg_bench_stat_of(b->peaks.data, (int64_t)b->peaks.len).median,
        .matmul_best_gflops = b->best_gflops,
        .peak_rss_bytes = b->peak_rss,
        .base_rss_bytes = b->base_rss,
        .planned_bytes = b->plan ? tg_plan_bytes(b->plan) : 0,
        .startup_ms = (b->first_end - from) * 1e3,
        .load_ms = (b->began - from) * 1e3,
        .model_ms = (b->modelled - b->began) * 1e3,
        .plan_ms = (b->planned - b->modelled) * 1e3,
        .init_ms = (b->ready - b->planned) * 1e3,
        .first_step_ms = (b->first_end - b->ready) * 1e3,
        .first_step_at = b->first_end,
        .first_loss = b->first_loss,
        .last_loss = b->last_loss,
        .tokens_per_step = b->cfg->train.batch_size * b->cfg->train.seq_len,
        .parameters = b->info.params,
        .micro_batches = b->core->options.micro_batches,
        .dropped = b->dropped,
        .threads = b->core->dev->info.threads,
        .mode = b->core->options.pynative ? "pynative" : "graph",
        .precision = teng_precision_level_name((teng_precision_level)b->cfg->precision.level),
        .dtype = teng_dtype_name(product_dtype(b->cfg)),
        .ranks = b->team ? b->team->ranks : 1,
    };
    memcpy(f.sent, b->counts.sent, sizeof f.sent);
    f.wait_ms = tg_bench_stat_of(b->waits.data, (int64_t)b->waits.len).median * 1e3;
    f.step_ms = tg_bench_stat_of(b->seconds.data, (int64_t)b->seconds.len);
    f.step_ms.median *= 1e3;
    f.step_ms.min *= 1e3;
    f.step_ms.max *= 1e3;
    if (f.step_ms.n > 0) {
        f.steps_per_s = 1e3 / f.step_ms.median;
        f.tokens_per_s = f.steps_per_s * (double)f.tokens_per_step;
        f.gflops = f.tokens_per_s * f.flops_per_token * 1e-9;
        if (f.matmul_peak_gflops > 0) f.mfu = f.gflops / f.matmul_peak_gflops / f.ranks;
        f.communication_ms = b->counts.times.busy * 1e3 / (double)f.step_ms.n;
        f.exposed_ms = b->counts.times.exposed * 1e3 / (double)f.step_ms.n;
    }
    return f;
}

/* A member that is null where the figure is not known. */
static int put_real(json_t *o, const char *key, double value, bool known)
{
    return json_object_set_new(o, key, known && isfinite(value) ? json_real(value) : json_null());
}

/* Of a step, on rank 0: seconds, the share of them that computation did not wait for, and bytes by axes. */
static json_t *communication_json(const tg_bench_step_figures *f)
{
    char axes[TG_AXES_TEXT];
    json_t *sent = json_object();
    const double steps = f->step_ms.n ? (double)f->step_ms.n : 1;
    int failed = !sent;
    for (tg_axis_set s = 0; s < 1u << TG_AXES && !failed; s++)
        if (f->sent[s])
            failed |= json_object_set_new(sent, tg_axes_text(axes, sizeof axes, s),
                                          json_real((double)f->sent[s] / steps));
    const double hidden = f->communication_ms > f->exposed_ms ? f->communication_ms - f->exposed_ms : 0;
    return failed ? NULL
                  : json_pack("{s:f, s:f, s:f, s:o}", "ms", f->communication_ms, "exposed_ms", f->exposed_ms,
                              "hidden_share", f->communication_ms > 0 ? hidden / f->communication_ms : 0.0,
                              "sent_bytes", sent);
}

json_t *tg_bench_step_json(const tg_config *cfg, const tg_bench_step_figures *f)
{
    json_t *o = json_object();
    const bool timed = f->step_ms.n > 0, rated = f->matmul_peak_gflops > 0;
    json_t *parts = json_pack("{s:f, s:f, s:f, s:f, s:f}", "load", f->load_ms, "model", f->model_ms, "plan",
                              f->plan_ms, "init", f->init_ms, "first_step", f->first_step_ms);
    int failed =
        put_real(o, "tokens_per_s", f->tokens_per_s, timed) |
        put_real(o, "steps_per_s", f->steps_per_s, timed) |
        json_object_set_new(o, "step_ms", tg_bench_stat_json(f->step_ms)) |
        put_real(o, "mfu", f->mfu, timed && rated) | put_real(o, "gflops", f->gflops, timed) |
        put_real(o, "matmul_peak_gflops", f->matmul_peak_gflops, rated) |
        put_real(o, "matmul_best_gflops", f->matmul_best_gflops, rated) |
        put_real(o, "flops_per_token", f->flops_per_token, true) |
        json_object_set_new(o, "peak_rss_bytes", json_integer((json_int_t)f->peak_rss_bytes)) |
        json_object_set_new(o, "base_rss_bytes", json_integer((json_int_t)f->base_rss_bytes)) |
        json_object_set_new(o, "planned_bytes",
                            f->planned_bytes ? json_integer((json_int_t)f->planned_bytes) : json_null()) |
        put_real(o, "startup_ms", f->startup_ms, true) | json_object_set_new(o, "startup_parts_ms", parts) |
        put_real(o, "first_step_at", f->first_step_at, true) |
        put_real(o, "plan_ms", f->plan_ms, f->planned_bytes > 0) | put_real(o, "wait_ms", f->wait_ms, timed) |
        put_real(o, "first_loss", f->first_loss, true) | put_real(o, "last_loss", f->last_loss, true);
    json_t *setting =
        json_pack("{s:I, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I}", "dropped_steps",
                  (json_int_t)f->dropped, "mode", f->mode, "precision", f->precision, "dtype", f->dtype,
                  "threads", f->threads, "batch_size", (json_int_t)cfg->train.batch_size, "seq_len",
                  (json_int_t)cfg->train.seq_len, "micro_batches", (json_int_t)f->micro_batches,
                  "tokens_per_step", (json_int_t)f->tokens_per_step, "parameters", (json_int_t)f->parameters);
    failed |= !setting || json_object_update(o, setting);
    json_decref(setting);
    if (f->ranks > 1)
        failed |= json_object_set_new(o, "ranks", json_integer(f->ranks)) |
                  json_object_set_new(o, "communication", communication_json(f));
    if (!failed) return o;
    json_decref(o);
    return NULL;
}

/* The timed steps. A shared machine's rate of products changes by the minute, so that it is measured between
 * long steps too; of ranks, which would wait for each other's measurements within the steps, around them
 * alone. */
static teng_status run_timed(tg_bench_step *b, const tg_bench_step_options *options)
{
    double since = 0;
    for (int64_t i = 0; i < options->steps; i++) {
        TG_TRY(tg_bench_step_run(b, 1, true));
        since += b->seconds.data[b->seconds.len - 1];
        const bool last = i + 1 == options->steps, long_steps = since >= LONG_SECONDS && !b->team;
        if (!options->peak || !(last || long_steps)) continue;
        TG_TRY(tg_bench_step_peak(b));
        since = 0;
    }
    return TENG_OK;
}

teng_status tg_bench_step_measure(const tg_config *cfg, const tg_bench_step_options *options,
                                  tg_bench_step_figures *out)
{
    tg_bench_step *b = NULL;
    TG_TRY(tg_bench_step_open(cfg, &b));
    teng_status status = tg_bench_step_run(b, options->warmup, false);
    if (status == TENG_OK && options->peak && options->warmup > 0) status = tg_bench_step_peak(b);
    if (status == TENG_OK) status = run_timed(b, options);
    if (status == TENG_OK) *out = tg_bench_step_get(b);
    if (status == TENG_OK && b->team) status = tg_comm_barrier(tg_comm_world(b->team->comm));
    tg_bench_step_close(&b);
    return status;
}
