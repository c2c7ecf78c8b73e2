/* The books of the loss scale alone: falls, rises, limits, and its way to a checkpoint and back. */
#include "cmocka_all.h"

#include "base/fail.h"
#include "train/loss_scale.h"

#include <string.h>

static void defaults(void **state)
{
    (void)state;
    const tg_loss_scale_options d = tg_loss_scale_fill((tg_loss_scale_options){.mode = TG_SCALE_DYNAMIC});
    assert_true(d.initial == 16777216 && d.factor == 2 && d.minimum == 1 && d.window == 2000);
    assert_int_equal(d.max_overflows, 1000);
    const tg_loss_scale_options f = tg_loss_scale_fill((tg_loss_scale_options){.mode = TG_SCALE_FIXED});
    assert_true(f.initial == 128 && f.max_overflows == 1000);
    const tg_loss_scale_options n = tg_loss_scale_fill((tg_loss_scale_options){0});
    assert_true(n.initial == 1 && n.max_overflows == 100);
}

static void falls_and_rises(void **state)
{
    (void)state;
    const tg_loss_scale_options o = tg_loss_scale_fill((tg_loss_scale_options){
        .mode = TG_SCALE_DYNAMIC, .initial = 64, .factor = 4, .minimum = 2, .window = 3});
    tg_loss_scale s = tg_loss_scale_begin(&o);
    assert_true(tg_loss_scale_adjust(&s, &o, false, true)); /* again, with 16 */
    assert_true(s.scale == 16);
    assert_true(tg_loss_scale_adjust(&s, &o, false, true) && s.scale == 4);
    assert_true(tg_loss_scale_adjust(&s, &o, false, true) && s.scale == 2); /* not 1 */
    assert_false(tg_loss_scale_adjust(&s, &o, false, true));                /* nothing lower to try */
    assert_int_equal(s.in_row, 4);
    for (int i = 0; i < 2; i++)
        assert_false(tg_loss_scale_adjust(&s, &o, true, true));
    assert_true(s.scale == 2 && s.in_row == 0);
    assert_false(tg_loss_scale_adjust(&s, &o, true, true)); /* the third of the window */
    assert_true(s.scale == 8 && s.good == 0);
    assert_false(tg_loss_scale_adjust(&s, &o, false, false)); /* the forward pass: a scale is no remedy */
    assert_true(s.scale == 8 && s.overflows == 5);
    s.scale = 3e38;
    s.good = 2;
    assert_false(tg_loss_scale_adjust(&s, &o, true, true)); /* beyond f32: it stays */
    assert_true(s.scale == 3e38);
}

static void fixed_stays(void **state)
{
    (void)state;
    const tg_loss_scale_options o = tg_loss_scale_fill((tg_loss_scale_options){.mode = TG_SCALE_FIXED});
    tg_loss_scale s = tg_loss_scale_begin(&o);
    for (int i = 0; i < 5000; i++)
        assert_false(tg_loss_scale_adjust(&s, &o, i % 7 != 0, true));
    assert_true(s.scale == 128 && s.overflows == 715);
}

static void survives_a_checkpoint(void **state)
{
    (void)state;
    const tg_loss_scale saved = {.scale = 1e30 / 8, .good = 17, .in_row = 3, .overflows = 40};
    tg_loss_scale back = {.scale = 1};
    json_t *json = json_object();
    assert_int_equal(tg_loss_scale_save(&saved, json), TENG_OK);
    assert_int_equal(tg_loss_scale_load(&back, json, "state.json"), TENG_OK);
    assert_true(back.scale == saved.scale && back.good == 17 && back.in_row == 3 && back.overflows == 40);
    json_object_set_new(json_object_get(json, "loss_scale"), "scale", json_real(-1));
    assert_int_equal(tg_loss_scale_load(&back, json, "state.json"), TENG_FORMAT);
    assert_non_null(strstr(teng_error(), "loss_scale holds a value out of range"));
    teng_error_clear();
    json_object_del(json_object_get(json, "loss_scale"), "scale");
    assert_int_not_equal(tg_loss_scale_load(&back, json, "state.json"), TENG_OK);
    teng_error_clear();
    assert_true(back.scale == saved.scale);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(falls_and_rises),
        cmocka_unit_test(fixed_stays),
        cmocka_unit_test(survives_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
