/*
 * Learning rate of step t = 1 … N. Warmup is linear from lr/W to lr over the first W steps; the fall ends at
 * min_lr_ratio · lr in step N. cosine: Loshchilov & Hutter 2017; wsd: Hu et al. 2024, "MiniCPM", with a
 * linear last part.
 */
#include "train/trainer.h"

#include <math.h>

double tg_schedule_at(const tg_schedule *s, int64_t step)
{
    if (step <= s->warmup_steps) return s->lr * (double)step / (double)s->warmup_steps;
    if (s->kind == TG_CFG_SCHEDULE_CONSTANT) return s->lr;
    int64_t begin = s->warmup_steps;
    if (s->kind == TG_CFG_SCHEDULE_WSD && s->steps - s->decay_steps > begin)
        begin = s->steps - s->decay_steps;
    if (step <= begin) return s->lr;
    if (s->steps <= begin + 1) return s->lr * s->min_lr_ratio;
    double x = (double)(step - begin) / (double)(s->steps - begin); /* 0 … 1 */
    if (x > 1) x = 1;
    const double shape =
        s->kind == TG_CFG_SCHEDULE_COSINE ? 0.5 * (1 + cos(3.14159265358979323846 * x)) : 1 - x;
    return s->lr * (s->min_lr_ratio + (1 - s->min_lr_ratio) * shape);
}

double tg_schedule_lr(const tg_config *cfg, int64_t step)
{
    const tg_schedule schedule = {.kind = cfg->schedule.name,
                                  .lr = cfg->optimizer.lr,
                                  .min_lr_ratio = cfg->schedule.min_lr_ratio,
                                  .steps = cfg->train.steps,
                                  .warmup_steps = tg_config_warmup_steps(cfg),
                                  .decay_steps = tg_config_decay_steps(cfg)};
    return tg_schedule_at(&schedule, step);
}
