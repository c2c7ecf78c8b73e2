/* cache_write on the CPU: rows of bytes copied; of equal positions the last row stays. */
#include "base/fail.h"
#include "op/cpu_kernel.h"
#include "op/ids.h"
#include "tensor/desc.h"

#include <string.h>

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *cache = &args->call->in[0], *rows = &args->call->in[1];
    const int64_t batch = rows->dims[0], t = rows->dims[1], room = cache->dims[1];
    const int64_t all = (int64_t)tg_desc_bytes(rows), row = all ? all / (batch * t) : 0;
    const int32_t *positions = args->in[2];
    TG_TRY(tg_positions_check(positions, t, room));
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < t; i++)
            memcpy((char *)args->out[0] + (b * room + positions[i]) * row,
                   (const char *)args->in[1] + (b * t + i) * row, (size_t)row);
    return TENG_OK;
}

TG_KERNELS(tg_cache_write_kernels) = {{"copy rows", NULL, NULL, run, NULL}, {0}};
