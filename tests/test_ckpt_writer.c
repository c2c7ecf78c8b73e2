/* Saving beside training: the same bytes as saving in place, outcomes in order, a failure that a retry mends.
 */
#include "ckpt/checkpoint.h"

#include "base/file.h"
#include "base/mem.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int enter(void **state)
{
    (void)state;
    return scratch_enter("test_ckpt_writer");
}

static int leave(void **state)
{
    (void)state;
    return scratch_leave();
}

enum { COUNT = 5000, ITEMS = 3 };
static float values[COUNT];
static uint8_t bytes[3];

static void at_step(int64_t step, tg_ckpt_item *items)
{
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)step * 0.5f + (float)i;
    memset(bytes, (int)step, sizeof bytes);
    items[0] = (tg_ckpt_item){
        .name = "odd", .desc = tg_desc_make(TENG_U8, 1, (int64_t[]){3}), .data = bytes, .group = "model"};
    items[1] = (tg_ckpt_item){
        .name = "w", .desc = tg_desc_make(TENG_F32, 1, (int64_t[]){COUNT}), .data = values, .group = "model"};
    items[2] = (tg_ckpt_item){.name = "m",
                              .desc = tg_desc_make(TENG_F32, 2, (int64_t[]){2, COUNT / 2}),
                              .data = values,
                              .group = "optimizer"};
}

/* Submits, then overwrites everything: what was submitted must be a snapshot. */
static void submit(tg_ckpt_writer *writer, int64_t step)
{
    tg_ckpt_item items[ITEMS];
    char name[8] = "odd";
    at_step(step, items);
    items[0].name = name;
    json_t *state = json_pack("{s:I}", "cursor", (json_int_t)step);
    assert_ok(tg_ckpt_writer_submit(writer, step, items, ITEMS, state));
    json_object_set_new(state, "cursor", json_integer(-1));
    json_decref(state);
    memset(name, 'x', 3);
    memset(values, 0x55, sizeof values);
    memset(bytes, 0x55, sizeof bytes);
}

static void assert_same_file(const char *a, const char *b)
{
    char *x, *y;
    size_t nx, ny;
    assert_ok(tg_file_read(a, &x, &nx));
    assert_ok(tg_file_read(b, &y, &ny));
    assert_int_equal(nx, ny);
    assert_memory_equal(x, y, nx);
    tg_free(x);
    tg_free(y);
}

static void async_equals_sync(void **state)
{
    (void)state;
    static const char *const files[] = {"state.json", "model.safetensors", "optimizer.safetensors"};
    tg_ckpt_item items[ITEMS];
    at_step(0, items);
    size_t staging = tg_ckpt_staging_bytes(items, ITEMS);
    assert_int_equal(staging, 64 + 20032 + 20032);
    for (int mode = 0; mode < 2; mode++) {
        tg_ckpt_writer *writer;
        tg_ckpt_done done;
        assert_ok(
            tg_ckpt_writer_create(in_dir(mode ? "async" : "sync"), 2, mode, (tg_ckpt_team){0}, &writer));
        assert_false(tg_ckpt_writer_poll(writer, &done));
        assert_ok(tg_ckpt_writer_status(writer));
        for (int64_t step = 1; step <= 5; step++)
            submit(writer, step);
        assert_ok(tg_ckpt_writer_wait(writer));
        for (int64_t step = 1; step <= 5; step++) {
            assert_true(tg_ckpt_writer_poll(writer, &done));
            assert_int_equal(done.step, step);
            assert_int_equal(done.error.status, TENG_OK);
            assert_int_equal(done.bytes, 3 + 4 * COUNT + 4 * COUNT);
            assert_true(done.seconds > 0 && done.stall >= 0);
        }
        assert_false(tg_ckpt_writer_poll(writer, &done));
        tg_ckpt_writer_destroy(&writer);
        assert_null(writer);
        assert_false(tg_path_exists(in_dir(mode ? "async/step-00000003" : "sync/step-00000003")));
    }
    for (int64_t step = 4; step <= 5; step++)
        for (int k = 0; k < 3; k++) {
            char a[100], b[100];
            snprintf(a, sizeof a, "async/step-%08d/%s", (int)step, files[k]);
            snprintf(b, sizeof b, "sync/step-%08d/%s", (int)step, files[k]);
            assert_same_file(in_dir(a), in_dir(b));
        }
}

static void destroy_finishes_the_last_save(void **state)
{
    (void)state;
    tg_ckpt_writer *writer;
    assert_ok(tg_ckpt_writer_create(in_dir("r"), 0, true, (tg_ckpt_team){0}, &writer));
    submit(writer, 9);
    tg_ckpt_writer_destroy(&writer);
    char *path;
    assert_ok(tg_ckpt_latest(in_dir("r"), false, &path));
    assert_non_null(strstr(path, "step-00000009"));
    tg_free(path);
}

/* The root cannot be made while a file has its name; when that is mended the next save works. */
static void failure_is_kept_and_retry_works(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        tg_ckpt_writer *writer;
        tg_ckpt_done done;
        assert_ok(tg_file_write(in_dir("r"), "x", 1));
        assert_ok(tg_ckpt_writer_create(in_dir("r"), 0, mode, (tg_ckpt_team){0}, &writer));
        submit(writer, 1);
        assert_int_equal(tg_ckpt_writer_wait(writer), TENG_IO);
        assert_non_null(strstr(teng_error(), "cannot make the folder"));
        teng_error_clear();
        assert_int_equal(tg_ckpt_writer_status(writer), TENG_IO); /* until a save succeeds */
        teng_error_clear();
        assert_true(tg_ckpt_writer_poll(writer, &done));
        assert_int_equal(done.error.status, TENG_IO);
        assert_int_equal(done.step, 1);
        assert_non_null(strstr(done.error.message, "cannot make the folder"));
        assert_int_equal(teng_error_status(), TENG_OK); /* polling leaves nothing pending */

        assert_ok(tg_remove_tree(in_dir("r")));
        submit(writer, 2);
        assert_ok(tg_ckpt_writer_wait(writer));
        assert_ok(tg_ckpt_writer_status(writer));
        assert_true(tg_ckpt_writer_poll(writer, &done));
        assert_true(done.step == 2 && done.error.status == TENG_OK);
        tg_ckpt_writer_destroy(&writer);
        assert_ok(tg_remove_tree(in_dir("r")));
    }
}

/* The last save is written by the caller, after the one that is on its way, from where the values lie. */
static void the_last_save_needs_no_copy(void **state)
{
    (void)state;
    tg_ckpt_writer *writer;
    tg_ckpt_item items[ITEMS];
    tg_ckpt_done done;
    assert_ok(tg_ckpt_writer_create(in_dir("r"), 0, true, (tg_ckpt_team){0}, &writer));
    submit(writer, 1);
    at_step(2, items);
    tg_ckpt_writer_write(writer, 2, items, ITEMS, NULL);
    assert_true(tg_path_exists(in_dir("r/step-00000002/model.safetensors")));
    for (int64_t step = 1; step <= 2; step++) {
        assert_true(tg_ckpt_writer_poll(writer, &done));
        assert_true(done.step == step && done.error.status == TENG_OK);
    }
    assert_false(tg_ckpt_writer_poll(writer, &done));
    assert_ok(tg_ckpt_writer_wait(writer));
    submit(writer, 3); /* and the writer goes on */
    tg_ckpt_writer_destroy(&writer);
    assert_true(tg_path_exists(in_dir("r/step-00000003/state.json")));
}

static void submit_without_memory(void **state)
{
    (void)state;
    tg_ckpt_writer *writer;
    tg_ckpt_item items[ITEMS];
    assert_ok(tg_ckpt_writer_create(in_dir("r"), 0, true, (tg_ckpt_team){0}, &writer));
    at_step(1, items);
    tg_alloc_fail_at(1); /* the staging buffer */
    assert_int_equal(tg_ckpt_writer_submit(writer, 1, items, ITEMS, NULL), TENG_MEMORY);
    tg_alloc_fail_at(0);
    assert_non_null(strstr(teng_error(), "staging"));
    teng_error_clear();
    submit(writer, 2); /* the writer is still good */
    assert_ok(tg_ckpt_writer_wait(writer));
    tg_ckpt_writer_destroy(&writer);
    assert_true(tg_path_exists(in_dir("r/step-00000002/state.json")));
    assert_false(tg_path_exists(in_dir("r/step-00000001")));
}

static void prepared_memory_is_used(void **state)
{
    (void)state;
    tg_ckpt_writer *writer;
    tg_ckpt_item items[ITEMS];
    at_step(1, items);
    for (int mode = 0; mode < 2; mode++) {
        assert_ok(tg_ckpt_writer_create(in_dir("r"), 0, mode, (tg_ckpt_team){0}, &writer));
        tg_ckpt_writer_prepare(writer, items, ITEMS);
        assert_ok(tg_ckpt_writer_wait(writer));
        if (mode) {
            tg_alloc_fail_at(1); /* what submit needs beside the staging buffer */
            assert_int_equal(tg_ckpt_writer_submit(writer, 1, items, ITEMS, NULL), TENG_MEMORY);
            tg_alloc_fail_at(0);
            assert_null(strstr(teng_error(), "staging"));
            teng_error_clear();
        }
        tg_ckpt_done done;
        assert_false(tg_ckpt_writer_poll(writer, &done)); /* to prepare is not to save */
        submit(writer, 2 + mode);
        tg_ckpt_writer_prepare(writer, items, ITEMS); /* beside a save, and right before the end */
        tg_ckpt_writer_destroy(&writer);
    }
    assert_true(tg_path_exists(in_dir("r/step-00000002/state.json")));
    assert_true(tg_path_exists(in_dir("r/step-00000003/state.json")));
    assert_false(tg_path_exists(in_dir("r/step-00000001")));
}

static void prepare_without_memory(void **state)
{
    (void)state;
    tg_ckpt_writer *writer;
    tg_ckpt_item items[ITEMS];
    assert_ok(tg_ckpt_writer_create(in_dir("r"), 0, true, (tg_ckpt_team){0}, &writer));
    at_step(1, items);
    tg_alloc_fail_at(1);
    tg_ckpt_writer_prepare(writer, items, ITEMS);
    assert_ok(tg_ckpt_writer_wait(writer)); /* not an error yet */
    tg_alloc_fail_at(0);
    submit(writer, 1);
    assert_ok(tg_ckpt_writer_wait(writer));
    tg_ckpt_writer_destroy(&writer);
    assert_true(tg_path_exists(in_dir("r/step-00000001/state.json")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(async_equals_sync, enter, leave),
        cmocka_unit_test_setup_teardown(destroy_finishes_the_last_save, enter, leave),
        cmocka_unit_test_setup_teardown(failure_is_kept_and_retry_works, enter, leave),
        cmocka_unit_test_setup_teardown(the_last_save_needs_no_copy, enter, leave),
        cmocka_unit_test_setup_teardown(submit_without_memory, enter, leave),
        cmocka_unit_test_setup_teardown(prepared_memory_is_used, enter, leave),
        cmocka_unit_test_setup_teardown(prepare_without_memory, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
