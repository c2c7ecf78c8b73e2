/* What the spec, the kernels and the cases of attention share: the sizes of a call and which keys a query
 * sees. */
#ifndef TG_OP_ATTENTION_H
#define TG_OP_ATTENTION_H

#include "teng/ops.h"

#include <math.h>

/* q [batch, rows, heads, width], k and v [batch, keys, groups, width]. */
typedef struct tg_attention_sizes {
    int64_t batch, rows, keys, heads, groups, width;
    bool causal;
    int64_t window; /* 0: none */
    int64_t shift;  /* causal: row t stands at key t + shift and sees no later ones */
    int64_t room;   /* keys of a sequence in memory, of which those beyond `keys` are not read */
    float scale;
} tg_attention_sizes;

static inline tg_attention_sizes tg_attention_sizes_of(const teng_op_call *call)
{
    const teng_attention_options *o = (const teng_attention_options *)call->attr;
    const int64_t *q = call->in[0].dims, *k = call->in[1].dims;
    return (tg_attention_sizes){.batch = q[0],
                                .rows = q[1],
                                .keys = k[1],
                                .heads = q[2],
                                .groups = k[2],
                                .width = q[3],
                                .causal = o->causal != 0,
                                .window = o->window,
                                .shift = k[1] - q[1] + o->shift,
                                .room = k[1],
                                .scale = (float)(o->scale != 0 ? o->scale : 1 / sqrt((double)q[3]))};
}

/* Of cached_attention, whose rows begin at this position. */
static inline tg_attention_sizes tg_cached_attention_sizes(const teng_op_call *call, int64_t position)
{
    tg_attention_sizes s = tg_attention_sizes_of(call);
    s.causal = true;
    s.keys = position + s.rows;
    s.shift = position;
    return s;
}

/* Checks q, k, v and the options; with the outputs y and lse; of the gradient, dq, dk and dv. */
teng_status tg_attention_infer_inputs(const teng_op_call *call);
teng_status tg_attention_infer(teng_op_call *call);
teng_status tg_attention_infer_grad(teng_op_call *call);

/* Query t sees keys first … last; none when last < first. Neither decreases with t. */
static inline int64_t tg_attention_last(const tg_attention_sizes *s, int64_t t)
{
    return s->causal && t + s->shift < s->keys ? t + s->shift : s->keys - 1;
}
static inline int64_t tg_attention_first(const tg_attention_sizes *s, int64_t t)
{
    const int64_t last = s->causal ? t + s->shift : s->keys - 1; /* there may be no such key */
    const int64_t first = s->window > 0 ? last - s->window + 1 : 0;
    return first > 0 ? first : 0;
}

#endif
