/*
 * The loss of linear_cross_entropy in steps that ranks with a piece of the vocabulary each can take:
 * linear_lse (each piece's log Σ exp and the label's logit), lse_combine (of all pieces), label_loss (the
 * mean). They are put into graphs after differentiation, with linear_cross_entropy_grad for the gradients;
 * linear_cross_entropy.h says how. One rank takes linear_cross_entropy itself.
 */
#include "op/cpu_kernel.h"
#include "op/cross_entropy/cross_entropy.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"

#include <string.h>

#define NO_GRAD "it is put into graphs after differentiation, beside linear_cross_entropy_grad"

/* ---- linear_lse ---- */
static teng_status want_parts(int64_t parts, int64_t vocab)
{
    if (parts >= 1 && parts <= vocab) return TENG_OK;
    return tg_fail(TENG_INVALID, "parts is %lld; w has %lld entries, which make 1 to %lld pieces",
                   (long long)parts, (long long)vocab, (long long)vocab);
}

static teng_status infer(teng_op_call *call)
{
    const tg_linear_lse_attr *attr = call->attr;
    TG_TRY(tg_linear_ce_infer_inputs(call));
    TG_TRY(tg_want_piece("w has", call->in[1].dims[0], attr->begin, attr->total));
    TG_TRY(want_parts(attr->parts, call->in[1].dims[0]));
    teng_desc rows = tg_desc_rows(&call->in[0], TENG_F32);
    call->out[1] = rows;
    rows.dims[rows.ndim++] = attr->parts;
    call->out[0] = rows;
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    tg_place_rows(call, rules, 2, 5, 3);
    teng_place_add(rules, (teng_place[]){R, 0, R}, (teng_place[]){(teng_place)(call->out[0].ndim - 1), P});
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    tg_linear_lse_attr *a = attr;
    (void)out;
    if (in[1] != 0) return;
    tg_place_cut_vocabulary(call->in[1].dims[0], parts, index, &a->begin, &a->total);
    a->parts /= parts;
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2.0 * (double)tg_desc_numel(&call->in[0]) * (double)call->in[1].dims[0];
}

/* ---- lse_combine ---- */
static teng_status infer_combine(teng_op_call *call)
{
    TG_TRY(tg_want_dtype(call, 0, "parts", TENG_F32));
    TG_TRY(tg_want_ndim(call, 0, "parts", 1));
    call->out[0] = tg_desc_rows(&call->in[0], TENG_F32);
    return TENG_OK;
}

static void place_combine(const teng_op_call *call, teng_place_rules *rules)
{
    for (int d = 0; d < call->in[0].ndim - 1; d++)
        teng_place_add(rules, &(teng_place){(teng_place)d}, &(teng_place){(teng_place)d});
}

static void cost_combine(const teng_op_call *call, teng_cost *c)
{
    c->flops = 20.0 * (double)tg_desc_numel(&call->in[0]);
}

/* ---- label_loss ---- */
static teng_status infer_loss(teng_op_call *call)
{
    TG_TRY(tg_want_dtype(call, 0, "lse", TENG_F32));
    TG_TRY(tg_want_like(call, 1, "hit", 0, "lse"));
    TG_TRY(tg_want_dtype(call, 2, "labels", TENG_I32));
    TG_TRY(tg_want_dims(call, 2, "labels", &call->in[0], "lse"));
    if (call->n_in > 3) TG_TRY(tg_want_scalar(call, 3, "valid"));
    call->out[0] = tg_desc_make(TENG_F32, 0, NULL);
    return TENG_OK;
}

static void place_loss(const teng_op_call *call, teng_place_rules *rules)
{
    if (call->n_in > 3) tg_place_rows(call, rules, 2, 7, 0);
}

static void cost_loss(const teng_op_call *call, teng_cost *c)
{
    c->flops = 2.0 * (double)tg_desc_numel(&call->in[0]);
}

/* ---- in the place of a loss node ---- */
static tg_node *append(tg_graph *g, const tg_node *as, const teng_op_spec *op, const void *attr, int n_in,
                       teng_tensor *const *in)
{
    return tg_graph_append(g, op, attr, n_in, in, as->scope, as->frame, as->phase);
}

/* The loss and its gradients, one node. */
static teng_status with_grad(tg_graph *g, const tg_node *node, int n_in, teng_tensor *const *in, int64_t axes,
                             int64_t parts, teng_tensor **out)
{
    const tg_linear_ce_ranks_attr attr = {
        .ignore_index = *(const int64_t *)node->attr, .axes = axes, .parts = 1};
    TG_TRY(want_parts(parts, in[1]->desc.dims[0]));
    const tg_node *one = append(g, node, &tg_op_linear_cross_entropy_by_vocabulary, &attr, n_in, in);
    if (!one) return teng_error_status();
    memcpy(out, one->out, sizeof *out * (size_t)one->n_out);
    return TENG_OK;
}

teng_status tg_linear_ce_by_vocabulary(tg_graph *g, const tg_node *node, int n_in, teng_tensor *const *in,
                                       int64_t axes, int64_t parts, teng_tensor **out)
{
    if (node->op == &tg_op_linear_cross_entropy_with_grad)
        return with_grad(g, node, n_in, in, axes, parts, out);
    const int64_t ignore = *(const int64_t *)node->attr;
    const tg_linear_lse_attr linear = {.ignore_index = ignore, .parts = parts};
    const tg_logits_lse_attr plain = {.piece = {.ignore_index = ignore}, .parts = parts};
    const bool logits = node->op == &tg_op_cross_entropy;
    const int labels = logits ? 1 : 2;
    teng_tensor *valid = n_in > labels + 1 ? in[labels + 1] : NULL;
    const tg_node *pieces = logits ? append(g, node, &tg_op_logits_lse, &plain, 2, in)
                                   : append(g, node, &tg_op_linear_lse, &linear, 3, in);
    const tg_node *lse = pieces ? append(g, node, &tg_op_lse_combine, NULL, 1, pieces->out) : NULL;
    if (!lse) return teng_error_status();
    teng_tensor *terms[] = {lse->out[0], pieces->out[1], in[labels], valid};
    const tg_node *loss = append(g, node, &tg_op_label_loss, &ignore, valid ? 4 : 3, terms);
    if (!loss) return teng_error_status();
    out[0] = loss->out[0];
    out[1] = lse->out[0];
    return TENG_OK;
}

static const teng_attr_field fields[] = {
    {"ignore_index", TENG_ATTR_INT, offsetof(tg_linear_lse_attr, ignore_index), NULL},
    {"parts", TENG_ATTR_INT, offsetof(tg_linear_lse_attr, parts), NULL},
    {"begin", TENG_ATTR_INT, offsetof(tg_linear_lse_attr, begin), NULL},
    {"total", TENG_ATTR_INT, offsetof(tg_linear_lse_attr, total), NULL},
    {0},
};
static const teng_attr_field loss_fields[] = {{"ignore_index", TENG_ATTR_INT, 0, NULL}, {0}};

TG_CPU_TABLES(tg_linear_lse_kernels);
TG_CPU_TABLES(tg_lse_combine_kernels);
TG_CPU_TABLES(tg_label_loss_kernels);

const teng_op_spec tg_op_linear_lse = {
    .name = "linear_lse",
    .doc = "With logits = x · wᵀ in f32 and w's entries in `parts` pieces as even as can be: lse f32 [..., "
           "parts], log "
           "Σ exp over each piece, and hit f32 [...], the label's logit; both 0 in rows that are ignored. x "
           "[..., C], w "
           "[V, C], labels i32 [...]. total > 0: w holds entries begin … begin + V - 1 of a vocabulary of "
           "total; a "
           "label of another piece has hit 0, one outside the vocabulary is an error of the run.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attr_size = sizeof(tg_linear_lse_attr),
    .attrs = fields,
    .infer = infer,
    .no_grad = NO_GRAD,
    .place = place,
    .localize = localize,
    .cost = cost,
    .kernels = tg_linear_lse_kernels_tables,
    .precision = TENG_PRECISION_PRODUCT,
};

const teng_op_spec tg_op_lse_combine = {
    .name = "lse_combine",
    .doc = "lse = log Σ exp(parts) over the last dimension: parts f32 [..., n] → [...].",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_combine,
    .no_grad = NO_GRAD,
    .place = place_combine,
    .cost = cost_combine,
    .kernels = tg_lse_combine_kernels_tables,
};

const teng_op_spec tg_op_label_loss = {
    .name = "label_loss",
    .doc = "loss = mean over rows with label != ignore_index of lse - hit; 0 when there is none. lse, hit "
           "f32 [...], "
           "labels i32 [...]; an optional input valid as in linear_cross_entropy.",
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .attr_size = sizeof(int64_t),
    .attrs = loss_fields,
    .infer = infer_loss,
    .no_grad = NO_GRAD,
    .place = place_loss,
    .cost = cost_loss,
    .kernels = tg_label_loss_kernels_tables,
};
