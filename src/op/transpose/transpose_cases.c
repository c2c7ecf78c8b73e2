/* Cases of transpose; the reference walks the output index by index. */
#include "op/case_list.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0], *y = &call->out[0];
    const teng_dims *perm = call->attr;
    for (int64_t o = 0; o < tg_desc_numel(y); o++) {
        int64_t index[TENG_MAX_DIMS] = {0}, rest = o, at = 0;
        for (int i = y->ndim - 1; i >= 0; i--) {
            index[perm->v[i]] = rest % y->dims[i];
            rest /= y->dims[i];
        }
        for (int i = 0; i < x->ndim; i++)
            at = at * x->dims[i] + index[i];
        out[0][o] = in[0][at];
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"matrix", &(teng_dims){2, {1, 0}}, 1, {TG_X(2, 67, 35)}},
    {"heads first", &(teng_dims){4, {0, 2, 1, 3}}, 1, {TG_X(4, 2, 5, 3, 7)}},
    {"batched", &(teng_dims){3, {0, 2, 1}}, 1, {TG_X(3, 3, 33, 40)}},
    {"reversed", &(teng_dims){4, {3, 2, 1, 0}}, 1, {TG_X(4, 2, 3, 5, 7)}},
    {"nothing moves", &(teng_dims){3, {1, 0, 2}}, 1, {TG_X(3, 1, 9, 5)}},
    {"cycle", &(teng_dims){3, {2, 0, 1}}, 1, {TG_X(3, 4, 5, 6)}},
    {"scalar", &(teng_dims){0}, 1, {{.desc = {TENG_F32, 0, {0}}}}},
};

const teng_op_cases tg_cases_transpose = {
    .op = "transpose", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
