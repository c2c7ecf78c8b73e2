/*
 * Boxes of a tensor as memory: what two of them share is copied from one to the other. Checkpoints are
 * written in the boxes of one layout and read in those of another.
 */
#ifndef TG_MESH_BOX_COPY_H
#define TG_MESH_BOX_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "mesh/mesh.h"

tg_box tg_box_whole(const teng_desc *desc);
bool tg_box_equal(const tg_box *a, const tg_box *b);
/* Elements in it. */
int64_t tg_box_numel(const tg_box *box);
/* Whether all of it lies in the tensor, in runs that rise and do not touch each other. */
bool tg_box_fits(const tg_box *box, const teng_desc *whole);
/* The box of `count` elements from element `offset` on, counted row-major; false when they are none. */
bool tg_box_of_range(const teng_desc *whole, int64_t offset, int64_t count, tg_box *out);

/* src holds `from` row-major, runs one after the other; dst holds `to`. Copies what is in both, elements of
 * `size` bytes, and returns how many. The boxes are of one tensor. */
int64_t tg_box_copy(size_t size, const tg_box *from, const void *src, const tg_box *to, void *dst);

#endif
