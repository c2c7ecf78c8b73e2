/* Cases of matmul: every combination of transposes, shared and batched, with and without a bias, empty ones
 * too. */
#include "op/case_list.h"
#include "op/matmul/matmul.h"

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_matmul_attr *attr = call->attr;
    const tg_matmul_sizes s = tg_matmul_sizes_of(call);
    for (int64_t p = 0; p < s.batch; p++)
        for (int64_t i = 0; i < s.m; i++)
            for (int64_t j = 0; j < s.n; j++) {
                const double *a = in[0] + p * s.m * s.k, *b = in[1] + (s.shared ? 0 : p) * s.k * s.n;
                double sum = call->n_in == 3 ? in[2][j] : 0;
                for (int64_t l = 0; l < s.k; l++)
                    sum += a[attr->trans_a ? l * s.m + i : i * s.k + l] *
                           b[attr->trans_b ? j * s.k + l : l * s.n + j];
                out[0][(p * s.m + i) * s.n + j] = sum;
            }
    return TENG_OK;
}

#define NN                                                                                                   \
    &(tg_matmul_attr)                                                                                        \
    {                                                                                                        \
        0, 0, 0                                                                                              \
    }
#define NT                                                                                                   \
    &(tg_matmul_attr)                                                                                        \
    {                                                                                                        \
        0, 1, 0                                                                                              \
    }
#define TN                                                                                                   \
    &(tg_matmul_attr)                                                                                        \
    {                                                                                                        \
        1, 0, 0                                                                                              \
    }
#define TT                                                                                                   \
    &(tg_matmul_attr)                                                                                        \
    {                                                                                                        \
        1, 1, 0                                                                                              \
    }

static const teng_op_case list[] = {
    {"plain", NN, 2, {TG_X(2, 8, 12), TG_X(2, 12, 10)}},
    {"b transposed", NT, 2, {TG_X(2, 7, 16), TG_X(2, 5, 16)}},
    {"a transposed", TN, 2, {TG_X(2, 12, 6), TG_X(2, 12, 9)}},
    {"both transposed", TT, 2, {TG_X(2, 12, 6), TG_X(2, 4, 12)}},
    {"shared", NN, 2, {TG_X(3, 2, 3, 8), TG_X(2, 8, 5)}},
    {"shared, b transposed, bias", NT, 3, {TG_X(3, 2, 4, 8), TG_X(2, 6, 8), TG_X(1, 6)}},
    {"shared, f32 bias", NN, 3, {TG_X(4, 2, 1, 3, 7), TG_X(2, 7, 4), TG_F32(1, 4)}},
    {"shared, a transposed", TN, 2, {TG_X(3, 2, 8, 3), TG_X(2, 8, 6)}},
    {"shared, both transposed, bias", TT, 3, {TG_X(3, 2, 8, 3), TG_X(2, 6, 8), TG_X(1, 6)}},
    {"batch", NN, 2, {TG_X(4, 2, 3, 4, 6), TG_X(4, 2, 3, 6, 5)}},
    {"batch, b transposed, bias", NT, 3, {TG_X(3, 2, 4, 6), TG_X(3, 2, 6, 6), TG_X(1, 6)}},
    {"batch, a transposed", TN, 2, {TG_X(3, 2, 6, 4), TG_X(3, 2, 6, 5)}},
    {"batch, both transposed", TT, 2, {TG_X(3, 2, 6, 4), TG_X(3, 2, 5, 6)}},
    {"f32 out", &(tg_matmul_attr){0, 1, 1}, 3, {TG_X(3, 2, 4, 8), TG_X(2, 6, 8), TG_F32(1, 6)}},
    {"f32 out, a transposed", &(tg_matmul_attr){1, 0, 1}, 2, {TG_X(2, 40, 6), TG_X(2, 40, 9)}},
    {"f32 out, one row", &(tg_matmul_attr){0, 1, 1}, 2, {TG_X(2, 1, 33), TG_X(2, 17, 33)}},
    {"one row", NT, 3, {TG_X(2, 1, 33), TG_X(2, 17, 33), TG_F32(1, 17)}},
    {"one row, b as stored", NN, 3, {TG_X(3, 1, 1, 53), TG_X(2, 53, 70), TG_X(1, 70)}},
    {"one row, blocks", NN, 3, {TG_X(2, 1, 301), TG_X(2, 301, 710), TG_X(1, 710)}},
    {"one row, blocks, b transposed", NT, 2, {TG_X(2, 1, 710), TG_X(2, 303, 710)}},
    {"column as a row", TN, 2, {TG_X(2, 40, 1), TG_X(2, 40, 21)}},
    {"b in bf16",
     NN,
     2,
     {TG_F32(2, 9, 40), {.desc = {TENG_BF16, 2, {40, 17}}, .keep_dtype = true, .no_grad = true}}},
    {"one row, b in f16",
     NT,
     2,
     {TG_F32(2, 1, 40), {.desc = {TENG_F16, 2, {17, 40}}, .keep_dtype = true, .no_grad = true}}},
    {"one column", NN, 2, {TG_X(2, 9, 40), TG_X(2, 40, 1)}},
    {"blocks", NT, 3, {TG_X(3, 2, 65, 130), TG_X(2, 97, 130), TG_X(1, 97)}},
    {"empty sum", NN, 3, {TG_X(2, 3, 0), TG_X(2, 0, 5), TG_X(1, 5)}},
    {"empty sum, no bias", NT, 2, {TG_X(2, 3, 0), TG_X(2, 5, 0)}},
    {"no rows", NN, 2, {TG_X(2, 0, 3), TG_X(2, 3, 5)}},
    {"no columns", NN, 3, {TG_X(2, 2, 3), TG_X(2, 3, 0), TG_X(1, 0)}},
};

const teng_op_cases tg_cases_matmul = {
    .op = "matmul", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
