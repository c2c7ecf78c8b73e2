/* Ranks, axes and boxes; see mesh.h. Not here: who sends what to whom (comm), which placement a value has
 * (parallel). */
#include "mesh/mesh.h"

#include "base/fail.h"

#include <stdio.h>

static const char *const names[TG_AXES] = {"pipeline", "replica", "data", "expert", "context", "tensor"};
const tg_axis tg_mesh_nesting[TG_AXES] = {TG_AXIS_PIPELINE, TG_AXIS_CONTEXT, TG_AXIS_TENSOR,
                                          TG_AXIS_EXPERT,   TG_AXIS_REPLICA, TG_AXIS_DATA};

const char *tg_axis_name(tg_axis axis)
{
    return names[axis];
}

char *tg_axes_text(char *buf, size_t size, tg_axis_set axes)
{
    size_t at = 0;
    buf[0] = 0;
    for (int a = 0; a < TG_AXES && at < size; a++)
        if (axes >> a & 1u)
            at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? "+" : "", tg_axis_name((tg_axis)a));
    return buf;
}

teng_status tg_mesh_make(const int size[TG_AXES], int ranks, tg_mesh *out)
{
    int64_t product = 1;
    for (int a = 0; a < TG_AXES; a++) {
        if (size[a] < 1)
            return tg_fail(TENG_INVALID, "parallel.%s is %d; it must be at least 1", names[a], size[a]);
        product *= size[a];
        if (product > INT32_MAX / 2)
            return tg_fail(TENG_INVALID, "parallel.%s = %d makes more ranks than %d", names[a], size[a],
                           INT32_MAX / 2);
        out->size[a] = size[a];
    }
    out->ranks = (int)product;
    if (ranks && ranks != out->ranks)
        return tg_fail(
            TENG_INVALID,
            "parallel.pipeline %d x data %d x expert %d x context %d x tensor %d makes %d ranks, but "
            "%d %s started; start as many, or change the sizes",
            size[TG_AXIS_PIPELINE], size[TG_AXIS_REPLICA] * size[TG_AXIS_DATA], size[TG_AXIS_EXPERT],
            size[TG_AXIS_CONTEXT], size[TG_AXIS_TENSOR], out->ranks, ranks, ranks == 1 ? "was" : "were");
    return TENG_OK;
}

void tg_mesh_coords(const tg_mesh *mesh, int rank, int coord[TG_AXES])
{
    for (int a = TG_AXES; a-- > 0; rank /= mesh->size[a])
        coord[a] = rank % mesh->size[a];
}

int tg_mesh_rank(const tg_mesh *mesh, const int coord[TG_AXES])
{
    int rank = 0;
    for (int a = 0; a < TG_AXES; a++)
        rank = rank * mesh->size[a] + coord[a];
    return rank;
}

int tg_mesh_group(const tg_mesh *mesh, int rank, tg_axis_set axes, int *members, int *index)
{
    int coord[TG_AXES], other[TG_AXES], n = 0;
    tg_mesh_coords(mesh, rank, coord);
    for (int r = 0; r < mesh->ranks; r++) {
        tg_mesh_coords(mesh, r, other);
        bool in = true;
        for (int a = 0; a < TG_AXES; a++)
            in = in && (axes >> a & 1u || other[a] == coord[a]);
        if (!in) continue;
        if (members) members[n] = r;
        if (index && r == rank) *index = n;
        n++;
    }
    return n;
}

int tg_mesh_parts(const tg_mesh *mesh, const int coord[TG_AXES], tg_axis_set axes, int *index)
{
    int n = 1, at = 0;
    for (int a = 0; a < TG_AXES; a++) {
        if (!(axes >> a & 1u)) continue;
        n *= mesh->size[a];
        at = at * mesh->size[a] + coord[a];
    }
    if (index) *index = at;
    return n;
}

void tg_mesh_cut(int64_t n, int64_t parts, int64_t index, int64_t *begin, int64_t *size)
{
    const int64_t each = n / parts, longer = n % parts;
    *begin = index * each + (index < longer ? index : longer);
    *size = each + (index < longer);
}

tg_placement tg_mesh_replicated(void)
{
    tg_placement r = {.groups = 0};
    for (int a = 0; a < TG_AXES; a++)
        r.on[a] = TENG_REPLICATED;
    return r;
}

void tg_mesh_box(const tg_mesh *mesh, int rank, const teng_desc *whole, const tg_placement *placement,
                 tg_box *out)
{
    int coord[TG_AXES];
    tg_mesh_coords(mesh, rank, coord);
    out->ndim = whole->ndim;
    for (int d = 0; d < whole->ndim; d++) {
        out->begin[d] = 0;
        out->size[d] = out->stride[d] = whole->dims[d];
        out->runs[d] = 1;
    }
    for (int k = 0; k < TG_AXES; k++) {
        const tg_axis a = tg_mesh_nesting[k];
        const int d = placement->on[a];
        if (d < 0 || mesh->size[a] == 1) continue;
        if (a == TG_AXIS_TENSOR && placement->groups > 1) {
            out->runs[d] = placement->groups;
            out->size[d] /= placement->groups;
            out->stride[d] = out->size[d];
        }
        int64_t begin;
        tg_mesh_cut(out->size[d], mesh->size[a], coord[a], &begin, &out->size[d]);
        out->begin[d] += begin;
    }
    if (placement->shard) {
        int index;
        int64_t begin;
        const int d = placement->shard_dim, parts = tg_mesh_parts(mesh, coord, placement->shard, &index);
        tg_mesh_cut(out->size[d], parts, index, &begin, &out->size[d]);
        out->begin[d] += begin;
    }
}

teng_desc tg_box_desc(const tg_box *box, const teng_desc *whole)
{
    teng_desc desc = *whole;
    for (int d = 0; d < desc.ndim; d++)
        desc.dims[d] = box->size[d] * box->runs[d];
    return desc;
}

teng_desc tg_mesh_local(const tg_mesh *mesh, int rank, const teng_desc *whole, const tg_placement *placement)
{
    tg_box box;
    tg_mesh_box(mesh, rank, whole, placement, &box);
    return tg_box_desc(&box, whole);
}

bool tg_mesh_owner(const tg_mesh *mesh, int rank, const tg_placement *placement)
{
    int coord[TG_AXES];
    tg_mesh_coords(mesh, rank, coord);
    for (int a = 0; a < TG_AXES; a++)
        if (a != TG_AXIS_PIPELINE && placement->on[a] < 0 && !(placement->shard >> a & 1u) && coord[a])
            return false;
    return true;
}
