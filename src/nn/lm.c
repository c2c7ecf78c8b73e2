/*
 * A causal language model: a backbone of some family, and above it the head, which is the same for all. With
 * labels the head and the loss are one operator, so that logits are never in memory. What keys mean is in
 * families.c, how a backbone computes in llama.c and gpt2.c.
 */
#include "nn/lm.h"

#include "base/fail.h"
#include "tensor/desc.h"

#include <string.h>

typedef struct lm_data {
    tg_lm_info info;
    tg_lm_past past;
    teng_cell *backbone;
    teng_param *embedding, *head; /* [V, C]; one and the same when tied */
    double attn_drop, aux_coef;   /* aux_coef 0: the routers add nothing to the loss */
    const tg_lm_family *family;
    const char *positions_key, *attn_drop_key;
    char config[]; /* JSON text */
} lm_data;

static bool check_tokens(const teng_cell *self, const lm_data *lm, const teng_tensor *tokens)
{
    const teng_desc *d = teng_tensor_desc(tokens);
    char text[TG_DESC_TEXT];
    if (d->dtype != TENG_I32 || d->ndim != 2)
        tg_cell_fail(self, TENG_INVALID, "tokens are %s; they must be i32 [B, T]", tg_desc_text(text, d));
    else if (lm->info.positions_are_hard && d->dims[1] > lm->info.max_positions)
        tg_cell_fail(self, TENG_INVALID,
                     "a sequence of %lld tokens is longer than the model's positions, %s = %lld; shorten the "
                     "sequence or "
                     "make the model with more positions",
                     (long long)d->dims[1], lm->positions_key, (long long)lm->info.max_positions);
    else
        return true;
    return false;
}

/* Logits of some rows of h [B, T, C], counted over the batch. */
static teng_tensor *logits_of_rows(const lm_data *lm, teng_tensor *h, teng_tensor *rows)
{
    teng_tensor *w = h ? teng_value(lm->head) : NULL;
    teng_tensor *rows_nc = teng_embedding(teng_reshape(h, TENG_DIMS(-1, lm->info.hidden_size)), rows);
    return teng_linear(rows_nc, w, NULL, false);
}

/* Tokens behind those whose keys and values are in the caches: tokens [B, T], rows, positions [T]. */
static teng_tensor *write_on(teng_cell *self, teng_tensor *const *in)
{
    lm_data *lm = teng_cell_data(self);
    if (lm->past.room < 1)
        return tg_cell_fail(self, TENG_STATE,
                            "called with positions before tg_lm_set_room made room for any");
    lm->past.positions = in[2];
    teng_tensor *h = teng_call(lm->backbone, in[0]);
    lm->past.positions = NULL;
    return logits_of_rows(lm, h, in[1]);
}

static teng_tensor *lm_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const lm_data *lm = teng_cell_data(self);
    if (n_in < 1 || n_in > 3)
        return tg_cell_fail(
            self, TENG_INVALID,
            "called with %d operands, takes tokens, or tokens and labels or rows, or tokens, rows and "
            "positions",
            n_in);
    if (!check_tokens(self, lm, in[0])) return NULL;
    if (teng_is_training() && lm->attn_drop > 0)
        return tg_cell_fail(self, TENG_UNSUPPORTED,
                            "%s = %g: attention is one fused operator without dropout; train with model.%s=0",
                            lm->attn_drop_key, lm->attn_drop, lm->attn_drop_key);
    if (n_in == 3) return write_on(self, in);
    teng_tensor *h = teng_call(lm->backbone, in[0]);
    if (n_in == 2 && teng_tensor_desc(in[1])->ndim == 1) return logits_of_rows(lm, h, in[1]);
    teng_tensor *w = h ? teng_value(lm->head) : NULL;
    if (n_in == 1) return teng_linear(h, w, NULL, false);
    if (w && h && teng_tensor_desc(w)->dtype != teng_tensor_desc(h)->dtype && !tg_trace_current()->hook)
        w = teng_cast(w, teng_tensor_desc(h)->dtype); /* stored in 16 bits */
    teng_tensor *loss = teng_linear_cross_entropy(h, w, in[1], TENG_IGNORE_INDEX);
    return lm->aux_coef > 0 ? teng_add(loss, teng_scale(lm->family->aux_loss(lm->backbone), lm->aux_coef))
                            : loss;
}

static bool add_head(teng_cell *lm, const tg_lm_shape *s)
{
    lm_data *data = teng_cell_data(lm);
    teng_cell *head;
    if (!tg_lm_add(lm, s->family->backbone, s->family->build(s, &data->embedding), &data->backbone))
        return false;
    data->head = data->embedding;
    if (s->tied) return true;
    if (!tg_lm_add(lm, "lm_head", teng_nn_linear(s->hidden_size, s->vocab_size, false, s->init_std), &head))
        return false;
    data->head = teng_nn_weight(tg_cell_split(head, TG_SPLIT_OUT, (tg_mark){0}));
    return true;
}

static teng_status count_params(teng_cell *lm, tg_lm_info *info)
{
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(lm, &params, &n));
    info->params_matmul = info->tied ? info->vocab_size * info->hidden_size : 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t all = tg_desc_numel(&params[i].desc);
        const bool expert = params[i].desc.ndim == 3; /* [experts, …], of which a token sees some */
        info->params += all;
        if (params[i].init.role == TENG_ROLE_WEIGHT)
            info->params_matmul += expert ? all / info->num_experts * info->experts_per_token : all;
    }
    return TENG_OK;
}

static teng_cell *create(const tg_lm_shape *s, const char *config)
{
    const size_t config_size = strlen(config) + 1;
    teng_cell *lm = teng_cell_create(s->family->architecture, sizeof(lm_data) + config_size, lm_forward);
    if (!lm) return NULL;
    lm_data *data = teng_cell_data(lm);
    memcpy(data->config, config, config_size);
    data->family = s->family;
    data->attn_drop = s->attn_drop;
    data->aux_coef = s->family->aux_loss && s->output_router_logits ? s->router_aux_loss_coef : 0;
    data->attn_drop_key = s->family->rope ? "attention_dropout" : "attn_pdrop";
    data->positions_key = s->family->rope ? "max_position_embeddings" : "n_positions";
    data->info = (tg_lm_info){
        .family = s->family->name,
        .backbone = s->family->backbone,
        .vocab_size = s->vocab_size,
        .hidden_size = s->hidden_size,
        .num_layers = s->num_layers,
        .num_heads = s->num_heads,
        .num_kv_heads = s->num_kv_heads,
        .head_dim = s->head_dim,
        .max_positions = s->max_positions,
        .intermediate_size = s->intermediate_size,
        .num_experts = s->family->experts ? s->num_experts : 0,
        .experts_per_token = s->family->experts ? s->top_k : 0,
        .tied = s->tied,
        .positions_are_hard = !s->family->rope,
        .extra = s->family->extra,
    };
    if (!add_head(lm, s) || count_params(lm, &data->info) != TENG_OK)
        teng_cell_destroy(&lm);
    else
        data->info.embedding = data->embedding->full;
    return lm;
}

teng_cell *tg_lm_create_json(const json_t *config)
{
    json_t *full = NULL;
    tg_lm_shape shape = {0};
    teng_cell *lm = NULL;
    if (tg_lm_read(config, &shape, &full) == TENG_OK) {
        char *text = tg_json_text(full, 2);
        if (text) lm = create(&shape, text);
        tg_free(text);
    }
    tg_lm_shape_free(&shape);
    json_decref(full);
    return lm;
}

teng_cell *teng_lm_create(const char *config_json)
{
    json_t *config = NULL;
    if (!config_json) {
        tg_fail(TENG_INVALID, "teng_lm_create: the config is NULL");
        return NULL;
    }
    if (tg_json_parse("model", config_json, strlen(config_json), &config) != TENG_OK) return NULL;
    teng_cell *lm = tg_lm_create_json(config);
    json_decref(config);
    return lm;
}

static const lm_data *data_of(teng_cell *lm)
{
    if (lm && lm->forward == lm_forward) return teng_cell_data(lm);
    if (teng_error_status() == TENG_OK)
        tg_fail(TENG_INVALID, "a %s is not a language model made by teng_lm_create",
                lm ? lm->type : "NULL cell");
    return NULL;
}

const char *teng_lm_config(teng_cell *lm)
{
    const lm_data *data = data_of(lm);
    return data ? data->config : NULL;
}

teng_status tg_lm_get_info(teng_cell *lm, tg_lm_info *out)
{
    const lm_data *data = data_of(lm);
    if (!data) return TENG_INVALID;
    *out = data->info;
    return TENG_OK;
}

teng_status tg_lm_score_labels_only(teng_cell *lm)
{
    if (!data_of(lm)) return TENG_INVALID;
    ((lm_data *)teng_cell_data(lm))->aux_coef = 0;
    return TENG_OK;
}

typedef struct storing {
    teng_cell *lm;
    const teng_param *table;
    teng_dtype dtype;
    size_t next; /* of lm->infos, which are in the order of the visit */
} storing;

static void store_weight(void *user, teng_param *param, const char *full_name)
{
    (void)full_name;
    storing *s = user;
    if ((param->init.role == TENG_ROLE_WEIGHT && param->desc.ndim == 2) || param == s->table)
        param->desc.dtype = s->dtype;
    s->lm->infos.data[s->next++].desc = param->desc;
}

teng_status tg_lm_store_weights(teng_cell *lm, teng_dtype dtype)
{
    const lm_data *data = data_of(lm);
    if (!data) return TENG_INVALID;
    const tg_param_info *params;
    size_t n;
    TG_TRY(tg_nn_params(lm, &params, &n));
    storing s = {.lm = lm, .table = data->info.tied ? data->embedding : NULL, .dtype = dtype};
    teng_cell_visit(lm, store_weight, &s);
    return TENG_OK;
}

teng_status tg_lm_set_room(teng_cell *lm, int64_t tokens)
{
    if (!data_of(lm)) return TENG_INVALID;
    lm_data *data = teng_cell_data(lm);
    if (tokens < 1 || tokens > data->info.max_positions)
        return tg_fail(TENG_INVALID, "room for %lld tokens; the model has %s = %lld", (long long)tokens,
                       data->positions_key, (long long)data->info.max_positions);
    data->past.room = tokens;
    return TENG_OK;
}

const tg_lm_past *tg_lm_past_of(const teng_cell *cell)
{
    static const tg_lm_past none = {0};
    while (cell->parent)
        cell = cell->parent;
    return cell->forward == lm_forward ? &((const lm_data *)cell->data)->past : &none;
}

/* ---- tensors of files ---- */

static teng_status add_part(tg_lm_parts *parts, char *name, teng_desc desc, int64_t offset)
{
    const tg_lm_part part = {name, desc, offset};
    if (name && tg_vec_push(parts, part)) return TENG_OK;
    tg_free(name);
    return TENG_MEMORY;
}

/* Length of the name before `end`, -1 when it has another end. */
static int length_before(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0 ? (int)(n - m) : -1;
}

/* gate_up_proj [E, 2F, C]: gate, then up of each expert; down_proj [E, C, F]. */
static teng_status add_experts(tg_lm_parts *parts, const tg_lm_expert_names *names, const char *param,
                               int prefix, const teng_desc *whole, bool two)
{
    const int64_t rows = two ? whole->dims[1] / 2 : whole->dims[1], size = rows * whole->dims[2];
    const teng_desc desc = tg_desc_make(whole->dtype, 2, (int64_t[]){rows, whole->dims[2]});
    for (int64_t e = 0; e < whole->dims[0]; e++)
        for (int64_t half = 0; half < (two ? 2 : 1); half++)
            TG_TRY(add_part(parts,
                            tg_asprintf("%.*s.%s.experts.%lld.%s.weight", prefix, param, names->block,
                                        (long long)e,
                                        !two   ? names->down
                                        : half ? names->up
                                               : names->gate),
                            desc, (e * (two ? 2 : 1) + half) * size));
    return TENG_OK;
}

teng_status tg_lm_file_parts(teng_cell *lm, const tg_param_info *param, tg_lm_parts *parts)
{
    const lm_data *data = data_of(lm);
    if (!data) return TENG_INVALID;
    const tg_lm_expert_names *names = data->family->experts;
    const int pair = names ? length_before(param->name, ".mlp.experts.gate_up_proj") : -1;
    if (pair >= 0) return add_experts(parts, names, param->name, pair, &param->desc, true);
    const int down = names ? length_before(param->name, ".mlp.experts.down_proj") : -1;
    if (down >= 0) return add_experts(parts, names, param->name, down, &param->desc, false);
    const int router = names ? length_before(param->name, ".mlp.gate.weight") : -1;
    char *name = router >= 0 ? tg_asprintf("%.*s.%s.gate.weight", router, param->name, names->block)
                             : tg_strdup(param->name);
    return add_part(parts, name, param->desc, 0);
}

void tg_lm_parts_free(tg_lm_parts *parts)
{
    for (size_t i = 0; i < parts->len; i++)
        tg_free(parts->data[i].name);
    tg_vec_free(parts);
}

double tg_lm_flops_per_token(const tg_lm_info *info, int64_t seq_len)
{
    return 6.0 * (double)info->params_matmul + 6.0 * (double)info->num_layers * (double)info->num_heads *
                                                   (double)info->head_dim * (double)seq_len;
}

/* ---- what families share ---- */

bool tg_lm_add(teng_cell *parent, const char *name, teng_cell *child, teng_cell **slot)
{
    *slot = teng_cell_add(parent, name, child);
    return *slot != NULL;
}

teng_tensor *tg_lm_activate(int64_t act, teng_tensor *x)
{
    switch (act) {
    case TG_ACT_SILU:
        return teng_silu(x);
    case TG_ACT_GELU:
        return teng_gelu(x);
    case TG_ACT_GELU_TANH:
        return teng_gelu_tanh(x);
    default:
        return teng_relu(x);
    }
}

teng_tensor *tg_lm_split_heads(teng_tensor *x, int64_t heads)
{
    const teng_desc *d = teng_tensor_desc(x);
    return x ? teng_reshape(x, TENG_DIMS(d->dims[0], d->dims[1], heads, d->dims[2] / heads)) : NULL;
}

teng_tensor *tg_lm_merge_heads(teng_tensor *x)
{
    const teng_desc *d = teng_tensor_desc(x);
    return x ? teng_reshape(x, TENG_DIMS(d->dims[0], d->dims[1], d->dims[2] * d->dims[3])) : NULL;
}
