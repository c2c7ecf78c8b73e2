/*
 * The graph: values, nodes in execution order, and the trace that appends to it. A graph owns all its values
 * and nodes in one arena; program order is execution order. GRAPH mode builds one whole step (forward,
 * backward, update) and hands it to the passes and the planner; PYNATIVE sets on_node, which runs each node
 * as it is appended. The graph names no operator.
 */
#ifndef TG_GRAPH_GRAPH_H
#define TG_GRAPH_GRAPH_H

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "mesh/mesh.h"
#include "teng/operator.h"

typedef struct tg_graph tg_graph;
typedef struct tg_node tg_node;

typedef enum tg_value_kind {
    TG_VALUE_INPUT, /* fed by the host before a run */
    TG_VALUE_PARAM, /* persistent, trained; lives in the store under its name */
    TG_VALUE_STATE, /* persistent, not trained: optimizer moments, gradient accumulators */
    TG_VALUE_COMPUTED,
} tg_value_kind;
typedef enum tg_phase {
    TG_FORWARD, /* forward and backward run once per micro-batch */
    TG_BACKWARD,
    TG_UPDATE, /* once per optimizer step */
    TG_PHASE_COUNT
} tg_phase;
const char *tg_phase_name(tg_phase phase); /* "forward", "backward", "update" */

/* Where the user's code called: innermost line first, up through the cells that called. */
typedef struct tg_frame {
    teng_src at;
    const struct tg_frame *caller;
} tg_frame;

/* What teng_shard and the built-in families say of a value: 1 + the dimension that is split along each axis
 * of the mesh, 0: nothing. The dimension is `groups` equal parts one behind the other, each of `units` that
 * stay whole (heads); 0: one part, of elements. fewer: with fewer units than ranks nothing is split. */
typedef struct tg_mark {
    int8_t dim[TG_AXES];
    int8_t groups;
    bool fewer;
    int64_t units;
    const char *units_key; /* configuration key that sets the number of units, for errors; may be NULL */
} tg_mark;

struct teng_tensor {
    tg_graph *graph;
    tg_node *node; /* producer, NULL unless COMPUTED */
    int index;     /* which output of the producer */
    int id;        /* unique in the graph */
    tg_value_kind kind;
    teng_desc desc;
    const char *name; /* inputs, params, states: unique in the graph; computed: NULL */
    bool requires_grad;
    tg_mark mark;
    void *data;                   /* eager mode: where the value lies; graph mode: NULL */
    struct teng_tensor *replaced; /* set by a rewrite: use this one instead (tg_graph_sweep resolves it) */
};

struct tg_node {
    const teng_op_spec *op;
    void *attr;
    int n_in, n_out;
    teng_tensor **in; /* present inputs only */
    teng_tensor **out;
    const char *scope; /* layer path, "model.layers.0.self_attn"; "" at the top */
    const tg_frame *frame;
    tg_phase phase;
    int id;
    bool dead;       /* removed by the next sweep */
    bool recomputed; /* a clone of a forward node, run again in the backward phase */
};

typedef struct tg_output {
    const char *name;
    teng_tensor *value;
} tg_output;

struct tg_graph {
    tg_arena *arena;
    const char *name;
    TG_VEC(tg_node *) nodes;      /* in execution order */
    TG_VEC(teng_tensor *) values; /* all, by id */
    TG_VEC(tg_output) outputs;
    teng_status (*on_node)(void *user, tg_node *node); /* eager: runs the node; NULL in graph mode */
    void *on_node_user;
    /* Eager, on data ranks: rows of the batch are piece `part` of `parts` equal ones; 0 parts: all of them.
     */
    int part, parts;
    struct tg_strmap *names; /* named values */
    int next_node;
};

tg_graph *tg_graph_create(const char *name);
void tg_graph_destroy(tg_graph **graph);

/* Named values. A second value of the same name is an error, and so is a name that the text form could not
 * hold. */
#define TG_NAME_MAX 767
teng_tensor *tg_graph_input(tg_graph *g, const char *name, const teng_desc *desc);
teng_tensor *tg_graph_param(tg_graph *g, const char *name, const teng_desc *desc);
teng_tensor *tg_graph_state(tg_graph *g, const char *name, const teng_desc *desc);
teng_tensor *tg_graph_find(const tg_graph *g, const char *name); /* NULL when absent */
teng_status tg_graph_output(tg_graph *g, const char *name, teng_tensor *value);
teng_tensor *tg_graph_output_find(const tg_graph *g, const char *name);

/* Appends without the trace's conveniences (used by passes and the parser): shapes are inferred and checked.
 */
tg_node *tg_graph_append(tg_graph *g, const teng_op_spec *op, const void *attr, int n_in,
                         teng_tensor *const *in, const char *scope, const tg_frame *frame, tg_phase phase);
/* The value that stands for v after rewrites: v itself, or the end of its chain of replacements. */
teng_tensor *tg_value_resolve(teng_tensor *v);
/* Drops dead nodes and resolves replaced values everywhere. Returns the number of nodes dropped. */
int tg_graph_sweep(tg_graph *g);
/* Nodes from `first` on, which read no value of each other, move forward to right behind the last maker of
 * what they read, no further than their phase reaches; their order among each other stays. */
teng_status tg_graph_hoist(tg_graph *g, size_t first);
/* Every invariant: inputs defined before use, shapes as infer says, names unique. For tests and after passes.
 */
teng_status tg_graph_check(const tg_graph *g);

/* Text, one line a node, that parses back to the same graph; and Graphviz. */
void tg_graph_print(const tg_graph *g, tg_strbuf *out);
teng_status tg_graph_parse(const char *name, const char *text, tg_graph **out);
void tg_graph_dot(const tg_graph *g, tg_strbuf *out);
/* "layer path (operator, file:line < file:line)" of a node. */
void tg_node_where(const tg_node *node, tg_strbuf *out);

/* Length of the part of a scope up to its first component that is a number ("model.layers.3" of
 * "model.layers.3.mlp"); 0 when none is. */
size_t tg_scope_layer(const char *scope);

/* A call as rules and kernels see it; in and out must hold node->n_in, node->n_out descriptions. */
teng_op_call tg_node_call(const tg_node *node, teng_desc *in, teng_desc *out);

/* Looks at a node that has just run; out[n_out] is where its outputs lie. True: seen enough, run no further.
 */
typedef bool tg_node_watch(void *user, const tg_node *node, void *const *out);
/* Is told of each node that has run, views aside, and when (clock seconds): what a profiler hangs in. */
typedef struct tg_node_run {
    const tg_node *node;
    const teng_op_call *call;
    const teng_kernel *kernel;
    double begin, end; /* of the thread that computes; a collective beside it: while that thread waited */
    double beside_begin, beside_end; /* a collective beside computation, on its own thread; else 0 */
} tg_node_run;
typedef struct tg_probe {
    void (*ran)(void *user, const tg_node_run *run);
    void *user;
} tg_probe;

/* ---- trace: what the thread is building now ---- */
/* Stands between the model's calls and the graph (mixed precision): before may replace operands, after may
 * put another value in the place of output 0. */
typedef struct tg_trace_hook {
    void *user;
    teng_status (*before)(void *user, const teng_op_spec *op, const void *attr, teng_src at, int n_in,
                          teng_tensor **in);
    teng_tensor *(*after)(void *user, const tg_node *node); /* NULL and an error when it fails */
} tg_trace_hook;
typedef struct tg_trace {
    tg_graph *graph;
    const char *scope;
    const tg_frame *frame;
    tg_phase phase;
    bool training;             /* dropout on */
    bool differentiate;        /* backward will follow: operators may prepare for it */
    void *user;                /* of nn: the model being traced */
    const tg_trace_hook *hook; /* of nn; NULL: calls are appended as they are */
    struct tg_trace *outer;
} tg_trace;
tg_trace *tg_trace_current(void);              /* NULL outside a trace */
void tg_trace_begin(tg_trace *t, tg_graph *g); /* t lives on the caller's stack until tg_trace_end */
void tg_trace_end(tg_trace *t);
/* A frame of g's arena; caller when memory is out. */
const tg_frame *tg_frame_push(tg_graph *g, teng_src at, const tg_frame *caller);
/* Enter and leave a cell: path is appended to the scope, `at` to the frames. */
typedef struct tg_trace_mark {
    const char *scope;
    const tg_frame *frame;
} tg_trace_mark;
tg_trace_mark tg_trace_enter(const char *child_name, teng_src at);
void tg_trace_leave(tg_trace_mark mark);

#endif
