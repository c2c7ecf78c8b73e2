/*
 * GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each part, one product for q, k and v, a
 * plain feed-forward, weights stored [in, out]. Dropout on embeddings and on what each part adds; none on
 * attention weights, since attention is fused (lm.c refuses to train with it). Rotary decoders are in
 * llama.c.
 *
 * Shapes: x_btc [batch, tokens, hidden], q_bthd [batch, tokens, heads, head_dim].
 */
#include "nn/lm.h"

#include <math.h>
#include <stdio.h>

typedef struct attention {
    teng_cell *c_attn, *c_proj;
    int64_t heads, hidden;
    double drop;
    teng_attention_options options;
} attention;

static teng_tensor *attention_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const attention *a = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *qkv[3] = {0};
    teng_split(teng_call(a->c_attn, in[0]), 2, TENG_DIMS(a->hidden, a->hidden, a->hidden), qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = tg_lm_split_heads(qkv[i], a->heads);
    teng_tensor *y_bthd = tg_lm_attention(self, qkv[0], qkv[1], qkv[2], &a->options);
    return teng_train_dropout(teng_call(a->c_proj, tg_lm_merge_heads(y_bthd)), a->drop);
}

/* Projections into the residual stream start smaller, by the number of them. */
static double residual_std(const tg_lm_shape *s)
{
    return s->init_std / sqrt(2.0 * (double)s->num_layers);
}

static teng_cell *attention_create(const tg_lm_shape *s, int64_t layer)
{
    teng_cell *cell = teng_cell_create("attention", sizeof(attention), attention_forward);
    if (!cell) return NULL;
    attention *a = teng_cell_data(cell);
    a->heads = s->num_heads;
    a->hidden = s->hidden_size;
    a->drop = s->resid_drop;
    const double by_width = s->scale_attn ? 1.0 / sqrt((double)s->head_dim) : 1.0;
    a->options.causal = 1;
    a->options.scale = s->scale_attn_by_layer ? by_width / (double)(layer + 1) : by_width;
    const int64_t c = s->hidden_size;
    if (!tg_lm_add(cell, "c_attn", teng_nn_conv1d(c, 3 * c, true, s->init_std), &a->c_attn) ||
        !tg_lm_add(cell, "c_proj", teng_nn_conv1d(c, c, true, residual_std(s)), &a->c_proj)) {
        teng_cell_destroy(&cell);
        return NULL;
    }
    tg_mark heads = {.units = s->num_heads, .units_key = "model.n_head"};
    tg_cell_split(a->c_proj, TG_SPLIT_IN, heads);
    heads.groups = 3;
    tg_cell_split(a->c_attn, TG_SPLIT_OUT, heads);
    return cell;
}

typedef struct plain_mlp {
    teng_cell *c_fc, *c_proj;
    int64_t act;
    double drop;
} plain_mlp;

static teng_tensor *mlp_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const plain_mlp *m = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *h = tg_lm_activate(m->act, teng_call(m->c_fc, in[0]));
    return teng_train_dropout(teng_call(m->c_proj, h), m->drop);
}

static teng_cell *mlp_create(const tg_lm_shape *s)
{
    teng_cell *cell = teng_cell_create("mlp", sizeof(plain_mlp), mlp_forward);
    if (!cell) return NULL;
    plain_mlp *m = teng_cell_data(cell);
    m->act = s->act;
    m->drop = s->resid_drop;
    const int64_t c = s->hidden_size, f = s->intermediate_size;
    if (!tg_lm_add(cell, "c_fc", teng_nn_conv1d(c, f, true, s->init_std), &m->c_fc) ||
        !tg_lm_add(cell, "c_proj", teng_nn_conv1d(f, c, true, residual_std(s)), &m->c_proj)) {
        teng_cell_destroy(&cell);
        return NULL;
    }
    const tg_mark width = {.units = f, .units_key = "model.n_inner"};
    tg_cell_split(m->c_fc, TG_SPLIT_OUT, width);
    tg_cell_split(m->c_proj, TG_SPLIT_IN, width);
    return cell;
}

typedef struct block {
    teng_cell *ln_1, *attn, *ln_2, *mlp;
} block;

static teng_tensor *block_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const block *b = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *x_btc = in[0];
    x_btc = teng_add(x_btc, teng_call(b->attn, teng_call(b->ln_1, x_btc)));
    return teng_add(x_btc, teng_call(b->mlp, teng_call(b->ln_2, x_btc)));
}

static teng_cell *block_create(const tg_lm_shape *s, int64_t layer)
{
    teng_cell *cell = teng_cell_create("gpt2_block", sizeof(block), block_forward);
    if (!cell) return NULL;
    block *b = teng_cell_data(cell);
    if (!tg_lm_add(cell, "ln_1", teng_nn_layer_norm(s->hidden_size, s->norm_eps, true), &b->ln_1) ||
        !tg_lm_add(cell, "attn", attention_create(s, layer), &b->attn) ||
        !tg_lm_add(cell, "ln_2", teng_nn_layer_norm(s->hidden_size, s->norm_eps, true), &b->ln_2) ||
        !tg_lm_add(cell, "mlp", mlp_create(s), &b->mlp))
        teng_cell_destroy(&cell);
    return cell;
}

typedef struct decoder {
    int64_t num_layers;
    double drop;
    teng_cell *wte, *wpe, *ln_f;
    teng_cell *h[];
} decoder;

static teng_tensor *decoder_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const decoder *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *x_btc = teng_call(d->wte, in[0]);
    x_btc = tg_lm_add_positions(self, x_btc, teng_value(teng_nn_weight(d->wpe)));
    x_btc = teng_train_dropout(x_btc, d->drop);
    for (int64_t i = 0; i < d->num_layers; i++)
        x_btc = teng_call(d->h[i], x_btc);
    return teng_call(d->ln_f, x_btc);
}

teng_cell *tg_gpt2_build(const tg_lm_shape *s, teng_param **embedding)
{
    const size_t size = sizeof(decoder) + (size_t)s->num_layers * sizeof(teng_cell *);
    teng_cell *cell = teng_cell_create("gpt2", size, decoder_forward);
    if (!cell) return NULL;
    decoder *d = teng_cell_data(cell);
    d->num_layers = s->num_layers;
    d->drop = s->embd_drop;
    bool ok =
        tg_lm_add(cell, "wte", teng_nn_embedding(s->vocab_size, s->hidden_size, s->init_std), &d->wte) &&
        tg_lm_add(cell, "wpe", teng_nn_embedding(s->max_positions, s->hidden_size, s->init_std), &d->wpe);
    for (int64_t i = 0; ok && i < s->num_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%lld", (long long)i);
        ok = tg_lm_add(cell, name, block_create(s, i), &d->h[i]);
    }
    ok = ok && tg_lm_add(cell, "ln_f", teng_nn_layer_norm(s->hidden_size, s->norm_eps, true), &d->ln_f);
    if (ok) tg_cell_split(d->wte, TG_SPLIT_OUT, (tg_mark){0});
    if (ok)
        *embedding = teng_nn_weight(d->wte);
    else
        teng_cell_destroy(&cell);
    return cell;
}
