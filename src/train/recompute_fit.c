/*
 * Recompute as a step asks for it: the rewrite of one graph, and for memory.recompute=auto the search for the
 * least that fits into memory.budget. Every try is planned in full, because only the layout knows the peak.
 */
#include "train/step.h"

#include "base/fail.h"
#include "device/cpu_info.h"

#include <limits.h>

teng_status tg_step_check_recompute(const tg_step_options *o)
{
    if (o->offload && o->pynative)
        return tg_fail(TENG_INVALID, "memory.offload moves values as the plan says, and pynative has no "
                                     "plan: use context.mode=graph, "
                                     "whose numbers are the same, or memory.offload=none");
    if (o->recompute == TG_CFG_RECOMPUTE_NONE) {
        if (o->n_recompute_layers == 0) return TENG_OK;
        return tg_fail(TENG_INVALID, "memory.recompute_layers names layers, and memory.recompute is none: "
                                     "set it to selective, full or "
                                     "auto, or take the layers out");
    }
    if (o->pynative)
        return tg_fail(
            TENG_INVALID,
            "memory.recompute is a rewrite of the planned step, and pynative runs each operator as it is "
            "called: use context.mode=graph, whose numbers are the same, or memory.recompute=none");
    if (o->recompute == TG_CFG_RECOMPUTE_AUTO && o->memory_budget == 0)
        return tg_fail(
            TENG_INVALID,
            "memory.recompute=auto recomputes as little as fits into memory.budget, which is not set: set it "
            "(memory.budget=8GiB), or choose memory.recompute=selective or full");
    return TENG_OK;
}

teng_status tg_step_recompute(tg_step *s, tg_graph *g, tg_recompute_try *again)
{
    const tg_step_options *o = &s->options;
    const tg_recompute_options options = {.kind = (tg_recompute_kind)o->recompute,
                                          .layers = o->recompute_layers,
                                          .n_layers = o->n_recompute_layers,
                                          .flops_per_s = o->flops_per_s,
                                          .bytes_per_s = o->bytes_per_s,
                                          .moves = again->moves};
    return tg_recompute(g, &options, &again->result, &s->report);
}

double tg_step_peak_flops(const tg_step_options *options, const tg_cpu_peak *peak)
{
    const teng_precision *p = &options->precision;
    const bool bf16 = p->level > TENG_O0 && p->dtype == TENG_BF16 && peak->bf16_gflops > 0;
    return 1e9 * (bf16 ? peak->bf16_gflops : peak->f32_gflops);
}

void tg_step_measure_rates(tg_step_options *options)
{
    tg_cpu_peak peak;
    if (options->flops_per_s > 0) return;
    if (tg_cpu_measure_peak(false, &peak) == TENG_OK) {
        options->flops_per_s = tg_step_peak_flops(options, &peak);
        options->bytes_per_s = peak.bandwidth_gb_s * 1e9;
    }
    teng_error_clear();
}

/* *plan is NULL when what it needs is above the budget. */
static teng_status try_moves(tg_step *s, const tg_step_feed *shapes, int moves, int *all, tg_plan **plan)
{
    tg_recompute_try again = {.moves = moves, .any_size = true};
    TG_TRY(tg_step_make_plan(s, shapes, TG_STEP_TRAIN, &again, plan));
    *all = again.result.moves;
    if (tg_plan_bytes(*plan) > s->options.memory_budget)
        tg_plan_destroy(plan);
    else
        (*plan)->options.budget = s->options.memory_budget;
    return TENG_OK;
}

teng_status tg_step_fit(tg_step *s, const tg_step_feed *shapes, tg_plan **out)
{
    int all = 0;
    *out = NULL;
    tg_step_measure_rates(&s->options);
    TG_TRY(try_moves(s, shapes, 0, &all, out));
    if (*out) return TENG_OK;
    int low = 0, high = all; /* low does not fit, high is the least that does so far */
    TG_TRY(try_moves(s, shapes, high, &all, out));
    if (!*out) { /* for the planner's own error */
        tg_recompute_try again = {.moves = INT_MAX};
        return tg_step_make_plan(s, shapes, TG_STEP_TRAIN, &again, out);
    }
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        tg_plan *plan = NULL;
        const teng_status status = try_moves(s, shapes, middle, &all, &plan);
        if (status != TENG_OK) {
            tg_plan_destroy(out);
            return status;
        }
        if (plan) {
            tg_plan_destroy(out);
            *out = plan;
            high = middle;
        } else {
            low = middle;
        }
    }
    return TENG_OK;
}
