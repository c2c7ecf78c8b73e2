/*
 * Which rule of an operator is taken along each axis: the one whose operands cost the fewest bytes to bring
 * into place. Axes are decided one by one, since a rule speaks of one. Also the rank's form of a node: local
 * operands, and attributes made local axis by axis, from the outermost piece inwards.
 */
#include "parallel/parallel_impl.h"

#include "base/fail.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <string.h>

typedef struct call_memory {
    teng_desc *in, *out;
    teng_op_call call;
} call_memory;

static bool call_of(const tg_node *node, call_memory *m)
{
    m->in = tg_alloc(sizeof *m->in * (size_t)(node->n_in + 1));
    m->out = tg_alloc(sizeof *m->out * (size_t)(node->n_out + 1));
    if (!m->in || !m->out) return false;
    m->call = tg_node_call(node, m->in, m->out);
    return true;
}

static void call_free(call_memory *m)
{
    tg_free(m->in);
    tg_free(m->out);
}

/* Ranks that split dimension d of a value together with those of the axis. */
static int64_t pieces_of(const par *p, const tg_placement *at, tg_axis axis, int d)
{
    int64_t n = p->o->mesh.size[axis];
    for (int a = 0; a < TG_AXES; a++)
        if (a != (int)axis && p->split_axes >> a & 1u && at->on[a] == d) n *= p->o->mesh.size[a];
    return n;
}

/* In the place of all other rules but the first, that everything is whole. */
static void instead(teng_place_rules *rules, const teng_place *in, const teng_place *out)
{
    for (int r = 1; r < rules->n; r++)
        tg_free(rules->rules[r].in);
    rules->n = 1;
    teng_place_add(rules, in, out);
}

/* Along the context axis rows stay where they are when [B, T, …] becomes [B · T, …] and back: each rank has
 * rows of its own, the same ones in all such values. Attention there is a ring. */
static void add_context(const teng_op_call *call, teng_place_rules *rules)
{
    const teng_desc *x = &call->in[0], *y = &call->out[0];
    if (call->op == &tg_op_ring_attention)
        teng_place_add(rules, (teng_place[]){1, 1, 1}, (teng_place[]){1, 2});
    if (call->op == &tg_op_ring_attention_grad)
        teng_place_add(rules, (teng_place[]){1, 1, 1, 1, 2, 1}, (teng_place[]){1, 1, 1});
    if (call->op != &tg_op_reshape) return;
    if (x->ndim >= 2 && y->ndim >= 1 && x->dims[1] > 1 && x->dims[0] * x->dims[1] == y->dims[0])
        instead(rules, &(teng_place){1}, &(teng_place){0});
    else if (y->ndim >= 2 && x->ndim >= 1 && y->dims[1] > 1 && y->dims[0] * y->dims[1] == x->dims[0])
        instead(rules, &(teng_place){0}, &(teng_place){1});
}

/* Groups of a dimension that are cut apart, or put together: each rank does so with its own pieces. */
static void add_groups(const teng_op_call *call, int groups, teng_place_rules *rules)
{
    const bool apart = call->op == &tg_op_split;
    const teng_desc *whole = apart ? &call->in[0] : &call->out[0], *part = apart ? call->out : call->in;
    const int n = apart ? call->n_out : call->n_in;
    teng_place in[64], out[TENG_MAX_OUT];
    if (groups != (apart ? n : 0)) return;
    for (int d = 0; d < whole->ndim && n <= 64; d++) {
        bool equal = whole->dims[d] == part[0].dims[d] * n;
        for (int i = 0; i < n; i++)
            equal = equal && part[i].dims[d] == part[0].dims[d];
        if (!equal || n < 2) continue;
        memset(in, d, sizeof in);
        memset(out, d, sizeof out);
        teng_place_add(rules, in, out);
    }
}

/* Whether the rule works on one dimension in which operands are cut into groups, or makes or takes such. */
static int groups_in(par *p, const tg_node *node, const tg_place_rule *rule)
{
    int groups = 0;
    for (int i = 0; i < node->n_in; i++) {
        const par_value *x = par_of(p, node->in[i]);
        if (rule->in[i] >= 0 && x->at.on[TG_AXIS_TENSOR] == rule->in[i] && x->at.groups > 1)
            groups = x->at.groups;
    }
    return groups;
}

static bool splits_axis(const tg_node *node, teng_place dim)
{
    if (node->op != &tg_op_split && node->op != &tg_op_concat) return false;
    const int64_t axis = *(const int64_t *)node->attr; /* the first attribute of both */
    return tg_desc_axis(&node->in[0]->desc, axis) == dim;
}

/* What is still to be paid for an output along the tensor axis: a sum that is put off must be made later, and
 * a gradient must become as its parameter is. partial: the share of it that this rank has along other axes, 0
 * where no operand is partial. */
static double output_cost(const par *p, const par_value *y, tg_axis axis, teng_place is, double partial)
{
    const int parts = p->o->mesh.size[axis];
    const double bytes = (double)tg_desc_bytes(&y->whole), share = (double)(parts - 1) / parts * bytes;
    if (axis != TG_AXIS_TENSOR) return 0;
    if (y->aimed && y->aim.on[axis] >= 0) {
        if (is == y->aim.on[axis]) return 0;
        /* A whole table of the vocabulary on each rank is what the split is to avoid. */
        return is == TENG_PARTIAL ? 8 * share : is == TENG_REPLICATED ? 1e-3 * bytes : share;
    }
    if (is != TENG_PARTIAL) return 0;
    /* A little less, so that it is put off where all else is equal: what comes may be smaller. */
    return 0.999 * partial * (p->o->sequence && y->whole.ndim == 3 ? share : 2 * share);
}

/* Cost of taking the rule along the axis. */
static double rule_cost(par *p, const tg_node *node, const tg_place_rule *rule, tg_axis axis)
{
    double cost = 0;
    double partial = 0;
    for (int i = 0; i < node->n_in; i++) {
        const par_value *x = par_of(p, node->in[i]);
        const teng_place from = x->at.on[axis], to = rule->in[i];
        if (from == TENG_REPLICATED && to >= 0 &&
            x->whole.dims[to] % (pieces_of(p, &x->at, axis, to) * (axis == TG_AXIS_CONTEXT ? 2 : 1)))
            return PAR_FORBIDDEN;
        if (from == TENG_PARTIAL && to >= 0 && x->whole.dims[to] % pieces_of(p, &x->at, axis, to))
            return PAR_FORBIDDEN;
        cost += par_move_cost(p, x, node->in[i], axis, from, to);
        if (to == TENG_PARTIAL) partial = par_share(p, x);
    }
    for (int o = 0; o < node->n_out; o++) {
        const teng_desc *y = &node->out[o]->desc;
        if (rule->out[o] >= 0 && rule->out[o] < y->ndim && y->dims[rule->out[o]] < p->o->mesh.size[axis])
            return PAR_FORBIDDEN;
        cost += output_cost(p, &p->values.data[node->out[o]->id], axis, rule->out[o], partial);
    }
    return cost;
}

static teng_status no_rule(par *p, const tg_node *node, tg_axis axis)
{
    tg_strbuf text = {0};
    for (int i = 0; i < node->n_in; i++) {
        char desc[TG_DESC_TEXT];
        const par_value *x = par_of(p, node->in[i]);
        tg_strbuf_printf(&text, "%s%s ", i ? ", " : "", tg_desc_text(desc, &x->whole));
        tg_placement_print(&p->o->mesh, &x->at, &text);
    }
    const teng_status status =
        tg_fail(TENG_UNSUPPORTED,
                "%s has no way to work on operands that are split like this along parallel.%s = %d: %s",
                node->op->name, tg_axis_name(axis), p->o->mesh.size[axis], tg_strbuf_str(&text));
    tg_strbuf_free(&text);
    return status;
}

static teng_status choose_along(par *p, const tg_node *node, tg_axis axis, const teng_place_rules *rules,
                                tg_placement *in, tg_placement *out)
{
    const tg_place_rule *best = NULL;
    double least = PAR_FORBIDDEN;
    for (int r = 0; r < rules->n; r++) {
        const double cost = rule_cost(p, node, &rules->rules[r], axis);
        if (cost < least) {
            least = cost;
            best = &rules->rules[r];
        }
    }
    if (!best) return no_rule(p, node, axis);
    const int groups = axis == TG_AXIS_TENSOR ? groups_in(p, node, best) : 0;
    for (int i = 0; i < node->n_in; i++) {
        in[i].on[axis] = best->in[i];
        if (axis == TG_AXIS_TENSOR && best->in[i] >= 0) in[i].groups = (int8_t)groups;
    }
    for (int o = 0; o < node->n_out; o++) {
        out[o].on[axis] = best->out[o];
        if (axis != TG_AXIS_TENSOR || best->out[o] < 0) continue;
        out[o].groups = (int8_t)groups;
        if (splits_axis(node, best->out[o]))
            out[o].groups = (int8_t)(node->op == &tg_op_concat ? node->n_in : 0);
    }
    return TENG_OK;
}

teng_status par_choose(par *p, const tg_node *node, tg_placement *in, tg_placement *out)
{
    call_memory m;
    teng_place_rules rules = {0};
    teng_status status = call_of(node, &m) ? tg_place_rules_get(&m.call, &rules) : TENG_MEMORY;
    for (int i = 0; i < node->n_in; i++)
        in[i] = tg_mesh_replicated();
    for (int o = 0; o < node->n_out; o++)
        out[o] = tg_mesh_replicated();
    const int n = rules.n;
    for (int k = 0; k < TG_AXES && status == TENG_OK; k++) {
        const tg_axis a = tg_mesh_nesting[k];
        if (!(p->split_axes >> a & 1u)) continue;
        if (a == TG_AXIS_CONTEXT) add_context(&m.call, &rules);
        if (a != TG_AXIS_TENSOR) par_own_rows(p, node, a, &rules);
        if (a == TG_AXIS_TENSOR && (node->op == &tg_op_split || node->op == &tg_op_concat))
            add_groups(&m.call, par_of(p, node->in[0])->at.groups, &rules);
        status = choose_along(p, node, a, &rules, in, out);
        if (rules.n == n && a == TG_AXIS_TENSOR) continue;
        tg_place_rules_free(&rules); /* what was added is for one axis */
        rules = (teng_place_rules){0};
        if (status == TENG_OK) status = tg_place_rules_get(&m.call, &rules);
    }
    tg_place_rules_free(&rules);
    call_free(&m);
    return status;
}

bool par_makes_split(par *p, const teng_tensor *v, tg_axis axis, teng_place dim)
{
    const tg_node *maker = par_of(p, v)->maker;
    call_memory m;
    teng_place_rules rules = {0};
    if (!maker || maker->n_out != 1 || maker->n_in > 1 || dim < 0) return false;
    if (maker->op != &tg_op_fill && maker->op != &tg_op_broadcast) return false;
    bool found = false;
    if (call_of(maker, &m) && tg_place_rules_get(&m.call, &rules) == TENG_OK)
        for (int r = 0; r < rules.n && !found; r++) {
            const tg_place_rule *rule = &rules.rules[r];
            found = rule->out[0] == dim &&
                    (maker->n_in == 0 || (rule->in[0] == TENG_REPLICATED &&
                                          par_of(p, maker->in[0])->at.on[axis] == TENG_REPLICATED));
        }
    tg_place_rules_free(&rules);
    call_free(&m);
    return found;
}

/* ---- the rank's form ---- */

/* Sizes of split's pieces, when its own axis is split. */
static void localize_groups(const tg_node *node, const teng_place *in, int64_t parts, void *attr)
{
    if (node->op != &tg_op_split || in[0] < 0 || !splits_axis(node, in[0])) return;
    struct {
        int64_t axis;
        teng_dims sizes;
    } *a = attr;
    for (int i = 0; i < (int)a->sizes.n; i++)
        a->sizes.v[i] /= parts;
}

static void shrink(const par *p, teng_desc *d, const tg_placement *at, tg_axis axis)
{
    int64_t begin, n = at->groups > 1 && axis == TG_AXIS_TENSOR ? at->groups : 1;
    const teng_place dim = at->on[axis];
    if (dim < 0) return;
    tg_mesh_cut(d->dims[dim] / n, p->o->mesh.size[axis], p->coord[axis], &begin, &d->dims[dim]);
    d->dims[dim] *= n;
}

static void shrink_shard(const par *p, teng_desc *d, const tg_placement *at)
{
    int64_t begin, *size = &d->dims[at->shard_dim];
    if (at->shard) par_shard_cut(p, at, *size, &begin, size);
}

/* The place whose shape it has. */
static teng_place shaped_like(teng_place place)
{
    return place == PAR_THERE ? TENG_REPLICATED : place;
}

/* Attributes of the rank, and m's shapes with them. */
static void localize(const par *p, const tg_node *node, const tg_placement *in, const tg_placement *out,
                     call_memory *m, void *attr)
{
    teng_place *place = tg_alloc(sizeof *place * (size_t)(node->n_in + 1)), to[TENG_MAX_OUT];
    void *whole = tg_alloc(node->op->attr_size + 1);
    for (int k = 0; k < TG_AXES && place && whole; k++) {
        const tg_axis a = tg_mesh_nesting[k];
        if (!(p->split_axes >> a & 1u)) continue;
        bool any = false;
        for (int i = 0; i < node->n_in; i++)
            any = (place[i] = shaped_like(in[i].on[a])) != TENG_REPLICATED || any;
        for (int o = 0; o < node->n_out; o++)
            any = (to[o] = shaped_like(out[o].on[a])) != TENG_REPLICATED || any;
        if (!any) continue;
        if (node->op->attr_size) memcpy(whole, attr, node->op->attr_size);
        m->call.attr = node->op->attr_size ? whole : NULL;
        const int64_t parts = p->o->mesh.size[a];
        const bool pair = a == TG_AXIS_CONTEXT && node->op->localize_pair;
        if (pair) node->op->localize_pair(&m->call, place, to, parts, p->coord[a], attr);
        if (!pair && node->op->localize) node->op->localize(&m->call, place, to, parts, p->coord[a], attr);
        localize_groups(node, place, parts, attr);
        par_localize_rows(node, place, to, parts, attr);
        for (int i = 0; i < node->n_in; i++)
            shrink(p, &m->in[i], &in[i], a);
        for (int o = 0; o < node->n_out; o++)
            shrink(p, &m->out[o], &out[o], a);
    }
    /* What works on shards goes element by element, and has no attribute that speaks of a size. */
    for (int i = 0; i < node->n_in; i++)
        shrink_shard(p, &m->in[i], &in[i]);
    for (int o = 0; o < node->n_out; o++)
        shrink_shard(p, &m->out[o], &out[o]);
    tg_free(place);
    tg_free(whole);
}

teng_status par_emit(par *p, const tg_node *node, const tg_placement *in, const tg_placement *out,
                     teng_tensor *const *local, tg_node **made)
{
    call_memory m;
    void *attr = tg_calloc(1, node->op->attr_size + 1);
    teng_status status = call_of(node, &m) && attr ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) {
        if (node->op->attr_size) memcpy(attr, node->attr, node->op->attr_size);
        localize(p, node, in, out, &m, attr);
        *made = par_append(p, node->op, node->op->attr_size ? attr : NULL, node->n_in, local);
        if (!*made) status = teng_error_status();
    }
    for (int o = 0; o < node->n_out && status == TENG_OK; o++) {
        char is[TG_DESC_TEXT], should[TG_DESC_TEXT];
        if (tg_desc_equal(&(*made)->out[o]->desc, &m.out[o])) continue;
        status = tg_fail(TENG_STATE, "a rank's %s gives %s where its placement rule says %s", node->op->name,
                         tg_desc_text(is, &(*made)->out[o]->desc), tg_desc_text(should, &m.out[o]));
    }
    tg_free(attr);
    call_free(&m);
    return status;
}
