/* See par_sim.h. */
#include "par_sim.h"

#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/ring_attention/ring_attention.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

typedef struct rank_state {
    tg_graph *g;
    tg_parallel *made;
    void **data; /* by value id */
    bool *owned;
} rank_state;

struct par_sim {
    tg_mesh mesh;
    rank_state *ranks;
};

static void *buffer(const teng_desc *d)
{
    void *p = NULL;
    const size_t bytes = (tg_desc_bytes(d) + 127) / 64 * 64;
    if (posix_memalign(&p, 64, bytes)) fail_msg("memory");
    memset(p, 0x7f, bytes); /* what is read before it is written is seen */
    return p;
}

par_sim *par_sim_create(const tg_mesh *mesh, tg_graph *const *graphs, tg_parallel *const *made)
{
    par_sim *s = tg_calloc(1, sizeof *s);
    s->mesh = *mesh;
    s->ranks = tg_calloc((size_t)mesh->ranks, sizeof *s->ranks);
    for (int r = 0; r < mesh->ranks; r++) {
        rank_state *k = &s->ranks[r];
        *k = (rank_state){graphs[r], made[r], tg_calloc(graphs[r]->values.len + 1, sizeof(void *)),
                          tg_calloc(graphs[r]->values.len + 1, sizeof(bool))};
        for (size_t i = 0; i < k->g->values.len; i++)
            if (k->g->values.data[i]->kind != TG_VALUE_COMPUTED) {
                const teng_desc *d = &k->g->values.data[i]->desc;
                k->data[i] = buffer(d);
                k->owned[i] = true;
                if (k->g->values.data[i]->kind == TG_VALUE_STATE) memset(k->data[i], 0, tg_desc_bytes(d));
            }
    }
    return s;
}

void par_sim_destroy(par_sim **sim)
{
    par_sim *s = *sim;
    for (int r = 0; r < s->mesh.ranks; r++) {
        for (size_t i = 0; i < s->ranks[r].g->values.len; i++)
            if (s->ranks[r].owned[i]) free(s->ranks[r].data[i]);
        tg_free(s->ranks[r].data);
        tg_free(s->ranks[r].owned);
    }
    tg_free(s->ranks);
    tg_free(s);
    *sim = NULL;
}

/* ---- whole and part ---- */
static int64_t index_in(const tg_box *b, const int64_t *at, const teng_desc *whole)
{
    int64_t k = 0;
    for (int d = 0; d < whole->ndim; d++) {
        const int64_t run = at[d] / (b->size[d] ? b->size[d] : 1), in = b->size[d] ? at[d] % b->size[d] : 0;
        k = k * whole->dims[d] + b->begin[d] + run * b->stride[d] + in;
    }
    return k;
}

/* Calls for each element of the rank's part: its index there and in the whole. */
static void each(const par_sim *s, int rank, const teng_desc *whole, const tg_placement *at, bool zigzag,
                 void (*visit)(void *user, int64_t part, int64_t in_whole), void *user)
{
    tg_box box;
    const teng_desc local = tg_mesh_local(&s->mesh, rank, whole, at);
    int coord[TG_AXES];
    tg_mesh_coords(&s->mesh, rank, coord);
    tg_mesh_box(&s->mesh, rank, whole, at, &box);
    int64_t index[TENG_MAX_DIMS] = {0};
    const int64_t n = tg_desc_numel(&local);
    for (int64_t i = 0; i < n; i++) {
        int64_t from[TENG_MAX_DIMS];
        memcpy(from, index, sizeof from);
        const int64_t size = local.ndim > 1 ? local.dims[1] / 2 : 0, parts = s->mesh.size[TG_AXIS_CONTEXT];
        tg_box b = box;
        if (zigzag) { /* dimension 1: pieces c and 2n - 1 - c of 2n */
            const int64_t c = coord[TG_AXIS_CONTEXT], piece = from[1] < size ? c : 2 * parts - 1 - c;
            b.begin[1] = 0;
            b.size[1] = whole->dims[1];
            from[1] = piece * size + from[1] % size;
        }
        visit(user, i, index_in(&b, from, whole));
        for (int d = local.ndim; d-- > 0 && ++index[d] == local.dims[d];)
            index[d] = 0;
    }
}

typedef struct copying {
    char *part, *whole;
    size_t size;
    bool *seen;
    const char *name;
} copying;
static void to_part(void *user, int64_t part, int64_t in_whole)
{
    copying *c = user;
    memcpy(c->part + (size_t)part * c->size, c->whole + (size_t)in_whole * c->size, c->size);
}
static void to_whole(void *user, int64_t part, int64_t in_whole)
{
    copying *c = user;
    char *w = c->whole + (size_t)in_whole * c->size, *p = c->part + (size_t)part * c->size;
    if (c->seen[in_whole] && memcmp(w, p, c->size) != 0)
        fail_msg("ranks differ in %s[%lld], which they hold in common", c->name, (long long)in_whole);
    c->seen[in_whole] = true;
    memcpy(w, p, c->size);
}

static tg_placement input_place(const par_sim *s, const teng_desc *whole, const teng_desc *local)
{
    tg_placement at = tg_mesh_replicated();
    if (tg_desc_equal(whole, local)) return at;
    at.on[TG_AXIS_REPLICA] = at.on[TG_AXIS_DATA] = at.on[TG_AXIS_EXPERT] = 0;
    at.on[TG_AXIS_CONTEXT] = 1;
    const teng_desc got = tg_mesh_local(&s->mesh, 0, whole, &at);
    assert_true(tg_desc_equal(&got, local));
    return at;
}

void par_sim_set(par_sim *s, const char *name, const teng_desc *whole, const void *data)
{
    for (int r = 0; r < s->mesh.ranks; r++) {
        const teng_tensor *v = tg_graph_find(s->ranks[r].g, name);
        if (!v) continue;
        const tg_parallel_entry *e = tg_parallel_entry_find(s->ranks[r].made, name);
        const tg_placement at = e ? e->placement : input_place(s, whole, &v->desc);
        const bool zigzag = !e && at.on[TG_AXIS_CONTEXT] == 1 && s->mesh.size[TG_AXIS_CONTEXT] > 1;
        copying c = {s->ranks[r].data[v->id], (char *)(uintptr_t)data, (size_t)teng_dtype_size(whole->dtype),
                     NULL, name};
        each(s, r, whole, &at, zigzag, to_part, &c);
    }
}

float *par_sim_whole(par_sim *s, const char *name)
{
    const tg_parallel_entry *e = tg_parallel_entry_find(s->ranks[0].made, name);
    if (!e) fail_msg("no entry %s", name);
    const size_t n = (size_t)tg_desc_numel(&e->whole);
    float *whole = tg_calloc(n + 1, sizeof *whole);
    bool *seen = tg_calloc(n + 1, sizeof *seen);
    for (int r = 0; r < s->mesh.ranks; r++) {
        const tg_parallel_entry *mine = tg_parallel_entry_find(s->ranks[r].made, name);
        copying c = {s->ranks[r].data[tg_graph_find(s->ranks[r].g, name)->id], (char *)whole, sizeof(float),
                     seen, name};
        each(s, r, &mine->whole, &mine->placement, false, to_whole, &c);
    }
    for (size_t i = 0; i < n; i++)
        if (!seen[i]) fail_msg("no rank holds %s[%zu]", name, i);
    tg_free(seen);
    return whole;
}

/* ---- collectives, over f32 and bf16 as kernels do: sums in f32 in the order of the ranks ---- */
static float load(const void *p, teng_dtype t, int64_t i)
{
    float x;
    tg_convert(TENG_F32, &x, t, (const char *)p + i * teng_dtype_size(t), 1);
    return x;
}

static void sum_into(par_sim *s, const int *member, int n, const tg_node *const *node, int operand,
                     int64_t count, teng_dtype t, char *out)
{
    for (int64_t i = 0; i < count; i++) {
        float x = 0;
        for (int m = 0; m < n; m++)
            x += load(s->ranks[member[m]].data[node[member[m]]->in[operand]->id], t, i);
        tg_convert(t, out + i * teng_dtype_size(t), TENG_F32, &x, 1);
    }
}

static void move_block(char *to, const char *from, int64_t outer, int64_t to_row, int64_t from_row,
                       int64_t to_at, int64_t from_at, int64_t n)
{
    for (int64_t o = 0; o < outer; o++)
        memcpy(to + o * to_row + to_at, from + o * from_row + from_at, (size_t)n);
}

static void gather(par_sim *s, const tg_node *const *node, int rank, const int *member, int n, char *out)
{
    const tg_pieces_attr *a = node[rank]->attr;
    const int which = node[rank]->op == &tg_op_gather_into;
    const teng_desc *y = &node[rank]->out[0]->desc;
    int64_t outer = 1, inner = teng_dtype_size(y->dtype);
    for (int d = 0; d < y->ndim; d++) {
        if (d < a->dim) outer *= y->dims[d];
        if (d > a->dim) inner *= y->dims[d];
    }
    assert_int_equal(n, a->parts);
    for (int m = 0; m < n; m++) {
        int64_t begin, size;
        tg_mesh_cut(a->total, n, m, &begin, &size);
        const teng_tensor *x = node[member[m]]->in[which];
        assert_int_equal(x->desc.dims[a->dim], size);
        move_block(out, s->ranks[member[m]].data[x->id], outer, a->total * inner, size * inner, begin * inner,
                   0, size * inner);
    }
}

static void communicate(par_sim *s, const tg_node *const *node)
{
    void *(*fresh)[TENG_MAX_OUT] = tg_calloc((size_t)s->mesh.ranks, sizeof *fresh);
    int *member = tg_calloc((size_t)s->mesh.ranks, sizeof *member);
    for (int r = 0; r < s->mesh.ranks; r++) {
        const tg_node *me = node[r];
        const tg_axis_set axes = (tg_axis_set) * (const int64_t *)me->attr;
        int index = 0;
        const int n = tg_mesh_group(&s->mesh, r, axes, member, &index);
        for (int m = 0; m < n; m++) {
            assert_ptr_equal(node[member[m]]->op, me->op);
            assert_true(*(const int64_t *)node[member[m]]->attr == (int64_t)axes);
            assert_int_equal(node[member[m]]->n_in, me->n_in);
            for (int i = 0; i < me->n_in; i++)
                assert_true(me->op != &tg_op_all_reduce ||
                            tg_desc_equal(&node[member[m]]->in[i]->desc, &me->in[i]->desc));
        }
        const teng_desc *x = &me->in[0]->desc, *y = &me->out[0]->desc;
        char *out = fresh[r][0] = buffer(y);
        if (me->op == &tg_op_all_reduce) {
            for (int i = 0; i < me->n_in; i++) {
                if (i) fresh[r][i] = buffer(&me->out[i]->desc);
                sum_into(s, member, n, node, i, tg_desc_numel(&me->in[i]->desc), x->dtype, fresh[r][i]);
            }
        } else if (me->op == &tg_op_reduce_scatter) {
            const tg_pieces_attr *a = me->attr;
            char *sum = buffer(x);
            sum_into(s, member, n, node, 0, tg_desc_numel(x), x->dtype, sum);
            int64_t outer = 1, inner = teng_dtype_size(x->dtype), begin, size;
            for (int d = 0; d < x->ndim; d++) {
                if (d < a->dim) outer *= x->dims[d];
                if (d > a->dim) inner *= x->dims[d];
            }
            assert_int_equal(a->index, index);
            tg_mesh_cut(a->total, n, index, &begin, &size);
            move_block(out, sum, outer, size * inner, a->total * inner, 0, begin * inner, size * inner);
            free(sum);
        } else if (me->op == &tg_op_all_gather || me->op == &tg_op_gather_into) {
            gather(s, node, r, member, n, out);
        } else {
            fail_msg("the simulator does not know %s", me->op->name);
        }
    }
    for (int r = 0; r < s->mesh.ranks; r++) {
        rank_state *k = &s->ranks[r];
        const teng_tensor *v = node[r]->out[0];
        if (node[r]->op == &tg_op_gather_into) {
            k->data[v->id] = k->data[node[r]->in[0]->id];
            memcpy(k->data[v->id], fresh[r][0], tg_desc_bytes(&v->desc));
            free(fresh[r][0]);
            continue;
        }
        for (int o = 0; o < node[r]->n_out; o++) {
            const int id = node[r]->out[o]->id;
            if (k->owned[id]) free(k->data[id]);
            k->data[id] = fresh[r][o];
            k->owned[id] = true;
        }
    }
    tg_free(fresh);
    tg_free(member);
}

/* ---- rings: the whole sequence is put together, attention runs on it, each rank takes its rows ---- */
static void rows_between(char *whole, char *part, const teng_desc *local, int dim, int64_t parts,
                         int64_t index, bool to_whole)
{
    int64_t outer = 1, inner = teng_dtype_size(local->dtype);
    for (int d = 0; d < local->ndim; d++) {
        if (d < dim) outer *= local->dims[d];
        if (d > dim) inner *= local->dims[d];
    }
    const int64_t size = local->dims[dim] / 2;
    for (int64_t half = 0; half < 2; half++) {
        const int64_t piece = half ? 2 * parts - 1 - index : index;
        for (int64_t o = 0; o < outer; o++) {
            char *w = whole + (o * 2 * parts + piece) * size * inner,
                 *q = part + (o * 2 + half) * size * inner;
            memcpy(to_whole ? w : q, to_whole ? q : w, (size_t)(size * inner));
        }
    }
}

static void run_on(const teng_op_call *call, const void *const *ins, void *const *outs, const char *scope)
{
    const teng_kernel *kernel = tg_kernel_select(call, "cpu", tg_cpu_isa_current(), NULL);
    teng_prepared prepared = {0};
    if (!kernel || (kernel->prepare && kernel->prepare(call, &prepared) != TENG_OK))
        fail_msg("%s: %s", call->op->name, teng_error());
    const teng_desc work = tg_desc_make(TENG_F32, 1, (int64_t[]){(int64_t)prepared.workspace / 4 + 16});
    void *workspace = buffer(&work);
    const teng_kernel_args args = {
        .call = call, .state = prepared.state, .in = ins, .out = outs, .workspace = workspace};
    if (kernel->run(&args) != TENG_OK) fail_msg("%s @ %s: %s", call->op->name, scope, teng_error());
    if (kernel->release && prepared.state) kernel->release(prepared.state);
    free(workspace);
}

static bool is_ring(const tg_node *node)
{
    return node->op == &tg_op_ring_attention || node->op == &tg_op_ring_attention_grad;
}

static bool is_loss(const tg_node *node)
{
    return node->op == &tg_op_linear_cross_entropy_by_vocabulary;
}

static void ring(par_sim *s, const tg_node *const *node)
{
    int *member = tg_calloc((size_t)s->mesh.ranks, sizeof *member);
    for (int r = 0; r < s->mesh.ranks; r++) {
        const tg_ring_attr *a = node[r]->attr;
        const bool grad = node[r]->op == &tg_op_ring_attention_grad;
        teng_desc in[6], out[3];
        void *ins[6], *outs[3];
        int index = 0;
        const int n = tg_mesh_group(&s->mesh, r, (tg_axis_set)a->axes, member, &index);
        assert_int_equal(n, a->parts);
        assert_int_equal(index, a->index);
        teng_op_call call = tg_node_call(node[r], in, out);
        call.op = grad ? &tg_op_attention_grad : &tg_op_attention;
        call.attr = &a->options;
        for (int i = 0; i < call.n_in + call.n_out; i++) {
            const bool is_in = i < call.n_in;
            const int k = is_in ? i : i - call.n_in, dim = (is_in ? i == 4 : !grad && k == 1) ? 2 : 1;
            teng_desc *d = is_in ? &in[k] : &out[k];
            const teng_desc local = *d;
            d->dims[dim] *= n;
            void *whole = *(is_in ? &ins[k] : &outs[k]) = buffer(d);
            for (int m = 0; is_in && m < n; m++)
                rows_between(whole, s->ranks[member[m]].data[node[member[m]]->in[k]->id], &local, dim, n, m,
                             true);
        }
        run_on(&call, (const void *const *)ins, outs, node[r]->scope);
        for (int o = 0; o < call.n_out; o++) {
            const teng_tensor *v = node[r]->out[o];
            rank_state *k = &s->ranks[r];
            if (!k->data[v->id]) k->data[v->id] = buffer(&v->desc);
            k->owned[v->id] = true;
            rows_between(outs[o], k->data[v->id], &v->desc, !grad && o == 1 ? 2 : 1, n, index, false);
            free(outs[o]);
        }
        for (int i = 0; i < call.n_in; i++)
            free(ins[i]);
    }
    tg_free(member);
}

/* ---- the loss by pieces of the vocabulary: of all of it, each rank takes the gradient of its entries; the
 * first's summand of dx is all of it ---- */
static void by_vocabulary(par_sim *s, const tg_node *const *node)
{
    int *member = tg_calloc((size_t)s->mesh.ranks, sizeof *member);
    for (int r = 0; r < s->mesh.ranks; r++) {
        const tg_linear_ce_ranks_attr *a = node[r]->attr;
        teng_desc in[4], out[3];
        const void *ins[4];
        void *outs[3];
        int index = 0;
        const int n = tg_mesh_group(&s->mesh, r, (tg_axis_set)a->axes, member, &index);
        assert_int_equal(n, a->parts);
        teng_op_call call = tg_node_call(node[r], in, out);
        const size_t row = tg_desc_bytes(&in[1]) / (size_t)in[1].dims[0];
        call.op = &tg_op_linear_cross_entropy_with_grad;
        call.attr = &a->ignore_index;
        in[1].dims[0] = out[2].dims[0] = a->total;
        char *w = buffer(&in[1]);
        for (int m = 0; m < n; m++) {
            const tg_linear_ce_ranks_attr *b = node[member[m]]->attr;
            const teng_tensor *piece = node[member[m]]->in[1];
            memcpy(w + (size_t)b->begin * row, s->ranks[member[m]].data[piece->id],
                   tg_desc_bytes(&piece->desc));
        }
        for (int i = 0; i < call.n_in; i++)
            ins[i] = i == 1 ? w : s->ranks[r].data[node[r]->in[i]->id];
        for (int o = 0; o < call.n_out; o++) {
            const teng_tensor *v = node[r]->out[o];
            if (!s->ranks[r].data[v->id]) s->ranks[r].data[v->id] = buffer(&v->desc);
            s->ranks[r].owned[v->id] = true;
            outs[o] = o == 2 ? buffer(&out[2]) : s->ranks[r].data[v->id];
        }
        run_on(&call, ins, outs, node[r]->scope);
        const teng_desc *dw = &node[r]->out[2]->desc;
        if (index) memset(outs[1], 0, tg_desc_bytes(&out[1]));
        memcpy(s->ranks[r].data[node[r]->out[2]->id], (char *)outs[2] + a->begin * dw->dims[1] * 4,
               tg_desc_bytes(dw));
        free(outs[2]);
        free(w);
    }
    tg_free(member);
}

/* ---- everything else ---- */
static void run_alone(rank_state *k, const tg_node *node)
{
    teng_desc *in = tg_alloc(sizeof *in * (size_t)(node->n_in + 1)), out[TENG_MAX_OUT];
    const void **ins = tg_alloc(sizeof(void *) * (size_t)(node->n_in + 1));
    void *outs[TENG_MAX_OUT];
    const teng_op_call call = tg_node_call(node, in, out);
    for (int i = 0; i < node->n_in; i++)
        ins[i] = k->data[node->in[i]->id];
    for (int o = 0; o < node->n_out; o++) {
        const int id = node->out[o]->id, updates = node->op->updates[o];
        if (node->op->traits & TENG_OP_VIEW) {
            k->data[id] =
                (char *)k->data[node->in[0]->id] + (node->op->view_offset ? node->op->view_offset(&call) : 0);
        } else if (updates) {
            k->data[id] = k->data[node->in[updates - 1]->id];
        } else if (!k->data[id]) {
            k->data[id] = buffer(&node->out[o]->desc);
            k->owned[id] = true;
        }
        outs[o] = k->data[id];
    }
    if (!(node->op->traits & TENG_OP_VIEW)) run_on(&call, ins, outs, node->scope);
    tg_free(in);
    tg_free(ins);
}

void par_sim_run(par_sim *s, tg_phase phase)
{
    const int n = s->mesh.ranks;
    size_t *at = tg_calloc((size_t)n, sizeof *at);
    const tg_node **node = tg_calloc((size_t)n, sizeof *node);
    for (bool more = true; more;) {
        int waiting = 0;
        for (int r = 0; r < n; r++) {
            rank_state *k = &s->ranks[r];
            for (node[r] = NULL; at[r] < k->g->nodes.len && !node[r]; at[r]++) {
                const tg_node *x = k->g->nodes.data[at[r]];
                if (x->phase != phase) continue;
                if (x->op->traits & TENG_OP_COMMUNICATES || is_ring(x) || is_loss(x))
                    node[r] = x;
                else
                    run_alone(k, x);
            }
            waiting += node[r] != NULL;
        }
        more = waiting > 0;
        if (waiting && waiting != n) fail_msg("%d of %d ranks wait for the others", waiting, n);
        if (waiting && is_ring(node[0]))
            ring(s, node);
        else if (waiting && is_loss(node[0]))
            by_vocabulary(s, node);
        else if (waiting)
            communicate(s, node);
    }
    tg_free(at);
    tg_free(node);
}

const float *par_sim_output(par_sim *s, int rank, const char *name, int64_t *n)
{
    const teng_tensor *v = tg_graph_output_find(s->ranks[rank].g, name);
    if (!v) fail_msg("no output %s", name);
    if (n) *n = tg_desc_numel(&v->desc);
    return s->ranks[rank].data[v->id];
}
