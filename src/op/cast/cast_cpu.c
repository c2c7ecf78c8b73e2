/* Kernels of cast: between the three training dtypes in registers, all else element by element. */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "tensor/desc.h"

static bool trains(teng_dtype t)
{
    return t == TENG_F32 || t == TENG_BF16 || t == TENG_F16;
}

static const char *accept_vector(const teng_op_call *call)
{
    return trains(call->in[0].dtype) && trains(call->out[0].dtype) ? NULL : "only between f32, bf16 and f16";
}

static void vector_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    const teng_dtype to = a->call->out[0].dtype;
    TG_FLOAT_SWITCH(a->call->in[0].dtype, FROM,
                    TG_FLOAT_SWITCH(to, TO,
                                    TG_VECTORS(i, len, begin, end) tg_v_store_part(
                                        TO, a->out[0], i, tg_v_load_part(FROM, a->in[0], i, len), len)));
}

static void any_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    const teng_dtype from = a->call->in[0].dtype, to = a->call->out[0].dtype;
    tg_convert(to, (char *)a->out[0] + begin * teng_dtype_size(to), from,
               (const char *)a->in[0] + begin * teng_dtype_size(from), end - begin);
}

static teng_status run_vector(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, vector_block, args);
    return TENG_OK;
}

static teng_status run_any(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, any_block, args);
    return TENG_OK;
}

TG_KERNELS(tg_cast_kernels) = {{"vector", accept_vector, NULL, run_vector, NULL},
                               {"element by element", NULL, NULL, run_any, NULL},
                               {0}};
