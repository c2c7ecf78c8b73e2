/* The update as graph nodes: accumulation, global-norm clip, optimizer. The same nodes in both modes. */
#ifndef TG_OPTIM_OPTIM_H
#define TG_OPTIM_OPTIM_H

#include "graph/graph.h"

typedef enum tg_optim_kind { TG_OPTIM_ADAMW, TG_OPTIM_SGD } tg_optim_kind;
typedef struct tg_optim_options {
    tg_optim_kind kind;
    double beta1, beta2, eps, weight_decay, momentum,
        clip_norm; /* clip_norm 0: no clip, the norm is still known */
    bool nesterov;
} tg_optim_options;
typedef struct tg_optim_param {
    teng_tensor *param;
    teng_tensor *grad; /* NULL: the loss does not depend on it; the parameter is left alone */
    bool decay;        /* weight_decay applies */
} tg_optim_param;

/* Names of graph inputs that the host feeds: f32[4] {lr, 1 - beta1^t, 1 - beta2^t, 0}; f32[] factor that
 * undoes a loss scale; f32[] factor of the old accumulator (0 for the first micro-batch, else 1). */
#define TG_OPTIM_SCALARS "optim.scalars"
#define TG_OPTIM_UNSCALE "optim.unscale"
#define TG_OPTIM_KEEP "optim.keep"

/* Adds each gradient to a persistent f32 accumulator "grad.<param>" (phase of the current trace) and replaces
 * params[i].grad by it, so that the update sees the sum over micro-batches. */
teng_status tg_optim_accumulate(tg_graph *g, tg_optim_param *params, int n);
/* Appends norm, clip and one optimizer node a parameter in phase TG_UPDATE. States are "adamw.m.<param>",
 * "adamw.v.<param>" or "sgd.buf.<param>". *grad_norm: f32 scalar. A norm that is not finite changes nothing.
 */
teng_status tg_optim_update(tg_graph *g, const tg_optim_options *options, const tg_optim_param *params, int n,
                            teng_tensor **grad_norm);

#endif
