/*
 * embedding and its gradient on the CPU. The gradient sorts the positions by id (counting sort, so positions
 * of one id keep their order); then each piece of the table belongs to one thread, which sums it in that
 * order: no atomics, no zeroing pass, the same bits on any number of threads.
 */
#include "base/fail.h"
#include "op/cpu_copy.h"
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"
#include "op/embedding/embedding.h"
#include "op/ids.h"

static teng_status run(const teng_kernel_args *args)
{
    const teng_desc *table = &args->call->in[0];
    const int64_t n = tg_desc_numel(&args->call->in[1]),
                  bytes = table->dims[1] * teng_dtype_size(table->dtype);
    const int32_t *ids = args->in[1];
    const tg_embedding_attr *piece = args->call->attr;
    TG_TRY(tg_ids_check(ids, n, piece->total ? piece->total : table->dims[0]));
    TG_PARALLEL_FOR(n * bytes >= TG_COPY_PARALLEL)
    for (int64_t p = 0; p < n; p++) {
        const int64_t row = ids[p] - piece->begin;
        char *to = (char *)args->out[0] + p * bytes;
        if (row >= 0 && row < table->dims[0])
            memcpy(to, (const char *)args->in[0] + row * bytes, (size_t)bytes);
        else
            memset(to, 0, (size_t)bytes);
    }
    return TENG_OK;
}

#define COLUMNS 512
#define ROWS 16 /* of the table in one piece of work */

/* Columns begin … end - 1 of table row v: the sum over positions order[0 … count - 1], added to onto unless
 * that is NULL. */
TG_INLINE void sum_row(teng_dtype T, const void *dy, const int64_t *order, int64_t count, int64_t cols,
                       int64_t begin, int64_t end, const void *onto, void *out, int64_t at)
{
    float acc[COLUMNS];
    memset(acc, 0, sizeof *acc * (size_t)(end - begin));
    for (int64_t k = 0; k < count; k++) {
        const int64_t from = order[k] * cols + begin;
        TG_VECTORS(i, len, 0, end - begin)
        {
            const tg_vf a = tg_v_load_part(TENG_F32, acc, i, len);
            tg_v_store_part(TENG_F32, acc, i, a + tg_v_load_part(T, dy, from + i, len), len);
        }
    }
    TG_VECTORS(i, len, 0, end - begin)
    {
        tg_vf sum = tg_v_load_part(TENG_F32, acc, i, len);
        if (onto) sum = tg_round(T, sum) + tg_v_load_part(T, onto, at + begin + i, len);
        tg_v_store_part(T, out, at + begin + i, sum, len);
    }
}

static teng_status prepare_grad(const teng_op_call *call, teng_prepared *out)
{
    const int64_t vocab = call->out[0].dims[0];
    out->workspace = sizeof(int64_t) * (size_t)(vocab + 2 + tg_desc_numel(&call->in[1]));
    return TENG_OK;
}

/* The table's row of an id; -1: in another piece. */
static int64_t row_of(const tg_embedding_attr *piece, int64_t id, int64_t vocab)
{
    return id >= piece->begin && id - piece->begin < vocab ? id - piece->begin : -1;
}

static teng_status run_grad(const teng_kernel_args *args)
{
    const teng_desc *out = &args->call->out[0];
    const int64_t n = tg_desc_numel(&args->call->in[1]), vocab = out->dims[0], cols = out->dims[1];
    const int32_t *ids = args->in[1];
    const void *onto = args->call->n_in == 3 ? args->in[2] : NULL;
    int64_t *start = args->workspace,
            *order = start + vocab + 2; /* of id v: order[start[v]] … order[start[v+1] - 1] */
    const tg_embedding_attr *piece = &((const tg_embedding_grad_attr *)args->call->attr)->piece;
    TG_TRY(tg_ids_check(ids, n, piece->total ? piece->total : vocab));
    memset(start, 0, sizeof *start * (size_t)(vocab + 2));
    for (int64_t p = 0; p < n; p++)
        if (row_of(piece, ids[p], vocab) >= 0) start[row_of(piece, ids[p], vocab) + 2]++;
    for (int64_t v = 2; v < vocab + 2; v++)
        start[v] += start[v - 1];
    for (int64_t p = 0; p < n; p++)
        if (row_of(piece, ids[p], vocab) >= 0) order[start[row_of(piece, ids[p], vocab) + 1]++] = p;

    const int64_t chunks = tg_blocks(cols, COLUMNS), size = teng_dtype_size(out->dtype);
    /* Dynamic: in most vocabularies the frequent tokens stand together. */
    TG_PRAGMA(omp parallel for schedule(dynamic, 4) if (vocab *cols >= TG_PARALLEL_MIN))
    for (int64_t u = 0; u < tg_blocks(vocab, ROWS) * chunks; u++) {
        const int64_t begin = u % chunks * COLUMNS, end = tg_block_end(u % chunks, COLUMNS, cols);
        for (int64_t v = u / chunks * ROWS; v < tg_block_end(u / chunks, ROWS, vocab); v++) {
            const int64_t count = start[v + 1] - start[v], *mine = order + start[v];
            const int64_t at = (v * cols + begin) * size;
            const size_t bytes = (size_t)((end - begin) * size);
            char *to = (char *)args->out[0] + at;
            if (count == 0 && !onto)
                memset(to, 0, bytes);
            else if (count == 0 && onto != args->out[0])
                memcpy(to, (const char *)onto + at, bytes);
            else if (count == 1 && !onto)
                memcpy(to, (const char *)args->in[0] + (mine[0] * cols + begin) * size, bytes);
            else if (count > 0)
                TG_FLOAT_SWITCH(
                    out->dtype, T,
                    sum_row(T, args->in[0], mine, count, cols, begin, end, onto, args->out[0], v * cols));
        }
    }
    return TENG_OK;
}

TG_KERNELS(tg_embedding_kernels) = {{"copy rows", NULL, NULL, run, NULL}, {0}};
TG_KERNELS(tg_embedding_grad_kernels) = {{"sort and sum", NULL, prepare_grad, run_grad, NULL}, {0}};
