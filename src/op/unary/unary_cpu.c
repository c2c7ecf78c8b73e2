/*
 * Kernels of the functions of one operand and of their derivatives: one pass over memory in blocks, f32 in
 * registers.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/unary/unary.h"
#include "tensor/desc.h"

#define SQRT_2_PI 0.79788456080f    /* √(2/π) */
#define INV_SQRT_2PI 0.39894228040f /* 1/√(2π) */

/* ---- the functions ---- */
TG_INLINE tg_vf f_exp(tg_vf x)
{
    return tg_v_exp(x);
}
TG_INLINE tg_vf f_log(tg_vf x)
{
    return tg_v_log(x);
}
TG_INLINE tg_vf f_sqrt(tg_vf x)
{
    return tg_v_sqrt(x);
}
TG_INLINE tg_vf f_rsqrt(tg_vf x)
{
    return tg_v_rsqrt(x);
}
TG_INLINE tg_vf f_square(tg_vf x)
{
    return x * x;
}
TG_INLINE tg_vf f_tanh(tg_vf x)
{
    return tg_v_tanh(x);
}
TG_INLINE tg_vf f_sigmoid(tg_vf x)
{
    return tg_v_sigmoid(x);
}
TG_INLINE tg_vf f_relu(tg_vf x)
{
    return tg_v_max(tg_v_set(0.0f), x);
}
TG_INLINE tg_vf f_silu(tg_vf x)
{
    return x * tg_v_sigmoid(x);
}
TG_INLINE tg_vf f_gelu(tg_vf x)
{
    return x * tg_v_normal_cdf(x);
}
/* 0.5 (1 + tanh u) = sigmoid(2u), which keeps the left tail accurate. */
TG_INLINE tg_vf gelu_gate(tg_vf x)
{
    return tg_v_sigmoid(2.0f * SQRT_2_PI * x * tg_v_fma(x * x, tg_v_set(0.044715f), tg_v_set(1.0f)));
}
TG_INLINE tg_vf f_gelu_tanh(tg_vf x)
{
    return x * gelu_gate(x);
}

/* ---- their derivatives, of x or of y = f(x) as unary.def says ---- */
TG_INLINE tg_vf d_exp(tg_vf y)
{
    return y;
}
TG_INLINE tg_vf d_log(tg_vf x)
{
    return 1.0f / x;
}
TG_INLINE tg_vf d_sqrt(tg_vf y)
{
    return 0.5f / y;
}
TG_INLINE tg_vf d_rsqrt(tg_vf y)
{
    return -0.5f * y * y * y;
}
TG_INLINE tg_vf d_square(tg_vf x)
{
    return x + x;
}
TG_INLINE tg_vf d_tanh(tg_vf y)
{
    return 1.0f - y * y;
}
TG_INLINE tg_vf d_sigmoid(tg_vf y)
{
    return y * (1.0f - y);
}
TG_INLINE tg_vf d_relu(tg_vf y)
{
    return tg_v_select(y > 0.0f, tg_v_set(1.0f), tg_v_set(0.0f));
}
TG_INLINE tg_vf d_silu(tg_vf x)
{
    tg_vf s = tg_v_sigmoid(x);
    return s * tg_v_fma(x, 1.0f - s, tg_v_set(1.0f));
}
TG_INLINE tg_vf d_gelu(tg_vf x)
{
    return tg_v_fma(x, INV_SQRT_2PI * tg_v_exp(-0.5f * x * x), tg_v_normal_cdf(x));
}
TG_INLINE tg_vf d_gelu_tanh(tg_vf x)
{
    tg_vf g = gelu_gate(x),
          du = 2.0f * SQRT_2_PI * tg_v_fma(x * x, tg_v_set(3.0f * 0.044715f), tg_v_set(1.0f));
    return tg_v_fma(x * g * (1.0f - g), du, g);
}

#define UNARY(name, formula, reads, flops)                                                                   \
    static void name##_block(const void *ctx, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const teng_kernel_args *a = ctx;                                                                     \
        TG_FLOAT_SWITCH(a->call->in[0].dtype, T,                                                             \
                        TG_VECTORS(i, len, begin, end) tg_v_store_part(                                      \
                            T, a->out[0], i, f_##name(tg_v_load_part(T, a->in[0], i, len)), len));           \
    }                                                                                                        \
    static teng_status run_##name(const teng_kernel_args *args)                                              \
    {                                                                                                        \
        const int64_t n = tg_desc_numel(&args->call->out[0]);                                                \
        tg_run_blocks(n, TG_BLOCK, n, name##_block, args);                                                   \
        return TENG_OK;                                                                                      \
    }                                                                                                        \
    TG_KERNELS(tg_##name##_kernels) = {{"vector", NULL, NULL, run_##name, NULL}, {0}};                       \
    static void name##_grad_block(const void *ctx, int64_t begin, int64_t end)                               \
    {                                                                                                        \
        const teng_kernel_args *a = ctx;                                                                     \
        TG_FLOAT_SWITCH(                                                                                     \
            a->call->in[0].dtype, T, TG_VECTORS(i, len, begin, end) {                                        \
                tg_vf r = tg_v_load_part(T, a->in[0], i, len), dy = tg_v_load_part(T, a->in[1], i, len);     \
                tg_v_store_part(T, a->out[0], i, d_##name(r) * dy, len);                                     \
            });                                                                                              \
    }
#include "op/unary/unary.def"
#undef UNARY

static teng_status run_unary_grad(const teng_kernel_args *args)
{
    static void (*const blocks[])(const void *, int64_t, int64_t) = {
#define UNARY(name, formula, reads, flops) name##_grad_block,
#include "op/unary/unary.def"
#undef UNARY
    };
    const tg_unary_attr *attr = args->call->attr;
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, blocks[attr->fn], args);
    return TENG_OK;
}
TG_KERNELS(tg_unary_grad_kernels) = {{"vector", NULL, NULL, run_unary_grad, NULL}, {0}};

static void affine_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    const tg_affine_attr *attr = a->call->attr;
    const tg_vf factor = tg_v_set((float)attr->factor), offset = tg_v_set((float)attr->offset);
    TG_FLOAT_SWITCH(a->call->in[0].dtype, T,
                    TG_VECTORS(i, len, begin, end) tg_v_store_part(
                        T, a->out[0], i, tg_v_fma(factor, tg_v_load_part(T, a->in[0], i, len), offset), len));
}
static teng_status run_affine(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, affine_block, args);
    return TENG_OK;
}
TG_KERNELS(tg_affine_kernels) = {{"vector", NULL, NULL, run_affine, NULL}, {0}};
