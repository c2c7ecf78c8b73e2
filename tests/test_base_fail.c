/* The pending error: the first failure is kept, context is prepended, nothing overflows, threads are apart.
 */
#include "base/fail.h"
#include "base/thread.h"

#include "cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int clear(void **state)
{
    (void)state;
    teng_error_clear();
    return 0;
}

static void first_failure_is_kept(void **state)
{
    (void)state;
    assert_string_equal(teng_error(), "");
    assert_int_equal(teng_error_status(), TENG_OK);
    assert_int_equal(tg_fail(TENG_IO, "first %d", 1), TENG_IO);
    assert_int_equal(tg_fail(TENG_MEMORY, "second"), TENG_MEMORY);
    assert_int_equal(tg_fail_errno(TENG_FORMAT, ENOENT, "third"), TENG_FORMAT);
    assert_string_equal(teng_error(), "first 1");
    assert_int_equal(teng_error_status(), TENG_IO);
    teng_error_clear();
    assert_string_equal(teng_error(), "");
    tg_fail(TENG_FORMAT, "after");
    assert_string_equal(teng_error(), "after");
}

static void context_stands_in_front(void **state)
{
    (void)state;
    assert_int_equal(tg_fail_context("nothing is pending"), TENG_OK);
    assert_string_equal(teng_error(), "");
    tg_fail(TENG_FORMAT, "bad byte");
    assert_int_equal(tg_fail_context("offset %d", 7), TENG_FORMAT);
    assert_int_equal(tg_fail_context("file.bin"), TENG_FORMAT);
    assert_string_equal(teng_error(), "file.bin: offset 7: bad byte");
}

static void system_reason_is_appended(void **state)
{
    (void)state;
    assert_int_equal(tg_fail_errno(TENG_IO, ENOENT, "cannot open %s", "x"), TENG_IO);
    assert_string_equal(teng_error(), "cannot open x: No such file or directory");
}

static void long_messages_are_cut_and_say_so(void **state)
{
    (void)state;
    char big[4000];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    size_t room = sizeof(((tg_error *)0)->message) - 1;
    tg_fail(TENG_INVALID, "%s", big);
    assert_int_equal(strlen(teng_error()), room);
    assert_string_equal(teng_error() + room - 4, "a...");
    tg_fail_context("%s", "head");
    assert_int_equal(strlen(teng_error()), room);
    assert_memory_equal(teng_error(), "head: aaa", 9);
    assert_string_equal(teng_error() + room - 4, "a...");
    tg_fail_context("%s", big);
    assert_int_equal(strlen(teng_error()), room);
    teng_error_clear();
    tg_fail_errno(TENG_IO, ENOENT, "%s", big);
    assert_int_equal(strlen(teng_error()), room);
}

static teng_status inner(int code)
{
    return code ? tg_fail(TENG_STATE, "inner") : TENG_OK;
}

static teng_status outer(int code, int *reached)
{
    TG_TRY(inner(code));
    *reached = 1;
    return TENG_OK;
}

static void try_returns_early(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(outer(0, &reached), TENG_OK);
    assert_int_equal(reached, 1);
    reached = 0;
    assert_int_equal(outer(1, &reached), TENG_STATE);
    assert_int_equal(reached, 0);
}

static void fail_elsewhere(void *arg)
{
    tg_fail(TENG_NUMERIC, "in the other thread");
    tg_error_take(arg);
    if (teng_error_status() != TENG_OK) ((tg_error *)arg)->status = TENG_STATE; /* take clears */
}

static void errors_travel_between_threads(void **state)
{
    (void)state;
    tg_error error = {0};
    tg_thread *thread;
    assert_int_equal(tg_thread_start("failing", fail_elsewhere, &error, &thread), TENG_OK);
    tg_thread_join(&thread);
    assert_null(thread);
    assert_string_equal(teng_error(), "");
    assert_int_equal(tg_error_give(&error), TENG_NUMERIC);
    assert_string_equal(teng_error(), "in the other thread");
    tg_error later = {TENG_IO, "later"};
    assert_int_equal(tg_error_give(&later), TENG_IO);
    assert_string_equal(teng_error(), "in the other thread");
}

static void every_status_has_its_own_name(void **state)
{
    (void)state;
    for (int i = 0; i < TENG_STATUS_COUNT; i++) {
        assert_non_null(teng_status_name((teng_status)i));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(teng_status_name((teng_status)i), teng_status_name((teng_status)k));
    }
    assert_string_equal(teng_status_name((teng_status)99), "unknown");
    int major, minor, patch;
    assert_int_equal(sscanf(teng_version(), "%d.%d.%d", &major, &minor, &patch), 3);
}

static void nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"train.steps", "train.batch_size", "run.dir", "lr",
                                        "optimizer.beta1"};
    assert_string_equal(tg_nearest_name("train.step", names, 5), "train.steps");
    assert_string_equal(tg_nearest_name("trian.steps", names, 5), "train.steps");
    assert_string_equal(tg_nearest_name("train.batchsize", names, 5), "train.batch_size");
    assert_string_equal(tg_nearest_name("optimiser.beta1", names, 5), "optimizer.beta1");
    assert_string_equal(tg_nearest_name("l", names, 5) ? "found" : "none", "none");
    assert_string_equal(tg_nearest_name("rl", names, 5), "lr");
    assert_null(tg_nearest_name("", names, 5));
    assert_null(tg_nearest_name("completely.different", names, 5));
    char big[200];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    assert_null(tg_nearest_name(big, names, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(first_failure_is_kept, clear),
        cmocka_unit_test_setup(context_stands_in_front, clear),
        cmocka_unit_test_setup(system_reason_is_appended, clear),
        cmocka_unit_test_setup(long_messages_are_cut_and_say_so, clear),
        cmocka_unit_test_setup(try_returns_early, clear),
        cmocka_unit_test_setup(errors_travel_between_threads, clear),
        cmocka_unit_test_setup(every_status_has_its_own_name, clear),
        cmocka_unit_test_setup(nearest_name, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
