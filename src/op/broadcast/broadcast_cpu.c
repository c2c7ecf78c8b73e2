/*
 * broadcast on the CPU. Neighbouring dimensions of one kind (repeated or not) merge; the innermost is then
 * either a row to copy or an element to repeat. By element size, any dtype.
 */
#include "op/cpu_copy.h"
#include "op/cpu_kernel.h"
#include "tensor/desc.h"

typedef struct spread {
    int n;
    int64_t size[TENG_MAX_DIMS], step[TENG_MAX_DIMS]; /* of y: size; elements apart in x, 0 where repeated */
} spread;

static spread simplify(const teng_desc *x, const teng_desc *y)
{
    spread s = {0};
    int64_t step = 1;
    for (int i = 1; i <= y->ndim; i++) { /* from the innermost outwards */
        const int64_t size = y->dims[y->ndim - i], x_size = i <= x->ndim ? x->dims[x->ndim - i] : 1;
        if (size == 1) continue;
        const bool repeated = x_size == 1;
        if (s.n && (s.step[s.n - 1] == 0) == repeated) {
            s.size[s.n - 1] *= size;
        } else {
            s.size[s.n] = size;
            s.step[s.n++] = repeated ? 0 : step;
        }
        step *= x_size;
    }
    if (!s.n) {
        s.size[0] = s.step[0] = 1;
        s.n = 1;
    }
    return s;
}

static void repeat(char *dst, const char *src, int64_t n, int64_t size)
{
    if (size == 4) {
        uint32_t v, *y = (uint32_t *)(void *)dst;
        memcpy(&v, src, sizeof v);
        for (int64_t i = 0; i < n; i++)
            y[i] = v;
    } else if (size == 2) {
        uint16_t v, *y = (uint16_t *)(void *)dst;
        memcpy(&v, src, sizeof v);
        for (int64_t i = 0; i < n; i++)
            y[i] = v;
    } else if (size == 8) {
        uint64_t v, *y = (uint64_t *)(void *)dst;
        memcpy(&v, src, sizeof v);
        for (int64_t i = 0; i < n; i++)
            y[i] = v;
    } else {
        memset(dst, *src, (size_t)n);
    }
}

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *y = &args->call->out[0];
    const int64_t numel = tg_desc_numel(y), size = teng_dtype_size(y->dtype);
    if (numel == 0) return TENG_OK;
    const spread s = simplify(&args->call->in[0], y);
    const int64_t inner = s.size[0], chunk = TG_COPY_CHUNK / size, parts = (inner + chunk - 1) / chunk;
#pragma omp parallel for schedule(static) if (numel * size >= TG_COPY_PARALLEL)
    for (int64_t u = 0; u < numel / inner * parts; u++) {
        const int64_t row = u / parts, begin = u % parts * chunk;
        const int64_t n = inner - begin < chunk ? inner - begin : chunk;
        int64_t from = 0, rest = row;
        for (int d = 1; d < s.n; rest /= s.size[d++])
            from += rest % s.size[d] * s.step[d];
        char *dst = (char *)args->out[0] + (row * inner + begin) * size;
        const char *src = (const char *)args->in[0] + from * size;
        if (s.step[0])
            memcpy(dst, src + begin * size, (size_t)(n * size));
        else
            repeat(dst, src, n, size);
    }
    return TENG_OK;
}

TG_KERNELS(tg_broadcast_kernels) = {{"rows", NULL, NULL, run, NULL}, {0}};
