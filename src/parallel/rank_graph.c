/*
 * The walk over the global graph: each node in program order, its operands brought to the placements of the
 * rule that costs the least (par_rule.c, par_move.c), some in ways of their own (par_special.c,
 * par_update.c). At the end what nothing needs is dropped.
 */
#include "parallel/parallel_impl.h"

#include "base/fail.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <string.h>

bool par_same(const par *p, const tg_placement *a, const tg_placement *b)
{
    for (int k = 0; k < TG_AXES; k++)
        if (p->split_axes >> k & 1u && a->on[k] != b->on[k]) return false;
    if (a->shard != b->shard || (a->shard && a->shard_dim != b->shard_dim)) return false;
    const teng_place d = a->on[TG_AXIS_TENSOR];
    return !(p->split_axes >> TG_AXIS_TENSOR & 1u) || d < 0 ||
           (a->groups > 1 ? a->groups : 1) == (b->groups > 1 ? b->groups : 1);
}

/* ---- texts and frames of the rank's own ---- */
static const void *kept_as(par *p, const void *from)
{
    int64_t at;
    return tg_strmap_get(p->texts, &from, sizeof from, &at) ? p->kept.data[at] : NULL;
}

static const void *keep(par *p, const void *from, const void *as)
{
    if (!as || !tg_strmap_set(p->texts, &from, sizeof from, (int64_t)p->kept.len, NULL) ||
        !tg_vec_push(&p->kept, as))
        return NULL;
    return as;
}

static const char *scope_of(par *p, const char *scope)
{
    const char *known = kept_as(p, scope);
    return known ? known : keep(p, scope, tg_arena_strdup(p->g->arena, scope));
}

static const tg_frame *frame_of(par *p, const tg_frame *frame)
{
    if (!frame) return NULL;
    const tg_frame *known = kept_as(p, frame);
    if (known) return known;
    return keep(p, frame, tg_frame_push(p->g, frame->at, frame_of(p, frame->caller)));
}

tg_node *par_append(par *p, const teng_op_spec *op, const void *attr, int n_in, teng_tensor *const *in)
{
    const char *scope = scope_of(p, p->node->scope);
    if (!scope) return NULL;
    return tg_graph_append(p->g, op, attr, n_in, in, scope, frame_of(p, p->node->frame), p->node->phase);
}

/* ---- values ---- */
static bool grow_values(par *p)
{
    const par_value fresh = {.at = tg_mesh_replicated()};
    while (p->values.len < p->global->values.len) {
        const teng_tensor *v = p->global->values.data[p->values.len];
        if (!tg_vec_push(&p->values, fresh)) return false;
        par_value *x = &p->values.data[v->id];
        x->whole = v->desc;
        x->maker = v->node;
    }
    return true;
}

par_value *par_of(par *p, const teng_tensor *v)
{
    while (p->values.data[v->id].made_into)
        v = p->values.data[v->id].made_into;
    return &p->values.data[v->id];
}

tg_node *par_rewrite(par *p, const teng_op_spec *op, const void *attr, int n_in, teng_tensor *const *in)
{
    const tg_node *at = p->node;
    tg_node *node = tg_graph_append(p->global, op, attr, n_in, in, at->scope, at->frame, at->phase);
    return node && grow_values(p) && par_node(p, node) == TENG_OK ? node : NULL;
}

teng_status par_place_from(par *p, size_t first)
{
    const size_t end = p->global->nodes.len;
    if (!grow_values(p)) return TENG_MEMORY;
    for (size_t k = first; k < end; k++)
        TG_TRY(par_node(p, p->global->nodes.data[k]));
    return TENG_OK;
}

void par_replace(par *p, teng_tensor *old, teng_tensor *fresh)
{
    p->values.data[old->id].made_into = fresh;
}

/* ---- inputs, parameters, states ---- */
static int64_t ranks_of_rows(const par *p)
{
    const int *size = p->o->mesh.size;
    return (int64_t)size[TG_AXIS_REPLICA] * size[TG_AXIS_DATA] * size[TG_AXIS_EXPERT];
}

static teng_status not_divisible(const par *p, const teng_tensor *v, int dim, tg_axis axis)
{
    char text[TG_DESC_TEXT];
    if (v->kind == TG_VALUE_INPUT)
        return dim ? tg_fail(TENG_INVALID,
                             "%s is %s: sequences of %lld tokens do not divide among parallel.%s = %d ranks, "
                             "twice as many pieces; change train.seq_len",
                             v->name, tg_desc_text(text, &v->desc), (long long)v->desc.dims[dim],
                             tg_axis_name(axis), p->o->mesh.size[axis])
                   : tg_fail(TENG_INVALID,
                             "%s is %s: a micro-batch of %lld sequences does not divide among %lld ranks "
                             "(parallel.data x parallel.expert); make train.batch_size / "
                             "train.micro_batches a multiple of that",
                             v->name, tg_desc_text(text, &v->desc), (long long)v->desc.dims[dim],
                             (long long)ranks_of_rows(p));
    return tg_fail(TENG_INVALID, "%s is %s: dimension %d does not divide among parallel.%s = %d ranks",
                   v->name ? v->name : "a value", tg_desc_text(text, &v->desc), dim, tg_axis_name(axis),
                   p->o->mesh.size[axis]);
}

/* Into how many equal parts the mark lets the axis split the value, 0: into any, uneven ones too. */
static int64_t units_of(const teng_tensor *v, tg_axis axis)
{
    const tg_mark *m = &v->mark;
    const int64_t n = v->desc.dims[m->dim[axis] - 1];
    if (axis != TG_AXIS_TENSOR) return n;
    return m->units ? m->units : m->groups > 1 ? n / m->groups : v->kind == TG_VALUE_PARAM ? 0 : n;
}

/* What the mark says, on axes of more than one rank. */
static teng_status by_mark(const par *p, const teng_tensor *v, tg_placement *at)
{
    const tg_mark *m = &v->mark;
    for (int a = 0; a < TG_AXES; a++) {
        const int parts = p->o->mesh.size[a], d = m->dim[a] - 1;
        if (d < 0 || !(p->split_axes >> a & 1u)) continue;
        const int64_t units = units_of(v, (tg_axis)a), n = units ? units : v->desc.dims[d];
        if (a == TG_AXIS_TENSOR && m->fewer && units < parts && parts % units == 0) continue;
        if (units ? units % parts != 0 : n < parts)
            return tg_fail(
                TENG_INVALID,
                "%s = %lld does not divide among parallel.%s = %d ranks (%s is split along dimension "
                "%d); take sizes that divide",
                a == TG_AXIS_TENSOR && m->units_key ? m->units_key
                : v->name                           ? v->name
                                                    : "a marked value",
                (long long)n, tg_axis_name((tg_axis)a), parts, v->name ? v->name : "the value", d);
        at->on[a] = (teng_place)d;
        if (a == TG_AXIS_TENSOR) at->groups = m->groups;
    }
    return TENG_OK;
}

static bool is_batch(const par *p, const char *name)
{
    for (int i = 0; i < p->o->n_batch; i++)
        if (strcmp(p->o->batch[i], name) == 0) return true;
    return false;
}

static teng_status place_input(par *p, const teng_tensor *v, tg_placement *at)
{
    if (!is_batch(p, v->name)) return TENG_OK;
    int64_t rows = 1;
    for (int a = 0; a < TG_AXES; a++) {
        const int parts = p->o->mesh.size[a];
        if (!(p->split_axes >> a & 1u) || a == TG_AXIS_TENSOR) continue;
        const int dim = a == TG_AXIS_CONTEXT ? 1 : 0;
        if (dim >= v->desc.ndim) continue;
        if (dim == 0) rows *= parts;
        if (v->desc.dims[dim] % (dim ? 2 * parts : rows)) return not_divisible(p, v, dim, (tg_axis)a);
        at->on[a] = (teng_place)dim;
    }
    return TENG_OK;
}

static teng_status add_entry(par *p, const teng_tensor *v, const tg_placement *at)
{
    const char *name = tg_arena_strdup(p->out->arena, v->name);
    const tg_parallel_entry entry = {name, v->kind, v->desc, *at};
    return name && tg_vec_push(&p->out->entries, entry) ? TENG_OK : TENG_MEMORY;
}

teng_status par_create(par *p, const teng_tensor *v, const tg_placement *at)
{
    const teng_desc local = tg_mesh_local(&p->o->mesh, p->o->rank, &v->desc, at);
    par_value *x = &p->values.data[v->id];
    x->at = *at;
    x->local = v->kind == TG_VALUE_INPUT   ? tg_graph_input(p->g, v->name, &local)
               : v->kind == TG_VALUE_PARAM ? tg_graph_param(p->g, v->name, &local)
                                           : tg_graph_state(p->g, v->name, &local);
    if (!x->local) return teng_error_status();
    return v->kind == TG_VALUE_INPUT ? TENG_OK : add_entry(p, v, at);
}

/* States wait for the node that uses them. */
static teng_status place_named(par *p)
{
    for (size_t i = 0; i < p->global->values.len; i++) {
        const teng_tensor *v = p->global->values.data[i];
        if (v->kind == TG_VALUE_COMPUTED || v->kind == TG_VALUE_STATE) continue;
        tg_placement at = tg_mesh_replicated();
        if (v->kind == TG_VALUE_INPUT) {
            TG_TRY(place_input(p, v, &at));
        } else {
            par_value *x = &p->values.data[i];
            TG_TRY(by_mark(p, v, &at));
            x->weight = true;
            if (p->o->zero >= 3) at = par_state_placement(p, &at, &v->desc);
        }
        TG_TRY(par_create(p, v, &at));
    }
    return TENG_OK;
}

/* ---- nodes ---- */
static teng_status after_node(par *p, const tg_node *node)
{
    for (int o = 0; o < node->n_out; o++) {
        const teng_tensor *v = node->out[o];
        if (p->values.data[v->id].at_once) TG_TRY(par_settle_gradient(p, node->out[o]));
        tg_placement at = p->values.data[v->id].output ? tg_mesh_replicated() : par_of(p, v)->at;
        TG_TRY(by_mark(p, v, &at));
        if (!par_same(p, &at, &par_of(p, v)->at)) TG_TRY(par_settle(p, node->out[o], &at));
    }
    return TENG_OK;
}

/* A cast parameter is one still: its shards are put together after the cast, in fewer bytes. */
static bool is_cast_weight(par *p, const tg_node *node)
{
    return node->op == &tg_op_cast && node->phase != TG_UPDATE && par_of(p, node->in[0])->weight;
}

static teng_status general(par *p, const tg_node *node)
{
    tg_placement *in = tg_alloc(sizeof *in * (size_t)(node->n_in + 1)), out[TENG_MAX_OUT];
    teng_tensor **local = tg_alloc(sizeof(teng_tensor *) * (size_t)(node->n_in + 1));
    teng_status status = in && local ? par_choose(p, node, in, out) : TENG_MEMORY;
    if (status == TENG_OK && is_cast_weight(p, node)) {
        const tg_placement *at = &par_of(p, node->in[0])->at;
        in[0].shard = out[0].shard = at->shard;
        in[0].shard_dim = out[0].shard_dim = at->shard_dim;
    }
    for (int i = 0; i < node->n_in && status == TENG_OK; i++)
        if (!(local[i] = par_get(p, node->in[i], &in[i]))) status = teng_error_status();
    tg_node *made = NULL;
    if (status == TENG_OK) status = par_emit(p, node, in, out, local, &made);
    for (int o = 0; o < node->n_out && status == TENG_OK; o++) {
        par_value *x = &p->values.data[node->out[o]->id];
        x->local = made->out[o];
        x->at = out[o];
    }
    if (status == TENG_OK) par_keep_counts(p, node);
    tg_free(in);
    tg_free(local);
    return status;
}

teng_status par_node(par *p, tg_node *node)
{
    const tg_node *outer = p->node;
    bool done = false;
    p->node = node;
    teng_status status = par_special(p, node, &done);
    if (status == TENG_OK && !done) status = par_update(p, node, &done);
    if (status == TENG_OK && !done) status = general(p, node);
    if (status == TENG_OK && !done && is_cast_weight(p, node)) p->values.data[node->out[0]->id].weight = true;
    if (status == TENG_OK) status = after_node(p, node);
    p->node = outer;
    if (status != TENG_OK && !outer) {
        tg_strbuf where = {0};
        tg_node_where(node, &where);
        tg_fail_context("parallel: %s", tg_strbuf_str(&where));
        tg_strbuf_free(&where);
    }
    return status;
}

/* ---- outputs, and what nothing needs ---- */
static teng_status make_outputs(par *p)
{
    const tg_placement whole = tg_mesh_replicated();
    for (size_t i = 0; i < p->global->outputs.len; i++) {
        const tg_output *o = &p->global->outputs.data[i];
        const par_value *x = par_of(p, o->value);
        if (!par_same(p, &x->at, &whole))
            return tg_fail(TENG_UNSUPPORTED, "output %s is an input that ranks hold parts of", o->name);
        TG_TRY(tg_graph_output(p->g, o->name, x->local));
    }
    return TENG_OK;
}

static teng_status drop_dead(par *p)
{
    tg_graph *g = p->g;
    bool *live = tg_calloc(g->values.len + 1, sizeof *live);
    if (!live) return TENG_MEMORY;
    for (size_t i = 0; i < g->outputs.len; i++)
        live[g->outputs.data[i].value->id] = true;
    for (size_t k = g->nodes.len; k-- > 0;) {
        tg_node *node = g->nodes.data[k];
        bool needed = false;
        for (int o = 0; o < node->n_out; o++)
            needed = needed || live[node->out[o]->id] || node->op->updates[o];
        node->dead = !needed;
        for (int i = 0; needed && i < node->n_in; i++)
            live[node->in[i]->id] = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < p->out->moves.len; i++)
        if (!p->out->moves.data[i].node->dead) p->out->moves.data[kept++] = p->out->moves.data[i];
    p->out->moves.len = kept;
    tg_graph_sweep(g);
    tg_free(live);
    return TENG_OK;
}

static teng_status apply(par *p)
{
    if (!grow_values(p)) return TENG_MEMORY;
    TG_TRY(place_named(p));
    par_mark_gradients(p);
    par_aim_gradients(p);
    for (size_t i = 0; i < p->global->outputs.len; i++)
        p->values.data[p->global->outputs.data[i].value->id].output = true;
    const size_t n = p->global->nodes.len;
    for (size_t k = 0; k < n; k++)
        TG_TRY(par_node(p, p->global->nodes.data[k]));
    TG_TRY(make_outputs(p));
    return drop_dead(p);
}

static teng_status check_options(const tg_parallel_options *o)
{
    if (o->rank < 0 || o->rank >= o->mesh.ranks)
        return tg_fail(TENG_INVALID, "rank %d of a mesh of %d: ranks are 0 to %d", o->rank, o->mesh.ranks,
                       o->mesh.ranks - 1);
    if (o->sequence && o->mesh.size[TG_AXIS_TENSOR] == 1)
        return tg_fail(TENG_INVALID, "parallel.sequence = true splits positions among tensor ranks, and "
                                     "parallel.tensor is 1; set it, or leave parallel.sequence out");
    return TENG_OK;
}

/* Nothing to split. */
static teng_status as_it_is(par *p)
{
    const tg_placement whole = tg_mesh_replicated();
    for (size_t i = 0; i < p->global->values.len; i++) {
        const teng_tensor *v = p->global->values.data[i];
        if (v->kind == TG_VALUE_PARAM || v->kind == TG_VALUE_STATE) TG_TRY(add_entry(p, v, &whole));
    }
    tg_graph *g = p->g;
    p->g = p->global;
    p->global = g;
    return TENG_OK;
}

teng_status tg_parallel_apply(tg_graph *global, const tg_parallel_options *options, tg_graph **local,
                              tg_parallel **out)
{
    par p = {.o = options, .global = global};
    tg_parallel *made = tg_calloc(1, sizeof *made);
    teng_status status = made ? check_options(options) : TENG_MEMORY;
    if (made && !(made->arena = tg_arena_create())) status = TENG_MEMORY;
    p.out = made;
    p.g = tg_graph_create(global->name);
    p.texts = tg_strmap_create();
    if (status == TENG_OK && (!p.g || !p.texts)) status = TENG_MEMORY;
    if (status == TENG_OK) {
        made->options = *options;
        made->options.batch = NULL;
        made->options.n_batch = 0;
        tg_mesh_coords(&options->mesh, options->rank, p.coord);
        for (int a = 0; a < TG_AXES; a++)
            if (a != TG_AXIS_PIPELINE && options->mesh.size[a] > 1) p.split_axes |= 1u << a;
        if (options->zero) p.shard_axes = p.split_axes & TG_SHARD_AXES;
        status = p.split_axes ? apply(&p) : as_it_is(&p);
        if (status == TENG_OK && options->fusion) status = par_fuse(p.g, options->fusion, made);
    }
    for (size_t i = 0; i < p.values.len; i++)
        for (par_copy *c = p.values.data[i].copies, *next; c; c = next) {
            next = c->next;
            tg_free(c);
        }
    tg_vec_free(&p.values);
    tg_vec_free(&p.kept);
    tg_strmap_destroy(&p.texts);
    tg_graph_destroy(&p.global);
    if (status != TENG_OK) {
        tg_graph_destroy(&p.g);
        tg_parallel_destroy(&made);
        return status;
    }
    *local = p.g;
    *out = made;
    return TENG_OK;
}

void tg_parallel_destroy(tg_parallel **parallel)
{
    tg_parallel *p = *parallel;
    if (!p) return;
    tg_vec_free(&p->entries);
    tg_vec_free(&p->moves);
    tg_arena_destroy(&p->arena);
    tg_free(p);
    *parallel = NULL;
}

const tg_parallel_entry *tg_parallel_entry_find(const tg_parallel *parallel, const char *name)
{
    for (size_t i = 0; i < parallel->entries.len; i++)
        if (strcmp(parallel->entries.data[i].name, name) == 0) return &parallel->entries.data[i];
    return NULL;
}
