/*
 * Recompute in whole steps: equal bits whatever is recomputed, in every family, with dropout, micro-batches
 * and two lengths, and across a save; the memory that it saves; what selective leaves alone; refusals.
 */
#include "base/fail.h"
#include "base/file.h"
#include "pass/pass.h"
#include "tiny_lm.h"
#include "train/step.h"

#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
enum { FAMILIES = 4 };

static teng_cell *model(const char *family)
{
    teng_cell *lm = teng_lm_create(tiny_config(family));
    if (!lm) fail_msg("%s: %s", family, teng_error());
    return lm;
}

static const tg_plan *plan_of(tg_core *core)
{
    const tg_plan *plan;
    tiny_data d = {0};
    tg_source_batch b;
    const tg_source source = tiny_source(&d);
    assert_int_equal(source.next(source.user, &b), TENG_OK);
    const tg_step_feed feed = {.in_desc = b.desc, .in = b.data, .in_name = b.name, .n_in = 2, .weight = 1};
    if (tg_step_plan(core->step, &feed, true, &plan) != TENG_OK) fail_msg("%s", teng_error());
    return plan;
}

static size_t bytes_with(const char *family, const tg_step_options *like, tg_cfg_recompute recompute)
{
    tg_step_options o = *like;
    o.recompute = recompute;
    o.memory_budget = 0;
    teng_cell *lm = model(family);
    tg_core *core = tiny_core(lm, &o);
    const size_t bytes = tg_plan_bytes(plan_of(core));
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
    return bytes;
}

static int clones_of(const tg_plan *plan)
{
    int n = 0;
    for (size_t k = 0; k < plan->steps.len; k++)
        n += plan->steps.data[k].node->recomputed;
    return n;
}

/* ---- bits ---- */
static void compare(const char *family, tg_step_options o, tg_cfg_recompute recompute)
{
    teng_cell *one = model(family), *two = model(family);
    tg_core *plain = tiny_core(one, &o);
    o.recompute = recompute;
    if (recompute == TG_CFG_RECOMPUTE_AUTO)
        o.memory_budget =
            (bytes_with(family, &o, TG_CFG_RECOMPUTE_NONE) + bytes_with(family, &o, TG_CFG_RECOMPUTE_FULL)) /
            2;
    tg_core *again = tiny_core(two, &o);
    assert_true(clones_of(plan_of(again)) > 0);
    assert_int_equal(clones_of(plan_of(plain)), 0);
    if (o.memory_budget) assert_true(tg_plan_bytes(plan_of(again)) <= o.memory_budget);
    tiny_data d = {.ragged = true, .other_seq = 16}, e = {.ragged = true, .other_seq = 16};
    double first = 0, last = 0;
    for (int step = 0; step < 6; step++) {
        const tg_core_result x = tiny_step(plain, &d, 1e-2), y = tiny_step(again, &e, 1e-2);
        if (memcmp(&x.loss, &y.loss, sizeof x.loss) || memcmp(&x.grad_norm, &y.grad_norm, sizeof x.grad_norm))
            fail_msg("%s, recompute %d, step %d: %.9g and %.9g, norms %.9g and %.9g", family, (int)recompute,
                     step + 1, x.loss, y.loss, x.grad_norm, y.grad_norm);
        if (step == 0) first = x.loss;
        last = x.loss;
    }
    assert_true(first != last);
    tiny_assert_same_state(plain, again);
    tg_core_destroy(&plain);
    tg_core_destroy(&again);
    teng_cell_destroy(&one);
    teng_cell_destroy(&two);
}

static void the_same_bits(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int kind = TG_CFG_RECOMPUTE_SELECTIVE; kind <= TG_CFG_RECOMPUTE_AUTO; kind++)
            for (int64_t k = 1; k <= 2; k++) {
                tg_step_options o = tiny_options();
                o.micro_batches = k;
                compare(families[f], o, (tg_cfg_recompute)kind);
            }
}

static void the_same_bits_in_some_layers(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    static const char *const one[] = {"transformer.h.1"}, *const parts[] = {"*.mlp", "transformer.h.0.attn"};
    o.recompute_layers = one;
    o.n_recompute_layers = 1;
    tg_step_options none = o;
    none.n_recompute_layers = 0;
    for (int i = 0; i < 2; i++) {
        tg_step_options some = none;
        some.recompute = TG_CFG_RECOMPUTE_FULL;
        some.recompute_layers = i ? parts : one;
        some.n_recompute_layers = i ? 2 : 1;
        teng_cell *a = model("gpt2"), *b = model("gpt2");
        tg_core *plain = tiny_core(a, &none), *again = tiny_core(b, &some);
        const tg_plan *plan = plan_of(again);
        assert_true(clones_of(plan) > 0);
        for (size_t k = 0; k < plan->steps.len; k++) {
            const tg_node *node = plan->steps.data[k].node;
            if (!node->recomputed) continue;
            assert_int_equal(node->phase, TG_BACKWARD);
            if (i == 0 && strncmp(node->scope, "transformer.h.1", 15) != 0) fail_msg("%s", node->scope);
            if (i == 1 && !strstr(node->scope, ".mlp") &&
                strncmp(node->scope, "transformer.h.0.attn", 20) != 0)
                fail_msg("%s", node->scope);
        }
        tiny_data d = {0}, e = {0};
        for (int step = 0; step < 3; step++)
            tiny_step(plain, &d, 1e-2), tiny_step(again, &e, 1e-2);
        tiny_assert_same_state(plain, again);
        tg_core_destroy(&plain);
        tg_core_destroy(&again);
        teng_cell_destroy(&a);
        teng_cell_destroy(&b);
    }
}

/* A run may go on with another setting. */
static void the_same_bits_across_a_save(void **state)
{
    (void)state;
    char root[] = "/tmp/teng-recompute-XXXXXX";
    assert_non_null(mkdtemp(root));
    tg_step_options o = tiny_options();
    teng_cell *one = model("gpt2"), *two = model("gpt2");
    tg_core *straight = tiny_core(one, &o), *resumed = NULL;
    tiny_data d = {0}, e = {0};
    for (int step = 0; step < 3; step++)
        tiny_step(straight, &d, 1e-2);
    tg_ckpt_item *items;
    size_t n;
    json_t *saved = json_object();
    assert_int_equal(tg_core_items(straight, &items, &n), TENG_OK);
    assert_int_equal(tg_core_state_json(straight, saved), TENG_OK);
    assert_int_equal(tg_ckpt_save(root, straight->done, items, n, saved, 1), TENG_OK);
    json_decref(saved);
    tg_free(items);
    char *path = NULL;
    tg_ckpt *ck = NULL;
    const tg_source source = tiny_source(&e);
    assert_int_equal(tg_ckpt_latest(root, false, &path), TENG_OK);
    assert_int_equal(tg_ckpt_open(path, false, &ck), TENG_OK);
    o.recompute = TG_CFG_RECOMPUTE_FULL;
    assert_int_equal(tg_core_create(two, "cpu", 0, &o, NULL, &resumed), TENG_OK);
    assert_int_equal(tg_core_restore(resumed, ck, &source), TENG_OK);
    tg_ckpt_close(&ck);
    tg_free(path);
    for (int step = 0; step < 3; step++) {
        const tg_core_result x = tiny_step(straight, &d, 1e-2), y = tiny_step(resumed, &e, 1e-2);
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
    }
    tiny_assert_same_state(straight, resumed);
    tg_core_destroy(&straight);
    tg_core_destroy(&resumed);
    teng_cell_destroy(&one);
    teng_cell_destroy(&two);
    assert_int_equal(tg_remove_tree(root), TENG_OK);
}

/* ---- plans ---- */
static tg_core *core_of(const char *config, const tg_step_options *o, teng_cell **cell)
{
    *cell = teng_lm_create(config);
    if (!*cell) fail_msg("%s", teng_error());
    return tiny_core(*cell, o);
}

/* 6 layers, 64 wide, 48 × 64 tokens: activations are most of the memory. */
static const tg_plan *plan_deep(tg_core *core)
{
    const teng_desc desc = {.dtype = TENG_I32, .ndim = 2, .dims = {48, 64}};
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    const tg_plan *plan;
    if (tg_step_plan(core->step, &shapes, true, &plan) != TENG_OK) fail_msg("%s", teng_error());
    return plan;
}
#define DEEP                                                                                                 \
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":64,\"n_layer\":6,\"n_head\":4,\"n_positions\":"   \
    "64,"                                                                                                    \
    "\"embd_pdrop\":0.1,\"resid_pdrop\":0.1,\"attn_pdrop\":0}"

static void memory_falls(void **state)
{
    (void)state;
    size_t kept[3], bytes[3];
    for (int kind = 0; kind < 3; kind++) {
        tg_step_options o = tiny_options();
        o.recompute = (tg_cfg_recompute)kind;
        teng_cell *lm;
        tg_core *core = core_of(DEEP, &o, &lm);
        const tg_plan *plan = plan_deep(core);
        kept[kind] = plan->memory.kept_for_backward;
        bytes[kind] = tg_plan_bytes(plan);
        /* What a layer keeps is its input: 6 of [48, 64, 64] and the last norm's, before the loss. */
        const size_t row = (size_t)48 * 64 * 64 * sizeof(float);
        if (kind == TG_CFG_RECOMPUTE_FULL) assert_in_range(kept[kind], 6 * row, 9 * row);
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
    assert_true((double)kept[TG_CFG_RECOMPUTE_SELECTIVE] < 0.70 * (double)kept[TG_CFG_RECOMPUTE_NONE]);
    assert_true((double)kept[TG_CFG_RECOMPUTE_FULL] < 0.15 * (double)kept[TG_CFG_RECOMPUTE_NONE]);
    assert_true((double)bytes[TG_CFG_RECOMPUTE_FULL] < 0.45 * (double)bytes[TG_CFG_RECOMPUTE_NONE]);
}

static void selective_runs_no_product_again(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        tg_step_options o = tiny_options();
        o.recompute = TG_CFG_RECOMPUTE_SELECTIVE;
        teng_cell *lm = model(families[f]);
        tg_core *core = tiny_core(lm, &o);
        const tg_plan *plan = plan_of(core);
        assert_true(clones_of(plan) > 0);
        for (size_t k = 0; k < plan->steps.len; k++) {
            const tg_node *node = plan->steps.data[k].node;
            if (node->recomputed && node->op->precision == TENG_PRECISION_PRODUCT)
                fail_msg("%s: %s in %s", families[f], node->op->name, node->scope);
        }
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
}

/* The budget decides how much; a looser one never costs more. */
static void auto_fits_and_takes_the_least(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    teng_cell *lm;
    tg_core *core = core_of(DEEP, &o, &lm);
    const size_t most = tg_plan_bytes(plan_deep(core));
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
    o.recompute = TG_CFG_RECOMPUTE_FULL;
    core = core_of(DEEP, &o, &lm);
    const size_t least = tg_plan_bytes(plan_deep(core));
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
    o.recompute = TG_CFG_RECOMPUTE_AUTO;
    o.flops_per_s = 1e11;
    o.bytes_per_s = 2e10;
    double before = 0;
    for (int i = 8; i >= 0; i--) {
        o.memory_budget = least + (most - least) / 8 * (size_t)i + (i == 8 ? 7 : 0);
        core = core_of(DEEP, &o, &lm);
        const tg_plan *plan = plan_deep(core);
        assert_true(tg_plan_bytes(plan) <= o.memory_budget);
        const double seconds = tg_plan_forecast(plan, TG_BACKWARD);
        assert_true(seconds >= before);
        if (i == 8) assert_int_equal(clones_of(plan), 0);
        if (i == 0) assert_true(clones_of(plan) > 60);
        before = seconds;
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
}

/* The text of a rewritten graph says what is recomputed, and neither it nor a pass undoes that. */
static void passes_leave_clones_alone(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        tg_step_options o = tiny_options();
        o.recompute = TG_CFG_RECOMPUTE_FULL;
        teng_cell *lm = model(families[f]);
        tg_core *core = tiny_core(lm, &o);
        const tg_plan *plan = plan_of(core);
        tg_strbuf text = {0}, where = {0};
        tg_graph *g = NULL;
        tg_graph_print(plan->graph, &text);
        if (tg_graph_parse("text", tg_strbuf_str(&text), &g) != TENG_OK) fail_msg("%s", teng_error());
        const size_t nodes = g->nodes.len;
        assert_int_equal(tg_pass_run(g, (const char *const[]){"cse", "dce"}, 2, NULL, NULL, NULL), TENG_OK);
        assert_int_equal(g->nodes.len, nodes);
        int clones = 0;
        for (size_t k = 0; k < nodes; k++) {
            if (!g->nodes.data[k]->recomputed) continue;
            clones++;
            where.len = 0;
            tg_node_where(g->nodes.data[k], &where);
            assert_non_null(strstr(tg_strbuf_str(&where), ", recomputed"));
            assert_true(strstr(tg_strbuf_str(&where), "layers.") || strstr(tg_strbuf_str(&where), "h."));
        }
        assert_int_equal(clones, clones_of(plan));
        tg_graph_destroy(&g);
        tg_strbuf_free(&text);
        tg_strbuf_free(&where);
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
}

/* ---- refusals ---- */
static void refused(const tg_step_options *o, const char *message)
{
    teng_cell *lm = model("llama");
    tg_core *core = NULL;
    tg_core_result r;
    tiny_data d = {0};
    const tg_source source = tiny_source(&d);
    if (tg_core_create(lm, "cpu", 0, o, NULL, &core) == TENG_OK)
        assert_int_not_equal(tg_core_train_step(core, &source, 1e-3, &r), TENG_OK);
    if (!strstr(teng_error(), message)) fail_msg("\"%s\" is not in \"%s\"", message, teng_error());
    teng_error_clear();
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
}

static void impossible_wishes_are_refused(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    o.recompute = TG_CFG_RECOMPUTE_AUTO;
    refused(&o, "memory.budget, which is not set: set it (memory.budget=8GiB)");
    o.memory_budget = 100000;
    refused(&o, "memory.budget: the plan needs ");
    o.memory_budget = 0;
    o.recompute = TG_CFG_RECOMPUTE_FULL;
    o.pynative = true;
    refused(&o, "use context.mode=graph, whose numbers are the same, or memory.recompute=none");
    o.pynative = false;
    o.n_recompute_layers = 1;
    o.recompute_layers = (const char *const[]){"model.layer.1"};
    refused(&o,
            "memory.recompute_layers: \"model.layer.1\" matches no layer; did you mean \"model.layers.1\"?");
    o.recompute_layers = (const char *const[]){"encoder"};
    refused(&o, "\"encoder\" matches no layer; the layers are model.layers.0");
    o.recompute = TG_CFG_RECOMPUTE_NONE;
    refused(&o, "memory.recompute is none: set it to selective, full or auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(the_same_bits_in_some_layers),
        cmocka_unit_test(the_same_bits_across_a_save),
        cmocka_unit_test(memory_falls),
        cmocka_unit_test(selective_runs_no_product_again),
        cmocka_unit_test(auto_fits_and_takes_the_least),
        cmocka_unit_test(passes_leave_clones_alone),
        cmocka_unit_test(impossible_wishes_are_refused),
    };
    return cmocka_run_group_tests_name("recompute", tests, NULL, NULL);
}
