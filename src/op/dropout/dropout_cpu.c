/* Kernel of dropout: draws 64 elements at a time, so that the generator's rounds run in vectors. */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/dropout/dropout.h"
#include "tensor/desc.h"

#define DRAW 16 /* counters at a time: 64 elements */

/* Words of counters first … first + DRAW - 1 in element order. As tg_philox, counters abreast. */
TG_INLINE void draw(uint64_t key, uint64_t first, uint64_t hi, uint32_t *words)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0[DRAW], c1[DRAW], c2[DRAW], c3[DRAW];
    for (int l = 0; l < DRAW; l++) {
        c0[l] = (uint32_t)(first + (uint64_t)l);
        c1[l] = (uint32_t)((first + (uint64_t)l) >> 32);
        c2[l] = (uint32_t)hi;
        c3[l] = (uint32_t)(hi >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < DRAW; l++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[l], p1 = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)p1;
            c3[l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < DRAW; l++) {
        words[4 * l] = c0[l];
        words[4 * l + 1] = c1[l];
        words[4 * l + 2] = c2[l];
        words[4 * l + 3] = c3[l];
    }
}

static void dropout_block(const void *ctx, int64_t begin, int64_t end) /* begin: a multiple of 64 */
{
    const teng_kernel_args *a = ctx;
    const tg_dropout_attr *attr = a->call->attr;
    const uint64_t *rng = a->in[1], hi = tg_dropout_counter(rng[1], attr->stream);
    const tg_vu threshold = tg_dropout_threshold(attr->p) - (tg_vu){0};
    const tg_vf scale = tg_v_set((float)(1 / (1 - attr->p)));
    for (int64_t at = begin; at < end; at += 4 * DRAW) {
        uint32_t words[4 * DRAW];
        draw(rng[0], (uint64_t)at / 4, hi, words);
        TG_FLOAT_SWITCH(
            a->call->in[0].dtype, T, TG_VECTORS(i, len, at, end < at + 4 * DRAW ? end : at + 4 * DRAW) {
                tg_vu word;
                memcpy(&word, words + (i - at), sizeof word);
                const tg_vf kept = tg_v_load_part(T, a->in[0], i, len) * scale;
                tg_v_store_part(T, a->out[0], i,
                                tg_v_select((tg_vi)(word >= threshold), kept, tg_v_set(0.0f)), len);
            });
    }
}

static teng_status run_dropout(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    tg_run_blocks(n, TG_BLOCK, n, dropout_block, args);
    return TENG_OK;
}

TG_KERNELS(tg_dropout_kernels) = {{"vector", NULL, NULL, run_dropout, NULL}, {0}};
