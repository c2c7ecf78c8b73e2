/*
 * Mixed precision over whole steps: what each level computes in, both modes equal in bits, losses near f32,
 * loss scaling and its overflows, resume in mid-window, and what is refused.
 */
#include "tiny_lm.h"

#include "base/fail.h"
#include "nn/precision.h"
#include "op/cast/cast.h"
#include "op/op_list.h"
#include "tensor/desc.h"
#include "teng/ops.h"
#include "train/step.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
enum { FAMILIES = 4 };

static teng_cell *model(const char *family)
{
    teng_cell *cell = teng_lm_create(tiny_config(family));
    if (!cell) fail_msg("%s", teng_error());
    return cell;
}

static tg_step_options options(teng_precision_level level, teng_dtype dtype)
{
    tg_step_options o = tiny_options();
    o.precision = (teng_precision){.level = level, .dtype = dtype};
    if (dtype == TENG_F16) o.loss_scale.mode = TG_SCALE_DYNAMIC;
    return o;
}

static void refused(teng_status got, const char *words)
{
    assert_int_not_equal(got, TENG_OK);
    if (!strstr(teng_error(), words)) fail_msg("\"%s\" is not in: %s", words, teng_error());
    teng_error_clear();
}

/* ---- what computes in what ---- */
static tg_graph *traced(const char *family, const teng_precision *precision, teng_tensor **value)
{
    teng_cell *cell = model(family);
    tg_graph *g = tg_graph_create("forward");
    const teng_desc ids = tg_desc_make(TENG_I32, 2, (const int64_t[]){2, 8});
    teng_tensor *in[] = {tg_graph_input(g, "tokens", &ids), tg_graph_input(g, "labels", &ids)};
    *value = tg_nn_trace_with(cell, g, in, 2, &(tg_nn_options){.training = true, .precision = precision});
    teng_cell_destroy(&cell);
    return g;
}

/* dtype of operand i of every node of that operator (all must agree), -1 when there is none. */
static int dtype_of(const tg_graph *g, const char *op, int i)
{
    int found = -1;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *n = g->nodes.data[k];
        if (strcmp(n->op->name, op) != 0 || n->n_in <= i) continue;
        if (found >= 0 && found != (int)n->in[i]->desc.dtype)
            fail_msg("operand %d of %s in two dtypes", i, op);
        found = (int)n->in[i]->desc.dtype;
    }
    return found;
}

static void levels_decide_dtypes(void **state)
{
    (void)state;
    static const struct {
        teng_precision_level level;
        int product, norm_x, norm_w, add, loss;
    } want[] = {
        {TENG_O0, TENG_F32, TENG_F32, TENG_F32, TENG_F32, TENG_F32},
        {TENG_O1, TENG_BF16, TENG_F32, TENG_F32, TENG_F32, TENG_BF16},
        {TENG_O2, TENG_BF16, TENG_BF16, TENG_F32, TENG_BF16, TENG_BF16},
        {TENG_O3, TENG_BF16, TENG_BF16, TENG_BF16, TENG_BF16, TENG_BF16},
        {TENG_AUTO, TENG_BF16, TENG_F32, TENG_F32, TENG_F32, TENG_BF16},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const teng_precision p = {.level = want[i].level, .dtype = TENG_BF16};
        teng_tensor *loss;
        tg_graph *g = traced("llama", &p, &loss);
        if (!loss) fail_msg("%s", teng_error());
        assert_int_equal(loss->desc.dtype, TENG_F32);
        assert_int_equal(dtype_of(g, "matmul", 0), want[i].product);
        assert_int_equal(dtype_of(g, "matmul", 1), want[i].product);
        assert_int_equal(dtype_of(g, "attention", 2), want[i].product);
        assert_int_equal(dtype_of(g, "rms_norm", 0), want[i].norm_x);
        assert_int_equal(dtype_of(g, "rms_norm", 1), want[i].norm_w);
        assert_int_equal(dtype_of(g, "add", 0), want[i].add);
        assert_int_equal(dtype_of(g, "linear_cross_entropy", 0), want[i].loss);
        for (size_t v = 0; v < g->values.len; v++) /* master weights */
            if (g->values.data[v]->kind == TG_VALUE_PARAM)
                assert_int_equal(g->values.data[v]->desc.dtype, TENG_F32);
        tg_graph_destroy(&g);
    }
}

static void layers_are_kept_in_f32(void **state)
{
    (void)state;
    const char *const keep[] = {"model.layers.0.*", "*norm"};
    const teng_precision p = {.level = TENG_O2, .dtype = TENG_BF16, .keep_fp32 = keep, .n_keep_fp32 = 2};
    teng_tensor *loss;
    tg_graph *g = traced("llama", &p, &loss);
    if (!loss) fail_msg("%s", teng_error());
    assert_int_equal(dtype_of(g, "rms_norm", 0), TENG_F32);
    int seen = 0;
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *n = g->nodes.data[k];
        if (n->op != &tg_op_matmul) continue;
        const bool first = strncmp(n->scope, "model.layers.0.", 15) == 0;
        assert_int_equal(n->in[0]->desc.dtype, first ? TENG_F32 : TENG_BF16);
        seen |= first ? 1 : 2;
    }
    assert_int_equal(seen, 3);
    tg_strbuf list = {0};
    tg_precision_print(g, &list);
    assert_non_null(strstr(tg_strbuf_str(&list), "model.layers.1.self_attn.q_proj"));
    assert_non_null(strstr(tg_strbuf_str(&list), "model.layers.1.self_attn.q_proj.weight f32->bf16"));
    assert_null(strstr(tg_strbuf_str(&list), "model.layers.0.self_attn.q_proj.weight f32->bf16"));
    tg_strbuf_free(&list);
    tg_graph_destroy(&g);
    const char *const wrong[] = {"model.layer.0.*"};
    const teng_precision q = {.level = TENG_O2, .dtype = TENG_BF16, .keep_fp32 = wrong, .n_keep_fp32 = 1};
    g = traced("llama", &q, &loss);
    assert_null(loss);
    refused(teng_error_status(), "precision.keep_fp32: \"model.layer.0.*\" matches no layer of the model");
    tg_graph_destroy(&g);
}

static teng_tensor *casting_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    (void)self;
    (void)n_in;
    return teng_mean(teng_cast(teng_cast(in[0], TENG_BF16), TENG_F32), ((teng_dims){0}), false);
}

static void double_conversion_is_refused(void **state)
{
    (void)state;
    teng_cell *cell = teng_cell_create("casting", 0, casting_forward);
    tg_graph *g = tg_graph_create("forward");
    const teng_desc desc = tg_desc_make(TENG_F32, 1, (const int64_t[]){8});
    teng_tensor *x = tg_graph_input(g, "x", &desc);
    const teng_precision p = {.level = TENG_O1, .dtype = TENG_BF16};
    assert_null(tg_nn_trace_with(cell, g, &x, 1, &(tg_nn_options){.precision = &p}));
    refused(teng_error_status(), "the model casts to bf16 itself");
    assert_non_null(tg_nn_trace_with(cell, g, &x, 1, &(tg_nn_options){.precision = NULL}));
    const teng_precision wrong = {.level = TENG_O1, .dtype = TENG_F32};
    assert_null(tg_nn_trace_with(cell, g, &x, 1, &(tg_nn_options){.precision = &wrong}));
    refused(teng_error_status(), "precision.dtype is f32; precision.level=O1 needs bf16 or fp16");
    tg_graph_destroy(&g);
    teng_cell_destroy(&cell);
}

/* ---- steps ---- */
typedef struct setting {
    teng_precision_level level;
    teng_dtype dtype;
    double near; /* relative difference of losses to f32 over the steps */
} setting;
static const setting settings[] = {
    {TENG_O1, TENG_BF16, 2e-2},  {TENG_O2, TENG_BF16, 2e-2},   {TENG_O3, TENG_BF16, 2e-2},
    {TENG_O1, TENG_F16, 4e-3},   {TENG_O2, TENG_F16, 4e-3},    {TENG_O3, TENG_F16, 4e-3},
    {TENG_AUTO, TENG_F16, 4e-3}, {TENG_AUTO, TENG_BF16, 2e-2},
};
enum { SETTINGS = sizeof settings / sizeof *settings, STEPS = 8 };

/* Steps that count: overflows of the dynamic scale come on top. */
static void train(tg_core *core, tiny_data *data, int steps, double *losses)
{
    for (int i = 0; i < steps;) {
        const tg_core_result r = tiny_step(core, data, 3e-3);
        if (r.again) continue;
        if (!r.finite) fail_msg("step %d: %s", i, core->overflow.text);
        if (losses) losses[i] = r.loss;
        i++;
    }
}

static void modes_give_the_same_bits_near_f32(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        double exact[STEPS];
        tg_step_options o = tiny_options();
        o.micro_batches = 2;
        teng_cell *cell = model(families[f]);
        tg_core *core = tiny_core(cell, &o);
        tiny_data data = {.ragged = true};
        train(core, &data, STEPS, exact);
        tg_core_destroy(&core);
        for (int s = 0; s < SETTINGS; s++) {
            o = options(settings[s].level, settings[s].dtype);
            o.micro_batches = 2;
            double a[STEPS], b[STEPS];
            teng_cell *other = model(families[f]);
            tg_core *graph = tiny_core(cell, &o);
            o.pynative = true;
            tg_core *eager = tiny_core(other, &o);
            tiny_data d = {.ragged = true}, e = {.ragged = true};
            train(graph, &d, STEPS, a);
            train(eager, &e, STEPS, b);
            assert_memory_equal(a, b, sizeof a);
            tiny_assert_same_state(graph, eager);
            bool differs = false;
            for (int i = 0; i < STEPS; i++) {
                const double relative = fabs(a[i] - exact[i]) / exact[i];
                if (relative > settings[s].near)
                    fail_msg("%s setting %d step %d: loss %g, f32 %g", families[f], s, i, a[i], exact[i]);
                differs = differs || a[i] != exact[i];
            }
            assert_true(differs); /* something was computed in 16 bits */
            tg_core_destroy(&graph);
            tg_core_destroy(&eager);
            teng_cell_destroy(&other);
        }
        teng_cell_destroy(&cell);
    }
}

/* The first overflows are named and dropped, the batch is not, and the training is that of a scale that fits.
 */
static void overflows_are_named_and_retried(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        tg_step_options o = options(TENG_O2, TENG_F16);
        o.pynative = mode == 1;
        teng_cell *one = model("llama"), *two = model("llama");
        tg_core *calm = tiny_core(two, &o);
        calm->scale.scale = 1024;
        o.loss_scale.initial = 1e30;
        tg_core *core = tiny_core(one, &o);
        tiny_data d = {0}, e = {0};
        int dropped = 0;
        double lowest = 1e30;
        while (core->done < 1) {
            const tg_core_result r = tiny_step(core, &d, 3e-3);
            assert_true(r.finite || r.again);
            if (r.finite) break;
            dropped++;
            assert_true(r.scale == lowest);
            lowest /= 2;
            assert_true(core->overflow.found);
            assert_true(core->overflow.infinities + core->overflow.nans > 0 && core->overflow.first >= 0);
            assert_non_null(strstr(core->overflow.text, "in the backward pass, layer "));
            tg_strbuf text = {0};
            tg_core_dropped_text(core, &r, &text);
            assert_non_null(strstr(tg_strbuf_str(&text), "step 1 was dropped"));
            assert_non_null(
                strstr(tg_strbuf_str(&text), dropped == 1 ? "layer model (cast, " : "layer model"));
            assert_non_null(strstr(tg_strbuf_str(&text), "f16["));
            assert_non_null(strstr(tg_strbuf_str(&text), "the same batch is tried again with"));
            tg_strbuf_free(&text);
        }
        assert_true(dropped > 40 && core->scale.overflows == dropped && core->applied == 1);
        tiny_step(calm, &e, 3e-3);
        assert_int_equal(d.next, e.next);
        train(core, &d, 3, NULL);
        train(calm, &e, 3, NULL);
        /* Scales are powers of two times each other only nearly (1e30 is none): compare losses. */
        const double a = tiny_step(core, &d, 0).loss, b = tiny_step(calm, &e, 0).loss;
        assert_true(fabs(a - b) / b < 1e-3);
        tg_core_destroy(&core);
        tg_core_destroy(&calm);
        teng_cell_destroy(&one);
        teng_cell_destroy(&two);
    }
}

static void fixed_scale_drops_and_gives_up(void **state)
{
    (void)state;
    tg_step_options o = options(TENG_O2, TENG_F16);
    o.loss_scale = (tg_loss_scale_options){.mode = TG_SCALE_FIXED, .initial = 1e30, .max_overflows = 5};
    teng_cell *cell = model("llama");
    tg_core *core = tiny_core(cell, &o), *before = tiny_core(cell, &o);
    tiny_data d = {0};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tg_core_check_dropped(core), TENG_OK);
        const tg_core_result r = tiny_step(core, &d, 3e-3);
        assert_true(!r.finite && !r.again && r.scale == 1e30);
    }
    assert_int_equal(d.next, 5); /* a fixed scale cannot do better on the same batch */
    assert_int_equal(core->done, 5);
    assert_int_equal(core->applied, 0);
    refused(tg_core_check_dropped(core), "5 steps in a row had a loss or gradient that is not finite");
    for (size_t i = 0; i < tg_store_count(before->store); i++) {
        const tg_store_entry *x = tg_store_at(before->store, i), *y = tg_store_find(core->store, x->name);
        assert_memory_equal(x->data, y->data, tg_desc_bytes(&x->desc));
    }
    tg_core_destroy(&core);
    tg_core_destroy(&before);
    teng_cell_destroy(&cell);
}

/* A parameter that is not finite is found before any operator is blamed; the forward pass is named too. */
static void the_first_bad_value_is_found(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        tg_step_options o = tiny_options();
        o.pynative = mode == 1;
        teng_cell *cell = model("llama");
        tg_core *core = tiny_core(cell, &o);
        tg_store_entry *w = tg_store_find(core->store, "model.layers.1.mlp.up_proj.weight");
        float *values = w->data;
        const float old = values[35];
        values[35] = NAN;
        tiny_data d = {0};
        tg_core_result r = tiny_step(core, &d, 3e-3);
        assert_true(!r.finite && !r.again);
        assert_non_null(strstr(core->overflow.text,
                               "model.layers.1.mlp.up_proj.weight f32[48,32] holds 0 inf and 1 NaN"));
        assert_non_null(strstr(core->overflow.text, "the first at [1,3]"));
        values[35] = old;
        for (int i = 0; i < 48 * 32; i++)
            values[i] = 1e38F;
        r = tiny_step(core, &d, 3e-3);
        assert_true(!r.finite);
        assert_non_null(strstr(core->overflow.text,
                               "first in the forward pass, layer model.layers.1.mlp.up_proj (matmul"));
        tg_core_destroy(&core);
        teng_cell_destroy(&cell);
    }
}

/* Saved with the scale in mid-window and a batch waiting to be tried again, both go on as if nothing was. */
static void resume_keeps_the_scale(void **state)
{
    (void)state;
    for (int before = 1; before < 6; before += 2) {
        tg_step_options o = options(TENG_O2, TENG_F16);
        o.loss_scale =
            (tg_loss_scale_options){.mode = TG_SCALE_DYNAMIC, .initial = 65536.0 * 64, .window = 4};
        teng_cell *one = model("gpt2"), *two = model("gpt2");
        tg_core *whole = tiny_core(one, &o), *half = tiny_core(two, &o);
        tiny_data d = {0}, e = {0};
        for (int i = 0; i < 16; i++)
            tiny_step(whole, &d, 3e-3);
        for (int i = 0; i < before; i++)
            tiny_step(half, &e, 3e-3);
        json_t *state_json = json_object();
        assert_int_equal(tg_core_state_json(half, state_json), TENG_OK);
        /* What a new process has: parameters and states as saved, counters from the file. */
        teng_cell *three = model("gpt2");
        tg_core *later = tiny_core(three, &o);
        for (size_t i = 0; i < tg_store_count(half->store); i++) {
            const tg_store_entry *x = tg_store_at(half->store, i);
            tg_store_entry *y;
            assert_int_equal(tg_store_add(later->store, x->kind, x->name, &x->desc, &y), TENG_OK);
            memcpy(y->data, x->data, tg_desc_bytes(&x->desc));
        }
        assert_int_equal(tg_loss_scale_load(&later->scale, state_json, "state.json"), TENG_OK);
        later->applied = half->applied;
        later->done = half->done;
        later->cursor = half->cursor;
        tiny_data f = {.next = half->cursor};
        for (int i = before; i < 16; i++)
            tiny_step(later, &f, 3e-3);
        tiny_assert_same_state(whole, later);
        assert_true(whole->scale.scale == later->scale.scale && whole->scale.good == later->scale.good);
        assert_true(whole->scale.overflows > 0 && whole->scale.overflows == later->scale.overflows);
        json_decref(state_json);
        tg_core_destroy(&whole);
        tg_core_destroy(&half);
        tg_core_destroy(&later);
        teng_cell_destroy(&one);
        teng_cell_destroy(&two);
        teng_cell_destroy(&three);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_decide_dtypes),
        cmocka_unit_test(layers_are_kept_in_f32),
        cmocka_unit_test(double_conversion_is_refused),
        cmocka_unit_test(modes_give_the_same_bits_near_f32),
        cmocka_unit_test(overflows_are_named_and_retried),
        cmocka_unit_test(fixed_scale_drops_and_gives_up),
        cmocka_unit_test(the_first_bad_value_is_found),
        cmocka_unit_test(resume_keeps_the_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
