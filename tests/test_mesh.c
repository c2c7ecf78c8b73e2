/* The mesh: ranks and coordinates are one to one, groups partition the ranks, the boxes of all ranks tile
 * every tensor whatever the placement, pieces nest, bad sizes are refused by key and value. */
#include "base/rng.h"
#include "mesh/mesh.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

static uint64_t draws;
static int draw(int bound)
{
    return (int)tg_rng_below(7, draws++, (uint64_t)bound);
}

static tg_mesh draw_mesh(void)
{
    tg_mesh mesh;
    int size[TG_AXES];
    for (int a = 0; a < TG_AXES; a++)
        size[a] = 1 + draw(3);
    assert_int_equal(tg_mesh_make(size, 0, &mesh), TENG_OK);
    return mesh;
}

static void ranks_and_groups(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        const tg_mesh mesh = draw_mesh();
        int members[1024], other[1024], coord[TG_AXES];
        const tg_axis_set axes = (tg_axis_set)draw(1 << TG_AXES);
        for (int r = 0; r < mesh.ranks; r++) {
            int index = -1, at = -1;
            tg_mesh_coords(&mesh, r, coord);
            assert_int_equal(tg_mesh_rank(&mesh, coord), r);
            const int n = tg_mesh_group(&mesh, r, axes, members, &index);
            assert_int_equal(members[index], r);
            assert_int_equal(tg_mesh_parts(&mesh, coord, axes, &at), n);
            assert_int_equal(at, index);
            for (int k = 0; k < n; k++) { /* all members have the same group */
                assert_int_equal(tg_mesh_group(&mesh, members[k], axes, other, &at), n);
                assert_int_equal(at, k);
                assert_memory_equal(members, other, sizeof(int) * (size_t)n);
            }
        }
    }
    tg_mesh mesh;
    const int size[TG_AXES] = {2, 1, 2, 1, 1, 2};
    assert_int_equal(tg_mesh_make(size, 8, &mesh), TENG_OK);
    int coord[TG_AXES];
    tg_mesh_coords(&mesh, 1, coord); /* neighbours are tensor ranks */
    assert_int_equal(coord[TG_AXIS_TENSOR], 1);
    tg_mesh_coords(&mesh, 4, coord);
    assert_int_equal(coord[TG_AXIS_PIPELINE], 1);
}

/* Axes that do not split cut another dimension than that of the groups together. */
static void draw_shard(const tg_mesh *mesh, int ndim, tg_placement *p)
{
    const int first = p->groups && mesh->size[TG_AXIS_TENSOR] > 1;
    if (first >= ndim) return;
    p->shard_dim = (teng_place)(first + draw(ndim - first));
    for (int a = TG_AXIS_DATA; a < TG_AXES; a++)
        if (p->on[a] < 0 && mesh->size[a] > 1 && draw(2)) p->shard |= 1u << a;
}

/* Every element belongs to one owner, however many ranks hold it. */
static void boxes_tile(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        const tg_mesh mesh = draw_mesh();
        const int ndim = 1 + draw(2);
        int64_t dims[2] = {6 * (1 + draw(3)), 1 + draw(9)};
        const teng_desc whole = tg_desc_make(TENG_F32, ndim, dims);
        tg_placement p = {.groups = (int8_t)(draw(2) ? 3 : 0)};
        for (int a = 0; a < TG_AXES; a++)
            p.on[a] = (teng_place)(draw(ndim + 1) - 1);
        p.on[TG_AXIS_PIPELINE] = TENG_REPLICATED;
        if (p.groups) { /* 3 groups need a dimension that 3 divides, split by the tensor axis from whole */
            p.on[TG_AXIS_TENSOR] = 0;
            p.on[TG_AXIS_CONTEXT] = TENG_REPLICATED;
        }
        draw_shard(&mesh, ndim, &p);
        uint8_t owners[18 * 9] = {0};
        for (int r = 0; r < mesh.ranks; r++) {
            tg_box box;
            int coord[TG_AXES];
            tg_mesh_coords(&mesh, r, coord);
            tg_mesh_box(&mesh, r, &whole, &p, &box);
            const teng_desc local = tg_mesh_local(&mesh, r, &whole, &p);
            if (coord[TG_AXIS_PIPELINE] || !tg_mesh_owner(&mesh, r, &p)) continue;
            int64_t index[2] = {0}, n = 0;
            const int64_t cols = ndim > 1 ? whole.dims[1] : 1;
            for (index[0] = 0; index[0] < whole.dims[0]; index[0]++)
                for (index[1] = 0; index[1] < cols; index[1]++) {
                    bool in = true;
                    for (int d = 0; d < ndim; d++) {
                        const int64_t k = index[d] - box.begin[d];
                        in = in && k >= 0 && box.size[d] > 0 && k % box.stride[d] < box.size[d] &&
                             k / box.stride[d] < box.runs[d];
                    }
                    if (!in) continue;
                    n++;
                    owners[index[0] * cols + index[1]]++;
                }
            assert_int_equal(n, tg_desc_numel(&local));
        }
        for (int64_t k = 0; k < tg_desc_numel(&whole); k++)
            assert_int_equal(owners[k], 1);
    }
}

/* A gather over data of what tensor split too is the tensor's piece. */
static void pieces_nest(void **state)
{
    (void)state;
    tg_mesh mesh;
    const int size[TG_AXES] = {1, 1, 3, 1, 1, 2};
    assert_int_equal(tg_mesh_make(size, 6, &mesh), TENG_OK);
    const teng_desc whole = tg_desc_make(TENG_F32, 1, (int64_t[]){10});
    const tg_placement both = {.on = {-1, -1, 0, -1, -1, 0}}, tensor = {.on = {-1, -1, -1, -1, -1, 0}};
    tg_box a, b;
    int64_t at = 0;
    tg_mesh_box(&mesh, 1, &whole, &tensor, &a);
    for (int d = 0; d < 3; d++) {
        tg_mesh_box(&mesh, 2 * d + 1, &whole, &both, &b);
        assert_int_equal(b.begin[0], a.begin[0] + at);
        at += b.size[0];
    }
    assert_int_equal(at, a.size[0]);
}

static void refused(void **state)
{
    (void)state;
    tg_mesh mesh;
    assert_int_equal(tg_mesh_make((int[TG_AXES]){1, 1, 2, 1, 1, 2}, 3, &mesh), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "data 2"));
    assert_non_null(strstr(teng_error(), "makes 4 ranks, but 3 were started"));
    teng_error_clear();
    assert_int_equal(tg_mesh_make((int[TG_AXES]){1, 1, 0, 1, 1, 2}, 0, &mesh), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "parallel.data is 0"));
    teng_error_clear();
    assert_int_equal(tg_mesh_make((int[TG_AXES]){1 << 20, 1, 1 << 20, 1, 1, 2}, 0, &mesh), TENG_INVALID);
    teng_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_and_groups),
        cmocka_unit_test(boxes_tile),
        cmocka_unit_test(pieces_nest),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
