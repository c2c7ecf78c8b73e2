/*
 * Learning rate of step t = 1 … N, by the schedule of the configuration. Warmup is linear from lr/W to lr
 * over the first W steps; the fall ends at min_lr_ratio · lr in step N. cosine: Loshchilov & Hutter 2017;
 * wsd: Hu et al. 2024, "MiniCPM", with a linear last part.
 */
#include "train/trainer.h"

#include <math.h>

double tg_schedule_lr(const tg_config *cfg, int64_t step)
{
    const double lr = cfg->optimizer.lr, low = cfg->schedule.min_lr_ratio;
    const int64_t steps = cfg->train.steps, warmup = tg_config_warmup_steps(cfg);
    if (step <= warmup) return lr * (double)step / (double)warmup;
    if (cfg->schedule.name == TG_CFG_SCHEDULE_CONSTANT) return lr;
    int64_t begin = warmup;
    if (cfg->schedule.name == TG_CFG_SCHEDULE_WSD) begin = steps - tg_config_decay_steps(cfg);
    if (begin < warmup) begin = warmup;
    if (step <= begin) return lr;
    if (steps <= begin + 1) return lr * low;
    double x = (double)(step - begin) / (double)(steps - begin); /* 0 … 1 */
    if (x > 1) x = 1;
    const double shape =
        cfg->schedule.name == TG_CFG_SCHEDULE_COSINE ? 0.5 * (1 + cos(3.14159265358979323846 * x)) : 1 - x;
    return lr * (low + (1 - low) * shape);
}
