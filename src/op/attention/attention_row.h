/*
 * Attention of a single query on a cache, as text is written token by token: the work is reading keys and
 * values once. Keys are cut into blocks of a fixed size; a piece is one block for the query heads that share
 * its keys and leaves a maximum, a sum of exponentials and a weighted sum of values, which a second pass
 * joins in the order of blocks (Dao et al. 2023, "Flash-Decoding"). The number of threads changes no bit.
 * Include in x_cpu.c files only; several queries go in tiles.
 */
#ifndef TG_OP_ATTENTION_ROW_H
#define TG_OP_ATTENTION_ROW_H

#include "base/fail.h"
#include "op/attention/attention_tile.h"

#define TG_ATT_ROW_KEYS 128 /* of a block */
#define TG_ATT_ROW_AHEAD 8
#define TG_ATT_ROW_VECS 4

/* Rows stand at positions that follow on and for which the cache has room. */
static inline teng_status tg_att_first_position(const teng_kernel_args *args, int64_t *first)
{
    const int32_t *positions = (const int32_t *)args->in[3];
    const int64_t rows = args->call->in[0].dims[1], room = args->call->in[1].dims[1];
    for (int64_t t = 0; t < rows; t++)
        if (positions[t] < 0 || positions[t] >= room || positions[t] != positions[0] + t)
            return tg_fail(
                TENG_INVALID,
                "row %lld has position %d; positions follow on by one from the first, %d, and the cache has "
                "room for %lld",
                (long long)t, positions[t], positions[0], (long long)room);
    *first = positions[0];
    return TENG_OK;
}

static inline const char *tg_att_accept_row(const teng_op_call *call)
{
    return call->in[0].dims[1] == 1 ? NULL : "several rows";
}

/* What a piece leaves: sum[dp], maximum, total. */
static inline int64_t tg_att_row_part(int64_t width)
{
    return tg_att_width(width) + TG_LANES;
}
static inline int64_t tg_att_row_blocks(int64_t room)
{
    return tg_blocks(room, TG_ATT_ROW_KEYS);
}

static inline teng_status tg_att_prepare_row(const teng_op_call *call, teng_prepared *out)
{
    const tg_attention_sizes z = tg_attention_sizes_of(call);
    out->workspace =
        sizeof(float) * (size_t)(z.batch * z.heads * tg_att_row_blocks(z.room) * tg_att_row_part(z.width));
    return TENG_OK;
}

/* A row of the cache a few keys ahead: rows lie too far apart for the prefetcher. */
TG_INLINE void tg_att_row_ahead(teng_dtype T, const void *x, int64_t at, int64_t step, int64_t width)
{
    const int64_t size = T == TENG_F32 ? 4 : 2;
    for (int64_t b = 0; b < width * size; b += 64)
        __builtin_prefetch((const char *)x + (at + TG_ATT_ROW_AHEAD * step) * size + b, 0, 3);
}

TG_INLINE float tg_att_row_dot(teng_dtype T, const void *q, const void *k, int64_t q_at, int64_t k_at,
                               int64_t width)
{
    tg_vf sum = {0};
    TG_VECTORS(i, len, 0, width)
    {
        sum = tg_v_fma(tg_v_load_part(T, q, q_at + i, len), tg_v_load_part(T, k, k_at + i, len), sum);
    }
    return tg_v_hsum(sum);
}

/* out = Σ over n rows of p[j] · row j, TG_ATT_ROW_VECS registers at a time. */
TG_INLINE void tg_att_row_sum(teng_dtype T, const void *v, int64_t at, int64_t step, int64_t n, int64_t width,
                              const float *p, float *out)
{
    for (int64_t i = 0; i < width; i += TG_ATT_ROW_VECS * TG_LANES) {
        tg_vf sum[TG_ATT_ROW_VECS] = {{0}};
        const bool whole = width - i >= TG_ATT_ROW_VECS * TG_LANES;
        for (int64_t j = 0; j < n; j++) {
            const tg_vf weight = tg_v_set(p[j]);
            const int64_t row = at + j * step + i;
            if (i == 0) tg_att_row_ahead(T, v, row, step, width);
            for (int r = 0; r < TG_ATT_ROW_VECS; r++) {
                const int64_t len = whole ? TG_LANES : tg_lanes_left(width - i - r * TG_LANES);
                if (len > 0) sum[r] = tg_v_fma(weight, tg_v_load_part(T, v, row + r * TG_LANES, len), sum[r]);
            }
        }
        for (int r = 0; r < TG_ATT_ROW_VECS && i + r * TG_LANES < width; r++)
            tg_v_store(TENG_F32, out, i + r * TG_LANES, sum[r]);
    }
}

/* Keys begin … end - 1 for the query head at q_at. */
TG_INLINE void tg_att_row_head(teng_dtype T, const teng_kernel_args *args, const tg_attention_sizes *z,
                               int64_t q_at, int64_t k_at, int64_t begin, int64_t end, float *part)
{
    const int64_t step = z->groups * z->width, n = end - begin, dp = tg_att_width(z->width);
    const float scale = z->scale * TG_ATT_LOG2E;
    _Alignas(64) float p[TG_ATT_ROW_KEYS];
    float max = -INFINITY, total = 0;
    for (int64_t j = 0; j < n; j++) {
        tg_att_row_ahead(T, args->in[1], k_at + (begin + j) * step, step, z->width);
        p[j] = scale * tg_att_row_dot(T, args->in[0], args->in[1], q_at, k_at + (begin + j) * step, z->width);
        max = p[j] > max || isnan(p[j]) ? p[j] : max;
    }
    for (int64_t j = n; j < tg_blocks(n, TG_LANES) * TG_LANES; j++)
        p[j] = -INFINITY;
    tg_vf sums = {0};
    for (int64_t j = 0; j < n; j += TG_LANES) {
        const tg_vf e = tg_att_exp2(tg_v_load(TENG_F32, p, j) - max);
        tg_v_store(TENG_F32, p, j, e);
        sums += e;
    }
    total = tg_v_hsum(sums);
    tg_att_row_sum(T, args->in[2], k_at + begin * step, step, n, z->width, p, part);
    part[dp] = max;
    part[dp + 1] = total;
}

/* Joins the parts of one query head into y. */
TG_INLINE void tg_att_row_join(teng_dtype T, const float *parts, int64_t blocks, int64_t width, void *y,
                               int64_t at)
{
    const int64_t dp = tg_att_width(width), part = tg_att_row_part(width);
    float max = -INFINITY, total = 0;
    for (int64_t b = 0; b < blocks; b++)
        max = parts[b * part + dp] > max || isnan(parts[b * part + dp]) ? parts[b * part + dp] : max;
    for (int64_t b = 0; b < blocks; b++)
        total += exp2f(parts[b * part + dp] - max) * parts[b * part + dp + 1];
    TG_VECTORS(i, len, 0, width)
    {
        tg_vf sum = {0};
        for (int64_t b = 0; b < blocks; b++)
            sum = tg_v_fma(tg_v_set(exp2f(parts[b * part + dp] - max)),
                           tg_v_load(TENG_F32, parts, b * part + i), sum);
        tg_v_store_part(T, y, at + i, sum / total, len);
    }
}

static inline teng_status tg_att_run_row(const teng_kernel_args *args)
{
    int64_t first = 0;
    TG_TRY(tg_att_first_position(args, &first));
    const tg_attention_sizes z = tg_cached_attention_sizes(args->call, first);
    const int64_t seen = tg_attention_first(&z, 0) / TG_ATT_ROW_KEYS,
                  blocks = tg_att_row_blocks(z.keys) - seen;
    const int64_t part = tg_att_row_part(z.width), shared = z.heads / z.groups;
    float *parts = args->workspace;
    const bool many = z.batch * z.heads * z.width * (z.keys - tg_attention_first(&z, 0)) >= TG_PARALLEL_MIN;
    TG_PARALLEL_FOR(many)
    for (int64_t u = 0; u < z.batch * z.groups * blocks; u++) {
        const int64_t g = u / blocks, block = u % blocks, k0 = (seen + block) * TG_ATT_ROW_KEYS;
        const int64_t begin = k0 > tg_attention_first(&z, 0) ? k0 : tg_attention_first(&z, 0);
        const int64_t end = k0 + TG_ATT_ROW_KEYS < z.keys ? k0 + TG_ATT_ROW_KEYS : z.keys;
        const int64_t k_at = (g / z.groups * z.room * z.groups + g % z.groups) * z.width;
        for (int64_t h = g * shared; h < (g + 1) * shared; h++)
            TG_FLOAT_SWITCH(args->call->in[0].dtype, T,
                            tg_att_row_head(T, args, &z, h * z.width, k_at, begin, end,
                                            parts + (h * blocks + block) * part));
    }
    TG_PARALLEL_FOR(many)
    for (int64_t h = 0; h < z.batch * z.heads; h++)
        TG_FLOAT_SWITCH(
            args->call->in[0].dtype, T,
            tg_att_row_join(T, parts + h * blocks * part, blocks, z.width, args->out[0], h * z.width));
    return TENG_OK;
}

#endif
