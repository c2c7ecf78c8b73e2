/* Inside of cutting a graph into pieces: what its files share. */
#ifndef TG_PARALLEL_PIPE_IMPL_H
#define TG_PARALLEL_PIPE_IMPL_H

#include "parallel/pipe_cut.h"

/* The layer of a scope (index of the list), -1: it is inside none. */
int tg_pipe_layer_find(const tg_pipe_layers *layers, const char *scope);
/* The layer of every node, by position: TG_PIPE_ANYWHERE for what follows from parameters alone or from graph
 * inputs alone, TG_PIPE_UPDATE for the update phase. (pipe_place.c) */
teng_status tg_pipe_place_nodes(const tg_graph *g, const tg_pipe_layers *layers, int *layer);
/* Follows a gradient on its way into its accumulator through sums that are made of parts of several pieces,
 * and through what is the same for each part (casts, shapes, reductions over ranks). */
bool tg_pipe_is_linear(const tg_node *node);
/* Of a sum made in parts: whether the piece has one. */
bool tg_pipe_has_part(const tg_pipe_cut *cut, const teng_tensor *v, int piece);
/* Name of the edge that carries value `id` of the whole graph, into name[TG_PIPE_NAME]. */
void tg_pipe_edge_name(char *name, int id);
/* Adds a gradient to its accumulator. */
bool tg_pipe_is_accumulate(const tg_node *node);
/* The parameter of an accumulator's node. */
const char *tg_pipe_param_of(const tg_node *accumulate);

#endif
