/*
 * expert_dispatch and expert_return: rows go to the ranks of their experts and come back. How many go where
 * is known when they run: numbers first, then the rows themselves, so that only what is routed is sent.
 */
#include "op/expert_dispatch/expert_dispatch.h"

#include "base/fail.h"
#include "comm/comm.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "op/want.h"

#include <string.h>

static const teng_attr_field fields[] = {
    {"axes", TENG_ATTR_INT, offsetof(tg_expert_attr, axes), NULL},
    {"parts", TENG_ATTR_INT, offsetof(tg_expert_attr, parts), NULL},
    {0},
};

static teng_status want_rows(const teng_op_call *call)
{
    const tg_expert_attr *a = call->attr;
    const teng_desc *rows = &call->in[0], *counts = &call->in[1];
    char text[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "rows"));
    TG_TRY(tg_want_dtype(call, 1, "counts", TENG_I32));
    if (rows->ndim != 2)
        return tg_fail(TENG_INVALID, "rows are %s; they must be [rows, C]", tg_desc_text(text, rows));
    if (a->parts < 1 || counts->ndim != 1 || counts->dims[0] % a->parts)
        return tg_fail(TENG_INVALID, "counts are %s; the experts must be a multiple of the %lld ranks",
                       tg_desc_text(text, counts), (long long)a->parts);
    return TENG_OK;
}

static teng_status infer(teng_op_call *call)
{
    const tg_expert_attr *a = call->attr;
    TG_TRY(want_rows(call));
    const int64_t own = call->in[1].dims[0] / a->parts;
    call->out[0] = call->in[0];
    call->out[0].dims[0] *= a->parts;
    call->out[1] = tg_desc_make(TENG_I32, 1, &own);
    call->out[2] = tg_desc_make(TENG_I32, 2, (int64_t[]){a->parts, own});
    return TENG_OK;
}

static teng_status infer_return(teng_op_call *call)
{
    const tg_expert_attr *a = call->attr;
    char text[TG_DESC_TEXT];
    TG_TRY(want_rows(call));
    const teng_desc received =
        tg_desc_make(TENG_I32, 2, (int64_t[]){a->parts, call->in[1].dims[0] / a->parts});
    TG_TRY(tg_want_dtype(call, 2, "received", TENG_I32));
    TG_TRY(tg_want_dims(call, 2, "received", &received, "[parts, experts of a rank]"));
    if (call->in[0].dims[0] % a->parts)
        return tg_fail(TENG_INVALID, "rows are %s; they must be room for those of %lld ranks",
                       tg_desc_text(text, &call->in[0]), (long long)a->parts);
    call->out[0] = call->in[0];
    call->out[0].dims[0] /= a->parts;
    return TENG_OK;
}

/* On other axes than its own: columns, or summands of the rows. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
    (void)call;
    teng_place_add(rules, (teng_place[]){1, R, R}, (teng_place[]){1, R, R});
    teng_place_add(rules, (teng_place[]){P, R, R}, (teng_place[]){P, R, R});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    (void)call, (void)c; /* it only moves */
}

/* ---- running ---- */
typedef struct exchange {
    tg_group *group;    /* NULL: this rank is all */
    int64_t parts, own; /* experts of a rank */
    int64_t most;       /* rows of a rank at most */
    size_t row;         /* bytes */
    /* [parts], in the workspace: elements of this rank's tokens by the rank of their experts; of the tokens
     * of its experts by the rank they belong to; numbers that each rank sends */
    int64_t *here, *there, *numbers;
    char *packed; /* rows of this rank's experts, by the rank they belong to */
} exchange;

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    const tg_expert_attr *a = call->attr;
    const teng_desc *there = call->n_out > 1 ? &call->out[0] : &call->in[0];
    out->workspace = 3 * sizeof(int64_t) * (size_t)a->parts + tg_desc_bytes(there);
    return TENG_OK;
}

static teng_status begin(const teng_kernel_args *args, int64_t most, exchange *x)
{
    const tg_expert_attr *a = args->call->attr;
    const teng_desc *rows = &args->call->in[0];
    const int32_t *counts = args->in[1];
    int64_t sum = 0;
    *x = (exchange){.parts = a->parts,
                    .own = args->call->in[1].dims[0] / a->parts,
                    .most = most,
                    .row = (size_t)(rows->dims[1] * teng_dtype_size(rows->dtype)),
                    .here = args->workspace};
    x->there = x->here + x->parts;
    x->numbers = x->there + x->parts;
    x->packed = (char *)(x->numbers + x->parts);
    for (int64_t m = 0; m < x->parts; m++) {
        x->here[m] = 0;
        for (int64_t e = m * x->own; e < (m + 1) * x->own; e++) {
            if (counts[e] < 0)
                return tg_fail(TENG_INVALID, "counts[%lld] is %d; it is a number of rows", (long long)e,
                               counts[e]);
            x->here[m] += (int64_t)counts[e] * rows->dims[1];
            sum += counts[e];
        }
    }
    if (sum > most)
        return tg_fail(TENG_INVALID, "counts sum to %lld, there are %lld rows", (long long)sum,
                       (long long)most);
    return tg_collective_group(a->axes, x->parts, &x->group);
}

/* there[] from what each rank sends; an error when they are more rows than there is room for. */
static teng_status count_there(exchange *x, const int32_t *received, int64_t width)
{
    int64_t sum = 0;
    for (int64_t m = 0; m < x->parts; m++) {
        x->there[m] = 0;
        for (int64_t e = 0; e < x->own; e++)
            x->there[m] += (int64_t)received[m * x->own + e] * width;
        sum += x->there[m];
    }
    if (sum <= x->most * x->parts * width) return TENG_OK;
    return tg_fail(TENG_INVALID,
                   "%lld rows come, there is room for %lld: another rank has more than this one",
                   (long long)(sum / width), (long long)(x->most * x->parts));
}

/* Between the order of experts, in which rows are worked on, and that of ranks, in which they travel. */
static void reorder(const exchange *x, const int32_t *received, char *by_expert, char *by_rank,
                    bool to_expert)
{
    size_t at = 0;
    for (int64_t e = 0; e < x->own; e++) {
        size_t from = 0; /* of expert e in the rows of rank m */
        for (int64_t m = 0; m < x->parts; m++) {
            size_t before = 0, all = 0;
            for (int64_t i = 0; i < x->own; i++) {
                if (i < e) before += (size_t)received[m * x->own + i];
                all += (size_t)received[m * x->own + i];
            }
            const size_t bytes = (size_t)received[m * x->own + e] * x->row;
            char *travels = by_rank + (from + before) * x->row;
            memcpy(to_expert ? by_expert + at : travels, to_expert ? travels : by_expert + at, bytes);
            at += bytes;
            from += all;
        }
    }
}

static teng_status run(const teng_kernel_args *args)
{
    const int64_t *d = args->call->in[0].dims;
    int32_t *counts = args->out[1], *received = args->out[2];
    exchange x;
    int64_t rows = 0;
    TG_TRY(begin(args, d[0], &x));
    for (int64_t m = 0; m < x.parts; m++)
        x.numbers[m] = x.own;
    if (x.group)
        TG_TRY(tg_comm_all_to_all(x.group, TENG_I32, args->in[1], x.numbers, received, x.numbers));
    else
        memcpy(received, args->in[1], sizeof *received * (size_t)x.own);
    TG_TRY(count_there(&x, received, d[1]));
    for (int64_t e = 0; e < x.own; e++) {
        counts[e] = 0;
        for (int64_t m = 0; m < x.parts; m++)
            counts[e] += received[m * x.own + e];
        rows += counts[e];
    }
    if (x.group) {
        TG_TRY(tg_comm_all_to_all(x.group, args->call->in[0].dtype, args->in[0], x.here, x.packed, x.there));
        reorder(&x, received, args->out[0], x.packed, true);
    } else {
        memcpy(args->out[0], args->in[0], (size_t)rows * x.row);
    }
    memset((char *)args->out[0] + (size_t)rows * x.row, 0, (size_t)(x.most * x.parts - rows) * x.row);
    return TENG_OK;
}

static teng_status run_return(const teng_kernel_args *args)
{
    const int64_t *d = args->call->in[0].dims;
    const int32_t *received = args->in[2];
    exchange x;
    size_t bytes = 0;
    TG_TRY(begin(args, args->call->out[0].dims[0], &x));
    for (int64_t i = 0; i < x.parts * x.own; i++)
        if (received[i] < 0)
            return tg_fail(TENG_INVALID, "received[%lld] is %d; it is a number of rows", (long long)i,
                           received[i]);
    TG_TRY(count_there(&x, received, d[1]));
    for (int64_t m = 0; m < x.parts; m++)
        bytes += (size_t)x.here[m];
    bytes *= (size_t)teng_dtype_size(args->call->in[0].dtype);
    if (x.group) {
        reorder(&x, received, (char *)(uintptr_t)args->in[0], x.packed, false);
        TG_TRY(tg_comm_all_to_all(x.group, args->call->in[0].dtype, x.packed, x.there, args->out[0], x.here));
    } else {
        memcpy(args->out[0], args->in[0], bytes);
    }
    memset((char *)args->out[0] + bytes, 0, (size_t)x.most * x.row - bytes);
    return TENG_OK;
}

static const teng_kernel dispatch_kernels[] = {{"numbers, then rows", NULL, prepare, run, NULL}, {0}};
static const teng_kernel_table dispatch_tables[] = {{"cpu", 0, dispatch_kernels}, {NULL, 0, NULL}};
static const teng_kernel return_kernels[] = {{"rows", NULL, prepare, run_return, NULL}, {0}};
static const teng_kernel_table return_tables[] = {{"cpu", 0, return_kernels}, {NULL, 0, NULL}};

#define AFTER "it is put into a rank's graph after differentiation"
const teng_op_spec tg_op_expert_dispatch = {
    .name = "expert_dispatch",
    .doc = "Sends rows [M, C], sorted by expert with counts i32 [E], to the ranks along axes, each of which "
           "has E / "
           "parts experts in order. Outputs what this one gets: rows [M · parts, C] sorted by its experts, "
           "then by the "
           "rank they come from, zeros behind; counts i32 [E / parts]; received i32 [parts, E / parts], "
           "those of each "
           "rank. No row is dropped.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 3,
    .attr_size = sizeof(tg_expert_attr),
    .attrs = fields,
    .traits = TENG_OP_COMMUNICATES,
    .infer = infer,
    .no_grad = AFTER,
    .place = place,
    .cost = cost,
    .kernels = dispatch_tables,
    .precision = TENG_PRECISION_MOVE,
};
const teng_op_spec tg_op_expert_return = {
    .name = "expert_return",
    .doc = "The way back of expert_dispatch: rows [M · parts, C] as it gave them, counts i32 [E] as it took "
           "them, "
           "received i32 [parts, E / parts] as it gave them → [M, C] in the order of this rank's tokens, "
           "zeros behind.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(tg_expert_attr),
    .attrs = fields,
    .traits = TENG_OP_COMMUNICATES,
    .infer = infer_return,
    .no_grad = AFTER,
    .place = place,
    .cost = cost,
    .kernels = return_tables,
    .precision = TENG_PRECISION_MOVE,
};
