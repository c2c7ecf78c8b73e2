/* Growing strings, numbers as people read them, the string map against a list, log lines. */
#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "base/strmap.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static int clear(void **state)
{
    (void)state;
    teng_error_clear();
    tg_alloc_fail_at(0);
    return 0;
}

static void strings_grow(void **state)
{
    (void)state;
    tg_strbuf b = {0};
    assert_string_equal(tg_strbuf_str(&b), "");
    tg_strbuf_puts(&b, "one");
    tg_strbuf_putc(&b, ' ');
    tg_strbuf_printf(&b, "%d", 2);
    tg_strbuf_add(&b, "\0x", 2);
    assert_int_equal(b.len, 7);
    assert_memory_equal(b.data, "one 2\0x", 8);
    tg_strbuf_clear(&b);
    assert_string_equal(tg_strbuf_str(&b), "");
    for (int i = 0; i < 5000; i++)
        tg_strbuf_printf(&b, "%04d", i);
    assert_int_equal(b.len, 20000);
    assert_memory_equal(b.data + 4 * 1234, "1234", 4);
    char *text = tg_strbuf_take(&b);
    assert_int_equal(strlen(text), 20000);
    assert_null(b.data);
    tg_free(text);
    text = tg_strbuf_take(&b);
    assert_string_equal(text, "");
    tg_free(text);
}

static void a_failed_append_is_remembered(void **state)
{
    (void)state;
    tg_strbuf b = {0};
    tg_strbuf_puts(&b, "kept");
    tg_alloc_fail_at(1);
    tg_strbuf_printf(&b, "%1000d", 1);
    assert_true(b.failed);
    tg_strbuf_puts(&b, "never");
    assert_string_equal(tg_strbuf_str(&b), "kept");
    assert_null(tg_strbuf_take(&b));
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    teng_error_clear();
    tg_strbuf_add(&b, "", SIZE_MAX / 2);
    assert_true(b.failed);
    assert_non_null(strstr(teng_error(), "more than an address can hold"));
    tg_strbuf_free(&b);
}

static void numbers_for_people(void **state)
{
    (void)state;
    char buf[32];
    assert_string_equal(tg_format_bytes(buf, 0), "0 B");
    assert_string_equal(tg_format_bytes(buf, 1023), "1023 B");
    assert_string_equal(tg_format_bytes(buf, 1536.0 * 1024 * 1024), "1.50 GiB");
    assert_string_equal(tg_format_bytes(buf, 100.0 * 1024), "100.0 KiB");
    assert_string_equal(tg_format_count(buf, 12), "12");
    assert_string_equal(tg_format_count(buf, 124.4e6), "124.4 M");
    assert_string_equal(tg_format_count(buf, 1500), "1.50 k");
    assert_string_equal(tg_format_count(buf, 7.0e9), "7.00 G");
    assert_string_equal(tg_format_seconds(buf, 185), "3 min 05 s");
    assert_string_equal(tg_format_seconds(buf, 59.96), "1 min 00 s");
    assert_string_equal(tg_format_seconds(buf, 12.34), "12.3 s");
    assert_string_equal(tg_format_seconds(buf, 0.0123), "12.3 ms");
    assert_string_equal(tg_format_seconds(buf, 5e-6), "5.0 us");
    assert_string_equal(tg_format_seconds(buf, 7260), "2 h 01 min");
    assert_string_equal(tg_format_seconds(buf, 0.0 / 1.0 + 1e300), "unknown");
}

/* Keys 0..999 are drawn many times; a plain array of what was set last is the model. */
static void map_agrees_with_a_list(void **state)
{
    (void)state;
    enum { KEYS = 1000, DRAWS = 20000 };
    static int64_t model[KEYS];
    static size_t order[KEYS];
    size_t count = 0;
    for (int i = 0; i < KEYS; i++)
        model[i] = -1;
    tg_strmap *map = tg_strmap_create();
    for (uint64_t d = 0; d < DRAWS; d++) {
        size_t k = (size_t)tg_rng_below(1, d, KEYS);
        char key[16];
        int len = snprintf(key, sizeof key, "%zu", k);
        bool existed;
        assert_true(tg_strmap_set(map, key, (size_t)len, (int64_t)d, &existed));
        assert_int_equal(existed, model[k] >= 0);
        if (!existed) order[count++] = k;
        model[k] = (int64_t)d;
    }
    assert_int_equal(tg_strmap_count(map), count);
    for (size_t i = 0; i < count; i++) {
        char key[16];
        size_t len;
        snprintf(key, sizeof key, "%zu", order[i]);
        assert_string_equal(tg_strmap_key(map, i, &len), key);
        assert_int_equal(len, strlen(key));
        assert_int_equal(tg_strmap_value(map, i), model[order[i]]);
        int64_t value = -7;
        assert_true(tg_strmap_get(map, key, len, &value));
        assert_int_equal(value, model[order[i]]);
    }
    int64_t untouched = 5;
    assert_false(tg_strmap_get(map, "1000", 4, &untouched));
    assert_int_equal(untouched, 5);
    tg_strmap_destroy(&map);
    assert_null(map);
}

static void map_keys_are_bytes(void **state)
{
    (void)state;
    tg_strmap *map = tg_strmap_create();
    int64_t v;
    assert_true(tg_strmap_set(map, "a\0b", 3, 1, NULL));
    assert_true(tg_strmap_set(map, "a\0c", 3, 2, NULL));
    assert_true(tg_strmap_set(map, "a", 1, 3, NULL));
    assert_true(tg_strmap_set(map, "", 0, 4, NULL));
    assert_true(tg_strmap_get(map, "a\0b", 3, &v) && v == 1);
    assert_true(tg_strmap_get(map, "a\0c", 3, &v) && v == 2);
    assert_true(tg_strmap_get(map, "a", 1, &v) && v == 3);
    assert_true(tg_strmap_get(map, "", 0, &v) && v == 4);
    assert_false(tg_strmap_get(map, "a\0", 2, &v));
    tg_strmap_destroy(&map);
}

static void map_survives_failed_allocations(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        tg_alloc_fail_at(n);
        tg_strmap *none = tg_strmap_create();
        assert_true(n <= 3 && none == NULL);
    }
    tg_alloc_fail_at(0);
    tg_strmap *map = tg_strmap_create();
    size_t inserted = 0;
    for (size_t i = 0; i < 400; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "%zu", i);
        tg_alloc_fail_at(1); /* every insertion that needs memory fails at first */
        bool ok = tg_strmap_set(map, key, (size_t)len, (int64_t)i, NULL);
        tg_alloc_fail_at(0);
        if (!ok) assert_true(tg_strmap_set(map, key, (size_t)len, (int64_t)i, NULL));
        inserted += ok;
    }
    assert_true(inserted < 400);
    assert_int_equal(tg_strmap_count(map), 400);
    int64_t v;
    assert_true(tg_strmap_get(map, "399", 3, &v) && v == 399);
    tg_strmap_destroy(&map);
}

static char last_line[5000];
static tg_log_level last_level;

static void remember(void *user, tg_log_level level, const char *line)
{
    ++*(int *)user;
    last_level = level;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void log_lines_reach_the_sink(void **state)
{
    (void)state;
    int lines = 0;
    tg_info("dropped");
    tg_log_set_sink(remember, &lines);
    tg_warn("%s %d", "disk", 7);
    assert_int_equal(lines, 1);
    assert_int_equal(last_level, TG_LOG_WARN);
    assert_string_equal(last_line, "disk 7");
    tg_info("%4000d", 1);
    assert_int_equal(strlen(last_line), 4000);
    tg_alloc_fail_at(1);
    tg_info("%4000d", 1);
    assert_int_equal(strlen(last_line), 1023);
    assert_int_equal(teng_error_status(), TENG_OK);
    tg_log_set_sink(NULL, NULL);
    tg_info("dropped");
    assert_int_equal(lines, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(strings_grow, clear),
        cmocka_unit_test_setup(a_failed_append_is_remembered, clear),
        cmocka_unit_test_setup(numbers_for_people, clear),
        cmocka_unit_test_setup(map_agrees_with_a_list, clear),
        cmocka_unit_test_setup(map_keys_are_bytes, clear),
        cmocka_unit_test_setup(map_survives_failed_allocations, clear),
        cmocka_unit_test_setup(log_lines_reach_the_sink, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
