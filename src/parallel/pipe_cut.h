/*
 * A graph of one micro-batch cut into the pieces of a pipeline. Layers are told by scope (tg_scope_layer);
 * what comes before the first and after the last is a layer of its own (embedding; head and loss). Runs of
 * layers as even in cost as can be make the pieces, and a backward node lies where its forward node does.
 * Values that another piece reads become outputs here and inputs there. Not here: when what runs
 * (pipe_schedule), how values travel (train).
 */
#ifndef TG_PARALLEL_PIPE_CUT_H
#define TG_PARALLEL_PIPE_CUT_H

#include "graph/graph.h"
#include "parallel/pipe_schedule.h"
#include "parallel/rank_graph.h"

/* ---- which layer lies in which piece: made once of the whole training graph, the same on every rank ---- */
typedef struct tg_pipe_layer {
    const char *name; /* "model.layers.3"; "" before the first layer, "." after the last */
    double cost;      /* seconds a micro-batch, forward and backward */
    int piece;
} tg_pipe_layer;
typedef struct tg_pipe_layers {
    TG_VEC(tg_pipe_layer) list; /* in the order of the model */
    int pieces;
    double flops_per_s, bytes_per_s; /* that costs are counted with */
    tg_arena *arena;
} tg_pipe_layers;
/* The largest cost of a piece is the least possible; among such cuts the most even one. rates 0: usual ones.
 * More pieces than layers, or no layers at all: an error. */
teng_status tg_pipe_layers_make(const tg_graph *graph, int pieces, double flops_per_s, double bytes_per_s,
                                tg_pipe_layers **out);
void tg_pipe_layers_destroy(tg_pipe_layers **layers);
/* Cuts n costs into `pieces` runs: piece[n], ascending from 0, each at least once. */
teng_status tg_pipe_balance(const double *cost, int n, int pieces, int *piece);
double tg_pipe_seconds(const tg_pipe_layers *layers, const tg_node *node);

/* ---- where each node of a graph lies ---- */
#define TG_PIPE_NAME 24
typedef struct tg_pipe_edge { /* a value that travels */
    int value;                /* id in the whole graph */
    int from, to;             /* pieces; forward when from < to */
    char name[TG_PIPE_NAME];  /* of the output there and the input here */
    size_t bytes;
} tg_pipe_edge;
typedef struct tg_pipe_shared { /* a parameter of several stages */
    const char *name;
    bool *on, *adds; /* [stages]: holds it; has a gradient to add */
} tg_pipe_shared;
typedef struct tg_pipe_cut {
    tg_graph *whole; /* owned */
    const tg_pipe_layers *layers;
    int stages;
    int *at;                       /* by value id: position of the node that makes it, -1: none */
    int *piece;                    /* by position: TG_PIPE_ANYWHERE: made anew wherever it is read */
    bool *later;                   /* by position: of backward, and the piece before does not wait for it */
    bool *parted;                  /* by position: each piece makes its part of this sum */
    bool *copied;                  /* by position: a graph that was made of the cut has it */
    TG_VEC(tg_pipe_edge) edges;    /* by value, then piece: the order of the messages */
    TG_VEC(tg_pipe_shared) shared; /* in the order of the graph's values */
    unsigned char *held;           /* [stages][values]: the stage reads this parameter */
    tg_pipe_cost *costs;           /* [pieces] */
    tg_arena *arena;
} tg_pipe_cut;
enum { TG_PIPE_ANYWHERE = -1, TG_PIPE_UPDATE = -2 };
/* Takes the graph over, also on failure: of one rank, with or without backward and update; every rank of a
 * stage's group has to give one of the same nodes. A value that would have to travel against the stream is an
 * error that names its nodes. */
teng_status tg_pipe_cut_make(tg_graph *whole, const tg_pipe_layers *layers, int stages, tg_pipe_cut **out);
void tg_pipe_cut_destroy(tg_pipe_cut **cut);
bool tg_pipe_cut_holds(const tg_pipe_cut *cut, int stage, const char *param);

/* The graph of a piece, which refers to texts of the cut. Phases: forward, backward; with `split`, what need
 * not be done before the piece before can go on stands in the update phase. */
teng_status tg_pipe_piece_graph(const tg_pipe_cut *cut, int piece, bool split, tg_graph **out);
/* The update of a stage's parameters from their accumulated gradients. Its backward phase ends with the
 * output TG_PIPE_SUM, the squares of the stage's gradients; the update phase begins with the input
 * TG_PIPE_TOTAL, the sum over the stages. A shared gradient counts on the first stage that holds it. */
teng_status tg_pipe_update_graph(const tg_pipe_cut *cut, int stage, tg_graph **out);
#define TG_PIPE_SUM "pipe.sum_squares"
#define TG_PIPE_TOTAL "pipe.sum_squares_of_all"

/* Once, after the graphs of this rank's stage have been made: of the moves and parameters of the whole
 * graph those of the stage stay in its layout, and what it sends to other stages is added, along the pipeline
 * axis. */
teng_status tg_pipe_cut_moves(const tg_pipe_cut *cut, int stage, tg_parallel *layout);

/* The pieces with their layers, share of the cost, and bytes that they send. */
void tg_pipe_cut_print(const tg_pipe_cut *cut, tg_strbuf *out);

#endif
