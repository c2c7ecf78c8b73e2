/* See overflow.h. */
#include "train/overflow.h"

#include "base/fail.h"
#include "tensor/desc.h"
#include "train/step_pipeline.h"

#include <math.h>
#include <stdio.h>

/* Exponent all ones: infinity or NaN. */
static void count(teng_dtype t, const void *data, int64_t n, tg_overflow *o)
{
    o->first = -1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t exponent, mantissa;
        if (t == TENG_F32) {
            const uint32_t u = ((const uint32_t *)data)[i];
            exponent = (u >> 23 & 0xffu) == 0xffu;
            mantissa = u & 0x7fffffu;
        } else {
            const uint32_t u = ((const uint16_t *)data)[i];
            const uint32_t mask = t == TENG_BF16 ? 0x7f80u : 0x7c00u;
            exponent = (u & mask) == mask;
            mantissa = u & (t == TENG_BF16 ? 0x7fu : 0x3ffu);
        }
        if (!exponent) continue;
        if (o->first < 0) o->first = i;
        *(mantissa ? &o->nans : &o->infinities) += 1;
    }
}

/* False when all are finite; else text tells of them. */
static bool describe(const char *where, const char *name, const teng_desc *d, const void *data,
                     tg_overflow *out)
{
    if (d->dtype != TENG_F32 && d->dtype != TENG_BF16 && d->dtype != TENG_F16) return false;
    tg_overflow o = {.micro_batch = out->micro_batch};
    const int64_t n = tg_desc_numel(d);
    count(d->dtype, data, n, &o);
    if (o.first < 0) return false;
    char shape[TG_DESC_TEXT], place[TG_INDEX_TEXT];
    *out = o;
    out->found = true;
    const double value = tg_load_double(d->dtype, data, o.first);
    snprintf(out->text, sizeof out->text,
             "%s: %s %s holds %lld inf and %lld NaN in %lld values, the first at %s = %s", where, name,
             tg_desc_text(shape, d), (long long)o.infinities, (long long)o.nans, (long long)n,
             tg_desc_index_text(place, d, o.first),
             isnan(value) ? "NaN"
             : value > 0  ? "inf"
                          : "-inf");
    return true;
}

bool tg_overflow_in(const tg_node *node, void *const *data, tg_overflow *out)
{
    for (int i = 0; i < node->n_out; i++) {
        tg_strbuf where = {0};
        char name[48];
        snprintf(name, sizeof name, "tensor %%%d", node->out[i]->id);
        tg_strbuf_printf(&where, "first in the %s pass, layer ", tg_phase_name(node->phase));
        tg_node_where(node, &where);
        const bool found = describe(tg_strbuf_str(&where), name, &node->out[i]->desc, data[i], out);
        tg_strbuf_free(&where);
        if (found) return true;
    }
    return false;
}

/* Watches a pass. Of many ranks none may stop before the others, who would wait for it. */
typedef struct watched {
    tg_overflow *out;
    int64_t nodes; /* seen */
    bool alone;
} watched;

static bool watch(void *user, const tg_node *node, void *const *data)
{
    watched *w = user;
    w->nodes++;
    if (w->out->found || !tg_overflow_in(node, data, w->out)) return false;
    w->out->order = w->nodes;
    return w->alone;
}

/* A parameter that is not finite itself makes all that follows so. */
static bool in_parameters(const tg_step *s, tg_overflow *out)
{
    for (size_t i = 0; i < s->n_params; i++) {
        const tg_store_entry *e = tg_store_find(s->store, s->params[i].name);
        const bool bad = e && describe("before the step", e->name, &e->desc, e->data, out);
        if (e) tg_store_rest(e);
        if (bad) return true; /* order 0 */
    }
    return false;
}

static teng_status watch_micro_batch(tg_step *s, int64_t step, int64_t m, const tg_step_feed *feed,
                                     watched *w)
{
    if (s->options.pynative) {
        tg_eager_watch(s->eager, watch, w);
        const teng_status status = tg_step_eager_passes(s, step, feed, m);
        tg_eager_watch(s->eager, NULL, NULL);
        return status;
    }
    tg_exec *e;
    bool stopped;
    if (s->pipe) return tg_step_pipe_passes(s, step, m, feed, watch, w, &w->nodes);
    TG_TRY(tg_step_ready_micro_batch(s, step, m, feed, &e));
    return tg_exec_run_watched(e, TG_FORWARD, TG_BACKWARD, watch, w, &stopped);
}

teng_status tg_step_find_overflow(tg_step *s, int64_t step, double loss_scale, const tg_step_feed *feeds,
                                  tg_overflow *out)
{
    *out = (tg_overflow){0};
    s->loss_scale = loss_scale;
    watched w = {.out = out, .alone = s->options.parallel == NULL};
    const bool early = in_parameters(s, out);
    for (int64_t m = 0; m < s->options.micro_batches && !(w.alone && out->found); m++) {
        if (!out->found) out->micro_batch = m;
        TG_TRY(watch_micro_batch(s, step, m, &feeds[m], &w));
    }
    if (early) out->micro_batch = 0;
    if (!out->found)
        snprintf(out->text, sizeof out->text,
                 "every value of the forward and backward pass is finite: the sum of the squared gradients "
                 "is not");
    return TENG_OK;
}
