/* Executor: an array of ready kernel calls. Binding again is only needed after the shared block has grown.
 * Collectives that the plan lets run beside computation are posted to the thread of communication and awaited
 * where the plan says. */
#include "exec/exec.h"

#include "base/clock.h"
#include "base/fail.h"
#include "comm/comm.h"
#include "tensor/desc.h"

struct tg_exec_block {
    tg_device *dev;
    void *base;
    size_t bytes;
    int generation; /* counts growths */
    const tg_probe *probe;
};

typedef struct bound_step {
    teng_kernel_args args; /* run is NULL for views */
    teng_status (*run)(const teng_kernel_args *args);
    const tg_node *node;
    /* With several ranks: */
    const char *where; /* "backward, layer path (operator, file:line)" */
    tg_ticket ticket;  /* of a collective beside computation */
    double begin, end; /* of that */
} bound_step;

typedef struct stay { /* of a value that lies in a file else */
    const char *what;
    uint64_t offset; /* there */
    size_t bytes;
    void *memory;
    uint64_t ticket; /* of what was asked for last */
} stay;

struct tg_exec {
    tg_comm *comm;   /* NULL: one rank alone */
    tg_arena *texts; /* of steps */
    size_t
        posted;  /* the last collective that was begun beside computation and not awaited; steps.len: none */
    size_t told; /* collectives of earlier steps are awaited and told to the probe */
    tg_spill *spill; /* NULL: the plan moves nothing */
    stay *stays;     /* as the plan has them */
    size_t move;     /* the next of the plan's moves */
    const tg_plan *plan;
    tg_store *store;
    tg_exec_block *block, *slot; /* slot NULL: all lies in block */
    int generation, slot_generation;
    bound_step *steps;
    const void **in;
    void **out;
};

tg_exec_block *tg_exec_block_create(tg_device *dev)
{
    tg_exec_block *b = tg_calloc(1, sizeof *b);
    if (b) b->dev = dev;
    return b;
}

void tg_exec_block_destroy(tg_exec_block **block)
{
    if (!*block) return;
    tg_device_free((*block)->dev, (*block)->base);
    tg_free(*block);
    *block = NULL;
}

size_t tg_exec_block_bytes(const tg_exec_block *block)
{
    return block->bytes;
}

void tg_exec_block_probe(tg_exec_block *block, const tg_probe *probe)
{
    block->probe = probe;
}

/* Contents are lost: nothing in the block outlives a step. */
static teng_status grow_block(tg_exec_block *b, size_t bytes)
{
    if (bytes <= b->bytes && b->base) return TENG_OK;
    tg_device_free(b->dev, b->base);
    b->bytes = 0;
    b->generation++;
    b->base = tg_device_alloc(b->dev, bytes ? bytes : TG_ALIGN);
    if (!b->base) return tg_fail_context("the activation block of the plan");
    b->bytes = bytes;
    return TENG_OK;
}

/* Where v is at step k. */
static void *place(const tg_exec *e, const teng_tensor *v, int k)
{
    const tg_plan_value *at = &e->plan->values[v->id];
    if (at->where == TG_AT_BLOCK) {
        const int buffer = tg_plan_buffer(e->plan, v->id, k);
        const bool kept = e->slot && e->plan->kept[buffer];
        return (char *)(kept ? e->slot : e->block)->base + e->plan->buffers.data[buffer].offset + at->offset;
    }
    if (at->where == TG_AT_STORE) return (char *)tg_store_find(e->store, at->name)->data + at->offset;
    return NULL;
}

static void bind_places(tg_exec *e)
{
    const void **in = e->in;
    void **out = e->out;
    for (size_t k = 0; k < e->plan->steps.len; k++) {
        const tg_plan_step *step = &e->plan->steps.data[k];
        bound_step *b = &e->steps[k];
        b->node = step->node;
        b->run = step->kernel ? step->kernel->run : NULL;
        b->args =
            (teng_kernel_args){.call = &step->call, .state = step->prepared.state, .in = in, .out = out};
        for (int i = 0; i < step->node->n_in; i++)
            *in++ = place(e, step->node->in[i], (int)k);
        for (int o = 0; o < step->node->n_out; o++)
            *out++ = place(e, step->node->out[o], (int)k);
        if (step->workspace_buffer >= 0)
            b->args.workspace = (char *)e->block->base + e->plan->buffers.data[step->workspace_buffer].offset;
    }
    for (size_t i = 0; i < e->plan->stays.len; i++)
        e->stays[i].memory =
            (char *)e->block->base + e->plan->buffers.data[e->plan->stays.data[i].buffer].offset;
    e->generation = e->block->generation;
    if (e->slot) e->slot_generation = e->slot->generation;
}

static void bind_again(tg_exec *e)
{
    if (e->generation != e->block->generation || (e->slot && e->slot_generation != e->slot->generation))
        bind_places(e);
}

static teng_status add_stored(const tg_plan *plan, tg_store *store)
{
    for (size_t i = 0; i < plan->graph->values.len; i++) {
        const teng_tensor *v = plan->graph->values.data[i];
        if (v->kind != TG_VALUE_PARAM && v->kind != TG_VALUE_STATE) continue;
        tg_store_entry *entry;
        TG_TRY((plan->values[i].where == TG_AT_BLOCK ? tg_store_add_on_disk : tg_store_add)(
            store, v->kind == TG_VALUE_PARAM ? TG_STORE_PARAM : TG_STORE_STATE, v->name, &v->desc, &entry));
    }
    return TENG_OK;
}

/* Another plan may have made rooms larger since, and moved them. */
static teng_status find_slots(tg_exec *e)
{
    for (size_t i = 0; i < e->plan->stays.len; i++) {
        const int slot = e->plan->stays.data[i].slot;
        stay *s = &e->stays[i];
        if (slot >= 0) TG_TRY(tg_spill_slot(e->spill, slot, s->bytes, &s->offset));
    }
    return TENG_OK;
}

static teng_status add_stays(tg_exec *e)
{
    const tg_plan *plan = e->plan;
    if (plan->stays.len == 0) return TENG_OK;
    TG_TRY(tg_store_spill(e->store, &e->spill));
    if (!e->spill) return tg_fail(TENG_STATE, "memory.offload needs a folder (offload.path)");
    for (size_t i = 0; i < plan->stays.len; i++) {
        const tg_plan_stay *p = &plan->stays.data[i];
        const teng_tensor *v = plan->graph->values.data[p->value];
        stay *s = &e->stays[i];
        *s = (stay){.what = v->name ? v->name : v->node->scope, .bytes = tg_desc_bytes(&v->desc)};
        if (p->slot < 0) s->offset = tg_store_find(e->store, v->name)->offset;
    }
    return find_slots(e);
}

/* Where each step stands, for the messages of ranks that wait for this one. */
static teng_status add_texts(tg_exec *e)
{
    e->comm = tg_comm_current();
    if (!e->comm || tg_comm_size(e->comm) == 1) {
        e->comm = NULL;
        return TENG_OK;
    }
    e->texts = tg_arena_create();
    if (!e->texts) return TENG_MEMORY;
    for (size_t k = 0; k < e->plan->steps.len; k++) {
        const tg_node *node = e->plan->steps.data[k].node;
        tg_strbuf where = {0};
        tg_node_where(node, &where);
        e->steps[k].where =
            tg_arena_printf(e->texts, "%s, %s", tg_phase_name(node->phase), tg_strbuf_str(&where));
        tg_strbuf_free(&where);
        if (!e->steps[k].where) return TENG_MEMORY;
    }
    return TENG_OK;
}

teng_status tg_exec_create(const tg_plan *plan, tg_store *store, tg_exec_block *block, tg_exec **out)
{
    return tg_exec_create_slot(plan, store, block, NULL, out);
}

teng_status tg_exec_create_slot(const tg_plan *plan, tg_store *store, tg_exec_block *block,
                                tg_exec_block *slot, tg_exec **out)
{
    if ((slot != NULL) != (plan->options.slots > 0))
        return tg_fail(TENG_STATE, "exec: a plan with slots runs in one, and no other does");
    TG_TRY(add_stored(plan, store));
    TG_TRY(grow_block(block, plan->memory.block));
    if (slot) TG_TRY(grow_block(slot, plan->memory.slot));
    size_t n_in = 1, n_out = 1;
    for (size_t k = 0; k < plan->steps.len; k++) {
        n_in += (size_t)plan->steps.data[k].node->n_in;
        n_out += (size_t)plan->steps.data[k].node->n_out;
    }
    tg_exec *e = tg_calloc(1, sizeof *e);
    if (!e) return TENG_MEMORY;
    *e = (tg_exec){.plan = plan, .store = store, .block = block, .slot = slot};
    e->steps = tg_calloc(plan->steps.len + 1, sizeof *e->steps);
    e->in = tg_calloc(n_in, sizeof *e->in);
    e->out = tg_calloc(n_out, sizeof *e->out);
    e->stays = tg_calloc(plan->stays.len + 1, sizeof *e->stays);
    teng_status status = e->steps && e->in && e->out && e->stays ? add_stays(e) : TENG_MEMORY;
    if (status == TENG_OK) status = add_texts(e);
    if (status != TENG_OK) {
        tg_exec_destroy(&e);
        return status;
    }
    bind_places(e);
    *out = e;
    return TENG_OK;
}

void tg_exec_destroy(tg_exec **exec)
{
    if (!*exec) return;
    tg_free((*exec)->steps);
    tg_free((*exec)->in);
    tg_free((*exec)->out);
    tg_free((*exec)->stays);
    tg_arena_destroy(&(*exec)->texts);
    tg_free(*exec);
    *exec = NULL;
}

bool tg_exec_has_input(const tg_exec *exec, const char *input)
{
    const teng_tensor *v = tg_graph_find(exec->plan->graph, input);
    return v && v->kind == TG_VALUE_INPUT;
}

teng_status tg_exec_feed(tg_exec *exec, const char *input, const void *data)
{
    const teng_tensor *v = tg_graph_find(exec->plan->graph, input);
    if (!v || v->kind != TG_VALUE_INPUT)
        return tg_fail(TENG_INVALID, "the graph has no input named %s", input);
    bind_again(exec);
    void *to = place(exec, v, 0);
    if (!to) return TENG_OK; /* nothing reads it */
    return tg_device_copy(exec->block->dev, NULL, TG_COPY_TO_DEVICE, to, data, tg_desc_bytes(&v->desc));
}

void *tg_exec_at(tg_exec *exec, const char *name)
{
    const teng_tensor *v = tg_graph_output_find(exec->plan->graph, name);
    if (!v) v = tg_graph_find(exec->plan->graph, name);
    bind_again(exec);
    return v ? place(exec, v, 0) : NULL;
}

/* ---- stays: the plan's moves up to those of this kind at step k. Requests are served in order, so reading
 * may be asked for where a write is under way. ---- */
static teng_status move_until(tg_exec *e, size_t k, tg_move_kind kind)
{
    for (; e->move < e->plan->moves.len; e->move++) {
        const tg_plan_move *m = &e->plan->moves.data[e->move];
        stay *s = &e->stays[m->stay];
        if ((size_t)m->step > k || ((size_t)m->step == k && m->kind > kind)) break;
        if (m->kind == TG_MOVE_READ)
            s->ticket = tg_spill_read(e->spill, s->what, s->offset, s->bytes, s->memory);
        else if (m->kind == TG_MOVE_WRITE)
            s->ticket = tg_spill_write(e->spill, s->what, s->offset, s->bytes, s->memory);
        else
            TG_TRY(tg_spill_wait(e->spill, s->ticket));
    }
    return TENG_OK;
}

/* The first move of a run that begins at step k. */
static size_t first_move(const tg_plan *plan, size_t k)
{
    size_t low = 0, high = plan->moves.len;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((size_t)plan->moves.data[middle].step < k)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Nothing is under way any more. */
static teng_status end_moves(tg_exec *e, teng_status status)
{
    if (!e->spill) return status;
    const teng_status moved = tg_spill_wait_all(e->spill); /* the first error stays */
    return status != TENG_OK ? status : moved;
}

static teng_status failed(const bound_step *step, teng_status status)
{
    tg_strbuf where = {0};
    tg_node_where(step->node, &where);
    tg_fail_context("%s", tg_strbuf_str(&where));
    tg_strbuf_free(&where);
    return status;
}

/* ---- collectives beside computation ---- */
static teng_status run_beside(void *user)
{
    bound_step *step = user;
    tg_comm_at(step->where);
    step->begin = tg_clock_seconds();
    const teng_status status = step->run(&step->args);
    step->end = tg_clock_seconds();
    return status == TENG_OK ? status : failed(step, status);
}

static void tell(tg_exec *e, size_t k, double begin, double end, bool beside)
{
    const tg_probe *probe = e->block->probe;
    const bound_step *step = &e->steps[k];
    probe->ran(probe->user, &(tg_node_run){.node = step->node,
                                           .call = step->args.call,
                                           .kernel = e->plan->steps.data[k].kernel,
                                           .begin = begin,
                                           .end = end,
                                           .beside_begin = beside ? step->begin : 0,
                                           .beside_end = beside ? step->end : 0});
}

/* Until collective k and all before it are done; the probe takes the waiting for k's. */
static teng_status await(tg_exec *e, size_t k)
{
    const double begin = tg_clock_seconds();
    TG_TRY(tg_comm_wait(e->comm, e->steps[k].ticket));
    for (; e->told <= k; e->told++)
        if (e->block->probe && e->steps[e->told].ticket)
            tell(e, e->told, begin, e->told == k ? tg_clock_seconds() : begin, true);
    if (e->posted <= k) e->posted = e->plan->steps.len;
    return TENG_OK;
}

static teng_status await_all(tg_exec *e)
{
    return e->posted < e->plan->steps.len ? await(e, e->posted) : TENG_OK;
}

/* Says what comes, and waits for the collectives that it needs. */
static teng_status prepare_step(tg_exec *e, size_t k)
{
    const int waits = e->plan->steps.data[k].waits;
    if (waits >= 0 && e->posted < e->plan->steps.len && e->told <= (size_t)waits)
        TG_TRY(await(e, (size_t)waits));
    return e->steps[k].run ? tg_comm_doing(e->comm, e->steps[k].where) : TENG_OK;
}

static bool is_beside(const tg_exec *e, size_t k)
{
    return e->comm && e->plan->steps.data[k].join >= 0;
}

static teng_status start(tg_exec *e, size_t k)
{
    bound_step *step = &e->steps[k];
    if (!is_beside(e, k)) {
        if (e->comm && step->node->op->traits & TENG_OP_COMMUNICATES) tg_comm_at(step->where);
        return step->run(&step->args);
    }
    step->ticket = tg_comm_post(e->comm, run_beside, step);
    e->posted = k;
    return step->ticket ? TENG_OK : teng_error_status();
}

/* ---- steps ---- */
static teng_status run_step(tg_exec *e, size_t k)
{
    const bound_step *step = &e->steps[k];
    if (e->comm) TG_TRY(prepare_step(e, k));
    if (!step->run) return TENG_OK;
    if (e->spill) TG_TRY(move_until(e, k, TG_MOVE_ARRIVED));
    const teng_status status = start(e, k);
    if (status != TENG_OK) return failed(step, status);
    return e->spill ? move_until(e, k, TG_MOVE_WRITE) : TENG_OK;
}

static teng_status run_probed(tg_exec *e, size_t k)
{
    if (e->comm) TG_TRY(prepare_step(e, k)); /* waiting is not this step's time */
    if (!e->steps[k].run) return TENG_OK;
    const double begin = tg_clock_seconds();
    TG_TRY(run_step(e, k));
    TG_TRY(tg_stream_sync(e->block->dev, NULL));
    if (!is_beside(e, k)) tell(e, k, begin, tg_clock_seconds(), false);
    return TENG_OK;
}

static teng_status begin_run(tg_exec *e, size_t first)
{
    bind_again(e);
    e->posted = e->plan->steps.len;
    e->told = first;
    e->move = first_move(e->plan, first);
    for (size_t k = first; e->comm && k < e->plan->steps.len; k++)
        e->steps[k].ticket = 0;
    return find_slots(e);
}

/* Nothing of the run is under way any more, whether it failed or not. */
static teng_status end_run(tg_exec *e, teng_status status)
{
    const teng_status moved = end_moves(e, status);
    tg_comm_at(NULL);
    const teng_status awaited = e->comm ? await_all(e) : TENG_OK;
    return moved != TENG_OK ? moved : awaited;
}

teng_status tg_exec_run(tg_exec *exec, tg_phase first, tg_phase last)
{
    const size_t end = exec->plan->phase_begin[last + 1];
    teng_status status = begin_run(exec, exec->plan->phase_begin[first]);
    for (size_t k = exec->plan->phase_begin[first]; k < end && status == TENG_OK; k++)
        if (exec->steps[k].run) status = exec->block->probe ? run_probed(exec, k) : run_step(exec, k);
    status = end_run(exec, status);
    return status == TENG_OK ? tg_stream_sync(exec->block->dev, NULL) : status;
}

/* Whoever watches sees each result at once: nothing runs beside. */
teng_status tg_exec_run_watched(tg_exec *exec, tg_phase first, tg_phase last, tg_node_watch *watch,
                                void *user, bool *stopped)
{
    const size_t end = exec->plan->phase_begin[last + 1];
    teng_status status = begin_run(exec, exec->plan->phase_begin[first]);
    *stopped = false;
    for (size_t k = exec->plan->phase_begin[first]; k < end && status == TENG_OK && !*stopped; k++) {
        const bound_step *step = &exec->steps[k];
        if (!step->run) continue;
        status = run_step(exec, k);
        if (status == TENG_OK && exec->comm) status = await_all(exec);
        if (status == TENG_OK) status = tg_stream_sync(exec->block->dev, NULL);
        if (status == TENG_OK) *stopped = watch(user, step->node, step->args.out);
    }
    return end_run(exec, status);
}

teng_status tg_exec_fetch(tg_exec *exec, const char *output, void *data, size_t bytes)
{
    const teng_tensor *v = tg_graph_output_find(exec->plan->graph, output);
    if (!v) return tg_fail(TENG_INVALID, "the graph has no output named %s", output);
    if (bytes != tg_desc_bytes(&v->desc))
        return tg_fail(TENG_INVALID, "output %s has %zu bytes, %zu were asked for", output,
                       tg_desc_bytes(&v->desc), bytes);
    return tg_device_copy(exec->block->dev, NULL, TG_COPY_TO_HOST, data, place(exec, v, 0), bytes);
}
