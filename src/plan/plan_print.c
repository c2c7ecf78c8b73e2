/* Listings of a plan: the steps with their kernels and places, the memory map, and both as JSON. */
#include "plan/plan.h"

#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

static void print_place(const tg_plan *plan, const teng_tensor *v, size_t k, tg_strbuf *out)
{
    const tg_plan_value *at = &plan->values[v->id];
    if (at->where == TG_AT_STORE)
        tg_strbuf_printf(out, at->offset ? "store:%s+%zu" : "store:%s", at->name, at->offset);
    else if (at->where == TG_AT_BLOCK)
        tg_strbuf_printf(out, "+%zu",
                         plan->buffers.data[tg_plan_buffer(plan, v->id, (int)k)].offset + at->offset);
    else
        tg_strbuf_puts(out, "nowhere");
}

static void print_step(const tg_plan *plan, size_t k, tg_strbuf *out)
{
    const tg_plan_step *step = &plan->steps.data[k];
    const tg_node *node = step->node;
    char text[TG_DESC_TEXT];
    tg_strbuf_printf(out, "%4zu %s", k, node->op->name);
    if (node->op->attr_size) {
        tg_strbuf_putc(out, ' ');
        tg_attr_print(node->op, node->attr, out);
    }
    tg_strbuf_printf(out, " [%s]", step->kernel ? step->kernel->name : "view");
    for (int i = 0; i < node->n_in; i++) {
        tg_strbuf_puts(out, i ? ", " : " ");
        print_place(plan, node->in[i], k, out);
    }
    tg_strbuf_puts(out, " ->");
    for (int o = 0; o < node->n_out; o++) {
        tg_strbuf_printf(out, " %s ", tg_desc_text(text, &node->out[o]->desc));
        print_place(plan, node->out[o], k, out);
    }
    if (step->inplace_of >= 0) tg_strbuf_printf(out, " (in place of input %d)", step->inplace_of);
    if (step->workspace_buffer >= 0)
        tg_strbuf_printf(out, " workspace %zu", plan->buffers.data[step->workspace_buffer].bytes);
    if (step->join >= 0) tg_strbuf_printf(out, " (beside, until step %d)", step->join);
    if (*node->scope) tg_strbuf_printf(out, "  @ %s", node->scope);
    if (*step->refused) tg_strbuf_printf(out, "\n       not chosen: %s", step->refused);
    tg_strbuf_putc(out, '\n');
}

void tg_plan_print(const tg_plan *plan, tg_strbuf *out)
{
    for (int p = 0; p < TG_PHASE_COUNT; p++) {
        if (plan->phase_begin[p] == plan->phase_begin[p + 1]) continue;
        const teng_cost c = tg_plan_cost(plan, (tg_phase)p);
        tg_strbuf_printf(out, "%s: %zu steps, %.3f GFLOP, %.3f GB moved\n", tg_phase_name((tg_phase)p),
                         plan->phase_begin[p + 1] - plan->phase_begin[p], c.flops * 1e-9,
                         (c.bytes_read + c.bytes_written) * 1e-9);
        for (size_t k = plan->phase_begin[p]; k < plan->phase_begin[p + 1]; k++)
            print_step(plan, k, out);
    }
}

void tg_plan_print_memory(const tg_plan *plan, tg_strbuf *out)
{
    const tg_plan_memory *m = &plan->memory;
    char a[32], b[32];
    tg_strbuf_printf(out, "parameters            %s\n", tg_format_bytes(a, (double)m->params));
    tg_strbuf_printf(out, "optimizer and states  %s\n", tg_format_bytes(a, (double)m->states));
    if (tg_plan_offloaded(plan))
        tg_strbuf_printf(out, "on disk               %s\n",
                         tg_format_bytes(a, (double)tg_plan_offloaded(plan)));
    tg_strbuf_printf(out, "activation block      %s (live at its peak: %s, at step %d)\n",
                     tg_format_bytes(a, (double)m->block), tg_format_bytes(b, (double)m->live_peak),
                     m->peak_step);
    tg_strbuf_printf(out, "kept for backward     %s\n", tg_format_bytes(a, (double)m->kept_for_backward));
    tg_strbuf_printf(out, "peak                  %s = %zu bytes\n",
                     tg_format_bytes(a, (double)(tg_plan_bytes(plan))), tg_plan_bytes(plan));
    tg_strbuf_puts(out, "\n    offset        bytes  live steps  what\n");
    for (size_t i = 0; i < plan->buffers.len; i++) {
        const tg_buffer *x = &plan->buffers.data[i];
        tg_strbuf_printf(out, "%10zu %12zu  %5d-%-5d  ", x->offset, x->bytes, x->first, x->last);
        if (x->value < 0) {
            tg_strbuf_puts(out, "workspace\n");
            continue;
        }
        const teng_tensor *v = plan->graph->values.data[x->value];
        char text[TG_DESC_TEXT];
        tg_strbuf_printf(out, "%s %s", v->node ? v->node->op->name : v->name, tg_desc_text(text, &v->desc));
        if (v->node && *v->node->scope) tg_strbuf_printf(out, "  @ %s", v->node->scope);
        tg_strbuf_putc(out, '\n');
    }
}

static json_t *step_json(const tg_plan *plan, size_t k)
{
    const tg_plan_step *step = &plan->steps.data[k];
    json_t *places = json_array();
    for (int o = 0; o < step->node->n_out; o++) {
        tg_strbuf place = {0};
        print_place(plan, step->node->out[o], k, &place);
        json_array_append_new(places, json_string(tg_strbuf_str(&place)));
        tg_strbuf_free(&place);
    }
    char shape[TG_DESC_TEXT];
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:s, s:i, s:i, s:o}", "op", step->node->op->name,
                     "phase", tg_phase_name(step->node->phase), "scope", step->node->scope, "kernel",
                     step->kernel ? step->kernel->name : "view", "out",
                     tg_desc_text(shape, &step->node->out[0]->desc), "flops", step->cost.flops, "bytes",
                     step->cost.bytes_read + step->cost.bytes_written, "refused", step->refused, "inplace_of",
                     step->inplace_of, "join", step->join, "places", places);
}

json_t *tg_plan_json(const tg_plan *plan)
{
    const tg_plan_memory *m = &plan->memory;
    json_t *steps = json_array();
    for (size_t k = 0; k < plan->steps.len; k++)
        json_array_append_new(steps, step_json(plan, k));
    json_t *buffers = json_array();
    for (size_t i = 0; i < plan->buffers.len; i++) {
        const tg_buffer *x = &plan->buffers.data[i];
        json_array_append_new(buffers, json_pack("{s:I, s:I, s:i, s:i, s:i}", "offset", (json_int_t)x->offset,
                                                 "bytes", (json_int_t)x->bytes, "first", x->first, "last",
                                                 x->last, "value", x->value));
    }
    return json_pack("{s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i}, s:f, s:o, s:o}", "instruction_set",
                     tg_cpu_isa_name(plan->options.isa), "memory", "params_bytes", (json_int_t)m->params,
                     "states_bytes", (json_int_t)m->states, "block_bytes", (json_int_t)m->block,
                     "live_peak_bytes", (json_int_t)m->live_peak, "kept_for_backward_bytes",
                     (json_int_t)m->kept_for_backward, "peak_bytes", (json_int_t)(tg_plan_bytes(plan)),
                     "offloaded_bytes", (json_int_t)tg_plan_offloaded(plan), "peak_step", m->peak_step,
                     "planning_seconds", plan->seconds, "steps", steps, "buffers", buffers);
}
