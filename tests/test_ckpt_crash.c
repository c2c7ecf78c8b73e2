/*
 * A child saves checkpoint after checkpoint and is killed with SIGKILL at a random moment, many times over.
 * After each death the latest checkpoint must be whole, hold the values of its step, and never be older than
 * the one before.
 */
#include "ckpt/checkpoint.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 20000, ROUNDS = 60 };
static char dir[64];
static float values[COUNT];

static void fill(int64_t step)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(step * 7 + i % 1000);
}

static teng_status submit(tg_ckpt_writer *writer, int64_t step)
{
    fill(step);
    tg_ckpt_item items[2] = {
        {.name = "w",
         .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){COUNT}),
         .data = values,
         .group = "model"},
        {.name = "m",
         .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){COUNT}),
         .data = values,
         .group = "optimizer"},
    };
    TG_TRY(tg_ckpt_writer_submit(writer, step, items, 2, NULL));
    return tg_ckpt_writer_status(writer);
}

static teng_status open_writer(bool async, tg_ckpt_writer **writer)
{
    return tg_ckpt_writer_create(dir, 2, async, (tg_ckpt_team){0}, writer);
}

/* Saves step after step until it is killed; the same step twice now and then, as the end of a run does. */
static void child(int64_t step, bool async)
{
    tg_ckpt_writer *writer;
    if (open_writer(async, &writer) != TENG_OK) _exit(3);
    for (;; step++)
        for (int times = step % 3 == 0 ? 2 : 1; times > 0; times--)
            if (submit(writer, step) != TENG_OK) _exit(4);
}

/* Seconds that one save takes on this disk: deaths are spread over a few of them. */
static double time_of_a_save(void)
{
    tg_ckpt_writer *writer;
    assert_int_equal(open_writer(false, &writer), TENG_OK);
    assert_int_equal(submit(writer, 0), TENG_OK);
    double start = tg_clock_seconds();
    assert_int_equal(submit(writer, 1), TENG_OK);
    double seconds = tg_clock_seconds() - start;
    tg_ckpt_writer_destroy(&writer);
    return seconds;
}

static int64_t check_latest(void)
{
    char *path;
    tg_ckpt *ck;
    if (tg_ckpt_latest(dir, false, &path) != TENG_OK) fail_msg("%s", teng_error());
    if (!path) return 0;
    if (tg_ckpt_open(path, false, &ck) != TENG_OK) fail_msg("%s", teng_error());
    int64_t step = tg_ckpt_step(ck);
    fill(step);
    assert_memory_equal(tg_ckpt_find(ck, "model", "w")->data, values, sizeof values);
    assert_memory_equal(tg_ckpt_find(ck, "optimizer", "m")->data, values, sizeof values);
    tg_ckpt_close(&ck);
    tg_free(path);
    return step;
}

static void killed_while_saving(void **state)
{
    (void)state;
    int64_t last = 1, rounds = 0, rounds_with_progress = 0;
    double save = time_of_a_save(), end = tg_clock_seconds() + 15;
    uint64_t key = tg_rng_key(7, "moments of death"), longest = (uint64_t)(6e6 * save) + 2000;
    for (; rounds < ROUNDS && tg_clock_seconds() < end; rounds++) {
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) child(last + 1, rounds % 2);
        usleep((useconds_t)(500 + tg_rng_below(key, (uint64_t)rounds, longest)));
        int status;
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it did not end by itself */
        int64_t now = check_latest();
        assert_true(now >= last);
        rounds_with_progress += now > last;
        last = now;
    }
    assert_true(rounds_with_progress > rounds / 10); /* deaths came during saves, not only before them */
    char **names;
    size_t n;
    assert_int_equal(tg_list_dir(dir, &names, &n), TENG_OK);
    assert_in_range(n, 1, 5); /* two kept, one more before its pruning, one in the making, one half removed */
    tg_names_free(names, n);
}

int main(void)
{
    strcpy(dir, "test_ckpt_crash.XXXXXX");
    if (!mkdtemp(dir)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_while_saving)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return tg_remove_tree(dir) == TENG_OK ? failed : 1;
}
