/*
 * From one placement to another: which collectives, in which order, and what they cost. What a consumer needs
 * otherwise is made beside the value and serves its phase; what was partial is summed for good.
 *
 * The pieces of a split dimension are not always runs in order: on the context axis rank i of n has pieces i
 * and 2n - 1 - i of 2n, and a dimension of groups is split group by group. Then a gather is followed by, and
 * a slice is made of, smaller cuts.
 */
#include "parallel/parallel_impl.h"

#include "base/fail.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "op/piece/piece.h"
#include "op/slice/slice.h"
#include "tensor/desc.h"

#include <string.h>

static double share(int parts)
{
    return (double)(parts - 1) / (double)parts;
}

/* Bytes of the value on this rank if the axis did not split it. */
static double bytes_along(par *p, const par_value *x, tg_axis axis)
{
    tg_placement at = x->at;
    at.on[axis] = TENG_REPLICATED;
    at.shard = 0;
    const teng_desc d = tg_mesh_local(&p->o->mesh, p->o->rank, &x->whole, &at);
    return (double)tg_desc_bytes(&d);
}

double par_share(const par *p, const par_value *x)
{
    const teng_desc d = tg_mesh_local(&p->o->mesh, p->o->rank, &x->whole, &x->at);
    return (double)tg_desc_bytes(&d) / ((double)tg_desc_bytes(&x->whole) + 1e-9);
}

double par_move_cost(par *p, const par_value *x, const teng_tensor *global, tg_axis axis, teng_place from,
                     teng_place to)
{
    const int parts = p->o->mesh.size[axis];
    const bool context = axis == TG_AXIS_CONTEXT;
    if (from == to) return 0;
    if (from == PAR_THERE || to == PAR_THERE) {
        const bool counts = from == TENG_PARTIAL && x->maker && x->maker->op == &tg_op_moe_sort;
        if (counts) return 0; /* they come with the rows */
        return from != 0 && to != 0 ? PAR_FORBIDDEN : share(parts) * bytes_along(p, x, axis) / parts;
    }
    if (to == TENG_PARTIAL) return PAR_FORBIDDEN;
    const double whole = bytes_along(p, x, axis);
    if (from == TENG_PARTIAL) {
        if (to == TENG_REPLICATED) return 2 * share(parts) * whole;
        const bool stream = axis == TG_AXIS_TENSOR && p->o->sequence && to == 1 && x->whole.ndim == 3;
        return stream ? share(parts) * whole : PAR_FORBIDDEN;
    }
    if (from == TENG_REPLICATED) { /* a slice */
        if (par_makes_split(p, global, axis, to)) return 1e-9 * whole;
        return context && to == 0 ? PAR_FORBIDDEN : 1e-6 * whole;
    }
    if (x->weight && axis != TG_AXIS_DATA) return 1e20 + whole;
    if (context) return from == 0 ? PAR_FORBIDDEN : 1e15 + whole;
    return share(parts) * whole;
}

/* ---- the record ---- */
tg_node *par_record(par *p, const teng_tensor *global, tg_node *node, tg_axis_set axes, double bytes)
{
    if (!node) return NULL;
    tg_strbuf where = {0};
    tg_node_where(p->node, &where);
    const tg_parallel_move move = {
        .op = node->op->name,
        .axes = axes,
        .phase = node->phase,
        .bytes = bytes,
        .desc = global->desc,
        .value = global->name ? tg_arena_strdup(p->out->arena, global->name) : NULL,
        .where = tg_arena_strdup(p->out->arena, tg_strbuf_str(&where)),
        .node = node,
    };
    tg_strbuf_free(&where);
    return move.where && tg_vec_push(&p->out->moves, move) ? node : NULL;
}

static teng_tensor *first(const tg_node *node)
{
    return node ? node->out[0] : NULL;
}

static teng_tensor *cast_to(par *p, teng_tensor *v, teng_dtype to)
{
    const int64_t attr = to;
    return !v || v->desc.dtype == to ? v : first(par_append(p, &tg_op_cast, &attr, 1, &v));
}

teng_tensor *par_all_reduce(par *p, const teng_tensor *global, teng_tensor *v, tg_axis_set axes)
{
    const int parts = tg_mesh_parts(&p->o->mesh, p->coord, axes, NULL);
    const tg_all_reduce_attr attr = {.axes = axes, .parts = parts, .op = TG_REDUCE_SUM};
    return first(par_record(p, global, par_append(p, &tg_op_all_reduce, &attr, 1, &v), axes,
                            2 * share(parts) * (double)tg_desc_bytes(&v->desc)));
}

static tg_pieces_attr pieces(const par *p, tg_axis_set axes, int dim, int64_t total)
{
    int index;
    const int parts = tg_mesh_parts(&p->o->mesh, p->coord, axes, &index);
    return (tg_pieces_attr){.axes = axes, .parts = parts, .index = index, .dim = dim, .total = total};
}

teng_tensor *par_gather_into(par *p, const teng_tensor *global, teng_tensor *whole, teng_tensor *piece,
                             const tg_placement *split)
{
    const int d = split->shard_dim;
    const tg_pieces_attr attr = pieces(p, split->shard, d, whole->desc.dims[d]);
    const double bytes = (double)(attr.parts - 1) * (double)tg_desc_bytes(&piece->desc);
    teng_tensor *in[] = {whole, piece};
    return first(par_record(p, global, par_append(p, &tg_op_gather_into, &attr, 2, in), split->shard, bytes));
}

void par_shard_cut(const par *p, const tg_placement *split, int64_t n, int64_t *begin, int64_t *size)
{
    int index;
    const int parts = tg_mesh_parts(&p->o->mesh, p->coord, split->shard, &index);
    tg_mesh_cut(n, parts, index, begin, size);
}

/* ---- pieces that are not one run each ---- */
static teng_tensor *cut(par *p, teng_tensor *v, int dim, int64_t begin, int64_t size)
{
    if (begin == 0 && size == v->desc.dims[dim]) return v;
    const tg_slice_attr attr = {dim, begin, size};
    return first(par_append(p, &tg_op_slice, &attr, 1, &v));
}

static teng_tensor *join(par *p, teng_tensor **v, int n, int dim)
{
    const int64_t attr = dim;
    for (int i = 0; i < n; i++)
        if (!v[i]) return NULL;
    return n == 1 ? v[0] : first(par_append(p, &tg_op_concat, &attr, n, v));
}

teng_tensor *par_shard_of(par *p, teng_tensor *v, const tg_placement *split, bool in_place)
{
    tg_piece_attr rows;
    par_shard_cut(p, split, v->desc.dims[split->shard_dim], &rows.begin, &rows.size);
    return in_place && split->shard_dim == 0 ? first(par_append(p, &tg_op_piece, &rows, 1, &v))
                                             : cut(p, v, split->shard_dim, rows.begin, rows.size);
}

/* Pieces of equal size, put in another order: order[i] is which one comes i-th. */
static teng_tensor *reorder(par *p, teng_tensor *v, int dim, const int *order, int n)
{
    teng_tensor *part[64];
    const int64_t size = v->desc.dims[dim] / n;
    for (int i = 0; i < n; i++)
        part[i] = cut(p, v, dim, order[i] * size, size);
    return join(p, part, n, dim);
}

/* How many equal pieces the whole dimension is made of, and in which order the ranks have them one after the
 * other; 0: one run each. */
static teng_status order_of(const par *p, const tg_placement *at, tg_axis axis, int *order, int *n)
{
    const int parts = p->o->mesh.size[axis];
    const int groups = axis == TG_AXIS_TENSOR && at->groups > 1 ? at->groups : 0;
    *n = axis == TG_AXIS_CONTEXT ? 2 * parts : groups * parts;
    if (*n > 64)
        return tg_fail(
            TENG_UNSUPPORTED,
            "a value that is split in %d pieces on the %s axis cannot be put together in one place "
            "(the limit is 64)",
            *n, tg_axis_name(axis));
    for (int i = 0, k = 0; *n && i < parts; i++)
        for (int j = 0; j < *n / parts; j++)
            order[k++] = axis == TG_AXIS_CONTEXT ? (j ? *n - 1 - i : i) : j * parts + i;
    return TENG_OK;
}

/* The ranks' runs of dimension d one after the other; open: what comes of it. */
static teng_tensor *gather_runs(par *p, const teng_tensor *global, teng_tensor *v, int d,
                                const tg_placement *open, tg_axis_set axes)
{
    const teng_desc whole = tg_mesh_local(&p->o->mesh, p->o->rank, &par_of(p, global)->whole, open);
    const tg_pieces_attr attr = pieces(p, axes, d, whole.dims[d]);
    const double bytes = (double)(attr.parts - 1) * (double)tg_desc_bytes(&v->desc);
    return first(par_record(p, global, par_append(p, &tg_op_all_gather, &attr, 1, &v), axes, bytes));
}

static teng_tensor *gather(par *p, const teng_tensor *global, teng_tensor *v, const tg_placement *at,
                           tg_axis axis)
{
    const int d = at->on[axis];
    int order[64], inverse[64], n;
    tg_placement open = *at;
    open.on[axis] = TENG_REPLICATED;
    if (order_of(p, at, axis, order, &n) != TENG_OK) return NULL;
    teng_tensor *all = gather_runs(p, global, v, d, &open, 1u << axis);
    if (!all || n == 0) return all;
    for (int i = 0; i < n; i++)
        inverse[order[i]] = i;
    return reorder(p, all, d, inverse, n);
}

static teng_tensor *slice(par *p, teng_tensor *v, const tg_placement *want, tg_axis axis)
{
    const int d = want->on[axis], parts = p->o->mesh.size[axis], i = p->coord[axis];
    int order[64], n;
    if (order_of(p, want, axis, order, &n) != TENG_OK) return NULL;
    if (n) {
        teng_tensor *part[64];
        const int own = n / parts;
        const int64_t size = v->desc.dims[d] / n;
        for (int j = 0; j < own; j++)
            part[j] = cut(p, v, d, order[i * own + j] * size, size);
        return join(p, part, own, d);
    }
    int64_t begin, size;
    tg_mesh_cut(v->desc.dims[d], parts, i, &begin, &size);
    return cut(p, v, d, begin, size);
}

static teng_tensor *scatter_runs(par *p, const teng_tensor *global, teng_tensor *v, int d, tg_axis_set axes)
{
    const tg_pieces_attr attr = pieces(p, axes, d, v->desc.dims[d]);
    const double bytes = share((int)attr.parts) * (double)tg_desc_bytes(&v->desc);
    return first(par_record(p, global, par_append(p, &tg_op_reduce_scatter, &attr, 1, &v), axes, bytes));
}

static teng_tensor *reduce_scatter(par *p, const teng_tensor *global, teng_tensor *v,
                                   const tg_placement *want, tg_axis axis)
{
    const int d = want->on[axis];
    int order[64], n;
    if (order_of(p, want, axis, order, &n) != TENG_OK) return NULL;
    if (n && !(v = reorder(p, v, d, order, n))) return NULL;
    return scatter_runs(p, global, v, d, 1u << axis);
}

/* ---- sums ---- */

/* A value on its way from partial to what is wanted. */
typedef struct summing {
    const teng_tensor *global;
    teng_tensor *v;
    tg_placement at;
    bool narrow; /* gradients travel in reduce_dtype */
} summing;

/* Before a collective; false and an error. */
static bool travels(par *p, summing *s)
{
    if (s->narrow) s->v = cast_to(p, s->v, TENG_BF16);
    return s->v != NULL;
}

/* To the pieces of an axis that want splits along. */
static teng_status scatter_axes(par *p, summing *s, const tg_placement *want)
{
    for (int a = 0; a < TG_AXES; a++) {
        if (!(p->split_axes >> a & 1u) || s->at.on[a] != TENG_PARTIAL || want->on[a] < 0) continue;
        if (!travels(p, s)) return teng_error_status();
        s->at.on[a] = want->on[a];
        s->at.groups = a == TG_AXIS_TENSOR ? want->groups : s->at.groups;
        if (!(s->v = reduce_scatter(p, s->global, s->v, want, (tg_axis)a))) return teng_error_status();
    }
    return TENG_OK;
}

/* Partial axes that want has whole. */
static tg_axis_set to_sum(const par *p, const tg_placement *at, const tg_placement *want)
{
    tg_axis_set sum = 0;
    for (int a = 0; a < TG_AXES; a++)
        if (p->split_axes >> a & 1u && at->on[a] == TENG_PARTIAL && want->on[a] == TENG_REPLICATED)
            sum |= 1u << a;
    return sum;
}

static void now_whole(tg_placement *at, tg_axis_set axes)
{
    for (int a = 0; a < TG_AXES; a++)
        if (axes >> a & 1u) at->on[a] = TENG_REPLICATED;
}

/* To the shard that want has, where the value is a sum over all of its ranks. */
static teng_status scatter_shard(par *p, summing *s, const tg_placement *want)
{
    const tg_axis_set shard = want->shard;
    if (!shard || s->at.shard || (to_sum(p, &s->at, want) & shard) != shard) return TENG_OK;
    if (!travels(p, s)) return teng_error_status();
    now_whole(&s->at, shard);
    s->at.shard = shard;
    s->at.shard_dim = want->shard_dim;
    s->v = scatter_runs(p, s->global, s->v, want->shard_dim, shard);
    return s->v ? TENG_OK : teng_error_status();
}

/* Sums what is partial and must not be, for good: first what makes it smaller. */
static teng_status settle_sums(par *p, teng_tensor *global, const tg_placement *want)
{
    par_value *x = par_of(p, global);
    const teng_dtype dtype = x->local->desc.dtype;
    summing s = {.global = global,
                 .v = x->local,
                 .at = x->at,
                 .narrow = p->values.data[global->id].gradient && x->whole.ndim > 0 &&
                           p->o->reduce_dtype == TENG_BF16};
    TG_TRY(scatter_axes(p, &s, want));
    TG_TRY(scatter_shard(p, &s, want));
    const tg_axis_set sum = to_sum(p, &s.at, want);
    if (sum) {
        if (!travels(p, &s) || !(s.v = par_all_reduce(p, global, s.v, sum))) return teng_error_status();
        now_whole(&s.at, sum);
    }
    if (!(s.v = cast_to(p, s.v, dtype))) return teng_error_status();
    x = par_of(p, global);
    x->local = s.v;
    x->at = s.at;
    return TENG_OK;
}

/* ---- copies ---- */
static teng_tensor *find_copy(const par *p, const par_value *x, const tg_placement *want)
{
    const size_t layer = tg_scope_layer(p->node->scope);
    for (const par_copy *c = x->copies; c; c = c->next) {
        if (c->phase != p->node->phase || !par_same(p, &c->at, want)) continue;
        if (c->scope && (c->scope_len != layer || strncmp(c->scope, p->node->scope, layer) != 0)) continue;
        return c->local;
    }
    return NULL;
}

static teng_tensor *add_copy(par *p, par_value *x, const tg_placement *want, teng_tensor *v)
{
    par_copy *c = tg_alloc(sizeof *c);
    if (!v || !c) {
        tg_free(c);
        return NULL;
    }
    *c = (par_copy){.at = *want, .local = v, .phase = p->node->phase, .next = x->copies};
    if (x->weight && x->at.shard) {
        c->scope = p->node->scope;
        c->scope_len = tg_scope_layer(c->scope);
    }
    x->copies = c;
    return v;
}

/* Made again from whole operands, already split. */
static teng_tensor *make_split(par *p, const teng_tensor *global, const tg_placement *want)
{
    const par_value *x = par_of(p, global);
    const tg_node *maker = x->maker;
    tg_placement in[8], out[TENG_MAX_OUT];
    teng_tensor *local[8];
    tg_node *made;
    for (int i = 0; i < maker->n_in; i++) {
        in[i] = par_of(p, maker->in[i])->at;
        if (!(local[i] = par_get(p, maker->in[i], &in[i]))) return NULL;
    }
    for (int o = 0; o < maker->n_out; o++)
        out[o] = *want;
    return par_emit(p, maker, in, out, local, &made) == TENG_OK ? made->out[0] : NULL;
}

/* Whether want splits along axes what is whole, and nothing else. */
static bool only_splits(par *p, const teng_tensor *global, const tg_placement *at, const tg_placement *want)
{
    if (at->shard || want->shard) return false;
    for (int a = 0; a < TG_AXES; a++) {
        if (!(p->split_axes >> a & 1u) || at->on[a] == want->on[a]) continue;
        if (at->on[a] != TENG_REPLICATED || !par_makes_split(p, global, (tg_axis)a, want->on[a]))
            return false;
    }
    return true;
}

/* Gathers where want does not split like that, innermost first. */
static teng_tensor *open_up(par *p, const teng_tensor *global, teng_tensor *v, tg_placement *at,
                            const tg_placement *want)
{
    if (at->shard) {
        const tg_axis_set shard = at->shard;
        at->shard = 0;
        v = gather_runs(p, global, v, at->shard_dim, at, shard);
    }
    for (int k = TG_AXES; k-- > 0 && v;) {
        const tg_axis a = tg_mesh_nesting[k];
        if (!(p->split_axes >> a & 1u) || at->on[a] < 0) continue;
        const bool groups = a == TG_AXIS_TENSOR && want->on[a] >= 0 && want->groups != at->groups;
        if (at->on[a] == want->on[a] && !groups) continue;
        v = gather(p, global, v, at, a);
        at->on[a] = TENG_REPLICATED;
    }
    return v;
}

/* Slices where want splits, outermost first, and at last the shard. */
static teng_tensor *close_down(par *p, teng_tensor *v, tg_placement *at, const tg_placement *want)
{
    for (int k = 0; k < TG_AXES && v; k++) {
        const tg_axis a = tg_mesh_nesting[k];
        if (!(p->split_axes >> a & 1u) || at->on[a] == want->on[a]) continue;
        if (at->on[a] != TENG_REPLICATED || want->on[a] < 0) {
            tg_fail(TENG_UNSUPPORTED, "a whole value cannot be made partial along %s", tg_axis_name(a));
            return NULL;
        }
        for (int i = k + 1; i < TG_AXES; i++) {
            const tg_axis inner = tg_mesh_nesting[i];
            if (!(p->split_axes >> inner & 1u) || at->on[inner] != want->on[a]) continue;
            tg_fail(TENG_UNSUPPORTED,
                    "dimension %d is split along %s and cannot be split along %s outside of it", want->on[a],
                    tg_axis_name(inner), tg_axis_name(a));
            return NULL;
        }
        v = slice(p, v, want, a);
        at->on[a] = want->on[a];
        at->groups = a == TG_AXIS_TENSOR ? want->groups : at->groups;
    }
    if (v && want->shard) {
        v = par_shard_of(p, v, want, false);
        at->shard = want->shard;
        at->shard_dim = want->shard_dim;
    }
    return v;
}

teng_tensor *par_get(par *p, teng_tensor *global, const tg_placement *want)
{
    par_value *x = par_of(p, global);
    if (!x->local && global->kind == TG_VALUE_STATE) {
        const tg_placement whole = tg_mesh_replicated();
        if (par_create(p, global, &whole) != TENG_OK) return NULL;
    }
    if (par_same(p, &x->at, want)) return x->local;
    teng_tensor *known = find_copy(p, x, want);
    if (known) return known;
    if ((x->at.on[TG_AXIS_EXPERT] == PAR_THERE) != (want->on[TG_AXIS_EXPERT] == PAR_THERE)) {
        teng_tensor *v = par_get_there(p, global, want);
        return add_copy(p, par_of(p, global), want, v);
    }
    if (settle_sums(p, global, want) != TENG_OK) return NULL;
    x = par_of(p, global);
    if (par_same(p, &x->at, want)) return x->local;
    if (only_splits(p, global, &x->at, want)) {
        teng_tensor *v = make_split(p, global, want);
        return add_copy(p, par_of(p, global), want, v);
    }
    tg_placement at = x->at;
    teng_tensor *v = open_up(p, global, x->local, &at, want);
    if (v) v = close_down(p, v, &at, want);
    return add_copy(p, par_of(p, global), want, v);
}

teng_status par_settle(par *p, teng_tensor *global, const tg_placement *want)
{
    teng_tensor *v = par_get(p, global, want);
    if (!v) return teng_error_status();
    par_value *x = par_of(p, global);
    x->local = v;
    x->at = *want;
    return TENG_OK;
}
