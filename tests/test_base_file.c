/* Files: crash-safe writing (a killed writer, a full disk, a size limit), maps, folders, locks between
 * processes. */
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"

#include "cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static int enter(void **state)
{
    (void)state;
    teng_error_clear();
    strcpy(dir, "test_base_file.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    tg_alloc_fail_at(0);
    teng_error_clear();
    return tg_remove_tree(dir) == TENG_OK && !tg_path_exists(dir) ? 0 : -1;
}

static const char *in_dir(const char *name)
{
    static char paths[4][128];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static void assert_content(const char *path, const char *expected)
{
    char *text;
    size_t size;
    assert_int_equal(tg_file_read(path, &text, &size), TENG_OK);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(text, expected);
    tg_free(text);
}

static size_t files_in_dir(void)
{
    char **names;
    size_t count;
    assert_int_equal(tg_list_dir(dir, &names, &count), TENG_OK);
    tg_names_free(names, count);
    return count;
}

static void a_file_appears_when_complete(void **state)
{
    (void)state;
    const char *path = in_dir("a");
    tg_writer *w;
    assert_int_equal(tg_writer_open(path, &w), TENG_OK);
    assert_int_equal(tg_writer_put(w, "????", 4), TENG_OK);
    assert_int_equal(tg_writer_put(w, " tail", 5), TENG_OK);
    assert_int_equal(tg_writer_offset(w), 9);
    assert_int_equal(tg_writer_seek(w, 0), TENG_OK);
    assert_int_equal(tg_writer_put(w, "head", 4), TENG_OK);
    assert_false(tg_path_exists(path));
    assert_int_equal(tg_writer_commit(&w), TENG_OK);
    assert_null(w);
    assert_content(path, "head tail");
    assert_int_equal(files_in_dir(), 1);
}

static void an_aborted_writer_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = in_dir("a");
    assert_int_equal(tg_file_write(path, "old", 3), TENG_OK);
    tg_writer *w;
    assert_int_equal(tg_writer_open(path, &w), TENG_OK);
    assert_int_equal(tg_writer_put(w, "new", 3), TENG_OK);
    tg_writer_abort(&w);
    assert_null(w);
    tg_writer_abort(&w);
    assert_content(path, "old");
    assert_int_equal(files_in_dir(), 1);
}

static void a_killed_writer_leaves_the_old_file(void **state)
{
    (void)state;
    const char *old = in_dir("old"), *fresh = in_dir("fresh");
    assert_int_equal(tg_file_write(old, "old", 3), TENG_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static char big[1 << 20];
        tg_writer *w[2];
        bool ok = tg_writer_open(old, &w[0]) == TENG_OK && tg_writer_open(fresh, &w[1]) == TENG_OK;
        for (int i = 0; i < 2 && ok; i++)
            ok = tg_writer_put(w[i], big, sizeof big) == TENG_OK;
        if (ok) kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_content(old, "old");
    assert_false(tg_path_exists(fresh));
}

static void large_writes_keep_their_order(void **state)
{
    (void)state;
    enum { N = 700001 };
    unsigned char *data = tg_alloc(N);
    for (int i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 7 % 251);
    tg_writer *w;
    assert_int_equal(tg_writer_open(in_dir("big"), &w), TENG_OK);
    for (size_t at = 0, piece = 1; at < N; at += piece, piece = piece * 2 + 1) {
        if (piece > N - at) piece = N - at;
        assert_int_equal(tg_writer_put(w, data + at, piece), TENG_OK);
    }
    assert_int_equal(tg_writer_commit(&w), TENG_OK);
    assert_int_equal(tg_file_size(in_dir("big")), N);
    tg_map map;
    assert_int_equal(tg_map_open(in_dir("big"), &map), TENG_OK);
    assert_int_equal(map.size, N);
    assert_memory_equal(map.data, data, N);
    tg_map_close(&map);
    tg_map_close(&map);
    assert_int_equal(tg_file_copy(in_dir("big"), in_dir("copy")), TENG_OK);
    assert_int_equal(tg_file_size(in_dir("copy")), N);
    tg_free(data);
}

static void a_full_disk_says_so(void **state)
{
    (void)state;
    struct stat before, after;
    assert_int_equal(stat("/dev/full", &before), 0);
    assert_int_equal(tg_file_write("/dev/full", "x", 1), TENG_IO);
    assert_string_equal(teng_error(),
                        "cannot write /dev/full: the disk is full (no space left on device) at byte 1; "
                        "free some space and try again");
    assert_int_equal(stat("/dev/full", &after), 0); /* the device itself is untouched */
    assert_true(S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
    teng_error_clear();
    assert_int_equal(tg_file_write("/dev/null", "x", 1), TENG_OK);
}

static void a_refused_write_removes_the_temporary(void **state)
{
    (void)state;
    const char *path = in_dir("limited");
    assert_int_equal(tg_file_write(path, "old", 3), TENG_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static char big[1 << 20];
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {300000, 300000};
        bool ok = setrlimit(RLIMIT_FSIZE, &limit) == 0 && tg_file_write(path, big, sizeof big) == TENG_IO &&
                  strstr(teng_error(), "File too large") != NULL;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_content(path, "old");
    assert_int_equal(files_in_dir(), 1);
}

static void links_are_written_through(void **state)
{
    (void)state;
    assert_int_equal(tg_file_write(in_dir("real"), "old", 3), TENG_OK);
    assert_int_equal(symlink("real", in_dir("link")), 0);
    assert_int_equal(tg_file_write(in_dir("link"), "new", 3), TENG_OK);
    assert_content(in_dir("real"), "new");
    struct stat st;
    assert_int_equal(lstat(in_dir("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void assert_io_error(teng_status status, const char *words)
{
    assert_int_equal(status, TENG_IO);
    if (!strstr(teng_error(), words)) fail_msg("message was: %s", teng_error());
    teng_error_clear();
}

static void errors_name_path_and_reason(void **state)
{
    (void)state;
    tg_map map;
    tg_writer *w;
    char *text, **names;
    size_t n;
    assert_io_error(tg_map_open(in_dir("none"), &map), "none: No such file or directory");
    assert_io_error(tg_map_open(dir, &map), "it is a folder");
    assert_io_error(tg_map_open("/dev/zero", &map), "it is a device or a pipe");
    assert_io_error(tg_file_read(in_dir("none"), &text, NULL), "none: No such file or directory");
    assert_io_error(tg_file_read(dir, &text, NULL), "Is a directory");
    assert_io_error(tg_writer_open(dir, &w), "it is a folder");
    assert_io_error(tg_writer_open(in_dir("none/x"), &w), "No such file or directory");
    assert_null(w);
    assert_io_error(tg_list_dir(in_dir("none"), &names, &n), "cannot list the folder");
    assert_io_error(tg_rename(in_dir("none"), in_dir("b")), "cannot rename");
    assert_int_equal(tg_file_write(in_dir("file"), "", 0), TENG_OK);
    assert_io_error(tg_mkdirs(in_dir("file/sub")), "cannot make the folder");
    assert_int_equal(tg_file_size(in_dir("none")), -1);
    for (uint64_t i = 1; i <= 3; i++) {
        tg_alloc_fail_at(i);
        assert_int_equal(tg_file_write(in_dir("m"), "x", 1), TENG_MEMORY);
        teng_error_clear();
    }
    tg_alloc_fail_at(0);
    assert_false(tg_path_exists(in_dir("m")));
}

static void empty_files(void **state)
{
    (void)state;
    tg_map map;
    assert_int_equal(tg_file_write(in_dir("empty"), NULL, 0), TENG_OK);
    assert_int_equal(tg_map_open(in_dir("empty"), &map), TENG_OK);
    assert_int_equal(map.size, 0);
    assert_string_equal((const char *)map.data, "");
    tg_map_close(&map);
    assert_content(in_dir("empty"), "");
}

static void folders(void **state)
{
    (void)state;
    assert_int_equal(tg_mkdirs(in_dir("x/y//z/")), TENG_OK);
    assert_int_equal(tg_mkdirs(in_dir("x/y/z")), TENG_OK);
    assert_true(tg_path_is_dir(in_dir("x/y/z")));
    assert_int_equal(tg_file_write(in_dir("x/b"), "1", 1), TENG_OK);
    assert_int_equal(tg_file_write(in_dir("x/a"), "2", 1), TENG_OK);
    assert_int_equal(tg_file_write(in_dir("x/C"), "3", 1), TENG_OK);
    char **names;
    size_t n;
    assert_int_equal(tg_list_dir(in_dir("x"), &names, &n), TENG_OK);
    assert_int_equal(n, 4);
    static const char *const sorted[] = {"C", "a", "b", "y"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(names[i], sorted[i]);
    tg_names_free(names, n);
    assert_int_equal(tg_rename(in_dir("x"), in_dir("renamed")), TENG_OK);
    assert_false(tg_path_exists(in_dir("x")));
    assert_content(in_dir("renamed/C"), "3");
    assert_int_equal(tg_remove_tree(in_dir("renamed")), TENG_OK);
    assert_false(tg_path_exists(in_dir("renamed")));
    assert_int_equal(tg_remove_tree(in_dir("never")), TENG_OK);
    char *p = tg_path_join("a/", "b"), *q = tg_path_join("a", "b"), *r = tg_path_join("", "b");
    char *s = tg_path_join("a", "/b");
    assert_string_equal(p, "a/b");
    assert_string_equal(q, "a/b");
    assert_string_equal(r, "b");
    assert_string_equal(s, "/b");
    tg_free(p);
    tg_free(q);
    tg_free(r);
    tg_free(s);
    assert_string_equal(tg_path_base("x/y.c"), "y.c");
    assert_string_equal(tg_path_base("y.c"), "y.c");
}

/* A child takes the lock, says so through a pipe and waits to be killed. */
static pid_t child_that_locks(const char *path)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tg_lock *lock;
        char ok = tg_lock_take(path, &lock) == TENG_OK;
        (void)!write(ready[1], &ok, 1);
        for (;;)
            pause();
    }
    char ok = 0;
    assert_int_equal(read(ready[0], &ok, 1), 1);
    assert_int_equal(ok, 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void a_lock_ends_with_its_process(void **state)
{
    (void)state;
    const char *path = in_dir("lock");
    char expected[200];
    pid_t child = child_that_locks(path);
    tg_lock *lock;
    assert_int_equal(tg_lock_take(path, &lock), TENG_STATE);
    assert_null(lock);
    snprintf(expected, sizeof expected,
             "%s is locked by the running process %ld: stop it, or use another folder", path, (long)child);
    assert_string_equal(teng_error(), expected);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    teng_error_clear();
    assert_int_equal(tg_lock_take(path, &lock), TENG_OK);
    tg_lock *second;
    assert_int_equal(tg_lock_take(path, &second), TENG_STATE); /* in one process too */
    tg_lock_release(&lock);
    assert_null(lock);
    tg_lock_release(&lock);
    teng_error_clear();
    assert_int_equal(tg_lock_take(path, &lock), TENG_OK);
    tg_lock_release(&lock);
    assert_io_error(tg_lock_take(in_dir("none/lock"), &lock), "cannot open the lock file");
}

static void clocks(void **state)
{
    (void)state;
    char buf[32];
    assert_string_equal(tg_clock_iso(buf, 0), "1970-01-01T00:00:00Z");
    assert_string_equal(tg_clock_iso(buf, 1772368496), "2026-03-01T12:34:56Z");
    double a = tg_clock_seconds();
    usleep(2000);
    double passed = tg_clock_seconds() - a;
    assert_true(passed >= 0.002 && passed < 10.0);
    assert_true(tg_clock_unix() > 1700000000);
    assert_true(tg_current_rss() > 100000);
    assert_true(tg_peak_rss() > 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_appears_when_complete, enter, leave),
        cmocka_unit_test_setup_teardown(an_aborted_writer_leaves_the_old_file, enter, leave),
        cmocka_unit_test_setup_teardown(a_killed_writer_leaves_the_old_file, enter, leave),
        cmocka_unit_test_setup_teardown(large_writes_keep_their_order, enter, leave),
        cmocka_unit_test_setup_teardown(a_full_disk_says_so, enter, leave),
        cmocka_unit_test_setup_teardown(a_refused_write_removes_the_temporary, enter, leave),
        cmocka_unit_test_setup_teardown(links_are_written_through, enter, leave),
        cmocka_unit_test_setup_teardown(errors_name_path_and_reason, enter, leave),
        cmocka_unit_test_setup_teardown(empty_files, enter, leave),
        cmocka_unit_test_setup_teardown(folders, enter, leave),
        cmocka_unit_test_setup_teardown(a_lock_ends_with_its_process, enter, leave),
        cmocka_unit_test(clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
