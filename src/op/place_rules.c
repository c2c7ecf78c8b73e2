/* Placement rules that many operators share; see place_rules.h. */
#include "op/place_rules.h"

#include "mesh/mesh.h"

#include <string.h>

#define MAX_IN 16

void tg_place_elementwise(const teng_op_call *call, teng_place_rules *rules)
{
    teng_place in[MAX_IN], out[TENG_MAX_OUT];
    const teng_desc *y = &call->out[0];
    if (call->n_in > MAX_IN) return;
    for (int d = 0; d < y->ndim; d++) {
        if (y->dims[d] < 2) continue;
        for (int i = 0; i < call->n_in; i++) {
            const teng_desc *x = &call->in[i];
            int own = d - (y->ndim - x->ndim); /* NumPy lines dimensions up at the end */
            in[i] = (teng_place)(own >= 0 && x->dims[own] == y->dims[d] ? own : TENG_REPLICATED);
        }
        memset(out, d, sizeof out);
        teng_place_add(rules, in, out);
    }
}

void tg_place_linear(const teng_op_call *call, teng_place_rules *rules, uint32_t inputs)
{
    teng_place in[MAX_IN], out[TENG_MAX_OUT];
    if (call->n_in > MAX_IN) return;
    for (int i = 0; i < call->n_in; i++)
        in[i] = inputs >> i & 1u ? TENG_PARTIAL : TENG_REPLICATED;
    memset(out, TENG_PARTIAL, sizeof out);
    teng_place_add(rules, in, out);
}

void tg_place_rows(const teng_op_call *call, teng_place_rules *rules, int rows_of, uint32_t in_rows,
                   uint32_t out_rows)
{
    teng_place in[MAX_IN], out[TENG_MAX_OUT];
    if (call->n_in > MAX_IN) return;
    for (int d = 0; d < call->in[rows_of].ndim; d++) {
        for (int i = 0; i < call->n_in; i++)
            in[i] = (teng_place)(in_rows >> i & 1u ? d : TENG_REPLICATED);
        for (int o = 0; o < TENG_MAX_OUT; o++)
            out[o] = (teng_place)(out_rows >> o & 1u ? d : TENG_PARTIAL);
        teng_place_add(rules, in, out);
    }
}

int64_t tg_place_cut_vocabulary(int64_t vocab, int64_t parts, int64_t index, int64_t *begin, int64_t *total)
{
    int64_t first, size;
    tg_mesh_cut(vocab, parts, index, &first, &size);
    if (!*total) *total = vocab;
    *begin += first;
    return size;
}
