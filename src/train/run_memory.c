/*
 * The forecast of a run's memory and time, told before the first step when memory.* asks for something, and
 * what was measured, told after the last one. Both are notes; what else is resident (the program, its
 * libraries, the text) is told apart, because no plan knows it.
 */
#include "base/clock.h"
#include "train/run_impl.h"
#include "train/step.h"

#include <stdio.h>
#include <string.h>

static const tg_plan *plan_of(tg_run *run)
{
    const tg_config *cfg = run->cfg;
    const tg_plan *plan = NULL;
    if (run->core->options.pynative) return NULL;
    if (cfg->memory.budget == 0 && cfg->memory.recompute == TG_CFG_RECOMPUTE_NONE &&
        !run->core->options.offload)
        return NULL;
    if (tg_run_plan_micro_batch(cfg, run->core->step, &plan) != TENG_OK) teng_error_clear();
    return plan;
}

tg_plan_traffic tg_run_traffic(const tg_config *cfg, const tg_plan *plan)
{
    const tg_plan_traffic passes = tg_plan_traffic_of(plan, false), update = tg_plan_traffic_of(plan, true);
    const double k = (double)cfg->train.micro_batches;
    return (tg_plan_traffic){k * passes.bytes + update.bytes, k * passes.waits + update.waits};
}

double tg_run_forecast_seconds(const tg_config *cfg, const tg_plan *plan)
{
    const double seconds = (double)cfg->train.micro_batches *
                               (tg_plan_forecast(plan, TG_FORWARD) + tg_plan_forecast(plan, TG_BACKWARD)) +
                           tg_plan_forecast(plan, TG_UPDATE);
    return seconds > 0 ? seconds + tg_run_traffic(cfg, plan).waits : 0;
}

/* Of what is run again. */
static double again_seconds(const tg_run *run, const tg_plan *plan)
{
    const tg_plan_options *o = &plan->options;
    double seconds = 0;
    if (o->flops_per_s <= 0 || o->bytes_per_s <= 0) return 0;
    for (size_t k = 0; k < plan->steps.len; k++)
        if (plan->steps.data[k].node->recomputed) seconds += tg_plan_step_forecast(plan, k);
    return (double)run->cfg->train.micro_batches * seconds;
}

static void tell_disk(tg_run *run, const tg_plan *plan)
{
    char text[300], a[32], b[32];
    tg_strbuf what = {0};
    const tg_plan_traffic traffic = tg_run_traffic(run->cfg, plan);
    tg_run_offload_text(plan->options.offload, &what);
    snprintf(text, sizeof text,
             "offload: %s, %s on disk; forecast of a step %s read and written, %.4g ms of waiting for a disk "
             "of %.0f "
             "GB/s",
             tg_strbuf_str(&what), tg_format_bytes(a, (double)tg_plan_offloaded(plan)),
             tg_format_bytes(b, traffic.bytes), traffic.waits * 1e3, TG_PLAN_DISK_RATE * 1e-9);
    tg_strbuf_free(&what);
    tg_run_tell_text(run, TG_RUN_NOTE, run->core->done, text);
}

/* Reading for checkpoints is in it. */
static void tell_disk_measured(tg_run *run, int64_t steps)
{
    char text[300], a[32];
    tg_spill *spill = NULL;
    if (tg_store_spill(run->core->store, &spill) != TENG_OK || !spill) return;
    const tg_spill_books books = tg_spill_books_get(spill);
    snprintf(text, sizeof text, "offload: %s read and written a step, %.4g ms of waiting for it",
             tg_format_bytes(a, (double)(books.read + books.written) / (double)steps),
             books.waited * 1e3 / (double)steps);
    tg_run_tell_text(run, TG_RUN_NOTE, run->core->done, text);
}

void tg_run_tell_forecast(tg_run *run)
{
    const tg_plan *plan = plan_of(run);
    if (!plan) return;
    if (plan->options.offload) tell_disk(run, plan);
    char text[400], a[32], b[32], budget[64] = "", time[160] = "";
    if (run->cfg->memory.budget)
        snprintf(budget, sizeof budget, " of a budget of %s",
                 tg_format_bytes(a, (double)run->cfg->memory.budget));
    const double seconds = tg_run_forecast_seconds(run->cfg, plan), again = again_seconds(run, plan);
    if (seconds > 0)
        snprintf(time, sizeof time, "; forecast of a step %.4g ms, %.3g ms of it (%.1f %%) to compute again",
                 seconds * 1e3, again * 1e3, 100 * again / seconds);
    snprintf(text, sizeof text, "memory: %s planned%s%s", tg_format_bytes(b, (double)tg_plan_bytes(plan)),
             budget, time);
    tg_run_tell_text(run, TG_RUN_NOTE, run->core->done, text);
    const uint64_t now = tg_current_rss();
    run->base_bytes = now > plan->memory.params ? now - plan->memory.params : 0;
    tg_peak_rss_reset(); /* what measuring the machine took is no part of the run */
}

void tg_run_tell_measured(tg_run *run, double seconds, int64_t steps)
{
    const tg_plan *plan = plan_of(run);
    const uint64_t peak = tg_peak_rss();
    if (!plan || steps < 1 || !peak) return;
    char text[400], a[32], b[32], c[32], time[120] = "";
    const double forecast = tg_run_forecast_seconds(run->cfg, plan);
    if (forecast > 0)
        snprintf(time, sizeof time, "; a step took %.4g ms (forecast %.4g ms)", seconds * 1e3 / (double)steps,
                 forecast * 1e3);
    snprintf(text, sizeof text,
             "memory: %s resident at the peak: %s planned, %s program, libraries and text%s",
             tg_format_bytes(a, (double)peak), tg_format_bytes(b, (double)tg_plan_bytes(plan)),
             tg_format_bytes(c, (double)run->base_bytes), time);
    tg_run_tell_text(run, TG_RUN_NOTE, run->core->done, text);
    if (plan->options.offload) tell_disk_measured(run, steps);
}
