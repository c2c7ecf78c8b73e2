/* Cases of dropout. The reference draws one element at a time from base/rng.h, as the contract states it. */
#include "op/case_list.h"
#include "op/dropout/dropout.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_dropout_attr *attr = call->attr;
    const uint64_t hi = tg_dropout_counter((uint64_t)in[1][1], attr->stream);
    const teng_desc *x = &call->in[0];
    for (int64_t i = 0; i < tg_desc_numel(x); i++) {
        int64_t e = i, rest = i, step = 1;
        for (int d = x->ndim - 1; d >= 0 && attr->whole.n; step *= attr->whole.v[d--]) {
            const int64_t at = rest % x->dims[d];
            const bool later = attr->turn && attr->axis == d && at >= attr->turn;
            e = (d == x->ndim - 1 ? 0 : e) +
                (later ? attr->later + at - attr->turn : attr->begin.v[d] + at) * step;
            rest /= x->dims[d];
        }
        const uint32_t word = tg_philox((uint64_t)in[1][0], (uint64_t)e / 4, hi).v[e % 4];
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
    {.label = "ragged", .attr = &(const tg_dropout_attr){.p = 0.1}, .n_in = 2, .in = {TG_X(2, 5, 29), RNG}},
    {.label = "threads",
     .attr = &(const tg_dropout_attr){.p = 0.5, .stream = 77},
     .n_in = 2,
     .in = {TG_X(2, 130, 131), RNG}},
    {.label = "even", .attr = &(const tg_dropout_attr){.p = 0.4}, .n_in = 2, .in = {TG_X(3, 4, 6, 8), RNG}},
    {.label = "shard",
     .attr =
         &(const tg_dropout_attr){.p = 0.3, .stream = 2, .whole = {3, {9, 70, 33}}, .begin = {3, {2, 5, 0}}},
     .n_in = 2,
     .in = {TG_X(3, 3, 61, 33), RNG}},
    {.label = "columns",
     .attr = &(const tg_dropout_attr){.p = 0.3, .whole = {2, {50, 301}}, .begin = {2, {0, 19}}},
     .n_in = 2,
     .in = {TG_X(2, 50, 201), RNG}},
    {.label = "two pieces",
     .attr =
         &(const tg_dropout_attr){
             .p = 0.3, .whole = {3, {4, 80, 7}}, .begin = {3, {1, 3, 0}}, .axis = 1, .turn = 20, .later = 51},
     .n_in = 2,
     .in = {TG_X(3, 2, 41, 7), RNG}},
    {.label = "none", .attr = &(const tg_dropout_attr){.stream = 1}, .n_in = 2, .in = {TG_X(1, 3), RNG}},
};

const teng_op_cases tg_cases_dropout = {
    .op = "dropout", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
