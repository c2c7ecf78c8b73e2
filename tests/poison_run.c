/*
 * The plan's promises, checked while it runs. A buffer is filled with 0xFF (NaN as a float, -1 as a number)
 * before its first step and after its last one, so a value that is read outside of its lifetime, or that
 * shares memory with another live one, changes the result. Operands of one step may lie over each other only
 * as the operator says. Collectives that may run beside computation run at the end of their time.
 */
#include "poison_run.h"

#include "graph/op_table.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

const void *poison_value(const tg_plan *plan, tg_store *store, const unsigned char *block,
                         const teng_tensor *v)
{
    const tg_plan_value *at = &plan->values[v->id];
    if (at->where == TG_AT_BLOCK) return block + plan->buffers.data[at->buffer].offset + at->offset;
    return at->where == TG_AT_STORE ? (char *)tg_store_find(store, at->name)->data + at->offset : NULL;
}

static void poison(const tg_plan *plan, unsigned char *block, size_t step, bool born)
{
    for (size_t i = 0; i < plan->buffers.len; i++) {
        const tg_buffer *b = &plan->buffers.data[i];
        const bool input = b->value >= 0 && plan->graph->values.data[b->value]->kind == TG_VALUE_INPUT;
        if ((born ? b->first : b->last) == (int)step && !input) memset(block + b->offset, 0xFF, b->bytes);
    }
}

typedef struct range {
    const unsigned char *at;
    size_t bytes;
} range;

static bool overlap(range a, range b)
{
    return a.bytes && b.bytes && a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

static bool may_share(const teng_op_spec *op, int o, int i)
{
    return (op->traits & TENG_OP_VIEW) || op->updates[o] == i + 1 || (op->inplace[o] >> i & 1u);
}

static void check_operands(const tg_plan_step *step, const range *in, const range *out, range work)
{
    const tg_node *node = step->node;
    for (int o = 0; o < node->n_out; o++) {
        for (int i = 0; i < node->n_in; i++) {
            const bool same = in[i].at == out[o].at && in[i].bytes == out[o].bytes;
            bool allowed = (same || node->op->traits & TENG_OP_VIEW) && may_share(node->op, o, i);
            for (int j = 0; j < node->n_in && same && !allowed; j++) /* f(x, x) in place of its other x */
                allowed = in[j].at == in[i].at && may_share(node->op, o, j) &&
                          (node->op->traits & TENG_OP_ELEMENTWISE);
            if (overlap(in[i], out[o]) && !allowed)
                fail_msg("%s: output %d lies over input %d", node->op->name, o, i);
        }
        for (int p = 0; p < o; p++)
            if (overlap(out[o], out[p])) fail_msg("%s: outputs %d and %d overlap", node->op->name, p, o);
        if (overlap(out[o], work)) fail_msg("%s: the workspace lies over output %d", node->op->name, o);
    }
    for (int i = 0; i < node->n_in; i++)
        if (overlap(in[i], work)) fail_msg("%s: the workspace lies over input %d", node->op->name, i);
}

static void run_step(const tg_plan *plan, const tg_plan_step *step, tg_store *store, unsigned char *block)
{
    const tg_node *node = step->node;
    range *in = tg_calloc((size_t)node->n_in + 1, sizeof *in), out[TENG_MAX_OUT], work = {0};
    const void **in_at = tg_calloc((size_t)node->n_in + 1, sizeof *in_at);
    void *out_at[TENG_MAX_OUT];
    for (int i = 0; i < node->n_in; i++) {
        in_at[i] = poison_value(plan, store, block, node->in[i]);
        in[i] = (range){in_at[i], tg_desc_bytes(&node->in[i]->desc)};
        assert_non_null(in_at[i]);
    }
    for (int o = 0; o < node->n_out; o++) {
        const void *at = poison_value(plan, store, block, node->out[o]);
        out[o] = (range){at, tg_desc_bytes(&node->out[o]->desc)};
        out_at[o] = (void *)(uintptr_t)at;
        assert_non_null(at);
    }
    if (step->workspace_buffer >= 0) {
        const tg_buffer *b = &plan->buffers.data[step->workspace_buffer];
        work = (range){block + b->offset, b->bytes};
    }
    check_operands(step, in, out, work);
    const teng_kernel_args args = {.call = &step->call,
                                   .state = step->prepared.state,
                                   .in = in_at,
                                   .out = out_at,
                                   .workspace = (void *)(uintptr_t)work.at};
    if (step->kernel && step->kernel->run(&args) != TENG_OK) fail_msg("%s: %s", node->op->name, teng_error());
    tg_free(in);
    tg_free(in_at);
}

/* Collectives beside computation run as late as they may: just before the step that needs one of them. */
static size_t run_late(const tg_plan *plan, size_t from, size_t end, tg_store *store, unsigned char *block)
{
    for (; from < end; from++)
        if (plan->steps.data[from].join >= 0) run_step(plan, &plan->steps.data[from], store, block);
    return from;
}

unsigned char *poison_run(const tg_plan *plan, tg_store *store, unsigned char *block, tg_phase first,
                          tg_phase last, poison_feed *feed, void *user)
{
    if (!block) {
        block = tg_alloc_aligned(plan->memory.block + TG_ALIGN);
        assert_non_null(block);
        memset(block, 0xFF, plan->memory.block);
    }
    for (size_t i = 0; i < plan->graph->values.len && feed; i++) {
        const teng_tensor *v = plan->graph->values.data[i];
        if (v->kind == TG_VALUE_INPUT) feed(user, v, (void *)(uintptr_t)poison_value(plan, store, block, v));
    }
    const size_t end = plan->phase_begin[last + 1];
    size_t late = plan->phase_begin[first]; /* collectives before it have run */
    for (size_t k = late; k < end; k++) {
        const int waits = plan->steps.data[k].waits;
        if (waits >= 0) late = run_late(plan, late, (size_t)waits + 1, store, block);
        poison(plan, block, k, true);
        if (plan->steps.data[k].join < 0) run_step(plan, &plan->steps.data[k], store, block);
        poison(plan, block, k, false);
    }
    run_late(plan, late, end, store, block);
    return block;
}
