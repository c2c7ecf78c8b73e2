/* Inside of the language models: what a config.json says, once read, and what a family must provide. */
#ifndef TG_NN_LM_H
#define TG_NN_LM_H

#include "nn/cell_impl.h"

typedef enum tg_lm_act { TG_ACT_SILU, TG_ACT_GELU, TG_ACT_GELU_TANH, TG_ACT_RELU } tg_lm_act;

/* A model's sizes and options under one name each, whatever the family calls them. */
typedef struct tg_lm_shape {
    const struct tg_lm_family *family;
    int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim,
        max_positions;
    int64_t act; /* tg_lm_act */
    double norm_eps, init_std;
    double embd_drop, resid_drop, attn_drop;
    bool attention_bias, mlp_bias, tied;
    bool scale_attn, scale_attn_by_layer, upcast_attn; /* gpt2 */
    int64_t sliding_window, max_window_layers;
    bool use_sliding_window;
    int64_t *windows; /* [num_layers] of the layers' attention, 0: none; NULL: none at all */
    teng_rope_options rope;
} tg_lm_shape;

typedef struct tg_lm_family {
    const char *name;         /* model_type */
    const char *architecture; /* as config.json names it */
    const char *backbone;     /* name of the part below the head: "model", "transformer" */
    const char *const *extra; /* tg_lm_info */
    bool rope;                /* rotary positions; else learned ones, which end */
    bool qkv_bias;            /* biases on q, k, v whatever attention_bias says */
    bool qk_norm;             /* norms on the heads of q and k */
    enum { TG_WINDOW_NONE, TG_WINDOW_ALL, TG_WINDOW_BY_LAYER } window;
    /* The backbone, tokens i32 [B, T] → normed hidden states [B, T, C]; *embedding is the table [V, C]. NULL
     * on failure. */
    teng_cell *(*build)(const tg_lm_shape *shape, teng_param **embedding);
} tg_lm_family;

/* Reads a config.json object: all checks that need no weights. *full is the complete config, a new reference;
 * shape-> windows is the caller's to tg_free. */
teng_status tg_lm_read(const json_t *given, tg_lm_shape *shape, json_t **full);

teng_cell *tg_llama_build(const tg_lm_shape *shape, teng_param **embedding);
teng_cell *tg_gpt2_build(const tg_lm_shape *shape, teng_param **embedding);

/* ---- what families share ---- */
/* teng_cell_add that stores the child in *slot; false on failure, so that calls chain. */
bool tg_lm_add(teng_cell *parent, const char *name, teng_cell *child, teng_cell **slot);
teng_tensor *tg_lm_activate(int64_t act, teng_tensor *x);
/* [B, T, heads · D] seen as [B, T, heads, D], and back. */
teng_tensor *tg_lm_split_heads(teng_tensor *x, int64_t heads);
teng_tensor *tg_lm_merge_heads(teng_tensor *x);

#endif
