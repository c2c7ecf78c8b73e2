/*
 * The families of language models and the keys of their config.json: one table of keys with each family's
 * name and default for it, one table of keys that would change the maths and are not implemented. Everything
 * that can be said about a config without weights is said here, before anything is built. How a family
 * computes is in llama.c, gpt2.c.
 *
 * Defaults are those of transformers' configuration classes, except that a vocabulary is never assumed.
 */
#include "base/fail.h"
#include "nn/lm.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { LLAMA, MISTRAL, QWEN2, QWEN3, GPT2, MIXTRAL, QWEN3_MOE, FAMILIES };

/* Buffers of old versions' files: values that are computed here. */
static const char *const rope_extra[] = {".rotary_emb.inv_freq", NULL};
static const char *const gpt2_extra[] = {".attn.bias", ".attn.masked_bias", NULL};

/* Files keep each expert's matrices alone. */
static const tg_lm_expert_names mixtral_experts = {"block_sparse_moe", "w1", "w3", "w2"};
static const tg_lm_expert_names qwen_experts = {"mlp", "gate_proj", "up_proj", "down_proj"};

static const tg_lm_family families[FAMILIES] = {
    [LLAMA] = {.name = "llama",
               .architecture = "LlamaForCausalLM",
               .backbone = "model",
               .extra = rope_extra,
               .rope = true,
               .build = tg_llama_build},
    [MISTRAL] = {.name = "mistral",
                 .architecture = "MistralForCausalLM",
                 .backbone = "model",
                 .extra = rope_extra,
                 .rope = true,
                 .window = TG_WINDOW_ALL,
                 .build = tg_llama_build},
    [QWEN2] = {.name = "qwen2",
               .architecture = "Qwen2ForCausalLM",
               .backbone = "model",
               .extra = rope_extra,
               .rope = true,
               .qkv_bias = true,
               .window = TG_WINDOW_BY_LAYER,
               .build = tg_llama_build},
    [QWEN3] = {.name = "qwen3",
               .architecture = "Qwen3ForCausalLM",
               .backbone = "model",
               .extra = rope_extra,
               .rope = true,
               .qk_norm = true,
               .window = TG_WINDOW_BY_LAYER,
               .build = tg_llama_build},
    [MIXTRAL] = {.name = "mixtral",
                 .architecture = "MixtralForCausalLM",
                 .backbone = "model",
                 .extra = rope_extra,
                 .experts = &mixtral_experts,
                 .renormalise = true,
                 .rope = true,
                 .default_theta = 1e6,
                 .window = TG_WINDOW_ALL,
                 .build = tg_llama_build,
                 .aux_loss = tg_llama_aux_loss},
    [QWEN3_MOE] = {.name = "qwen3_moe",
                   .architecture = "Qwen3MoeForCausalLM",
                   .backbone = "model",
                   .extra = rope_extra,
                   .experts = &qwen_experts,
                   .rope = true,
                   .qk_norm = true,
                   .window = TG_WINDOW_ALL,
                   .build = tg_llama_build,
                   .aux_loss = tg_llama_aux_loss},
    [GPT2] = {.name = "gpt2",
              .architecture = "GPT2LMHeadModel",
              .backbone = "transformer",
              .extra = gpt2_extra,
              .build = tg_gpt2_build},
};

typedef enum key_kind {
    KEY_INT,     /* lo … hi */
    KEY_OPT_INT, /* the same, or null, which leaves 0: derived from other keys */
    KEY_REAL,    /* [lo, hi) */
    KEY_BOOL,
    KEY_ACT, /* name of an activation */
} key_kind;

#define REQUIRED "!"
#define OPTIONAL "" /* known, absent unless given */
#define NONE NULL   /* not a key of this family */

typedef struct key_row {
    const char *name;
    key_kind kind;
    size_t field;
    double lo, hi;
    const char *def[FAMILIES]; /* JSON text, or one of the words above */
} key_row;

#define F(field) offsetof(tg_lm_shape, field)
/* clang-format off */
static const key_row keys[] = {
    /* key                       kind         field                   lo  hi          llama     mistral   qwen2     qwen3     gpt2        mixtral    qwen3_moe */
    {"vocab_size",               KEY_INT,     F(vocab_size),          1, 1 << 24, {REQUIRED, REQUIRED, REQUIRED, REQUIRED, REQUIRED       , REQUIRED,  REQUIRED}},
    {"hidden_size",              KEY_INT,     F(hidden_size),         1, 1 << 20, {"4096",   "4096",   "4096",   "4096",   NONE           , "4096",    "2048"}},
    {"n_embd",                   KEY_INT,     F(hidden_size),         1, 1 << 20, {NONE,     NONE,     NONE,     NONE,     "768"          , NONE,      NONE}},
    {"intermediate_size",        KEY_INT,     F(intermediate_size),   1, 1 << 22, {"11008",  "14336",  "22016",  "22016",  NONE           , "14336",   "6144"}},
    {"n_inner",                  KEY_OPT_INT, F(intermediate_size),   1, 1 << 22, {NONE,     NONE,     NONE,     NONE,     "null"         , NONE,      NONE}},
    {"num_hidden_layers",        KEY_INT,     F(num_layers),          1, 4096,    {"32",     "32",     "32",     "32",     NONE           , "32",      "24"}},
    {"n_layer",                  KEY_INT,     F(num_layers),          1, 4096,    {NONE,     NONE,     NONE,     NONE,     "12"           , NONE,      NONE}},
    {"num_attention_heads",      KEY_INT,     F(num_heads),           1, 4096,    {"32",     "32",     "32",     "32",     NONE           , "32",      "32"}},
    {"n_head",                   KEY_INT,     F(num_heads),           1, 4096,    {NONE,     NONE,     NONE,     NONE,     "12"           , NONE,      NONE}},
    {"num_key_value_heads",      KEY_OPT_INT, F(num_kv_heads),        1, 4096,    {"null",   "8",      "32",     "32",     NONE           , "8",       "4"}},
    {"head_dim",                 KEY_OPT_INT, F(head_dim),            1, 1 << 16, {"null",   "null",   OPTIONAL, "128",    NONE           , "null",    OPTIONAL}},
    {"max_position_embeddings",  KEY_INT,     F(max_positions),       1, 1 << 24, {"2048",   "131072", "32768",  "32768",  NONE           , "131072",  "32768"}},
    {"n_positions",              KEY_INT,     F(max_positions),       1, 1 << 24, {NONE,     NONE,     NONE,     NONE,     "1024"         , NONE,      NONE}},
    {"hidden_act",               KEY_ACT,     F(act),                 0, 0,       {"\"silu\"", "\"silu\"", "\"silu\"", "\"silu\"", NONE   , "\"silu\"","\"silu\""}},
    {"activation_function",      KEY_ACT,     F(act),                 0, 0,       {NONE,     NONE,     NONE,     NONE,     "\"gelu_new\"" , NONE,      NONE}},
    {"rms_norm_eps",             KEY_REAL,    F(norm_eps),            0, 1,       {"1e-6",   "1e-6",   "1e-6",   "1e-6",   NONE           , "1e-5",    "1e-6"}},
    {"layer_norm_epsilon",       KEY_REAL,    F(norm_eps),            0, 1,       {NONE,     NONE,     NONE,     NONE,     "1e-5"         , NONE,      NONE}},
    {"initializer_range",        KEY_REAL,    F(init_std),            0, 1e3,     {"0.02",   "0.02",   "0.02",   "0.02",   "0.02"         , "0.02",    "0.02"}},
    {"attention_bias",           KEY_BOOL,    F(attention_bias),      0, 0,       {"false",  OPTIONAL, OPTIONAL, "false",  NONE           , OPTIONAL,  "false"}},
    {"mlp_bias",                 KEY_BOOL,    F(mlp_bias),            0, 0,       {"false",  OPTIONAL, OPTIONAL, OPTIONAL, NONE           , OPTIONAL,  OPTIONAL}},
    {"attention_dropout",        KEY_REAL,    F(attn_drop),           0, 1,       {"0.0",    "0.0",    "0.0",    "0.0",    NONE           , "0.0",     "0.0"}},
    {"attn_pdrop",               KEY_REAL,    F(attn_drop),           0, 1,       {NONE,     NONE,     NONE,     NONE,     "0.1"          , NONE,      NONE}},
    {"embd_pdrop",               KEY_REAL,    F(embd_drop),           0, 1,       {NONE,     NONE,     NONE,     NONE,     "0.1"          , NONE,      NONE}},
    {"resid_pdrop",              KEY_REAL,    F(resid_drop),          0, 1,       {NONE,     NONE,     NONE,     NONE,     "0.1"          , NONE,      NONE}},
    {"scale_attn_weights",       KEY_BOOL,    F(scale_attn),          0, 0,       {NONE,     NONE,     NONE,     NONE,     "true"         , NONE,      NONE}},
    {"scale_attn_by_inverse_layer_idx", KEY_BOOL, F(scale_attn_by_layer), 0, 0,   {NONE,     NONE,     NONE,     NONE,     "false"        , NONE,      NONE}},
    {"reorder_and_upcast_attn",  KEY_BOOL,    F(upcast_attn),         0, 0,       {NONE,     NONE,     NONE,     NONE,     "false"        , NONE,      NONE}},
    {"use_sliding_window",       KEY_BOOL,    F(use_sliding_window),  0, 0,       {NONE,     NONE,     "false",  "false",  NONE           , NONE,      "false"}},
    {"sliding_window",           KEY_OPT_INT, F(sliding_window),      1, 1 << 24, {NONE,     "4096",   "4096",   "4096",   NONE           , "null",    "4096"}},
    {"max_window_layers",        KEY_INT,     F(max_window_layers),   0, 1 << 24, {OPTIONAL, OPTIONAL, "28",     "28",     OPTIONAL       , OPTIONAL,  OPTIONAL}},
    {"tie_word_embeddings",      KEY_BOOL,    F(tied),                0, 0,       {"false",  "false",  "false",  "false",  "true"         , "false",   "false"}},
    {"num_local_experts",        KEY_INT,     F(num_experts), 1, 65536, {NONE, NONE, NONE, NONE, NONE, "8", NONE}},
    {"num_experts",              KEY_INT,     F(num_experts), 0, 65536, {NONE, NONE, NONE, NONE, NONE, NONE, "128"}},
    {"num_experts_per_tok",      KEY_INT,     F(top_k), 1, 65536, {NONE, NONE, NONE, NONE, NONE, "2", "8"}},
    {"moe_intermediate_size",    KEY_INT,     F(moe_intermediate_size), 1, 1 << 22, {NONE, NONE, NONE, NONE, NONE, NONE, "768"}},
    {"norm_topk_prob",           KEY_BOOL,    F(norm_topk_prob), 0, 0, {NONE, NONE, NONE, NONE, NONE, NONE, "false"}},
    {"decoder_sparse_step",      KEY_INT,     F(decoder_sparse_step), 1, 4096, {NONE, NONE, NONE, NONE, NONE, NONE, "1"}},
    {"output_router_logits",     KEY_BOOL,    F(output_router_logits), 0, 0, {NONE, NONE, NONE, NONE, NONE, "false", "false"}},
    {"router_aux_loss_coef",     KEY_REAL,    F(router_aux_loss_coef), 0, 1e3, {NONE, NONE, NONE, NONE, NONE, "0.001", "0.001"}},
};

/* Keys whose other values would change the maths and are not implemented; null is always neutral. */
#define BIT(family) (1u << (family))
#define ALL (BIT(FAMILIES) - 1)
static const struct fixed_row {
    const char *name, *neutral; /* JSON text, "null": no value at all */
    unsigned families;
} fixed_keys[] = {
    {"attention_bias",           "true",  BIT(QWEN2)},
    {"attention_bias",           "false", BIT(MISTRAL) | BIT(MIXTRAL)},
    {"mlp_bias",                 "false", BIT(MISTRAL) | BIT(QWEN2) | BIT(QWEN3) | BIT(MIXTRAL) | BIT(QWEN3_MOE)},
    {"router_jitter_noise",      "0",     BIT(MIXTRAL)},
    {"rope_theta",               "null",  BIT(GPT2)},
    {"rope_scaling",             "null",  BIT(GPT2)},
    {"rope_parameters",          "null",  BIT(GPT2)},
    {"layer_types",              "null",  BIT(GPT2)},
    {"partial_rotary_factor",    "1",     ALL},
    {"qk_layernorm",             "false", ALL},
    {"use_qk_norm",              "false", ALL},
    {"add_cross_attention",      "false", ALL},
    {"is_encoder_decoder",       "false", ALL},
    {"pruned_heads",             "{}",    ALL},
    {"quantization_config",      "null",  ALL},
    {"attn_logit_softcapping",   "null",  ALL},
    {"final_logit_softcapping",  "null",  ALL},
};
/* clang-format on */
enum { KEYS = sizeof keys / sizeof *keys, FIXED_KEYS = sizeof fixed_keys / sizeof *fixed_keys };

static const struct act_name {
    const char *name;
    tg_lm_act act;
} act_names[] = {
    {"silu", TG_ACT_SILU},          {"swish", TG_ACT_SILU},          {"gelu", TG_ACT_GELU},
    {"gelu_new", TG_ACT_GELU_TANH}, {"gelu_fast", TG_ACT_GELU_TANH}, {"gelu_pytorch_tanh", TG_ACT_GELU_TANH},
    {"relu", TG_ACT_RELU},
};
enum { ACT_NAMES = sizeof act_names / sizeof *act_names };

static const double default_theta = 10000.0;

/* ---- single keys ---- */

/* "model: key = value what" */
static teng_status refuse(teng_status status, const char *key, const json_t *value, const char *what)
{
    char *text = tg_json_text(value, 0);
    if (!text) return teng_error_status();
    tg_fail(status, "model: %s = %.200s%s", key, text, what);
    tg_free(text);
    return status;
}

static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool is_off(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
}

/* A key that belongs to other families, set to something: it would have no effect, which nobody wants. */
static teng_status check_foreign(const key_row *row, int family, const json_t *v)
{
    if (is_off(v)) return TENG_OK;
    const char *ours = NULL;
    for (int i = 0; i < KEYS && !ours; i++)
        if (keys[i].field == row->field && keys[i].def[family]) ours = keys[i].name;
    char what[160];
    snprintf(what, sizeof what, ": model_type %s has no such key%s%s", families[family].name,
             ours ? "; its name there is " : "", ours ? ours : "");
    return refuse(TENG_INVALID, row->name, v, what);
}

static teng_status read_int(const key_row *row, const json_t *full, int64_t *out)
{
    *out = 0;
    TG_TRY(tg_json_get_int(full, "model", row->name, false, out));
    if (json_is_null(json_object_get(full, row->name))) return TENG_OK;
    if ((double)*out >= row->lo && (double)*out <= row->hi) return TENG_OK;
    return tg_fail(TENG_INVALID, "model: %s = %lld is out of range, %.0f … %.0f is allowed", row->name,
                   (long long)*out, row->lo, row->hi);
}

static teng_status read_real(const key_row *row, const json_t *full, double *out)
{
    TG_TRY(tg_json_get_real(full, "model", row->name, false, out));
    if (*out >= row->lo && *out < row->hi) return TENG_OK;
    return tg_fail(TENG_INVALID, "model: %s = %g is out of range, [%g, %g) is allowed", row->name, *out,
                   row->lo, row->hi);
}

static teng_status read_act(const key_row *row, const json_t *full, int64_t *out)
{
    const char *name = NULL;
    TG_TRY(tg_json_get_string(full, "model", row->name, false, &name));
    for (int i = 0; name && i < ACT_NAMES; i++)
        if (strcmp(act_names[i].name, name) == 0) {
            *out = act_names[i].act;
            return TENG_OK;
        }
    return refuse(TENG_UNSUPPORTED, row->name, json_object_get(full, row->name),
                  " is not implemented; silu, gelu, gelu_new, gelu_pytorch_tanh and relu are");
}

/* Sets the member; a new reference is taken over. */
static teng_status put(json_t *object, const char *key, json_t *value)
{
    if (value && json_object_set_new(object, key, value) == 0) return TENG_OK;
    return tg_fail(TENG_MEMORY, "model: out of memory at the key %s", key);
}

static teng_status read_key(const key_row *row, int family, const json_t *given, tg_lm_shape *shape,
                            json_t *full)
{
    const char *def = row->def[family];
    json_t *v = json_object_get(given, row->name);
    if (!def) return check_foreign(row, family, v);
    if (v && json_is_null(v) && row->kind != KEY_OPT_INT) v = NULL;
    if (!v && strcmp(def, REQUIRED) == 0)
        return tg_fail(TENG_INVALID, "model: %s is not set; it must be at least the tokenizer's", row->name);
    if (!v && strcmp(def, OPTIONAL) == 0) return TENG_OK;
    TG_TRY(put(full, row->name, v ? json_incref(v) : json_loads(def, JSON_DECODE_ANY, NULL)));
    void *field = (char *)shape + row->field;
    switch (row->kind) {
    case KEY_INT:
    case KEY_OPT_INT:
        return read_int(row, full, field);
    case KEY_REAL:
        return read_real(row, full, field);
    case KEY_BOOL:
        return tg_json_get_bool(full, "model", row->name, false, field);
    case KEY_ACT:
        break;
    }
    return read_act(row, full, field);
}

static teng_status check_fixed(const struct fixed_row *row, int family, const json_t *given)
{
    const json_t *v = json_object_get(given, row->name);
    if (!(row->families & BIT(family)) || !v || json_is_null(v)) return TENG_OK;
    json_t *neutral = json_loads(row->neutral, JSON_DECODE_ANY, NULL);
    if (!neutral) return tg_fail(TENG_MEMORY, "model: out of memory at the key %s", row->name);
    const bool same = same_value(v, neutral);
    json_decref(neutral);
    if (same) return TENG_OK;
    char what[160];
    snprintf(what, sizeof what, " is not implemented for model_type %s; leave it %s", families[family].name,
             strcmp(row->neutral, "null") == 0 ? "out" : row->neutral);
    return refuse(TENG_UNSUPPORTED, row->name, v, what);
}

/* ---- rotary positions ---- */

static const json_t *object_or_null(const json_t *given, const char *key, teng_status *status)
{
    const json_t *v = json_object_get(given, key);
    if (!v || json_is_null(v)) return NULL;
    if (!json_is_object(v)) *status = refuse(TENG_FORMAT, key, v, ": an object is needed");
    return json_object_size(v) ? v : NULL;
}

static teng_status read_rope_type(const json_t *dict, const char *where, teng_rope_options *rope)
{
    static const char *const names[] = {"default", "linear", "llama3", "dynamic", "yarn"};
    const char *type = "default";
    TG_TRY(tg_json_get_string(dict, where, "type", false, &type)); /* the old spelling */
    TG_TRY(tg_json_get_string(dict, where, "rope_type", false, &type));
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(type, names[i]) == 0) {
            rope->type = i;
            return TENG_OK;
        }
    return tg_fail(TENG_UNSUPPORTED,
                   "%s: rope_type = \"%s\" is not implemented; default, linear, llama3, dynamic and yarn are",
                   where, type);
}

/* 0.1 mscale ln(factor) + 1: how much longer contexts flatten attention (Peng et al. 2023, equation 22). */
static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static teng_status read_yarn(const json_t *dict, const char *where, teng_rope_options *rope)
{
    double mscale = 0, mscale_all = 0, fast = 0, slow = 0;
    bool truncate = true;
    TG_TRY(tg_json_get_int(dict, where, "original_max_position_embeddings", false,
                           &rope->original_max_position));
    TG_TRY(tg_json_get_real(dict, where, "beta_fast", false, &fast));
    TG_TRY(tg_json_get_real(dict, where, "beta_slow", false, &slow));
    TG_TRY(tg_json_get_real(dict, where, "mscale", false, &mscale));
    TG_TRY(tg_json_get_real(dict, where, "mscale_all_dim", false, &mscale_all));
    TG_TRY(tg_json_get_bool(dict, where, "truncate", false, &truncate));
    rope->beta_fast = fast != 0 ? fast : 32;
    rope->beta_slow = slow != 0 ? slow : 1;
    rope->exact_range = !truncate;
    rope->attention_factor = mscale != 0 && mscale_all != 0
                                 ? yarn_scale(rope->factor, mscale) / yarn_scale(rope->factor, mscale_all)
                                 : yarn_scale(rope->factor, 1);
    TG_TRY(tg_json_get_real(dict, where, "attention_factor", false, &rope->attention_factor));
    if (rope->original_max_position < 1 || !(rope->beta_fast > 0) || !(rope->beta_slow > 0) ||
        !(rope->attention_factor > 0))
        return tg_fail(TENG_INVALID,
                       "%s: original_max_position_embeddings = %lld, beta_fast = %g, beta_slow = %g, "
                       "attention_factor = %g: all must be positive",
                       where, (long long)rope->original_max_position, rope->beta_fast, rope->beta_slow,
                       rope->attention_factor);
    return TENG_OK;
}

static teng_status read_rope_scaling(const json_t *dict, const char *where, int64_t max_positions,
                                     teng_rope_options *rope)
{
    const char *key;
    json_t *v;
    json_object_foreach(
        (json_t *)(uintptr_t)dict, key,
        v) if (json_is_object(v) ||
               strcmp(key, "mrope_section") ==
                   0) return tg_fail(TENG_UNSUPPORTED,
                                     "%s: %s is not implemented; one set of values for all layers is", where,
                                     key);
    double part = 1;
    TG_TRY(tg_json_get_real(dict, where, "partial_rotary_factor", false, &part));
    if (part != 1)
        return tg_fail(TENG_UNSUPPORTED, "%s: partial_rotary_factor = %g is not implemented; leave it 1",
                       where, part);
    TG_TRY(read_rope_type(dict, where, rope));
    if (rope->type == TENG_ROPE_DEFAULT) return TENG_OK;
    TG_TRY(tg_json_get_real(dict, where, "factor", true, &rope->factor));
    if (!(rope->factor > 0) || !isfinite(rope->factor))
        return tg_fail(TENG_INVALID, "%s: factor = %g must be positive", where, rope->factor);
    if (rope->type == TENG_ROPE_LINEAR) return TENG_OK;
    rope->original_max_position = max_positions;
    if (rope->type == TENG_ROPE_DYNAMIC) return TENG_OK;
    if (rope->type == TENG_ROPE_YARN) return read_yarn(dict, where, rope);
    TG_TRY(tg_json_get_real(dict, where, "low_freq_factor", true, &rope->low_freq_factor));
    TG_TRY(tg_json_get_real(dict, where, "high_freq_factor", true, &rope->high_freq_factor));
    TG_TRY(
        tg_json_get_int(dict, where, "original_max_position_embeddings", true, &rope->original_max_position));
    if (!(rope->low_freq_factor > 0) || !(rope->high_freq_factor > rope->low_freq_factor))
        return tg_fail(TENG_INVALID,
                       "%s: low_freq_factor = %g and high_freq_factor = %g: 0 < low < high is needed", where,
                       rope->low_freq_factor, rope->high_freq_factor);
    if (rope->original_max_position < 1)
        return tg_fail(TENG_INVALID, "%s: original_max_position_embeddings = %lld must be positive", where,
                       (long long)rope->original_max_position);
    return TENG_OK;
}

/* Both spellings: rope_theta and rope_scaling side by side, or all in rope_parameters (transformers 5). */
static teng_status read_rope(const json_t *given, tg_lm_shape *shape, json_t *full)
{
    teng_status status = TENG_OK;
    const json_t *scaling = object_or_null(given, "rope_scaling", &status);
    const json_t *params = object_or_null(given, "rope_parameters", &status);
    if (status != TENG_OK) return status;
    if (scaling && params && !json_equal(scaling, params))
        return tg_fail(TENG_INVALID,
                       "model: rope_scaling and rope_parameters are both set and differ; leave one out");
    teng_rope_options *rope = &shape->rope;
    *rope = (teng_rope_options){.factor = 1};
    double outer = 0;
    TG_TRY(tg_json_get_real(given, "model", "rope_theta", false, &outer));
    const json_t *dict = params ? params : scaling;
    if (dict) {
        const char *where = params ? "model.rope_parameters" : "model.rope_scaling";
        TG_TRY(tg_json_get_real(dict, where, "rope_theta", false, &rope->theta));
        if (outer != 0 && rope->theta != 0 && outer != rope->theta)
            return tg_fail(TENG_INVALID,
                           "model: rope_theta = %g and %s.rope_theta = %g differ; leave one out", outer,
                           where, rope->theta);
        TG_TRY(read_rope_scaling(dict, where, shape->max_positions, rope));
    }
    const bool named = rope->theta != 0 || outer != 0;
    const double by_family = shape->family->default_theta > 0 ? shape->family->default_theta : default_theta;
    if (rope->theta == 0) rope->theta = outer != 0 ? outer : by_family;
    if (!(rope->theta > 0) || !isfinite(rope->theta))
        return tg_fail(TENG_INVALID, "model: rope_theta = %g must be positive", rope->theta);
    return named ? TENG_OK : put(full, "rope_theta", json_real(by_family));
}

/* ---- attention windows ---- */

static teng_status read_layer_types(const json_t *types, tg_lm_shape *s)
{
    if (!json_is_array(types) || json_array_size(types) != (size_t)s->num_layers)
        return tg_fail(TENG_INVALID, "model: layer_types must be a list of num_hidden_layers = %lld names",
                       (long long)s->num_layers);
    for (int64_t i = 0; i < s->num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (!sliding && !(type && strcmp(type, "full_attention") == 0))
            return tg_fail(TENG_UNSUPPORTED,
                           "model: layer_types[%lld] = \"%s\" is not implemented; full_attention and "
                           "sliding_attention are",
                           (long long)i, type ? type : "?");
        const int64_t window = sliding ? s->sliding_window : 0;
        if (s->family->window == TG_WINDOW_BY_LAYER) s->windows[i] = window;
        if (sliding && !s->sliding_window)
            return tg_fail(TENG_INVALID, "model: layer_types[%lld] = \"sliding_attention\", and %s",
                           (long long)i,
                           s->family->window == TG_WINDOW_NONE ? "this model_type has no sliding window"
                                                               : "no sliding_window is in use");
        if (window != s->windows[i])
            return tg_fail(
                TENG_UNSUPPORTED,
                "model: layer_types[%lld] = \"%s\" with sliding_window = %lld: model_type %s has the "
                "window in every layer or in none",
                (long long)i, type, (long long)s->sliding_window, s->family->name);
    }
    return TENG_OK;
}

static teng_status read_windows(const json_t *given, const json_t *full, tg_lm_shape *s)
{
    const json_t *types = json_object_get(given, "layer_types");
    s->windows = tg_calloc((size_t)s->num_layers, sizeof *s->windows);
    if (!s->windows) return TENG_MEMORY;
    if (json_object_get(full, "use_sliding_window") && !s->use_sliding_window) s->sliding_window = 0;
    for (int64_t i = 0; i < s->num_layers; i++)
        if (s->family->window == TG_WINDOW_ALL ||
            (s->family->window == TG_WINDOW_BY_LAYER && i >= s->max_window_layers))
            s->windows[i] = s->sliding_window;
    return types && !json_is_null(types) ? read_layer_types(types, s) : TENG_OK;
}

/* ---- mixtures of experts ---- */

/* Which layers are mixtures: every decoder_sparse_step-th that mlp_only_layers does not name. */
static teng_status read_experts(const json_t *given, tg_lm_shape *s)
{
    const json_t *dense = json_object_get(given, "mlp_only_layers");
    s->sparse = tg_calloc((size_t)s->num_layers, sizeof *s->sparse);
    if (!s->sparse) return TENG_MEMORY;
    if (!s->family->experts || s->num_experts == 0) return TENG_OK;
    if (s->top_k > s->num_experts)
        return tg_fail(TENG_INVALID, "model: num_experts_per_tok = %lld is more than the %lld experts",
                       (long long)s->top_k, (long long)s->num_experts);
    if (!s->decoder_sparse_step) s->decoder_sparse_step = 1;
    for (int64_t i = 0; i < s->num_layers; i++)
        s->sparse[i] = (i + 1) % s->decoder_sparse_step == 0;
    if (!dense || json_is_null(dense)) return TENG_OK;
    if (!json_is_array(dense))
        return refuse(TENG_FORMAT, "mlp_only_layers", dense, ": a list of layers is needed");
    for (size_t k = 0; k < json_array_size(dense); k++) {
        const json_t *v = json_array_get(dense, k);
        if (!json_is_integer(v))
            return refuse(TENG_FORMAT, "mlp_only_layers", dense, ": a list of layers is needed");
        if (json_integer_value(v) >= 0 && json_integer_value(v) < s->num_layers)
            s->sparse[json_integer_value(v)] = false;
    }
    return TENG_OK;
}

/* transformers 5 writes num_local_experts where versions before wrote num_experts, and reads both. */
static teng_status rename_experts(int family, json_t *given)
{
    const char *ours = family == MIXTRAL ? "num_local_experts" : "num_experts",
               *theirs = family == MIXTRAL ? "num_experts" : "num_local_experts";
    const json_t *a = json_object_get(given, ours), *b = json_object_get(given, theirs);
    if (!families[family].experts || !b || json_is_null(b)) return TENG_OK;
    if (a && !json_is_null(a) && !same_value(a, b))
        return refuse(TENG_INVALID, theirs, b, " differs from num_experts; they are one key, leave one out");
    TG_TRY(put(given, ours, json_deep_copy(b)));
    json_object_del(given, theirs);
    return TENG_OK;
}

/* ---- the whole ---- */

static teng_status check_heads(tg_lm_shape *s)
{
    const bool gpt2 = !s->family->rope;
    const char *heads = gpt2 ? "n_head" : "num_attention_heads", *hidden = gpt2 ? "n_embd" : "hidden_size";
    if (!s->head_dim && s->hidden_size % s->num_heads)
        return tg_fail(TENG_INVALID, "model: %s = %lld does not divide %s = %lld; change one%s", heads,
                       (long long)s->num_heads, hidden, (long long)s->hidden_size,
                       gpt2 ? "" : ", or set head_dim");
    if (!s->head_dim) s->head_dim = s->hidden_size / s->num_heads;
    if (!s->num_kv_heads) s->num_kv_heads = s->num_heads;
    if (s->num_heads % s->num_kv_heads)
        return tg_fail(
            TENG_INVALID,
            "model: num_key_value_heads = %lld does not divide num_attention_heads = %lld; set it to one of "
            "its divisors (unset, it takes the family's default)",
            (long long)s->num_kv_heads, (long long)s->num_heads);
    if (s->family->rope && s->head_dim % 2)
        return tg_fail(
            TENG_INVALID,
            "model: heads are %lld wide (head_dim, or hidden_size / num_attention_heads); rotary positions "
            "need an even width",
            (long long)s->head_dim);
    if (!s->intermediate_size) s->intermediate_size = 4 * s->hidden_size;
    return TENG_OK;
}

static teng_status find_family(const json_t *given, int *out)
{
    const char *type = NULL, *names[FAMILIES];
    if (!json_is_object(given)) return tg_fail(TENG_FORMAT, "model: a JSON object is needed");
    TG_TRY(tg_json_get_string(given, "model", "model_type", false, &type));
    tg_strbuf list = {0};
    for (int i = 0; i < FAMILIES; i++) {
        names[i] = families[i].name;
        tg_strbuf_printf(&list, "%s%s", i ? ", " : "", names[i]);
        if (type && strcmp(type, names[i]) == 0) {
            *out = i;
            tg_strbuf_free(&list);
            return TENG_OK;
        }
    }
    const char *nearest = type ? tg_nearest_name(type, names, FAMILIES) : NULL;
    if (!type)
        tg_fail(TENG_INVALID, "model: model_type is not set; families: %s", tg_strbuf_str(&list));
    else
        tg_fail(TENG_UNSUPPORTED, "model: model_type \"%s\" is not implemented%s%s%s; families: %s", type,
                nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "",
                tg_strbuf_str(&list));
    tg_strbuf_free(&list);
    return teng_error_status();
}

/* Values that were derived, where the family's file has them. */
static teng_status put_derived(const tg_lm_shape *s, json_t *full)
{
    const struct {
        const char *key;
        int64_t value;
    } derived[] = {{"num_key_value_heads", s->num_kv_heads}, {"head_dim", s->head_dim}};
    for (int i = 0; i < 2; i++)
        if (json_is_null(json_object_get(full, derived[i].key)))
            TG_TRY(put(full, derived[i].key, json_integer(derived[i].value)));
    return TENG_OK;
}

static teng_status read_all(const json_t *given, int family, tg_lm_shape *s, json_t *full)
{
    TG_TRY(put(full, "model_type", json_string(families[family].name)));
    TG_TRY(put(full, "architectures", json_pack("[s]", families[family].architecture)));
    for (int i = 0; i < FIXED_KEYS; i++)
        TG_TRY(check_fixed(&fixed_keys[i], family, given));
    for (int i = 0; i < KEYS; i++)
        TG_TRY(read_key(&keys[i], family, given, s, full));
    TG_TRY(check_heads(s));
    TG_TRY(put_derived(s, full));
    if (s->family->rope) TG_TRY(read_rope(given, s, full));
    TG_TRY(read_windows(given, full, s));
    TG_TRY(read_experts(given, s));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)given, key,
                        v) if (!json_object_get(full, key) || strcmp(key, "architectures") == 0)
        TG_TRY(put(full, key, json_incref(v)));
    return TENG_OK;
}

teng_status tg_lm_read(const json_t *given, tg_lm_shape *shape, json_t **full)
{
    int family = 0;
    *shape = (tg_lm_shape){0};
    *full = NULL;
    TG_TRY(find_family(given, &family));
    shape->family = &families[family];
    json_t *object = json_object(), *renamed = json_copy((json_t *)(uintptr_t)given);
    teng_status status = object && renamed ? TENG_OK : tg_fail(TENG_MEMORY, "model: out of memory");
    if (status == TENG_OK) status = rename_experts(family, renamed);
    if (status == TENG_OK) status = read_all(renamed, family, shape, object);
    json_decref(renamed);
    if (status == TENG_OK) {
        *full = object;
        return TENG_OK;
    }
    json_decref(object);
    tg_lm_shape_free(shape);
    return status;
}

void tg_lm_shape_free(tg_lm_shape *shape)
{
    tg_free(shape->windows);
    tg_free(shape->sparse);
    shape->windows = NULL;
    shape->sparse = NULL;
}
