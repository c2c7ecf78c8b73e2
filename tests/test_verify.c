/*
 * Models held against reference values (tests/data/golden), in both modes; and that a difference is found and
 * named: a weight, a label, a rotary parameter, a tensor too few or too many, or of another shape or type.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "tensor/desc.h"
#include "train/verify.h"

#include "cmocka_all.h"
#include "golden_edit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* dir NULL: the family's; golden NULL: the family's. */
static tg_verify_report verify_in(const char *family, const char *dir, const char *golden, bool pynative,
                                  teng_precision precision)
{
    char *own_dir = golden_path(family, ""), *own_golden = golden_path(family, "golden.safetensors");
    const tg_verify_options options = {
        .device = "cpu", .threads = 1, .pynative = pynative, .precision = precision};
    tg_verify_report r;
    if (tg_verify(dir ? dir : own_dir, golden ? golden : own_golden, &options, &r) != TENG_OK)
        fail_msg("%s: %s", family, teng_error());
    tg_free(own_dir);
    tg_free(own_golden);
    return r;
}

static tg_verify_report verify(const char *family, const char *dir, const char *golden, bool pynative)
{
    return verify_in(family, dir, golden, pynative, (teng_precision){TENG_O0, TENG_F32, NULL, 0, false});
}

static void check_holds(const char *family, bool pynative, teng_precision precision)
{
    tg_verify_report r = verify_in(family, NULL, NULL, pynative, precision);
    for (size_t i = 0; i < r.items.len; i++) {
        const tg_verify_item *item = &r.items.data[i];
        if (!item->holds)
            fail_msg("%s: %s: %s, %g > %g", family, item->name, item->problem ? item->problem : "off",
                     item->error, item->tolerance);
        assert_true(isfinite(item->tolerance)); /* no gradient of these models is mere rounding */
    }
    assert_int_equal(r.failed, 0);
    assert_true(r.items.len > 20);
    assert_int_equal(r.steps, 20);
    tg_verify_free(&r);
}

static void test_holds(void **state)
{
    (void)state;
    static const char *const families[] = {"gpt2", "llama3", "qwen2", "qwen3", "mixtral"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        check_holds(families[i], false, (teng_precision){.level = TENG_O0});
        check_holds(families[i], true, (teng_precision){.level = TENG_O0});
        for (int level = TENG_O1; level <= TENG_AUTO; level++) {
            const bool pynative = (level + (int)i) % 2;
            check_holds(families[i], pynative,
                        (teng_precision){.level = (teng_precision_level)level, .dtype = TENG_BF16});
            check_holds(families[i], !pynative,
                        (teng_precision){.level = (teng_precision_level)level, .dtype = TENG_F16});
        }
    }
}

/* Tolerances of 16 bits are wide, not blind: bf16 does not pass for fp16, nor fp16 for f32. */
static void test_tolerances_tell_precisions_apart(void **state)
{
    (void)state;
    tg_verify_report bf16 =
        verify_in("qwen3", NULL, NULL, false, (teng_precision){.level = TENG_O2, .dtype = TENG_BF16});
    tg_verify_report fp16 =
        verify_in("qwen3", NULL, NULL, false, (teng_precision){.level = TENG_O2, .dtype = TENG_F16});
    tg_verify_report f32 = verify("qwen3", NULL, NULL, false);
    double worst[3] = {0};
    const tg_verify_report *const all[] = {&f32, &fp16, &bf16};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < all[k]->items.len; i++)
            if (strncmp(all[k]->items.data[i].name, "grad.", 5) == 0)
                worst[k] = fmax(worst[k], all[k]->items.data[i].error);
    assert_true(worst[1] > 2e-5 && worst[2] > 1e-2);
    assert_true(worst[0] < worst[1] && worst[1] < worst[2]);
    tg_verify_free(&bf16);
    tg_verify_free(&fp16);
    tg_verify_free(&f32);
}

/* The edited model or dump is off, first of all in `worst`. */
static void check_off(const char *family, const char *dir, const char *golden, const char *worst,
                      const char *problem)
{
    tg_verify_report r = verify(family, dir, golden, false);
    assert_true(r.failed > 0);
    assert_string_equal(r.items.data[0].name, worst);
    if (problem) {
        assert_non_null(r.items.data[0].problem);
        assert_non_null(strstr(r.items.data[0].problem, problem));
    }
    tg_verify_free(&r);
}

static void change_weight(tg_ckpt_item *items, size_t *n)
{
    float *w = golden_values(items, *n, "model.layers.1.self_attn.v_proj.weight");
    w[5] += 0.05F;
}

static void test_weight_changed(void **state)
{
    (void)state;
    char *dir = golden_edited_model("llama3", change_weight, NULL, NULL);
    tg_verify_report r = verify("llama3", dir, NULL, true);
    bool named = false;
    for (size_t i = 0; i < r.items.len; i++)
        named |= !r.items.data[i].holds && strcmp(r.items.data[i].name, "logits") == 0;
    assert_true(named);
    assert_true(r.failed > 20);
    tg_verify_free(&r);
    tg_free(dir);
}

static void change_label(tg_ckpt_item *items, size_t *n)
{
    int64_t *labels = golden_values(items, *n, "labels");
    labels[3] = labels[3] == 7 ? 8 : 7;
}

/* Logits do not depend on labels: they alone still hold. */
static void test_label_changed(void **state)
{
    (void)state;
    char *from = golden_path("qwen2", "golden.safetensors");
    char *golden = golden_edited(from, "golden.safetensors", change_label);
    tg_verify_report r = verify("qwen2", NULL, golden, false);
    assert_int_equal(r.failed, r.items.len - 1);
    assert_string_equal(r.items.data[r.items.len - 1].name, "logits");
    tg_verify_free(&r);
    tg_free(golden);
    tg_free(from);
}

static void test_rope_changed(void **state)
{
    (void)state;
    static const struct {
        const char *family, *old, *now;
    } cases[] = {{"llama3", "\"factor\": 8.0", "\"factor\": 7.9"},
                 {"llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 5.5"},
                 {"qwen3", "\"rope_theta\": 1000000.0", "\"rope_theta\": 900000.0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dir = golden_edited_model(cases[i].family, golden_same, cases[i].old, cases[i].now);
        tg_verify_report r = verify(cases[i].family, dir, NULL, false);
        assert_true(r.failed > 0);
        assert_null(r.items.data[0].problem);
        assert_string_not_equal(r.items.data[0].worst, "");
        tg_verify_free(&r);
        tg_free(dir);
    }
}

/* ---- dumps that do not fit ---- */
static void change_grad(tg_ckpt_item *items, size_t *n)
{
    float *g = golden_values(items, *n, "grad.transformer.h.1.ln_2.bias");
    g[3] *= 1.01F;
}

static void drop_grad(tg_ckpt_item *items, size_t *n)
{
    *golden_item(items, *n, "grad.transformer.h.1.ln_2.bias") = items[*n - 1];
    --*n;
}

static void rename_grad(tg_ckpt_item *items, size_t *n)
{
    golden_item(items, *n, "grad.transformer.h.1.ln_2.bias")->name = "grad.transformer.h.9.ln_2.bias";
}

static void reshape_grad(tg_ckpt_item *items, size_t *n)
{
    tg_ckpt_item *item = golden_item(items, *n, "grad.transformer.h.1.ln_2.bias");
    item->desc = tg_desc_make(TENG_F32, 2, (const int64_t[]){2, 24});
}

static void spoil_grad(tg_ckpt_item *items, size_t *n)
{
    ((float *)golden_values(items, *n, "grad.transformer.h.1.ln_2.bias"))[0] = NAN;
}

static void bend_curve(tg_ckpt_item *items, size_t *n)
{
    ((float *)golden_values(items, *n, "adamw_loss"))[17] *= 1.001F;
}

static void test_dump_changed(void **state)
{
    (void)state;
    static const struct {
        golden_edit *change;
        const char *worst, *problem;
    } cases[] = {
        {change_grad, "grad.transformer.h.1.ln_2.bias", NULL},
        {drop_grad, "grad.transformer.h.1.ln_2.bias", "missing"},
        {rename_grad, "grad.transformer.h.1.ln_2.bias", "missing"},
        {reshape_grad, "grad.transformer.h.1.ln_2.bias", "f32[2,24] in the dump, f32[48] in the model"},
        {spoil_grad, "grad.transformer.h.1.ln_2.bias", "not finite: 0 of 48 values here, 1 in the dump"},
        {bend_curve, "adamw_loss", NULL}};
    char *from = golden_path("gpt2", "golden.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *golden = golden_edited(from, "golden.safetensors", cases[i].change);
        check_off("gpt2", NULL, golden, cases[i].worst, cases[i].problem);
        tg_free(golden);
    }
    char *golden = golden_edited(from, "golden.safetensors", rename_grad);
    tg_verify_report r = verify("gpt2", NULL, golden, false);
    assert_int_equal(r.failed, 2);
    assert_string_equal(r.items.data[1].name, "grad.transformer.h.9.ln_2.bias");
    assert_non_null(strstr(r.items.data[1].problem, "unexpected"));
    tg_verify_free(&r);
    tg_free(golden);
    tg_free(from);
}

static void spoil_token(tg_ckpt_item *items, size_t *n)
{
    ((int64_t *)golden_values(items, *n, "input_ids"))[34] = 257;
}

static void drop_labels(tg_ckpt_item *items, size_t *n)
{
    *golden_item(items, *n, "labels") = items[*n - 1];
    --*n;
}

static void test_dump_refused(void **state)
{
    (void)state;
    static const struct {
        golden_edit *change;
        const char *message;
    } cases[] = {{spoil_token, "input_ids[1,1] = 257 is outside the vocabulary of 257"},
                 {drop_labels, "holds no tensor labels"}};
    char *from = golden_path("gpt2", "golden.safetensors"), *dir = golden_path("gpt2", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *golden = golden_edited(from, "golden.safetensors", cases[i].change);
        tg_verify_report r;
        assert_int_not_equal(tg_verify(dir, golden, &(tg_verify_options){.device = "cpu", .threads = 1}, &r),
                             TENG_OK);
        if (!strstr(teng_error(), cases[i].message)) fail_msg("%s", teng_error());
        tg_verify_free(&r);
        teng_error_clear();
        tg_free(golden);
    }
    tg_free(dir);
    tg_free(from);
}

/* The settings of the training are the dump's. */
static void test_recipe(void **state)
{
    (void)state;
    char *from = golden_path("gpt2", "golden.safetensors"),
         *golden = golden_edited(from, "golden.safetensors", golden_same);
    char *recipe = tg_path_join(golden_dir, "golden.json");
    static const char slower[] = "{\"optimizer\": \"AdamW\", \"lr\": 0.0009}",
                      other[] = "{\"optimizer\": \"Lion\"}";
    assert_int_equal(tg_file_write(recipe, slower, strlen(slower)), TENG_OK);
    tg_verify_report r = verify("gpt2", NULL, golden, false);
    assert_int_equal(r.failed, 1);
    assert_string_equal(r.items.data[0].name, "adamw_loss");
    tg_verify_free(&r);
    assert_int_equal(tg_file_write(recipe, other, strlen(other)), TENG_OK);
    char *dir = golden_path("gpt2", "");
    assert_int_equal(tg_verify(dir, golden, &(tg_verify_options){.device = "cpu", .threads = 1}, &r),
                     TENG_UNSUPPORTED);
    assert_non_null(strstr(teng_error(), "Lion"));
    tg_verify_free(&r);
    teng_error_clear();
    unlink(recipe);
    tg_free(dir);
    tg_free(recipe);
    tg_free(golden);
    tg_free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds),          cmocka_unit_test(test_tolerances_tell_precisions_apart),
        cmocka_unit_test(test_weight_changed), cmocka_unit_test(test_label_changed),
        cmocka_unit_test(test_rope_changed),   cmocka_unit_test(test_dump_changed),
        cmocka_unit_test(test_dump_refused),   cmocka_unit_test(test_recipe),
    };
    return cmocka_run_group_tests(tests, golden_scratch, golden_remove_scratch);
}
