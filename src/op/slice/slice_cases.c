/* Cases of slice and slice_grad. */
#include "op/slice/slice.h"

#include "op/case_list.h"

#include <string.h>

/* Copies between the part and the whole; the whole is cleared when it is the output. */
static void move(const teng_op_call *call, const teng_desc *part, const teng_desc *whole, const double *x,
                 double *y)
{
    const tg_slice_attr *a = call->attr;
    const int axis = tg_desc_axis(part, a->axis);
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; i++)
        outer *= part->dims[i];
    for (int i = axis + 1; i < part->ndim; i++)
        inner *= part->dims[i];
    const int64_t n = part->dims[axis], m = whole->dims[axis];
    const bool back = whole == &call->out[0];
    if (back) memset(y, 0, sizeof *y * (size_t)tg_desc_numel(whole));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < inner; k++) {
                const tg_slice_grad_attr *g = back ? call->attr : NULL;
                const int64_t row = g && g->turn && i >= g->turn ? g->later + i - g->turn : a->begin + i;
                const int64_t p = (o * n + i) * inner + k, w = (o * m + row) * inner + k;
                y[back ? w : p] = x[back ? p : w];
            }
}

static teng_status reference_slice(const teng_op_call *call, const double *const *in, double *const *out)
{
    move(call, &call->out[0], &call->in[0], in[0], out[0]);
    return TENG_OK;
}

static teng_status reference_back(const teng_op_call *call, const double *const *in, double *const *out)
{
    move(call, &call->in[0], &call->out[0], in[0], out[0]);
    return TENG_OK;
}

static const teng_op_case slices[] = {
    {"last", &(tg_slice_attr){-1, 3, 5}, 1, {TG_X(3, 2, 5, 11)}},
    {"middle", &(tg_slice_attr){1, 1, 3}, 1, {TG_X(3, 4, 5, 6)}},
    {"first", &(tg_slice_attr){0, 2, 1}, 1, {TG_X(2, 3, 7)}},
    {"whole", &(tg_slice_attr){0, 0, 9}, 1, {TG_X(1, 9)}},
};
#define BACK(axis, begin, size)                                                                              \
    &(tg_slice_grad_attr)                                                                                    \
    {                                                                                                        \
        {axis, begin, size}, 0, 0                                                                            \
    }
static const teng_op_case backs[] = {
    {"last", BACK(-1, 3, 11), 1, {TG_X(3, 2, 5, 5)}},
    {"middle", BACK(1, 1, 7), 1, {TG_X(3, 4, 3, 6)}},
    {"front", BACK(0, 0, 6), 1, {TG_X(2, 2, 7)}},
    {"whole", BACK(0, 0, 9), 1, {TG_X(1, 9)}},
    {"all rows", BACK(0, 0, 4), 1, {TG_X(2, 4, 7)}},
    {"two pieces", &(tg_slice_grad_attr){{1, 2, 11}, 3, 7}, 1, {TG_X(3, 2, 6, 5)}},
    {"two pieces to the ends", &(tg_slice_grad_attr){{0, 0, 9}, 1, 6}, 1, {TG_X(2, 4, 5)}},
};

const teng_op_cases tg_cases_slice = {.op = "slice",
                                      .list = slices,
                                      .n = TG_COUNT(slices),
                                      .reference = reference_slice,
                                      .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_slice_grad = {.op = "slice_grad",
                                           .list = backs,
                                           .n = TG_COUNT(backs),
                                           .reference = reference_back,
                                           .dtypes = TG_ALL_FLOATS};
