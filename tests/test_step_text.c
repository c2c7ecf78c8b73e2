/*
 * The graphs of real training steps: as text and back they plan the same; passes change what they say and no
 * bit; every value is read within its lifetime; errors of a model's operators name layer and line.
 */
#include "poison_run.h"
#include "tiny_lm.h"

#include "base/fail.h"
#include "base/file.h"
#include "device/cpu_isa.h"
#include "optim/optim.h"
#include "tensor/desc.h"
#include "train/run_impl.h"
#include "train/step.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
enum { FAMILIES = 4 };

/* The plan of a training step of a tiny model. */
static tg_core *planned(teng_cell *lm, tg_step_options *o, const tg_plan **plan)
{
    tg_core *core = tiny_core(lm, o);
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){TINY_ROWS, TINY_SEQ});
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    if (tg_step_plan(core->step, &shapes, true, plan) != TENG_OK) fail_msg("%s", teng_error());
    return core;
}

static char *listing(const tg_plan *plan)
{
    tg_strbuf out = {0};
    tg_plan_print(plan, &out);
    tg_plan_print_memory(plan, &out);
    return tg_strbuf_take(&out);
}

static void assert_round_trip(const tg_plan *plan)
{
    tg_graph *g = NULL;
    tg_strbuf text = {0}, again = {0};
    tg_plan *twin = NULL;
    tg_graph_print(plan->graph, &text);
    if (tg_graph_parse("step", tg_strbuf_str(&text), &g) != TENG_OK) fail_msg("%s", teng_error());
    tg_graph_print(g, &again);
    assert_string_equal(tg_strbuf_str(&again), tg_strbuf_str(&text));
    assert_int_equal(tg_plan_create(g, &plan->options, &twin), TENG_OK);
    char *want = listing(plan), *got = listing(twin);
    assert_string_equal(got, want);
    tg_free(want);
    tg_free(got);
    tg_plan_destroy(&twin);
    tg_strbuf_free(&text);
    tg_strbuf_free(&again);
}

static void step_graphs_round_trip(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int64_t k = 1; k <= 2; k++) {
            tg_step_options o = tiny_options();
            o.micro_batches = k;
            if (f == 1) o.optimizer = TG_CFG_OPTIMIZER_SGD;
            const tg_plan *plan;
            teng_cell *lm = teng_lm_create(tiny_config(families[f]));
            tg_core *core = planned(lm, &o, &plan);
            assert_round_trip(plan);
            tg_core_destroy(&core);
            teng_cell_destroy(&lm);
        }
}

/* The example configurations, through the listing that `teng plan` prints. */
static void configurations_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-tiny", "gpt2-tiny"};
    for (int i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, TG_SOURCE_DIR "/configs/%s.yaml", names[i]);
        tg_config *cfg = tg_config_create();
        tg_strbuf text = {0}, again = {0};
        tg_graph *g = NULL;
        if (tg_config_load(cfg, path) != TENG_OK || tg_run_plan_text(cfg, 0, "graph", &text) != TENG_OK ||
            tg_graph_parse(path, tg_strbuf_str(&text), &g) != TENG_OK)
            fail_msg("%s", teng_error());
        tg_graph_print(g, &again);
        assert_string_equal(tg_strbuf_str(&again), tg_strbuf_str(&text));
        assert_true(g->nodes.len > 100);
        tg_graph_destroy(&g);
        tg_strbuf_free(&text);
        tg_strbuf_free(&again);
        tg_config_destroy(&cfg);
    }
}

/* ---- lifetimes ---- */
typedef struct feeder {
    const tg_core *core;
    const tg_source_batch *batch;
    int64_t m;
} feeder;

static void feed(void *user, const teng_tensor *input, void *to)
{
    const feeder *f = user;
    const float one = 1, keep = f->m ? 1.0F : 0.0F, weight = 1.0F / (float)f->core->options.micro_batches;
    float scalars[4];
    uint64_t rng[2];
    tg_step_scalars(f->core->step, 1, 1e-2, scalars);
    tg_step_rng(f->core->step, 1, f->m, rng);
    const void *from = strcmp(input->name, "tokens") == 0           ? f->batch->data[0]
                       : strcmp(input->name, "labels") == 0         ? f->batch->data[1]
                       : strcmp(input->name, TG_STEP_WEIGHT) == 0   ? (const void *)&weight
                       : strcmp(input->name, TG_OPTIM_KEEP) == 0    ? (const void *)&keep
                       : strcmp(input->name, TG_STEP_RNG) == 0      ? (const void *)rng
                       : strcmp(input->name, TG_OPTIM_SCALARS) == 0 ? (const void *)scalars
                                                                    : (const void *)&one;
    memcpy(to, from, tg_desc_bytes(&input->desc));
}

/* A step in poisoned memory leaves the parameters and states that a plain one leaves. */
static void lifetimes_of_real_steps(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int64_t k = 1; k <= 2; k++) {
            tg_step_options o = tiny_options();
            o.micro_batches = k;
            const tg_plan *plan;
            teng_cell *one = teng_lm_create(tiny_config(families[f])),
                      *two = teng_lm_create(tiny_config(families[f]));
            tg_core *core = tiny_core(one, &o), *poisoned = planned(two, &o, &plan);
            tiny_data d = {.rows = TINY_ROWS * k};
            const tg_source source = tiny_source(&d);
            tg_source_batch b;
            tiny_step(core, &d, 1e-2);
            d.next = 0;
            assert_int_equal(source.next(source.user, &b), TENG_OK);
            for (size_t i = 0; i < plan->graph->values.len; i++) { /* what binding the plan would add */
                const teng_tensor *v = plan->graph->values.data[i];
                tg_store_entry *e;
                if (v->kind == TG_VALUE_STATE)
                    assert_int_equal(tg_store_add(poisoned->store, TG_STORE_STATE, v->name, &v->desc, &e),
                                     TENG_OK);
            }
            unsigned char *block = NULL;
            for (int64_t m = 0; m < k; m++) {
                tg_source_batch part = b;
                for (int i = 0; i < 2; i++)
                    part.data[i] = (const int32_t *)b.data[i] + m * TINY_ROWS * TINY_SEQ;
                feeder user = {poisoned, &part, m};
                block = poison_run(plan, poisoned->store, block, TG_FORWARD, TG_BACKWARD, feed, &user);
            }
            block = poison_run(plan, poisoned->store, block, TG_UPDATE, TG_UPDATE, NULL, NULL);
            tiny_assert_same_state(core, poisoned);
            tg_free_aligned(block);
            tg_core_destroy(&core);
            tg_core_destroy(&poisoned);
            teng_cell_destroy(&one);
            teng_cell_destroy(&two);
        }
}

/* ---- passes ---- */
static void passes_change_no_bit(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        tg_step_options o = tiny_options(), none = tiny_options();
        none.n_passes = 0;
        const tg_plan *full, *lean;
        teng_cell *one = teng_lm_create(tiny_config(families[f])),
                  *two = teng_lm_create(tiny_config(families[f]));
        tg_core *with = planned(one, &o, &lean), *without = planned(two, &none, &full);
        assert_true(lean->graph->nodes.len <= full->graph->nodes.len);
        assert_non_null(strstr(tg_step_pass_report(with->step), "dce "));
        assert_non_null(strstr(tg_step_pass_report(with->step), "cse "));
        assert_string_equal(tg_step_pass_report(without->step), "");
        tiny_data d = {0}, e = {0};
        for (int step = 0; step < 5; step++) {
            const tg_core_result x = tiny_step(with, &d, 1e-2), y = tiny_step(without, &e, 1e-2);
            assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        }
        tiny_assert_same_state(with, without);
        tg_core_destroy(&with);
        tg_core_destroy(&without);
        teng_cell_destroy(&one);
        teng_cell_destroy(&two);
    }
}

/* ---- errors of a user's model ---- */
static teng_tensor *bad_block(teng_cell *self, teng_tensor *const *in, int n)
{
    (void)self, (void)n;
    return teng_add(in[0], teng_slice(in[0], 1, 0, 3)); /* the line that is named: BAD_LINE */
}
enum { BAD_LINE = __LINE__ - 2 };
static teng_tensor *bad_model(teng_cell *self, teng_tensor *const *in, int n)
{
    (void)n;
    teng_cell *block = *(teng_cell **)teng_cell_data(self);
    teng_tensor *x = teng_cast(in[0], TENG_F32);
    return teng_mean(teng_call(block, x), (teng_dims){0}, false);
}

static void errors_name_layer_and_line(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        char at[64];
        tg_step_options o = tiny_options();
        o.pynative = mode;
        teng_cell *root = teng_cell_create("bad", sizeof(teng_cell *), bad_model);
        *(teng_cell **)teng_cell_data(root) =
            teng_cell_add(root, "blocks.7", teng_cell_create("block", 0, bad_block));
        tg_core *core = tiny_core(root, &o);
        tiny_data d = {0};
        const tg_source source = tiny_source(&d);
        tg_core_result r;
        assert_int_not_equal(tg_core_train_step(core, &source, 1e-3, &r), TENG_OK);
        snprintf(at, sizeof at, "test_step_text.c:%d", BAD_LINE);
        if (!strstr(teng_error(), "blocks.7 (add, ") || !strstr(teng_error(), at))
            fail_msg("%s", teng_error());
        teng_error_clear();
        tg_core_destroy(&core);
        teng_cell_destroy(&root);
    }
}

static void budget_is_checked_before_step_one(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    o.memory_budget = 1000;
    teng_cell *lm = teng_lm_create(tiny_config("llama"));
    tg_core *core = tiny_core(lm, &o);
    tiny_data d = {0};
    const tg_source source = tiny_source(&d);
    tg_core_result r;
    assert_int_equal(tg_core_train_step(core, &source, 1e-3, &r), TENG_MEMORY);
    assert_non_null(strstr(teng_error(), "memory.budget: the plan needs "));
    assert_non_null(strstr(teng_error(), "the budget is 1000 B"));
    teng_error_clear();
    assert_int_equal(core->done, 0);
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_graphs_round_trip),     cmocka_unit_test(configurations_round_trip),
        cmocka_unit_test(lifetimes_of_real_steps),    cmocka_unit_test(passes_change_no_bit),
        cmocka_unit_test(errors_name_layer_and_line), cmocka_unit_test(budget_is_checked_before_step_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
