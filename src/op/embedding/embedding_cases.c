/* Cases of embedding and its gradient. */
#include "op/case_list.h"
#include "op/embedding/embedding.h"

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t cols = call->in[0].dims[1];
    for (int64_t p = 0; p < tg_desc_numel(&call->in[1]); p++) {
        const int64_t row = (int64_t)in[1][p] - ((const tg_embedding_attr *)call->attr)->begin;
        for (int64_t c = 0; c < cols; c++)
            out[0][p * cols + c] = row < 0 || row >= call->in[0].dims[0] ? 0 : in[0][row * cols + c];
    }
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const int64_t cols = call->out[0].dims[1];
    for (int64_t i = 0; i < tg_desc_numel(&call->out[0]); i++)
        out[0][i] = call->n_in == 3 ? in[2][i] : 0;
    for (int64_t p = 0; p < tg_desc_numel(&call->in[1]); p++) {
        const int64_t row = (int64_t)in[1][p] - ((const tg_embedding_grad_attr *)call->attr)->piece.begin;
        for (int64_t c = 0; c < cols && row >= 0 && row < call->out[0].dims[0]; c++)
            out[0][row * cols + c] += in[0][p * cols + c];
    }
    return TENG_OK;
}

#define PIECE(begin, total)                                                                                  \
    &(tg_embedding_attr)                                                                                     \
    {                                                                                                        \
        begin, total                                                                                         \
    }
#define ROWS(begin, total, vocab)                                                                            \
    &(tg_embedding_grad_attr)                                                                                \
    {                                                                                                        \
        {begin, total}, vocab                                                                                \
    }

static const teng_op_case list[] = {
    {"batch", PIECE(0, 0), 2, {TG_X(2, 11, 7), TG_IDS(11, 2, 3, 5)}},
    {"one id",
     PIECE(0, 0),
     2,
     {TG_X(2, 5, 33),
      {.desc = {TENG_I32, 0, {0}}, .fill = TENG_FILL_CONST, .lo = 4, .keep_dtype = true, .no_grad = true}}},
    {"blocks", PIECE(0, 0), 2, {TG_X(2, 300, 515), TG_IDS(300, 2, 2, 90)}},
    {"even vocabulary", PIECE(0, 0), 2, {TG_X(2, 12, 7), TG_IDS(12, 2, 2, 6)}},
    {"piece", PIECE(7, 20), 2, {TG_X(2, 8, 7), TG_IDS(20, 2, 3, 5)}},
    {"empty piece", PIECE(3, 3), 2, {TG_X(2, 0, 7), TG_IDS(3, 1, 5)}},
};
static const teng_op_case grads[] = {
    {"batch", ROWS(0, 0, 11), 2, {TG_X(3, 3, 5, 7), TG_IDS(11, 2, 3, 5)}},
    {"all the same", ROWS(0, 0, 5), 2, {TG_X(2, 40, 33), TG_IDS(1, 1, 40)}},
    {"blocks", ROWS(0, 0, 300), 2, {TG_X(3, 2, 90, 515), TG_IDS(40, 2, 2, 90)}},
    {"even vocabulary", ROWS(0, 0, 12), 2, {TG_X(3, 2, 6, 7), TG_IDS(12, 2, 2, 6)}},
    {"piece", ROWS(7, 20, 8), 2, {TG_X(3, 3, 5, 7), TG_IDS(20, 2, 3, 5)}},
    {"empty piece", ROWS(3, 3, 0), 2, {TG_X(2, 5, 7), TG_IDS(3, 1, 5)}},
    {"onto", ROWS(0, 0, 11), 3, {TG_X(3, 3, 5, 7), TG_IDS(11, 2, 3, 5), TG_X(2, 11, 7)}},
    {"onto, blocks", ROWS(0, 0, 300), 3, {TG_X(3, 2, 90, 515), TG_IDS(40, 2, 2, 90), TG_X(2, 300, 515)}},
    {"onto a piece", ROWS(7, 20, 8), 3, {TG_X(3, 3, 5, 7), TG_IDS(20, 2, 3, 5), TG_X(2, 8, 7)}},
};

const teng_op_cases tg_cases_embedding = {
    .op = "embedding", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_embedding_grad = {.op = "embedding_grad",
                                               .list = grads,
                                               .n = TG_COUNT(grads),
                                               .reference = backward,
                                               .dtypes = TG_ALL_FLOATS};
