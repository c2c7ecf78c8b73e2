/* JSON: places in errors, duplicate keys, numbers that read back to the same bits, checked members. */
#include "base/fail.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int clear(void **state)
{
    (void)state;
    teng_error_clear();
    tg_alloc_fail_at(0);
    return 0;
}

static json_t *parse(const char *text)
{
    json_t *v = NULL;
    if (tg_json_parse("f.json", text, strlen(text), &v) != TENG_OK) print_message("%s\n", teng_error());
    assert_non_null(v);
    return v;
}

static void assert_refused(const char *text, size_t len, const char *place, const char *words)
{
    json_t *v;
    teng_error_clear();
    assert_int_equal(tg_json_parse("f.json", text, len, &v), TENG_FORMAT);
    assert_null(v);
    if (!strstr(teng_error(), place) || !strstr(teng_error(), words))
        fail_msg("message was: %s", teng_error());
}

static void errors_name_the_place(void **state)
{
    (void)state;
    assert_refused("{\"a\": 1,\n  \"b\" 2}", 18, "f.json:2:7:", "':' expected");
    assert_refused("{\"a\": 1, \"a\": 2}", 16, "f.json:1:", "duplicate object key");
    assert_refused("[1] x", 5, "f.json:1:", "end of file expected");
    assert_refused("[1", 2, "f.json:1:", "near end of file");
    assert_refused("\"\xff\"", 3, "f.json:1:", "unable to decode byte 0xff");
    assert_refused("\"\\u0000\"", 8, "f.json:1:", "\\u0000");
    assert_refused("9223372036854775808", 19, "f.json:1:", "too big integer");
    assert_refused("", 0, "f.json", "the file is empty");
    char deep[8000];
    memset(deep, '[', sizeof deep);
    assert_refused(deep, sizeof deep, "f.json:1:", "maximum parsing depth");
}

static void text_comes_back(void **state)
{
    (void)state;
    const char *line = "{\"z\":[1,-9223372036854775808,1.0,true,false,null],\"a\":{},\"e\":[],"
                       "\"s\":\"q\\\"b\\\\\\b\\f\\n\\r\\t\\u0001\xc3\xa9\x7f\"}";
    json_t *v = parse(line);
    char *text = tg_json_text(v, 0);
    assert_string_equal(text, line); /* key order, escapes, integers and reals are kept */
    tg_free(text);
    json_decref(v);
    v = parse("{\"a\":[1,{\"b\":2.5}]}");
    text = tg_json_text(v, 2);
    assert_string_equal(text, "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2.5\n    }\n  ]\n}");
    tg_free(text);
    tg_alloc_fail_at(1);
    assert_null(tg_json_text(v, 0));
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    json_decref(v);
    teng_error_clear();
    assert_null(tg_json_text(NULL, 0));
    assert_int_equal(teng_error_status(), TENG_INVALID);
}

static void doubles_read_back(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        tg_rand4 r = tg_philox(5, i, 0);
        uint64_t bits = (uint64_t)r.v[0] << 32 | r.v[1];
        double x, y;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        json_t *v = json_real(x);
        char *text = tg_json_text(v, 0);
        json_decref(v);
        v = parse(text);
        assert_true(json_is_real(v));
        y = json_real_value(v);
        assert_memory_equal(&x, &y, sizeof x);
        json_decref(v);
        tg_free(text);
    }
}

static void assert_float_text(float x, const char *expected)
{
    char buf[32];
    assert_ptr_equal(tg_json_float(buf, x), buf);
    assert_string_equal(buf, expected);
}

static void floats_read_back(void **state)
{
    (void)state;
    char buf[32];
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t bits = tg_philox(6, i, 0).v[0];
        float x, y;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        y = strtof(tg_json_float(buf, x), NULL);
        assert_memory_equal(&x, &y, sizeof x);
        assert_true(strlen(buf) < 32);
    }
    assert_float_text(0.1f, "0.1");
    assert_float_text(3.0f, "3.0");
    assert_float_text(-0.0f, "-0.0");
    assert_float_text(1e-45f, "1.4013e-45");
    assert_float_text(3.40282347e38f, "3.4028235e+38");
    assert_float_text(16777216.0f, "16777216.0");
    assert_float_text(NAN, "null");
    assert_float_text(-INFINITY, "null");
}

static void members_are_checked(void **state)
{
    (void)state;
    json_t *o = parse("{\"i\": 7, \"r\": 2.5, \"b\": true, \"s\": \"txt\", \"n\": null, \"list\": [1, 2]}");
    int64_t i = -1;
    double r = -1;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(tg_json_get_int(o, "c.json", "i", true, &i), TENG_OK);
    assert_int_equal(i, 7);
    assert_int_equal(tg_json_get_real(o, "c.json", "r", true, &r), TENG_OK);
    assert_true(r == 2.5);
    assert_int_equal(tg_json_get_real(o, "c.json", "i", true, &r), TENG_OK);
    assert_true(r == 7.0);
    assert_int_equal(tg_json_get_bool(o, "c.json", "b", true, &b), TENG_OK);
    assert_true(b);
    assert_int_equal(tg_json_get_string(o, "c.json", "s", true, &s), TENG_OK);
    assert_string_equal(s, "txt");
    i = 33;
    assert_int_equal(tg_json_get_int(o, "c.json", "absent", false, &i), TENG_OK);
    assert_int_equal(tg_json_get_int(o, "c.json", "n", false, &i), TENG_OK);
    assert_int_equal(i, 33);
    assert_int_equal(tg_json_get_int(o, "c.json", "n", true, &i), TENG_FORMAT);
    assert_string_equal(teng_error(), "c.json: the key \"n\" is missing");
    teng_error_clear();
    assert_int_equal(tg_json_get_int(o, "c.json", "r", false, &i), TENG_FORMAT);
    assert_string_equal(teng_error(), "c.json: the key \"r\" must be an integer, found 2.5");
    teng_error_clear();
    assert_int_equal(tg_json_get_bool(o, "c.json", "s", false, &b), TENG_FORMAT);
    assert_string_equal(teng_error(), "c.json: the key \"s\" must be true or false, found \"txt\"");
    teng_error_clear();
    assert_int_equal(tg_json_get_string(o, "c.json", "list", false, &s), TENG_FORMAT);
    assert_string_equal(teng_error(), "c.json: the key \"list\" must be a string, found [1,2]");
    teng_error_clear();
    assert_int_equal(tg_json_get_real(o, "c.json", "b", false, &r), TENG_FORMAT);
    assert_string_equal(teng_error(), "c.json: the key \"b\" must be a number, found true");
    teng_error_clear();
    assert_int_equal(tg_json_get_int(json_object_get(o, "list"), "c.json", "i", false, &i), TENG_FORMAT);
    assert_string_equal(teng_error(), "c.json: an object with the key \"i\" is needed");
    json_decref(o);
}

static void files_are_saved_and_loaded(void **state)
{
    (void)state;
    const char *path = "test_base_json.tmp.json";
    json_t *v = parse("{\"a\": 0.1}"), *w = NULL;
    assert_int_equal(tg_json_save_file(path, v), TENG_OK);
    assert_int_equal(tg_json_load_file(path, &w), TENG_OK);
    assert_true(json_equal(v, w));
    json_decref(w);
    assert_int_equal(tg_file_write(path, "{\n\n oops}", 9), TENG_OK);
    assert_int_equal(tg_json_load_file(path, &w), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "test_base_json.tmp.json:3:"));
    remove(path);
    teng_error_clear();
    assert_int_equal(tg_json_load_file("no/such.json", &w), TENG_IO);
    assert_string_equal(teng_error(), "cannot open no/such.json: No such file or directory");
    assert_null(w);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(errors_name_the_place, clear),
        cmocka_unit_test_setup(text_comes_back, clear),
        cmocka_unit_test_setup(doubles_read_back, clear),
        cmocka_unit_test_setup(floats_read_back, clear),
        cmocka_unit_test_setup(members_are_checked, clear),
        cmocka_unit_test_setup(files_are_saved_and_loaded, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
