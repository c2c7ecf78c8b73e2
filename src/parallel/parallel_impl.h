/* What the files of the parallel room share: the walk over the global graph and what it knows of each value.
 */
#ifndef TG_PARALLEL_PARALLEL_IMPL_H
#define TG_PARALLEL_PARALLEL_IMPL_H

#include "base/strmap.h"
#include "graph/op_table.h"
#include "parallel/rank_graph.h"

/* A place of its own on the expert axis: rows sorted by expert that are with the ranks of their experts. They
 * have the shape of whole rows (op/expert_dispatch). */
enum { PAR_THERE = -3 };
#define PAR_FORBIDDEN 1e30 /* cost of a rule that must not be taken */

/* Another form of a value, made for some consumers. */
typedef struct par_copy {
    tg_placement at;
    teng_tensor *local;
    tg_phase phase;    /* it serves this phase alone: what backward needs is made again, not kept */
    const char *scope; /* of a parameter that ranks have shards of: and this layer alone; NULL: any */
    size_t scope_len;
    struct par_copy *next;
} par_copy;

/* A value of the global graph on this rank. */
typedef struct par_value {
    teng_desc whole;
    tg_placement at;
    teng_tensor *local; /* NULL: not made yet (states, whose placement their user knows) */
    par_copy *copies;
    const tg_node *maker;   /* global node */
    teng_tensor *made_into; /* rewritten: look at this global value instead */
    bool weight;            /* a parameter, or one cast: is not moved along tensor and expert axes */
    bool gradient;          /* of a parameter, complete: travels in reduce_dtype */
    bool at_once;           /* such one, summed over ranks where it is made */
    bool output;            /* of the graph: whole at once */
    bool aimed;             /* a gradient, or a term of one: */
    tg_placement aim;       /* … as its parameter */
    teng_tensor *counts;    /* rows that are there: global, how many each expert gets */
    teng_tensor *own_counts, *received; /* of such counts: what the first dispatch gave, local */
} par_value;

typedef struct par {
    const tg_parallel_options *o;
    tg_graph *global, *g; /* g: the rank's */
    tg_parallel *out;
    int coord[TG_AXES];
    tg_axis_set split_axes;   /* axes of more than one rank, without pipeline */
    tg_axis_set shard_axes;   /* those among which ZeRO splits what they hold in common */
    TG_VEC(par_value) values; /* by global value id */
    tg_strmap *texts;         /* global scope or frame pointer → index into kept */
    TG_VEC(const void *) kept;
    teng_tensor *valid, *valid_of; /* global: the number of valid labels of these labels */
    int64_t ignore_index;
    const tg_node *node; /* global node that is being placed */
} par;

bool par_same(const par *p, const tg_placement *a, const tg_placement *b);
par_value *par_of(par *p, const teng_tensor *v); /* follows rewrites */
/* The named value of the rank's graph, placed so. */
teng_status par_create(par *p, const teng_tensor *v, const tg_placement *at);
/* Appends a node to the rank's graph where p->node stands. */
tg_node *par_append(par *p, const teng_op_spec *op, const void *attr, int n_in, teng_tensor *const *in);
/* Appends to the global graph beside p->node and places it. */
tg_node *par_rewrite(par *p, const teng_op_spec *op, const void *attr, int n_in, teng_tensor *const *in);
/* Places the nodes of the global graph from number `first` on, which were appended beside p->node. */
teng_status par_place_from(par *p, size_t first);
/* Global value `old` is from now on `fresh`. */
void par_replace(par *p, teng_tensor *old, teng_tensor *fresh);
teng_status par_node(par *p, tg_node *node);
/* The value as the rank holds it when placed so; collectives are appended if need be. NULL and an error. */
teng_tensor *par_get(par *p, teng_tensor *global, const tg_placement *want);
/* The same, and it stays so. */
teng_status par_settle(par *p, teng_tensor *global, const tg_placement *want);

/* par_move.c: sums a value of the rank; `global` is what is named in the record. */
teng_tensor *par_all_reduce(par *p, const teng_tensor *global, teng_tensor *v, tg_axis_set axes);
/* The ranks' shards of a parameter put together in its buffer. */
teng_tensor *par_gather_into(par *p, const teng_tensor *global, teng_tensor *whole, teng_tensor *piece,
                             const tg_placement *split);
/* Which of n indices of dimension shard_dim are this rank's. */
void par_shard_cut(const par *p, const tg_placement *split, int64_t n, int64_t *begin, int64_t *size);
/* The rank's shard of v: in v's own bytes where it is one run of them (dimension 0) and in_place is asked
 * for, else a copy. */
teng_tensor *par_shard_of(par *p, teng_tensor *v, const tg_placement *split, bool in_place);
/* The part of the value's bytes that the rank holds. */
double par_share(const par *p, const par_value *x);
/* Bytes that a rank sends (ring) when a value of so many bytes, whole along the axes, is reduced or gathered.
 */
double par_move_cost(par *p, const par_value *x, const teng_tensor *global, tg_axis axis, teng_place from,
                     teng_place to);

/* Appended to the moves: a collective that sends so many bytes. Returns node, NULL when there is none or
 * memory is out. */
tg_node *par_record(par *p, const teng_tensor *global, tg_node *node, tg_axis_set axes, double bytes);

/* par_rule.c: chooses a rule along each axis; in[n_in], out[n_out]: placements that the node takes and gives.
 */
teng_status par_choose(par *p, const tg_node *node, tg_placement *in, tg_placement *out);
/* Appends the rank's form of the node with these placements. */
teng_status par_emit(par *p, const tg_node *node, const tg_placement *in, const tg_placement *out,
                     teng_tensor *const *local, tg_node **made);
/* Whether the value can be made split from operands that are whole, at no cost. */
bool par_makes_split(par *p, const teng_tensor *v, tg_axis axis, teng_place dim);

/* par_moe.c: rules along an axis whose ranks have rows of their own, and attributes under them. */
void par_own_rows(par *p, const tg_node *node, tg_axis axis, teng_place_rules *rules);
/* To the ranks of the experts, or back, along the expert axis alone; NULL and an error. */
teng_tensor *par_get_there(par *p, teng_tensor *global, const tg_placement *want);
/* Outputs of a node that are there know by which counts. */
void par_keep_counts(par *p, const tg_node *node);
void par_localize_rows(const tg_node *node, const teng_place *in, const teng_place *out, int64_t parts,
                       void *attr);

/* par_special.c: *done when the node was placed by a way of its own. */
teng_status par_special(par *p, tg_node *node, bool *done);
/* par_fuse.c: sums travel in buckets of up to `limit` bytes; record (may be NULL): moves are those of the
 * buckets then. */
teng_status par_fuse(tg_graph *g, size_t limit, tg_parallel *record);
/* par_update.c */
teng_status par_update(par *p, tg_node *node, bool *done);
void par_mark_gradients(par *p);
void par_aim_gradients(par *p);
teng_status par_settle_gradient(par *p, teng_tensor *grad);
tg_placement par_state_placement(par *p, const tg_placement *param, const teng_desc *whole);

#endif
