/*
 * Backward: appends the gradient nodes of a scalar loss by each operator's rule. The same walk serves both
 * modes: in PYNATIVE each appended node runs at once.
 */
#ifndef TG_AUTOGRAD_AUTOGRAD_H
#define TG_AUTOGRAD_AUTOGRAD_H

#include "graph/graph.h"

/* Gradients of seed · loss with respect to wrt[n] (params, inputs or computed values that require a gradient)
 * into grads[n]; NULL where loss does not depend on the value. loss and seed are f32 scalars; seed NULL
 * means 1. Nodes are appended in phase TG_BACKWARD, with the scope and source of the forward node they belong
 * to. An operator without a gradient on the way is an error that names it and its reason. Contributions to
 * one value are added in the order of the backward walk, so the sums are the same bits in both modes. */
teng_status tg_autograd_backward(tg_graph *g, teng_tensor *loss, teng_tensor *seed, teng_tensor *const *wrt,
                                 int n, teng_tensor **grads);

#endif
