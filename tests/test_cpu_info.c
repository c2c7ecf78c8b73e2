/* CPU figures: present and plausible; the peak's cache is written, believed, refused when broken, and
 * optional. */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "device/cpu_info.h"
#include "device/cpu_isa.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CACHE "test_cpu_info_cache"

static char *cache_file(void)
{
    char **names;
    size_t n;
    assert_int_equal(tg_list_dir(CACHE "/teng", &names, &n), TENG_OK);
    assert_int_equal(n, 1);
    char *path = tg_path_join(CACHE "/teng", names[0]);
    tg_names_free(names, n);
    return path;
}

static void test_info(void **state)
{
    (void)state;
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    assert_true(strlen(info.model) > 0);
    assert_true(info.cores >= 1 && info.cores <= 1 << 16);
    assert_true(info.memory_bytes > 1 << 24);
    tg_cpu_peak peak = {.f32_gflops = 12.5, .bandwidth_gb_s = 3.5, .threads = 2};
    json_t *view = tg_cpu_info_json(&info, &peak);
    assert_string_equal(json_string_value(json_object_get(view, "model")), info.model);
    assert_int_equal(json_integer_value(json_object_get(view, "memory_bytes")), info.memory_bytes);
    json_t *isa = json_object_get(view, "isa");
    assert_string_equal(json_string_value(json_object_get(isa, "best")), tg_cpu_isa_name(tg_cpu_isa_best()));
    json_t *rates = json_object_get(view, "peak");
    assert_true(json_real_value(json_object_get(rates, "f32_gflops")) == 12.5);
    assert_true(json_real_value(json_object_get(rates, "bandwidth_gb_s")) == 3.5);
    json_decref(view);
    view = tg_cpu_info_json(&info, NULL);
    assert_null(json_object_get(view, "peak"));
    json_decref(view);
}

static void test_peak_and_cache(void **state)
{
    (void)state;
    char cwd[4096];
    assert_int_equal(tg_remove_tree(CACHE), TENG_OK);
    assert_non_null(realpath(".", cwd));
    char *dir = tg_path_join(cwd, CACHE);
    setenv("XDG_CACHE_HOME", dir, 1);
    omp_set_num_threads(1);

    tg_cpu_peak first, again;
    assert_int_equal(tg_cpu_measure_peak(false, &first), TENG_OK);
    assert_int_equal(first.threads, 1);
    assert_true(first.f32_gflops > 0.05 && first.f32_gflops < 1e6);
    assert_true(first.bandwidth_gb_s > 0.05 && first.bandwidth_gb_s < 1e5);
    assert_true(first.bf16_gflops == 0 || first.bf16_gflops > 0.05);
    assert_int_equal(tg_cpu_measure_peak(false, &again), TENG_OK);
    assert_true(first.f32_gflops == again.f32_gflops && first.bandwidth_gb_s == again.bandwidth_gb_s);

    /* Kept figures are believed; those of another library and broken files are not. */
    char *path = cache_file();
    json_t *kept;
    assert_int_equal(tg_json_load_file(path, &kept), TENG_OK);
    json_object_set_new(kept, "f32_gflops", json_real(123.25));
    assert_int_equal(tg_json_save_file(path, kept), TENG_OK);
    assert_int_equal(tg_cpu_measure_peak(false, &again), TENG_OK);
    assert_true(again.f32_gflops == 123.25);
    json_object_set_new(kept, "f32_gflops", json_real(3e8));
    json_object_set_new(kept, "gemm", json_string("oneDNN 0.1"));
    assert_int_equal(tg_json_save_file(path, kept), TENG_OK);
    assert_int_equal(tg_cpu_measure_peak(false, &again), TENG_OK);
    assert_true(again.f32_gflops < 1e6);
    json_decref(kept);
    assert_int_equal(tg_file_write(path, "{\"f32", 5), TENG_OK);
    assert_int_equal(tg_cpu_measure_peak(false, &again), TENG_OK);
    assert_true(again.f32_gflops > 0.05);
    assert_int_equal(teng_error_status(), TENG_OK);
    tg_free(path);

    /* A folder that cannot be made, and an error that the caller holds already. */
    char *blocked = tg_path_join(dir, "file");
    assert_int_equal(tg_file_write(blocked, "x", 1), TENG_OK);
    setenv("XDG_CACHE_HOME", blocked, 1);
    tg_fail(TENG_STATE, "held");
    assert_int_equal(tg_cpu_measure_peak(true, &again), TENG_OK);
    assert_string_equal(teng_error(), "held");
    teng_error_clear();
    tg_free(blocked);
    tg_free(dir);
    assert_int_equal(tg_remove_tree(CACHE), TENG_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_info), cmocka_unit_test(test_peak_and_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
