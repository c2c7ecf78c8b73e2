/* Kernels of swiglu and its gradient: one pass, all operands of an element are read before its results are
 * written. */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "tensor/desc.h"

static void swiglu_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    TG_FLOAT_SWITCH(
        a->call->in[0].dtype, T, TG_VECTORS(i, len, begin, end) {
            const tg_vf gate = tg_v_load_part(T, a->in[0], i, len), up = tg_v_load_part(T, a->in[1], i, len);
            tg_v_store_part(T, a->out[0], i, gate * tg_v_sigmoid(gate) * up, len);
        });
}

static void swiglu_grad_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    TG_FLOAT_SWITCH(
        a->call->in[0].dtype, T, TG_VECTORS(i, len, begin, end) {
            const tg_vf gate = tg_v_load_part(T, a->in[0], i, len), up = tg_v_load_part(T, a->in[1], i, len);
            const tg_vf dy = tg_v_load_part(T, a->in[2], i, len), s = tg_v_sigmoid(gate);
            tg_v_store_part(T, a->out[0], i, dy * up * s * tg_v_fma(gate, 1.0f - s, tg_v_set(1.0f)), len);
            tg_v_store_part(T, a->out[1], i, dy * gate * s, len);
        });
}

static teng_status run_swiglu(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, swiglu_block, args);
    return TENG_OK;
}

static teng_status run_swiglu_grad(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, swiglu_grad_block, args);
    return TENG_OK;
}

TG_KERNELS(tg_swiglu_kernels) = {{"vector", NULL, NULL, run_swiglu, NULL}, {0}};
TG_KERNELS(tg_swiglu_grad_kernels) = {{"vector", NULL, NULL, run_swiglu_grad, NULL}, {0}};
