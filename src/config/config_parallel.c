/*
 * What the keys parallel.* owe each other, the model and the number of ranks. Here are the rules that follow
 * from the text alone; how tensors are split, and what of it a graph cannot follow, the parallel room knows.
 */
#include "config/config_key.h"

#include "base/fail.h"

#include <inttypes.h>
#include <string.h>

/* In the order of tg_config_axes. */
static const char *const keys[TG_CONFIG_AXES] = {"parallel.pipeline", "parallel.shard_group",
                                                 "parallel.data",     "parallel.expert",
                                                 "parallel.context",  "parallel.tensor"};
enum { PIPELINE, REPLICA, DATA, EXPERT, CONTEXT, TENSOR };

void tg_config_axes(const tg_config *cfg, int64_t ranks, int64_t size[TG_CONFIG_AXES])
{
    const bool all_data = cfg->parallel.mode == TG_CFG_PARALLEL_DATA && ranks > 0 && cfg->parallel.data == 1;
    const int64_t data = all_data ? ranks : cfg->parallel.data, group = cfg->parallel.shard_group;
    const bool groups = cfg->parallel.zero && group && data % group == 0;
    size[PIPELINE] = cfg->parallel.pipeline;
    size[REPLICA] = groups ? data / group : 1;
    size[DATA] = groups ? group : data;
    size[EXPERT] = cfg->parallel.expert;
    size[CONTEXT] = cfg->parallel.context;
    size[TENSOR] = cfg->parallel.tensor;
}

bool tg_config_fusion(const tg_config *cfg, uint64_t *bytes)
{
    const char *text = cfg->parallel.fusion;
    *bytes = strcmp(text, "off") == 0 ? 0 : UINT64_MAX;
    if (*bytes == 0 || strcmp(text, "auto") == 0) return true;
    return tg_config_read_size(text, bytes) && *bytes > 0;
}

static teng_status check_mode(const tg_config *cfg, const int64_t size[TG_CONFIG_AXES])
{
    const bool alone = cfg->parallel.mode == TG_CFG_PARALLEL_STAND_ALONE;
    if (cfg->parallel.mode == TG_CFG_PARALLEL_SEMI_AUTO) return TENG_OK;
    for (int i = 0; i < TG_CONFIG_AXES; i++) {
        if (size[i] == 1 || (!alone && (i == DATA || i == REPLICA))) continue;
        return tg_config_refuse(cfg, keys[i],
                                "%s = %" PRId64
                                " does not go with parallel.mode = %s; set parallel.mode = semi_auto",
                                keys[i], size[i], alone ? "stand_alone" : "data_parallel");
    }
    return TENG_OK;
}

static teng_status check_product(const tg_config *cfg, int64_t ranks, const int64_t size[TG_CONFIG_AXES])
{
    int64_t product = 1;
    const char *biggest = "parallel.data";
    for (int i = 0; i < TG_CONFIG_AXES; i++) {
        product *= size[i];
        if (product > INT32_MAX)
            return tg_config_refuse(cfg, "parallel.data", "the sizes of parallel.* make more than %d ranks",
                                    INT32_MAX);
    }
    if (size[REPLICA] * size[DATA] == 1)
        biggest = size[TENSOR] > 1 ? "parallel.tensor" : size[PIPELINE] > 1 ? "parallel.pipeline" : biggest;
    if (ranks == 0 || product == ranks) return TENG_OK;
    if (product == 1)
        return tg_config_refuse(cfg, biggest,
                                "%" PRId64
                                " ranks run, and no key says what they share: set parallel.data = %" PRId64
                                ", or other sizes of that product",
                                ranks, ranks);
    return tg_config_refuse(cfg, biggest,
                            "parallel.data x tensor x pipeline x context x expert = %" PRId64 " x %" PRId64
                            " x %" PRId64 " x %" PRId64 " x %" PRId64 " = %" PRId64 " ranks, and %" PRId64
                            " run; start so many (mpirun -n %" PRId64 " teng …), or change the sizes",
                            size[REPLICA] * size[DATA], size[TENSOR], size[PIPELINE], size[CONTEXT],
                            size[EXPERT], product, ranks, product);
}

static teng_status check_divides(const tg_config *cfg, const char *by, int64_t n, const char *key,
                                 int64_t value, const char *why)
{
    if (value % n == 0) return TENG_OK;
    return tg_config_refuse(cfg, by, "%s = %" PRId64 " does not divide %s = %" PRId64 ": %s", by, n, key,
                            value, why);
}

static teng_status check_tensor(const tg_config *cfg)
{
    const int64_t n = cfg->parallel.tensor;
    const tg_config_named heads = tg_config_heads(cfg);
    const tg_config_opt_int kv = cfg->model.num_key_value_heads;
    if (cfg->parallel.sequence && n == 1)
        return tg_config_refuse(
            cfg, "parallel.sequence",
            "parallel.sequence = true splits among tensor ranks, and parallel.tensor = 1");
    if (heads.value.set)
        TG_TRY(check_divides(cfg, "parallel.tensor", n, heads.key, heads.value.value,
                             "every rank takes whole heads"));
    if (kv.set && kv.value % n && n % kv.value)
        return tg_config_refuse(
            cfg, "parallel.tensor",
            "parallel.tensor = %" PRId64 " neither divides model.num_key_value_heads = %" PRId64
            " nor is a multiple of it: every rank takes whole heads, or some ranks the same one",
            n, kv.value);
    return TENG_OK;
}

static teng_status check_layers(const tg_config *cfg)
{
    const tg_config_opt_int hf = cfg->model.num_hidden_layers, gpt2 = cfg->model.n_layer;
    const int64_t pieces = cfg->parallel.pipeline * cfg->parallel.chunks;
    const int64_t layers = hf.set ? hf.value : gpt2.set ? gpt2.value : pieces;
    if (cfg->parallel.chunks > 1 && cfg->parallel.schedule != TG_CFG_PIPELINE_INTERLEAVED)
        return tg_config_refuse(cfg, "parallel.chunks",
                                "parallel.chunks = %" PRId64 " belongs to parallel.schedule = interleaved",
                                cfg->parallel.chunks);
    if (pieces <= layers) return TENG_OK;
    return tg_config_refuse(cfg, "parallel.pipeline",
                            "parallel.pipeline = %" PRId64 " x parallel.chunks = %" PRId64
                            " pieces are more than the %s = %" PRId64 " layers; each piece needs one",
                            cfg->parallel.pipeline, cfg->parallel.chunks,
                            hf.set ? "model.num_hidden_layers" : "model.n_layer", layers);
}

static teng_status check_positions(const tg_config *cfg)
{
    const int64_t context = cfg->parallel.context, tensor = cfg->parallel.sequence ? cfg->parallel.tensor : 1;
    const int64_t pieces = context > 1 ? 2 * context : 1;
    if (cfg->train.seq_len % (pieces * tensor))
        return tg_config_refuse(
            cfg, "train.seq_len",
            "train.seq_len = %" PRId64 " cannot be cut into %" PRId64 " equal pieces%s%s", cfg->train.seq_len,
            pieces * tensor, context > 1 ? ", two for each of parallel.context ranks" : "",
            cfg->parallel.sequence ? ", with parallel.sequence times parallel.tensor" : "");
    for (size_t i = 0; i < cfg->data.seq_buckets.count; i++)
        if (cfg->data.seq_buckets.items[i] % (pieces * tensor))
            return tg_config_refuse(cfg, "data.seq_buckets",
                                    "data.seq_buckets holds %" PRId64 ", which cannot be cut into %" PRId64
                                    " equal pieces, as parallel.context and parallel.sequence need",
                                    cfg->data.seq_buckets.items[i], pieces * tensor);
    return TENG_OK;
}

static teng_status check_expert_ranks(const tg_config *cfg)
{
    const tg_config_opt_int local = cfg->model.num_local_experts, experts = cfg->model.num_experts;
    const char *type = cfg->model.model_type;
    const int64_t n = cfg->parallel.expert;
    if (n == 1) return TENG_OK;
    if (!cfg->model.from && type && strcmp(type, "mixtral") != 0 && strcmp(type, "qwen3_moe") != 0)
        return tg_config_refuse(cfg, "parallel.expert",
                                "parallel.expert = %" PRId64
                                " splits experts, and model.model_type = %s has none; use parallel.data",
                                n, type);
    if (!local.set && !experts.set) return TENG_OK;
    return check_divides(cfg, "parallel.expert", n,
                         local.set ? "model.num_local_experts" : "model.num_experts",
                         local.set ? local.value : experts.value, "every rank takes as many experts");
}

static teng_status check_groups(const tg_config *cfg, const int64_t size[TG_CONFIG_AXES])
{
    const int64_t group = cfg->parallel.shard_group, data = size[REPLICA] * size[DATA];
    if (group == 0) return TENG_OK;
    if (!cfg->parallel.zero)
        return tg_config_refuse(cfg, "parallel.shard_group",
                                "parallel.shard_group = %" PRId64 " has no meaning with parallel.zero = 0",
                                group);
    return check_divides(cfg, "parallel.shard_group", group, "parallel.data", data,
                         "every group has as many ranks");
}

/* A step that runs operator by operator has its gradients between backward and update, and nothing else. */
static teng_status check_pynative(const tg_config *cfg, const int64_t size[TG_CONFIG_AXES])
{
    if (cfg->context.mode != TG_CFG_MODE_PYNATIVE) return TENG_OK;
    for (int i = 0; i < TG_CONFIG_AXES; i++) {
        if (i == DATA || i == REPLICA || size[i] == 1) continue;
        return tg_config_refuse(
            cfg, keys[i],
            "%s = %" PRId64 " rewrites the graph of a step, and context.mode = pynative has "
            "none: set context.mode = graph; pynative knows parallel.data and parallel.zero",
            keys[i], size[i]);
    }
    return TENG_OK;
}

teng_status tg_config_check_parallel(const tg_config *cfg, int64_t ranks)
{
    int64_t size[TG_CONFIG_AXES];
    uint64_t bytes;
    tg_config_axes(cfg, ranks, size);
    TG_TRY(check_mode(cfg, size));
    TG_TRY(check_product(cfg, ranks, size));
    TG_TRY(check_tensor(cfg));
    TG_TRY(check_layers(cfg));
    TG_TRY(check_positions(cfg));
    TG_TRY(check_expert_ranks(cfg));
    TG_TRY(check_groups(cfg, size));
    TG_TRY(check_pynative(cfg, size));
    if (tg_config_fusion(cfg, &bytes)) return TENG_OK;
    return tg_config_refuse(cfg, "parallel.fusion",
                            "parallel.fusion = \"%.80s\" is none of: off, auto, a number of bytes as 8MiB",
                            cfg->parallel.fusion);
}
