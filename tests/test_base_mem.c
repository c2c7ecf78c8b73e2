/* The heap's door: counting, failing on demand, alignment; arenas and growing arrays on top of it. */
#include "base/fail.h"
#include "base/mem.h"
#include "base/vec.h"

#include "cmocka_all.h"

#include <stdbool.h>
#include <string.h>

static int clear(void **state)
{
    (void)state;
    teng_error_clear();
    tg_alloc_fail_at(0);
    return 0;
}

static void allocations_are_counted(void **state)
{
    (void)state;
    uint64_t before = tg_alloc_count();
    void *a = tg_alloc(10);
    void *b = tg_calloc(3, 4);
    a = tg_realloc(a, 1000);
    void *c = tg_alloc_aligned(100);
    char *d = tg_strdup("x");
    assert_int_equal(tg_alloc_count() - before, 5);
    tg_free(a);
    tg_free(b);
    tg_free(d);
    tg_free_aligned(c);
    tg_free(NULL);
    assert_int_equal(tg_alloc_count() - before, 5);
}

static void the_chosen_allocation_fails(void **state)
{
    (void)state;
    tg_alloc_fail_at(3);
    void *a = tg_alloc(1), *b = tg_alloc(1), *c = tg_alloc(7), *d = tg_alloc(1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_non_null(d);
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    assert_string_equal(teng_error(), "out of memory: the system refused 7 bytes (0.0 MiB)");
    teng_error_clear();
    tg_alloc_fail_at(1);
    assert_null(tg_alloc_quiet(5));
    assert_int_equal(teng_error_status(), TENG_OK);
    tg_alloc_fail_at(1);
    assert_null(tg_realloc(a, 100)); /* a is kept */
    tg_alloc_fail_at(1);
    assert_null(tg_alloc_aligned(100));
    tg_alloc_fail_at(1);
    assert_null(tg_calloc(2, 2));
    tg_alloc_fail_at(1);
    assert_null(tg_asprintf("%d", 1));
    tg_alloc_fail_at(1);
    tg_alloc_fail_at(0);
    void *e = tg_alloc(1);
    assert_non_null(e);
    tg_free(a);
    tg_free(b);
    tg_free(d);
    tg_free(e);
}

static void products_that_overflow_are_refused(void **state)
{
    (void)state;
    assert_null(tg_calloc(SIZE_MAX / 2, 3));
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    assert_non_null(strstr(teng_error(), "elements of 3 bytes"));
    teng_error_clear();
    assert_null(tg_alloc_aligned(SIZE_MAX - 3));
    assert_int_equal(teng_error_status(), TENG_MEMORY);
}

static void aligned_blocks(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = tg_alloc_aligned(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % TG_ALIGN, 0);
        if (sizes[i] >= 4 << 20) assert_int_equal((uintptr_t)p % (2 << 20), 0);
        memset(p, 1, sizes[i]);
        tg_free_aligned(p);
    }
}

static void copies_of_text(void **state)
{
    (void)state;
    char *a = tg_strdup("hello"), *b = tg_strndup("hello", 3), *c = tg_strndup("hi", 10);
    char *d = tg_asprintf("%s-%d", "x", 42), *e = tg_calloc(4, 4);
    assert_string_equal(a, "hello");
    assert_string_equal(b, "hel");
    assert_string_equal(c, "hi");
    assert_string_equal(d, "x-42");
    for (int i = 0; i < 16; i++)
        assert_int_equal(e[i], 0);
    tg_free(a);
    tg_free(b);
    tg_free(c);
    tg_free(d);
    tg_free(e);
}

static void arena_objects_stay_apart(void **state)
{
    (void)state;
    enum { N = 3000 };
    static unsigned char *objects[N];
    tg_arena *arena = tg_arena_create();
    size_t total = 0;
    for (size_t i = 0; i < N; i++) {
        size_t size = i % 97 == 0 ? 20000 + i : i % 50;
        objects[i] = tg_arena_alloc(arena, size);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        for (size_t k = 0; k < size; k++)
            assert_int_equal(objects[i][k], 0);
        memset(objects[i], (int)(i % 251) + 1, size);
        total += size;
    }
    for (size_t i = 0; i < N; i++) {
        size_t size = i % 97 == 0 ? 20000 + i : i % 50;
        for (size_t k = 0; k < size; k++)
            assert_int_equal(objects[i][k], (int)(i % 251) + 1);
    }
    assert_true(tg_arena_bytes(arena) >= total);
    assert_true(tg_arena_bytes(arena) <= total + 16 * N);
    assert_string_equal(tg_arena_strdup(arena, "copy"), "copy");
    assert_string_equal(tg_arena_printf(arena, "%05d", 12), "00012");
    tg_arena_destroy(&arena);
    assert_null(arena);
    tg_arena_destroy(&arena);
}

static void arenas_are_few_allocations_and_survive_failure(void **state)
{
    (void)state;
    tg_arena *arena = tg_arena_create();
    uint64_t before = tg_alloc_count();
    for (int i = 0; i < 100000; i++)
        assert_non_null(tg_arena_alloc(arena, 16));
    assert_true(tg_alloc_count() - before < 20);
    tg_alloc_fail_at(1);
    assert_null(tg_arena_alloc(arena, 10 << 20));
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    teng_error_clear();
    assert_non_null(tg_arena_alloc(arena, 16));
    assert_null(tg_arena_alloc(arena, SIZE_MAX - 4));
    assert_non_null(strstr(teng_error(), "more than an address can hold"));
    tg_arena_destroy(&arena);
    tg_alloc_fail_at(1);
    assert_null(tg_arena_create());
}

static void arrays_grow(void **state)
{
    (void)state;
    TG_VEC(int) v = {0};
    for (int i = 0; i < 1000; i++)
        assert_true(tg_vec_push(&v, i * 3));
    assert_int_equal(v.len, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.data[i], i * 3);
    assert_true(tg_vec_reserve(&v, 5000));
    assert_true(v.cap >= 5000);
    size_t cap = v.cap;
    assert_true(tg_vec_reserve(&v, 10));
    assert_int_equal(v.cap, cap);
    tg_alloc_fail_at(1);
    assert_false(tg_vec_reserve(&v, cap + 1));
    assert_int_equal(v.data[999], 999 * 3);
    teng_error_clear();
    assert_false(tg_vec_reserve(&v, SIZE_MAX / 2));
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    tg_vec_free(&v);
    assert_null(v.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(allocations_are_counted, clear),
        cmocka_unit_test_setup(the_chosen_allocation_fails, clear),
        cmocka_unit_test_setup(products_that_overflow_are_refused, clear),
        cmocka_unit_test_setup(aligned_blocks, clear),
        cmocka_unit_test_setup(copies_of_text, clear),
        cmocka_unit_test_setup(arena_objects_stay_apart, clear),
        cmocka_unit_test_setup(arenas_are_few_allocations_and_survive_failure, clear),
        cmocka_unit_test_setup(arrays_grow, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
