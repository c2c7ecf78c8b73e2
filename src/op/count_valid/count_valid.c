/*
 * count_valid: how many labels a loss counts. Ranks that hold some of the rows each add their number up and
 * divide by the sum (the input `valid` of the losses). One rank needs none: the losses count for themselves.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/place_rules.h"
#include "op/want.h"

static const teng_attr_field fields[] = {{"ignore_index", TENG_ATTR_INT, 0, NULL}, {0}};

static teng_status infer(teng_op_call *call)
{
    TG_TRY(tg_want_dtype(call, 0, "labels", TENG_I32));
    call->out[0] = tg_desc_make(TENG_F32, 0, NULL);
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    tg_place_rows(call, rules, 0, 1, 0);
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_count_valid_kernels);

const teng_op_spec tg_op_count_valid = {
    .name = "count_valid",
    .doc = "The number of labels i32 [...] other than ignore_index, as an f32 scalar.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(int64_t),
    .attrs = fields,
    .infer = infer,
    .no_grad = "a number of labels does not depend on values",
    .place = place,
    .cost = cost,
    .kernels = tg_count_valid_kernels_tables,
};
