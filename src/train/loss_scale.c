/* See loss_scale.h. */
#include "train/loss_scale.h"

#include "base/fail.h"

#include <float.h>
#include <string.h>

tg_loss_scale_options tg_loss_scale_fill(tg_loss_scale_options o)
{
    static const double initial[] = {
        [TG_SCALE_NONE] = 1, [TG_SCALE_FIXED] = 128, [TG_SCALE_DYNAMIC] = 16777216};
    if (o.initial == 0) o.initial = initial[o.mode];
    if (o.factor == 0) o.factor = 2;
    if (o.minimum == 0) o.minimum = o.initial < 1 ? o.initial : 1;
    if (o.window == 0) o.window = 2000;
    if (o.max_overflows == 0) o.max_overflows = o.mode == TG_SCALE_NONE ? 100 : 1000;
    return o;
}

tg_loss_scale tg_loss_scale_begin(const tg_loss_scale_options *options)
{
    return (tg_loss_scale){.scale = options->initial};
}

bool tg_loss_scale_adjust(tg_loss_scale *s, const tg_loss_scale_options *o, bool finite, bool loss_finite)
{
    if (!finite) {
        s->overflows++;
        s->in_row++;
        s->good = 0;
        if (o->mode != TG_SCALE_DYNAMIC || !loss_finite || s->scale <= o->minimum) return false;
        const double lower = s->scale / o->factor;
        s->scale = lower > o->minimum ? lower : o->minimum;
        return true;
    }
    s->in_row = 0;
    if (o->mode != TG_SCALE_DYNAMIC || ++s->good < o->window) return false;
    s->good = 0;
    if (s->scale * o->factor <= (double)FLT_MAX) s->scale *= o->factor;
    return false;
}

teng_status tg_loss_scale_save(const tg_loss_scale *s, json_t *state)
{
    json_t *scale =
        json_pack("{s:f, s:I, s:I, s:I}", "scale", s->scale, "steps_since_change", (json_int_t)s->good,
                  "overflows_in_row", (json_int_t)s->in_row, "overflows", (json_int_t)s->overflows);
    return json_object_set_new(state, "loss_scale", scale) == 0
               ? TENG_OK
               : tg_fail(TENG_MEMORY, "out of memory for the checkpoint's state");
}

teng_status tg_loss_scale_load(tg_loss_scale *s, const json_t *state, const char *where)
{
    const json_t *saved = json_object_get(state, "loss_scale");
    tg_loss_scale r = *s;
    if (!saved) return TENG_OK;
    TG_TRY(tg_json_get_real(saved, where, "scale", true, &r.scale));
    TG_TRY(tg_json_get_int(saved, where, "steps_since_change", true, &r.good));
    TG_TRY(tg_json_get_int(saved, where, "overflows_in_row", true, &r.in_row));
    TG_TRY(tg_json_get_int(saved, where, "overflows", true, &r.overflows));
    if (!(r.scale > 0 && r.scale <= (double)FLT_MAX) || r.good < 0 || r.in_row < 0 || r.overflows < 0)
        return tg_fail(TENG_FORMAT, "%s: loss_scale holds a value out of range (scale %g)", where, r.scale);
    *s = r;
    return TENG_OK;
}
