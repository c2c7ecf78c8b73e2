/* split on the CPU: rows of bytes copied into each piece. */
#include "op/split/split.h"

#include "op/cpu_copy.h"
#include "op/cpu_kernel.h"
#include "tensor/desc.h"

static teng_status run(const teng_kernel_args *args)
{
    const tg_split_attr *a = args->call->attr;
    const teng_desc *x = &args->call->in[0];
    const int axis = tg_desc_axis(x, a->axis);
    int64_t outer = 1, inner = teng_dtype_size(x->dtype);
    for (int i = 0; i < axis; i++)
        outer *= x->dims[i];
    for (int i = axis + 1; i < x->ndim; i++)
        inner *= x->dims[i];
    const char *src = args->in[0];
    for (int o = 0; o < args->call->n_out; o++) {
        const int64_t bytes = a->sizes.v[o] * inner;
        tg_copy_rows(args->out[o], bytes, src, x->dims[axis] * inner, bytes, outer);
        src += bytes;
    }
    return TENG_OK;
}

TG_KERNELS(tg_split_kernels) = {{"copy", NULL, NULL, run, NULL}, {0}};
