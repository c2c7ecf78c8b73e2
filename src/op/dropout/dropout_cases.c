/* Cases of dropout. The reference draws one element at a time from base/rng.h, as the contract states it. */
#include "op/case_list.h"
#include "op/dropout/dropout.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_dropout_attr *attr = call->attr;
    const uint64_t hi = tg_dropout_counter((uint64_t)in[1][1], attr->stream);
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++) {
        const uint32_t word = tg_philox((uint64_t)in[1][0], (uint64_t)i / 4, hi).v[i % 4];
        out[0][i] = word >= tg_dropout_threshold(attr->p) ? in[0][i] / (1 - attr->p) : 0;
    }
    return TENG_OK;
}

#define RNG                                                                                                  \
    {                                                                                                        \
        .desc = {TENG_U64, 1, {2}}, .fill = TENG_FILL_INTS, .lo = 1, .hi = 1e12, .keep_dtype = true,         \
        .no_grad = true                                                                                      \
    }
static const teng_op_case list[] = {
    {.label = "ragged", .attr = &(const tg_dropout_attr){0.1, 0}, .n_in = 2, .in = {TG_X(2, 5, 29), RNG}},
    {.label = "threads",
     .attr = &(const tg_dropout_attr){0.5, 77},
     .n_in = 2,
     .in = {TG_X(2, 130, 131), RNG}},
    {.label = "none", .attr = &(const tg_dropout_attr){0, 1}, .n_in = 2, .in = {TG_X(1, 3), RNG}},
};

const teng_op_cases tg_cases_dropout = {
    .op = "dropout", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
