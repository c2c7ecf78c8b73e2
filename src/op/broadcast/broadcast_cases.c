/* Cases of broadcast. */
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0], *y = &call->out[0];
    for (int64_t o = 0; o < tg_desc_numel(y); o++) {
        int64_t rest = o, at = 0, step = 1;
        for (int i = 1; i <= y->ndim; i++) {
            const int64_t index = rest % y->dims[y->ndim - i];
            rest /= y->dims[y->ndim - i];
            if (i > x->ndim) continue;
            const int64_t size = x->dims[x->ndim - i];
            at += (size == 1 ? 0 : index) * step;
            step *= size;
        }
        out[0][o] = in[0][at];
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"bias", &(teng_dims){3, {2, 5, 7}}, 1, {TG_X(1, 7)}},
    {"column", &(teng_dims){2, {5, 19}}, 1, {TG_X(2, 5, 1)}},
    {"middle", &(teng_dims){3, {3, 4, 5}}, 1, {TG_X(3, 3, 1, 5)}},
    {"outer product", &(teng_dims){4, {2, 3, 4, 5}}, 1, {TG_X(3, 3, 1, 5)}},
    {"scalar", &(teng_dims){2, {3, 17}}, 1, {{.desc = {TENG_F32, 0, {0}}}}},
    {"same", &(teng_dims){2, {3, 4}}, 1, {TG_X(2, 3, 4)}},
};

const teng_op_cases tg_cases_broadcast = {
    .op = "broadcast", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
