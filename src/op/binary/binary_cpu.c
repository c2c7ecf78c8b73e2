/*
 * Kernels of add, sub, mul, div. The output is walked in runs along its innermost dimension after
 * neighbouring dimensions with the same behaviour have been merged: equal shapes are one run, a scalar
 * operand is one run of stride 0, a bias [C] against [..., C] is a run a row. One path serves every
 * broadcast.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/op_list.h"
#include "tensor/desc.h"

typedef struct geometry {
    const teng_kernel_args *args;
    int n;                          /* dimensions after merging, innermost first; at least 1 */
    int64_t size[TENG_MAX_DIMS];    /* of the output */
    int64_t step[2][TENG_MAX_DIMS]; /* elements from one index to the next in a and b, 0 where stretched */
} geometry;

static void merge_dims(const teng_op_call *call, geometry *g)
{
    const teng_desc *y = &call->out[0];
    int64_t pitch[2] = {1, 1};
    g->n = 0;
    for (int d = 1; d <= y->ndim; d++) { /* from the last dimension */
        const int64_t size = y->dims[y->ndim - d];
        int64_t step[2];
        for (int k = 0; k < 2; k++) {
            const teng_desc *x = &call->in[k];
            const int64_t own = d <= x->ndim ? x->dims[x->ndim - d] : 1;
            step[k] = own == size ? pitch[k] : 0;
            pitch[k] *= own;
        }
        if (size == 1) continue;
        const int last = g->n - 1;
        bool merges = last >= 0;
        for (int k = 0; k < 2 && merges; k++)
            merges = step[k] == g->step[k][last] * g->size[last];
        if (merges) {
            g->size[last] *= size;
            continue;
        }
        g->size[g->n] = size;
        g->step[0][g->n] = step[0];
        g->step[1][g->n++] = step[1];
    }
    if (g->n == 0) *g = (geometry){.args = g->args, .n = 1, .size = {1}, .step = {{1}, {1}}};
}

/* Offsets of a and b at flat output index i; returns how many elements are left in the innermost dimension.
 */
static int64_t locate(const geometry *g, int64_t i, int64_t *a, int64_t *b)
{
    const int64_t left = g->size[0] - i % g->size[0];
    *a = *b = 0;
    for (int d = 0; d < g->n; d++) {
        const int64_t index = i % g->size[d];
        *a += index * g->step[0][d];
        *b += index * g->step[1][d];
        i /= g->size[d];
    }
    return left;
}

TG_INLINE tg_vf operand(teng_dtype t, const void *x, int64_t at, int64_t step, int64_t len, tg_vf stretched)
{
    return step ? tg_v_load_part(t, x, at, len) : stretched;
}

/* a · 1 in a's own place, as gradients times the gradient of the loss are: there is nothing to do. */
static bool times_one(const geometry *g)
{
    const teng_kernel_args *a = g->args;
    return g->n == 1 && g->step[0][0] && !g->step[1][0] && a->out[0] == a->in[0] &&
           tg_v_load1(a->call->in[1].dtype, a->in[1], 0) == 1.0f;
}

#define BINARY(name, formula, expr, traits, reads_in, reads_out)                                             \
    TG_INLINE void name##_run(teng_dtype t, const geometry *g, int64_t out, int64_t in_a, int64_t in_b,      \
                              int64_t n)                                                                     \
    {                                                                                                        \
        const void *xa = g->args->in[0], *xb = g->args->in[1];                                               \
        const int64_t sa = g->step[0][0], sb = g->step[1][0];                                                \
        const tg_vf a0 = tg_v_set(sa ? 0 : tg_v_load1(t, xa, in_a)),                                         \
                    b0 = tg_v_set(sb ? 0 : tg_v_load1(t, xb, in_b));                                         \
        TG_VECTORS(i, len, 0, n)                                                                             \
        {                                                                                                    \
            const tg_vf a = operand(t, xa, in_a + i, sa, len, a0),                                           \
                        b = operand(t, xb, in_b + i, sb, len, b0);                                           \
            tg_v_store_part(t, g->args->out[0], out + i, expr, len);                                         \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_block(const void *ctx, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const geometry *g = ctx;                                                                             \
        const teng_dtype dtype = g->args->call->out[0].dtype;                                                \
        for (int64_t i = begin, run, a, b; i < end; i += run) {                                              \
            run = locate(g, i, &a, &b);                                                                      \
            if (run > end - i) run = end - i;                                                                \
            TG_FLOAT_SWITCH(dtype, T, name##_run(T, g, i, a, b, run));                                       \
        }                                                                                                    \
    }                                                                                                        \
    static teng_status run_##name(const teng_kernel_args *args)                                              \
    {                                                                                                        \
        geometry g = {.args = args};                                                                         \
        const int64_t n = tg_desc_numel(&args->call->out[0]);                                                \
        merge_dims(args->call, &g);                                                                          \
        if (args->call->op == &tg_op_mul && times_one(&g)) return TENG_OK;                                   \
        tg_run_blocks(n, TG_BLOCK, n, name##_block, &g);                                                     \
        return TENG_OK;                                                                                      \
    }                                                                                                        \
    TG_KERNELS(tg_##name##_kernels) = {{"vector", NULL, NULL, run_##name, NULL}, {0}};
#include "op/binary/binary.def"
#undef BINARY
