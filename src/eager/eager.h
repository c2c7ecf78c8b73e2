/*
 * PYNATIVE: each appended node runs at once. The same operators, rules and kernels as GRAPH mode; kernels are
 * prepared once per (operator, attributes, shapes) and buffers are reused from step to step, so a repeated
 * step allocates nothing but its graph.
 */
#ifndef TG_EAGER_EAGER_H
#define TG_EAGER_EAGER_H

#include "device/store.h"
#include "graph/graph.h"

typedef struct tg_eager tg_eager;
/* isa: the TG_CPU_… limit. store is borrowed. */
tg_eager *tg_eager_create(tg_store *store, int isa);
void tg_eager_destroy(tg_eager **eager);
/* From here on every node appended to g runs at once. Values stay readable until tg_eager_end. */
void tg_eager_begin(tg_eager *eager, tg_graph *g);
/* Runs the nodes of a graph that was built without running them, in order, after its inputs are fed. */
teng_status tg_eager_run(tg_eager *eager, tg_graph *g);
/* Returns the buffers of all values of g for reuse; g's values must not be read afterwards. */
void tg_eager_end(tg_eager *eager);
/* Gives an input its value. */
teng_status tg_eager_feed(tg_eager *eager, teng_tensor *input, const void *data);
/* Host copy of a value, computed, fed or stored. */
teng_status tg_eager_fetch(tg_eager *eager, teng_tensor *value, void *data, size_t bytes);
/* watch sees each node after it has run, views aside, until it says stop (the nodes still run); NULL: none.
 */
void tg_eager_watch(tg_eager *eager, tg_node_watch *watch, void *user);
/* Told of each node that runs from now on (borrowed); NULL: none. */
void tg_eager_probe(tg_eager *eager, const tg_probe *probe);
/* Bytes held for values now and at most so far; kernels prepared so far. */
size_t tg_eager_bytes(const tg_eager *eager, size_t *peak);
size_t tg_eager_kernels(const tg_eager *eager);

#endif
