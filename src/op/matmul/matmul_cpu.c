/*
 * matmul on the CPU: a oneDNN product planned at prepare; a single row is matmul_row.h's. Two kernels of
 * oneDNN, so that a plan's listing says which: the dtype as it is, or operands converted to f32 where the CPU
 * has no such product or b is stored in fewer bits than a. Empty products never reach oneDNN.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_gemm.h"
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/matmul/matmul_row.h"

typedef struct matmul_state {
    tg_gemm_plan *plan; /* NULL: y is empty, or a sum over nothing */
    size_t bias_at;     /* of the f32 bias in the workspace, where bias is stored in 16 bits */
    size_t b_at;        /* of b in f32 in the workspace, where only b is stored in 16 bits */
} matmul_state;

static const char *accept_native(const teng_op_call *call)
{
    const teng_dtype t = call->in[0].dtype;
    if (call->in[1].dtype != t) return "b has another dtype than a";
    if (t == TENG_F32 || tg_gemm_native(t)) return NULL;
    return t == TENG_BF16 ? "no bf16 products on this CPU or at this instruction-set limit"
                          : "no f16 products on this CPU or at this instruction-set limit";
}

static void release(void *state)
{
    matmul_state *s = state;
    if (s) tg_gemm_plan_destroy(&s->plan);
    tg_free(s);
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    const tg_matmul_attr *attr = call->attr;
    const tg_matmul_sizes z = tg_matmul_sizes_of(call);
    const teng_dtype t = call->in[0].dtype;
    matmul_state *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    if (z.batch && z.m && z.n && z.k) {
        const tg_gemm_spec spec = {.a = t,
                                   .b = t,
                                   .c = call->out[0].dtype,
                                   .m = z.m,
                                   .n = z.n,
                                   .k = z.k,
                                   .batch = z.batch,
                                   .trans_a = attr->trans_a,
                                   .trans_b = attr->trans_b,
                                   .shared_b = z.shared,
                                   .bias = call->n_in == 3};
        const teng_status status = tg_gemm_plan_create(&spec, &s->plan);
        if (status != TENG_OK) {
            release(s);
            return status;
        }
        out->workspace = tg_gemm_scratch(s->plan);
    }
    s->bias_at = out->workspace;
    if (call->n_in == 3 && call->in[2].dtype != TENG_F32)
        out->workspace += (size_t)tg_blocks(z.n, TG_ALIGN / 4) * TG_ALIGN;
    s->b_at = out->workspace;
    if (call->in[1].dtype != t)
        out->workspace += (size_t)tg_blocks(tg_desc_numel(&call->in[1]), TG_ALIGN / 4) * TG_ALIGN;
    out->state = s;
    return TENG_OK;
}

TG_INLINE void copy_row(teng_dtype from, teng_dtype to, const void *src, void *dst, int64_t at, int64_t n)
{
    TG_VECTORS(i, len, 0, n)
    {
        tg_v_store_part(to, dst, at + i, tg_v_load_part(from, src, i, len), len);
    }
}

TG_INLINE void widen(teng_dtype from, const void *src, float *dst, int64_t begin, int64_t end)
{
    TG_VECTORS(i, len, begin, end)
    {
        tg_v_store_part(TENG_F32, dst, i, tg_v_load_part(from, src, i, len), len);
    }
}

static teng_status run(const teng_kernel_args *args)
{
    const teng_op_call *call = args->call;
    const matmul_state *s = args->state;
    const tg_matmul_sizes z = tg_matmul_sizes_of(call);
    const float *bias = call->n_in == 3 ? args->in[2] : NULL;
    if (bias && call->in[2].dtype != TENG_F32) {
        float *wide = (void *)((char *)args->workspace + s->bias_at);
        TG_FLOAT_SWITCH(call->in[2].dtype, T, copy_row(T, TENG_F32, args->in[2], wide, 0, z.n));
        bias = wide;
    }
    const void *b = args->in[1];
    if (call->in[1].dtype != call->in[0].dtype) {
        const int64_t n = tg_desc_numel(&call->in[1]);
        float *wide = (void *)((char *)args->workspace + s->b_at);
        TG_PARALLEL_FOR(n >= TG_PARALLEL_MIN)
        for (int64_t i = 0; i < tg_blocks(n, TG_BLOCK); i++)
            TG_FLOAT_SWITCH(call->in[1].dtype, T,
                            widen(T, b, wide, i * TG_BLOCK, tg_block_end(i, TG_BLOCK, n)));
        b = wide;
    }
    if (s->plan) return tg_gemm_run(s->plan, args->in[0], b, bias, args->out[0], args->workspace);
    for (int64_t r = 0; r < z.batch * z.m; r++) {
        if (bias)
            TG_FLOAT_SWITCH(call->out[0].dtype, T, copy_row(TENG_F32, T, bias, args->out[0], r * z.n, z.n));
        else if (z.n)
            memset((char *)args->out[0] + r * z.n * teng_dtype_size(call->out[0].dtype), 0,
                   (size_t)(z.n * teng_dtype_size(call->out[0].dtype)));
    }
    return TENG_OK;
}

TG_KERNELS(tg_matmul_kernels) = {{"one row", tg_row_accept, tg_row_prepare, tg_row_run, NULL},
                                 {"oneDNN", accept_native, prepare, run, release},
                                 {"oneDNN, operands as f32", NULL, prepare, run, release},
                                 {0}};
