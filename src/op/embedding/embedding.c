/* embedding: rows of a table chosen by ids; embedding_grad: the rows of dy added up by id. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field grad_fields[] = {{"vocab", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const teng_desc *table = &call->in[0], *ids = &call->in[1];
    char buf[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "table"));
    if (table->ndim != 2)
        return tg_fail(TENG_INVALID, "table is %s; it must be [V, C]", tg_desc_text(buf, table));
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
    const int64_t vocab = *(const int64_t *)call->attr;
    TG_TRY(tg_want_float(call, 0, "dy"));
    TG_TRY(tg_want_ndim(call, 0, "dy", 1));
    TG_TRY(tg_want_dtype(call, 1, "ids", TENG_I32));
    const teng_desc rows = tg_desc_rows(dy, TENG_I32);
    TG_TRY(tg_want_dims(call, 1, "ids", &rows, "dy without its last dimension"));
    if (vocab < 0) return tg_fail(TENG_INVALID, "vocab is %lld; it is a number of rows", (long long)vocab);
    call->out[0] = tg_desc_make(dy->dtype, 2, (int64_t[]){vocab, dy->dims[dy->ndim - 1]});
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    const int64_t vocab = teng_tensor_desc(ctx->in[0])->dims[0];
    teng_tensor *in[] = {ctx->out_grad[0], ctx->in[1]};
    ctx->in_grad[0] = teng_apply((teng_src){NULL, 0}, &tg_op_embedding_grad, &vocab, 2, in, NULL);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static teng_status grad_grad(teng_grad_ctx *ctx)
{
    if (!ctx->need[0]) return TENG_OK;
    ctx->in_grad[0] = teng_embedding_at((teng_src){NULL, 0}, ctx->out_grad[0], ctx->in[1]);
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
}

static void place_grad(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    const int ndim = call->in[1].ndim;
    for (int i = 0; i < ndim; i++)
        teng_place_add(rules, (teng_place[]){(teng_place)i, (teng_place)i}, &(teng_place){P});
    teng_place_add(rules, (teng_place[]){(teng_place)ndim, R}, &(teng_place){1});
    teng_place_add(rules, (teng_place[]){P, R}, &(teng_place){P});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->bytes_read =
        (double)tg_desc_bytes(&call->out[0]) + (double)tg_desc_bytes(&call->in[1]); /* rows in use */
}
static void cost_grad(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_embedding_kernels);
TG_CPU_TABLES(tg_embedding_grad_kernels);

const teng_op_spec tg_op_embedding = {
    .name = "embedding",
    .doc = "y[p] = table[ids[p]]: table [V, C], ids i32 [...] → [..., C]. An id outside 0 … V - 1 is an "
           "error of the run.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer,
    .grad = grad,
    .grad_in = 2,
    .place = place,
    .cost = cost,
    .kernels = tg_embedding_kernels_tables,
    .precision = TENG_PRECISION_LOOKUP,
};

const teng_op_spec tg_op_embedding_grad = {
    .name = "embedding_grad",
    .doc = "dtable[v] = Σ dy[p] over the positions p with ids[p] = v, in the order of positions, in f32; "
           "rows that no id names "
           "are zero. Inputs dy [..., C], ids i32 [...]; attribute vocab = V.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(int64_t),
    .attrs = grad_fields,
    .infer = infer_grad,
    .grad = grad_grad,
    .grad_in = 2,
    .place = place_grad,
    .cost = cost_grad,
    .kernels = tg_embedding_grad_kernels_tables,
};

teng_tensor *teng_embedding_at(teng_src at, teng_tensor *table, teng_tensor *ids)
{
    return teng_apply(at, &tg_op_embedding, NULL, 2, (teng_tensor *[]){table, ids}, NULL);
}
