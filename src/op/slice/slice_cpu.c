/* slice and slice_grad on the CPU: rows of bytes copied; the gradient also clears what lies around them. */
#include "op/slice/slice.h"

#include "op/cpu_copy.h"
#include "op/cpu_kernel.h"
#include "tensor/desc.h"

typedef struct rows {
    int64_t outer, inner; /* rows before the axis; bytes of one element of the axis */
    int64_t begin, part, whole;
} rows;

static rows rows_of(const teng_op_call *call, const teng_desc *part, const teng_desc *whole)
{
    const tg_slice_attr *a = call->attr;
    const int axis = tg_desc_axis(part, a->axis);
    rows r = {1, teng_dtype_size(part->dtype), a->begin, part->dims[axis], whole->dims[axis]};
    for (int i = 0; i < axis; i++)
        r.outer *= part->dims[i];
    for (int i = axis + 1; i < part->ndim; i++)
        r.inner *= part->dims[i];
    return r;
}

static teng_status run_slice(const teng_kernel_args *args)
{
    const rows r = rows_of(args->call, &args->call->out[0], &args->call->in[0]);
    tg_copy_rows(args->out[0], r.part * r.inner, (const char *)args->in[0] + r.begin * r.inner,
                 r.whole * r.inner, r.part * r.inner, r.outer);
    return TENG_OK;
}

static teng_status run_back(const teng_kernel_args *args)
{
    const rows r = rows_of(args->call, &args->call->in[0], &args->call->out[0]);
    const tg_slice_grad_attr *a = args->call->attr;
    const int64_t turn = a->turn ? a->turn : r.part, later = a->turn ? a->later : r.whole;
    char *y = args->out[0];
    tg_zero_rows(y, r.whole * r.inner, r.begin * r.inner, r.outer);
    tg_copy_rows(y + r.begin * r.inner, r.whole * r.inner, args->in[0], r.part * r.inner, turn * r.inner,
                 r.outer);
    tg_zero_rows(y + (r.begin + turn) * r.inner, r.whole * r.inner, (later - r.begin - turn) * r.inner,
                 r.outer);
    if (!a->turn) return TENG_OK;
    const int64_t rest = r.part - turn;
    tg_copy_rows(y + later * r.inner, r.whole * r.inner, (const char *)args->in[0] + turn * r.inner,
                 r.part * r.inner, rest * r.inner, r.outer);
    tg_zero_rows(y + (later + rest) * r.inner, r.whole * r.inner, (r.whole - later - rest) * r.inner,
                 r.outer);
    return TENG_OK;
}

TG_KERNELS(tg_slice_kernels) = {{"copy", NULL, NULL, run_slice, NULL}, {0}};
TG_KERNELS(tg_slice_grad_kernels) = {{"clear and copy", NULL, NULL, run_back, NULL}, {0}};
