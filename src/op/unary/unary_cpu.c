/*
 * Kernels of the functions of one operand and of their derivatives: one pass over memory in blocks, f32 in
 * registers.
 */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/unary/unary.h"
#include "tensor/desc.h"

#define SQRT_2_PI 0.79788456080f /* √(2/π) */
#define LOG2E 1.44269504089f
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
/* 0.5 (1 + tanh u) = sigmoid(2u) = 1 / (1 + 2^(-2u · log2 e)), which keeps the left tail accurate. */
TG_INLINE tg_vf gelu_gate(tg_vf x)
{
    const float slope = -2.0f * SQRT_2_PI * LOG2E;
    return 1.0f / (1.0f + tg_v_exp2(x * tg_v_fma(x * x, tg_v_set(slope * 0.044715f), tg_v_set(slope))));
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
          du = tg_v_fma(x * x, tg_v_set(2.0f * SQRT_2_PI * 3.0f * 0.044715f), tg_v_set(2.0f * SQRT_2_PI));
    return tg_v_fma(x * g * (1.0f - g), du, g);
}

#define AT_ONCE                                                                                              \
    4 /* registers on their way together: a function is a long chain, and one waits for itself               \
       */

/* Calls some(T, n, args, i, len) for elements begin … end - 1: n = AT_ONCE full registers from element i on,
 * at the end one of len elements. */
#define BY_REGISTERS(T, some, args, begin, end)                                                              \
    do {                                                                                                     \
        int64_t at_ = (begin);                                                                               \
        for (; at_ + AT_ONCE * TG_LANES <= (end); at_ += AT_ONCE * TG_LANES)                                 \
            some(T, AT_ONCE, args, at_, TG_LANES);                                                           \
        TG_VECTORS(i_, len_, at_, end) some(T, 1, args, i_, len_);                                           \
    } while (0)
#define EACH(k, n, ...)                                                                                      \
    TG_UNROLL(4)                                                                                             \
    for (int k = 0; k < (n); k++)                                                                            \
    __VA_ARGS__

#define VALUE_IN(x, y) (x)
#define VALUE_OUT(x, y) (y)
#define UNARY(name, formula, reads, flops)                                                                   \
    TG_INLINE void name##_some(teng_dtype T, int n, const teng_kernel_args *a, int64_t i, int64_t len)       \
    {                                                                                                        \
        tg_vf x[AT_ONCE];                                                                                    \
        EACH(k, n, x[k] = tg_v_load_part(T, a->in[0], i + k * TG_LANES, len));                               \
        EACH(k, n, x[k] = f_##name(x[k]));                                                                   \
        EACH(k, n, tg_v_store_part(T, a->out[0], i + k * TG_LANES, x[k], len));                              \
    }                                                                                                        \
    static void name##_block(const void *ctx, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const teng_kernel_args *a = ctx;                                                                     \
        TG_FLOAT_SWITCH(a->call->in[0].dtype, T, BY_REGISTERS(T, name##_some, a, begin, end));               \
    }                                                                                                        \
    static teng_status run_##name(const teng_kernel_args *args)                                              \
    {                                                                                                        \
        const int64_t n = tg_desc_numel(&args->call->out[0]);                                                \
        tg_run_blocks(n, TG_BLOCK, n, name##_block, args);                                                   \
        return TENG_OK;                                                                                      \
    }                                                                                                        \
    TG_KERNELS(tg_##name##_kernels) = {{"vector", NULL, NULL, run_##name, NULL}, {0}};                       \
    TG_INLINE void name##_grad_some(teng_dtype T, int n, const teng_kernel_args *a, int64_t i, int64_t len)  \
    {                                                                                                        \
        tg_vf r[AT_ONCE], dy[AT_ONCE];                                                                       \
        EACH(k, n, r[k] = tg_v_load_part(T, a->in[0], i + k * TG_LANES, len));                               \
        EACH(k, n, dy[k] = tg_v_load_part(T, a->in[1], i + k * TG_LANES, len));                              \
        EACH(k, n, r[k] = d_##name(r[k]) * dy[k]);                                                           \
        EACH(k, n, tg_v_store_part(T, a->out[0], i + k * TG_LANES, r[k], len));                              \
    }                                                                                                        \
    static void name##_grad_block(const void *ctx, int64_t begin, int64_t end)                               \
    {                                                                                                        \
        const teng_kernel_args *a = ctx;                                                                     \
        TG_FLOAT_SWITCH(a->call->in[0].dtype, T, BY_REGISTERS(T, name##_grad_some, a, begin, end));          \
    }                                                                                                        \
    TG_INLINE void name##_both_some(teng_dtype T, int n, const teng_kernel_args *a, int64_t i, int64_t len)  \
    {                                                                                                        \
        tg_vf x[AT_ONCE], y[AT_ONCE], dy[AT_ONCE];                                                           \
        EACH(k, n, x[k] = tg_v_load_part(T, a->in[0], i + k * TG_LANES, len));                               \
        EACH(k, n, dy[k] = tg_v_load_part(T, a->in[1], i + k * TG_LANES, len));                              \
        EACH(k, n, y[k] = f_##name(x[k]));                                                                   \
        EACH(k, n, dy[k] *= d_##name(VALUE_##reads(x[k], y[k])));                                            \
        EACH(k, n, tg_v_store_part(T, a->out[0], i + k * TG_LANES, dy[k], len));                             \
        EACH(k, n, tg_v_store_part(T, a->out[1], i + k * TG_LANES, y[k], len));                              \
    }                                                                                                        \
    static void name##_both_block(const void *ctx, int64_t begin, int64_t end)                               \
    {                                                                                                        \
        const teng_kernel_args *a = ctx;                                                                     \
        TG_FLOAT_SWITCH(a->call->in[0].dtype, T, BY_REGISTERS(T, name##_both_some, a, begin, end));          \
    }
#include "op/unary/unary.def"
#undef UNARY

typedef void block_fn(const void *, int64_t, int64_t);

static teng_status run_function(const teng_kernel_args *args, block_fn *const *blocks)
{
    const tg_unary_attr *attr = args->call->attr;
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, blocks[attr->fn], args);
    return TENG_OK;
}
static teng_status run_unary_grad(const teng_kernel_args *args)
{
    static block_fn *const blocks[] = {
#define UNARY(name, formula, reads, flops) name##_grad_block,
#include "op/unary/unary.def"
#undef UNARY
    };
    return run_function(args, blocks);
}
static teng_status run_with_grad(const teng_kernel_args *args)
{
    static block_fn *const blocks[] = {
#define UNARY(name, formula, reads, flops) name##_both_block,
#include "op/unary/unary.def"
#undef UNARY
    };
    return run_function(args, blocks);
}
TG_KERNELS(tg_unary_grad_kernels) = {{"vector", NULL, NULL, run_unary_grad, NULL}, {0}};
TG_KERNELS(tg_unary_with_grad_kernels) = {{"vector", NULL, NULL, run_with_grad, NULL}, {0}};

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
