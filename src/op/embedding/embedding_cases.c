/* Cases of embedding and its gradient. */
#include "op/case_list.h"

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t cols = call->in[0].dims[1];
    for (int64_t p = 0; p < tg_desc_numel(&call->in[1]); p++)
        for (int64_t c = 0; c < cols; c++)
            out[0][p * cols + c] = in[0][(int64_t)in[1][p] * cols + c];
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t cols = call->out[0].dims[1];
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = 0;
    for (int64_t p = 0; p < tg_desc_numel(&call->in[1]); p++)
        for (int64_t c = 0; c < cols; c++)
            out[0][(int64_t)in[1][p] * cols + c] += in[0][p * cols + c];
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"batch", NULL, 2, {TG_X(2, 11, 7), TG_IDS(11, 2, 3, 5)}},
    {"one id",
     NULL,
     2,
     {TG_X(2, 5, 33),
      {.desc = {TENG_I32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 4, .keep_dtype = true, .no_grad = true}}},
    {"blocks", NULL, 2, {TG_X(2, 300, 515), TG_IDS(300, 2, 2, 90)}},
};
static const teng_op_case grads[] = {
    {"batch", &(int64_t){11}, 2, {TG_X(3, 3, 5, 7), TG_IDS(11, 2, 3, 5)}},
    {"all the same", &(int64_t){5}, 2, {TG_X(2, 40, 33), TG_IDS(1, 1, 40)}},
    {"blocks", &(int64_t){300}, 2, {TG_X(3, 2, 90, 515), TG_IDS(40, 2, 2, 90)}},
};

const teng_op_cases tg_cases_embedding = {
    .op = "embedding", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_embedding_grad = {.op = "embedding_grad",
                                               .list = grads,
                                               .n = TG_COUNT(grads),
                                               .reference = backward,
                                               .dtypes = TG_ALL_FLOATS};
