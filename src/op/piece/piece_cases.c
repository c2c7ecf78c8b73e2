/* Cases of piece: the reference copies. */
#include "op/case_list.h"
#include "op/piece/piece.h"

#include <string.h>

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_piece_attr *a = call->attr;
    const int64_t n = tg_desc_numel(&call->out[0]), row = a->size ? n / a->size : 0;
    memcpy(out[0], in[0] + a->begin * row, sizeof(double) * (size_t)n);
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"rows", &(tg_piece_attr){2, 3}, 1, {TG_X(2, 6, 5)}},
    {"last", &(tg_piece_attr){5, 2}, 1, {TG_X(1, 7)}},
    {"none", &(tg_piece_attr){3, 0}, 1, {TG_X(2, 3, 4)}},
    {"all", &(tg_piece_attr){0, 3}, 1, {TG_X(3, 3, 2, 2)}},
};

const teng_op_cases tg_cases_piece = {
    .op = "piece", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
