/*
 * The plan of a configuration's micro-batch, made before the first step and before anything is written. A
 * plan over memory.budget is refused with what would fit: the coarsest finer cut of the batch, found by
 * planning it.
 */
#include "base/fail.h"
#include "base/log.h"
#include "tensor/desc.h"
#include "train/run_impl.h"
#include "train/step.h"

static teng_status plan_cut(const tg_config *cfg, tg_step *step, int64_t pieces, const tg_plan **out)
{
    const teng_desc desc =
        tg_desc_make(TENG_I32, 2, (const int64_t[]){cfg->train.batch_size / pieces, cfg->train.seq_len});
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    return tg_step_plan(step, &shapes, true, out);
}

/* Bytes that a step in `pieces` micro-batches needs, 0 when that cannot be found out. */
static size_t bytes_of_cut(const tg_config *cfg, const tg_step *like, int64_t pieces)
{
    tg_step_options options = like->options;
    options.micro_batches = pieces;
    options.memory_budget = 0;
    tg_store *store = tg_store_create(tg_store_device(like->store));
    tg_step *step = NULL;
    const tg_plan *plan;
    size_t bytes = 0;
    if (store && tg_step_create(like->root, store, &options, &step) == TENG_OK &&
        plan_cut(cfg, step, pieces, &plan) == TENG_OK)
        bytes = tg_plan_bytes(plan);
    teng_error_clear();
    tg_step_destroy(&step);
    tg_store_destroy(&store);
    return bytes;
}

/* Adds to the pending error, which says by how much the budget is exceeded. */
static teng_status say_what_fits(const tg_config *cfg, const tg_step *step)
{
    const int64_t batch = cfg->train.batch_size;
    tg_error error;
    tg_error_take(&error);
    size_t bytes = 0;
    int64_t pieces = cfg->train.micro_batches + 1;
    for (; pieces <= batch; pieces++) {
        if (batch % pieces) continue;
        bytes = bytes_of_cut(cfg, step, pieces);
        if (bytes && bytes <= cfg->memory.budget) break;
    }
    char need[32];
    if (pieces <= batch)
        return tg_fail(error.status, "%s; train.micro_batches=%lld would fit: it needs %s", error.message,
                       (long long)pieces, tg_format_bytes(need, (double)bytes));
    if (!bytes) bytes = bytes_of_cut(cfg, step, batch);
    return tg_fail(
        error.status,
        "%s; no cut of the batch fits: one sequence at a time needs %s. Lower train.seq_len or the model's "
        "sizes, or raise the budget",
        error.message, tg_format_bytes(need, (double)bytes));
}

teng_status tg_run_plan_micro_batch(const tg_config *cfg, tg_step *step, const tg_plan **out)
{
    if (step->options.pynative && cfg->memory.budget)
        tg_warn("memory.budget is not checked: pynative mode plans nothing");
    const teng_status status = plan_cut(cfg, step, cfg->train.micro_batches, out);
    return status == TENG_MEMORY && cfg->memory.budget ? say_what_fits(cfg, step) : status;
}
