/* Kernel of fill: the element is made once, then copied by its size. */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/fill/fill.h"
#include "tensor/desc.h"

#define FILL(type)                                                                                           \
    do {                                                                                                     \
        type v;                                                                                              \
        memcpy(&v, element, sizeof v);                                                                       \
        for (int64_t i = begin; i < end; i++)                                                                \
            ((type *)a->out[0])[i] = v;                                                                      \
    } while (0)

static void fill_block(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    const teng_dtype t = a->call->out[0].dtype;
    uint64_t element[1] = {0};
    tg_store_double(t, element, 0, ((const tg_fill_attr *)a->call->attr)->value);
    switch (teng_dtype_size(t)) {
    case 1:
        FILL(uint8_t);
        break;
    case 2:
        FILL(uint16_t);
        break;
    case 4:
        FILL(uint32_t);
        break;
    default:
        FILL(uint64_t);
    }
}

static teng_status run_fill(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, fill_block, args);
    return TENG_OK;
}

TG_KERNELS(tg_fill_kernels) = {{"by size", NULL, NULL, run_fill, NULL}, {0}};
