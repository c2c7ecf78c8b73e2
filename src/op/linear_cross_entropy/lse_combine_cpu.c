/* Kernels of lse_combine and label_loss: a few numbers a row, in double, on one thread. */
#include "op/cpu_kernel.h"
#include "op/ids.h"
#include "tensor/desc.h"

#include <math.h>

static teng_status run_combine(const teng_kernel_args *args)
{
    const teng_desc *parts = &args->call->in[0];
    const int64_t n = parts->dims[parts->ndim - 1], rows = tg_desc_numel(&args->call->out[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)args->in[0] + r * n;
        float max = -INFINITY; /* a double one, converted in the loop, makes gcc 12 for arm64 crash */
        double sum = 0;
        for (int64_t p = 0; p < n; p++)
            max = fmaxf(max, x[p]);
        for (int64_t p = 0; p < n; p++)
            sum += exp((double)x[p] - (double)max);
        ((float *)args->out[0])[r] = sum > 0 ? (float)((double)max + log(sum)) : max;
    }
    return TENG_OK;
}

static teng_status run_loss(const teng_kernel_args *args)
{
    const float *lse = args->in[0], *hit = args->in[1];
    const int32_t *labels = args->in[2];
    const int64_t ignore = *(const int64_t *)args->call->attr;
    int64_t valid = 0;
    double loss = 0;
    for (int64_t r = 0; r < tg_desc_numel(&args->call->in[0]); r++) {
        if (labels[r] == ignore) continue;
        loss += (double)lse[r] - (double)hit[r];
        valid++;
    }
    const double divisor = tg_labels_divisor(args, 3, valid);
    *(float *)args->out[0] = divisor > 0 ? (float)(loss / divisor) : 0.0f;
    return TENG_OK;
}

TG_KERNELS(tg_lse_combine_kernels) = {{"rows", NULL, NULL, run_combine, NULL}, {0}};
TG_KERNELS(tg_label_loss_kernels) = {{"rows", NULL, NULL, run_loss, NULL}, {0}};
