/* rope on the CPU: the cos and sin of a position are read once for all heads; the table is made when
 * prepared. */
#include "base/fail.h"
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/ids.h"
#include "op/rope/rope_table.h"
#include "tensor/desc.h"

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    const teng_rope_options *o = call->attr;
    const teng_desc *x = &call->in[0];
    out->state = tg_rope_table_get(x->dims[1], o->rotary_dim ? o->rotary_dim : x->dims[3], o);
    return out->state ? TENG_OK : TENG_MEMORY;
}

/* One head: x[at …], size elements of which the first 2·half turn. sign -1 turns back. */
TG_INLINE void turn(teng_dtype T, const void *x, void *y, int64_t at, int64_t half, int64_t size,
                    const float *angles, float sign)
{
    TG_VECTORS(i, len, 0, half)
    {
        const tg_vf c = tg_v_load_part(TENG_F32, angles, i, len);
        const tg_vf s = tg_v_load_part(TENG_F32, angles, half + i, len) * sign;
        const tg_vf a = tg_v_load_part(T, x, at + i, len), b = tg_v_load_part(T, x, at + half + i, len);
        tg_v_store_part(T, y, at + i, tg_v_fma(a, c, -(b * s)), len);
        tg_v_store_part(T, y, at + half + i, tg_v_fma(b, c, a * s), len);
    }
    if (x == y) return;
    TG_VECTORS(i, len, 2 * half, size)
    {
        tg_v_store_part(T, y, at + i, tg_v_load_part(T, x, at + i, len), len);
    }
}

static teng_status prepare_positions(const teng_op_call *call, teng_prepared *out)
{
    const tg_rope_positions_attr *a = call->attr;
    out->state =
        tg_rope_table_get(a->room, a->rope.rotary_dim ? a->rope.rotary_dim : call->in[0].dims[3], &a->rope);
    return out->state ? TENG_OK : TENG_MEMORY;
}

/* positions NULL: row t has position t of the table. */
static teng_status turn_rows(const teng_kernel_args *args, const int32_t *positions, float sign)
{
    const teng_desc *x = &args->call->in[0];
    const tg_rope_table *table = args->state;
    const int64_t rows = x->dims[0] * x->dims[1], t = x->dims[1], heads = x->dims[2], size = x->dims[3];
    const int64_t rotary = table->rotary_dim;
    TG_PARALLEL_FOR(rows * heads * size >= TG_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *angles = table->angles + (positions ? positions[r % t] : r % t) * rotary;
        TG_FLOAT_SWITCH(x->dtype, T, {
            for (int64_t h = 0; h < heads; h++)
                turn(T, args->in[0], args->out[0], (r * heads + h) * size, rotary / 2, size, angles, sign);
        });
    }
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    const teng_rope_options *o = args->call->attr;
    return turn_rows(args, NULL, o->inverse ? -1.0f : 1.0f);
}

static teng_status run_positions(const teng_kernel_args *args)
{
    const tg_rope_positions_attr *a = args->call->attr;
    TG_TRY(tg_positions_check(args->in[1], args->call->in[0].dims[1], a->room));
    return turn_rows(args, args->in[1], 1.0f);
}

TG_KERNELS(tg_rope_kernels) = {{"table", NULL, prepare, run, tg_rope_table_put}, {0}};
TG_KERNELS(tg_rope_positions_kernels) = {{"table", NULL, prepare_positions, run_positions, tg_rope_table_put},
                                         {0}};
