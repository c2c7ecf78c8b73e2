/*
 * The team of ranks: what one knows, all know; what must be the same is compared. The same test alone and
 * under mpirun on 2 and 4 ranks: each case says what every rank must find.
 */
#include "base/file.h"
#include "base/mem.h"
#include "scratch.h"
#include "tensor/desc.h"
#include "tiny_lm.h"
#include "train/saver.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static tg_team *team;

static int enter(void **state)
{
    (void)state;
    teng_error_clear();
    return 0;
}

static int join(void **state)
{
    (void)state;
    return tg_team_open(&team) == TENG_OK ? 0 : -1;
}

static int part(void **state)
{
    (void)state;
    tg_team_close(&team);
    return 0;
}

static bool many(void)
{
    return team->ranks > 1;
}

static void failures_are_shared(void **state)
{
    (void)state;
    char want[64];
    assert_ok(tg_team_agree(team, TENG_OK));
    /* One fails: all fail, with its number and its message. */
    const bool mine = team->rank == team->ranks - 1;
    teng_status status = tg_team_agree(team, mine ? tg_fail(TENG_IO, "no room here") : TENG_OK);
    snprintf(want, sizeof want, many() ? "rank %d: no room here" : "no room here", team->ranks - 1);
    assert_error(status, TENG_IO, want);
    assert_true(tg_team_agreed(team));
    /* Two fail: the lower one is told. */
    status = tg_team_agree(team, tg_fail(TENG_INVALID, "word %d", team->rank));
    assert_error(status, TENG_INVALID, many() ? "rank 0: word 0" : "word 0");
    /* All say the same: nobody is named. */
    status = tg_team_agree(team, tg_fail(TENG_NUMERIC, "not finite"));
    assert_int_equal(status, TENG_NUMERIC);
    assert_string_equal(teng_error(), "not finite");
    teng_error_clear();
    /* What comes after is another matter. */
    int32_t none = 0;
    assert_ok(tg_team_max(team, &none, 1));
    assert_int_equal(tg_team_agreed(team), !many());
}

static void values_and_texts(void **state)
{
    (void)state;
    int32_t values[2] = {team->rank, -team->rank};
    char own[32], *all, *first;
    assert_ok(tg_team_max(team, values, 2));
    assert_int_equal(values[0], team->ranks - 1);
    assert_int_equal(values[1], 0);
    snprintf(own, sizeof own, "%.*s", team->rank + 1, "abcdefgh");
    assert_ok(tg_team_gather_text(team, own, &all));
    const char *at = all;
    for (int r = 0; r < team->ranks; r++, at += strlen(at) + 1) {
        assert_int_equal(strlen(at), r + 1);
        assert_memory_equal(at, "abcdefgh", (size_t)r + 1);
    }
    assert_ok(tg_team_first_text(team, own, &first));
    assert_string_equal(first, "a");
    tg_free(all);
    tg_free(first);
}

static void facts_must_agree(void **state)
{
    (void)state;
    json_t *facts = json_pack("{s:s, s:i}", "data.files", "a.txt", "tokens", 7);
    assert_ok(tg_team_same_facts(team, facts, "give all the same"));
    if (team->rank == 1) json_object_set_new(facts, "tokens", json_integer(8));
    const teng_status status = tg_team_same_facts(team, facts, "give all the same");
    if (many())
        assert_error(status, TENG_INVALID,
                     "rank 1: |tokens is 7 on rank 0 and 8 on rank 1: give all the same");
    else
        assert_ok(status);
    json_decref(facts);
}

static void copies_must_agree(void **state)
{
    (void)state;
    /* "odd" is held in parts by odd and even ranks, "own" by each alone; "all" is the same everywhere. */
    tg_team_copy copies[] = {{"all", 1, 100},
                             {"odd", (uint64_t)(team->rank % 2), 200 + (uint64_t)(team->rank % 2)},
                             {"own", 10 + (uint64_t)team->rank, 300 + (uint64_t)team->rank},
                             {"last", 1, 400}};
    const size_t n = team->rank == 0 ? 4 : 3; /* and one tensor on the first rank alone */
    assert_ok(tg_team_same_copies(team, copies, n, "after step 3"));
    if (team->rank == team->ranks - 1) copies[0].bits++;
    if (team->rank == team->ranks - 1) copies[1].bits += 50;
    const teng_status status = tg_team_same_copies(team, copies, n, "after step 3");
    if (many())
        assert_error(status, TENG_STATE, "after step 3: all is not the same on rank 0 and rank|gone apart");
    else
        assert_ok(status);
}

/* ---- a model on data ranks ---- */
static tg_config *cfg;

static tg_core *core_of(teng_cell *cell, int64_t zero, tg_parallel_options *split)
{
    char text[32];
    cfg = tg_config_create();
    snprintf(text, sizeof text, "%d", team->ranks);
    assert_ok(tg_config_set(cfg, "parallel.data", text));
    assert_ok(tg_team_bind(team, cfg));
    tg_step_options o = tiny_options();
    *split = (tg_parallel_options){.mesh = team->mesh, .rank = team->rank, .zero = (int)zero};
    if (many()) o.parallel = split;
    tg_core *core;
    assert_ok(tg_core_create(cell, "cpu", 1, &o, team, &core));
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){TINY_ROWS, TINY_SEQ});
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    assert_ok(tg_core_lay_out(core, &shapes));
    assert_ok(tg_core_init(core, 11));
    return core;
}

static void copies_of_a_model(void **state)
{
    (void)state;
    tg_parallel_options split;
    teng_cell *cell = teng_lm_create(tiny_config("llama"));
    tg_core *core = core_of(cell, 1, &split);
    tiny_data data = {.rows = TINY_ROWS, .seq = TINY_SEQ};
    assert_ok(tg_core_same_copies(core, "before the first step"));
    tiny_step(core, &data, 1e-3);
    assert_ok(tg_core_same_copies(core, "after step 1")); /* states are split: nothing to compare of them */
    tg_store_entry *e = tg_store_find(core->store, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(e);
    if (team->rank == team->ranks - 1) ((uint32_t *)e->data)[5] ^= 1; /* one bit */
    const teng_status status = tg_core_same_copies(core, "after step 1");
    if (many())
        assert_error(status, TENG_STATE, "after step 1: model.layers.1.mlp.down_proj.weight is not the same");
    else
        assert_ok(status);
    tg_core_destroy(&core);
    teng_cell_destroy(&cell);
    tg_config_destroy(&cfg);
}

/* The outcome of the last save, which all ranks have. */
static tg_ckpt_done outcome(tg_saver *s)
{
    tg_ckpt_done done;
    if (tg_saver_wait(s) != TENG_OK) teng_error_clear();
    assert_true(tg_saver_poll(s, &done));
    return done;
}

static teng_status save(tg_saver *s, const tg_core *core, bool last)
{
    json_t *more = json_object();
    const teng_status status = tg_saver_submit(s, core, more, last);
    json_decref(more);
    return status;
}

/* Every rank writes, one commit; one rank fails, none is committed and all are told which. */
static void saves_are_committed_by_all(void **state)
{
    (void)state;
    tg_parallel_options split;
    teng_cell *cell = teng_lm_create(tiny_config("llama"));
    tg_core *core = core_of(cell, 3, &split);
    tiny_data data = {.rows = TINY_ROWS, .seq = TINY_SEQ};
    char own[64], *root;
    snprintf(own, sizeof own, "team-%d-%d.ckpt", team->ranks, team->rank);
    assert_ok(tg_team_first_text(team, own, &root)); /* rank 0's folder */
    for (int async = 0; async < 2; async++) {
        tg_saver *s;
        tg_ckpt_done done;
        char *path;
        assert_ok(tg_saver_create(root, 2, async, team, &s));
        for (int i = 0; i < 2; i++) {
            tiny_step(core, &data, 1e-3);
            assert_ok(save(s, core, i == 1));
        }
        done = outcome(s);
        assert_int_equal(done.step, core->done - 1);
        assert_true(tg_saver_poll(s, &done));
        assert_true(done.step == core->done && done.error.status == TENG_OK);
        assert_false(tg_saver_poll(s, &done));
        assert_ok(tg_ckpt_latest(root, false, &path));
        assert_non_null(strstr(path, async ? "step-00000004" : "step-00000002"));
        tg_free(path);
        tg_saver_destroy(&s);
        assert_ok(tg_team_agree(team, TENG_OK));
    }
    /* A tensor whose name no file may have, which rank 0 stands for. */
    tg_store_entry *bad;
    tg_saver *s;
    const teng_desc one = tg_desc_make(TENG_F32, 0, NULL);
    assert_ok(tg_store_add(core->store, TG_STORE_STATE, "__metadata__", &one, &bad));
    assert_ok(tg_saver_create(root, 2, true, team, &s));
    tiny_step(core, &data, 1e-3);
    assert_ok(save(s, core, false));
    const tg_ckpt_done done = outcome(s);
    if ((strncmp(done.error.message, "rank 0: ", 8) == 0) != many() ||
        !strstr(done.error.message, "__metadata__") ||
        !strstr(done.error.message, "the checkpoint of step 5 was not saved"))
        fail_msg("%s", done.error.message);
    tg_saver_destroy(&s);
    char *path;
    assert_ok(tg_ckpt_latest(root, false, &path));
    assert_non_null(strstr(path, "step-00000004")); /* the last whole one */
    tg_free(path);
    assert_ok(tg_team_agree(team, TENG_OK)); /* nobody removes what others look at */
    if (team->rank == 0) assert_ok(tg_remove_tree(root));
    tg_free(root);
    tg_core_destroy(&core);
    teng_cell_destroy(&cell);
    tg_config_destroy(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(failures_are_shared, enter),
        cmocka_unit_test_setup(values_and_texts, enter),
        cmocka_unit_test_setup(facts_must_agree, enter),
        cmocka_unit_test_setup(copies_must_agree, enter),
        cmocka_unit_test_setup(copies_of_a_model, enter),
        cmocka_unit_test_setup(saves_are_committed_by_all, enter),
    };
    return cmocka_run_group_tests(tests, join, part);
}
