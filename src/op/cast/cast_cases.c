/* Cases of cast. The reference changes values only where the result is an integer. */
#include "op/cast/cast.h"
#include "op/case_list.h"

#include <math.h>

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const bool whole = !tg_dtype_is_float(call->out[0].dtype);
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = whole ? trunc(in[0][i]) : in[0][i];
    return TENG_OK;
}

#define TO(dtype)                                                                                            \
    &(const tg_cast_attr)                                                                                    \
    {                                                                                                        \
        dtype                                                                                                \
    }
static const teng_op_case list[] = {
    {.label = "to f32", .attr = TO(TENG_F32), .n_in = 1, .in = {TG_X(2, 5, 19)}},
    {.label = "to bf16", .attr = TO(TENG_BF16), .n_in = 1, .in = {TG_X(2, 131, 128)}},
    {.label = "to f16", .attr = TO(TENG_F16), .n_in = 1, .in = {TG_X(3, 3, 4, 17)}},
    {.label = "to i32",
     .attr = TO(TENG_I32),
     .n_in = 1,
     .in =
         {{.desc = {TENG_F32, 2, {5, 7}}, .fill = TENG_FILL_UNIFORM, .lo = -90, .hi = 90, .no_grad = true}}},
    {.label = "from i32", .attr = TO(TENG_F32), .n_in = 1, .in = {TG_IDS(1000, 2, 9, 5)}},
};

const teng_op_cases tg_cases_cast = {
    .op = "cast", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
