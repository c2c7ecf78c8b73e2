/*
 * What keys owe each other: one small function for each rule, all in one list. A refusal says which value,
 * where it was given, what the limit is and what to do. Rules that need a tokenizer, a model family's
 * defaults or a device are checked where those are known.
 */
#include "config/config_key.h"

#include "base/fail.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

teng_status tg_config_refuse(const tg_config *cfg, const char *key, const char *fmt, ...)
{
    char place[TG_CONFIG_SOURCE_TEXT], text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tg_fail(TENG_INVALID, "%s: %s", tg_config_source_text(cfg, key, place), text);
}

static tg_config_named either(const char *key, tg_config_opt_int value, const char *gpt2_key,
                              tg_config_opt_int gpt2_value)
{
    return value.set ? (tg_config_named){key, value} : (tg_config_named){gpt2_key, gpt2_value};
}

tg_config_named tg_config_heads(const tg_config *cfg)
{
    return either("model.num_attention_heads", cfg->model.num_attention_heads, "model.n_head",
                  cfg->model.n_head);
}

static tg_config_named hidden_of(const tg_config *cfg)
{
    return either("model.hidden_size", cfg->model.hidden_size, "model.n_embd", cfg->model.n_embd);
}

static tg_config_named positions_of(const tg_config *cfg)
{
    return either("model.max_position_embeddings", cfg->model.max_position_embeddings, "model.n_positions",
                  cfg->model.n_positions);
}

static teng_status check_model_named(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    if (cfg->model.model_type || cfg->model.from) return TENG_OK;
    return tg_config_refuse(
        cfg, "model.model_type",
        "model.model_type is not set: name a family (model.model_type=llama), or a folder to start from "
        "(model.from=DIR)");
}

/* GPT-2's field names with another family, or the other way round, would be ignored; nobody wants that. */
static teng_status check_family_names(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    static const char *const gpt2_name[][2] = {
        {"n_embd", "hidden_size"},
        {"n_layer", "num_hidden_layers"},
        {"n_head", "num_attention_heads"},
        {"n_positions", "max_position_embeddings"},
        {"n_inner", "intermediate_size"},
        {"activation_function", "hidden_act"},
        {"layer_norm_epsilon", "rms_norm_eps"},
    };
    if (!cfg->model.model_type) return TENG_OK;
    bool gpt2 = strcmp(cfg->model.model_type, "gpt2") == 0;
    for (size_t i = 0; i < sizeof gpt2_name / sizeof *gpt2_name; i++) {
        char key[64];
        snprintf(key, sizeof key, "model.%s", gpt2_name[i][gpt2 ? 1 : 0]);
        if (!tg_config_is_set(cfg, tg_config_key_find(key))) continue;
        return tg_config_refuse(
            cfg, key, "%s is set, and model.model_type = %s has no such field; its name is model.%s", key,
            cfg->model.model_type, gpt2_name[i][gpt2 ? 0 : 1]);
    }
    return TENG_OK;
}

static teng_status check_heads(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    tg_config_named heads = tg_config_heads(cfg), hidden = hidden_of(cfg);
    if (!heads.value.set || !hidden.value.set || cfg->model.head_dim.set) return TENG_OK;
    int64_t n = heads.value.value, width = hidden.value.value;
    if (width % n == 0) return TENG_OK;
    int64_t below = width / n * n;
    return tg_config_refuse(cfg, heads.key,
                            "%s = %" PRId64 " does not divide %s = %" PRId64 " (remainder %" PRId64
                            "); take %s = %" PRId64 ", or another number of heads",
                            heads.key, n, hidden.key, width, width % n, hidden.key, below > 0 ? below : n);
}

static teng_status check_kv_heads(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    tg_config_opt_int heads = cfg->model.num_attention_heads, kv = cfg->model.num_key_value_heads;
    if (!heads.set || !kv.set || (kv.value <= heads.value && heads.value % kv.value == 0)) return TENG_OK;
    return tg_config_refuse(cfg, "model.num_key_value_heads",
                            "model.num_key_value_heads = %" PRId64
                            " does not divide model.num_attention_heads = %" PRId64
                            "; each key and value head serves the same number of query heads",
                            kv.value, heads.value);
}

/* Rotary positions turn pairs of numbers. */
static teng_status check_head_dim(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    tg_config_opt_int hidden = cfg->model.hidden_size, heads = cfg->model.num_attention_heads;
    int64_t dim = cfg->model.head_dim.value;
    const char *key = "model.head_dim";
    if (!cfg->model.head_dim.set) {
        if (!hidden.set || !heads.set) return TENG_OK;
        dim = hidden.value / heads.value;
        key = "model.hidden_size";
    }
    if (dim % 2 == 0) return TENG_OK;
    return tg_config_refuse(
        cfg, key,
        "a head is %" PRId64
        " wide; rotary positions need an even width: change %s or model.num_attention_heads",
        dim, key);
}

static teng_status check_experts(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    tg_config_named experts = either("model.num_experts", cfg->model.num_experts, "model.num_local_experts",
                                     cfg->model.num_local_experts);
    tg_config_opt_int each = cfg->model.num_experts_per_tok;
    if (!experts.value.set || !each.set || each.value <= experts.value.value) return TENG_OK;
    return tg_config_refuse(cfg, "model.num_experts_per_tok",
                            "model.num_experts_per_tok = %" PRId64 " is more than %s = %" PRId64, each.value,
                            experts.key, experts.value.value);
}

static teng_status check_rope(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    const char *type = cfg->model.rope_scaling.rope_type;
    tg_config_opt_real low = cfg->model.rope_scaling.low_freq_factor,
                       high = cfg->model.rope_scaling.high_freq_factor;
    bool llama3 = type && strcmp(type, "llama3") == 0, linear = type && strcmp(type, "linear") == 0;
    if (!type && (cfg->model.rope_scaling.factor.set || low.set || high.set ||
                  cfg->model.rope_scaling.original_max_position_embeddings.set))
        return tg_config_refuse(
            cfg, "model.rope_scaling.rope_type",
            "model.rope_scaling.rope_type is not set, but another key of model.rope_scaling is; set it to "
            "linear or llama3");
    if ((llama3 || linear) && !cfg->model.rope_scaling.factor.set)
        return tg_config_refuse(cfg, "model.rope_scaling.rope_type",
                                "model.rope_scaling.rope_type = %s needs model.rope_scaling.factor", type);
    if (llama3 && (!low.set || !high.set || !cfg->model.rope_scaling.original_max_position_embeddings.set))
        return tg_config_refuse(
            cfg, "model.rope_scaling.rope_type",
            "model.rope_scaling.rope_type = llama3 needs low_freq_factor, high_freq_factor and "
            "original_max_position_embeddings beside it");
    if (low.set && high.set && low.value >= high.value)
        return tg_config_refuse(cfg, "model.rope_scaling.low_freq_factor",
                                "model.rope_scaling.low_freq_factor = %g must be below high_freq_factor = %g",
                                low.value, high.value);
    return TENG_OK;
}

static teng_status check_seq_len(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    tg_config_named positions = positions_of(cfg);
    if (!positions.value.set || cfg->train.seq_len <= positions.value.value) return TENG_OK;
    return tg_config_refuse(cfg, "train.seq_len",
                            "train.seq_len = %" PRId64 " is more than the model's positions, %s = %" PRId64
                            "; lower the first or raise the second",
                            cfg->train.seq_len, positions.key, positions.value.value);
}

static teng_status check_buckets(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    const tg_config_ints *b = &cfg->data.seq_buckets;
    for (size_t i = 1; i < b->count; i++)
        if (b->items[i] <= b->items[i - 1])
            return tg_config_refuse(cfg, "data.seq_buckets",
                                    "data.seq_buckets must rise: %" PRId64 " comes after %" PRId64,
                                    b->items[i], b->items[i - 1]);
    if (b->count && b->items[b->count - 1] > cfg->train.seq_len)
        return tg_config_refuse(cfg, "data.seq_buckets",
                                "data.seq_buckets holds %" PRId64 ", more than train.seq_len = %" PRId64
                                ", which is the longest sequence",
                                b->items[b->count - 1], cfg->train.seq_len);
    return TENG_OK;
}

static teng_status check_batch(const tg_config *cfg, int64_t ranks)
{
    int64_t axes[TG_CONFIG_AXES];
    tg_config_axes(cfg, ranks, axes);
    const int64_t batch = cfg->train.batch_size, micro = cfg->train.micro_batches,
                  data = axes[1] * axes[2] * axes[3];
    const int64_t pieces = data * micro;
    if (batch % pieces == 0) return TENG_OK;
    int64_t up = (batch / pieces + 1) * pieces;
    if (data == 1)
        return tg_config_refuse(cfg, "train.batch_size",
                                "train.batch_size = %" PRId64
                                " cannot be cut into train.micro_batches = %" PRId64
                                " equal pieces; the next batch size that can is %" PRId64,
                                batch, micro, up);
    return tg_config_refuse(cfg, "train.batch_size",
                            "train.batch_size = %" PRId64 " cannot be cut into %" PRId64
                            " data ranks (parallel.data x parallel.expert) x train.micro_batches = %" PRId64
                            " equal pieces; the next batch size that can is %" PRId64,
                            batch, data, micro, up);
}

static teng_status check_schedule(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    int64_t steps = cfg->train.steps, warmup = tg_config_warmup_steps(cfg),
            decay = tg_config_decay_steps(cfg);
    if (cfg->schedule.decay_steps.set && cfg->schedule.name != TG_CFG_SCHEDULE_WSD)
        return tg_config_refuse(
            cfg, "schedule.decay_steps",
            "schedule.decay_steps belongs to schedule.name = wsd; the other schedules fall until the last "
            "step or not at all");
    /* A warmup alone may be cut short, and gone on with. */
    if (cfg->schedule.name == TG_CFG_SCHEDULE_CONSTANT) return TENG_OK;
    if (warmup > 0 && warmup >= steps)
        return tg_config_refuse(cfg, "schedule.warmup_steps",
                                "schedule.warmup_steps = %" PRId64 " leaves nothing of train.steps = %" PRId64
                                " after the warmup; it must be at most %" PRId64
                                ", or schedule.name constant, whose warmup may go on when the run does",
                                warmup, steps, steps - 1);
    if (warmup + decay > steps)
        return tg_config_refuse(
            cfg, cfg->schedule.decay_steps.set ? "schedule.decay_steps" : "schedule.decay_fraction",
            "schedule: %" PRId64 " steps of warmup and %" PRId64
            " of decay are more than train.steps = %" PRId64 "; shorten one of them",
            warmup, decay, steps);
    return TENG_OK;
}

static teng_status check_optimizer(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    if (!cfg->optimizer.nesterov) return TENG_OK;
    if (cfg->optimizer.name != TG_CFG_OPTIMIZER_SGD)
        return tg_config_refuse(cfg, "optimizer.nesterov",
                                "optimizer.nesterov belongs to optimizer.name = sgd");
    if (cfg->optimizer.momentum <= 0)
        return tg_config_refuse(cfg, "optimizer.nesterov",
                                "optimizer.nesterov needs optimizer.momentum above 0");
    return TENG_OK;
}

/* Only fp16 needs a loss scale. The values of a resumed run are all written out, so unset is what counts. */
static teng_status check_loss_scale(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    const char *mode = cfg->precision.loss_scale.mode;
    const bool fixed = mode && strcmp(mode, "fixed") == 0, none = mode && strcmp(mode, "none") == 0;
    const struct {
        const char *key;
        bool set, dynamic_only;
    } given[] = {
        {"precision.loss_scale.mode", mode && !none, false},
        {"precision.loss_scale.initial", cfg->precision.loss_scale.initial.set, false},
        {"precision.loss_scale.factor", cfg->precision.loss_scale.factor.set, true},
        {"precision.loss_scale.window", cfg->precision.loss_scale.window.set, true},
        {"precision.loss_scale.minimum", cfg->precision.loss_scale.minimum.set, true},
        {"precision.loss_scale.max_overflows", cfg->precision.loss_scale.max_overflows.set, false},
    };
    const bool fp16 =
        cfg->precision.level != TG_CFG_PRECISION_O0 && cfg->precision.dtype == TG_CFG_DTYPE16_FP16;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (!given[i].set) continue;
        if (!fp16)
            return tg_config_refuse(
                cfg, given[i].key,
                "%s is set and the run computes in %s, whose range needs no loss scale; take the key "
                "out, or set precision.dtype=fp16 with precision.level=O1, O2, O3 or auto",
                given[i].key, cfg->precision.level == TG_CFG_PRECISION_O0 ? "f32" : "bf16");
        if (none || (fixed && given[i].dynamic_only))
            return tg_config_refuse(cfg, given[i].key, "%s has no meaning with precision.loss_scale.mode=%s",
                                    given[i].key, mode);
    }
    if (fp16 && !fixed && !none && cfg->precision.loss_scale.initial.set &&
        cfg->precision.loss_scale.minimum.set &&
        cfg->precision.loss_scale.minimum.value > cfg->precision.loss_scale.initial.value)
        return tg_config_refuse(
            cfg, "precision.loss_scale.minimum",
            "precision.loss_scale.minimum = %g is above precision.loss_scale.initial = %g",
            cfg->precision.loss_scale.minimum.value, cfg->precision.loss_scale.initial.value);
    return TENG_OK;
}

/* Steps of a sink leave no moment between them at which a value could be looked at. */
static teng_status check_sink(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    if (cfg->data.sink_size == 0)
        return tg_config_refuse(
            cfg, "data.sink_size",
            "data.sink_size = 0 is no number of steps; -1 stands for the rest of the epoch");
    if (!cfg->data.sink || cfg->context.mode == TG_CFG_MODE_GRAPH) return TENG_OK;
    return tg_config_refuse(
        cfg, "data.sink",
        "data.sink = true runs many steps back to back, which only a planned step can: set "
        "context.mode = graph, or data.sink = false for context.mode = pynative");
}

static teng_status check_products(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    if (cfg->context.products == TG_CFG_PRODUCTS_SIZES) return TENG_OK;
    if (cfg->context.deterministic == TG_CFG_DETERMINISTIC_STRICT)
        return tg_config_refuse(
            cfg, "context.products",
            "context.products = measured goes by this machine's clock, and "
            "context.deterministic = strict by sizes alone: set context.products = sizes");
    if (cfg->context.mode == TG_CFG_MODE_PYNATIVE)
        return tg_config_refuse(cfg, "context.products",
                                "context.products = measured needs a step that is planned: set "
                                "context.mode = graph, or context.products = sizes");
    return TENG_OK;
}

bool tg_config_profile_steps(const tg_config *cfg, int64_t *first, int64_t *last)
{
    const char *text = cfg->profile.steps;
    int length = 0;
    if (!text) return false;
    if (sscanf(text, "%18" SCNd64 "..%18" SCNd64 "%n", first, last, &length) == 2 && length && !text[length])
        return *first >= 1 && *last >= *first;
    length = 0;
    const bool one = sscanf(text, "%18" SCNd64 "%n", first, &length) == 1 && length && !text[length];
    *last = *first;
    return one && *first >= 1;
}

static teng_status check_profile(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    int64_t first = 0, last = 0;
    if (!cfg->profile.steps) return TENG_OK;
    if (!tg_config_profile_steps(cfg, &first, &last))
        return tg_config_refuse(
            cfg, "profile.steps",
            "profile.steps = %s is neither a step (10) nor a range of steps (10..12), counted from 1",
            cfg->profile.steps);
    if (last - first >= 1000)
        return tg_config_refuse(cfg, "profile.steps",
                                "profile.steps = %s are %" PRId64
                                " steps; each event is kept until the last of them, "
                                "so at most 1000 can be measured",
                                cfg->profile.steps, last - first + 1);
    if (last > cfg->train.steps)
        return tg_config_refuse(cfg, "profile.steps",
                                "profile.steps = %s goes beyond the last step, train.steps = %" PRId64,
                                cfg->profile.steps, cfg->train.steps);
    return TENG_OK;
}

static teng_status check_offload(const tg_config *cfg, int64_t ranks)
{
    (void)ranks;
    const tg_config_strings *words = &cfg->memory.offload;
    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->items[i];
        const bool alone = strcmp(word, "none") == 0 || strcmp(word, "auto") == 0;
        if (alone && words->count > 1)
            return tg_config_refuse(cfg, "memory.offload", "memory.offload: %s stands alone, without others",
                                    word);
        if (!alone && strcmp(word, "optimizer") != 0 && cfg->parallel.pipeline > 1)
            return tg_config_refuse(
                cfg, "memory.offload",
                "memory.offload = %s: the stages of a pipeline (parallel.pipeline = %" PRId64
                ") run forward and backward by turns, which keeps %s in memory; take "
                "memory.offload=optimizer, or memory.recompute",
                word, cfg->parallel.pipeline, word);
    }
    return TENG_OK;
}

typedef teng_status check_fn(const tg_config *cfg, int64_t ranks);
static check_fn *const checks[] = {
    check_model_named, check_family_names, check_heads,
    check_kv_heads,    check_head_dim,     check_experts,
    check_rope,        check_seq_len,      check_buckets,
    check_batch,       check_schedule,     check_optimizer,
    check_loss_scale,  check_sink,         check_products,
    check_profile,     check_offload,      tg_config_check_parallel,
};

teng_status tg_config_check(const tg_config *cfg, int64_t ranks)
{
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        TG_TRY(checks[i](cfg, ranks));
    return TENG_OK;
}

/* A relative path that is still relative was found nowhere; an absolute one may be gone or wrong. */
static teng_status check_path(const tg_config *cfg, const tg_config_key *key, const char *path)
{
    if (tg_path_exists(path)) return TENG_OK;
    const tg_config_source *source = &cfg->sources[tg_config_key_index(key)];
    if (*path == '/')
        return tg_config_refuse(cfg, key->name, "%s: no such file or folder: %s", key->name, path);
    if (source->line > 0)
        return tg_config_refuse(
            cfg, key->name,
            "%s: no such file or folder: %s, neither in the folder of %s nor in the current directory",
            key->name, path, source->file);
    return tg_config_refuse(cfg, key->name, "%s: no such file or folder: %s in the current directory",
                            key->name, path);
}

teng_status tg_config_check_files(const tg_config *cfg)
{
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        const void *field = (const char *)cfg + key->offset;
        if (key->kind == TG_KIND_PATH) {
            const char *path = *(const char *const *)field;
            bool is_word = *key->range && path && strcmp(path, key->range) == 0;
            if (path && !is_word) TG_TRY(check_path(cfg, key, path));
        }
        if (key->kind == TG_KIND_PATHS) {
            const tg_config_strings *list = field;
            for (size_t j = 0; j < list->count; j++)
                TG_TRY(check_path(cfg, key, list->items[j]));
        }
    }
    if (cfg->data.files.count) return TENG_OK;
    return tg_config_refuse(
        cfg, "data.files",
        "data.files is empty: name at least one text, JSON lines or token file, or a folder "
        "(data.files=[a.txt, b.txt])");
}

static int64_t share_of(int64_t steps, double fraction)
{
    return (int64_t)((double)steps * fraction + 0.5);
}

int64_t tg_config_warmup_steps(const tg_config *cfg)
{
    if (cfg->schedule.warmup_steps.set) return cfg->schedule.warmup_steps.value;
    int64_t steps = share_of(cfg->train.steps, cfg->schedule.warmup_fraction);
    return steps < cfg->train.steps ? steps : cfg->train.steps - 1;
}

int64_t tg_config_decay_steps(const tg_config *cfg)
{
    if (cfg->schedule.name != TG_CFG_SCHEDULE_WSD) return 0;
    if (cfg->schedule.decay_steps.set) return cfg->schedule.decay_steps.value;
    return share_of(cfg->train.steps, cfg->schedule.decay_fraction);
}
