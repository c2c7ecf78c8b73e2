/* Boxes against a count of single elements: random shapes, cuts and groups, any two layouts. */
#include "base/rng.h"
#include "mesh/box_copy.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t drawn;

static int64_t draw(int64_t n) /* 0 … n - 1 */
{
    return (int64_t)(tg_philox(7, drawn++, 0).v[0] % (uint64_t)n);
}

static teng_desc draw_shape(void)
{
    int64_t dims[4];
    const int n = (int)draw(5);
    for (int d = 0; d < n; d++)
        dims[d] = 1 + draw(7);
    teng_desc desc = {.dtype = TENG_F32, .ndim = n};
    memcpy(desc.dims, dims, sizeof(int64_t) * (size_t)n);
    return desc;
}

/* Any box of it; along one dimension perhaps a piece of each of two or three groups. */
static tg_box draw_box(const teng_desc *desc)
{
    tg_box box = tg_box_whole(desc);
    for (int d = 0; d < desc->ndim; d++) {
        if (draw(3) == 0) continue;
        const int64_t groups = desc->dims[d] % 3 == 0 && draw(2)   ? 3
                               : desc->dims[d] % 2 == 0 && draw(2) ? 2
                                                                   : 1;
        const int64_t each = desc->dims[d] / groups;
        box.begin[d] = draw(each);
        box.size[d] = 1 + draw(each - box.begin[d]);
        if (groups == 1 && draw(4) == 0) box.size[d] = 0;
        box.runs[d] = groups;
        box.stride[d] = each;
    }
    return box;
}

static bool holds(const tg_box *box, const int64_t *at)
{
    for (int d = 0; d < box->ndim; d++) {
        bool inside = false;
        for (int64_t r = 0; r < box->runs[d]; r++) {
            const int64_t begin = box->begin[d] + r * box->stride[d];
            inside = inside || (at[d] >= begin && at[d] < begin + box->size[d]);
        }
        if (!inside) return false;
    }
    return true;
}

/* The numbers of the elements of a box, in its order: elements of the whole in theirs that it holds. */
static int64_t list(const teng_desc *desc, const tg_box *box, int32_t *out)
{
    int64_t n = 0, all = 1;
    for (int d = 0; d < desc->ndim; d++)
        all *= desc->dims[d];
    for (int64_t i = 0; i < all; i++) {
        int64_t at[TENG_MAX_DIMS], left = i;
        for (int d = desc->ndim - 1; d >= 0; d--) {
            at[d] = left % desc->dims[d];
            left /= desc->dims[d];
        }
        if (holds(box, at)) out[n++] = (int32_t)i;
    }
    return n;
}

static void copies_what_both_hold(void **state)
{
    (void)state;
    static int32_t from[4096], to[4096], got[4096];
    int common = 0;
    for (int i = 0; i < 4000; i++) {
        const teng_desc desc = draw_shape();
        const tg_box a = draw_box(&desc), b = draw_box(&desc);
        assert_true(tg_box_fits(&a, &desc) && tg_box_fits(&b, &desc));
        const int64_t n = list(&desc, &a, from), m = list(&desc, &b, to);
        assert_int_equal(n, tg_box_numel(&a));
        assert_int_equal(m, tg_box_numel(&b));
        memset(got, 0xff, sizeof got);
        const int64_t copied = tg_box_copy(sizeof *got, &a, from, &b, got);
        int64_t want = 0;
        for (int64_t k = 0; k < m; k++) {
            bool shared = false;
            for (int64_t j = 0; j < n && !shared; j++)
                shared = from[j] == to[k];
            want += shared;
            if (got[k] != (shared ? to[k] : -1))
                fail_msg("case %d: element %d of the box is %d", i, (int)k, got[k]);
        }
        assert_int_equal(copied, want);
        common += want > 1 && want < m;
    }
    assert_true(common > 200);
}

static void ranges(void **state)
{
    (void)state;
    const teng_desc desc = {.dtype = TENG_F32, .ndim = 3, .dims = {4, 3, 5}};
    static int32_t numbers[60];
    for (int64_t offset = 0; offset < 60; offset++)
        for (int64_t count = 1; count <= 60 - offset; count++) {
            tg_box box;
            if (!tg_box_of_range(&desc, offset, count, &box)) continue;
            assert_true(tg_box_fits(&box, &desc));
            assert_int_equal(list(&desc, &box, numbers), count);
            assert_true(numbers[0] == offset && numbers[count - 1] == offset + count - 1);
        }
    tg_box box;
    assert_true(tg_box_of_range(&desc, 30, 15, &box) && box.begin[0] == 2 && box.size[0] == 1);
    assert_true(tg_box_of_range(&desc, 35, 10, &box) && box.begin[0] == 2 && box.begin[1] == 1);
    assert_true(tg_box_of_range(&desc, 0, 60, &box));
    assert_false(tg_box_of_range(&desc, 10, 10, &box)); /* the end of one row and the start of the next */
    assert_false(tg_box_of_range(&desc, 7, 15, &box));
}

static void what_does_not_fit(void **state)
{
    (void)state;
    const teng_desc desc = {.dtype = TENG_F32, .ndim = 1, .dims = {12}};
    static const struct {
        int64_t begin, size, runs, stride;
    } bad[] = {{-1, 2, 1, 2}, {0, 13, 1, 1}, {0, -1, 1, 1}, {13, 0, 1, 1},        {0, 4, 0, 4},
               {0, 4, 2, 3},  {5, 4, 2, 4},  {0, 0, 2, 0},  {0, 1, INT64_MAX, 4}, {0, 1, 2, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const tg_box box = {1, {bad[i].begin}, {bad[i].size}, {bad[i].runs}, {bad[i].stride}};
        if (tg_box_fits(&box, &desc)) fail_msg("box %zu fits", i);
    }
    const tg_box two = tg_box_whole(&(teng_desc){.ndim = 2, .dims = {3, 4}}), good = {1, {1}, {2}, {3}, {4}};
    assert_false(tg_box_fits(&two, &desc));
    assert_true(tg_box_fits(&good, &desc));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_what_both_hold),
        cmocka_unit_test(ranges),
        cmocka_unit_test(what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
