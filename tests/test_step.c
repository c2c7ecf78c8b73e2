/*
 * Training steps of small models: GRAPH and PYNATIVE give the same bits in losses, gradients, parameters and
 * optimizer states; k micro-batches are one batch; two sequence lengths train in one run; the same run twice
 * is the same bits, on any number of threads; a step allocates nothing; a state restored goes on bit for bit.
 */
#include "base/fail.h"
#include "base/file.h"
#include "tensor/desc.h"
#include "tiny_lm.h"
#include "train/step.h"

#include "cmocka_all.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
enum { FAMILIES = 4 };

static teng_cell *model(const char *family)
{
    teng_cell *lm = teng_lm_create(tiny_config(family));
    if (!lm) fail_msg("%s: %s", family, teng_error());
    return lm;
}

/* ---- modes ---- */
static void compare_modes(const char *family, int64_t micro_batches, tg_cfg_optimizer optimizer)
{
    tg_step_options o = tiny_options();
    o.micro_batches = micro_batches;
    o.optimizer = optimizer;
    teng_cell *one = model(family), *two = model(family);
    tg_core *graph = tiny_core(one, &o);
    o.pynative = true;
    tg_core *eager = tiny_core(two, &o);
    tiny_data d = {.ragged = true}, e = {.ragged = true};
    double first = 0, last = 0;
    for (int step = 0; step < 20; step++) {
        const tg_core_result x = tiny_step(graph, &d, 1e-2), y = tiny_step(eager, &e, 1e-2);
        if (memcmp(&x.loss, &y.loss, sizeof x.loss) || memcmp(&x.grad_norm, &y.grad_norm, sizeof x.grad_norm))
            fail_msg("%s, %d micro-batches, step %d: %.9g and %.9g, norms %.9g and %.9g", family,
                     (int)micro_batches, step + 1, x.loss, y.loss, x.grad_norm, y.grad_norm);
        assert_true(x.finite && y.finite);
        if (step == 0) first = x.loss;
        last = x.loss;
    }
    assert_true(isfinite(last) && last != first);
    tiny_assert_same_state(graph, eager);
    tg_core_destroy(&graph);
    tg_core_destroy(&eager);
    teng_cell_destroy(&one);
    teng_cell_destroy(&two);
}

static void modes_give_the_same_bits(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        compare_modes(families[f], 1, TG_CFG_OPTIMIZER_ADAMW);
        compare_modes(families[f], 4, TG_CFG_OPTIMIZER_ADAMW);
    }
    compare_modes("llama", 2, TG_CFG_OPTIMIZER_SGD);
}

static float **gradients(tg_core *core, tiny_data *data, size_t *n)
{
    const tg_param_info *p;
    tg_source_batch b;
    double loss;
    assert_int_equal(tg_nn_params(core->cell, &p, n), TENG_OK);
    float **grads = tg_calloc(*n, sizeof *grads);
    for (size_t i = 0; i < *n; i++)
        grads[i] = tg_calloc(tg_desc_bytes(&p[i].desc), 1);
    const tg_source source = tiny_source(data);
    assert_int_equal(source.next(source.user, &b), TENG_OK);
    const tg_step_feed feed = {.in_desc = b.desc, .in = b.data, .in_name = b.name, .n_in = 2, .weight = 1};
    if (tg_step_grads(core->step, &feed, 1, &loss, grads) != TENG_OK) fail_msg("%s", teng_error());
    return grads;
}

static void gradients_give_the_same_bits(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        tg_step_options o = tiny_options();
        o.no_dropout = true;
        teng_cell *one = model(families[f]), *two = model(families[f]);
        tg_core *graph = tiny_core(one, &o);
        o.pynative = true;
        tg_core *eager = tiny_core(two, &o);
        tiny_data d = {0}, e = {0};
        size_t n, m;
        float **x = gradients(graph, &d, &n), **y = gradients(eager, &e, &m);
        const tg_param_info *p;
        tg_nn_params(one, &p, &n);
        assert_int_equal(n, m);
        for (size_t i = 0; i < n; i++) {
            double size = 0;
            for (int64_t k = 0; k < tg_desc_numel(&p[i].desc); k++)
                size += fabs((double)x[i][k]);
            if (!(size > 0) || memcmp(x[i], y[i], tg_desc_bytes(&p[i].desc)) != 0)
                fail_msg("%s: gradient of %s, sum of sizes %g", families[f], p[i].name, size);
            tg_free(x[i]);
            tg_free(y[i]);
        }
        tg_free(x);
        tg_free(y);
        tg_core_destroy(&graph);
        tg_core_destroy(&eager);
        teng_cell_destroy(&one);
        teng_cell_destroy(&two);
    }
}

/* ---- micro-batches ---- */
static void assert_near(double a, double b, double rel, const char *what)
{
    if (!(fabs(a - b) <= rel * fabs(b))) fail_msg("%s: %.9g and %.9g", what, a, b);
}

static void micro_batches_are_one_batch(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        for (int64_t k = 2; k <= 4; k += 2) {
            tg_step_options o = tiny_options();
            o.pynative = mode;
            o.optimizer = TG_CFG_OPTIMIZER_SGD; /* linear in the gradient: differences are not blown up */
            o.clip_norm = 0;
            teng_cell *one = model("llama"), *two = model("llama");
            tg_core *whole = tiny_core(one, &o);
            o.micro_batches = k;
            tg_core *cut = tiny_core(two, &o);
            tiny_data d = {.ragged = true}, e = {.ragged = true};
            for (int step = 0; step < 3; step++) {
                const tg_core_result x = tiny_step(whole, &d, 1e-2), y = tiny_step(cut, &e, 1e-2);
                assert_near(y.loss, x.loss, 1e-6, "loss");
                assert_near(y.grad_norm, x.grad_norm, 1e-6, "gradient norm");
                assert_int_equal(x.tokens, y.tokens);
            }
            for (size_t i = 0; i < tg_store_count(whole->store); i++) {
                const tg_store_entry *p = tg_store_at(whole->store, i),
                                     *q = tg_store_find(cut->store, p->name);
                tg_diff diff;
                tg_compare(TENG_F32, q->data, TENG_F32, p->data, tg_desc_numel(&p->desc), &diff);
                if (!(diff.rel_l2 < 1e-6)) fail_msg("%s: %g", p->name, diff.rel_l2);
            }
            tg_core_destroy(&whole);
            tg_core_destroy(&cut);
            teng_cell_destroy(&one);
            teng_cell_destroy(&two);
        }
    }
}

static void batches_that_do_not_divide(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    o.micro_batches = 3;
    teng_cell *lm = model("llama");
    tg_core *core = tiny_core(lm, &o);
    tiny_data d = {.rows = 4};
    const tg_source source = tiny_source(&d);
    tg_core_result r;
    assert_int_equal(tg_core_train_step(core, &source, 1e-3, &r), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "train.micro_batches=3 does not divide the batch of 4 sequences"));
    teng_error_clear();
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
}

/* ---- lengths ---- */
static void two_lengths_have_a_plan_each(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    teng_cell *one = model("llama"), *two = model("llama");
    tg_core *graph = tiny_core(one, &o);
    o.pynative = true;
    tg_core *eager = tiny_core(two, &o);
    tiny_data d = {.other_seq = 40}, e = {.other_seq = 40};
    for (int step = 0; step < 8; step++) {
        const tg_core_result x = tiny_step(graph, &d, 1e-2), y = tiny_step(eager, &e, 1e-2);
        assert_int_equal(x.tokens, TINY_ROWS * (step % 2 ? 40 : TINY_SEQ));
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        assert_int_equal(graph->step->compiled.len, step ? 2 : 1);
    }
    tiny_assert_same_state(graph, eager);
    tg_core_destroy(&graph);
    tg_core_destroy(&eager);
    teng_cell_destroy(&one);
    teng_cell_destroy(&two);
}

/* ---- the same bits again ---- */
static void run_steps(const char *family, int threads, float *losses, int n)
{
    tg_step_options o = tiny_options();
    teng_cell *lm = model(family);
    tg_core *core = NULL;
    assert_int_equal(tg_core_create(lm, "cpu", threads, &o, NULL, &core), TENG_OK);
    assert_int_equal(omp_get_max_threads(), threads);
    assert_int_equal(tg_core_init(core, 11), TENG_OK);
    tiny_data d = {.rows = 8};
    for (int i = 0; i < n; i++)
        losses[i] = (float)tiny_step(core, &d, 1e-2).loss;
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
}

/* Own kernels cut work into fixed blocks; oneDNN's products give the same bits at these sizes too. */
static void same_bits_again_and_on_any_threads(void **state)
{
    (void)state;
    float a[10], b[10];
    for (int f = 0; f < FAMILIES; f++) {
        run_steps(families[f], 2, a, 10);
        run_steps(families[f], 2, b, 10);
        assert_memory_equal(a, b, sizeof a);
        run_steps(families[f], 1, b, 10);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* ---- memory ---- */
static void a_step_allocates_nothing(void **state)
{
    (void)state;
    for (int64_t k = 1; k <= 4; k *= 4) {
        tg_step_options o = tiny_options();
        o.micro_batches = k;
        teng_cell *lm = model("gpt2");
        tg_core *core = tiny_core(lm, &o);
        tiny_data d = {.other_seq = 16};
        tiny_step(core, &d, 1e-3); /* makes the plan of each length */
        tiny_step(core, &d, 1e-3);
        const uint64_t before = tg_alloc_count();
        for (int step = 0; step < 4; step++)
            tiny_step(core, &d, 1e-3);
        assert_int_equal(tg_alloc_count(), before);
        tg_core_destroy(&core);
        teng_cell_destroy(&lm);
    }
}

static void a_plan_accounts_for_what_is_allocated(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    teng_cell *lm = model("llama");
    tg_core *core = tiny_core(lm, &o);
    tiny_data d = {0};
    tiny_step(core, &d, 1e-3);
    const tg_plan *plan = core->step->compiled.data[0].plan;
    assert_int_equal(tg_store_bytes(core->store, TG_STORE_PARAM), plan->memory.params);
    assert_int_equal(tg_store_bytes(core->store, TG_STORE_STATE), plan->memory.states);
    assert_int_equal(tg_exec_block_bytes(core->step->block), plan->memory.block);
    assert_true((double)plan->memory.block <= 1.05 * (double)plan->memory.live_peak);
    tg_core_destroy(&core);
    teng_cell_destroy(&lm);
}

/* ---- save and go on ---- */
static void restored_state_goes_on(void **state)
{
    (void)state;
    char root[] = "/tmp/teng-step-XXXXXX";
    assert_non_null(mkdtemp(root));
    for (int mode = 0; mode < 2; mode++) {
        tg_step_options o = tiny_options();
        o.pynative = mode;
        o.micro_batches = 2;
        teng_cell *one = model("gpt2"), *two = model("gpt2");
        tg_core *straight = tiny_core(one, &o), *resumed = NULL;
        tiny_data d = {.other_seq = 16}, e = {.other_seq = 16};
        for (int step = 0; step < 5; step++)
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
        assert_int_equal(tg_core_create(two, "cpu", 0, &o, NULL, &resumed), TENG_OK);
        assert_int_equal(tg_core_restore(resumed, ck, &source), TENG_OK);
        tg_ckpt_close(&ck);
        tg_free(path);
        assert_int_equal(resumed->done, 5);
        assert_int_equal(e.next, 5);
        for (int step = 0; step < 5; step++) {
            const tg_core_result x = tiny_step(straight, &d, 1e-2), y = tiny_step(resumed, &e, 1e-2);
            assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        }
        tiny_assert_same_state(straight, resumed);
        assert_int_equal(straight->tokens, resumed->tokens);
        tg_core_destroy(&straight);
        tg_core_destroy(&resumed);
        teng_cell_destroy(&one);
        teng_cell_destroy(&two);
    }
    assert_int_equal(tg_remove_tree(root), TENG_OK);
}

static teng_status next_with_a_bad_label(void *user, tg_source_batch *out)
{
    tiny_data *d = user;
    TG_TRY(tiny_source(d).next(user, out));
    d->labels[5] = TINY_VOCAB;
    return TENG_OK;
}

/* What is saved after a failed step (checkpoint.on_error) must not skip its batch. */
static void a_failed_step_moves_no_cursor(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        tg_step_options o = tiny_options();
        o.pynative = mode;
        teng_cell *cell = model("llama");
        tg_core *core = tiny_core(cell, &o);
        tiny_data d = {0};
        for (int step = 0; step < 3; step++)
            tiny_step(core, &d, 1e-2);
        tg_source bad = tiny_source(&d);
        bad.next = next_with_a_bad_label;
        tg_core_result r;
        assert_int_equal(tg_core_train_step(core, &bad, 1e-2, &r), TENG_INVALID);
        assert_non_null(strstr(teng_error(), "the label at position 5 is 61"));
        teng_error_clear();
        json_t *saved = json_object();
        assert_int_equal(tg_core_state_json(core, saved), TENG_OK);
        assert_int_equal(core->done, 3);
        assert_int_equal(json_integer_value(json_object_get(saved, "cursor")), 3);
        json_decref(saved);
        tg_core_destroy(&core);
        teng_cell_destroy(&cell);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_give_the_same_bits),
        cmocka_unit_test(gradients_give_the_same_bits),
        cmocka_unit_test(micro_batches_are_one_batch),
        cmocka_unit_test(batches_that_do_not_divide),
        cmocka_unit_test(two_lengths_have_a_plan_each),
        cmocka_unit_test(same_bits_again_and_on_any_threads),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(a_plan_accounts_for_what_is_allocated),
        cmocka_unit_test(restored_state_goes_on),
        cmocka_unit_test(a_failed_step_moves_no_cursor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
