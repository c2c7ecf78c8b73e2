/*
 * Ready cells that most models share: linear layers in both storage orders, embedding, norms. Their operators
 * carry the line of whoever called the cell, not a line of this file. Attention and whole blocks belong to
 * the families.
 */
#include "base/fail.h"
#include "nn/cell_impl.h"

typedef struct dense {
    teng_param *weight, *bias; /* bias NULL when there is none */
    double eps;                /* of norms */
} dense;

static const teng_src nowhere = {0};

static teng_tensor *value(teng_param *param)
{
    return param ? teng_value_at(nowhere, param) : NULL;
}

static teng_tensor *linear_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const dense *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    return teng_linear_at(nowhere, in[0], value(d->weight), value(d->bias), d->bias);
}

static teng_tensor *conv1d_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const dense *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    return teng_conv1d_at(nowhere, in[0], value(d->weight), value(d->bias), d->bias);
}

static teng_tensor *embedding_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const dense *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    teng_tensor *rows = teng_embedding_at(nowhere, value(d->weight), in[0]);
    /* A table that is stored in 16 bits gives f32 unless a precision level has its own idea. */
    const bool narrow = rows && teng_tensor_desc(rows)->dtype != TENG_F32 && !tg_trace_current()->hook;
    return narrow ? teng_cast_at(nowhere, rows, TENG_F32) : rows;
}

static teng_tensor *layer_norm_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const dense *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    return teng_layer_norm_at(nowhere, in[0], value(d->weight), value(d->bias), d->bias, d->eps);
}

static teng_tensor *rms_norm_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    const dense *d = teng_cell_data(self);
    if (!tg_cell_takes(self, n_in, 1)) return NULL;
    return teng_rms_norm_at(nowhere, in[0], value(d->weight), d->eps);
}

/* A cell with a weight and, when bias_size is not 0, a bias of zeros. */
static teng_cell *create(const char *type, teng_forward *forward, teng_dims dims, teng_init init,
                         int64_t bias_size)
{
    teng_cell *cell = teng_cell_create(type, sizeof(dense), forward);
    if (!cell) return NULL;
    dense *d = teng_cell_data(cell);
    d->weight = teng_cell_param(cell, "weight", dims, init);
    if (d->weight && bias_size)
        d->bias = teng_cell_param(cell, "bias", TENG_DIMS(bias_size),
                                  (teng_init){TENG_INIT_CONST, 0, 0, TENG_ROLE_BIAS});
    if (!d->weight || (bias_size && !d->bias)) teng_cell_destroy(&cell);
    return cell;
}

teng_cell *teng_nn_linear(int64_t in_features, int64_t out_features, bool bias, double std)
{
    return create("linear", linear_forward, TENG_DIMS(out_features, in_features),
                  (teng_init){TENG_INIT_NORMAL, 0, std, TENG_ROLE_WEIGHT}, bias ? out_features : 0);
}

teng_cell *teng_nn_conv1d(int64_t in_features, int64_t out_features, bool bias, double std)
{
    return create("conv1d", conv1d_forward, TENG_DIMS(in_features, out_features),
                  (teng_init){TENG_INIT_NORMAL, 0, std, TENG_ROLE_WEIGHT}, bias ? out_features : 0);
}

teng_cell *teng_nn_embedding(int64_t vocab_size, int64_t hidden_size, double std)
{
    return create("embedding", embedding_forward, TENG_DIMS(vocab_size, hidden_size),
                  (teng_init){TENG_INIT_NORMAL, 0, std, TENG_ROLE_EMBEDDING}, 0);
}

static teng_cell *norm(const char *type, teng_forward *forward, int64_t size, double eps, bool bias)
{
    teng_cell *cell = create(type, forward, TENG_DIMS(size),
                             (teng_init){TENG_INIT_CONST, 1, 0, TENG_ROLE_NORM}, bias ? size : 0);
    if (cell) ((dense *)teng_cell_data(cell))->eps = eps;
    return cell;
}

teng_cell *teng_nn_layer_norm(int64_t size, double eps, bool bias)
{
    return norm("layer_norm", layer_norm_forward, size, eps, bias);
}

teng_cell *teng_nn_rms_norm(int64_t size, double eps)
{
    return norm("rms_norm", rms_norm_forward, size, eps, false);
}

teng_cell *tg_cell_split(teng_cell *cell, tg_split split, tg_mark mark)
{
    if (!cell) return NULL;
    dense *d = teng_cell_data(cell);
    const bool conv = cell->forward == conv1d_forward; /* stored [in, out] */
    d->weight->mark = mark;
    d->weight->mark.dim[TG_AXIS_TENSOR] = (int8_t)(1 + ((split == TG_SPLIT_OUT) == conv));
    if (!d->bias || split == TG_SPLIT_IN) return cell;
    d->bias->mark = mark;
    d->bias->mark.dim[TG_AXIS_TENSOR] = 1;
    return cell;
}

teng_param *teng_nn_weight(teng_cell *cell)
{
    if (!cell) return NULL;
    if (cell->forward == linear_forward || cell->forward == conv1d_forward ||
        cell->forward == embedding_forward || cell->forward == layer_norm_forward ||
        cell->forward == rms_norm_forward)
        return ((dense *)teng_cell_data(cell))->weight;
    tg_fail(TENG_INVALID, "teng_nn_weight: a %s has no weight of its own", cell->type);
    return NULL;
}
