/* embedding: rows of a table chosen by ids; embedding_grad: the rows of dy added up by id. */
#include "op/embedding/embedding.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"
#include "teng/ops.h"

#define PIECE_FIELDS                                                                                         \
    {"begin", TENG_ATTR_INT, offsetof(tg_embedding_attr, begin), NULL},                                      \
    {                                                                                                        \
        "total", TENG_ATTR_INT, offsetof(tg_embedding_attr, total), NULL                                     \
    }
static const teng_attr_field fields[] = {PIECE_FIELDS, {0}};
static const teng_attr_field grad_fields[] = {
    PIECE_FIELDS, {"vocab", TENG_ATTR_INT, offsetof(tg_embedding_grad_attr, vocab), NULL}, {0}};

static teng_status want_piece(const tg_embedding_attr *piece, int64_t vocab)
{
    if (vocab < 0) return tg_fail(TENG_INVALID, "vocab is %lld; it is a number of rows", (long long)vocab);
    if (!piece->total && !piece->begin) return TENG_OK;
    if (piece->begin < 0 || piece->begin > piece->total || vocab > piece->total - piece->begin)
        return tg_fail(TENG_INVALID, "%lld rows from %lld on leave the vocabulary of %lld", (long long)vocab,
                       (long long)piece->begin, (long long)piece->total);
    return TENG_OK;
}

static teng_status infer(teng_op_call *call)
{
    const teng_desc *table = &call->in[0], *ids = &call->in[1];
    char buf[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "table"));
    if (table->ndim != 2)
        return tg_fail(TENG_INVALID, "table is %s; it must be [V, C]", tg_desc_text(buf, table));
    TG_TRY(want_piece(call->attr, table->dims[0]));
    TG_TRY(tg_want_dtype(call, 1, "ids", TENG_I32));
    if (ids->ndim == TENG_MAX_DIMS)
        return tg_fail(TENG_INVALID, "ids is %s; at most %d dimensions are possible", tg_desc_text(buf, ids),
                       TENG_MAX_DIMS - 1);
    teng_desc out = tg_desc_cast(ids, table->dtype);
    out.dims[out.ndim++] = table->dims[1];
    call->out[0] = out;
    return TENG_OK;
}

static teng_status infer_grad(teng_op_call *call)
{
    const teng_desc *dy = &call->in[0];
    const tg_embedding_grad_attr *attr = call->attr;
    TG_TRY(tg_want_float(call, 0, "dy"));
    TG_TRY(tg_want_ndim(call, 0, "dy", 1));
    TG_TRY(tg_want_dtype(call, 1, "ids", TENG_I32));
    const teng_desc rows = tg_desc_rows(dy, TENG_I32);
    TG_TRY(tg_want_dims(call, 1, "ids", &rows, "dy without its last dimension"));
    TG_TRY(want_piece(&attr->piece, attr->vocab));
    call->out[0] = tg_desc_make(dy->dtype, 2, (int64_t[]){attr->vocab, dy->dims[dy->ndim - 1]});
    if (call->n_in == 2) return TENG_OK;
    TG_TRY(tg_want_dims(call, 2, "onto", &call->out[0], "the table"));
    return tg_want_dtype(call, 2, "onto", dy->dtype);
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const tg_embedding_grad_attr attr = {*(const tg_embedding_attr *)ctx->attr,
                                         teng_tensor_desc(ctx->in[0])->dims[0]};
    teng_tensor *in[] = {ctx->out_grad[0], ctx->in[1]};
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, &tg_op_embedding_grad, &attr, 2, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static teng_status grad_grad(teng_grad_ctx *ctx)
{
    if (ctx->n_in == 3 && ctx->need[2]) ctx->in_grad[2] = ctx->out_grad[0];
    if (!ctx->need[0]) return TENG_OK;
    const tg_embedding_grad_attr *attr = ctx->attr;
    teng_tensor *in[] = {ctx->out_grad[0], ctx->in[1]};
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, &tg_op_embedding, &attr->piece, 2, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    const int ndim = call->in[1].ndim;
    for (int i = 0; i < ndim; i++)
        teng_place_add(rules, (teng_place[]){R, (teng_place)i}, &(teng_place){(teng_place)i});
    teng_place_add(rules, (teng_place[]){1, R}, &(teng_place){(teng_place)ndim});
    teng_place_add(rules, (teng_place[]){P, R}, &(teng_place){P});
    teng_place_add(rules, (teng_place[]){0, R}, &(teng_place){P}); /* a piece of the vocabulary */
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    tg_embedding_attr *a = attr;
    (void)out;
    if (in[0] == 0 && in[1] == TENG_REPLICATED)
        tg_place_cut_vocabulary(call->in[0].dims[0], parts, index, &a->begin, &a->total);
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    const int ndim = call->in[1].ndim;
    for (int i = 0; i < ndim; i++)
        teng_place_add(rules, (teng_place[]){(teng_place)i, (teng_place)i, P}, &(teng_place){P});
    teng_place_add(rules, (teng_place[]){(teng_place)ndim, R, 1}, &(teng_place){1});
    teng_place_add(rules, (teng_place[]){P, R, P}, &(teng_place){P});
    teng_place_add(rules, (teng_place[]){R, R, 0}, &(teng_place){0}); /* a piece of the vocabulary */
}

static void localize_grad(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    tg_embedding_grad_attr *a = attr;
    (void)call;
    if (out[0] == 0 && in[1] == TENG_REPLICATED)
        a->vocab = tg_place_cut_vocabulary(a->vocab, parts, index, &a->piece.begin, &a->piece.total);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->bytes_read =
        (double)tg_desc_bytes(&call->out[0]) + (double)tg_desc_bytes(&call->in[1]); /* rows in use */
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)tg_desc_numel(&call->in[0]);
    if (call->n_in == 3) /* rows in use */
        c->bytes_written = c->bytes_read = 2 * (double)tg_desc_bytes(&call->in[0]);
}

TG_CPU_TABLES(tg_embedding_kernels);
TG_CPU_TABLES(tg_embedding_grad_kernels);

const teng_op_spec tg_op_embedding = {
    .name = "embedding",
    .doc = "y[p] = table[ids[p]]: table [V, C], ids i32 [...] → [..., C]. An id outside 0 … V - 1 is an "
           "error of the run. total > 0: the table holds rows begin … begin + V - 1 of total; ids of other "
           "rows give "
           "zeros.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(tg_embedding_attr),
    .attrs = fields,
    .infer = infer,
    .grad = grad,
    .grad_in = 2,
    .place = place,
    .localize = localize,
    .cost = cost,
    .kernels = tg_embedding_kernels_tables,
    .precision = TENG_PRECISION_LOOKUP,
};

const teng_op_spec tg_op_embedding_grad = {
    .name = "embedding_grad",
    .doc = "dtable[v] = Σ dy[p] over the positions p with ids[p] = v, in the order of positions, in f32; "
           "rows that no id names "
           "are zero. Inputs dy [..., C], ids i32 [...] and, optional, onto [V, C], to which the sums are "
           "added; attribute vocab = V, begin and total as in embedding.",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(tg_embedding_grad_attr),
    .attrs = grad_fields,
    .inplace = {4},
    .infer = infer_grad,
    .grad = grad_grad,
    .grad_in = 2,
    .place = place_grad,
    .localize = localize_grad,
    .cost = cost_grad,
    .kernels = tg_embedding_grad_kernels_tables,
};

teng_tensor *teng_embedding_at(teng_src at, teng_tensor *table, teng_tensor *ids)
{
    const tg_embedding_attr whole = {0, 0};
    return teng_apply(at, &tg_op_embedding, &whole, 2, (teng_tensor *[]){table, ids}, NULL);
}
