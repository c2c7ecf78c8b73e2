/* Operators that communicate; see collective.h. Their bytes are the memory's here: what travels is counted by
 * comm and forecast by parallel. */
#include "op/collective/collective.h"

#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "tensor/desc.h"

#include "base/fail.h"
#include "base/mem.h"

#include <stddef.h>
#include <string.h>

/* Sets of axes, by tg_axis_set: "data+tensor". Each line doubles what it is given by the next axis. */
#define SET(names) &(names)[1] /* without the first plus */
#define SETS1(names) SET(names), SET("+pipeline" names)
#define SETS2(names) SETS1(names), SETS1("+replica" names)
#define SETS3(names) SETS2(names), SETS2("+data" names)
#define SETS4(names) SETS3(names), SETS3("+expert" names)
#define SETS5(names) SETS4(names), SETS4("+context" names)
static const char *const axes_names[] = {
    "none",           SET("+pipeline"),  SETS1("+replica"), SETS2("+data"),
    SETS3("+expert"), SETS4("+context"), SETS5("+tensor"),  NULL,
};
_Static_assert(sizeof axes_names / sizeof *axes_names == (1 << TG_AXES) + 1, "a name for each set of axes");
static const char *const reduce_names[] = {"sum", "max", "min", NULL};
static const teng_attr_field reduce_fields[] = {
    {"axes", TENG_ATTR_INT, offsetof(tg_all_reduce_attr, axes), axes_names},
    {"parts", TENG_ATTR_INT, offsetof(tg_all_reduce_attr, parts), NULL},
    {"op", TENG_ATTR_INT, offsetof(tg_all_reduce_attr, op), reduce_names},
    {0},
};
static const teng_attr_field piece_fields[] = {
    {"axes", TENG_ATTR_INT, offsetof(tg_pieces_attr, axes), axes_names},
    {"parts", TENG_ATTR_INT, offsetof(tg_pieces_attr, parts), NULL},
    {"index", TENG_ATTR_INT, offsetof(tg_pieces_attr, index), NULL},
    {"dim", TENG_ATTR_INT, offsetof(tg_pieces_attr, dim), NULL},
    {"total", TENG_ATTR_INT, offsetof(tg_pieces_attr, total), NULL},
    {0},
};
static const teng_attr_field to_all_fields[] = {
    {"axes", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, axes), axes_names},
    {"parts", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, parts), NULL},
    {"index", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, index), NULL},
    {"from_dim", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, from_dim), NULL},
    {"to_dim", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, to_dim), NULL},
    {"from_total", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, from_total), NULL},
    {"to_total", TENG_ATTR_INT, offsetof(tg_all_to_all_attr, to_total), NULL},
    {0},
};

/* ---- shapes ---- */
static teng_status want_group(int64_t axes, int64_t parts)
{
    if (parts < 1 || axes < 0 || axes >= 1 << TG_AXES)
        return tg_fail(TENG_INVALID,
                       "axes is %lld and parts %lld; axes must be a set of the mesh's, parts at least 1",
                       (long long)axes, (long long)parts);
    return TENG_OK;
}

static teng_status infer_reduce(teng_op_call *call)
{
    const tg_all_reduce_attr *a = call->attr;
    TG_TRY(want_group(a->axes, a->parts));
    for (int i = 0; i < call->n_in; i++) {
        call->out[i] = call->in[i];
        if (call->in[i].dtype != call->in[0].dtype) {
            char first[TG_DESC_TEXT], other[TG_DESC_TEXT];
            return tg_fail(TENG_INVALID, "input 0 is %s and input %d is %s; they must be of one dtype",
                           tg_desc_text(first, &call->in[0]), i, tg_desc_text(other, &call->in[i]));
        }
    }
    call->n_out = call->n_in;
    return TENG_OK;
}

/* Dimension dim of `part` must be this rank's piece. */
static teng_status want_piece(const tg_pieces_attr *a, const teng_desc *part, const char *name)
{
    char text[TG_DESC_TEXT];
    int64_t begin, size;
    TG_TRY(want_group(a->axes, a->parts));
    if (a->index < 0 || a->index >= a->parts || a->dim < 0 || a->dim >= part->ndim || a->total < 0)
        return tg_fail(TENG_INVALID, "index is %lld of %lld parts, dim %lld of %s, total %lld: out of range",
                       (long long)a->index, (long long)a->parts, (long long)a->dim, tg_desc_text(text, part),
                       (long long)a->total);
    tg_mesh_cut(a->total, a->parts, a->index, &begin, &size);
    if (part->dims[a->dim] != size)
        return tg_fail(TENG_INVALID, "%s is %s; its dimension %lld must be piece %lld of %lld of %lld: %lld",
                       name, tg_desc_text(text, part), (long long)a->dim, (long long)a->index,
                       (long long)a->parts, (long long)a->total, (long long)size);
    return TENG_OK;
}

static teng_status infer_gather(teng_op_call *call)
{
    const tg_pieces_attr *a = call->attr;
    TG_TRY(want_piece(a, &call->in[0], "x"));
    call->out[0] = call->in[0];
    call->out[0].dims[a->dim] = a->total;
    return TENG_OK;
}

/* The output: this rank's piece of x along dim, whose size there is named `total`. */
static teng_status cut_output(teng_op_call *call, const tg_pieces_attr *a, const char *total)
{
    char text[TG_DESC_TEXT];
    int64_t begin;
    call->out[0] = call->in[0];
    if (a->dim >= 0 && a->dim < call->in[0].ndim && a->parts > 0 && a->total >= 0)
        tg_mesh_cut(a->total, a->parts, a->index, &begin, &call->out[0].dims[a->dim]);
    TG_TRY(want_piece(a, &call->out[0], "y"));
    if (call->in[0].dims[a->dim] == a->total) return TENG_OK;
    return tg_fail(TENG_INVALID, "x is %s; its dimension %lld must have %s = %lld elements",
                   tg_desc_text(text, &call->in[0]), (long long)a->dim, total, (long long)a->total);
}

static teng_status infer_scatter(teng_op_call *call)
{
    return cut_output(call, call->attr, "total");
}

static teng_status infer_into(teng_op_call *call)
{
    const tg_pieces_attr *a = call->attr;
    teng_desc whole = call->in[1];
    TG_TRY(want_piece(a, &call->in[1], "piece"));
    whole.dims[a->dim] = a->total;
    if (!tg_desc_equal(&whole, &call->in[0])) {
        char x[TG_DESC_TEXT], y[TG_DESC_TEXT];
        return tg_fail(TENG_INVALID, "whole is %s; with dim = %lld it must be %s",
                       tg_desc_text(x, &call->in[0]), (long long)a->dim, tg_desc_text(y, &whole));
    }
    call->out[0] = call->in[0];
    return TENG_OK;
}

static tg_pieces_attr from_of(const tg_all_to_all_attr *a)
{
    return (tg_pieces_attr){a->axes, a->parts, a->index, a->from_dim, a->from_total};
}
static tg_pieces_attr to_of(const tg_all_to_all_attr *a)
{
    return (tg_pieces_attr){a->axes, a->parts, a->index, a->to_dim, a->to_total};
}

static teng_status infer_to_all(teng_op_call *call)
{
    const tg_all_to_all_attr *a = call->attr;
    const tg_pieces_attr from = from_of(a), to = to_of(a);
    if (a->from_dim == a->to_dim)
        return tg_fail(TENG_INVALID, "from_dim and to_dim are both %lld; they must differ",
                       (long long)a->to_dim);
    TG_TRY(want_piece(&from, &call->in[0], "x"));
    TG_TRY(cut_output(call, &to, "to_total"));
    call->out[0].dims[a->from_dim] = a->from_total;
    return TENG_OK;
}

/* An addition an element of a sum; all else only moves. */
static void cost_sum(const teng_op_call *call, teng_cost *c)
{
    for (int o = 0; o < call->n_out; o++)
        c->flops += (double)tg_desc_numel(&call->out[o]);
}
static void cost_move(const teng_op_call *call, teng_cost *c)
{
    (void)call, (void)c;
}

/* ---- running ---- */
teng_status tg_collective_group(int64_t axes, int64_t parts, tg_group **out)
{
    *out = NULL;
    if (parts == 1) return TENG_OK;
    *out = tg_comm_along(tg_comm_current(), (tg_axis_set)axes);
    if (!*out) return teng_error_status();
    if (tg_group_size(*out) != parts)
        return tg_fail(TENG_STATE, "planned for %lld ranks, the group has %d", (long long)parts,
                       tg_group_size(*out));
    return TENG_OK;
}

static teng_status copy_alone(const teng_kernel_args *args)
{
    memcpy(args->out[0], args->in[0], tg_desc_bytes(&args->call->in[0]));
    return TENG_OK;
}

static teng_status run_reduce(const teng_kernel_args *args)
{
    const teng_op_call *call = args->call;
    const tg_all_reduce_attr *a = call->attr;
    int64_t counts[TENG_MAX_OUT];
    tg_group *g;
    TG_TRY(tg_collective_group(a->axes, a->parts, &g));
    for (int i = 0; i < call->n_in; i++) {
        counts[i] = tg_desc_numel(&call->in[i]);
        if (!g && args->out[i] != args->in[i]) memcpy(args->out[i], args->in[i], tg_desc_bytes(&call->in[i]));
    }
    return g ? tg_comm_all_reduce_many(g, (tg_reduce)a->op, call->in[0].dtype, call->n_in, args->in,
                                       args->out, counts)
             : TENG_OK;
}

typedef struct layout { /* whole: [outer][total][inner] */
    int64_t outer, inner;
    size_t row; /* bytes of one index of dim */
} layout;
static layout layout_of(const tg_pieces_attr *a, const teng_desc *x)
{
    layout l = {1, 1, 0};
    for (int d = 0; d < x->ndim; d++) {
        if (d < a->dim) l.outer *= x->dims[d];
        if (d > a->dim) l.inner *= x->dims[d];
    }
    l.row = (size_t)l.inner * (size_t)teng_dtype_size(x->dtype);
    return l;
}

/* The pieces one behind the other, each [outer][size][inner], and the whole: from one to the other. */
static void interleave(const tg_pieces_attr *a, const layout *l, char *whole, char *pieces, bool to_whole)
{
    for (int64_t i = 0; i < a->parts; i++) {
        int64_t begin, size;
        tg_mesh_cut(a->total, a->parts, i, &begin, &size);
        for (int64_t o = 0; o < l->outer; o++) {
            char *w = whole + (size_t)(o * a->total + begin) * l->row,
                 *p = pieces + (size_t)(begin * l->outer + o * size) * l->row;
            memcpy(to_whole ? w : p, to_whole ? p : w, (size_t)size * l->row);
        }
    }
}

enum { STACK = 64 };
typedef struct counts { /* elements of each rank's piece */
    int64_t *of, stack[STACK];
} counts;
static teng_status counts_make(counts *c, const tg_pieces_attr *a, const layout *l)
{
    int64_t begin;
    c->of = a->parts > STACK ? tg_alloc(sizeof *c->of * (size_t)a->parts) : c->stack;
    if (!c->of) return TENG_MEMORY;
    for (int64_t i = 0; i < a->parts; i++) {
        tg_mesh_cut(a->total, a->parts, i, &begin, &c->of[i]);
        c->of[i] *= l->outer * l->inner;
    }
    return TENG_OK;
}

static void counts_free(counts *c)
{
    if (c->of != c->stack) tg_free(c->of);
}

static teng_status run_gather(const teng_kernel_args *args)
{
    const tg_pieces_attr *a = args->call->attr;
    const teng_desc *x = &args->call->in[0];
    const layout l = layout_of(a, x);
    counts c;
    tg_group *g;
    TG_TRY(tg_collective_group(a->axes, a->parts, &g));
    if (!g) return copy_alone(args);
    TG_TRY(counts_make(&c, a, &l));
    char *to = l.outer > 1 ? args->workspace : args->out[0];
    const teng_status status = tg_comm_all_gather(g, x->dtype, args->in[0], to, c.of);
    if (status == TENG_OK && l.outer > 1) interleave(a, &l, args->out[0], args->workspace, true);
    counts_free(&c);
    return status;
}

static teng_status run_scatter(const teng_kernel_args *args)
{
    const tg_pieces_attr *a = args->call->attr;
    const teng_desc *x = &args->call->in[0];
    const layout l = layout_of(a, x);
    counts c;
    tg_group *g;
    TG_TRY(tg_collective_group(a->axes, a->parts, &g));
    if (!g) return copy_alone(args);
    TG_TRY(counts_make(&c, a, &l));
    const void *from = args->in[0];
    if (l.outer > 1) {
        interleave(a, &l, (char *)(uintptr_t)args->in[0], args->workspace, false);
        from = args->workspace;
    }
    const teng_status status = tg_comm_reduce_scatter(g, x->dtype, from, args->out[0], c.of);
    counts_free(&c);
    return status;
}

/* Of one rank alone the piece is the whole. */
static teng_status run_into(const teng_kernel_args *args)
{
    const tg_pieces_attr *a = args->call->attr;
    const teng_desc *piece = &args->call->in[1];
    const layout l = layout_of(a, piece);
    counts c;
    tg_group *g;
    TG_TRY(tg_collective_group(a->axes, a->parts, &g));
    if (!g) {
        memcpy(args->out[0], args->in[1], tg_desc_bytes(piece));
        return TENG_OK;
    }
    TG_TRY(counts_make(&c, a, &l));
    char *to = l.outer > 1 ? args->workspace : args->out[0];
    const teng_status status = tg_comm_all_gather(g, piece->dtype, args->in[1], to, c.of);
    if (status == TENG_OK && l.outer > 1) interleave(a, &l, args->out[0], args->workspace, true);
    counts_free(&c);
    return status;
}

/* x is cut along to_dim, a piece for each rank; what comes from rank i is piece i of y along from_dim. */
static teng_status run_to_all(const teng_kernel_args *args)
{
    const tg_all_to_all_attr *a = args->call->attr;
    const tg_pieces_attr from = from_of(a), to = to_of(a);
    const teng_desc *x = &args->call->in[0], *y = &args->call->out[0];
    const layout out = layout_of(&to, x), in = layout_of(&from, y);
    counts send, receive;
    tg_group *g;
    TG_TRY(tg_collective_group(a->axes, a->parts, &g));
    if (!g) return copy_alone(args);
    char *packed = args->workspace, *arrived = in.outer > 1 ? packed : args->out[0];
    const void *parts = args->in[0];
    if (out.outer > 1) {
        interleave(&to, &out, (char *)(uintptr_t)args->in[0], packed, false);
        parts = packed;
        if (in.outer > 1) arrived += tg_desc_bytes(x);
    }
    teng_status status = counts_make(&send, &to, &out);
    if (status != TENG_OK) return status;
    status = counts_make(&receive, &from, &in);
    if (status == TENG_OK) status = tg_comm_all_to_all(g, x->dtype, parts, send.of, arrived, receive.of);
    if (status == TENG_OK && in.outer > 1) interleave(&from, &in, args->out[0], arrived, true);
    counts_free(&send);
    counts_free(&receive);
    return status;
}

static teng_status prepare_to_all(const teng_op_call *call, teng_prepared *out)
{
    const tg_all_to_all_attr *a = call->attr;
    const tg_pieces_attr from = from_of(a), to = to_of(a);
    if (a->parts == 1) return TENG_OK;
    if (layout_of(&to, &call->in[0]).outer > 1) out->workspace += tg_desc_bytes(&call->in[0]);
    if (layout_of(&from, &call->out[0]).outer > 1) out->workspace += tg_desc_bytes(&call->out[0]);
    return TENG_OK;
}

/* Room for the whole where pieces do not lie one behind the other in it. */
static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    const tg_pieces_attr *a = call->attr;
    const bool gather = call->out[0].dims[a->dim] > call->in[0].dims[a->dim];
    if (a->parts > 1 && layout_of(a, &call->in[0]).outer > 1)
        out->workspace = tg_desc_bytes(gather ? &call->out[0] : &call->in[0]);
    return TENG_OK;
}

#define TABLE(name, ...)                                                                                     \
    static const teng_kernel name##_kernels[] = {__VA_ARGS__, {0}};                                          \
    static const teng_kernel_table name##_tables[] = {{"cpu", 0, name##_kernels}, {NULL, 0, NULL}}
TABLE(reduce, {"pairwise, sums in the order of the ranks", NULL, NULL, run_reduce, NULL});
TABLE(gather, {"pairwise", NULL, prepare, run_gather, NULL});
TABLE(scatter, {"pairwise, sums in the order of the ranks", NULL, prepare, run_scatter, NULL});
TABLE(to_all, {"pairwise", NULL, prepare_to_all, run_to_all, NULL});
TABLE(into, {"pairwise", NULL, prepare, run_into, NULL});

#define AFTER "it is put into a rank's graph after differentiation"
const teng_op_spec tg_op_all_reduce = {
    .name = "all_reduce",
    .doc = "y = the sum over the ranks along axes of their x (or maximum, minimum), in the order of the "
           "ranks; 16-bit values are summed in f32. Several inputs of one dtype travel together, each to its "
           "own output.",
    .min_in = 1,
    .max_in = TENG_MAX_OUT,
    .n_out = -1,
    .attr_size = sizeof(tg_all_reduce_attr),
    .attrs = reduce_fields,
    .traits = TENG_OP_COMMUNICATES,
    .inplace = {1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
                1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
                1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
                1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31},
    .infer = infer_reduce,
    .no_grad = AFTER,
    .no_place = AFTER,
    .cost = cost_sum,
    .kernels = reduce_tables,
    .precision = TENG_PRECISION_MOVE,
};
const teng_op_spec tg_op_all_gather = {
    .name = "all_gather",
    .doc = "y = the pieces of the ranks along axes, put together along dim, which then has total elements.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_pieces_attr),
    .attrs = piece_fields,
    .traits = TENG_OP_COMMUNICATES,
    .infer = infer_gather,
    .no_grad = AFTER,
    .no_place = AFTER,
    .cost = cost_move,
    .kernels = gather_tables,
    .precision = TENG_PRECISION_MOVE,
};
const teng_op_spec tg_op_reduce_scatter = {
    .name = "reduce_scatter",
    .doc = "y = piece index of parts along dim of the sum over the ranks along axes of their x, summed as "
           "all_reduce does.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_pieces_attr),
    .attrs = piece_fields,
    .traits = TENG_OP_COMMUNICATES,
    .infer = infer_scatter,
    .no_grad = AFTER,
    .no_place = AFTER,
    .cost = cost_sum,
    .kernels = scatter_tables,
    .precision = TENG_PRECISION_MOVE,
};
const teng_op_spec tg_op_all_to_all = {
    .name = "all_to_all",
    .doc = "y = the ranks' pieces along from_dim put together, of which this rank takes piece index of parts "
           "along to_dim.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(tg_all_to_all_attr),
    .attrs = to_all_fields,
    .traits = TENG_OP_COMMUNICATES,
    .infer = infer_to_all,
    .no_grad = AFTER,
    .no_place = AFTER,
    .cost = cost_move,
    .kernels = to_all_tables,
    .precision = TENG_PRECISION_MOVE,
};
const teng_op_spec tg_op_gather_into = {
    .name = "gather_into",
    .doc = "whole <- the pieces of the ranks along axes, put together along dim. Inputs whole, "
           "piece.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(tg_pieces_attr),
    .attrs = piece_fields,
    .traits = TENG_OP_COMMUNICATES,
    .updates = {1},
    .infer = infer_into,
    .no_grad = AFTER,
    .no_place = AFTER,
    .cost = cost_move,
    .kernels = into_tables,
    .precision = TENG_PRECISION_MOVE,
};
