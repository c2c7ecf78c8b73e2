/* Cases of add_positions. */
#include "op/add_positions/add_positions.h"
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0];
    const tg_row_map *rows = call->attr;
    const int64_t c = x->dims[x->ndim - 1], t = x->dims[x->ndim - 2];
    for (int64_t i = 0; i < tg_desc_numel(x); i++) {
        const int64_t row = i / c % t;
        const int64_t from =
            rows->turn && row >= rows->turn ? row - rows->turn + rows->later : row + rows->begin;
        out[0][i] = in[0][i] + in[1][from * c + i % c];
    }
    return TENG_OK;
}

#define ALL                                                                                                  \
    &(tg_add_positions_attr)                                                                                 \
    {                                                                                                        \
        {                                                                                                    \
            0, 0, 0                                                                                          \
        }                                                                                                    \
    }
static const teng_op_case list[] = {
    {"batch", ALL, 2, {TG_X(3, 2, 5, 7), TG_X(2, 9, 7)}},
    {"all positions", ALL, 2, {TG_X(3, 3, 6, 35), TG_X(2, 6, 35)}},
    {"from row 3 on", &(tg_add_positions_attr){{3, 0, 0}}, 2, {TG_X(3, 2, 4, 7), TG_X(2, 8, 7)}},
    {"two pieces", &(tg_add_positions_attr){{1, 2, 7}}, 2, {TG_X(3, 2, 5, 33), TG_X(2, 10, 33)}},
    {"one sequence", ALL, 2, {TG_X(2, 4, 19), TG_X(2, 11, 19)}},
    {"blocks", ALL, 2, {TG_X(3, 3, 40, 130), TG_X(2, 41, 130)}},
};

const teng_op_cases tg_cases_add_positions = {.op = "add_positions",
                                              .list = list,
                                              .n = TG_COUNT(list),
                                              .reference = reference,
                                              .dtypes = TG_ALL_FLOATS};
