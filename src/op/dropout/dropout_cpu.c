/* Kernel of dropout: draws 64 elements at a time, the generator's rounds in vectors. Words are little-endian
 * pairs. */
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "op/dropout/dropout.h"
#include "tensor/desc.h"

#define DRAW 16             /* counters at a time: 64 elements */
#define PAIR (TG_LANES / 2) /* 64-bit lanes of a register */

typedef uint64_t wide __attribute__((vector_size(8 * PAIR)));

TG_INLINE wide mul32(wide a, uint32_t b) /* the low halves of the lanes, to 64 bits */
{
#if defined(TG_V512)
    return (wide)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64((long long)b));
#elif defined(TG_V256)
    return (wide)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x((long long)b));
#elif defined(TG_V128)
    return (wide)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x((long long)b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* Words of counters first … first + DRAW - 1, two in each element, in element order. As tg_philox, PAIR
 * counters abreast, a 32-bit number in each 64-bit lane. */
TG_INLINE void draw(uint64_t key, uint64_t first, uint64_t hi, uint64_t *words)
{
    const uint64_t low = 0xffffffffu;
    for (int at = 0; at < DRAW; at += PAIR) {
        uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
        wide index = first + (uint64_t)at - (wide){0}, c2 = (hi & low) - (wide){0},
             c3 = (hi >> 32) - (wide){0};
        for (int l = 0; l < PAIR; l++)
            index[l] += (uint64_t)l;
        wide c0 = index & low, c1 = index >> 32;
        for (int round = 0; round < 10; round++) {
            const wide p0 = mul32(c0, 0xD2511F53u), p1 = mul32(c2, 0xCD9E8D57u);
            c0 = (p1 >> 32) ^ c1 ^ (uint64_t)k0;
            c2 = (p0 >> 32) ^ c3 ^ (uint64_t)k1;
            c1 = p1 & low;
            c3 = p0 & low;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        const wide front = c0 | c1 << 32, back = c2 | c3 << 32;
        for (int l = 0; l < PAIR; l++) {
            words[2 * (at + l)] = front[l];
            words[2 * (at + l) + 1] = back[l];
        }
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
        uint64_t words[2 * DRAW];
        draw(rng[0], (uint64_t)at / 4, hi, words);
        TG_FLOAT_SWITCH(
            a->call->in[0].dtype, T, TG_VECTORS(i, len, at, end < at + 4 * DRAW ? end : at + 4 * DRAW) {
                tg_vu word;
                memcpy(&word, (const uint32_t *)words + (i - at), sizeof word);
                const tg_vf kept = tg_v_load_part(T, a->in[0], i, len) * scale;
                tg_v_store_part(T, a->out[0], i,
                                tg_v_select((tg_vi)(word >= threshold), kept, tg_v_set(0.0f)), len);
            });
    }
}

/* n elements from x[at] on, which are those from `index` on of the whole. */
static void dropout_run(const teng_kernel_args *a, int64_t at, uint64_t index, int64_t n)
{
    const tg_dropout_attr *attr = a->call->attr;
    const uint64_t *rng = a->in[1], hi = tg_dropout_counter(rng[1], attr->stream);
    const tg_vu threshold = tg_dropout_threshold(attr->p) - (tg_vu){0};
    const tg_vf scale = tg_v_set((float)(1 / (1 - attr->p)));
    while (n > 0) {
        uint32_t words[4 * DRAW + TG_LANES] = {0}; /* a register may read beyond the drawn ones */
        const int64_t skip = (int64_t)(index % 4), take = n < 4 * DRAW - skip ? n : 4 * DRAW - skip;
        uint64_t drawn[2 * DRAW];
        draw(rng[0], index / 4, hi, drawn);
        memcpy(words, drawn, sizeof drawn);
        TG_FLOAT_SWITCH(
            a->call->in[0].dtype, T, TG_VECTORS(i, len, 0, take) {
                tg_vu word;
                memcpy(&word, words + skip + i, sizeof word);
                const tg_vf kept = tg_v_load_part(T, a->in[0], at + i, len) * scale;
                tg_v_store_part(T, a->out[0], at + i,
                                tg_v_select((tg_vi)(word >= threshold), kept, tg_v_set(0.0f)), len);
            });
        at += take;
        index += (uint64_t)take;
        n -= take;
    }
}

static void dropout_shard(const void *ctx, int64_t begin, int64_t end)
{
    const teng_kernel_args *a = ctx;
    for (int64_t at = begin, index, run; at < end; at += run) {
        tg_dropout_whole(a->call->attr, &a->call->in[0], at, &index, &run);
        if (run > end - at) run = end - at;
        dropout_run(a, at, (uint64_t)index, run);
    }
}

static teng_status run_dropout(const teng_kernel_args *args)
{
    const int64_t n = tg_desc_numel(&args->call->out[0]);
    const tg_dropout_attr *attr = args->call->attr;
    tg_run_blocks(n, TG_BLOCK, n, attr->whole.n ? dropout_shard : dropout_block, args);
    return TENG_OK;
}

TG_KERNELS(tg_dropout_kernels) = {{"vector", NULL, NULL, run_dropout, NULL}, {0}};
