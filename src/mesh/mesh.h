/*
 * Ranks and named axes: a mesh of pipeline × replica × data × expert × context × tensor ranks, and which part
 * of a tensor a rank holds when it is placed on the axes. Pure arithmetic: knows no graph, no communication.
 */
#ifndef TG_MESH_MESH_H
#define TG_MESH_MESH_H

#include "teng/tensor.h"

#include <stdbool.h>
#include <stddef.h>

/* From the slowest to the fastest: ranks that differ in tensor alone are neighbours. */
typedef enum tg_axis {
    TG_AXIS_PIPELINE,
    TG_AXIS_REPLICA, /* groups of data ranks, between which ZeRO does not split (shard_group) */
    TG_AXIS_DATA,
    TG_AXIS_EXPERT,
    TG_AXIS_CONTEXT,
    TG_AXIS_TENSOR,
    TG_AXES
} tg_axis;
const char *tg_axis_name(tg_axis axis); /* "pipeline", "data", … */
typedef uint32_t tg_axis_set;           /* bits 1 << axis */
/* The axes of parallel.data: ranks with the same parameters in their graphs and rows of their own. */
#define TG_DATA_AXES (1u << TG_AXIS_REPLICA | 1u << TG_AXIS_DATA)
/* Those whose ranks may hold the same parameters, among which ZeRO splits them. */
#define TG_SHARD_AXES (1u << TG_AXIS_DATA | 1u << TG_AXIS_EXPERT | 1u << TG_AXIS_CONTEXT)
#define TG_AXES_TEXT 64
/* "data+tensor" into buf; returns buf. */
char *tg_axes_text(char *buf, size_t size, tg_axis_set axes);

typedef struct tg_mesh {
    int size[TG_AXES]; /* each at least 1 */
    int ranks;         /* their product */
} tg_mesh;
/* ranks 0: the product, else it must be that. Errors name the keys parallel.* and the values. */
teng_status tg_mesh_make(const int size[TG_AXES], int ranks, tg_mesh *out);
void tg_mesh_coords(const tg_mesh *mesh, int rank, int coord[TG_AXES]);
int tg_mesh_rank(const tg_mesh *mesh, const int coord[TG_AXES]);
/* The ranks that differ from `rank` in these axes alone, ascending, into members[mesh->ranks] (may be NULL);
 * *index: rank's place among them. Returns how many. */
int tg_mesh_group(const tg_mesh *mesh, int rank, tg_axis_set axes, int *members, int *index);

/* How many ranks those are, and in *index (may be NULL) the place of the rank at coord among them. */
int tg_mesh_parts(const tg_mesh *mesh, const int coord[TG_AXES], tg_axis_set axes, int *index);

/* Part `index` of n cut into `parts` pieces as even as can be, the longer ones first; a piece may be empty.
 */
void tg_mesh_cut(int64_t n, int64_t parts, int64_t index, int64_t *begin, int64_t *size);

/* A tensor on the mesh: on each axis replicated, split along a dimension, or partial. Where several axes
 * split one dimension, the pieces nest in the order context, tensor, expert, replica, data (outermost first).
 */
typedef struct tg_placement {
    teng_place on[TG_AXES];
    /* > 1: on the tensor axis each of that many equal groups of the split dimension is split by itself
     * (query, key and value in one weight), and a rank holds its piece of each. 0, 1: one. */
    int8_t groups;
    /* ZeRO: of what the axes leave, dimension shard_dim is cut among the ranks of these axes together,
     * innermost; each is replicated above, and the dimension has no groups. 0: none. */
    tg_axis_set shard;
    teng_place shard_dim;
} tg_placement;
extern const tg_axis tg_mesh_nesting[TG_AXES]; /* outermost first */

/* What a rank holds of a whole tensor: along each dimension `n` runs of `size` elements, `stride` apart (n >
 * 1 with groups alone). */
typedef struct tg_box {
    int ndim;
    int64_t begin[TENG_MAX_DIMS], size[TENG_MAX_DIMS];
    int64_t runs[TENG_MAX_DIMS], stride[TENG_MAX_DIMS];
} tg_box;
tg_placement tg_mesh_replicated(void); /* on every axis */
void tg_mesh_box(const tg_mesh *mesh, int rank, const teng_desc *whole, const tg_placement *placement,
                 tg_box *out);
/* The shape of what is in the box of a whole. */
teng_desc tg_box_desc(const tg_box *box, const teng_desc *whole);
teng_desc tg_mesh_local(const tg_mesh *mesh, int rank, const teng_desc *whole, const tg_placement *placement);
/* Whether this rank is the one that stands for all that hold the same box (coordinate 0 on every axis that
 * does not split). */
bool tg_mesh_owner(const tg_mesh *mesh, int rank, const tg_placement *placement);

#endif
