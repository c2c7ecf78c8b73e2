/*
 * Recompute: forward values that the backward pass reads are computed again there instead of being kept. A
 * rewrite of a finished graph (forward, backward, update) that keeps every bit, because operators are pure
 * functions of their operands and attributes, random ones too. Clones stand in the backward phase right
 * before their first reader; what crosses the border of a layer is always kept. (Chen et al. 2016, "Training
 * deep nets with sublinear memory cost".)
 *
 * What a layer keeps is chosen by a minimum cut: the fewest bytes from which all that backward reads can be
 * computed by the operators that are allowed. The kinds differ in what is allowed.
 */
#ifndef TG_PASS_RECOMPUTE_H
#define TG_PASS_RECOMPUTE_H

#include "graph/graph.h"

typedef enum tg_recompute_kind {
    TG_RECOMPUTE_NONE,
    TG_RECOMPUTE_SELECTIVE, /* operators bound by memory; never a product, attention, or communication */
    TG_RECOMPUTE_FULL,      /* every operator of the layer */
    TG_RECOMPUTE_AUTO,      /* the first `moves` of a list of moves, most bytes freed a second first */
} tg_recompute_kind;

typedef struct tg_recompute_options {
    tg_recompute_kind kind;
    /* fnmatch patterns of layer paths; none: every layer. A layer is the part of a scope up to its first
     * component that is a number ("model.layers.3"); when a pattern matches no such layer, the shortest part
     * of a scope that it matches ("*.mlp"). */
    const char *const *layers;
    size_t n_layers;
    double flops_per_s, bytes_per_s; /* of this machine, 0: a usual ratio of the two */
    int moves;                       /* AUTO: how many to take; more than there are: all */
} tg_recompute_options;

typedef struct tg_recompute_result {
    int layers; /* that were looked at */
    int clones;
    int moves;            /* AUTO: all there are */
    double seconds;       /* roofline forecast of the clones, once a micro-batch; 0 without rates */
    int64_t kept, before; /* bytes inside the layers that backward needs: after and before */
} tg_recompute_result;

/* After the passes; nodes that nothing reads any more are dropped. A pattern that matches nothing is an error
 * that names the nearest layer; so is a graph without layers. A line is appended to report (may be NULL). */
teng_status tg_recompute(tg_graph *g, const tg_recompute_options *options, tg_recompute_result *result,
                         tg_strbuf *report);

#endif
