/*
 * Mixed precision while a model is traced: each call's operands are cast to what its operator computes in
 * under a level. The same in GRAPH and PYNATIVE, because both append the same calls; the backward pass
 * follows from the casts' own gradients. Parameters stay f32 (master weights) and are cast once a trace.
 */
#ifndef TG_NN_PRECISION_H
#define TG_NN_PRECISION_H

#include "base/vec.h"
#include "graph/graph.h"
#include "teng/nn.h"

typedef struct tg_precision_cast {
    const teng_tensor *from;
    teng_tensor *to;
} tg_precision_cast;

/* Of one trace; lives on the stack of whoever traces. */
typedef struct tg_precision {
    const teng_precision *options;
    tg_trace_hook hook;
    tg_graph *graph;
    TG_VEC(tg_precision_cast) casts; /* of parameters and activations: each once for a dtype */
    unsigned char *matched;          /* [n_keep_fp32]: the pattern has met a layer */
} tg_precision;

/* TENG_INVALID with the key's name when options make no sense. NULL is O0. */
teng_status tg_precision_check(const teng_precision *options);
/* Sets trace->hook while options ask for anything. */
teng_status tg_precision_begin(tg_precision *p, const teng_precision *options, tg_trace *trace);
/* Every pattern must have met a layer: else an error that names the nearest. */
teng_status tg_precision_finish(tg_precision *p);
void tg_precision_free(tg_precision *p);

/* The casts of a graph's forward pass and what each operator of a layer computes in, a line each. */
void tg_precision_print(const tg_graph *g, tg_strbuf *out);

#endif
