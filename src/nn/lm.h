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
    int64_t num_experts, top_k, moe_intermediate_size, decoder_sparse_step; /* of mixtures of experts */
    bool norm_topk_prob, output_router_logits;
    double router_aux_loss_coef;
    bool *sparse; /* [num_layers]: the layer's feed-forward is a mixture */
} tg_lm_shape;

/* How files name the parts of a mixture: "model.layers.0.<block>.experts.3.<gate>.weight". */
typedef struct tg_lm_expert_names {
    const char *block, *gate, *up, *down;
} tg_lm_expert_names;

typedef struct tg_lm_family {
    const char *name;                  /* model_type */
    const char *architecture;          /* as config.json names it */
    const char *backbone;              /* name of the part below the head: "model", "transformer" */
    const char *const *extra;          /* tg_lm_info */
    const tg_lm_expert_names *experts; /* NULL: no mixtures of experts */
    bool renormalise;                  /* router weights sum to one whatever norm_topk_prob says */
    double default_theta;              /* 0: 10000 */
    bool rope;                         /* rotary positions; else learned ones, which end */
    bool qkv_bias;                     /* biases on q, k, v whatever attention_bias says */
    bool qk_norm;                      /* norms on the heads of q and k */
    enum { TG_WINDOW_NONE, TG_WINDOW_ALL, TG_WINDOW_BY_LAYER } window;
    /* The backbone, tokens i32 [B, T] → normed hidden states [B, T, C]; *embedding is the table [V, C]. NULL
     * on failure. */
    teng_cell *(*build)(const tg_lm_shape *shape, teng_param **embedding);
    /* The routers' auxiliary loss of the trace just made, before its coefficient; NULL function: none. */
    teng_tensor *(*aux_loss)(teng_cell *backbone);
} tg_lm_family;

/* Reads a config.json object: all checks that need no weights. *full is the complete config, a new reference;
 * the shape is for tg_lm_shape_free. */
teng_status tg_lm_read(const json_t *given, tg_lm_shape *shape, json_t **full);
void tg_lm_shape_free(tg_lm_shape *shape);

teng_cell *tg_llama_build(const tg_lm_shape *shape, teng_param **embedding);
teng_tensor *tg_llama_aux_loss(teng_cell *backbone);
teng_cell *tg_gpt2_build(const tg_lm_shape *shape, teng_param **embedding);

/* ---- a mixture of experts (moe.c), in the place of a feed-forward ---- */
teng_cell *tg_moe_create(const tg_lm_shape *s);
/* Its part of the current trace: mean router probabilities and rows of each expert, f32 [E] both; false when
 * the cell is no mixture. */
bool tg_moe_load(teng_cell *cell, teng_tensor **probabilities, teng_tensor **rows);

/* ---- positions and the past (lm_past.c): training and evaluation see whole sequences; while text is written
 * a trace sees new tokens only, at positions that are an input, and keys and values of the earlier ones lie
 * in states ---- */
typedef struct tg_lm_past {
    teng_tensor *positions; /* i32 [T] of the trace that writes text; NULL in all others */
    int64_t room;           /* tokens that the caches of keys and values hold */
} tg_lm_past;
/* Of the model that the cell is a part of. */
const tg_lm_past *tg_lm_past_of(const teng_cell *cell);
teng_tensor *tg_lm_rope(const teng_cell *self, teng_tensor *x, const teng_rope_options *options);
teng_tensor *tg_lm_add_positions(const teng_cell *self, teng_tensor *x, teng_tensor *table);
/* Attention of the layer `self`, which may call it once. */
teng_tensor *tg_lm_attention(const teng_cell *self, teng_tensor *q, teng_tensor *k, teng_tensor *v,
                             const teng_attention_options *options);

/* ---- what families share ---- */
/* teng_cell_add that stores the child in *slot; false on failure, so that calls chain. */
bool tg_lm_add(teng_cell *parent, const char *name, teng_cell *child, teng_cell **slot);
teng_tensor *tg_lm_activate(int64_t act, teng_tensor *x);
/* [B, T, heads · D] seen as [B, T, heads, D], and back. */
teng_tensor *tg_lm_split_heads(teng_tensor *x, int64_t heads);
teng_tensor *tg_lm_merge_heads(teng_tensor *x);

#endif
