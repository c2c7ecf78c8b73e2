/* Schedules of a pipeline: right, free of deadlock and within their bound for every size; step times as the
 * papers' formulas; impossible ones are refused with the reason; a broken one is found; the picture. */
#include "base/fail.h"
#include "base/mem.h"
#include "parallel/pipe_schedule.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

static bool possible(tg_pipe_kind kind, int p, int m, int v)
{
    return kind == TG_PIPE_INTERLEAVED ? v > 1 && m % p == 0 : v == 1;
}

/* Seconds of a step as the papers say; forward 1, input gradient 1, weight gradient 1 for a whole stage. */
static double ideal(tg_pipe_kind kind, int p, int m, int v)
{
    const double work = 3.0 * m;
    if (kind == TG_PIPE_ZERO_BUBBLE) return work + (p - 1); /* (p - 1) (F + B - W), Qi et al. table 2 */
    return work + 3.0 * (p - 1) / v;
}

static tg_pipe_cost *costs_of(int pieces, int v)
{
    tg_pipe_cost *costs = tg_alloc(sizeof *costs * (size_t)pieces);
    for (int i = 0; i < pieces; i++)
        costs[i] = (tg_pipe_cost){1.0 / v, 1.0 / v, 1.0 / v};
    return costs;
}

static void every_size(void **state)
{
    (void)state;
    int made = 0, refused = 0;
    for (int kind = 0; kind < TG_PIPE_KINDS; kind++)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 32; m++)
                for (int v = 1; v <= 4; v++) {
                    tg_pipe_schedule *s = NULL;
                    const teng_status status = tg_pipe_schedule_make((tg_pipe_kind)kind, p, m, v, &s);
                    if (!possible((tg_pipe_kind)kind, p, m, v)) {
                        assert_int_equal(status, TENG_INVALID);
                        assert_non_null(strstr(teng_error(), "parallel."));
                        teng_error_clear();
                        refused++;
                        continue;
                    }
                    assert_int_equal(status, TENG_OK);
                    if (tg_pipe_check(s) != TENG_OK) fail_msg("p=%d m=%d v=%d: %s", p, m, v, teng_error());
                    tg_pipe_cost *costs = costs_of(p * v, v);
                    tg_pipe_times t;
                    assert_int_equal(tg_pipe_simulate(s, costs, 0, &t), TENG_OK);
                    assert_true(fabs(t.busy - 3.0 * m * p) < 1e-6 * t.busy);
                    assert_true(fabs(t.bubble - (1 - 3.0 * m / t.step)) < 1e-9);
                    /* Fewer micro-batches than stages leave zero-bubble nothing to fill with. */
                    if (kind != TG_PIPE_ZERO_BUBBLE || m >= 2 * p - 1) {
                        if (fabs(t.step - ideal((tg_pipe_kind)kind, p, m, v)) > 1e-6)
                            fail_msg("%s p=%d m=%d v=%d: %g s, the formula says %g",
                                     tg_pipe_kind_name((tg_pipe_kind)kind), p, m, v, t.step,
                                     ideal((tg_pipe_kind)kind, p, m, v));
                    } else {
                        assert_true(t.step < 3.0 * m + 3.0 * (p - 1) + 1e-6);
                    }
                    tg_pipe_times_free(&t);
                    tg_free(costs);
                    tg_pipe_schedule_destroy(&s);
                    made++;
                }
    assert_int_equal(made + refused, 4 * 8 * 32 * 4);
    assert_true(made > 3 * 8 * 32);
}

static void holds_as_stated(void **state)
{
    (void)state;
    tg_pipe_schedule *s;
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_1F1B, 4, 16, 1, &s), TENG_OK);
    for (int stage = 0; stage < 4; stage++)
        assert_int_equal(tg_pipe_held(s, stage, -1), 4 - stage);
    tg_pipe_schedule_destroy(&s);
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_GPIPE, 4, 16, 1, &s), TENG_OK);
    assert_int_equal(tg_pipe_held(s, 3, -1), 16);
    tg_pipe_schedule_destroy(&s);
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_ZERO_BUBBLE, 4, 16, 1, &s), TENG_OK);
    for (int stage = 0; stage < 4; stage++)
        assert_int_equal(tg_pipe_held(s, stage, -1), 4);
    tg_pipe_schedule_destroy(&s);
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_INTERLEAVED, 4, 16, 2, &s), TENG_OK);
    assert_int_equal(tg_pipe_held(s, 0, -1), 11);
    assert_int_equal(tg_pipe_held(s, 3, -1), 5);
    assert_true(tg_pipe_held(s, 0, 0) + tg_pipe_held(s, 0, 1) >= 11);
    tg_pipe_schedule_destroy(&s);
}

static tg_pipe_action *actions(tg_pipe_schedule *s, int stage)
{
    return s->actions + (size_t)stage * (size_t)s->per_stage;
}

static void swap(tg_pipe_action *a, tg_pipe_action *b)
{
    const tg_pipe_action c = *a;
    *a = *b;
    *b = c;
}

static void finds_what_is_wrong(void **state)
{
    (void)state;
    tg_pipe_schedule *s;
    /* A forward pass of stage 0 put behind the backward pass that waits for what comes of it. */
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_1F1B, 2, 4, 1, &s), TENG_OK);
    tg_pipe_action *a = actions(s, 1); /* F0 B0 F1 B1 … */
    swap(&a[1], &a[2]);                /* F0 F1 B0 B1: holds two */
    assert_int_equal(tg_pipe_check(s), TENG_STATE);
    assert_non_null(strstr(teng_error(), "stage 1 holds 2 micro-batches, 1 at most"));
    teng_error_clear();
    swap(&a[1], &a[2]);
    swap(&a[0], &a[1]); /* B0 before F0 */
    assert_int_equal(tg_pipe_check(s), TENG_STATE);
    assert_non_null(strstr(teng_error(), "backward of micro-batch 0, chunk 0, comes out of order"));
    teng_error_clear();
    swap(&a[0], &a[1]);
    a[0].chunk = 1;
    assert_int_equal(tg_pipe_check(s), TENG_STATE);
    assert_non_null(strstr(teng_error(), "is not one of it"));
    teng_error_clear();
    tg_pipe_schedule_destroy(&s);

    /* Interleaved: chunk 1 of stage 0 wants chunk 0 of stage 1, which is put behind chunk 1 of stage 1. */
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_INTERLEAVED, 2, 2, 2, &s), TENG_OK);
    assert_int_equal(tg_pipe_check(s), TENG_OK);
    a = actions(s, 1); /* F0.0 F1.0 F0.1 B… */
    swap(&a[1], &a[2]);
    swap(&a[0], &a[1]); /* F0.1 F0.0 F1.0 */
    assert_int_equal(tg_pipe_check(s), TENG_STATE);
    assert_non_null(strstr(teng_error(), "waits for ever before its action"));
    tg_pipe_cost costs[4] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    tg_pipe_times t;
    teng_error_clear();
    assert_int_equal(tg_pipe_simulate(s, costs, 0, &t), TENG_STATE);
    teng_error_clear();
    tg_pipe_schedule_destroy(&s);
}

static void refusals_say_why(void **state)
{
    (void)state;
    tg_pipe_schedule *s = NULL;
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_INTERLEAVED, 4, 6, 2, &s), TENG_INVALID);
    assert_non_null(
        strstr(teng_error(), "parallel.pipeline=4, which does not divide train.micro_batches=6; 8"));
    teng_error_clear();
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_INTERLEAVED, 4, 8, 1, &s), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "nothing to interleave"));
    teng_error_clear();
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_GPIPE, 4, 8, 2, &s), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "the schedule gpipe has one chunk a stage"));
    teng_error_clear();
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_1F1B, 4, 0, 1, &s), TENG_INVALID);
    teng_error_clear();
    assert_null(s);
}

static void slow_stages_and_messages_cost(void **state)
{
    (void)state;
    tg_pipe_schedule *s;
    tg_pipe_cost costs[2] = {{1, 1, 1}, {2, 2, 2}};
    tg_pipe_times even, late;
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_1F1B, 2, 8, 1, &s), TENG_OK);
    assert_int_equal(tg_pipe_simulate(s, costs, 0, &even), TENG_OK);
    assert_true(fabs(even.step - (1 + 8 * 6 + 2)) < 1e-9); /* the slow stage never waits */
    assert_int_equal(tg_pipe_simulate(s, costs, 0.25, &late), TENG_OK);
    assert_true(late.step >= even.step + 0.5 - 1e-9 && late.bubble > even.bubble);
    tg_pipe_times_free(&even);
    tg_pipe_times_free(&late);
    tg_pipe_schedule_destroy(&s);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static void picture(void **state)
{
    (void)state;
    tg_pipe_schedule *s;
    tg_pipe_cost costs[3] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    tg_pipe_times t;
    tg_strbuf out = {0};
    assert_int_equal(tg_pipe_schedule_make(TG_PIPE_ZERO_BUBBLE, 3, 5, 1, &s), TENG_OK);
    assert_int_equal(tg_pipe_simulate(s, costs, 0, &t), TENG_OK);
    assert_int_equal(tg_pipe_svg(s, &t, false, &out), TENG_OK);
    const char *text = tg_strbuf_str(&out);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_non_null(strstr(text, "zero_bubble: 3 stages, 5 micro-batches"));
    assert_int_equal(count(text, "fill-opacity"), 3 * 5 * 3);
    assert_int_equal(count(text, "<text"), count(text, "</text>"));
    assert_non_null(strstr(text, "stage 2"));
    tg_strbuf_free(&out);
    tg_pipe_times_free(&t);
    tg_pipe_schedule_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size),
        cmocka_unit_test(holds_as_stated),
        cmocka_unit_test(finds_what_is_wrong),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(slow_stages_and_messages_cost),
        cmocka_unit_test(picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
