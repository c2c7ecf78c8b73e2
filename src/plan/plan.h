/*
 * The plan: an immutable list of steps (kernel, operands at fixed places) made from a graph before anything
 * runs. It decides all that there is to decide; exec only obeys. Printable; its memory is known exactly.
 */
#ifndef TG_PLAN_PLAN_H
#define TG_PLAN_PLAN_H

#include "base/json.h"
#include "graph/graph.h"
#include "plan/layout.h"

typedef enum tg_place_kind {
    TG_AT_NOWHERE, /* never computed, or not needed */
    TG_AT_BLOCK,   /* at a fixed offset of the plan's block */
    TG_AT_STORE,   /* the store's entry of that name */
} tg_place_kind;
typedef struct tg_plan_value { /* by value id */
    tg_place_kind where;
    int buffer;       /* AT_BLOCK: index into buffers */
    const char *name; /* AT_STORE */
    size_t offset;    /* of its first byte there: views of parts */
    int stays; /* AT_BLOCK: 1 + the first of its stays, one behind the other; 0: in `buffer` throughout */
} tg_plan_value;

typedef struct tg_plan_step {
    const tg_node *node;
    teng_op_call call;
    const teng_kernel *kernel;
    teng_prepared prepared;
    int workspace_buffer; /* -1: none */
    teng_cost cost;
    const char *refused; /* kernels that were preferred and why they do not run; "" */
    int inplace_of;      /* input whose buffer output 0 took over, -1: none */
    int join;  /* a collective beside computation: the step before which it must be done; -1: in its place */
    int waits; /* the last collective that must be done before this step; -1: none */
} tg_plan_step;

/* What may lie in a file while no step uses it. */
typedef enum tg_offload {
    TG_OFFLOAD_OPTIMIZER = 1,   /* its states, which only the update uses */
    TG_OFFLOAD_PARAMETERS = 2,  /* in every plan that reads them */
    TG_OFFLOAD_ACTIVATIONS = 4, /* what the forward phase leaves for the backward phase */
    TG_OFFLOAD_STORED = TG_OFFLOAD_OPTIMIZER | TG_OFFLOAD_PARAMETERS, /* what a checkpoint holds */
    TG_OFFLOAD_ALL = TG_OFFLOAD_STORED | TG_OFFLOAD_ACTIVATIONS,
    TG_OFFLOAD_KINDS = 3
} tg_offload;

/* A stay in the block of a value that lies in a file else, in a buffer of its own. */
typedef struct tg_plan_stay {
    int value; /* root */
    int buffer;
    int first, last; /* the steps that use it, in one run */
    int from;        /* from this step on it may be read ahead */
    int until;       /* until the end of this one it may be written behind */
    bool read, write;
    int slot; /* of a computed value: its room in the file; -1: its entry of the store is */
} tg_plan_stay;
typedef enum tg_move_kind { /* the first three before a step, in this order; the last behind it */
                            TG_MOVE_GONE,    /* its writing must be over */
                            TG_MOVE_READ,    /* reading begins */
                            TG_MOVE_ARRIVED, /* reading must be over */
                            TG_MOVE_WRITE,   /* writing begins */
} tg_move_kind;
typedef struct tg_plan_move {
    int step;
    tg_move_kind kind;
    int due; /* of those that begin together the one that is needed first comes first */
    int stay;
} tg_plan_move;

typedef struct tg_plan_options {
    const char *device; /* "cpu" */
    int isa;            /* TG_CPU_… limit */
    size_t budget;      /* bytes of store and block together; 0: none */
    unsigned offload;   /* tg_offload: what lies in a file */
    int slots;          /* > 0: what one phase leaves for another lies apart, in a block for each of so many
                           micro-batches under way, which phases run by turns; 0: all in one block */
    bool no_inplace;    /* for tests: every value in a buffer of its own lifetime, without take-over */
    bool no_overlap;    /* collectives run in their places, never beside computation */
    double flops_per_s, bytes_per_s; /* of this machine, for the forecast; 0: no forecast */
} tg_plan_options;

/* What the bytes of the block are for, at the moment of the peak. */
typedef struct tg_plan_memory {
    size_t params, states;              /* store */
    size_t offloaded[TG_OFFLOAD_KINDS]; /* bytes in a file: optimizer, parameters, activations */
    size_t block;             /* inputs, activations, gradients, workspace: what is allocated once */
    size_t slot;              /* one of options.slots blocks */
    size_t live_peak;         /* largest sum of live buffers: block / live_peak is what fragmentation costs */
    size_t kept_for_backward; /* forward values that the backward phase reads */
    int peak_step;            /* where live_peak is */
} tg_plan_memory;

typedef struct tg_plan {
    tg_graph *graph; /* owned */
    tg_arena *arena;
    TG_VEC(tg_plan_step) steps;
    tg_plan_value *values;      /* by value id */
    TG_VEC(tg_buffer) buffers;  /* offsets in the block */
    bool *kept;                 /* by buffer: in the slot; NULL: none */
    TG_VEC(tg_plan_stay) stays; /* by value, then by step */
    TG_VEC(tg_plan_move) moves; /* by step, then by kind */
    size_t phase_begin[TG_PHASE_COUNT + 1];
    tg_plan_memory memory;
    tg_plan_options options;
    double seconds; /* time the planner took */
} tg_plan;

/* Takes the graph over, also on failure (then it is destroyed). */
teng_status tg_plan_create(tg_graph *graph, const tg_plan_options *options, tg_plan **out);
void tg_plan_destroy(tg_plan **plan);

/* What the plan needs in all: parameters, states, block and slots. */
size_t tg_plan_bytes(const tg_plan *plan);
/* The buffer in which a value AT_BLOCK is at step k. */
int tg_plan_buffer(const tg_plan *plan, int value, int k);
size_t tg_plan_offloaded(const tg_plan *plan); /* of all kinds */
/* Between memory and the file, in the run of forward and backward or in that of the update: bytes, and
 * seconds of waiting for a disk of TG_PLAN_DISK_RATE by the forecast. */
#define TG_PLAN_DISK_RATE 1e9
typedef struct tg_plan_traffic {
    double bytes, waits;
} tg_plan_traffic;
tg_plan_traffic tg_plan_traffic_of(const tg_plan *plan, bool update);
/* Totals of the steps of one phase. */
teng_cost tg_plan_cost(const tg_plan *plan, tg_phase phase);
/* Roofline forecast of one step of the phase list in seconds; 0 when the machine's rates are not given. */
double tg_plan_step_forecast(const tg_plan *plan, size_t k); /* of one step of the program */
double tg_plan_forecast(const tg_plan *plan, tg_phase phase);

/* Listings: steps with kernels and places; memory map; both as JSON. */
void tg_plan_print(const tg_plan *plan, tg_strbuf *out);
void tg_plan_print_memory(const tg_plan *plan, tg_strbuf *out);
json_t *tg_plan_json(const tg_plan *plan);

#endif
