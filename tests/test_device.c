/* The device table and the CPU behind it: opening, refusals, memory, copies, threads. */
#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_isa.h"
#include "device/device.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_open(void **state)
{
    (void)state;
    tg_device *dev;
    assert_int_equal(tg_device_open("cpu", 3, &dev), TENG_OK);
    assert_string_equal(dev->info.kind, "cpu");
    assert_string_equal(tg_device_kinds()[0], "cpu");
    assert_null(tg_device_kinds()[1]);
    assert_true(strlen(dev->info.name) > 0);
    assert_int_equal(dev->info.threads, 3);
    assert_int_equal(omp_get_max_threads(), 3);
    assert_int_equal(omp_get_dynamic(), 0);
    assert_true(dev->info.memory_bytes > 1 << 20);
    assert_true(dev->info.unified);
    assert_int_equal(dev->info.isa, tg_cpu_isa_current());
    tg_device_close(&dev);
    assert_null(dev);
    tg_device_close(&dev);

    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(tg_device_open("cpu", 0, &dev), TENG_OK);
    assert_true(dev->info.threads >= 1);
    assert_int_equal(omp_get_max_threads(), dev->info.threads);
    tg_device_close(&dev);
}

static void test_refusals(void **state)
{
    (void)state;
    tg_device *dev;
    assert_int_equal(tg_device_open("gpu", 0, &dev), TENG_INVALID);
    assert_string_equal(teng_error(), "device \"gpu\" is not in this build: use cpu");
    assert_null(dev);
    teng_error_clear();
    assert_int_equal(tg_device_open("cpu", -2, &dev), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "-2 threads"));
    teng_error_clear();
    setenv("TENG_CPU_ISA", "none-such", 1);
    assert_int_equal(tg_device_open("cpu", 1, &dev), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "none-such"));
    teng_error_clear();
    unsetenv("TENG_CPU_ISA");
    tg_alloc_fail_at(1);
    assert_int_equal(tg_device_open("cpu", 1, &dev), TENG_MEMORY);
    tg_alloc_fail_at(0);
    assert_null(dev);
    teng_error_clear();
}

static void test_memory(void **state)
{
    (void)state;
    tg_device *dev;
    assert_int_equal(tg_device_open("cpu", 2, &dev), TENG_OK);
    void *stream;
    assert_int_equal(tg_stream_create(dev, &stream), TENG_OK);
    static const size_t sizes[] = {0, 1, 4097, (size_t)5 << 20, ((size_t)5 << 20) + 13};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        unsigned char *host = tg_alloc(n + 1), *back = tg_calloc(n + 1, 1);
        unsigned char *ptr = tg_device_alloc(dev, n);
        assert_non_null(ptr);
        assert_int_equal((uintptr_t)ptr % TG_ALIGN, 0);
        for (size_t i = 0; i < n; i++) {
            if (ptr[i]) fail_msg("byte %zu of %zu is not zero", i, n);
            host[i] = (unsigned char)(i * 7 + 1);
        }
        assert_int_equal(tg_device_copy(dev, stream, TG_COPY_TO_DEVICE, ptr, host, n), TENG_OK);
        assert_int_equal(tg_device_copy(dev, stream, TG_COPY_TO_HOST, back, ptr, n), TENG_OK);
        assert_int_equal(tg_stream_sync(dev, stream), TENG_OK);
        assert_memory_equal(host, back, n);
        assert_int_equal(tg_device_zero(dev, stream, ptr, n), TENG_OK);
        assert_int_equal(tg_stream_sync(dev, stream), TENG_OK);
        for (size_t i = 0; i < n; i++)
            if (ptr[i]) fail_msg("byte %zu of %zu is not zero again", i, n);
        tg_device_free(dev, ptr);
        tg_free(host);
        tg_free(back);
    }
    tg_alloc_fail_at(1);
    assert_null(tg_device_alloc(dev, 64));
    tg_alloc_fail_at(0);
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    teng_error_clear();
    tg_device_free(dev, NULL);
    tg_stream_destroy(dev, &stream);
    tg_device_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
