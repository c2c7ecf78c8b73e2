/*
 * memory.offload as a run asks for it: its words, what goes together, and for `auto` the choice of what lies
 * on disk: of all sets whose plan fits into memory.budget the one whose step is forecast to take least time.
 * Every try is planned in full, recompute included.
 */
#include "base/fail.h"
#include "train/run_impl.h"
#include "train/step.h"

#include <string.h>

static const struct {
    const char *word;
    unsigned bit;
} words[] = {{"optimizer", TG_OFFLOAD_OPTIMIZER},
             {"parameters", TG_OFFLOAD_PARAMETERS},
             {"activations", TG_OFFLOAD_ACTIVATIONS}};
enum { WORDS = sizeof words / sizeof *words };

bool tg_run_offload_is_auto(const tg_config *cfg)
{
    return cfg->memory.offload.count == 1 && strcmp(cfg->memory.offload.items[0], "auto") == 0;
}

unsigned tg_run_offload(const tg_config *cfg)
{
    unsigned mask = 0;
    for (size_t i = 0; i < cfg->memory.offload.count; i++)
        for (int w = 0; w < WORDS; w++)
            if (strcmp(cfg->memory.offload.items[i], words[w].word) == 0) mask |= words[w].bit;
    return mask;
}

void tg_run_offload_text(unsigned mask, tg_strbuf *out)
{
    for (int w = 0, n = 0; w < WORDS; w++)
        if (mask & words[w].bit) tg_strbuf_printf(out, "%s%s", n++ ? "," : "", words[w].word);
    if (!mask) tg_strbuf_puts(out, "none");
}

/* Seconds of a step whose plan with this offload fits; below 0: it does not, or cannot be planned. */
static double seconds_of(const tg_config *cfg, teng_cell *lm, tg_device *dev, tg_step_options *options,
                         unsigned mask)
{
    tg_store *store = tg_store_create(dev);
    tg_step *step = NULL;
    const tg_plan *plan;
    double seconds = -1;
    options->offload = mask;
    if (store && tg_step_create(lm, store, options, &step) == TENG_OK && tg_run_plan_fits(cfg, step, &plan))
        seconds = tg_run_forecast_seconds(cfg, plan);
    teng_error_clear();
    tg_step_destroy(&step);
    tg_store_destroy(&store);
    return seconds;
}

teng_status tg_run_choose_offload(const tg_config *cfg, teng_cell *lm, tg_device *dev,
                                  tg_step_options *options)
{
    if (!tg_run_offload_is_auto(cfg)) return TENG_OK;
    if (!cfg->memory.budget)
        return tg_fail(TENG_INVALID, "memory.offload=auto puts on disk what memory.budget does not hold, and "
                                     "that is not set: set it (memory.budget=8GiB), or name what goes "
                                     "(memory.offload=optimizer)");
    if (options->parallel)
        return tg_fail(TENG_UNSUPPORTED, "memory.offload=auto chooses for one rank, and parallel.* makes "
                                         "several: name what goes (memory.offload=optimizer)");
    tg_step_measure_rates(options);
    unsigned best = 0;
    double least = -1;
    for (unsigned mask = 0; mask <= TG_OFFLOAD_ALL; mask++) {
        const double seconds = seconds_of(cfg, lm, dev, options, mask);
        if (seconds < 0 || (least >= 0 && seconds >= least)) continue;
        least = seconds;
        best = mask;
        if (mask == 0 && cfg->memory.recompute != TG_CFG_RECOMPUTE_AUTO) break; /* nothing is cheaper */
    }
    options->offload = best; /* nothing fits: planning then says what would */
    return TENG_OK;
}
