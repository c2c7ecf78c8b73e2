/*
 * Making a run folder and reopening one. A folder holds config.yaml (resolved, with the source of each
 * value), metrics.jsonl, log.txt, tokenizer.json, products.json, checkpoints/, model/ and run.lock. Nothing
 * is written before everything that can be refused has been checked.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "device/cpu_gemm.h"
#include "device/cpu_isa.h"
#include "device/cpu_products.h"
#include "tensor/desc.h"
#include "train/run_impl.h"

#include <inttypes.h>
#include <string.h>

#define PRODUCTS "products.json"

enum { AUTO_FUSION = 8 << 20 }; /* bytes of parallel.fusion=auto */

static char *path_in(const tg_run *run, const char *name)
{
    return tg_path_join(run->cfg->run.dir, name);
}

teng_status tg_run_prepare_context(const tg_config *cfg)
{
    if (strcmp(cfg->context.cpu_isa, "auto") != 0) {
        if (tg_cpu_isa_limit(cfg->context.cpu_isa) != TENG_OK) return tg_fail_context("context.cpu_isa");
    }
    tg_products_clear();
    tg_gemm_set_strict(cfg->context.deterministic == TG_CFG_DETERMINISTIC_STRICT);
    for (size_t i = 0; i < cfg->context.plugins.count; i++)
        TG_TRY(teng_plugin_load(cfg->context.plugins.items[i]));
    return TENG_OK;
}

/* config.json of model.from (or an empty object) with the given model.* keys laid over it. */
static teng_status model_json(const tg_config *cfg, const tg_tokenizer *tokenizer, json_t **out)
{
    json_t *json = NULL;
    if (cfg->model.from)
        TG_TRY(tg_hf_read_config(cfg->model.from, &json));
    else
        json = json_object();
    json_t *given = tg_config_model_json(cfg);
    int failed = !json || !given || json_object_update(json, given) != 0;
    if (!failed && !json_object_get(json, "vocab_size") && tokenizer)
        failed =
            json_object_set_new(json, "vocab_size", json_integer(tg_tokenizer_vocab_size(tokenizer))) != 0;
    if (!failed && tokenizer && !cfg->model.from) {
        if (tg_tokenizer_eos(tokenizer) >= 0)
            failed |=
                json_object_set_new(json, "eos_token_id", json_integer(tg_tokenizer_eos(tokenizer))) != 0;
        if (tg_tokenizer_bos(tokenizer) >= 0)
            failed |=
                json_object_set_new(json, "bos_token_id", json_integer(tg_tokenizer_bos(tokenizer))) != 0;
    }
    json_decref(given);
    if (failed) {
        json_decref(json);
        return tg_fail(TENG_MEMORY, "out of memory for the model's configuration");
    }
    *out = json;
    return TENG_OK;
}

teng_status tg_run_open_model(const tg_config *cfg, const tg_tokenizer *tokenizer, teng_cell **out,
                              tg_lm_info *info)
{
    json_t *json = NULL;
    TG_TRY(model_json(cfg, tokenizer, &json));
    teng_cell *lm = tg_lm_create_json(json);
    json_decref(json);
    if (!lm) return tg_fail_context("model");
    teng_status status = tg_lm_get_info(lm, info);
    if (status == TENG_OK && info->positions_are_hard && cfg->train.seq_len > info->max_positions)
        status = tg_fail(
            TENG_INVALID,
            "train.seq_len %lld is longer than the %lld positions that the model has: lower train.seq_len or "
            "raise model.n_positions",
            (long long)cfg->train.seq_len, (long long)info->max_positions);
    if (status == TENG_OK && tokenizer && (int64_t)tg_tokenizer_vocab_size(tokenizer) > info->vocab_size)
        status = tg_fail(TENG_INVALID,
                         "the tokenizer has %u tokens and the model's vocab_size is %lld: tokens beyond the "
                         "vocabulary would "
                         "have no embedding; raise model.vocab_size or leave it out",
                         tg_tokenizer_vocab_size(tokenizer), (long long)info->vocab_size);
    if (status != TENG_OK) {
        teng_cell_destroy(&lm);
        return status;
    }
    *out = lm;
    return TENG_OK;
}

static tg_loss_scale_options loss_scale_options(const tg_config *cfg)
{
    const char *mode = cfg->precision.loss_scale.mode;
    tg_loss_scale_options o = {.initial = cfg->precision.loss_scale.initial.value,
                               .factor = cfg->precision.loss_scale.factor.value,
                               .minimum = cfg->precision.loss_scale.minimum.value,
                               .window = cfg->precision.loss_scale.window.value,
                               .max_overflows = cfg->precision.loss_scale.max_overflows.value};
    const bool fp16 =
        cfg->precision.level != TG_CFG_PRECISION_O0 && cfg->precision.dtype == TG_CFG_DTYPE16_FP16;
    if (fp16 && (!mode || strcmp(mode, "dynamic") == 0)) o.mode = TG_SCALE_DYNAMIC;
    if (fp16 && mode && strcmp(mode, "fixed") == 0) o.mode = TG_SCALE_FIXED;
    return o;
}

_Static_assert((int)TG_PIPE_1F1B == (int)TG_CFG_PIPELINE_1F1B &&
                   (int)TG_PIPE_GPIPE == (int)TG_CFG_PIPELINE_GPIPE &&
                   (int)TG_PIPE_INTERLEAVED == (int)TG_CFG_PIPELINE_INTERLEAVED &&
                   (int)TG_PIPE_ZERO_BUBBLE == (int)TG_CFG_PIPELINE_ZERO_BUBBLE,
               "schedules are named in one order");

tg_step_options tg_run_step_options(const tg_config *cfg)
{
    return (tg_step_options){
        .pynative = cfg->context.mode == TG_CFG_MODE_PYNATIVE,
        .optimizer = cfg->optimizer.name,
        .beta1 = cfg->optimizer.beta1,
        .beta2 = cfg->optimizer.beta2,
        .eps = cfg->optimizer.eps,
        .weight_decay = cfg->optimizer.weight_decay,
        .momentum = cfg->optimizer.momentum,
        .clip_norm = cfg->optimizer.clip_norm,
        .nesterov = cfg->optimizer.nesterov,
        .decay_norms = cfg->optimizer.decay_norms,
        .decay_biases = cfg->optimizer.decay_biases,
        .decay_embeddings = cfg->optimizer.decay_embeddings,
        .micro_batches = cfg->train.micro_batches,
        .passes = cfg->graph.passes.items,
        .n_passes = cfg->graph.passes.count,
        .memory_budget = cfg->memory.budget,
        .offload = tg_run_offload(cfg),
        .offload_path = cfg->offload.path ? cfg->offload.path : cfg->run.dir,
        .recompute = cfg->memory.recompute,
        .recompute_layers = cfg->memory.recompute_layers.items,
        .n_recompute_layers = cfg->memory.recompute_layers.count,
        .precision = {.level = (teng_precision_level)cfg->precision.level,
                      .dtype = cfg->precision.dtype == TG_CFG_DTYPE16_FP16 ? TENG_F16 : TENG_BF16,
                      .keep_fp32 = cfg->precision.keep_fp32.items,
                      .n_keep_fp32 = (int)cfg->precision.keep_fp32.count},
        .loss_scale = loss_scale_options(cfg),
        .pipe_kind = (tg_pipe_kind)cfg->parallel.schedule,
        .pipe_chunks = (int)cfg->parallel.chunks,
        .seed = (uint64_t)cfg->context.seed,
    };
}

void tg_run_parallel_options(const tg_config *cfg, const tg_mesh *mesh, int rank, tg_parallel_options *out)
{
    uint64_t fusion = 0;
    (void)tg_config_fusion(cfg, &fusion);
    *out = (tg_parallel_options){.mesh = *mesh,
                                 .rank = rank,
                                 .sequence = cfg->parallel.sequence,
                                 .zero = (int)cfg->parallel.zero,
                                 .reduce_dtype =
                                     cfg->parallel.reduce_dtype == TG_CFG_REDUCE_BF16 ? TENG_BF16 : TENG_F32,
                                 .fusion = fusion == UINT64_MAX ? AUTO_FUSION : (size_t)fusion};
}

static tg_loader_options loader_options(const tg_run *run, bool val)
{
    const tg_config *cfg = run->cfg;
    const int64_t pieces = val ? 1 : cfg->train.micro_batches;
    int row, ranks;
    tg_team_rows(run->team, &row, &ranks);
    const bool own_files = cfg->data.val_files.count > 0;
    const tg_config_strings *files = val && own_files ? &cfg->data.val_files : &cfg->data.files;
    const double fraction = own_files ? 0.0 : cfg->data.val_fraction;
    tg_loader_options o = {
        .files = files->items,
        .n_files = (int)files->count,
        .tokenizer = run->tokenizer,
        .corpus = {.json_field = cfg->data.text_field,
                   .separator = cfg->data.separator,
                   .add_eos = true,
                   .val_fraction = fraction,
                   .seed = (uint64_t)cfg->context.seed},
        .split = fraction <= 0 ? TG_SPLIT_ALL
                 : val         ? TG_SPLIT_VAL
                               : TG_SPLIT_TRAIN,
        .format = TG_TOKENS_AUTO,
        .eos = run->tokenizer ? tg_tokenizer_eos(run->tokenizer) : -1,
        .vocab_limit = (uint32_t)run->info.vocab_size,
        .seq_len = cfg->train.seq_len,
        .rows = cfg->train.batch_size / cfg->train.micro_batches * pieces / ranks,
        .rank = row,
        .ranks = ranks,
        .pieces = pieces,
        .packing = cfg->data.packing == TG_CFG_PACKING_DOCUMENT ? TG_PACK_DOCUMENT : TG_PACK_CROSS,
        .seed = (uint64_t)cfg->context.seed,
        .shuffle = cfg->data.shuffle && !val,
        .once = val,
        .pad = -1,
        .prefetch = val ? 0 : (int)cfg->data.prefetch,
    };
    for (size_t i = 0; i < cfg->data.seq_buckets.count && !val && i < TG_MAX_BUCKETS; i++)
        o.seq_buckets[o.n_buckets++] = cfg->data.seq_buckets.items[i];
    return o;
}

static teng_status open_data(tg_run *run)
{
    const tg_config *cfg = run->cfg;
    tg_loader_options o = loader_options(run, false);
    TG_TRY(tg_loader_open(&o, &run->train));
    run->source = tg_source_of_loader(run->train);
    if (cfg->data.val_files.count == 0 && cfg->data.val_fraction <= 0) return TENG_OK;
    o = loader_options(run, true);
    const teng_status status = tg_loader_open(&o, &run->val);
    if (status == TENG_OK) return TENG_OK;
    if (cfg->data.val_files.count > 0 || status == TENG_MEMORY) return tg_fail_context("data.val_files");
    run->no_val =
        tg_asprintf("nothing can be evaluated on, data.val_fraction=%g held no usable document back: %s",
                    cfg->data.val_fraction, teng_error());
    teng_error_clear();
    return run->no_val ? TENG_OK : TENG_MEMORY;
}

/* Before the core is made, which holds parameters from the beginning. */
static teng_status choose_offload(const tg_run *run, tg_step_options *options)
{
    tg_device *dev;
    TG_TRY(tg_device_open(run->cfg->context.device, (int)run->cfg->context.threads, &dev));
    const teng_status status = tg_run_choose_offload(run->cfg, run->lm, dev, options);
    tg_device_close(&dev);
    return status;
}

static teng_status open_core(tg_run *run)
{
    const tg_config *cfg = run->cfg;
    TG_TRY(tg_run_open_tokenizer(cfg, &run->tokenizer));
    TG_TRY(tg_run_open_model(cfg, run->tokenizer, &run->lm, &run->info));
    tg_step_options options = tg_run_step_options(cfg);
    if (tg_team_is_many(run->team) && options.pynative && run->info.num_experts)
        return tg_fail(
            TENG_UNSUPPORTED,
            "context.mode = pynative knows the loss of each rank's own rows, and the auxiliary loss of a "
            "mixture of experts is one of all ranks: set context.mode = graph");
    if (tg_team_is_many(run->team)) {
        tg_run_parallel_options(cfg, &run->team->mesh, run->team->rank, &run->split);
        options.parallel = &run->split;
    }
    if (tg_run_offload_is_auto(cfg)) TG_TRY(choose_offload(run, &options));
    TG_TRY(tg_core_create(run->lm, cfg->context.device, (int)cfg->context.threads, &options, run->team,
                          &run->core));
    return open_data(run);
}

teng_status tg_run_note_data(const tg_run *run, json_t *state)
{
    const json_int_t tokens = (json_int_t)tg_loader_info_get(run->train).tokens;
    json_t *data = json_pack("{s:I, s:I}", "tokens", tokens, "hash", (json_int_t)run->data_hash);
    const int failed = !data || json_object_set_new(state, "data", data) != 0;
    return failed ? tg_fail(TENG_MEMORY, "out of memory for the checkpoint's state") : TENG_OK;
}

/* A checkpoint's place means something in equal data alone. Checkpoints of earlier versions do not say. */
static teng_status same_training_data(const tg_run *run, const tg_ckpt *ck)
{
    const json_t *was = json_object_get(tg_ckpt_state(ck), "data");
    int64_t tokens = 0, hash = 0;
    if (!was) return TENG_OK;
    TG_TRY(tg_json_get_int(was, "state.json: data", "tokens", true, &tokens));
    TG_TRY(tg_json_get_int(was, "state.json: data", "hash", true, &hash));
    const uint64_t now = tg_loader_info_get(run->train).tokens;
    if (now == (uint64_t)tokens && run->data_hash == hash) return TENG_OK;
    return tg_fail(TENG_INVALID,
                   "checkpoint %s was made with other training data: data.files had %" PRId64
                   " tokens then and %s%" PRIu64
                   " now; the run would go on neither where it was nor anew. Put "
                   "the files back as they were, or start a new run from its weights (teng train CONFIG.yaml "
                   "run.dir=… model.from=%s/model)",
                   tg_ckpt_path(ck), tokens, now == (uint64_t)tokens ? "has others, also " : "has ", now,
                   run->cfg->run.dir);
}

/* What of the data tells whether two ranks read the same. */
static teng_status same_data(tg_run *run)
{
    const tg_loader_info info = tg_loader_info_get(run->train);
    json_t *facts =
        json_pack("{s:I, s:I, s:I, s:I}", "the number of tokens in data.files", (json_int_t)info.tokens,
                  "the number of documents in data.files", (json_int_t)info.documents,
                  "the number of sequences in data.files", (json_int_t)info.samples,
                  "the sample of data.files (a hash)", (json_int_t)run->data_hash);
    teng_status status = tg_team_agree(run->team, facts ? TENG_OK : TENG_MEMORY);
    if (status == TENG_OK)
        status = tg_team_same_facts(run->team, facts, "all ranks must read the same files");
    json_decref(facts);
    return status;
}

/* A plan over the budget, or an operator without a kernel, is refused here, before the first step. */
static teng_status plan_all(tg_run *run)
{
    const tg_config *cfg = run->cfg;
    const tg_plan *plan;
    TG_TRY(tg_run_plan_micro_batch(cfg, run->core->step, &plan));
    teng_desc desc[2];
    const tg_step_feed shapes = tg_run_shapes(cfg, cfg->train.micro_batches, desc);
    return tg_core_lay_out(run->core, &shapes);
}

static teng_status choose_products(tg_run *run)
{
    char *recorded = run->owned ? path_in(run, PRODUCTS) : NULL;
    const teng_status status = tg_run_choose_products(run->cfg, run->lm, run->core->dev, &run->core->options,
                                                      run->team, recorded, NULL);
    tg_free(recorded);
    return status;
}

static teng_status keep_products(tg_run *run)
{
    char *path = path_in(run, PRODUCTS);
    const teng_status status = !path                         ? TENG_MEMORY
                               : tg_team_is_first(run->team) ? tg_run_keep_products(run->cfg, path)
                                                             : TENG_OK;
    tg_free(path);
    return status;
}

double tg_run_peak_flops(const tg_run *run, const tg_cpu_peak *peak)
{
    return tg_step_peak_flops(&run->core->options, peak) * run->team->ranks;
}

/* Configuration → tokenizer, model, core, data; no file is written. Ranks that differ are refused. */
static teng_status open_parts(tg_run *run)
{
    const tg_config *cfg = run->cfg;
    teng_status status = tg_config_check(cfg, run->team->ranks);
    if (status == TENG_OK) status = tg_run_prepare_context(cfg);
    if (status == TENG_OK) status = tg_config_check_files(cfg);
    TG_TRY(tg_team_agree(run->team, status));
    TG_TRY(tg_team_same_config(run->team, cfg));
    TG_TRY(tg_team_bind(run->team, cfg));
    TG_TRY(tg_team_agree(run->team, open_core(run)));
    run->data_hash = (int64_t)(tg_loader_fingerprint(run->train) >> 1);
    if (tg_team_is_many(run->team)) TG_TRY(same_data(run));
    TG_TRY(choose_products(run));
    TG_TRY(tg_team_agree(run->team, plan_all(run)));
    tg_cpu_peak peak;
    if (tg_cpu_measure_peak(false, &peak) == TENG_OK) run->peak_flops = tg_run_peak_flops(run, &peak);
    teng_error_clear();
    return TENG_OK;
}

static teng_status take_folder(tg_run *run)
{
    TG_TRY(tg_mkdirs(run->cfg->run.dir));
    char *lock = path_in(run, "run.lock");
    if (!lock) return TENG_MEMORY;
    const teng_status status = tg_lock_take(lock, &run->lock);
    tg_free(lock);
    return status == TENG_OK ? TENG_OK
                             : tg_fail_context("run.dir %s is in use by another run", run->cfg->run.dir);
}

static teng_status remove_old_run(tg_run *run)
{
    static const char *const ours[] = {"metrics.jsonl", "log.txt",    "checkpoints", "model",
                                       "profile.json",  "trace.json", PRODUCTS,      "config.yaml"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        char *path = path_in(run, ours[i]);
        const teng_status status = path ? tg_remove_tree(path) : TENG_MEMORY;
        tg_free(path);
        if (status != TENG_OK) return status;
    }
    return tg_run_remove_tokenizer(run->cfg);
}

static teng_status refuse_used_folder(tg_run *run)
{
    char *config = path_in(run, "config.yaml");
    if (!config) return TENG_MEMORY;
    const bool used = tg_path_exists(config);
    tg_free(config);
    if (!used) return TENG_OK;
    if (run->cfg->run.overwrite) return remove_old_run(run);
    return tg_fail(TENG_STATE,
                   "run.dir %s holds a run already: go on with it by `teng resume %s`, name another folder "
                   "(run.dir=…), or replace it (run.overwrite=true)",
                   run->cfg->run.dir, run->cfg->run.dir);
}

static teng_status write_text(tg_run *run, const char *name, const char *text)
{
    char *path = path_in(run, name);
    const teng_status status = path && text ? tg_file_write(path, text, strlen(text)) : TENG_MEMORY;
    tg_free(path);
    return status;
}

/* The model folder's configuration, so that checkpoints can be used before the run has ended. */
static teng_status write_model_config(tg_run *run)
{
    char *dir = path_in(run, "model");
    teng_status status = dir ? tg_mkdirs(dir) : TENG_MEMORY;
    tg_free(dir);
    if (status == TENG_OK) status = write_text(run, "model/config.json", teng_lm_config(run->lm));
    return status;
}

static teng_status open_writers(tg_run *run)
{
    char *metrics = path_in(run, "metrics.jsonl"), *root = path_in(run, "checkpoints");
    teng_status status = metrics && root ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && tg_team_is_first(run->team)) status = tg_metrics_open(metrics, &run->metrics);
    if (status == TENG_OK)
        status =
            tg_saver_create(root, (int)run->cfg->checkpoint.keep_max,
                            run->cfg->checkpoint.async && !(run->core->options.offload & TG_OFFLOAD_STORED),
                            run->team, &run->saver);
    tg_free(metrics);
    tg_free(root);
    run->saved_step = -1;
    run->saved_at = tg_clock_seconds();
    return status;
}

static teng_status put_start(tg_run *run)
{
    if (!run->metrics) return TENG_OK;
    const tg_device_info *dev = &run->core->dev->info;
    json_t *config = tg_config_json(run->cfg);
    const tg_metrics_run line = {.first_step = run->core->done,
                                 .steps = run->cfg->train.steps,
                                 .parameters = run->info.params,
                                 .threads = dev->threads,
                                 .mode = run->core->options.pynative ? "pynative" : "graph",
                                 .device = dev->name,
                                 .dtype = "f32",
                                 .config = config};
    const teng_status status = tg_metrics_put_run(run->metrics, &line);
    json_decref(config);
    return status;
}

static teng_status initial_weights(tg_run *run)
{
    if (!run->cfg->model.from) return tg_core_init(run->core, (uint64_t)run->cfg->context.seed);
    return tg_core_load_path(run->core, run->cfg->model.from) == TENG_OK ? TENG_OK
                                                                         : tg_fail_context("model.from");
}

/* The folder is rank 0's: it alone locks and writes it. */
static teng_status begin_folder(tg_run *run)
{
    if (!tg_team_is_first(run->team)) return TENG_OK;
    TG_TRY(take_folder(run));
    return refuse_used_folder(run);
}

static teng_status fill_folder(tg_run *run)
{
    if (!tg_team_is_first(run->team)) return TENG_OK;
    TG_TRY(tg_run_write_tokenizer(run->cfg, run->tokenizer));
    TG_TRY(write_model_config(run));
    TG_TRY(keep_products(run));
    char *yaml = tg_config_yaml(run->cfg);
    const teng_status status = write_text(run, "config.yaml", yaml);
    tg_free(yaml);
    return status;
}

static teng_status create(tg_run *run)
{
    TG_TRY(tg_team_open(&run->team));
    TG_TRY(open_parts(run));
    TG_TRY(tg_team_agree(run->team, begin_folder(run)));
    TG_TRY(tg_team_agree(run->team, initial_weights(run)));
    TG_TRY(tg_core_same_copies(run->core, "before the first step"));
    TG_TRY(tg_team_agree(run->team, fill_folder(run)));
    TG_TRY(tg_team_agree(run->team, open_writers(run)));
    return tg_team_agree(run->team, put_start(run));
}

teng_status tg_run_create(const tg_config *cfg, tg_run **out)
{
    tg_run *run = tg_calloc(1, sizeof *run);
    if (!run) return TENG_MEMORY;
    run->cfg = cfg;
    const teng_status status = create(run);
    if (status != TENG_OK) {
        tg_run_close(&run);
        return status;
    }
    *out = run;
    return TENG_OK;
}

/* ---- resume ---- */
static const char *const may_change[] = {
    "train.steps",     "train.max_seconds", "train.eval_every", "train.eval_batches", "train.log_every",
    "checkpoint.",     "context.threads",   "context.mode",     "context.cpu_isa",    "context.log_level",
    "context.plugins", "memory.",           "offload.",         "data.prefetch",      "data.val_files",
    "graph.passes",    "data.sink",         "data.sink_size",   "profile.steps",      "parallel."};

static teng_status apply_override(tg_config *cfg, const char *assignment)
{
    for (size_t i = 0; i < sizeof may_change / sizeof *may_change; i++) {
        const size_t n = strlen(may_change[i]);
        if (strncmp(assignment, may_change[i], n) == 0 &&
            (may_change[i][n - 1] == '.' || assignment[n] == '='))
            return tg_config_override(cfg, assignment);
    }
    const size_t key = strcspn(assignment, "=");
    return tg_fail(TENG_INVALID,
                   "%.*s cannot change when a run goes on: the result would be neither the old run nor a new "
                   "one. Start a "
                   "new run (teng train … run.dir=…), from the weights if you like (model.from=%s/model)",
                   (int)key, assignment, cfg->run.dir);
}

static teng_status load_config(tg_run *run, const char *dir, const char *const *overrides, size_t n)
{
    char *path = tg_path_join(dir, "config.yaml");
    run->owned = tg_config_create();
    if (!path || !run->owned) {
        tg_free(path);
        return TENG_MEMORY;
    }
    run->cfg = run->owned;
    teng_status status = TENG_OK;
    if (!tg_path_exists(path))
        status = tg_fail(TENG_INVALID,
                         "%s holds no run: there is no config.yaml in it; start one with `teng train "
                         "CONFIG.yaml run.dir=%s`",
                         dir, dir);
    if (status == TENG_OK) status = tg_config_load(run->owned, path);
    tg_free(path);
    if (status == TENG_OK) status = tg_config_set(run->owned, "run.dir", dir);
    if (status == TENG_OK) status = tg_config_set(run->owned, "run.overwrite", "false");
    for (size_t i = 0; i < n && status == TENG_OK; i++)
        status = apply_override(run->owned, overrides[i]);
    return status;
}

/* The run goes on with the tokenizer it began with, wherever that came from. */
static teng_status use_own_tokenizer(tg_run *run)
{
    if (strcmp(run->cfg->data.tokenizer, "bytes") == 0 && !run->cfg->model.from) return TENG_OK;
    char *path = path_in(run, "tokenizer.json");
    const teng_status status = path ? tg_config_set(run->owned, "data.tokenizer", path) : TENG_MEMORY;
    tg_free(path);
    return status;
}

static teng_status restore(tg_run *run)
{
    char *root = path_in(run, "checkpoints"), *latest = NULL, *metrics = path_in(run, "metrics.jsonl");
    teng_status status = root && metrics ? tg_ckpt_latest(root, false, &latest) : TENG_MEMORY;
    tg_ckpt *ck = NULL;
    if (status == TENG_OK && latest) status = tg_ckpt_open(latest, false, &ck);
    if (status == TENG_OK && ck) status = same_training_data(run, ck);
    if (status == TENG_OK && ck) status = tg_core_restore(run->core, ck, &run->source);
    if (status == TENG_OK && !ck) status = initial_weights(run); /* stopped before its first checkpoint */
    if (status == TENG_OK && tg_team_is_first(run->team))
        status = tg_metrics_truncate_after(metrics, run->core->done);
    tg_ckpt_close(&ck);
    tg_free(root);
    tg_free(metrics);
    tg_free(latest);
    return status;
}

static teng_status resume(tg_run *run, const char *dir, const char *const *overrides, size_t n)
{
    TG_TRY(tg_team_open(&run->team));
    teng_status status = load_config(run, dir, overrides, n);
    if (status == TENG_OK) status = use_own_tokenizer(run);
    if (status == TENG_OK && tg_team_is_first(run->team)) status = take_folder(run);
    TG_TRY(tg_team_agree(run->team, status));
    TG_TRY(open_parts(run));
    TG_TRY(tg_team_agree(run->team, restore(run)));
    TG_TRY(tg_team_agree(run->team, keep_products(run)));
    TG_TRY(tg_core_same_copies(run->core, "after the checkpoint was read"));
    TG_TRY(tg_team_agree(run->team, open_writers(run)));
    run->saved_step = run->core->done;
    return tg_team_agree(run->team, put_start(run));
}

teng_status tg_run_resume(const char *run_dir, const char *const *overrides, size_t n, tg_run **out)
{
    tg_run *run = tg_calloc(1, sizeof *run);
    if (!run) return TENG_MEMORY;
    const teng_status status = resume(run, run_dir, overrides, n);
    if (status != TENG_OK) {
        tg_run_close(&run);
        return status;
    }
    *out = run;
    return TENG_OK;
}

void tg_run_close(tg_run **run)
{
    tg_run *r = *run;
    if (!r) return;
    tg_saver_destroy(&r->saver);
    tg_metrics_close(&r->metrics);
    tg_loader_close(&r->train);
    tg_loader_close(&r->val);
    tg_profiler_destroy(&r->profiler);
    tg_core_destroy(&r->core);
    teng_cell_destroy(&r->lm);
    tg_tokenizer_destroy(&r->tokenizer);
    tg_lock_release(&r->lock);
    tg_config_destroy(&r->owned);
    tg_team_close(&r->team);
    tg_free(r->no_val);
    tg_free(r);
    *run = NULL;
}

const tg_config *tg_run_config(const tg_run *run)
{
    return run->cfg;
}

int64_t tg_run_step(const tg_run *run)
{
    return run->core->done;
}

const tg_lm_info *tg_run_lm_info(const tg_run *run)
{
    return &run->info;
}

const tg_device_info *tg_run_device_info(const tg_run *run)
{
    return &run->core->dev->info;
}
