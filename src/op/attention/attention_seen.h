/*
 * Which part of a tile is seen: causal attention and windows as limits of columns and of keys, so that tiles,
 * groups of rows and registers of which nothing is seen are skipped and only those at the edge are masked.
 * Include in x_cpu.c files only.
 */
#ifndef TG_OP_ATTENTION_SEEN_H
#define TG_OP_ATTENTION_SEEN_H

#include "op/attention/attention.h"
#include "op/cpu_rows.h"

#define TG_ATT_PANEL 64 /* queries */
#define TG_ATT_GROUP 8  /* rows that a product takes at once; tiles have a multiple of it */

/* A panel of queries from q0 and a block of keys from k0; keys beyond `keys` do not exist. */
typedef struct tg_att_tile {
    const tg_attention_sizes *z;
    int64_t q0, k0, keys;
} tg_att_tile;

TG_INLINE int64_t tg_att_clip(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}
/* Columns lo … hi - 1 of the panel see key j of the block. Queries beyond the last one count as others. */
TG_INLINE int64_t tg_att_col_lo(const tg_att_tile *t, int64_t j)
{
    const tg_attention_sizes *z = t->z;
    const int64_t key = t->k0 + j;
    if (j >= t->keys) return TG_ATT_PANEL;
    if (z->causal) return tg_att_clip(key - z->shift - t->q0, TG_ATT_PANEL);
    return z->window > 0 && key < z->keys - z->window ? TG_ATT_PANEL : 0;
}
TG_INLINE int64_t tg_att_col_hi(const tg_att_tile *t, int64_t j)
{
    const tg_attention_sizes *z = t->z;
    if (!z->causal || z->window <= 0) return TG_ATT_PANEL;
    return tg_att_clip(t->k0 + j + z->window - z->shift - t->q0, TG_ATT_PANEL);
}
/* Keys lo … hi - 1 of the block are seen by query i of the panel. */
TG_INLINE int64_t tg_att_key_lo(const tg_att_tile *t, int64_t i)
{
    return tg_att_clip(tg_attention_first(t->z, t->q0 + i) - t->k0, t->keys);
}
TG_INLINE int64_t tg_att_key_hi(const tg_att_tile *t, int64_t i)
{
    return tg_att_clip(tg_attention_last(t->z, t->q0 + i) + 1 - t->k0, t->keys);
}
/* Keys lo … hi - 1, whole groups, hold all that the register at a column sees, and its neighbours in a group
 * of queries; each of those sees all keys from … to - 1. All are even, lo <= from <= to <= hi. */
typedef struct tg_att_keys {
    int64_t lo, from, to, hi;
} tg_att_keys;
TG_INLINE tg_att_keys tg_att_register_keys(const tg_att_tile *t, int64_t c)
{
    const int64_t columns = TG_LANES > TG_ATT_GROUP ? TG_LANES : TG_ATT_GROUP, first = c / columns * columns,
                  last = first + columns - 1;
    const int64_t lo = tg_att_key_lo(t, first) / TG_ATT_GROUP * TG_ATT_GROUP,
                  hi = tg_blocks(tg_att_key_hi(t, last), TG_ATT_GROUP) * TG_ATT_GROUP;
    const int64_t from = tg_blocks(tg_att_key_lo(t, last), 2) * 2, to = tg_att_key_hi(t, first) / 2 * 2;
    if (from >= to) return (tg_att_keys){lo, hi, hi, hi};
    return (tg_att_keys){lo, from, to, hi};
}
/* The columns that see any of the keys j … j + TG_ATT_GROUP - 1 lie in lo … hi - 1: both limits are monotonic
 * in j. */
TG_INLINE void tg_att_group_cols(const tg_att_tile *t, int64_t j, int64_t *lo, int64_t *hi)
{
    const int64_t last = tg_att_clip(j + TG_ATT_GROUP, t->keys) - 1, a = tg_att_col_lo(t, j),
                  b = tg_att_col_lo(t, last);
    *lo = a < b ? a : b;
    *hi = tg_att_col_hi(t, last);
}
/* Lanes of the register at column c that see a key with these limits. */
TG_INLINE tg_vi tg_att_mask(int64_t c, int64_t lo, int64_t hi)
{
    static const int32_t count[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    tg_vi lane;
    memcpy(&lane, count, sizeof lane);
    return (lane >= (int32_t)(lo - c)) & (lane < (int32_t)(hi - c));
}
/* The same for key j of the block. */
TG_INLINE tg_vi tg_att_seen(const tg_att_tile *t, int64_t j, int64_t c)
{
    return tg_att_mask(c, tg_att_col_lo(t, j), tg_att_col_hi(t, j));
}

#endif
