/*
 * Gradients and the update. A gradient is summed over the ranks as soon as it is complete, or, with several
 * micro-batches and ZeRO below 2, after the last. With ZeRO each of the ranks that hold a parameter in common
 * gets a shard of the sum. The optimizer runs on that shard of parameter and states; then the
 * whole parameter is put together in its own buffer, unless ZeRO 3 keeps only the shard.
 */
#include "parallel/parallel_impl.h"

#include "base/fail.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "tensor/desc.h"

/* The dimension that is cut among so many ranks: the first whose longest piece is at most a quarter longer
 * than an even one, as dimension 0 mostly is (experts are few), else that with the shortest; -1: none. The
 * same on all ranks. A dimension of groups is left out, since a piece of it would not be one of each: a bias
 * of that kind stays whole. */
static teng_place shard_dim(const par *p, const tg_placement *at, const teng_desc *whole, int parts)
{
    const int tensor = p->o->mesh.size[TG_AXIS_TENSOR];
    teng_place best = -1;
    double least = 0;
    for (int d = 0; d < whole->ndim; d++) {
        int64_t n = whole->dims[d];
        for (int a = 0; a < TG_AXES; a++)
            if (at->on[a] == d) n /= p->o->mesh.size[a];
        if (n == 0 || (at->groups > 1 && tensor > 1 && at->on[TG_AXIS_TENSOR] == d)) continue;
        const double longest = (double)((n + parts - 1) / parts * parts) / (double)n;
        if (best >= 0 && longest >= least) continue;
        best = (teng_place)d;
        least = longest;
        if (longest <= 1.25) break;
    }
    return best;
}

/* The axes along which a parameter is replicated are those along which its gradient is a sum. */
tg_placement par_state_placement(par *p, const tg_placement *param, const teng_desc *whole)
{
    tg_placement at = *param;
    tg_axis_set shard = 0;
    for (int a = 0; a < TG_AXES; a++)
        if (p->shard_axes >> a & 1u && at.on[a] == TENG_REPLICATED) shard |= 1u << a;
    const int dim = shard ? shard_dim(p, &at, whole, tg_mesh_parts(&p->o->mesh, p->coord, shard, NULL)) : -1;
    if (dim < 0) return at;
    at.shard = shard;
    at.shard_dim = (teng_place)dim;
    return at;
}

void par_mark_gradients(par *p)
{
    for (size_t k = 0; k < p->global->nodes.len; k++) {
        const tg_node *node = p->global->nodes.data[k];
        const bool sum = node->op == &tg_op_sum_squares && node->phase == TG_UPDATE;
        if (node->op == &tg_op_accumulate) {
            par_value *x = &p->values.data[node->in[1]->id];
            x->gradient = true;
            x->at_once = p->shard_axes && p->o->zero >= 2;
        }
        for (int i = 0; sum && i < node->n_in; i++) {
            par_value *x = &p->values.data[node->in[i]->id];
            x->gradient = true;
            x->at_once = node->in[i]->kind == TG_VALUE_COMPUTED && node->in[i]->node->op != &tg_op_accumulate;
        }
    }
}

/* From parameters to their gradients and, backwards, to what those are sums of. */
void par_aim_gradients(par *p)
{
    for (size_t k = p->global->nodes.len; k-- > 0;) {
        const tg_node *node = p->global->nodes.data[k];
        const bool optimizer =
            node->op->updates[0] == 1 && node->n_in > 1 && node->in[0]->kind == TG_VALUE_PARAM;
        if (optimizer) {
            par_value *x = &p->values.data[node->in[1]->id];
            x->aimed = true;
            x->aim = p->values.data[node->in[0]->id].at;
            x->aim.shard = 0; /* as a forward pass sees it */
        }
        const par_value *y = &p->values.data[node->out[0]->id];
        const bool passes =
            node->op == &tg_op_add || node->op == &tg_op_cast || node->op == &tg_op_accumulate;
        if (!y->aimed || !passes) continue;
        for (int i = 0; i < node->n_in; i++) {
            par_value *x = &p->values.data[node->in[i]->id];
            if (node->in[i]->kind != TG_VALUE_COMPUTED || x->whole.ndim != y->whole.ndim) continue;
            x->aimed = true;
            x->aim = y->aim;
        }
    }
}

/* Split along the tensor and expert axes as its parameter is; shards are inside of that. */
static teng_status settle_outer(par *p, teng_tensor *grad)
{
    static const tg_axis outer[] = {TG_AXIS_TENSOR, TG_AXIS_EXPERT};
    const par_value *x = par_of(p, grad), *flags = &p->values.data[grad->id];
    tg_placement want = x->at;
    for (int i = 0; i < 2 && flags->aimed; i++) {
        const tg_axis a = outer[i];
        if (!(p->split_axes >> a & 1u)) continue;
        if (want.on[a] == TENG_PARTIAL && flags->aim.on[a] < 0) continue; /* summed with the other axes */
        want.on[a] = flags->aim.on[a];
        if (a == TG_AXIS_TENSOR) want.groups = flags->aim.groups;
    }
    return par_same(p, &want, &x->at) ? TENG_OK : par_settle(p, grad, &want);
}

teng_status par_settle_gradient(par *p, teng_tensor *grad)
{
    TG_TRY(settle_outer(p, grad));
    const par_value *x = par_of(p, grad);
    tg_placement want = x->at;
    for (int a = 0; a < TG_AXES; a++)
        if (want.on[a] == TENG_PARTIAL) want.on[a] = TENG_REPLICATED;
    want = par_state_placement(p, &want, &x->whole);
    return par_same(p, &want, &x->at) ? TENG_OK : par_settle(p, grad, &want);
}

static void made(par *p, const teng_tensor *global, teng_tensor *local, const tg_placement *at)
{
    par_value *x = &p->values.data[global->id];
    x->local = local;
    x->at = *at;
}

/* ---- accumulators: as the gradient that is added to them ---- */
static teng_status accumulate(par *p, const tg_node *node)
{
    const tg_placement at = par_of(p, node->in[1])->at, whole = tg_mesh_replicated();
    const tg_placement in[] = {at, at, whole};
    if (!par_of(p, node->in[0])->local) TG_TRY(par_create(p, node->in[0], &at));
    teng_tensor *local[3];
    tg_node *n;
    for (int i = 0; i < 3; i++)
        if (!(local[i] = par_get(p, node->in[i], &in[i]))) return teng_error_status();
    TG_TRY(par_emit(p, node, in, &at, local, &n));
    made(p, node->out[0], n->out[0], &at);
    return TENG_OK;
}

/* ---- the global norm: gradients that are split along the same axes are summed together ---- */
static tg_axis_set axes_of(const par *p, const tg_placement *at)
{
    tg_axis_set axes = 0;
    for (int a = 0; a < TG_AXES; a++)
        if (p->split_axes >> a & 1u && at->on[a] >= 0) axes |= 1u << a;
    return axes | at->shard;
}

static teng_tensor *sum_along(par *p, teng_tensor *sum, tg_axis_set axes)
{
    teng_tensor scalar = {.desc = sum->desc};
    return axes ? par_all_reduce(p, &scalar, sum, axes) : sum;
}

static teng_status sum_squares(par *p, const tg_node *node)
{
    teng_tensor **group = tg_alloc(sizeof(teng_tensor *) * (size_t)node->n_in), *total = NULL;
    bool *done = tg_calloc((size_t)node->n_in, sizeof *done);
    teng_status status = group && done ? TENG_OK : TENG_MEMORY;
    for (int i = 0; i < node->n_in && status == TENG_OK; i++)
        status = par_settle_gradient(p, node->in[i]);
    for (int i = 0; i < node->n_in && status == TENG_OK; i++) {
        const tg_axis_set axes = axes_of(p, &par_of(p, node->in[i])->at);
        int n = 0;
        for (int j = i; j < node->n_in; j++) {
            const par_value *x = par_of(p, node->in[j]);
            if (done[j] || axes_of(p, &x->at) != axes) continue;
            done[j] = true;
            group[n++] = x->local;
        }
        if (n == 0) continue;
        const tg_node *own = par_append(p, &tg_op_sum_squares, NULL, n, group);
        teng_tensor *sum = own ? sum_along(p, own->out[0], axes) : NULL;
        if (sum && total) {
            const tg_node *add = par_append(p, &tg_op_add, NULL, 2, (teng_tensor *[]){total, sum});
            sum = add ? add->out[0] : NULL;
        }
        total = sum;
        if (!sum) status = teng_error_status();
    }
    tg_free(group);
    tg_free(done);
    const tg_placement whole = tg_mesh_replicated();
    if (status == TENG_OK) made(p, node->out[0], total, &whole);
    return status;
}

/* ---- optimizers ---- */
/* Whether an operand goes element by element with the parameter, as its gradient and its states do: shapes do
 * not tell, a parameter of four elements looks like the four scalars of a step. */
static bool goes_along(const teng_op_spec *op, int operand)
{
    bool updated = false;
    for (int o = 0; o < TENG_MAX_OUT; o++)
        updated = updated || op->updates[o] == 1 + operand;
    return updated || operand == 1;
}

static teng_status optimize(par *p, const tg_node *node)
{
    enum { MOST = 16 };
    const teng_tensor *param = node->in[0];
    const tg_placement at = par_of(p, param)->at, split = par_state_placement(p, &at, &param->desc),
                       whole = tg_mesh_replicated();
    const bool pieces = !par_same(p, &at, &split);
    tg_placement in[MOST], out[TENG_MAX_OUT];
    teng_tensor *local[MOST];
    if (node->n_in > MOST)
        return tg_fail(TENG_UNSUPPORTED, "%s has %d operands; an optimizer has at most %d", node->op->name,
                       node->n_in, MOST);
    for (int i = 0; i < node->n_in; i++) {
        teng_tensor *v = node->in[i];
        in[i] = goes_along(node->op, i) ? split : whole;
        if (v->kind == TG_VALUE_STATE && !par_of(p, v)->local) TG_TRY(par_create(p, v, &in[i]));
        local[i] =
            i == 0 && pieces ? par_shard_of(p, par_of(p, v)->local, &split, true) : par_get(p, v, &in[i]);
        if (!local[i]) return teng_error_status();
    }
    for (int o = 0; o < node->n_out; o++)
        out[o] = node->op->updates[o] ? split : whole;
    tg_node *n;
    TG_TRY(par_emit(p, node, in, out, local, &n));
    for (int o = 0; o < node->n_out; o++) {
        teng_tensor *v = n->out[o];
        const bool put_together = pieces && node->op->updates[o] == 1;
        if (put_together) v = par_gather_into(p, param, par_of(p, param)->local, v, &split);
        if (!v) return teng_error_status();
        made(p, node->out[o], v, put_together ? &at : &out[o]);
    }
    return TENG_OK;
}

teng_status par_update(par *p, tg_node *node, bool *done)
{
    *done = true;
    if (node->op == &tg_op_accumulate) return accumulate(p, node);
    if (node->op == &tg_op_sum_squares && node->phase == TG_UPDATE) return sum_squares(p, node);
    if (node->op->updates[0] == 1 && node->in[0]->kind == TG_VALUE_PARAM &&
        node->op->traits & TENG_OP_ELEMENTWISE)
        return optimize(p, node);
    *done = false;
    return TENG_OK;
}
