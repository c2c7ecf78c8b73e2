/*
 * Graph → plan. In order: aliases (views, updates), last uses, collectives beside computation, take-over of
 * dying buffers (in-place), kernels and their workspaces, offsets, budget. Every decision is recorded for the
 * listings. Not here: running (exec).
 *
 * Time is counted in steps of the program; forward and backward steps repeat per micro-batch, which changes
 * no lifetime, because every value is written again before it is read. Inputs and graph outputs live
 * throughout.
 */
#include "plan/plan_impl.h"

#include "base/clock.h"
#include "base/fail.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

#include <string.h>

typedef struct tg_plan_builder builder;

static int root_of(const builder *b, int id)
{
    return tg_plan_root(b, id);
}

/* Bytes by which value v's buffer is used, latest. */
static void use(builder *b, const teng_tensor *v, int step)
{
    const int r = root_of(b, v->id);
    if (b->last_use[r] < step) b->last_use[r] = step;
}

static bool is_stored(const teng_tensor *v)
{
    return v->kind == TG_VALUE_PARAM || v->kind == TG_VALUE_STATE;
}

static void alias(builder *b, const teng_tensor *v, const teng_tensor *of, int64_t offset)
{
    b->root[v->id] = root_of(b, of->id);
    b->offset[v->id] = b->offset[of->id] + (size_t)offset;
}

static void alias_view(builder *b, const tg_node *node)
{
    teng_desc in[1], out[TENG_MAX_OUT];
    if (node->n_in != 1) return; /* views have one operand */
    const teng_op_call call = tg_node_call(node, in, out);
    alias(b, node->out[0], node->in[0], node->op->view_offset ? node->op->view_offset(&call) : 0);
}

/* Views and updates share their operand's place from the start. */
static void find_aliases(builder *b)
{
    const tg_graph *g = b->plan->graph;
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        b->root[i] = (int)i;
        b->last_use[i] = b->first_use[i] = -1;
        if (v->kind == TG_VALUE_INPUT || is_stored(v)) b->pinned[i] = true;
    }
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        if (node->op->traits & TENG_OP_VIEW) alias_view(b, node);
        for (int o = 0; o < node->n_out; o++)
            if (node->op->updates[o]) alias(b, node->out[o], node->in[node->op->updates[o] - 1], 0);
    }
    for (size_t i = 0; i < g->outputs.len; i++)
        b->pinned[root_of(b, g->outputs.data[i].value->id)] = true;
}

/* Another operand of the node is the newest state of these bytes: gather_into, whose whole is what its piece
 * was updated in. */
static bool takes_newest(const builder *b, const tg_node *node, int i, const int *updates, const int *seen)
{
    const int r = root_of(b, node->in[i]->id);
    for (int j = 0; j < node->n_in; j++)
        if (root_of(b, node->in[j]->id) == r && seen[node->in[j]->id] == updates[r]) return true;
    return false;
}

/* An updated value must not be read under its old name afterwards, nor through a view of it. */
static teng_status check_updates(const builder *b)
{
    const tg_graph *g = b->plan->graph;
    const size_t n = g->values.len + 1;
    int *updates = tg_calloc(n, sizeof *updates); /* by root id: updates of its bytes so far */
    int *seen = tg_calloc(n, sizeof *seen);       /* by value id: how many of them it includes */
    teng_status status = updates && seen ? TENG_OK : TENG_MEMORY;
    for (size_t k = 0; k < g->nodes.len && status == TENG_OK; k++) {
        const tg_node *node = g->nodes.data[k];
        for (int i = 0; i < node->n_in && status == TENG_OK; i++)
            if (!takes_newest(b, node, i, updates, seen))
                status = tg_fail(TENG_STATE, "plan: %s (node %d) reads a value that was updated before",
                                 node->op->name, node->id);
        for (int o = 0; o < node->n_out; o++) {
            const int id = node->out[o]->id, r = root_of(b, id);
            if (node->op->updates[o]) updates[r]++;
            seen[id] = updates[r];
        }
    }
    for (size_t i = 0; i < g->outputs.len && status == TENG_OK; i++) {
        const int id = g->outputs.data[i].value->id;
        if (seen[id] < updates[root_of(b, id)])
            status = tg_fail(TENG_STATE, "plan: output %s names a value that is updated later",
                             g->outputs.data[i].name);
    }
    tg_free(updates);
    tg_free(seen);
    return status;
}

static tg_phase phase_of(const tg_plan *plan, int step)
{
    int phase = TG_FORWARD;
    while (phase < TG_UPDATE && plan->phase_begin[phase + 1] <= (size_t)step)
        phase++;
    return (tg_phase)phase;
}

/* With slots inputs are fed before the first phase that reads them and outputs fetched after the one that
 * makes them: they live from the beginning of a phase to the end of one. */
static void span_phases(builder *b, int root)
{
    const tg_plan *plan = b->plan;
    if (b->first_use[root] < 0) return; /* nothing reads it */
    b->first_use[root] = (int)plan->phase_begin[phase_of(plan, b->first_use[root])];
    b->last_use[root] = (int)plan->phase_begin[phase_of(plan, b->last_use[root]) + 1] - 1;
}

static void find_lifetimes(builder *b)
{
    const tg_graph *g = b->plan->graph;
    const int end = (int)g->nodes.len;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        for (int i = 0; i < node->n_in; i++) {
            const int r = root_of(b, node->in[i]->id);
            if (b->first_use[r] < 0) b->first_use[r] = (int)k;
            use(b, node->in[i], (int)k);
        }
        for (int o = 0; o < node->n_out; o++) {
            const int r = root_of(b, node->out[o]->id);
            if (b->first_use[r] < 0) b->first_use[r] = (int)k;
            use(b, node->out[o], (int)k);
        }
    }
    for (size_t i = 0; i < g->values.len; i++)
        if (b->pinned[i] && b->root[i] == (int)i) {
            if (b->plan->options.slots > 0 && !is_stored(g->values.data[i])) {
                span_phases(b, (int)i);
                continue;
            }
            if (g->values.data[i]->kind != TG_VALUE_COMPUTED || b->first_use[i] < 0) b->first_use[i] = 0;
            b->last_use[i] = end;
        }
}

/* Whether output o of step k may take over the buffer of input i: it dies here, has the same size, and no
 * other operand of the node lies in it under another shape. */
static bool can_take_over(const builder *b, const tg_node *node, int k, int o, int i)
{
    const teng_tensor *in = node->in[i], *out = node->out[o];
    const int r = root_of(b, in->id);
    if (b->pinned[r] || b->last_use[r] != k || tg_desc_bytes(&in->desc) != tg_desc_bytes(&out->desc))
        return false;
    if (tg_desc_bytes(&b->plan->graph->values.data[r]->desc) != tg_desc_bytes(&out->desc)) return false;
    for (int j = 0; j < node->n_in; j++) {
        if (j == i || root_of(b, node->in[j]->id) != r) continue;
        if (!(node->op->traits & TENG_OP_ELEMENTWISE) || !tg_desc_equal(&node->in[j]->desc, &in->desc))
            return false;
    }
    for (int p = 0; p < o; p++)
        if (root_of(b, node->out[p]->id) == r) return false;
    return true;
}

static void take_over_in(builder *b, int k)
{
    const tg_node *node = b->plan->graph->nodes.data[k];
    tg_plan_step *step = &b->plan->steps.data[k];
    for (int o = 0; o < node->n_out; o++) {
        const int mine = node->out[o]->id;
        if (b->root[mine] != mine || b->pinned[mine]) continue;
        for (int i = 0; i < node->n_in && i < 32; i++) {
            if (!(node->op->inplace[o] >> i & 1u) || !can_take_over(b, node, k, o, i)) continue;
            const int r = root_of(b, node->in[i]->id);
            b->root[mine] = r;
            b->last_use[r] = b->last_use[mine];
            if (o == 0) step->inplace_of = i;
            break;
        }
    }
}

/* Collectives first: those that run beside computation then hold their operands for longer. */
static void take_over(builder *b, bool collectives)
{
    const tg_graph *g = b->plan->graph;
    for (int k = 0; k < (int)g->nodes.len && !b->plan->options.no_inplace; k++)
        if (!(g->nodes.data[k]->op->traits & TENG_OP_COMMUNICATES) == !collectives) take_over_in(b, k);
}

static teng_status choose_kernel(builder *b, tg_plan_step *step)
{
    tg_plan *plan = b->plan;
    const tg_node *node = step->node;
    teng_desc *in = tg_arena_alloc(plan->arena, sizeof *in * (size_t)(node->n_in + 1));
    teng_desc *out = tg_arena_alloc(plan->arena, sizeof *out * (size_t)node->n_out);
    if (!in || !out) return TENG_MEMORY;
    step->call = tg_node_call(node, in, out);
    step->refused = "";
    step->workspace_buffer = -1;
    tg_op_cost(&step->call, &step->cost);
    if (node->op->traits & TENG_OP_VIEW) return TENG_OK;
    tg_strbuf why = {0};
    step->kernel = tg_kernel_select(&step->call, plan->options.device, plan->options.isa, &why);
    if (why.len) step->refused = tg_arena_strdup(plan->arena, tg_strbuf_str(&why));
    tg_strbuf_free(&why);
    if (!step->kernel || !step->refused) return teng_error_status();
    if (step->kernel->prepare) TG_TRY(step->kernel->prepare(&step->call, &step->prepared));
    return TENG_OK;
}

static teng_status choose_kernels(builder *b)
{
    for (size_t k = 0; k < b->plan->steps.len; k++) {
        tg_plan_step *step = &b->plan->steps.data[k];
        const teng_status status = choose_kernel(b, step);
        if (status != TENG_OK) {
            tg_strbuf where = {0};
            tg_node_where(step->node, &where);
            tg_fail_context("plan: %s", tg_strbuf_str(&where));
            tg_strbuf_free(&where);
            return status;
        }
    }
    return TENG_OK;
}

/* Where value i lies when its buffer is its own. */
static teng_status place_root(builder *b, const teng_tensor *v)
{
    tg_plan *plan = b->plan;
    const int i = v->id;
    if (b->root[i] != i) return TENG_OK;
    if (b->stays[i]) return tg_plan_place_stays(b, i);
    if (is_stored(v)) {
        plan->values[i] = (tg_plan_value){.where = TG_AT_STORE, .buffer = -1, .name = v->name};
    } else if (b->first_use[i] >= 0) {
        const tg_buffer buffer = {tg_desc_bytes(&v->desc), b->first_use[i], b->last_use[i], 0, i};
        plan->values[i] = (tg_plan_value){.where = TG_AT_BLOCK, .buffer = (int)plan->buffers.len};
        if (!tg_vec_push(&plan->buffers, buffer)) return TENG_MEMORY;
    }
    return TENG_OK;
}

/* The buffers with kept == `kept` in a block of their own. */
static teng_status lay_out_some(tg_plan *plan, bool kept, tg_buffer *some, size_t *block, size_t *live)
{
    size_t n = 0;
    int peak_step = 0;
    for (size_t i = 0; i < plan->buffers.len; i++)
        if (plan->kept[i] == kept) some[n++] = plan->buffers.data[i];
    TG_TRY(tg_layout(some, n, block, live, &peak_step));
    if (!kept) plan->memory.peak_step = peak_step;
    n = 0;
    for (size_t i = 0; i < plan->buffers.len; i++)
        if (plan->kept[i] == kept) plan->buffers.data[i].offset = some[n++].offset;
    return TENG_OK;
}

static teng_status lay_out_apart(tg_plan *plan)
{
    const size_t n = plan->buffers.len + 1;
    tg_buffer *some = tg_calloc(n, sizeof *some);
    plan->kept = tg_arena_alloc(plan->arena, n * sizeof *plan->kept);
    teng_status status = some && plan->kept ? TENG_OK : TENG_MEMORY;
    for (size_t i = 0; status == TENG_OK && i < plan->buffers.len; i++) {
        const tg_buffer *x = &plan->buffers.data[i];
        plan->kept[i] = phase_of(plan, x->first) != phase_of(plan, x->last);
    }
    size_t live = 0;
    if (status == TENG_OK) status = lay_out_some(plan, true, some, &plan->memory.slot, &live);
    if (status == TENG_OK)
        status = lay_out_some(plan, false, some, &plan->memory.block, &plan->memory.live_peak);
    plan->memory.live_peak += live * (size_t)plan->options.slots;
    tg_free(some);
    return status;
}

/* Named values, then computed ones by their nodes, as they stand in the text of a graph: equal texts give
 * equal plans, whatever a pass has put where. */
static teng_status make_buffers(builder *b)
{
    tg_plan *plan = b->plan;
    const tg_graph *g = plan->graph;
    for (size_t i = 0; i < g->values.len; i++)
        if (g->values.data[i]->kind != TG_VALUE_COMPUTED) TG_TRY(place_root(b, g->values.data[i]));
    for (size_t k = 0; k < g->nodes.len; k++)
        for (int o = 0; o < g->nodes.data[k]->n_out; o++)
            TG_TRY(place_root(b, g->nodes.data[k]->out[o]));
    for (size_t i = 0; i < g->values.len; i++) {
        plan->values[i] = plan->values[root_of(b, (int)i)];
        plan->values[i].offset = b->offset[i];
    }
    for (size_t k = 0; k < plan->steps.len; k++) {
        tg_plan_step *step = &plan->steps.data[k];
        if (!step->prepared.workspace) continue;
        const tg_buffer buffer = {step->prepared.workspace, (int)k, step->join < 0 ? (int)k : step->join, 0,
                                  -1};
        step->workspace_buffer = (int)plan->buffers.len;
        if (!tg_vec_push(&plan->buffers, buffer)) return TENG_MEMORY;
    }
    return plan->options.slots > 0 ? lay_out_apart(plan)
                                   : tg_layout(plan->buffers.data, plan->buffers.len, &plan->memory.block,
                                               &plan->memory.live_peak, &plan->memory.peak_step);
}

static void count_memory(builder *b)
{
    tg_plan *plan = b->plan;
    const tg_graph *g = plan->graph;
    const int backward = (int)plan->phase_begin[TG_BACKWARD], update = (int)plan->phase_begin[TG_UPDATE];
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        const size_t bytes = tg_desc_bytes(&v->desc);
        if (b->stays[i])
            plan->memory.offloaded[v->kind == TG_VALUE_STATE   ? 0
                                   : v->kind == TG_VALUE_PARAM ? 1
                                                               : 2] += bytes;
        else if (v->kind == TG_VALUE_PARAM)
            plan->memory.params += bytes;
        else if (v->kind == TG_VALUE_STATE)
            plan->memory.states += bytes;
    }
    for (size_t i = 0; i < plan->buffers.len; i++) {
        const tg_buffer *x = &plan->buffers.data[i];
        if (x->value >= 0 && g->values.data[x->value]->kind == TG_VALUE_COMPUTED && x->first < backward &&
            x->last >= backward && backward < update)
            plan->memory.kept_for_backward += x->bytes;
    }
}

size_t tg_plan_bytes(const tg_plan *plan)
{
    return plan->memory.params + plan->memory.states + plan->memory.block +
           plan->memory.slot * (size_t)plan->options.slots;
}

size_t tg_plan_offloaded(const tg_plan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < TG_OFFLOAD_KINDS; i++)
        bytes += plan->memory.offloaded[i];
    return bytes;
}

static teng_status check_budget(const tg_plan *plan)
{
    const tg_plan_memory *m = &plan->memory;
    const size_t total = tg_plan_bytes(plan);
    if (!plan->options.budget || total <= plan->options.budget) return TENG_OK;
    char need[32], have[32], over[32], fixed[32], block[32];
    return tg_fail(
        TENG_MEMORY,
        "memory.budget: the plan needs %s, the budget is %s: %s too little. Parameters and optimizer take "
        "%s, activations and workspace %s, which smaller micro-batches make less",
        tg_format_bytes(need, (double)total), tg_format_bytes(have, (double)plan->options.budget),
        tg_format_bytes(over, (double)(total - plan->options.budget)),
        tg_format_bytes(fixed, (double)(m->params + m->states)), tg_format_bytes(block, (double)m->block));
}

static teng_status build(builder *b)
{
    tg_plan *plan = b->plan;
    const tg_graph *g = plan->graph;
    TG_TRY(tg_graph_check(g));
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_plan_step step = {
            .node = g->nodes.data[k], .inplace_of = -1, .workspace_buffer = -1, .join = -1, .waits = -1};
        if (!tg_vec_push(&plan->steps, step)) return TENG_MEMORY;
        for (int p = (int)step.node->phase + 1; p <= TG_PHASE_COUNT; p++)
            plan->phase_begin[p] = k + 1;
    }
    find_aliases(b);
    TG_TRY(check_updates(b));
    find_lifetimes(b);
    take_over(b, true);
    if (!plan->options.no_overlap) TG_TRY(tg_plan_overlap(b));
    take_over(b, false);
    TG_TRY(choose_kernels(b));
    TG_TRY(tg_plan_find_stays(b));
    TG_TRY(make_buffers(b));
    TG_TRY(tg_plan_list_moves(plan));
    count_memory(b);
    return check_budget(plan);
}

teng_status tg_plan_create(tg_graph *graph, const tg_plan_options *options, tg_plan **out)
{
    const double begin = tg_clock_seconds();
    tg_plan *plan = tg_calloc(1, sizeof *plan);
    if (!plan) {
        tg_graph_destroy(&graph);
        return TENG_MEMORY;
    }
    plan->graph = graph;
    plan->options = *options;
    plan->arena = tg_arena_create();
    const size_t n = graph->values.len + 1;
    plan->values = tg_calloc(n, sizeof *plan->values);
    builder b = {.plan = plan,
                 .root = tg_alloc(n * sizeof(int)),
                 .last_use = tg_alloc(n * sizeof(int)),
                 .first_use = tg_alloc(n * sizeof(int)),
                 .pinned = tg_calloc(n, sizeof(bool)),
                 .stays = tg_calloc(n, sizeof(int)),
                 .offset = tg_calloc(n, sizeof(size_t))};
    teng_status status = TENG_MEMORY;
    if (plan->arena && plan->values && b.root && b.last_use && b.first_use && b.pinned && b.stays && b.offset)
        status = build(&b);
    tg_free(b.root);
    tg_free(b.last_use);
    tg_free(b.first_use);
    tg_free(b.pinned);
    tg_free(b.stays);
    tg_free(b.offset);
    if (status != TENG_OK) {
        tg_plan_destroy(&plan);
        return status;
    }
    plan->seconds = tg_clock_seconds() - begin;
    *out = plan;
    return TENG_OK;
}

void tg_plan_destroy(tg_plan **plan)
{
    tg_plan *p = *plan;
    if (!p) return;
    for (size_t k = 0; k < p->steps.len; k++) {
        const tg_plan_step *step = &p->steps.data[k];
        if (step->kernel && step->kernel->release && step->prepared.state)
            step->kernel->release(step->prepared.state);
    }
    tg_vec_free(&p->steps);
    tg_vec_free(&p->buffers);
    tg_vec_free(&p->stays);
    tg_vec_free(&p->moves);
    tg_free(p->values);
    tg_arena_destroy(&p->arena);
    tg_graph_destroy(&p->graph);
    tg_free(p);
    *plan = NULL;
}

teng_cost tg_plan_cost(const tg_plan *plan, tg_phase phase)
{
    teng_cost sum = {0};
    for (size_t k = plan->phase_begin[phase]; k < plan->phase_begin[phase + 1]; k++) {
        const teng_cost *c = &plan->steps.data[k].cost;
        sum.flops += c->flops;
        sum.bytes_read += c->bytes_read;
        sum.bytes_written += c->bytes_written;
    }
    return sum;
}

double tg_plan_step_forecast(const tg_plan *plan, size_t k)
{
    const tg_plan_options *o = &plan->options;
    if (o->flops_per_s <= 0 || o->bytes_per_s <= 0) return 0;
    return tg_cost_seconds(&plan->steps.data[k].cost, o->flops_per_s, o->bytes_per_s);
}

double tg_plan_forecast(const tg_plan *plan, tg_phase phase)
{
    double seconds = 0;
    for (size_t k = plan->phase_begin[phase]; k < plan->phase_begin[phase + 1]; k++)
        seconds += tg_plan_step_forecast(plan, k);
    return seconds;
}
