/*
 * Checkpoints that several ranks write together, here all of them in one process: whatever the cuts, what is
 * read is the whole, in any other cut; half of one is never seen.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "scratch.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS = 4, RANKS = 4 };

static const struct {
    const char *name, *group;
    teng_desc desc;
} tensors[TENSORS] = {
    {"w", "model", {.dtype = TENG_F32, .ndim = 2, .dims = {12, 5}}},
    {"qkv", "model", {.dtype = TENG_F32, .ndim = 2, .dims = {24, 3}}},
    {"norm", "model", {.dtype = TENG_F32, .ndim = 1, .dims = {7}}},
    {"adamw.m.w", "optimizer", {.dtype = TENG_F32, .ndim = 2, .dims = {12, 5}}},
};
static float whole[TENSORS][128], part[TENSORS][128];

static int enter(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < 128; i++)
            whole[t][i] = (float)(1000 * t + i);
    return scratch_enter("parts");
}

static int leave(void **state)
{
    (void)state;
    return scratch_leave();
}

static const char *root(void)
{
    return in_dir("checkpoints");
}

/* The part of tensor t on rank r of n: rows of w, groups of qkv; norm on rank 0 alone; rows of the state, the
 * first rank without any. */
static bool box_of(int t, int r, int n, tg_box *box)
{
    *box = tg_box_whole(&tensors[t].desc);
    if (t == 1) {
        box->size[0] = 8 / n;
        box->begin[0] = r * box->size[0];
        box->runs[0] = 3;
        box->stride[0] = 8;
        return true;
    }
    if (t == 2) return r == 0;
    const int ranks = t == 3 && n > 1 ? n - 1 : n, index = t == 3 && n > 1 ? r - 1 : r;
    if (index < 0) return false;
    box->size[0] = 12 / ranks;
    box->begin[0] = index * box->size[0];
    return true;
}

static size_t items_of(int r, int n, tg_ckpt_part *parts, tg_ckpt_item *items)
{
    size_t count = 0;
    for (int t = 0; t < TENSORS; t++) {
        const tg_box all = tg_box_whole(&tensors[t].desc);
        tg_ckpt_part *p = &parts[count];
        p->whole = tensors[t].desc;
        if (!box_of(t, r, n, &p->box)) continue;
        tg_box_copy(sizeof(float), &all, whole[t], &p->box, part[t]);
        teng_desc local = tensors[t].desc;
        for (int d = 0; d < local.ndim; d++)
            local.dims[d] = p->box.size[d] * p->box.runs[d];
        items[count++] = (tg_ckpt_item){.name = tensors[t].name,
                                        .desc = local,
                                        .data = part[t],
                                        .group = tensors[t].group,
                                        .part = t == 2 ? NULL : p};
    }
    return count;
}

static teng_status save_by(int n, int64_t step)
{
    json_t *files = json_object(), *state = json_pack("{s:i}", "cursor", 5);
    teng_status status = tg_ckpt_begin(root(), step);
    for (int r = 0; r < n && status == TENG_OK; r++) {
        tg_ckpt_part parts[TENSORS];
        tg_ckpt_item items[TENSORS];
        json_t *own = NULL;
        const size_t count = items_of(r, n, parts, items);
        status = tg_ckpt_write_part(root(), step, (tg_ckpt_team){r, n}, items, count, &own);
        json_object_update(files, own);
        json_decref(own);
    }
    if (status == TENG_OK) status = tg_ckpt_commit(root(), step, (tg_ckpt_team){0, n}, state, files, 2);
    json_decref(files);
    json_decref(state);
    return status;
}

static void expect_whole(const char *path)
{
    tg_ckpt *ck;
    float got[128];
    assert_ok(tg_ckpt_open(path, true, &ck));
    assert_int_equal(tg_ckpt_count(ck, "model"), 3);
    assert_int_equal(tg_ckpt_count(ck, "optimizer"), 1);
    for (int t = 0; t < TENSORS; t++) {
        const tg_st_tensor *x = tg_ckpt_find(ck, tensors[t].group, tensors[t].name);
        assert_non_null(x);
        assert_true(tg_desc_equal(&x->desc, &tensors[t].desc));
        assert_ok(tg_ckpt_load(ck, tensors[t].group, tensors[t].name, &tensors[t].desc, got));
        assert_memory_equal(got, whole[t], tg_desc_bytes(&tensors[t].desc));
        for (int n = 1; n <= 4; n *= 2)
            for (int r = 0; r < n; r++) { /* any other cut */
                tg_box box;
                const tg_box all = tg_box_whole(&tensors[t].desc);
                if (!box_of(t, r, n, &box)) continue;
                tg_box_copy(sizeof(float), &all, whole[t], &box, part[t]);
                assert_ok(tg_st_read_box(x, &tensors[t].desc, &box, got));
                assert_memory_equal(got, part[t], sizeof(float) * (size_t)tg_box_numel(&box));
            }
    }
    tg_ckpt_close(&ck);
}

static void any_cut_reads_as_any_other(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n *= 2) {
        char *path;
        assert_ok(save_by(n, 10 * n));
        assert_ok(tg_ckpt_latest(root(), false, &path));
        expect_whole(path);
        tg_free(path);
    }
    assert_false(tg_path_exists(in_dir("checkpoints/step-00000010"))); /* two are kept */
    assert_true(tg_path_exists(in_dir("checkpoints/step-00000040/model.00003.safetensors")));
    assert_false(tg_path_exists(in_dir("checkpoints/step-00000040/optimizer.00000.safetensors")));
}

static void conversion_of_a_box(void **state)
{
    (void)state;
    tg_ckpt *ck;
    tg_box box = tg_box_whole(&tensors[1].desc);
    uint16_t got[128];
    assert_ok(save_by(4, 1));
    assert_ok(tg_ckpt_open(in_dir("checkpoints/step-00000001"), false, &ck));
    box.begin[0] = 3;
    box.size[0] = 7;
    teng_desc want = tensors[1].desc;
    want.dtype = TENG_BF16;
    const tg_st_tensor *t = tg_ckpt_find(ck, "model", "qkv");
    assert_ok(tg_st_read_box(t, &want, &box, got));
    for (int i = 0; i < 21; i++) {
        uint32_t bits;
        memcpy(&bits, &whole[1][9 + i], sizeof bits); /* below 2048: bf16 may round, so within one of it */
        assert_in_range(got[i], (bits >> 16) - 1, (bits >> 16) + 1);
    }
    want.dims[0] = 25;
    assert_error(tg_st_read_box(t, &want, &box, got), TENG_FORMAT, "qkv|f32|bf16");
    tg_ckpt_close(&ck);
}

static void weights_of_a_checkpoint(void **state)
{
    (void)state;
    tg_weights *w;
    float got[128];
    assert_ok(save_by(2, 3));
    assert_ok(tg_weights_open(in_dir("checkpoints/step-00000003"), &w));
    assert_int_equal(tg_weights_count(w), 3);
    assert_null(tg_weights_find(w, "w")->data);
    assert_ok(tg_st_read(tg_weights_find(w, "w"), &tensors[0].desc, got));
    assert_memory_equal(got, whole[0], tg_desc_bytes(&tensors[0].desc));
    tg_weights_close(&w);
}

/* Nothing is seen before the commit, and a rank that failed leaves the former checkpoint. */
static void half_of_one_is_never_seen(void **state)
{
    (void)state;
    tg_ckpt_part parts[TENSORS];
    tg_ckpt_item items[TENSORS];
    json_t *files;
    char *path;
    assert_ok(save_by(2, 1));
    assert_ok(tg_ckpt_begin(root(), 2));
    const size_t count = items_of(1, 2, parts, items);
    assert_ok(tg_ckpt_write_part(root(), 2, (tg_ckpt_team){1, 2}, items, count, &files));
    json_decref(files);
    assert_ok(tg_ckpt_latest(root(), false, &path));
    assert_non_null(strstr(path, "step-00000001"));
    tg_free(path);
    tg_fail(TENG_IO, "rank 0 has no room");
    tg_ckpt_abandon(root(), 2);
    assert_error(teng_error_status(), TENG_IO, "rank 0 has no room"); /* still pending */
    assert_false(tg_path_exists(in_dir("checkpoints/step-00000002.tmp")));
    /* Without the folder of begin nothing can be written. */
    assert_error(tg_ckpt_write_part(root(), 2, (tg_ckpt_team){1, 2}, items, count, &files), TENG_IO,
                 "step 2 was not saved");
    assert_ok(save_by(2, 2)); /* the next one is whole */
    expect_whole(in_dir("checkpoints/step-00000002"));
}

static void missing_and_doubled_files(void **state)
{
    (void)state;
    tg_ckpt *ck;
    assert_ok(save_by(4, 1));
    const char *file = in_dir("checkpoints/step-00000001/model.00002.safetensors"), *aside = in_dir("aside");
    assert_ok(tg_rename(file, aside));
    assert_error(tg_ckpt_open(in_dir("checkpoints/step-00000001"), false, &ck), TENG_FORMAT,
                 "model.00002.safetensors is missing");
    assert_ok(tg_rename(aside, file));
    /* Ranks that did not agree on who writes what: each wrote all of it. */
    json_t *files = json_object();
    assert_ok(tg_ckpt_begin(root(), 2));
    for (int r = 0; r < 2; r++) {
        json_t *own;
        const tg_ckpt_item item = {
            .name = "norm", .desc = tensors[2].desc, .data = whole[2], .group = "model"};
        assert_ok(tg_ckpt_write_part(root(), 2, (tg_ckpt_team){r, 2}, &item, 1, &own));
        json_object_update(files, own);
        json_decref(own);
    }
    assert_ok(tg_ckpt_commit(root(), 2, (tg_ckpt_team){0, 2}, NULL, files, 0));
    json_decref(files);
    assert_error(tg_ckpt_open(in_dir("checkpoints/step-00000002"), false, &ck), TENG_FORMAT,
                 "\"norm\"|14 elements|the whole has 7|written twice");
}

/* A file whose metadata says something of its parts that cannot be. */
static void metadata_that_lies(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"w\": {\"shape\": [12, 5], \"box\": [[9, 4, 1, 12], [0, 5, 1, 5]]}}",
        "{\"w\": {\"shape\": [12, 5], \"box\": [[0, 3, 1, 12], [0, 5, 1, 5]]}}",
        "{\"w\": {\"shape\": [12], \"box\": [[0, 4, 1, 12], [0, 5, 1, 5]]}}",
        "{\"w\": {\"shape\": [12, 5], \"box\": [[0, 4, 1, 12]]}}",
        "{\"w\": {\"shape\": [12, 5], \"box\": [[0, 4, 9223372036854775807, 1], [0, 5, 1, 5]]}}",
        "{\"w\": {\"shape\": [4611686018427387904, 1048576], \"box\": [[0, 4, 1, 1], [0, 5, 1, 1]]}}",
        "{\"w\": {\"shape\": [12, -5], \"box\": [[0, 4, 1, 12], [0, 5, 1, 5]]}}",
        "{\"w\": 3}",
        "{\"other\": {\"shape\": [12, 5], \"box\": [[0, 4, 1, 12], [0, 5, 1, 5]]}}",
        "{\"w\": ",
    };
    const teng_desc four = {.dtype = TENG_F32, .ndim = 2, .dims = {4, 5}};
    const tg_ckpt_item item = {.name = "w", .desc = four, .data = whole[0]};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tg_ckpt *ck;
        tg_st_digest digest;
        char hash[17];
        json_t *metadata = json_pack("{s:s}", "teng.parts", bad[i]), *files = json_object();
        assert_ok(tg_ckpt_begin(root(), 1));
        assert_ok(tg_st_write(in_dir("checkpoints/step-00000001.tmp/model.00000.safetensors"), &item, 1,
                              metadata, &digest));
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)digest.xxh3);
        json_object_set_new(files, "model.00000.safetensors",
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)digest.bytes, "xxh3", hash));
        assert_ok(tg_ckpt_commit(root(), 1, (tg_ckpt_team){0, 2}, NULL, files, 0));
        assert_error(tg_ckpt_open(in_dir("checkpoints/step-00000001"), true, &ck), TENG_FORMAT,
                     "step-00000001|model.00000.safetensors");
        json_decref(metadata);
        json_decref(files);
    }
}

static void the_writer_of_a_rank(void **state)
{
    (void)state;
    for (int async = 0; async < 2; async++) {
        json_t *files = json_object();
        assert_ok(tg_ckpt_begin(root(), 5 + async));
        for (int r = 0; r < 2; r++) {
            tg_ckpt_part parts[TENSORS];
            tg_ckpt_item items[TENSORS];
            tg_ckpt_writer *w;
            tg_ckpt_done done;
            const size_t count = items_of(r, 2, parts, items);
            assert_ok(tg_ckpt_writer_create(root(), 2, async, (tg_ckpt_team){r, 2}, &w));
            assert_ok(tg_ckpt_writer_submit(w, 5 + async, items, count, NULL));
            memset(parts, 0xee, sizeof parts); /* the writer has its own */
            memset(part, 0xee, sizeof part);
            assert_ok(tg_ckpt_writer_wait(w));
            assert_true(tg_ckpt_writer_poll(w, &done));
            assert_non_null(done.files);
            json_object_update(files, done.files);
            json_decref(done.files);
            tg_ckpt_writer_destroy(&w);
        }
        assert_ok(tg_ckpt_commit(root(), 5 + async, (tg_ckpt_team){0, 2}, NULL, files, 0));
        json_decref(files);
        expect_whole(in_dir(async ? "checkpoints/step-00000006" : "checkpoints/step-00000005"));
    }
}

static int fetched;

static teng_status fetch(void *user, const tg_ckpt_item *item, void *to)
{
    const int t = *(const int *)user;
    fetched++;
    if (t < 0) return tg_fail(TENG_IO, "%s cannot be read", item->name);
    memcpy(to, whole[t], tg_desc_bytes(&item->desc));
    return TENG_OK;
}

/* Values that are made when their turn has come give the same file. */
static void values_fetched_in_their_turn(void **state)
{
    (void)state;
    static int numbers[TENSORS] = {0, 1, 2, 3};
    tg_ckpt_item now[TENSORS], later[TENSORS];
    tg_st_digest a, b;
    for (int t = 0; t < TENSORS; t++) {
        now[t] = (tg_ckpt_item){.name = tensors[t].name, .desc = tensors[t].desc, .data = whole[t]};
        later[t] = (tg_ckpt_item){
            .name = tensors[t].name, .desc = tensors[t].desc, .fetch = fetch, .user = &numbers[t]};
    }
    assert_ok(tg_st_write(in_dir("now.safetensors"), now, TENSORS, NULL, &a));
    assert_ok(tg_st_write(in_dir("later.safetensors"), later, TENSORS, NULL, &b));
    assert_true(a.xxh3 == b.xxh3 && fetched == TENSORS);
    numbers[2] = -1;
    assert_error(tg_st_write(in_dir("failed.safetensors"), later, TENSORS, NULL, &b), TENG_IO,
                 "norm cannot be read");
    numbers[2] = 2;
    assert_false(tg_path_exists(in_dir("failed.safetensors")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_cut_reads_as_any_other, enter, leave),
        cmocka_unit_test_setup_teardown(conversion_of_a_box, enter, leave),
        cmocka_unit_test_setup_teardown(weights_of_a_checkpoint, enter, leave),
        cmocka_unit_test_setup_teardown(half_of_one_is_never_seen, enter, leave),
        cmocka_unit_test_setup_teardown(missing_and_doubled_files, enter, leave),
        cmocka_unit_test_setup_teardown(metadata_that_lies, enter, leave),
        cmocka_unit_test_setup_teardown(the_writer_of_a_rank, enter, leave),
        cmocka_unit_test_setup_teardown(values_fetched_in_their_turn, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
