/*
 * The list of products and their ways: measured, kept in a file, read back; broken files and those of another
 * oneDNN are refused and change nothing; a way once chosen stays; plans go it, and the same list gives the
 * same bits.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "device/cpu_products.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CACHE "test_products_cache"

static const tg_gemm_spec specs[] = {
    {.m = 300, .n = 280, .k = 64, .bias = true},
    {.m = 280, .n = 300, .k = 512, .trans_a = true, .accumulate = true},
    {.a = TENG_BF16, .b = TENG_BF16, .m = 260, .n = 270, .k = 90, .trans_b = true, .packed_b = true},
    {.m = 30, .n = 20, .k = 10, .batch = 3},
};
enum { SPECS = sizeof specs / sizeof *specs };

static tg_gemm_plan *plan_of(const tg_gemm_spec *spec)
{
    tg_gemm_plan *plan;
    if (tg_gemm_plan_create(spec, &plan) != TENG_OK) fail_msg("%s", teng_error());
    return plan;
}

static void note_all(int64_t times)
{
    tg_products_note(times);
    for (int i = 0; i < SPECS; i++) {
        tg_gemm_plan *plan = plan_of(&specs[i]);
        if (i == 1) tg_gemm_again(plan);
        tg_gemm_plan_destroy(&plan);
    }
    tg_products_note(0);
}

static char *list_text(void)
{
    json_t *json = tg_products_json(true);
    char *text = tg_json_text(json, 0);
    json_decref(json);
    assert_non_null(text);
    return text;
}

static void test_noting(void **state)
{
    (void)state;
    tg_gemm_plan *plan = plan_of(&specs[0]);
    tg_gemm_plan_destroy(&plan);
    assert_int_equal(tg_products_count(), 0); /* nobody asked for it */
    note_all(3);
    assert_int_equal(tg_products_count(), SPECS);
    note_all(5); /* anew */
    assert_int_equal(tg_products_count(), SPECS);
    for (size_t i = 0; i < SPECS; i++) {
        assert_int_equal(tg_products_at(i)->times, i == 1 ? 10 : 5);
        assert_int_equal(tg_products_at(i)->spec.way, TG_GEMM_BY_SIZES);
        assert_int_equal(tg_products_way(tg_products_at(i)), tg_gemm_by_sizes(&tg_products_at(i)->spec));
    }
}

/* A measured list goes to a file and back; what is measured is not measured again. */
static void test_round_trip(void **state)
{
    (void)state;
    int n;
    note_all(1);
    assert_int_equal(tg_products_measure(&n), TENG_OK);
    assert_int_equal(n, SPECS - 1); /* a batch has no ways */
    for (size_t i = 0; i + 1 < SPECS; i++) {
        const tg_product *p = tg_products_at(i);
        assert_true(tg_gemm_can(&p->spec, p->spec.way) && p->spec.way != TG_GEMM_BY_SIZES);
        assert_true(p->gflops > 0);
        tg_gemm_plan *plan = plan_of(&specs[i]); /* which goes that way */
        if (p->spec.way != TG_GEMM_STORED && !strstr(tg_gemm_impl(plan), tg_gemm_way_name(p->spec.way)))
            fail_msg("%s, not %s", tg_gemm_impl(plan), tg_gemm_way_name(p->spec.way));
        tg_gemm_plan_destroy(&plan);
    }
    char *path = tg_products_cache_path(), *before = list_text();
    assert_non_null(strstr(path, CACHE "/teng/products-"));
    assert_int_equal(tg_products_save(path), TENG_OK);
    tg_products_clear();
    assert_int_equal(tg_products_load(path, false), TENG_OK);
    assert_int_equal(tg_products_count(), 0); /* none of them is asked for */
    note_all(1);
    assert_int_equal(tg_products_load(path, false), TENG_OK);
    assert_int_equal(tg_products_measure(&n), TENG_OK);
    assert_int_equal(n, 0);
    char *after = list_text();
    assert_string_equal(before, after);
    tg_products_clear();
    assert_int_equal(tg_products_load(path, true), TENG_OK);
    assert_int_equal(tg_products_count(), SPECS - 1);
    tg_free(before);
    tg_free(after);
    tg_free(path);
}

static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
}

static void refuses(const char *text, const char *part)
{
    assert_int_equal(tg_file_write(CACHE "/broken.json", text, strlen(text)), TENG_OK);
    const size_t count = tg_products_count();
    assert_int_not_equal(tg_products_load(CACHE "/broken.json", true), TENG_OK);
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
    assert_int_equal(tg_products_count(), count);
}

/* Every member that is missing or wrong, each cut of the text, another oneDNN: refused as a whole. */
static void test_broken_files(void **state)
{
    (void)state;
    int n;
    note_all(1);
    assert_int_equal(tg_products_measure(&n), TENG_OK);
    char *good = list_text();
    tg_products_clear();
    for (size_t cut = 0; cut < strlen(good); cut += 37) {
        char *text = tg_strdup(good);
        text[cut] = 0;
        refuses(text, "broken.json");
        tg_free(text);
    }
    static const char *const wrong[][3] = {
        {"oneDNN ", "oneDMM ", "was measured with oneDMM"},
        {"\"m\"", "\"x\"", "\"m\""},
        {"\"k\":64", "\"k\":-4", "at least 1"},
        {"\"trans_a\"", "\"trans_x\"", "trans_a"},
        {"\"f32\"", "\"f99\"", "dtypes"},
        {"\"way\"", "\"why\"", "way"},
        {"\"products\"", "\"produced\"", "no list"},
        {"\"batch\":1", "\"batch\":x", "broken.json"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = tg_strdup(good);
        replace(text, wrong[i][0], wrong[i][1]);
        refuses(text, wrong[i][2]);
        tg_free(text);
    }
    static const char unknown[] = "{\"gemm\":\"%s\",\"products\":[{\"factors\":\"f32\",\"result\":\"f32\","
                                  "\"gflops\":1.0,\"way\":\"sideways\",\"m\":1,\"n\":1,\"k\":1,\"batch\":1,"
                                  "\"lda\":1,\"ldb\":1,\"ldc\":1,\"trans_a\":false,\"trans_b\":false,"
                                  "\"bias\":false,\"accumulate\":false,\"packed_b\":false}]}";
    char version[32], text[sizeof unknown + 32];
    const char *mark = strstr(unknown, "%s");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - unknown), unknown, tg_gemm_version(version),
             mark + 2);
    refuses(text, "sideways");
    tg_free(good);
}

/* A way that the list has stays, whatever a file says; and two plans of one list give the same bits. */
static void test_choices_stay(void **state)
{
    (void)state;
    int n;
    note_all(1);
    assert_int_equal(tg_products_measure(&n), TENG_OK);
    char *before = list_text(), *text = tg_strdup(before), *at = strstr(text, "\"gflops\":");
    at[9] = '7';
    json_t *json;
    assert_int_equal(tg_json_parse("other", text, strlen(text), &json), TENG_OK);
    assert_int_equal(tg_products_take(json, "other", true), TENG_OK);
    char *after = list_text();
    assert_string_equal(before, after);
    json_decref(json);
    const tg_gemm_spec *s = &specs[1];
    float *a = tg_alloc_aligned((size_t)(s->m * s->k) * sizeof *a), *c[2];
    float *b = tg_alloc_aligned((size_t)(s->n * s->k) * sizeof *b);
    for (int64_t i = 0; i < s->m * s->k; i++)
        a[i] = (float)(i % 101) / 7 - 6;
    for (int64_t i = 0; i < s->n * s->k; i++)
        b[i] = (float)(i % 97) / 9 - 5;
    const size_t bytes = (size_t)(s->m * s->n) * sizeof(float);
    for (int i = 0; i < 2; i++) {
        c[i] = tg_alloc_aligned(bytes);
        memset(c[i], 0, bytes);
        tg_products_clear();
        assert_int_equal(tg_json_parse("list", before, strlen(before), &json), TENG_OK);
        assert_int_equal(tg_products_take(json, "list", true), TENG_OK);
        json_decref(json);
        tg_gemm_plan *plan = plan_of(s);
        void *scratch = tg_alloc_aligned(tg_gemm_scratch(plan) + 1);
        assert_int_equal(tg_gemm_run(plan, a, b, NULL, c[i], scratch), TENG_OK);
        tg_free_aligned(scratch);
        tg_gemm_plan_destroy(&plan);
    }
    assert_memory_equal(c[0], c[1], bytes);
    tg_free_aligned(c[0]);
    tg_free_aligned(c[1]);
    tg_free_aligned(a);
    tg_free_aligned(b);
    tg_free(before);
    tg_free(after);
    tg_free(text);
}

static int clear(void **state)
{
    (void)state;
    tg_products_clear();
    return 0;
}

int main(void)
{
    char *here = realpath(".", NULL), *cache = tg_path_join(here, CACHE);
    setenv("XDG_CACHE_HOME", cache, 1);
    tg_mkdirs(cache);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_noting, clear),
        cmocka_unit_test_setup(test_round_trip, clear),
        cmocka_unit_test_setup(test_broken_files, clear),
        cmocka_unit_test_setup(test_choices_stay, clear),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tg_products_clear();
    tg_remove_tree(cache);
    free(here);
    tg_free(cache);
    return failed;
}
