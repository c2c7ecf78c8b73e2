/*
 * The decoder that LLaMA, Mistral, Qwen2 and Qwen3 share: blocks of RMSNorm, grouped-query attention with
 * rotary positions, RMSNorm, gated feed-forward, each added to the residual stream (Touvron et al. 2023). The
 * families differ in biases, in norms on the heads of q and k, in windows, and in that the feed-forward may
 * be a mixture of experts (moe.c). GPT-2 differs in every part and has its own file.
 *
 * Shapes: x_btc [batch, tokens, hidden], q_bthd [batch, tokens, heads, head_dim].
 */
#include "nn/lm.h"

#include <stdio.h>

typedef struct attention {
    teng_cell *q_proj, *k_proj, *v_proj, *o_proj, *q_norm, *k_norm; /* norms NULL but in Qwen3 */
    int64_t heads, kv_heads;
    teng_rope_options rope;
    teng_attention_options options;
} attention;

static teng_tensor *attention_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const attention *a = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *x_btc = in[0];
    teng_tensor *q_bthd = tg_lm_split_heads(teng_call(a->q_proj, x_btc), a->heads);
    teng_tensor *k_bthd = tg_lm_split_heads(teng_call(a->k_proj, x_btc), a->kv_heads);
    teng_tensor *v_bthd = tg_lm_split_heads(teng_call(a->v_proj, x_btc), a->kv_heads);
    if (a->q_norm) q_bthd = teng_call(a->q_norm, q_bthd);
    if (a->k_norm) k_bthd = teng_call(a->k_norm, k_bthd);
    q_bthd = tg_lm_rope(self, q_bthd, &a->rope);
    k_bthd = tg_lm_rope(self, k_bthd, &a->rope);
    teng_tensor *y_bthd = tg_lm_attention(self, q_bthd, k_bthd, v_bthd, &a->options);
    return teng_call(a->o_proj, tg_lm_merge_heads(y_bthd));
}

static teng_cell *attention_create(const tg_lm_shape *s, int64_t layer)
{
    teng_cell *cell = teng_cell_create("attention", sizeof(attention), attention_forward);
    if (!cell) return NULL;
    attention *a = teng_cell_data(cell);
    a->heads = s->num_heads;
    a->kv_heads = s->num_kv_heads;
    a->rope = s->rope;
    a->options = (teng_attention_options){.causal = 1, .window = s->windows[layer]};
    const int64_t q_size = s->num_heads * s->head_dim, kv_size = s->num_kv_heads * s->head_dim,
                  c = s->hidden_size;
    const bool qkv_bias = s->attention_bias || s->family->qkv_bias;
    const bool o_bias = s->attention_bias && !s->family->qkv_bias;
    bool ok = tg_lm_add(cell, "q_proj", teng_nn_linear(c, q_size, qkv_bias, s->init_std), &a->q_proj) &&
              tg_lm_add(cell, "k_proj", teng_nn_linear(c, kv_size, qkv_bias, s->init_std), &a->k_proj) &&
              tg_lm_add(cell, "v_proj", teng_nn_linear(c, kv_size, qkv_bias, s->init_std), &a->v_proj) &&
              tg_lm_add(cell, "o_proj", teng_nn_linear(q_size, c, o_bias, s->init_std), &a->o_proj);
    if (ok) {
        const tg_mark heads = {.units = s->num_heads, .units_key = "model.num_attention_heads"},
                      kv = {
                          .units = s->num_kv_heads, .units_key = "model.num_key_value_heads", .fewer = true};
        tg_cell_split(a->q_proj, TG_SPLIT_OUT, heads);
        tg_cell_split(a->k_proj, TG_SPLIT_OUT, kv);
        tg_cell_split(a->v_proj, TG_SPLIT_OUT, kv);
        tg_cell_split(a->o_proj, TG_SPLIT_IN, heads);
    }
    if (ok && s->family->qk_norm)
        ok = tg_lm_add(cell, "q_norm", teng_nn_rms_norm(s->head_dim, s->norm_eps), &a->q_norm) &&
             tg_lm_add(cell, "k_norm", teng_nn_rms_norm(s->head_dim, s->norm_eps), &a->k_norm);
    if (!ok) teng_cell_destroy(&cell);
    return cell;
}

typedef struct gated_mlp {
    teng_cell *gate_proj, *up_proj, *down_proj;
    int64_t act;
} gated_mlp;

static teng_tensor *mlp_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const gated_mlp *m = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *gate = teng_call(m->gate_proj, in[0]);
    teng_tensor *up = teng_call(m->up_proj, in[0]);
    teng_tensor *y =
        m->act == TG_ACT_SILU ? teng_swiglu(gate, up) : teng_mul(tg_lm_activate(m->act, gate), up);
    return teng_call(m->down_proj, y);
}

static teng_cell *mlp_create(const tg_lm_shape *s)
{
    teng_cell *cell = teng_cell_create("gated_mlp", sizeof(gated_mlp), mlp_forward);
    if (!cell) return NULL;
    gated_mlp *m = teng_cell_data(cell);
    m->act = s->act;
    const int64_t c = s->hidden_size, f = s->intermediate_size;
    if (!tg_lm_add(cell, "gate_proj", teng_nn_linear(c, f, s->mlp_bias, s->init_std), &m->gate_proj) ||
        !tg_lm_add(cell, "up_proj", teng_nn_linear(c, f, s->mlp_bias, s->init_std), &m->up_proj) ||
        !tg_lm_add(cell, "down_proj", teng_nn_linear(f, c, s->mlp_bias, s->init_std), &m->down_proj)) {
        teng_cell_destroy(&cell);
        return NULL;
    }
    const tg_mark width = {.units = f, .units_key = "model.intermediate_size"};
    tg_cell_split(m->gate_proj, TG_SPLIT_OUT, width);
    tg_cell_split(m->up_proj, TG_SPLIT_OUT, width);
    tg_cell_split(m->down_proj, TG_SPLIT_IN, width);
    return cell;
}

typedef struct block {
    teng_cell *input_layernorm, *self_attn, *post_attention_layernorm, *mlp;
} block;

static teng_tensor *block_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const block *b = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *x_btc = in[0];
    x_btc = teng_add(x_btc, teng_call(b->self_attn, teng_call(b->input_layernorm, x_btc)));
    return teng_add(x_btc, teng_call(b->mlp, teng_call(b->post_attention_layernorm, x_btc)));
}

static teng_cell *block_create(const tg_lm_shape *s, int64_t layer)
{
    teng_cell *cell = teng_cell_create("llama_block", sizeof(block), block_forward);
    if (!cell) return NULL;
    block *b = teng_cell_data(cell);
    teng_cell **norm1 = &b->input_layernorm, **norm2 = &b->post_attention_layernorm;
    if (!tg_lm_add(cell, "input_layernorm", teng_nn_rms_norm(s->hidden_size, s->norm_eps), norm1) ||
        !tg_lm_add(cell, "self_attn", attention_create(s, layer), &b->self_attn) ||
        !tg_lm_add(cell, "post_attention_layernorm", teng_nn_rms_norm(s->hidden_size, s->norm_eps), norm2) ||
        !tg_lm_add(cell, "mlp", s->sparse[layer] ? tg_moe_create(s) : mlp_create(s), &b->mlp))
        teng_cell_destroy(&cell);
    return cell;
}

typedef struct decoder {
    int64_t num_layers;
    teng_cell *embed_tokens, *norm;
    teng_cell *layers[];
} decoder;

static teng_tensor *decoder_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const decoder *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *x_btc = teng_call(d->embed_tokens, in[0]);
    for (int64_t i = 0; i < d->num_layers; i++)
        x_btc = teng_call(d->layers[i], x_btc);
    return teng_call(d->norm, x_btc);
}

/*
 * Load balancing as transformers has it: E · Σ_e f_e P_e with f_e the rows that expert e got and P_e the
 * router's probability of e, both a token and averaged over all tokens of all mixtures (Fedus et al. 2021,
 * equations 4 to 6).
 */
teng_tensor *tg_llama_aux_loss(teng_cell *backbone)
{
    const decoder *d = teng_cell_data(backbone);
    teng_tensor *sum_p = NULL, *sum_f = NULL;
    int64_t mixtures = 0;
    for (int64_t i = 0; i < d->num_layers; i++) {
        teng_tensor *p, *f;
        const block *b = teng_cell_data(d->layers[i]);
        if (!tg_moe_load(b->mlp, &p, &f)) continue;
        sum_p = mixtures ? teng_add(sum_p, p) : p;
        sum_f = mixtures ? teng_add(sum_f, f) : f;
        mixtures++;
    }
    if (!mixtures) return teng_fill(TENG_F32, ((teng_dims){0}), 0);
    const teng_desc *desc = teng_tensor_desc(sum_p);
    const double experts = sum_p ? (double)desc->dims[0] : 0;
    return teng_scale(teng_sum(teng_mul(sum_p, sum_f), ((teng_dims){0}), false),
                      experts / ((double)mixtures * (double)mixtures));
}

teng_cell *tg_llama_build(const tg_lm_shape *s, teng_param **embedding)
{
    const size_t size = sizeof(decoder) + (size_t)s->num_layers * sizeof(teng_cell *);
    teng_cell *cell = teng_cell_create("llama", size, decoder_forward);
    if (!cell) return NULL;
    decoder *d = teng_cell_data(cell);
    d->num_layers = s->num_layers;
    teng_cell *table = teng_nn_embedding(s->vocab_size, s->hidden_size, s->init_std);
    bool ok = tg_lm_add(cell, "embed_tokens", table, &d->embed_tokens);
    for (int64_t i = 0; ok && i < s->num_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%lld", (long long)i);
        ok = tg_lm_add(cell, name, block_create(s, i), &d->layers[i]);
    }
    ok = ok && tg_lm_add(cell, "norm", teng_nn_rms_norm(s->hidden_size, s->norm_eps), &d->norm);
    if (ok) tg_cell_split(d->embed_tokens, TG_SPLIT_OUT, (tg_mark){0});
    if (ok)
        *embedding = teng_nn_weight(d->embed_tokens);
    else
        teng_cell_destroy(&cell);
    return cell;
}
