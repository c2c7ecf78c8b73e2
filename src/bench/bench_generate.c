/*
 * Writing one sequence, token by token. Each token reads every weight that meets it once and computes little,
 * so memory is the limit: what is reached is held against the read bandwidth measured in the same process.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/vec.h"
#include "device/cpu_info.h"
#include "tensor/desc.h"
#include "train/lm_impl.h"
#include "train/run_impl.h"

#include <string.h>

#define STREAM_SECONDS 0.2

typedef struct bench {
    const tg_bench_generate_options *options;
    tg_device *dev;
    tg_lm *lm;
    int64_t prompt, tokens; /* what fits the model's positions */
    uint32_t *ids;          /* [prompt + tokens] */
    double read_gb_s;       /* measured last */
    TG_VEC(double)
    rates, prompts, reads; /* of passes; the bandwidth at each: the better of before and after */
} bench;

/* Initial values of what is kept in 16 bits: those of f32, rounded. */
static teng_status init_narrow(tg_lm *lm, uint64_t seed)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(lm->cell, &params, &n));
    for (size_t i = 0; i < n; i++) {
        tg_store_entry *e = tg_store_find(lm->core->store, params[i].name);
        if (!e || e->desc.dtype == TENG_F32) continue;
        const int64_t count = tg_desc_numel(&e->desc);
        float *wide = tg_alloc_aligned((size_t)count * sizeof *wide);
        if (!wide) return TENG_MEMORY;
        tg_nn_init_param(&params[i], seed, wide);
        tg_convert(e->desc.dtype, e->data, TENG_F32, wide, count);
        tg_free_aligned(wide);
        e->loaded = true;
    }
    return TENG_OK;
}

/* The configuration's model with initial weights, as tg_lm_open would have it from a folder of that type. */
static teng_status make_model(bench *b)
{
    static const char *const passes[] = {"default"};
    const tg_step_options options = {.micro_batches = 1, .passes = passes, .n_passes = 1};
    const tg_config *cfg = b->options->cfg;
    const uint64_t seed = (uint64_t)cfg->context.seed;
    tg_lm *lm = b->lm = tg_calloc(1, sizeof *lm);
    if (!lm) return TENG_MEMORY;
    TG_TRY(tg_run_prepare_context(cfg));
    if (!cfg->model.vocab_size.set && !cfg->model.from) TG_TRY(tg_run_open_tokenizer(cfg, &lm->tokenizer));
    TG_TRY(tg_run_open_model(cfg, lm->tokenizer, &lm->cell, &lm->info));
    if (b->options->dtype != TENG_F32) TG_TRY(tg_lm_store_weights(lm->cell, b->options->dtype));
    TG_TRY(tg_core_create(lm->cell, b->dev->info.kind, b->dev->info.threads, &options, NULL, &lm->core));
    TG_TRY(init_narrow(lm, seed));
    return tg_core_init(lm->core, seed);
}

/* Bytes of the matrices that a token meets, and the type that most of them have. */
static teng_status count_weights(tg_lm *lm, double *bytes, teng_dtype *dtype)
{
    const tg_lm_info *info = &lm->info;
    const tg_param_info *params;
    size_t n;
    double of_type[TENG_DTYPE_COUNT] = {0};
    TG_TRY(tg_nn_params(lm->cell, &params, &n));
    *bytes = 0;
    *dtype = TENG_F32;
    for (size_t i = 0; i < n; i++) {
        const teng_desc *d = &params[i].desc;
        const bool head = info->tied && strcmp(params[i].name, info->embedding) == 0;
        if (params[i].init.role != TENG_ROLE_WEIGHT && !head) continue;
        double part = (double)tg_desc_bytes(d);
        if (d->ndim == 3 && info->num_experts > 0 && d->dims[0] == info->num_experts)
            part *= (double)info->experts_per_token / (double)info->num_experts;
        *bytes += part;
        of_type[d->dtype] += part;
        if (of_type[d->dtype] > of_type[*dtype]) *dtype = d->dtype;
    }
    return TENG_OK;
}

static uint32_t likeliest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (uint32_t)best;
}

static teng_status write_tokens(bench *b, tg_predictor *p, bool timed)
{
    const int64_t vocab = b->lm->info.vocab_size;
    const double begin = tg_clock_seconds();
    TG_TRY(tg_predictor_next(p, b->ids, b->prompt));
    const double prompted = tg_clock_seconds();
    for (int64_t i = b->prompt; i < b->prompt + b->tokens; i++) {
        b->ids[i] = likeliest(p->logits, vocab);
        TG_TRY(tg_predictor_next(p, b->ids, i + 1));
    }
    const double rate = (double)b->tokens / (tg_clock_seconds() - prompted);
    if (!timed) return TENG_OK;
    return tg_vec_push(&b->rates, rate) && tg_vec_push(&b->prompts, prompted - begin) ? TENG_OK : TENG_MEMORY;
}

static teng_status measure_stream(bench *b)
{
    tg_cpu_rates r;
    TG_TRY(tg_cpu_time_stream(TG_CPU_READ, STREAM_SECONDS, &r));
    b->read_gb_s = tg_bench_stat_of(r.rate, r.n).median;
    return TENG_OK;
}

static teng_status measure(bench *b)
{
    const tg_bench_generate_options *o = b->options;
    TG_TRY(tg_device_open(o->device, o->threads, &b->dev));
    TG_TRY(o->model_dir ? tg_lm_open(o->model_dir, b->dev, &b->lm) : make_model(b));
    const int64_t most = b->lm->info.max_positions;
    if (most < 2)
        return tg_fail(TENG_INVALID, "a model of %lld positions has no room for a prompt and a token",
                       (long long)most);
    b->prompt = o->prompt_tokens < most / 2 ? o->prompt_tokens : most / 2;
    b->tokens = o->tokens < most - b->prompt ? o->tokens : most - b->prompt;
    b->ids = tg_calloc((size_t)(b->prompt + b->tokens), sizeof *b->ids);
    if (!b->ids) return TENG_MEMORY;
    for (int64_t i = 0; i < b->prompt; i++)
        b->ids[i] =
            (uint32_t)tg_rng_below(tg_rng_key(1, "prompt"), (uint64_t)i, (uint64_t)b->lm->info.vocab_size);
    TG_TRY(measure_stream(b));
    for (int64_t i = 0; i <= o->passes; i++) { /* the first one plans, and is not counted */
        tg_predictor p;
        TG_TRY(tg_predictor_open(&p, b->lm, true, b->prompt + b->tokens));
        const teng_status status = write_tokens(b, &p, i > 0);
        tg_predictor_close(&p);
        if (status != TENG_OK) return status;
        const double before = b->read_gb_s;
        TG_TRY(measure_stream(b));
        if (i > 0 && !tg_vec_push(&b->reads, (before + b->read_gb_s) / 2)) return TENG_MEMORY;
    }
    return TENG_OK;
}

/* Of keys and values of the tokens before, in the middle of what is written (attention windows are wider). */
static double cache_bytes(const bench *b)
{
    const tg_lm_info *info = &b->lm->info;
    const double tokens = (double)b->prompt + (double)b->tokens / 2;
    const double row = (double)(info->num_kv_heads * info->head_dim) * sizeof(float);
    return 2 * (double)info->num_layers * row * tokens;
}

static json_t *figures(const bench *b)
{
    const tg_lm_info *info = &b->lm->info;
    double bytes;
    teng_dtype dtype;
    if (count_weights(b->lm, &bytes, &dtype) != TENG_OK) return NULL;
    const double all = bytes + cache_bytes(b);
    double share[1000];
    for (size_t i = 0; i < b->rates.len; i++)
        share[i] = all * b->rates.data[i] * 1e-9 / b->reads.data[i];
    const int64_t n = (int64_t)b->rates.len;
    const tg_bench_stat rate = tg_bench_stat_of(b->rates.data, n), shares = tg_bench_stat_of(share, n);
    return json_pack("{s:f, s:o, s:I, s:I, s:o, s:s, s:I, s:I, s:f, s:o, s:f, s:o, s:I, s:i, s:s}",
                     "tokens_per_s", rate.median, "passes_tokens_per_s", tg_bench_stat_json(rate),
                     "prompt_tokens", (json_int_t)b->prompt, "tokens", (json_int_t)b->tokens, "prompt_s",
                     tg_bench_stat_json(tg_bench_stat_of(b->prompts.data, (int64_t)b->prompts.len)), "dtype",
                     teng_dtype_name(dtype), "weight_bytes_per_token", (json_int_t)bytes,
                     "cache_bytes_per_token", (json_int_t)cache_bytes(b), "gb_s", all * rate.median * 1e-9,
                     "read_gb_s", tg_bench_stat_json(tg_bench_stat_of(b->reads.data, n)), "bandwidth_share",
                     shares.median, "passes_bandwidth_share", tg_bench_stat_json(shares), "parameters",
                     (json_int_t)info->params, "threads", b->dev->info.threads, "family", info->family);
}

teng_status tg_bench_generate(const tg_bench_generate_options *options, json_t **out)
{
    bench b = {.options = options};
    teng_status status = measure(&b);
    if (status == TENG_OK) status = tg_bench_answer(figures(&b), out);
    tg_lm_close(&b.lm);
    tg_device_close(&b.dev);
    tg_vec_free(&b.rates);
    tg_vec_free(&b.prompts);
    tg_vec_free(&b.reads);
    tg_free(b.ids);
    return status;
}
