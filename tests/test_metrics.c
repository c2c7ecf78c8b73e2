/* metrics.jsonl: floats that read back to the same bits, torn lines, full disks, cutting back, reading, bad
 * lines. */
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "monitor/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#define FILE_NAME "test_metrics.jsonl"

static void write_text(const char *text)
{
    assert_int_equal(tg_file_write(FILE_NAME, text, strlen(text)), TENG_OK);
}

static void assert_text(const char *expect)
{
    char *text;
    assert_int_equal(tg_file_read(FILE_NAME, &text, NULL), TENG_OK);
    assert_string_equal(text, expect);
    tg_free(text);
}

static void assert_says(const char *part)
{
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
}

static tg_metrics *fresh(void)
{
    tg_metrics *m;
    unlink(FILE_NAME);
    assert_int_equal(tg_metrics_open(FILE_NAME, &m), TENG_OK);
    return m;
}

static void test_exact_lines(void **state)
{
    (void)state;
    tg_metrics *m = fresh();
    tg_metrics_step s = {3, 0.25, 5.4375f, 3e-4f, 1.5f, 24576, 51234.5, 0.5, 160.25, 0.0078125};
    assert_int_equal(tg_metrics_put_step(m, &s), TENG_OK);
    s = (tg_metrics_step){4, 0.5, NAN, 3e-4f, INFINITY, (int64_t)1 << 60, 1, (double)NAN, 2, 0};
    assert_int_equal(tg_metrics_put_step(m, &s), TENG_OK);
    assert_int_equal(tg_metrics_put_eval(m, &(tg_metrics_eval){4, 4.5f, 1.25, 999}), TENG_OK);
    tg_metrics_close(&m);
    assert_null(m);
    assert_text(
        "{\"type\":\"step\",\"step\":3,\"epoch\":0.25,\"loss\":5.4375,\"lr\":0.0003,\"grad_norm\":1.5,"
        "\"tokens\":24576,\"tokens_per_s\":51234.5,\"mfu\":0.5,\"step_ms\":160.25,\"data_wait\":0.0078125}\n"
        "{\"type\":\"step\",\"step\":4,\"epoch\":0.5,\"loss\":null,\"lr\":0.0003,\"grad_norm\":null,"
        "\"tokens\":1152921504606846976,\"tokens_per_s\":1.0,\"mfu\":null,\"step_ms\":2.0,\"data_wait\":0.0}"
        "\n"
        "{\"type\":\"eval\",\"step\":4,\"val_loss\":4.5,\"bits_per_byte\":1.25,\"tokens\":999}\n");
}

static void test_other_lines(void **state)
{
    (void)state;
    tg_metrics *m = fresh();
    json_t *config = json_pack("{s:i, s:s}", "layers", 2, "name", "t\xc3\xa4g");
    tg_metrics_run run = {
        .first_step = 5, .steps = 40, .parameters = 123456, .threads = 2, .mode = "graph", .config = config};
    assert_int_equal(tg_metrics_put_run(m, &run), TENG_OK);
    assert_int_equal(tg_metrics_put_checkpoint(m, 10, "a\"\xff\n/b", 77, 0.5), TENG_OK);
    assert_int_equal(tg_metrics_put_note(m, 11, "loss spike"), TENG_OK);
    tg_metrics_close(&m);
    json_decref(config);
    char *text;
    assert_int_equal(tg_file_read(FILE_NAME, &text, NULL), TENG_OK);
    json_t *line[3];
    char *p = text;
    for (int i = 0; i < 3; i++) {
        char *newline = strchr(p, '\n');
        assert_int_equal(tg_json_parse("line", p, (size_t)(newline - p), &line[i]), TENG_OK);
        assert_int_equal(strlen(json_string_value(json_object_get(line[i], "time"))), 20);
        p = newline + 1;
    }
    assert_int_equal(*p, 0);
    assert_int_equal(json_integer_value(json_object_get(line[0], "step")), 5);
    assert_int_equal(json_integer_value(json_object_get(line[0], "parameters")), 123456);
    assert_string_equal(json_string_value(json_object_get(line[0], "version")), teng_version());
    assert_string_equal(json_string_value(json_object_get(line[0], "mode")), "graph");
    assert_null(json_object_get(line[0], "dtype"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(line[0], "config"), "name")),
                        "t\xc3\xa4g");
    assert_string_equal(json_string_value(json_object_get(line[1], "path")), "a\"\xef\xbf\xbd /b");
    assert_int_equal(json_integer_value(json_object_get(line[1], "bytes")), 77);
    assert_string_equal(json_string_value(json_object_get(line[2], "text")), "loss spike");
    for (int i = 0; i < 3; i++)
        json_decref(line[i]);
    tg_free(text);
}

static void test_floats_read_back(void **state)
{
    (void)state;
    enum { N = 3000 };
    float *value = tg_alloc(N * sizeof *value);
    tg_metrics *m = fresh();
    uint64_t allocations = 0;
    for (int i = 0; i < N; i++) {
        union {
            uint32_t u;
            float f;
        } bits = {(uint32_t)(tg_rng_double(1, (uint64_t)i) * 4294967296.0)};
        value[i] = i % 2 && isfinite(bits.f) ? bits.f : 2 + (float)i * 0.000731f;
        tg_metrics_step s = {.step = i + 1, .loss = value[i], .lr = value[i] / 3, .tokens = i, .step_ms = 1};
        assert_int_equal(tg_metrics_put_step(m, &s), TENG_OK);
        if (i == 10) allocations = tg_alloc_count();
    }
    assert_true(tg_alloc_count() <= allocations + 1); /* the line may grow once more; never one a step */
    tg_metrics_close(&m);
    tg_metrics_series series = {0};
    assert_int_equal(tg_metrics_read(FILE_NAME, &series), TENG_OK);
    assert_int_equal(series.train.len, N);
    for (int i = 0; i < N; i++) {
        float lr = value[i] / 3;
        assert_int_equal(series.train.data[i].step, i + 1);
        assert_memory_equal(&series.train.data[i].loss, &value[i], sizeof(float));
        assert_memory_equal(&series.train.data[i].lr, &lr, sizeof(float));
    }
    tg_metrics_series_free(&series);
    tg_free(value);
}

#define STEP(n, loss)                                                                                        \
    "{\"type\":\"step\",\"step\":" #n ",\"loss\":" #loss ",\"tokens\":" #n "00,\"step_ms\":3600}\n"
#define EVAL(n, loss) "{\"type\":\"eval\",\"step\":" #n ",\"val_loss\":" #loss "}\n"

static void test_torn_line_is_cut_on_open(void **state)
{
    (void)state;
    tg_metrics *m;
    write_text(STEP(1, 5.0) "{\"type\":\"st");
    assert_int_equal(tg_metrics_open(FILE_NAME, &m), TENG_OK);
    assert_text(STEP(1, 5.0));
    assert_int_equal(tg_metrics_put_eval(m, &(tg_metrics_eval){1, 2, 1, 3}), TENG_OK);
    tg_metrics_close(&m);
    assert_text(
        STEP(1, 5.0) "{\"type\":\"eval\",\"step\":1,\"val_loss\":2.0,\"bits_per_byte\":1.0,\"tokens\":3}\n");

    char *torn = tg_calloc(1, 10001); /* longer than one read */
    memset(torn, 'x', 10000);
    write_text(torn);
    assert_int_equal(tg_metrics_open(FILE_NAME, &m), TENG_OK);
    tg_metrics_close(&m);
    assert_text("");
    tg_free(torn);
}

static void test_truncate_after(void **state)
{
    (void)state;
    const char *head = "{\"type\":\"run\",\"step\":0}\n" STEP(1, 5.0) STEP(2, 4.0) EVAL(2, 4.5);
    char all[1024];
    snprintf(all, sizeof all, "%s%s", head,
             STEP(3, 3.0) "{\"type\":\"run\",\"step\":3}\n{\"type\":\"note\",\"step\":4}\n" STEP(
                 4, 2.0) "{\"type\":");
    write_text(all);
    assert_int_equal(tg_metrics_truncate_after(FILE_NAME, 2), TENG_OK);
    assert_text(head);
    assert_int_equal(tg_metrics_truncate_after(FILE_NAME, 2), TENG_OK);
    assert_text(head);
    assert_int_equal(tg_metrics_truncate_after(FILE_NAME, 0), TENG_OK);
    assert_text("{\"type\":\"run\",\"step\":0}\n");
    unlink(FILE_NAME);
    assert_int_equal(tg_metrics_truncate_after(FILE_NAME, 0), TENG_OK);
    assert_false(tg_path_exists(FILE_NAME));
}

static void keep_line(void *user, tg_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 256, "%s", line);
}

static void test_truncate_keeps_strange_lines(void **state)
{
    (void)state;
    char warning[256] = "";
    tg_log_set_sink(keep_line, warning);
    write_text(STEP(1, 5.0) "damaged\n[1]\n" STEP(2, 4.0));
    assert_int_equal(tg_metrics_truncate_after(FILE_NAME, 1), TENG_OK);
    tg_log_set_sink(NULL, NULL);
    assert_text(STEP(1, 5.0) "damaged\n[1]\n");
    assert_string_equal(warning, FILE_NAME ":2: not valid JSON, kept as it is");
}

static void test_full_disk(void **state)
{
    (void)state;
    tg_metrics *m;
    tg_metrics_step s = {.step = 1, .loss = 2};
    assert_int_equal(tg_metrics_open("/dev/full", &m), TENG_OK);
    assert_int_equal(tg_metrics_put_step(m, &s), TENG_IO);
    assert_says("/dev/full: cannot write a line of ");
    tg_metrics_close(&m);

    /* Room for half a line only: nothing of it may stay, and the next try succeeds. */
    m = fresh();
    assert_int_equal(tg_metrics_put_step(m, &s), TENG_OK);
    int64_t size = tg_file_size(FILE_NAME);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = (rlim_t)size + 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    teng_status status = tg_metrics_put_step(m, &s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, TENG_IO);
    assert_says("No space left");
    assert_int_equal(tg_file_size(FILE_NAME), size);
    assert_int_equal(tg_metrics_put_step(m, &s), TENG_OK);
    assert_int_equal(tg_file_size(FILE_NAME), 2 * size);
    tg_metrics_close(&m);

    assert_int_equal(tg_metrics_open("no-such-folder/m.jsonl", &m), TENG_IO);
    assert_null(m);
    assert_says("no-such-folder/m.jsonl: cannot open for appending");
}

static void test_read(void **state)
{
    (void)state;
    write_text("{\"type\":\"run\",\"step\":0}\n" EVAL(0, 6.0) STEP(1, 5.0) STEP(2, null) STEP(4, 4.0)
                   EVAL(3, 4.5) EVAL(4, 4.25) STEP(5, 9.0) STEP(5, 3.0) "{\"type\":\"st");
    tg_metrics_series s = {0};
    assert_int_equal(tg_metrics_read(FILE_NAME, &s), TENG_OK);
    assert_int_equal(s.train.len, 4);
    assert_int_equal(s.eval.len, 3);
    assert_true(isnan(s.train.data[1].loss));
    assert_true(isnan(s.train.data[1].mfu)); /* absent */
    assert_true(s.train.data[3].loss == 3.0f);
    assert_true(s.train.data[3].tokens == 500);
    assert_true(fabs(s.train.data[3].hours - 0.005) < 1e-12); /* five steps of 3.6 s, the gap counted twice */
    assert_true(s.eval.data[0].tokens == 0 && s.eval.data[0].loss == 6.0f);
    assert_true(s.eval.data[1].tokens == 300); /* between steps 2 and 4 */
    assert_true(s.eval.data[2].tokens == 400);
    tg_metrics_series_free(&s);
}

static void refuses(const char *text, const char *part)
{
    tg_metrics_series s = {0};
    write_text(text);
    assert_int_equal(tg_metrics_read(FILE_NAME, &s), TENG_FORMAT);
    assert_says(part);
    tg_metrics_series_free(&s);
}

static void test_bad_lines_are_named(void **state)
{
    (void)state;
    refuses(STEP(1, 5.0) "{\"type\": oops}\n", FILE_NAME ":2: not a JSON object: ");
    refuses(STEP(1, 5.0) STEP(2, 5.0) "\n", FILE_NAME ":3: ");
    refuses("7\n", FILE_NAME ":1: not a JSON object");
    refuses("{\"step\":1}\n", FILE_NAME ":1: ");
    refuses("{\"type\":\"step\",\"loss\":1.0}\n", "\"step\"");
    refuses("{\"type\":\"step\",\"step\":1}\n", FILE_NAME ":1: a step without \"loss\"");
    refuses("{\"type\":\"eval\",\"step\":1}\n", FILE_NAME ":1: an evaluation without \"val_loss\"");
    tg_metrics_series s = {0};
    write_text("{\"type\":\"step\",\"step\":1,\"loss\":\"x\"}\n");
    assert_true(tg_metrics_read(FILE_NAME, &s) != TENG_OK);
    assert_says("loss");
    tg_metrics_series_free(&s);
    unlink(FILE_NAME);
    assert_int_equal(tg_metrics_read(FILE_NAME, &s), TENG_IO);
    assert_says(FILE_NAME);
}

static void test_clean_text(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\tb\x7f", "a b "},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                                   /* overlong */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                   /* surrogate */
        {"\xf4\x90\x80\x80x", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx"}, /* beyond the last */
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},                                   /* cut short */
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        tg_strbuf out = {0};
        tg_metrics_clean_text(&out, pairs[i][0]);
        assert_string_equal(tg_strbuf_str(&out), pairs[i][1]);
        tg_strbuf_free(&out);
    }
}

static void test_out_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        tg_metrics *m = NULL;
        write_text(STEP(1, 5.0) EVAL(1, 5.0));
        tg_alloc_fail_at(n);
        teng_status status = tg_metrics_open(FILE_NAME, &m);
        if (status == TENG_OK) status = tg_metrics_put_note(m, 2, "text");
        tg_metrics_series s = {0};
        if (status == TENG_OK) status = tg_metrics_read(FILE_NAME, &s);
        tg_alloc_fail_at(0);
        tg_metrics_series_free(&s);
        tg_metrics_close(&m);
        teng_error_clear();
        if (status == TENG_OK) {
            assert_true(n > 4);
            break;
        }
        assert_int_equal(status, TENG_MEMORY);
        assert_true(n < 1000);
    }
    unlink(FILE_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_lines),         cmocka_unit_test(test_other_lines),
        cmocka_unit_test(test_floats_read_back),    cmocka_unit_test(test_torn_line_is_cut_on_open),
        cmocka_unit_test(test_truncate_after),      cmocka_unit_test(test_truncate_keeps_strange_lines),
        cmocka_unit_test(test_full_disk),           cmocka_unit_test(test_read),
        cmocka_unit_test(test_bad_lines_are_named), cmocka_unit_test(test_clean_text),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
