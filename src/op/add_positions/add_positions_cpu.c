/* add_positions on the CPU: a run of rows of the table is one vector, added to each sequence. */
#include "op/add_positions/add_positions.h"

#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "tensor/desc.h"

/* n elements of each sequence of `size`, both from the given ones on, and n of the table. */
TG_INLINE void add(teng_dtype T, const teng_kernel_args *args, int64_t sequences, int64_t size, int64_t from,
                   int64_t table_from, int64_t n)
{
    const int64_t blocks = tg_blocks(n, TG_BLOCK);
    TG_PARALLEL_FOR(sequences * n >= TG_PARALLEL_MIN)
    for (int64_t u = 0; u < sequences * blocks; u++) {
        const int64_t at = u / blocks * size + from, b = u % blocks;
        TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n))
        {
            tg_v_store_part(T, args->out[0], at + i,
                            tg_v_load_part(T, args->in[0], at + i, len) +
                                tg_v_load_part(T, args->in[1], table_from + i, len),
                            len);
        }
    }
}

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *x = &args->call->in[0];
    const tg_row_map *rows = args->call->attr;
    const int64_t numel = tg_desc_numel(x), c = x->dims[x->ndim - 1], t = x->dims[x->ndim - 2];
    const int64_t turn = rows->turn ? rows->turn : t;
    if (numel == 0) return TENG_OK;
    TG_FLOAT_SWITCH(x->dtype, T, {
        add(T, args, numel / (t * c), t * c, 0, rows->begin * c, turn * c);
        if (turn < t) add(T, args, numel / (t * c), t * c, turn * c, rows->later * c, (t - turn) * c);
    });
    return TENG_OK;
}

TG_KERNELS(tg_add_positions_kernels) = {{"blocks", NULL, NULL, run, NULL}, {0}};
