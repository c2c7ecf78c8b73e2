/*
 * Tensors that several files hold in pieces, as the ranks of a run have written them, put together by name. A
 * file says in its metadata which boxes of which wholes it holds; a tensor that it says nothing of is whole.
 */
#ifndef TG_CKPT_PIECES_H
#define TG_CKPT_PIECES_H

#include "ckpt/safetensors.h"

/* Metadata of a safetensors file with these items: {"format": "pt"}, and their parts when there are any. New
 * reference. */
json_t *tg_pieces_metadata(const tg_ckpt_item *items, size_t n);

typedef struct tg_pieces tg_pieces;
/* Checks that the pieces of each tensor agree and are as many elements as the whole has. files[n] must
 * outlive the result. */
teng_status tg_pieces_create(tg_st_file *const *files, size_t n, tg_pieces **out);
void tg_pieces_destroy(tg_pieces **pieces);
size_t tg_pieces_count(const tg_pieces *pieces);
/* One file that holds wholes alone: in its order; else by falling element size, then by name. */
const tg_st_tensor *tg_pieces_at(const tg_pieces *pieces, size_t i);
const tg_st_tensor *tg_pieces_find(const tg_pieces *pieces, const char *name); /* NULL when absent */

#endif
