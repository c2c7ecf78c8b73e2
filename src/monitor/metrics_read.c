/* Reads metrics.jsonl for plots: the "step" and "eval" lines as points. Other types and members are passed
 * over. */
#include "monitor/metrics.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tg_metrics_series_free(tg_metrics_series *series)
{
    tg_vec_free(&series->train);
    tg_vec_free(&series->eval);
}

/* A number, or NaN for null and for an absent member; an error for anything else. */
static teng_status number(const json_t *obj, const char *where, const char *key, double *out)
{
    *out = (double)NAN;
    return tg_json_get_real(obj, where, key, false, out);
}

static teng_status real(const json_t *obj, const char *where, const char *key, float *out)
{
    double value;
    TG_TRY(number(obj, where, key, &value));
    *out = (float)value;
    return TENG_OK;
}

static teng_status add_train(const json_t *obj, const char *where, int64_t step, tg_metrics_series *out)
{
    tg_metrics_point p = {.step = step};
    double step_ms;
    if (!json_object_get(obj, "loss")) return tg_fail(TENG_FORMAT, "%s: a step without \"loss\"", where);
    TG_TRY(real(obj, where, "loss", &p.loss));
    TG_TRY(real(obj, where, "lr", &p.lr));
    TG_TRY(real(obj, where, "grad_norm", &p.grad_norm));
    TG_TRY(number(obj, where, "tokens", &p.tokens));
    TG_TRY(number(obj, where, "tokens_per_s", &p.tokens_per_s));
    TG_TRY(number(obj, where, "mfu", &p.mfu));
    TG_TRY(number(obj, where, "step_ms", &step_ms));
    while (out->train.len && out->train.data[out->train.len - 1].step >= step)
        out->train.len--;
    const tg_metrics_point *last = out->train.len ? &out->train.data[out->train.len - 1] : NULL;
    p.hours = last ? last->hours : 0;
    if (isfinite(step_ms)) p.hours += step_ms / 3.6e6 * (double)(step - (last ? last->step : 0));
    return tg_vec_push(&out->train, p) ? TENG_OK : TENG_MEMORY;
}

static teng_status add_eval(const json_t *obj, const char *where, int64_t step, tg_metrics_series *out)
{
    tg_metrics_point p = {
        .step = step, .lr = NAN, .grad_norm = NAN, .tokens_per_s = (double)NAN, .mfu = (double)NAN};
    if (!json_object_get(obj, "val_loss"))
        return tg_fail(TENG_FORMAT, "%s: an evaluation without \"val_loss\"", where);
    TG_TRY(real(obj, where, "val_loss", &p.loss));
    while (out->eval.len && out->eval.data[out->eval.len - 1].step >= step)
        out->eval.len--;
    return tg_vec_push(&out->eval, p) ? TENG_OK : TENG_MEMORY;
}

static teng_status read_line(const char *where, const char *line, size_t len, tg_metrics_series *out)
{
    json_error_t error;
    json_t *obj = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(obj)) {
        json_decref(obj);
        return tg_fail(TENG_FORMAT, "%s: not a JSON object: %s; remove the line to go on", where,
                       obj ? "another value" : error.text);
    }
    const char *type = NULL;
    int64_t step = 0;
    teng_status status = tg_json_get_string(obj, where, "type", true, &type);
    bool train = type && !strcmp(type, "step"), eval = type && !strcmp(type, "eval");
    if (status == TENG_OK && (train || eval)) status = tg_json_get_int(obj, where, "step", true, &step);
    if (status == TENG_OK && train) status = add_train(obj, where, step, out);
    if (status == TENG_OK && eval) status = add_eval(obj, where, step, out);
    json_decref(obj);
    return status;
}

/* Evaluations take the tokens and hours of the training step they came after. Between two lines they lie
 * between. */
static void place_evals(tg_metrics_series *s)
{
    size_t t = 0;
    for (size_t i = 0; i < s->eval.len; i++) {
        tg_metrics_point *e = &s->eval.data[i];
        while (t < s->train.len && s->train.data[t].step < e->step)
            t++;
        tg_metrics_point zero = {0}, lo = t ? s->train.data[t - 1] : zero;
        tg_metrics_point hi = t < s->train.len ? s->train.data[t] : lo;
        double f = hi.step > lo.step ? (double)(e->step - lo.step) / (double)(hi.step - lo.step) : 0;
        e->tokens = lo.tokens + f * (hi.tokens - lo.tokens);
        e->hours = lo.hours + f * (hi.hours - lo.hours);
    }
}

teng_status tg_metrics_read(const char *path, tg_metrics_series *out)
{
    tg_map map;
    TG_TRY(tg_map_open(path, &map));
    teng_status status = TENG_OK;
    const char *p = (const char *)map.data, *stop = p + map.size;
    for (long line = 1; status == TENG_OK && p < stop; line++) {
        const char *newline = memchr(p, '\n', (size_t)(stop - p));
        if (!newline) break; /* torn: the writer was killed in it */
        char *where = tg_asprintf("%s:%ld", path, line);
        status = where ? read_line(where, p, (size_t)(newline - p), out) : TENG_MEMORY;
        tg_free(where);
        p = newline + 1;
    }
    tg_map_close(&map);
    if (status == TENG_OK) place_evals(out);
    return status;
}
