/* Cases of moe_route and its gradient. */
#include "op/case_list.h"
#include "op/moe_route/moe_route.h"

#include <math.h>

static double soft(const double *row, int64_t n, int64_t e)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(row[i] - row[e]);
    return 1 / sum;
}

static teng_status forward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_moe_route_attr *attr = call->attr;
    const int64_t n = call->in[0].dims[1];
    for (int64_t t = 0; t < call->in[0].dims[0]; t++) {
        const double *row = in[0] + t * n;
        double *weights = out[0] + t * attr->top_k, *experts = out[1] + t * attr->top_k, sum = 0;
        for (int64_t k = 0; k < attr->top_k; k++) {
            int64_t best = -1;
            for (int64_t e = 0; e < n; e++) {
                bool taken = false;
                for (int64_t j = 0; j < k; j++)
                    taken |= (int64_t)experts[j] == e;
                if (!taken && (best < 0 || row[e] > row[best])) best = e;
            }
            experts[k] = (double)best;
            weights[k] = soft(row, n, best);
            sum += weights[k];
        }
        for (int64_t k = 0; k < attr->top_k && attr->renormalise; k++)
            weights[k] /= sum;
    }
    return TENG_OK;
}

static teng_status backward(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_moe_route_attr *attr = call->attr;
    const int64_t n = call->in[0].dims[1], top_k = attr->top_k;
    for (int64_t t = 0; t < call->in[0].dims[0]; t++) {
        const double *row = in[0] + t * n, *experts = in[1] + t * top_k, *dw = in[2] + t * top_k;
        double *d = out[0] + t * n, sum = 0, dot = 0;
        for (int64_t k = 0; k < top_k; k++)
            sum += soft(row, n, (int64_t)experts[k]);
        if (!attr->renormalise) sum = 1;
        for (int64_t k = 0; k < top_k; k++)
            dot += soft(row, n, (int64_t)experts[k]) / sum * dw[k];
        for (int64_t e = 0; e < n; e++)
            d[e] = attr->renormalise ? 0 : -soft(row, n, e) * dot;
        for (int64_t k = 0; k < top_k; k++)
            d[(int64_t)experts[k]] +=
                soft(row, n, (int64_t)experts[k]) / sum * (dw[k] - (attr->renormalise ? dot : 0));
    }
    return TENG_OK;
}

static const teng_op_case list[] = {
    {"two of four", &(tg_moe_route_attr){2, 1}, 1, {TG_X(2, 6, 4)}},
    {"three of seven", &(tg_moe_route_attr){3, 0}, 1, {TG_X(2, 10, 7)}},
    {"all", &(tg_moe_route_attr){5, 0}, 1, {TG_X(2, 4, 5)}},
    {"one", &(tg_moe_route_attr){1, 0}, 1, {TG_X(2, 8, 19)}},
    {"equal logits",
     &(tg_moe_route_attr){2, 1},
     1,
     {{.desc = {TENG_F32, 2, {2, 6}}, .fill = TENG_FILL_CONST, .lo = 1, .no_grad = true}}},
    {"blocks", &(tg_moe_route_attr){8, 1}, 1, {TG_X(2, 300, 128)}},
};
static const teng_op_case grads[] = {
    {"two of four", &(tg_moe_route_attr){2, 1}, 3, {TG_X(2, 6, 4), TG_IDS(4, 2, 6, 2), TG_X(2, 6, 2)}},
    {"three of seven", &(tg_moe_route_attr){3, 0}, 3, {TG_X(2, 10, 7), TG_IDS(7, 2, 10, 3), TG_X(2, 10, 3)}},
    {"more than a few",
     &(tg_moe_route_attr){40, 0},
     3,
     {TG_X(2, 4, 50), TG_IDS(50, 2, 4, 40), TG_X(2, 4, 40)}},
    {"blocks", &(tg_moe_route_attr){8, 1}, 3, {TG_X(2, 300, 128), TG_IDS(128, 2, 300, 8), TG_X(2, 300, 8)}},
};

const teng_op_cases tg_cases_moe_route = {
    .op = "moe_route", .list = list, .n = TG_COUNT(list), .reference = forward, .dtypes = TG_ALL_FLOATS};
const teng_op_cases tg_cases_moe_route_grad = {.op = "moe_route_grad",
                                               .list = grads,
                                               .n = TG_COUNT(grads),
                                               .reference = backward,
                                               .dtypes = TG_ALL_FLOATS};
