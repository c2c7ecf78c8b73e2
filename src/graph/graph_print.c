/*
 * A graph as text, one line a node, in the form that graph_parse.c reads; and as Graphviz. Computed values
 * are numbered in program order, so equal graphs print equal text.
 *
 *     graph step
 *     input tokens i32[4,64]
 *     param model.embed_tokens.weight f32[256,64]
 *     phase forward
 *     %0 = embedding($model.embed_tokens.weight, $tokens) {begin=0, total=0} : f32[4,64,64]
 *     output loss %17
 */
#include "graph/graph.h"

#include "graph/op_table.h"
#include "tensor/desc.h"

static const char *const kind_names[] = {"input", "param", "state"};

const char *tg_phase_name(tg_phase phase)
{
    static const char *const names[TG_PHASE_COUNT] = {"forward", "backward", "update"};
    return names[phase];
}

static void print_ref(const teng_tensor *v, const int *number, tg_strbuf *out)
{
    if (v->kind == TG_VALUE_COMPUTED)
        tg_strbuf_printf(out, "%%%d", number[v->id]);
    else
        tg_strbuf_printf(out, "$%s", v->name);
}

static void print_node(const tg_node *node, int *number, int *next, tg_strbuf *out)
{
    char text[TG_DESC_TEXT];
    for (int o = 0; o < node->n_out; o++) {
        number[node->out[o]->id] = (*next)++;
        tg_strbuf_printf(out, "%s%%%d", o ? ", " : "", number[node->out[o]->id]);
    }
    tg_strbuf_printf(out, " = %s(", node->op->name);
    for (int i = 0; i < node->n_in; i++) {
        if (i) tg_strbuf_puts(out, ", ");
        print_ref(node->in[i], number, out);
    }
    tg_strbuf_puts(out, ") ");
    tg_attr_print(node->op, node->attr, out);
    for (int o = 0; o < node->n_out; o++)
        tg_strbuf_printf(out, "%s%s", o ? ", " : " : ", tg_desc_text(text, &node->out[o]->desc));
    if (*node->scope) tg_strbuf_printf(out, " @ %s", node->scope);
    tg_strbuf_puts(out, node->recomputed ? " (recomputed)\n" : "\n");
}

void tg_graph_print(const tg_graph *g, tg_strbuf *out)
{
    int *number = tg_calloc(g->values.len + 1, sizeof *number);
    if (!number) {
        out->failed = true;
        return;
    }
    char text[TG_DESC_TEXT];
    tg_strbuf_printf(out, "graph %s\n", g->name);
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (v->kind != TG_VALUE_COMPUTED)
            tg_strbuf_printf(out, "%s %s %s\n", kind_names[v->kind], v->name, tg_desc_text(text, &v->desc));
    }
    int next = 0, phase = -1;
    for (size_t i = 0; i < g->nodes.len; i++) {
        const tg_node *node = g->nodes.data[i];
        if ((int)node->phase != phase) tg_strbuf_printf(out, "phase %s\n", tg_phase_name(node->phase));
        phase = (int)node->phase;
        print_node(node, number, &next, out);
    }
    for (size_t i = 0; i < g->outputs.len; i++) {
        tg_strbuf_printf(out, "output %s ", g->outputs.data[i].name);
        print_ref(g->outputs.data[i].value, number, out);
        tg_strbuf_putc(out, '\n');
    }
    tg_free(number);
}

void tg_graph_dot(const tg_graph *g, tg_strbuf *out)
{
    static const char *const colors[TG_PHASE_COUNT] = {"#dbe9ff", "#ffe3d6", "#e2f5dc"};
    char text[TG_DESC_TEXT];
    tg_strbuf_printf(
        out, "digraph \"%s\" {\n  rankdir=TB; node [shape=box, style=filled, fontname=\"Helvetica\"];\n",
        g->name);
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (v->kind != TG_VALUE_COMPUTED)
            tg_strbuf_printf(out, "  v%d [label=\"%s\\n%s\", shape=ellipse, fillcolor=\"#f2f2f2\"];\n", v->id,
                             v->name, tg_desc_text(text, &v->desc));
    }
    for (size_t i = 0; i < g->nodes.len; i++) {
        const tg_node *node = g->nodes.data[i];
        tg_strbuf_printf(out, "  n%d [label=\"%s\\n%s\", fillcolor=\"%s\"];\n", node->id, node->op->name,
                         node->scope, colors[node->phase]);
        for (int k = 0; k < node->n_in; k++) {
            const teng_tensor *v = node->in[k];
            const bool computed = v->kind == TG_VALUE_COMPUTED;
            tg_strbuf_printf(out, "  %c%d -> n%d [label=\"%s\"];\n", computed ? 'n' : 'v',
                             computed ? v->node->id : v->id, node->id, tg_desc_text(text, &v->desc));
        }
    }
    tg_strbuf_puts(out, "}\n");
}
