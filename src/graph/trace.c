/*
 * The thread's current trace: which graph is being built, in which layer, from which line. One trace may be
 * active a thread; it is a stack object of whoever traces, so nothing here allocates but the graph's own
 * arena.
 */
#include "graph/graph.h"

#include "base/fail.h"

static _Thread_local tg_trace *current;

tg_trace *tg_trace_current(void)
{
    return current;
}

void tg_trace_begin(tg_trace *t, tg_graph *g)
{
    *t = (tg_trace){.graph = g, .scope = "", .phase = TG_FORWARD, .outer = current};
    current = t;
}

void tg_trace_end(tg_trace *t)
{
    current = t->outer;
}

tg_trace_mark tg_trace_enter(const char *child_name, teng_src at)
{
    tg_trace_mark mark = {0};
    if (!current) return mark;
    mark = (tg_trace_mark){current->scope, current->frame};
    tg_arena *arena = current->graph->arena;
    if (child_name && *child_name) {
        const char *path = *current->scope ? tg_arena_printf(arena, "%s.%s", current->scope, child_name)
                                           : tg_arena_strdup(arena, child_name);
        if (path) current->scope = path;
    }
    if (at.file) current->frame = tg_frame_push(current->graph, at, current->frame);
    return mark;
}

void tg_trace_leave(tg_trace_mark mark)
{
    if (!current || !mark.scope) return;
    current->scope = mark.scope;
    current->frame = mark.frame;
}

const tg_frame *tg_frame_push(tg_graph *g, teng_src at, const tg_frame *caller)
{
    tg_frame *frame = tg_arena_alloc(g->arena, sizeof *frame);
    if (!frame) return caller;
    /* __FILE__ of a plugin may be unloaded before the graph; the text is kept with the graph. */
    *frame = (tg_frame){.at = at, .caller = caller};
    return frame;
}

/* The graph that all operands belong to, else the current trace's; NULL and an error when there is none. */
static tg_graph *graph_of(teng_src at, const teng_op_spec *op, int n_in, teng_tensor *const *in)
{
    tg_graph *g = n_in > 0 && in[0] ? in[0]->graph : current ? current->graph : NULL;
    const char *file = at.file ? at.file : "?";
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) {
            if (teng_error_status() == TENG_OK)
                tg_fail(TENG_INVALID, "%s: operand %d is NULL (%s:%d)", op->name, i, file, at.line);
            return NULL;
        }
        if (in[i]->graph != g) {
            tg_fail(TENG_INVALID, "%s: operands belong to different graphs (%s:%d)", op->name, file, at.line);
            return NULL;
        }
    }
    if (!g)
        tg_fail(TENG_STATE, "%s: called outside a model's forward function (%s:%d)", op->name, file, at.line);
    return g;
}

/* The operands as the trace's hook wants them, of the graph's arena. */
static teng_tensor *const *adapt(const tg_trace_hook *hook, teng_src at, const teng_op_spec *op,
                                 const void *attr, int n_in, teng_tensor *const *in)
{
    teng_tensor **adapted = tg_arena_alloc(current->graph->arena, sizeof *adapted * (size_t)(n_in + 1));
    if (!adapted) return NULL;
    for (int i = 0; i < n_in; i++)
        adapted[i] = in[i];
    return hook->before(hook->user, op, attr, at, n_in, adapted) == TENG_OK ? adapted : NULL;
}

teng_tensor *teng_apply(teng_src at, const teng_op_spec *op, const void *attr, int n_in,
                        teng_tensor *const *in, teng_tensor **out)
{
    tg_graph *g = graph_of(at, op, n_in, in);
    if (!g) return NULL;
    const bool traced = current && current->graph == g;
    const tg_trace_hook *hook = traced ? current->hook : NULL;
    const tg_frame *frame = traced ? current->frame : NULL;
    if (at.file) frame = tg_frame_push(g, at, frame);
    if (hook && !(in = adapt(hook, at, op, attr, n_in, in))) return NULL;
    tg_node *node = tg_graph_append(g, op, attr, n_in, in, traced ? current->scope : "", frame,
                                    traced ? current->phase : TG_FORWARD);
    if (!node) return NULL;
    teng_tensor *first = hook ? hook->after(hook->user, node) : node->out[0];
    for (int o = 0; out && first && o < node->n_out; o++)
        out[o] = o ? node->out[o] : first;
    return first;
}

const teng_desc *teng_tensor_desc(const teng_tensor *t)
{
    static const teng_desc none = {TENG_F32, 0, {0}};
    return t ? &t->desc : &none;
}
