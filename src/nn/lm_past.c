/*
 * Where families meet positions and earlier tokens. A trace of whole sequences uses the plain operators, as
 * if this file were not there. A trace that writes text (lm.c) sees new tokens at given positions: each layer
 * puts their keys and values into its caches, which are states of the graph, and attends to what the caches
 * hold.
 */
#include "nn/lm.h"

#include "base/fail.h"

#include <string.h>

static const teng_src nowhere = {0}; /* errors name the line that called from the family */

/* A cache [B, room, G, D] of the layer for rows like x [B, T, G, D]. */
static teng_tensor *cache(const teng_cell *self, const char *what, const teng_tensor *x, int64_t room)
{
    teng_desc desc = *teng_tensor_desc(x);
    desc.dims[1] = room;
    char *name = tg_asprintf("%s.%s.%lld", self->path, what, (long long)room);
    teng_tensor *value = name ? tg_graph_state(tg_trace_current()->graph, name, &desc) : NULL;
    tg_free(name);
    return value;
}

teng_tensor *tg_lm_rope(const teng_cell *self, teng_tensor *x, const teng_rope_options *options)
{
    const tg_lm_past *past = tg_lm_past_of(self);
    return past->positions ? teng_rope_positions_at(nowhere, x, past->positions, options, past->room)
                           : teng_rope_at(nowhere, x, options);
}

teng_tensor *tg_lm_add_positions(const teng_cell *self, teng_tensor *x, teng_tensor *table)
{
    const tg_lm_past *past = tg_lm_past_of(self);
    return past->positions ? teng_add_at(nowhere, x, teng_embedding_at(nowhere, table, past->positions))
                           : teng_add_positions_at(nowhere, x, table);
}

teng_tensor *tg_lm_attention(const teng_cell *self, teng_tensor *q, teng_tensor *k, teng_tensor *v,
                             const teng_attention_options *options)
{
    const tg_lm_past *past = tg_lm_past_of(self);
    if (!past->positions) return teng_attention_at(nowhere, q, k, v, options);
    if (!k || !v) return NULL;
    teng_tensor *keys = teng_cache_write_at(nowhere, cache(self, "keys", k, past->room), k, past->positions);
    teng_tensor *values =
        teng_cache_write_at(nowhere, cache(self, "values", v, past->room), v, past->positions);
    return teng_cached_attention_at(nowhere, q, keys, values, past->positions, options);
}
