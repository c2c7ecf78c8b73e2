/*
 * One graph for all ranks → the graph of this rank. The graph of a step is built as for one rank; here every
 * value is placed on the mesh (a few by marks of the model, the rest by the operators' rules), collectives
 * are put where placements meet, and shapes become the rank's. Pure: any rank's graph of any mesh can be made
 * anywhere. Not here: what a collective does (op/collective, comm), stages of a pipeline.
 */
#ifndef TG_PARALLEL_RANK_GRAPH_H
#define TG_PARALLEL_RANK_GRAPH_H

#include "base/json.h"
#include "graph/graph.h"
#include "mesh/mesh.h"

typedef struct tg_parallel_options {
    tg_mesh mesh;
    int rank;
    /* Graph inputs that hold rows of the batch: dimension 0 is split on the data and expert axes, dimension 1
     * on the context axis. All other inputs are the same on every rank. Text of the caller. */
    const char *const *batch;
    int n_batch;
    bool sequence; /* norms and the residual stream are split by positions on the tensor axis */
    /* 1: optimizer states, 2: gradients too, 3: parameters too, each among the ranks of the data, expert and
     * context axes that hold the same of it; 0, or one such rank: not */
    int zero;
    teng_dtype reduce_dtype; /* of gradients on their way: TENG_F32, TENG_BF16 */
    size_t fusion;           /* gradients are reduced together up to so many bytes; 0: each by itself */
    int64_t micro_batches; /* > 1: gradients are summed locally (zero < 2) and reduced in the update phase */
} tg_parallel_options;

/* A parameter or state of the graph: what the store of a rank holds is tg_mesh_local(mesh, rank, whole,
 * placement) under the same name, elements tg_mesh_box. Where a placement is partial (gradient accumulators)
 * the ranks' values sum to the whole. */
typedef struct tg_parallel_entry {
    const char *name;
    tg_value_kind kind;
    teng_desc whole;
    tg_placement placement;
} tg_parallel_entry;

/* A redistribution. */
typedef struct tg_parallel_move {
    const char *op;   /* "all_reduce", "all_gather", … */
    tg_axis_set axes; /* along which */
    tg_phase phase;
    double bytes; /* that this rank sends each time the phase runs, by the formula of the collective (ring) */
    teng_desc desc;      /* the whole value */
    const char *value;   /* its name; NULL: computed */
    const char *where;   /* the node for which it is made: "layer path (operator, file:line)" */
    const tg_node *node; /* the collective, of the rank's graph as it was made */
} tg_parallel_move;

typedef struct tg_parallel {
    tg_parallel_options options;       /* batch: NULL */
    TG_VEC(tg_parallel_entry) entries; /* in the order of the graph's values */
    TG_VEC(tg_parallel_move) moves;    /* in the order of execution */
    tg_arena *arena;                   /* of the texts */
} tg_parallel;

/* Takes the global graph over, also on failure. *local is the rank's graph, *out what was done. One rank
 * gets the graph as it was. Errors name what does not divide, by configuration key and value. */
teng_status tg_parallel_apply(tg_graph *global, const tg_parallel_options *options, tg_graph **local,
                              tg_parallel **out);
/* Fusion alone, of a part of such a graph that was made without (options.fusion 0): the stages of a pipeline.
 */
teng_status tg_parallel_fuse(tg_graph *graph, size_t limit);
void tg_parallel_destroy(tg_parallel **parallel);
const tg_parallel_entry *tg_parallel_entry_find(const tg_parallel *parallel, const char *name);

/* Bytes that this rank sends in one optimizer step along one set of axes; 0: along all. */
double tg_parallel_bytes(const tg_parallel *parallel, tg_axis_set axes);
/* "3 of 4: data 1 of 2, tensor 1 of 2" and a new line. */
void tg_parallel_print_place(const tg_parallel *parallel, tg_strbuf *out);
/* A line for each set of axes along which bytes are sent in an optimizer step, each with `before` in front.
 */
void tg_parallel_print_bytes(const tg_parallel *parallel, const char *before, tg_strbuf *out);
/* The rank's place; how parameters are split; each redistribution with bytes and source line (equal ones of
 * layers counted together); bytes by axes. */
void tg_parallel_print(const tg_parallel *parallel, tg_strbuf *out);
json_t *tg_parallel_json(const tg_parallel *parallel);

/* "data:S0 tensor:P", "replicated". */
void tg_placement_print(const tg_mesh *mesh, const tg_placement *placement, tg_strbuf *out);

#endif
