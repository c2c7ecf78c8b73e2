/* Kernel of moe_sort: a counting sort, which keeps the order of equals. One thread: the choices of a batch
 * are few. */
#include "base/fail.h"
#include "op/cpu_kernel.h"
#include "tensor/desc.h"

#include <string.h>

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    out->workspace = sizeof(int32_t) * (size_t)call->out[2].dims[0];
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->in[0]), top_k = args->call->in[0].dims[1];
    const int64_t experts = args->call->out[2].dims[0];
    const int32_t *chosen = args->in[0];
    int32_t *source = args->out[0], *place = args->out[1], *counts = args->out[2], *next = args->workspace;
    memset(counts, 0, sizeof *counts * (size_t)experts);
    for (int64_t i = 0; i < n; i++) {
        if (chosen[i] < 0 || chosen[i] >= experts)
            return tg_fail(TENG_INVALID, "the expert at position %lld is %d, there are %lld", (long long)i,
                           chosen[i], (long long)experts);
        counts[chosen[i]]++;
    }
    for (int64_t e = 0, at = 0; e < experts; at += counts[e++])
        next[e] = (int32_t)at;
    for (int64_t i = 0; i < n; i++) {
        place[i] = next[chosen[i]]++;
        source[place[i]] = (int32_t)(i / top_k);
    }
    return TENG_OK;
}

TG_KERNELS(tg_moe_sort_kernels) = {{"counting sort", NULL, prepare, run, NULL}, {0}};
