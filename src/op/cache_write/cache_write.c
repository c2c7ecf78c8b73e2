/* cache_write: rows of keys or values put into their places of a cache, which stays where it is from call to
 * call. What reads a cache is cached_attention. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"
#include "teng/ops.h"

static teng_status infer(teng_op_call *call)
{
    const teng_desc *cache = &call->in[0], *rows = &call->in[1];
    char a[TG_DESC_TEXT], b[TG_DESC_TEXT];
    bool same = cache->ndim >= 2 && rows->ndim == cache->ndim && rows->dtype == cache->dtype;
    for (int i = 0; same && i < cache->ndim; i++)
        same = i == 1 || rows->dims[i] == cache->dims[i];
    if (!same)
        return tg_fail(TENG_INVALID,
                       "cache is %s and rows are %s; they must be [B, S, ...] and [B, T, ...] of one dtype",
                       tg_desc_text(a, cache), tg_desc_text(b, rows));
    TG_TRY(tg_want_positions(call, 2, rows->dims[1]));
    call->out[0] = *cache;
    return TENG_OK;
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (int i = 0; i < call->in[0].ndim; i++)
        if (i != 1)
            teng_place_add(rules, (teng_place[]){(teng_place)i, (teng_place)i, TENG_REPLICATED},
                           &(teng_place){(teng_place)i});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    const double bytes = (double)tg_desc_bytes(&call->in[1]);
    c->bytes_read = c->bytes_written = bytes;
}

TG_CPU_TABLES(tg_cache_write_kernels);

const teng_op_spec tg_op_cache_write = {
    .name = "cache_write",
    .doc = "cache[b, positions[t]] <- rows[b, t]: cache [B, S, ...], rows [B, T, ...], positions i32[T] in 0 "
           "... S - 1. The "
           "output is the cache.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .updates = {1},
    .infer = infer,
    .no_grad = "a cache of keys and values serves writing text, not training",
    .place = place,
    .cost = cost,
    .precision = TENG_PRECISION_MOVE,
    .kernels = tg_cache_write_kernels_tables,
};

teng_tensor *teng_cache_write_at(teng_src at, teng_tensor *cache, teng_tensor *rows, teng_tensor *positions)
{
    return teng_apply(at, &tg_op_cache_write, NULL, 3, (teng_tensor *[]){cache, rows, positions}, NULL);
}
