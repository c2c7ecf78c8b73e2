/*
 * moe_sort: the order of rows that puts the tokens of each expert together. It moves no values: rows are
 * gathered by its indices with embedding, which also knows the way back (embedding_grad).
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static const teng_attr_field fields[] = {{"experts", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    const int64_t experts = *(const int64_t *)call->attr;
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_dtype(call, 0, "chosen", TENG_I32));
    if (call->in[0].ndim != 2)
        return tg_fail(TENG_INVALID, "chosen is %s; it must be [tokens, top_k]",
                       tg_desc_text(text, &call->in[0]));
    if (experts < 1)
        return tg_fail(TENG_INVALID, "experts is %lld; at least 1 is needed", (long long)experts);
    const int64_t rows = tg_desc_numel(&call->in[0]);
    call->out[0] = tg_desc_make(TENG_I32, 1, &rows);
    call->out[1] = call->in[0];
    call->out[2] = tg_desc_make(TENG_I32, 1, &experts);
    return TENG_OK;
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->bytes_read = 2 * (double)tg_desc_bytes(&call->in[0]);
}

TG_CPU_TABLES(tg_moe_sort_kernels);

const teng_op_spec tg_op_moe_sort = {
    .name = "moe_sort",
    .doc = "chosen i32 [N, K], values 0 to experts - 1, in the order of experts, tokens of one expert in "
           "their order: "
           "source i32 [N K], the token of each row; place i32 [N, K], the row of each choice; counts i32 "
           "[experts], "
           "the rows of each expert.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 3,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .no_grad = "an order of rows has no derivative",
    .no_place = "the order is that of all tokens: ranks with tokens of their own sort them alone",
    .cost = cost,
    .kernels = tg_moe_sort_kernels_tables,
};

teng_tensor *teng_moe_sort_at(teng_src at, teng_tensor *chosen, int64_t experts, teng_tensor **place,
                              teng_tensor **counts)
{
    teng_tensor *out[TENG_MAX_OUT];
    teng_tensor *source = teng_apply(at, &tg_op_moe_sort, &experts, 1, &chosen, out);
    *place = source ? out[1] : NULL;
    *counts = source ? out[2] : NULL;
    return source;
}
