/*
 * piece: some rows of a value where they lie. A view: no kernel ever runs, and what updates the piece updates
 * the value. Copies of rows are made by slice.
 */
#include "op/piece/piece.h"

#include "op/op_list.h"
#include "op/want.h"
#include "tensor/desc.h"

#include <stddef.h>

static const teng_attr_field fields[] = {{"begin", TENG_ATTR_INT, offsetof(tg_piece_attr, begin), NULL},
                                         {"size", TENG_ATTR_INT, offsetof(tg_piece_attr, size), NULL},
                                         {0}};

static teng_status infer(teng_op_call *call)
{
    const tg_piece_attr *a = call->attr;
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_ndim(call, 0, "x", 1));
    const int64_t rows = call->in[0].dims[0];
    if (a->begin < 0 || a->size < 0 || a->begin > rows || a->size > rows - a->begin)
        return tg_fail(TENG_INVALID, "%lld rows from %lld on leave x, which is %s", (long long)a->size,
                       (long long)a->begin, tg_desc_text(text, &call->in[0]));
    call->out[0] = call->in[0];
    call->out[0].dims[0] = a->size;
    return TENG_OK;
}

static int64_t view_offset(const teng_op_call *call)
{
    teng_desc before = call->in[0];
    before.dims[0] = ((const tg_piece_attr *)call->attr)->begin;
    return (int64_t)tg_desc_bytes(&before);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call;
    *c = (teng_cost){0};
}

const teng_op_spec tg_op_piece = {
    .name = "piece",
    .doc = "y = rows begin … begin + size - 1 of x along dimension 0, where they lie.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_piece_attr),
    .attrs = fields,
    .traits = TENG_OP_VIEW,
    .infer = infer,
    .no_grad = "it is put into a rank's graph after differentiation",
    .no_place = "it is put into a rank's graph, whose values are placed",
    .cost = cost,
    .view_offset = view_offset,
    .no_kernels = "a view: bytes of x",
    .precision = TENG_PRECISION_MOVE,
};
