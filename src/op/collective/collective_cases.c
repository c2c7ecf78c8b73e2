/* Cases of operators that communicate, of one rank alone: copies. Among ranks: tests/test_collective.c. */
#include "op/collective/collective.h"

#include "op/case_list.h"

#include <string.h>

static teng_status each(const teng_op_call *call, const double *const *in, double *const *out)
{
    for (int i = 0; i < call->n_in; i++)
        memcpy(out[i], in[i], sizeof(double) * (size_t)tg_desc_numel(&call->in[i]));
    return TENG_OK;
}

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    memcpy(out[0], in[call->n_in - 1], sizeof(double) * (size_t)tg_desc_numel(&call->in[call->n_in - 1]));
    return TENG_OK;
}

static const teng_op_case reduces[] = {
    {"sum", &(tg_all_reduce_attr){2, 1, 0}, 1, {TG_X(2, 3, 7)}},
    {"maximum", &(tg_all_reduce_attr){16, 1, 1}, 1, {TG_X(1, 5)}},
    {"many", &(tg_all_reduce_attr){2, 1, 0}, 3, {TG_X(2, 3, 7), TG_X(1, 1), TG_X(3, 2, 2, 9)}},
};
static const teng_op_case pieces[] = {
    {"first", &(tg_pieces_attr){2, 1, 0, 0, 4}, 1, {TG_X(2, 4, 3)}},
    {"last", &(tg_pieces_attr){16, 1, 0, 2, 5}, 1, {TG_X(3, 2, 3, 5)}},
};
static const teng_op_case to_all[] = {
    {"forward", &(tg_all_to_all_attr){8, 1, 0, 0, 1, 4, 3}, 1, {TG_X(2, 4, 3)}},
    {"back", &(tg_all_to_all_attr){8, 1, 0, 2, 0, 5, 2}, 1, {TG_X(3, 2, 3, 5)}},
};
static const teng_op_case into[] = {
    {"rows", &(tg_pieces_attr){2, 1, 0, 0, 4}, 2, {TG_X(2, 4, 3), TG_X(2, 4, 3)}},
};

#define CASES(name, from)                                                                                    \
    const teng_op_cases tg_cases_##name = {                                                                  \
        .op = #name, .list = from, .n = TG_COUNT(from), .reference = reference, .dtypes = TG_ALL_FLOATS}
const teng_op_cases tg_cases_all_reduce = {
    .op = "all_reduce", .list = reduces, .n = TG_COUNT(reduces), .reference = each, .dtypes = TG_ALL_FLOATS};
CASES(all_gather, pieces);
CASES(reduce_scatter, pieces);
CASES(all_to_all, to_all);
CASES(gather_into, into);
