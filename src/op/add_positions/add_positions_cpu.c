/* add_positions on the CPU: rows 0 … T-1 of the table are one vector, added to each sequence. */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "tensor/desc.h"

TG_INLINE void add(teng_dtype T, const void *x, const void *table, void *y, int64_t sequences, int64_t n)
{
    const int64_t blocks = tg_blocks(n, TG_BLOCK);
    TG_PARALLEL_FOR(sequences * n >= TG_PARALLEL_MIN)
    for (int64_t u = 0; u < sequences * blocks; u++) {
        const int64_t at = u / blocks * n, b = u % blocks;
        TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n))
        {
            tg_v_store_part(T, y, at + i,
                            tg_v_load_part(T, x, at + i, len) + tg_v_load_part(T, table, i, len), len);
        }
    }
}

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *x = &args->call->in[0];
    const int64_t numel = tg_desc_numel(x), n = x->dims[x->ndim - 1] * x->dims[x->ndim - 2];
    if (numel == 0) return TENG_OK;
    TG_FLOAT_SWITCH(x->dtype, T, add(T, args->in[0], args->in[1], args->out[0], numel / n, n));
    return TENG_OK;
}

TG_KERNELS(tg_add_positions_kernels) = {{"blocks", NULL, NULL, run, NULL}, {0}};
