/* Checkpoints: what is saved comes back, rotation, damage in any file or byte, a full disk, folders left
 * behind. */
#include "ckpt/checkpoint.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "scratch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char root[100], log_text[4000];

static void keep_line(void *user, tg_log_level level, const char *line)
{
    (void)user;
    (void)level;
    strncat(log_text, line, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

static int enter(void **state)
{
    (void)state;
    log_text[0] = '\0';
    tg_log_set_sink(keep_line, NULL);
    if (scratch_enter("test_checkpoint") != 0) return -1;
    snprintf(root, sizeof root, "%s/run/checkpoints", scratch_dir()); /* made by the first save */
    return 0;
}

static int leave(void **state)
{
    (void)state;
    tg_log_set_sink(NULL, NULL);
    return scratch_leave();
}

static const char *in_root(const char *name)
{
    static char paths[4][200];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", root, name);
    return p;
}

/* The tensors of a tiny run; every value depends on the step. */
enum { ITEMS = 4 };
static float w[6], m[6], v[6];
static uint16_t b[3];

static void at_step(int64_t step, tg_ckpt_item *items)
{
    for (int i = 0; i < 6; i++) {
        w[i] = (float)step + (float)i * 0.25f;
        m[i] = -w[i];
        v[i] = w[i] * w[i];
    }
    for (int i = 0; i < 3; i++)
        b[i] = (uint16_t)(step * 3 + i);
    teng_desc d = tg_desc_make(TENG_F32, 2, (int64_t[]){2, 3});
    items[0] = (tg_ckpt_item){.name = "lm_head.weight", .desc = d, .data = w, .group = "model"};
    items[1] = (tg_ckpt_item){.name = "adamw.m.lm_head.weight", .desc = d, .data = m, .group = "optimizer"};
    items[2] = (tg_ckpt_item){
        .name = "norm.bias", .desc = tg_desc_make(TENG_BF16, 1, (int64_t[]){3}), .data = b, .group = "model"};
    items[3] = (tg_ckpt_item){.name = "adamw.v.lm_head.weight", .desc = d, .data = v, .group = "optimizer"};
}

static teng_status save(int64_t step, int keep_max)
{
    tg_ckpt_item items[ITEMS];
    at_step(step, items);
    json_t *state = json_pack("{s:I, s:f, s:{s:I}}", "cursor", (json_int_t)(step * 1000), "lr",
                              0.1 * (double)step, "rng", "seed", (json_int_t)INT64_MAX);
    teng_status status = tg_ckpt_save(root, step, items, ITEMS, state, keep_max);
    json_decref(state);
    return status;
}

/* A checkpoint must hold exactly what save(step) gave. */
static void assert_whole(const char *path, int64_t step)
{
    tg_ckpt_item items[ITEMS];
    tg_ckpt *ck;
    assert_ok(tg_ckpt_open(path, true, &ck));
    assert_int_equal(tg_ckpt_step(ck), step);
    assert_string_equal(tg_ckpt_path(ck), path);
    at_step(step, items);
    for (int i = 0; i < ITEMS; i++) {
        char dst[64];
        assert_ok(tg_ckpt_load(ck, items[i].group, items[i].name, &items[i].desc, dst));
        assert_memory_equal(dst, items[i].data, tg_desc_bytes(&items[i].desc));
    }
    int64_t cursor = 0;
    double lr = 0;
    assert_ok(tg_json_get_int(tg_ckpt_state(ck), "state", "cursor", true, &cursor));
    assert_ok(tg_json_get_real(tg_ckpt_state(ck), "state", "lr", true, &lr));
    assert_true(cursor == step * 1000 && lr == 0.1 * (double)step);
    tg_ckpt_close(&ck);
    assert_null(ck);
}

static void assert_latest(int64_t step)
{
    char *path;
    assert_ok(tg_ckpt_latest(root, false, &path));
    assert_non_null(path);
    assert_whole(path, step);
    tg_free(path);
}

/* "a b c": the sorted names in the root. */
static void assert_names(const char *expected)
{
    char **names, text[1000] = "";
    size_t n;
    assert_ok(tg_list_dir(root, &names, &n));
    for (size_t i = 0; i < n; i++) {
        if (i) strcat(text, " ");
        strcat(text, names[i]);
    }
    tg_names_free(names, n);
    assert_string_equal(text, expected);
}

static void save_and_load(void **state)
{
    (void)state;
    char *path;
    assert_ok(tg_ckpt_latest(root, false, &path)); /* no root yet: nothing, and no error */
    assert_null(path);
    assert_ok(save(40, 0));
    assert_names("step-00000040");
    assert_latest(40);
    assert_true(tg_path_exists(in_root("step-00000040/model.safetensors")));
    assert_true(tg_path_exists(in_root("step-00000040/optimizer.safetensors")));

    tg_ckpt *ck;
    tg_ckpt_item items[ITEMS];
    char dst[64];
    at_step(40, items);
    assert_ok(tg_ckpt_open(in_root("step-00000040"), false, &ck));
    assert_int_equal(tg_ckpt_count(ck, "model"), 2);
    assert_int_equal(tg_ckpt_count(ck, "optimizer"), 2);
    assert_int_equal(tg_ckpt_count(ck, "other"), 0);
    assert_string_equal(tg_ckpt_at(ck, "optimizer", 0)->name, "adamw.m.lm_head.weight");
    assert_null(tg_ckpt_at(ck, "other", 0));
    assert_null(tg_ckpt_find(ck, "model", "adamw.m.lm_head.weight"));
    assert_error(tg_ckpt_load(ck, "model", "wte.weight", &items[0].desc, dst), TENG_FORMAT,
                 "step-00000040|\"wte.weight\" is not in model.safetensors");
    teng_desc other = tg_desc_make(TENG_BF16, 2, (int64_t[]){2, 3});
    assert_error(tg_ckpt_load(ck, "model", "lm_head.weight", &other, dst), TENG_FORMAT,
                 "\"lm_head.weight\" of model.safetensors is f32[2,3]|needs bf16[2,3]");
    /* the caller's keys come first and in order */
    char *text = tg_json_text(tg_ckpt_state(ck), 0);
    assert_memory_equal(
        text, "{\"cursor\":40000,\"lr\":4.0,\"rng\":{\"seed\":9223372036854775807},\"step\":40,", 69);
    tg_free(text);
    tg_ckpt_close(&ck);
    assert_error(tg_ckpt_open(in_root("step-00000041"), false, &ck), TENG_IO, "step-00000041|no such");
}

static void rotation(void **state)
{
    (void)state;
    for (int64_t step = 5; step <= 25; step += 5)
        assert_ok(save(step, 3));
    assert_names("step-00000015 step-00000020 step-00000025");
    assert_ok(save(123456789, 0)); /* nine digits sort after eight */
    assert_ok(save(1234567890, 0));
    assert_latest(1234567890);
    assert_ok(tg_ckpt_prune(root, 2));
    assert_names("step-123456789 step-1234567890");
    assert_ok(tg_ckpt_prune(root, 0));
    assert_names("step-123456789 step-1234567890");
}

static void same_step_again(void **state)
{
    (void)state;
    assert_ok(save(7, 2));
    tg_ckpt_item items[ITEMS];
    at_step(8, items);
    assert_ok(tg_ckpt_save(root, 7, items, 1, NULL, 2)); /* replaces the folder, files and all */
    assert_names("step-00000007");
    assert_false(tg_path_exists(in_root("step-00000007/optimizer.safetensors")));
    assert_ok(tg_ckpt_verify(in_root("step-00000007")));
    assert_ok(save(7, 2));
    assert_latest(7);
}

static void other_names_are_left_alone(void **state)
{
    (void)state;
    assert_ok(tg_mkdirs(in_root("step-00000001.tmp")));
    assert_ok(tg_file_write(in_root("step-00000001.tmp/model.safetensors"), "half", 4));
    assert_ok(tg_mkdirs(in_root("step-9")));
    assert_ok(tg_mkdirs(in_root("step-0000000x")));
    assert_ok(tg_mkdirs(in_root("best")));
    assert_ok(save(2, 1));
    assert_ok(save(3, 1));
    assert_names("best step-00000003 step-0000000x step-9"); /* the stale .tmp is gone */
    assert_latest(3);
}

static void later_ones_are_superseded(void **state)
{
    (void)state;
    assert_ok(save(10, 0));
    assert_ok(save(20, 0));
    assert_ok(save(15, 1)); /* training went on from 10: 20 is not its future any more */
    assert_names("step-00000015 step-00000020.superseded");
    assert_latest(15);
    assert_non_null(strstr(log_text, "step-00000020.superseded"));
}

static void refuses_arguments(void **state)
{
    (void)state;
    tg_ckpt_item items[ITEMS];
    at_step(1, items);
    assert_error(tg_ckpt_save(root, -1, items, ITEMS, NULL, 0), TENG_INVALID, "step -1");
    items[1].group = "../x";
    assert_error(tg_ckpt_save(root, 1, items, ITEMS, NULL, 0), TENG_INVALID, "adamw.m.lm_head.weight|../x");
    items[1].group = NULL;
    assert_error(tg_ckpt_save(root, 1, items, ITEMS, NULL, 0), TENG_INVALID, "group \"\"");
    items[1].group = "model";
    items[1].name = "lm_head.weight";
    assert_error(tg_ckpt_save(root, 1, items, ITEMS, NULL, 0), TENG_INVALID,
                 "step 1 was not saved|two tensors");
    assert_names("");
    json_t *list = json_array();
    assert_error(tg_ckpt_save(root, 1, items, 1, list, 0), TENG_INVALID, "JSON object");
    json_decref(list);
}

/* ---- damage ---- */

static void flip(const char *path, size_t at, unsigned char mask)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    fputc(c ^ mask, f);
    assert_int_equal(fclose(f), 0);
}

static void damage_is_named(void **state)
{
    (void)state;
    char *path;
    assert_ok(save(10, 0));
    assert_ok(save(20, 0));
    assert_ok(save(30, 0));
    const char *model = in_root("step-00000030/model.safetensors");
    size_t size = (size_t)tg_file_size(model);
    flip(model, size - 1, 0x10);
    assert_error(tg_ckpt_verify(in_root("step-00000030")), TENG_FORMAT,
                 "step-00000030 cannot be used|model.safetensors has the hash|have changed");
    assert_error(
        tg_ckpt_latest(root, false, &path), TENG_FORMAT,
        "step-00000030|model.safetensors|newest whole one is|step-00000020|remove the damaged folder");
    assert_null(path);
    assert_ok(tg_ckpt_latest(root, true, &path));
    assert_whole(path, 20);
    tg_free(path);
    assert_non_null(strstr(log_text, "step-00000030"));
    assert_non_null(strstr(log_text, "using"));

    assert_int_equal(truncate(in_root("step-00000020/optimizer.safetensors"), 100), 0);
    assert_error(tg_ckpt_latest(root, false, &path), TENG_FORMAT,
                 "step-00000030|newest whole one is|step-00000010");
    assert_error(tg_ckpt_verify(in_root("step-00000020")), TENG_FORMAT,
                 "optimizer.safetensors has 100 bytes");
    tg_ckpt *ck; /* sizes are checked without hashes too */
    assert_error(tg_ckpt_open(in_root("step-00000020"), false, &ck), TENG_FORMAT,
                 "optimizer.safetensors has 100 bytes");
    assert_null(ck);

    assert_int_equal(unlink(in_root("step-00000010/model.safetensors")), 0);
    assert_error(tg_ckpt_verify(in_root("step-00000010")), TENG_FORMAT, "model.safetensors is missing");
    assert_error(tg_ckpt_latest(root, true, &path), TENG_FORMAT, "no older one in|is whole");
    assert_int_equal(unlink(in_root("step-00000010/state.json")), 0);
    assert_error(tg_ckpt_verify(in_root("step-00000010")), TENG_FORMAT, "state.json is missing");
}

/* One flipped bit in any byte of any file, and any truncation, is seen. */
static void every_byte(void **state)
{
    (void)state;
    static const char *const files[] = {"state.json", "model.safetensors", "optimizer.safetensors"};
    assert_ok(save(10, 0));
    for (int k = 0; k < 3; k++) {
        char path[300], *text;
        size_t size;
        snprintf(path, sizeof path, "%s/step-00000010/%s", root, files[k]);
        assert_ok(tg_file_read(path, &text, &size));
        for (size_t at = 0; at < size; at++) {
            if (k == 0 && memchr(" \n", text[at], 2))
                continue; /* space between tokens of state.json is no content */
            flip(path, at, 1);
            if (tg_ckpt_verify(in_root("step-00000010")) == TENG_OK) fail_msg("%s, byte %zu", files[k], at);
            teng_error_clear();
            flip(path, at, 1);
        }
        for (size_t cut = 0; cut + 2 < size; cut += 7) {
            assert_int_equal(truncate(path, (off_t)cut), 0);
            assert_true(tg_ckpt_verify(in_root("step-00000010")) != TENG_OK);
            teng_error_clear();
        }
        FILE *f = fopen(path, "wb");
        assert_int_equal(fwrite(text, 1, size, f), size);
        fclose(f);
        tg_free(text);
    }
    assert_latest(10);
}

static void edit_state(const char *from, const char *to)
{
    char *text, *at;
    const char *path = in_root("step-00000010/state.json");
    size_t size;
    assert_ok(tg_file_read(path, &text, &size));
    at = strstr(text, from);
    assert_non_null(at);
    char *next = tg_asprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_ok(tg_file_write(path, next, strlen(next)));
    tg_free(next);
    tg_free(text);
}

static void foreign_state(void **state)
{
    (void)state;
    assert_ok(save(10, 0));
    edit_state("\"version\": 1", "\"version\": 3");
    assert_error(tg_ckpt_verify(in_root("step-00000010")), TENG_UNSUPPORTED,
                 "version is 3|reads versions 1 and 2");
    edit_state("\"version\": 3", "\"version\": 1");
    assert_latest(10);
    edit_state("10000", "10001");
    assert_error(tg_ckpt_verify(in_root("step-00000010")), TENG_FORMAT,
                 "state.json has the hash|it has changed");
}

/* ---- a disk that is full ---- */

static void disk_full(void **state)
{
    (void)state;
    assert_ok(save(10, 1));
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    small = old;
    for (rlim_t limit = 0; limit < 300; limit += 100) { /* model.safetensors, later ones too */
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        teng_status status = save(20, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_error(status, TENG_IO, "step 20 was not saved|cannot write|step-00000020.tmp");
        assert_names("step-00000010"); /* nothing half-written, and the former one is there */
        assert_latest(10);
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_ok(save(20, 1)); /* room again */
    assert_names("step-00000020");
    assert_latest(20);
}

static void not_a_folder(void **state)
{
    (void)state;
    char *parent = tg_asprintf("%s/run", scratch_dir());
    assert_ok(tg_file_write(parent, "x", 1));
    assert_error(save(1, 0), TENG_IO, "cannot make the folder");
    tg_free(parent);
}

/* Any allocation may fail: an error, and the checkpoints on disk are as before. */
static void out_of_memory(void **state)
{
    (void)state;
    assert_ok(save(10, 1));
    int failures = 0;
    for (uint64_t k = 1; k < 500; k++) {
        tg_alloc_fail_at(k);
        teng_status status = save(20, 1);
        tg_alloc_fail_at(0);
        teng_error_clear();
        if (status == TENG_OK) break;
        failures++;
        assert_latest(10);
    }
    assert_in_range(failures, 20, 498);
    assert_latest(20);
    for (uint64_t k = 1; k < 500; k++) {
        tg_ckpt *ck;
        tg_alloc_fail_at(k);
        teng_status status = tg_ckpt_open(in_root("step-00000020"), true, &ck);
        tg_alloc_fail_at(0);
        teng_error_clear();
        if (status == TENG_OK) {
            tg_ckpt_close(&ck);
            return;
        }
        assert_null(ck);
    }
    fail_msg("tg_ckpt_open never succeeded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(save_and_load, enter, leave),
        cmocka_unit_test_setup_teardown(rotation, enter, leave),
        cmocka_unit_test_setup_teardown(same_step_again, enter, leave),
        cmocka_unit_test_setup_teardown(other_names_are_left_alone, enter, leave),
        cmocka_unit_test_setup_teardown(later_ones_are_superseded, enter, leave),
        cmocka_unit_test_setup_teardown(refuses_arguments, enter, leave),
        cmocka_unit_test_setup_teardown(damage_is_named, enter, leave),
        cmocka_unit_test_setup_teardown(every_byte, enter, leave),
        cmocka_unit_test_setup_teardown(foreign_state, enter, leave),
        cmocka_unit_test_setup_teardown(disk_full, enter, leave),
        cmocka_unit_test_setup_teardown(not_a_folder, enter, leave),
        cmocka_unit_test_setup_teardown(out_of_memory, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
