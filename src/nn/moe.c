/*
 * A mixture of experts in the place of a feed-forward (Shazeer et al. 2017; Jiang et al. 2024): a router
 * chooses top_k experts for each token, rows are put in the order of experts, each expert is a gated
 * feed-forward on its rows, and a token's results are summed with the router's weights. No token is dropped
 * and no row is padded: the work follows the rows that are routed.
 *
 * Shapes: x_nc [tokens, hidden], rows in the order of experts [tokens · top_k, …], E experts of width F.
 */
#include "nn/lm.h"

typedef struct moe {
    teng_cell *gate, *experts; /* the router, and what holds the parameters of all experts */
    teng_param *gate_up_proj, *down_proj;
    int64_t num_experts, top_k, act;
    bool renormalise;
    teng_tensor *logits, *counts; /* of the trace that ran last, for tg_moe_load */
} moe;

static teng_tensor *experts_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const moe *m = *(moe **)teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 2)) return NULL;
    teng_tensor *halves[2] = {0}, *counts = in[1];
    teng_tensor *h = teng_grouped_matmul(in[0], teng_value(m->gate_up_proj), counts, true);
    const int64_t width = h ? teng_tensor_desc(h)->dims[1] / 2 : 0;
    teng_split(h, 1, TENG_DIMS(width, width), halves);
    teng_tensor *y = m->act == TG_ACT_SILU ? teng_swiglu(halves[0], halves[1])
                                           : teng_mul(tg_lm_activate(m->act, halves[0]), halves[1]);
    return teng_grouped_matmul(y, teng_value(m->down_proj), counts, true);
}

static teng_tensor *moe_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    moe *m = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    const teng_desc *d = teng_tensor_desc(in[0]);
    const teng_dims shape = TENG_DIMS(d->dims[0], d->dims[1], d->dims[2]);
    const int64_t tokens = shape.v[0] * shape.v[1];
    teng_tensor *x_nc = teng_reshape(in[0], TENG_DIMS(tokens, shape.v[2])), *chosen, *place;
    m->logits = teng_call(m->gate, x_nc);
    teng_tensor *weights_nk = teng_moe_route(m->logits, m->top_k, m->renormalise, &chosen);
    teng_tensor *source = teng_moe_sort(chosen, m->num_experts, &place, &m->counts);
    teng_tensor *rows = teng_call(m->experts, teng_embedding(x_nc, source), m->counts);
    teng_tensor *y_nkc = teng_embedding(rows, place);
    teng_tensor *y_nc = teng_sum(teng_mul(y_nkc, teng_reshape(weights_nk, TENG_DIMS(tokens, m->top_k, 1))),
                                 TENG_DIMS(1), false);
    return teng_reshape(y_nc, shape);
}

bool tg_moe_load(teng_cell *cell, teng_tensor **probabilities, teng_tensor **rows)
{
    if (cell->forward != moe_forward) return false;
    const moe *m = teng_cell_data(cell);
    const double tokens = m->logits ? (double)teng_tensor_desc(m->logits)->dims[0] : 1;
    *probabilities = teng_mean(teng_softmax(teng_cast(m->logits, TENG_F32)), TENG_DIMS(0), false);
    *rows = teng_scale(teng_cast(m->counts, TENG_F32), 1 / tokens);
    return true;
}

/* The cell of the experts knows its mixture, so that parameters are named as in "mlp.experts.down_proj". */
static teng_cell *experts_create(const tg_lm_shape *s, moe *m)
{
    teng_cell *cell = teng_cell_create("experts", sizeof(moe *), experts_forward);
    if (!cell) return NULL;
    *(moe **)teng_cell_data(cell) = m;
    const int64_t c = s->hidden_size,
                  f = s->moe_intermediate_size ? s->moe_intermediate_size : s->intermediate_size;
    const teng_init normal = {TENG_INIT_NORMAL, 0, s->init_std, TENG_ROLE_WEIGHT};
    m->gate_up_proj = teng_cell_param(cell, "gate_up_proj", TENG_DIMS(s->num_experts, 2 * f, c), normal);
    m->down_proj = teng_cell_param(cell, "down_proj", TENG_DIMS(s->num_experts, c, f), normal);
    if (!m->gate_up_proj || !m->down_proj) {
        teng_cell_destroy(&cell);
        return NULL;
    }
    const char *key = s->moe_intermediate_size ? "model.moe_intermediate_size" : "model.intermediate_size";
    m->gate_up_proj->mark = m->down_proj->mark = (tg_mark){.units = f, .units_key = key};
    m->gate_up_proj->mark.dim[TG_AXIS_EXPERT] = m->down_proj->mark.dim[TG_AXIS_EXPERT] = 1;
    m->gate_up_proj->mark.dim[TG_AXIS_TENSOR] = 2;
    m->gate_up_proj->mark.groups = 2;
    m->down_proj->mark.dim[TG_AXIS_TENSOR] = 3;
    return cell;
}

teng_cell *tg_moe_create(const tg_lm_shape *s)
{
    teng_cell *cell = teng_cell_create("moe", sizeof(moe), moe_forward);
    if (!cell) return NULL;
    moe *m = teng_cell_data(cell);
    m->num_experts = s->num_experts;
    m->top_k = s->top_k;
    m->act = s->act;
    m->renormalise = s->norm_topk_prob || s->family->renormalise;
    if (!tg_lm_add(cell, "gate", teng_nn_linear(s->hidden_size, s->num_experts, false, s->init_std),
                   &m->gate) ||
        !tg_lm_add(cell, "experts", experts_create(s, m), &m->experts))
        teng_cell_destroy(&cell);
    return cell;
}
