/* Inside of recompute: the minimum cut of one layer, and the ladder of cuts that AUTO climbs. */
#ifndef TG_PASS_RECOMPUTE_IMPL_H
#define TG_PASS_RECOMPUTE_IMPL_H

#include "pass/recompute.h"

/* One value of a layer that may be dropped, in program order. Values of earlier layers, parameters and inputs
 * are there anyway and do not appear. */
typedef struct tg_cut_value {
    int64_t bytes;
    bool needed;     /* backward reads it */
    bool producible; /* its operator may run again */
    const int *from; /* [n_from] values that its operator reads, each an index below its own */
    int n_from;
} tg_cut_value;
/* keep[i]: value i is kept. The kept ones have the smallest sum of bytes, and of all such sets it is the one
 * that leaves least to compute. */
teng_status tg_pass_min_cut(const tg_cut_value *values, int n, bool *keep);

/* One layer: its values, and the operators that make them. */
typedef struct tg_layer_op {
    tg_node *node;
    double seconds;  /* roofline */
    double per_byte; /* seconds a byte of its outputs: AUTO allows the lowest first */
    bool pure;       /* may run again at all */
    bool cheap;      /* bound by memory: SELECTIVE */
} tg_layer_op;
typedef struct tg_layer {
    const char *path;
    TG_VEC(tg_layer_op) ops;
    TG_VEC(teng_tensor *) values; /* roots: values that are no view of another value of the layer */
    TG_VEC(int) op_of;            /* by value: index into ops */
    TG_VEC(tg_cut_value) cut;     /* by value */
    TG_VEC(bool) keep;            /* by value: the cut that was chosen */
    int64_t needed;               /* bytes that backward reads */
} tg_layer;

/* Chooses keep[] with the operators allowed whose per_byte is at most `limit` (SELECTIVE: the cheap ones).
 * *kept: bytes; *seconds: of the operators that run again. */
teng_status tg_layer_cut(tg_layer *layer, tg_recompute_kind kind, double limit, bool *keep, int64_t *kept,
                         double *seconds);
/* AUTO: sets keep of every layer as the first `moves` moves leave it; *all: moves there are. */
teng_status tg_layers_auto(tg_layer *layers, size_t n, int moves, int *all);

#endif
