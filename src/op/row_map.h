/*
 * Which rows of a whole sequence a shard has: one run of them, or two, since context parallel gives rank i of
 * n the pieces i and 2n - 1 - i of 2n, so that all ranks have as much causal attention to do. Operators that
 * know positions keep one in their attributes.
 */
#ifndef TG_OP_ROW_MAP_H
#define TG_OP_ROW_MAP_H

#include "mesh/mesh.h"

typedef struct tg_row_map {
    int64_t begin; /* row t of the shard is row begin + t of the whole, */
    int64_t turn;  /* but from row `turn` on (0: nowhere) */
    int64_t later; /* it is row later + t - turn */
} tg_row_map;

static inline int64_t tg_row_at(const tg_row_map *m, int64_t t)
{
    return m->turn && t >= m->turn ? m->later + t - m->turn : m->begin + t;
}

/* Rows from `first` on. */
static inline tg_row_map tg_row_map_from(tg_row_map m, int64_t first)
{
    if (!m.turn || first >= m.turn) return (tg_row_map){tg_row_at(&m, first), 0, 0};
    return (tg_row_map){m.begin + first, m.turn - first, m.later};
}

/* Piece `index` of n rows. */
static inline tg_row_map tg_row_map_cut(tg_row_map m, int64_t n, int64_t parts, int64_t index)
{
    int64_t begin, size;
    tg_mesh_cut(n, parts, index, &begin, &size);
    m = tg_row_map_from(m, begin);
    return m.turn >= size ? (tg_row_map){m.begin, 0, 0} : m;
}

/* Pieces index and 2·parts - 1 - index of 2·parts equal ones of n rows that are one run. */
static inline tg_row_map tg_row_map_pair(tg_row_map m, int64_t n, int64_t parts, int64_t index)
{
    const int64_t piece = n / (2 * parts), later = m.begin + (2 * parts - 1 - index) * piece;
    const tg_row_map pair = {m.begin + index * piece, piece, later};
    return pair.begin + piece == later ? (tg_row_map){pair.begin, 0, 0} : pair;
}

#endif
