/*
 * Memory by kind: at every step the kinds sum to what is live, gradients are all there when the update
 * begins, recomputed values are a kind of their own; the listing, the JSON and the picture say the same.
 */
#include "base/fail.h"
#include "plan/plan_kinds.h"
#include "tensor/desc.h"
#include "tiny_lm.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

typedef struct subject {
    teng_cell *lm;
    tg_core *core;
    const tg_plan *plan;
} subject;

static subject plan_of(const char *family, tg_step_options o)
{
    subject s = {.lm = teng_lm_create(tiny_config(family))};
    s.core = tiny_core(s.lm, &o);
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){8, 64});
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    if (tg_step_plan(s.core->step, &shapes, true, &s.plan) != TENG_OK) fail_msg("%s", teng_error());
    return s;
}

static void release(subject *s)
{
    tg_core_destroy(&s->core);
    teng_cell_destroy(&s->lm);
}

static size_t sum(const tg_memory_use *use)
{
    size_t all = 0;
    for (int i = 0; i < TG_MEMORY_KINDS; i++)
        all += use->bytes[i];
    return all;
}

static size_t live_at(const tg_plan *plan, int step)
{
    size_t all = plan->memory.params + plan->memory.states;
    for (size_t i = 0; i < plan->buffers.len; i++)
        if (plan->buffers.data[i].first <= step && step <= plan->buffers.data[i].last)
            all += plan->buffers.data[i].bytes;
    return all;
}

static void kinds_sum_to_what_is_live(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
    for (int f = 0; f < 4; f++)
        for (int kind = TG_CFG_RECOMPUTE_NONE; kind <= TG_CFG_RECOMPUTE_FULL; kind++)
            for (int64_t micro = 1; micro <= 2; micro++) {
                tg_step_options o = tiny_options();
                o.recompute = (tg_cfg_recompute)kind;
                o.micro_batches = micro;
                subject s = plan_of(families[f], o);
                const tg_plan *plan = s.plan;
                tg_memory_timeline t;
                assert_int_equal(tg_memory_timeline_make(plan, &t), TENG_OK);
                assert_int_equal(t.n, plan->steps.len);
                size_t again = 0, most = 0;
                for (size_t k = 0; k < t.n; k++) {
                    assert_int_equal(sum(&t.at[k]), live_at(plan, (int)k));
                    again += t.at[k].bytes[TG_MEMORY_RECOMPUTED];
                    if (sum(&t.at[k]) > most) most = sum(&t.at[k]);
                    assert_int_equal(t.at[k].bytes[TG_MEMORY_PARAMETERS], plan->memory.params);
                }
                assert_int_equal(sum(&t.at[t.peak]), most);
                assert_int_equal(again > 0, kind != TG_CFG_RECOMPUTE_NONE);
                const tg_memory_use *update = &t.at[plan->phase_begin[TG_UPDATE]];
                assert_int_equal(update->bytes[TG_MEMORY_GRADIENTS], plan->memory.params);
                assert_int_equal(update->bytes[TG_MEMORY_BACKWARD], 0);
                assert_int_equal(update->bytes[TG_MEMORY_OPTIMIZER], 2 * plan->memory.params);
                assert_true(t.at[plan->phase_begin[TG_BACKWARD]].bytes[TG_MEMORY_ACTIVATIONS] > 0);
                tg_memory_timeline_free(&t);
                release(&s);
            }
}

static void listing_and_json(void **state)
{
    (void)state;
    tg_step_options o = tiny_options();
    o.recompute = TG_CFG_RECOMPUTE_SELECTIVE;
    subject s = plan_of("llama", o);
    tg_strbuf text = {0};
    char want[64], bytes[32];
    assert_int_equal(tg_plan_print_kinds(s.plan, &text), TENG_OK);
    tg_format_bytes(bytes, (double)s.plan->memory.params);
    snprintf(want, sizeof want, "  parameters                 %s", bytes);
    assert_non_null(strstr(tg_strbuf_str(&text), want));
    assert_non_null(strstr(tg_strbuf_str(&text), "at the peak, step "));
    assert_non_null(strstr(tg_strbuf_str(&text), "model.layers.0"));
    tg_strbuf_free(&text);

    json_t *json = tg_plan_kinds_json(s.plan), *value, *layers;
    assert_non_null(json);
    const char *name;
    json_int_t all = 0, inside = 0;
    json_object_foreach(json, name, value) if (json_is_integer(value)) all += json_integer_value(value);
    layers = json_object_get(json, "layers");
    json_object_foreach(layers, name, value) inside += json_integer_value(value);
    assert_int_equal(inside, json_integer_value(json_object_get(json, "activations")) +
                                 json_integer_value(json_object_get(json, "recomputed")));
    tg_memory_timeline t;
    assert_int_equal(tg_memory_timeline_make(s.plan, &t), TENG_OK);
    assert_int_equal(all, sum(&t.at[t.peak]));
    tg_memory_timeline_free(&t);
    json_decref(json);
    release(&s);
}

static void the_picture(void **state)
{
    (void)state;
    for (int timed = 0; timed < 2; timed++) {
        tg_step_options o = tiny_options();
        o.recompute = TG_CFG_RECOMPUTE_FULL;
        o.flops_per_s = timed ? 1e11 : 0;
        o.bytes_per_s = timed ? 1e10 : 0;
        subject s = plan_of("gpt2", o);
        tg_strbuf a = {0}, b = {0};
        assert_int_equal(tg_plan_memory_svg(s.plan, "a <b> & c", &a), TENG_OK);
        assert_int_equal(tg_plan_memory_svg(s.plan, "a <b> & c", &b), TENG_OK);
        assert_string_equal(tg_strbuf_str(&a), tg_strbuf_str(&b));
        const char *svg = tg_strbuf_str(&a);
        assert_true(strncmp(svg, "<svg ", 5) == 0 && strcmp(svg + a.len - 7, "</svg>\n") == 0);
        assert_non_null(strstr(svg, "a &lt;b&gt; &amp; c"));
        assert_non_null(strstr(svg, ">peak "));
        assert_non_null(strstr(svg, ">recomputed<"));
        assert_non_null(strstr(svg, ">backward<"));
        assert_non_null(strstr(svg, timed ? "forecast time: " : "in program order"));
        assert_null(strstr(svg, "nan"));
        assert_null(strstr(svg, "inf"));
        tg_strbuf_free(&a);
        tg_strbuf_free(&b);
        release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_sum_to_what_is_live),
                                       cmocka_unit_test(listing_and_json), cmocka_unit_test(the_picture)};
    return cmocka_run_group_tests_name("memory by kind", tests, NULL, NULL);
}
