/*
 * The plans of a configuration's micro-batch and of its evaluation, made before the first step and before
 * anything is written. What needs more than memory.budget is refused with what would fit, found by planning
 * it: recompute, the coarsest finer cut of the batch, both.
 */
#include "base/fail.h"
#include "base/log.h"
#include "tensor/desc.h"
#include "train/run_impl.h"
#include "train/step.h"

tg_step_feed tg_run_shapes(const tg_config *cfg, int64_t pieces, teng_desc desc[2])
{
    static const char *const names[] = {"tokens", "labels"};
    desc[0] = desc[1] =
        tg_desc_make(TENG_I32, 2, (const int64_t[]){cfg->train.batch_size / pieces, cfg->train.seq_len});
    return (tg_step_feed){.in_desc = desc, .in_name = names, .n_in = 2};
}

static teng_status plan_cut(const tg_config *cfg, tg_step *step, int64_t pieces, bool training,
                            const tg_plan **out)
{
    teng_desc desc[2];
    const tg_step_feed shapes = tg_run_shapes(cfg, pieces, desc);
    return tg_step_plan(step, &shapes, training, out);
}

/* Evaluation runs in the block of the training step; should its own be bigger, that is what is allocated. */
static teng_status plan_evaluation(const tg_config *cfg, tg_step *step, int64_t pieces, size_t *block)
{
    const tg_plan *plan = NULL;
    *block = 0;
    if (cfg->data.val_files.count == 0 && cfg->data.val_fraction <= 0) return TENG_OK;
    TG_TRY(plan_cut(cfg, step, pieces, false, &plan));
    if (plan) *block = plan->memory.block;
    return TENG_OK;
}

static size_t bytes_of_run(const tg_plan *train, size_t eval_block)
{
    const size_t more = eval_block > train->memory.block ? eval_block - train->memory.block : 0;
    return tg_plan_bytes(train) + more;
}

/* Bytes that a step in `pieces` micro-batches needs, 0 when that cannot be found out. */
static size_t bytes_of_cut(const tg_config *cfg, const tg_step *like, int64_t pieces,
                           tg_cfg_recompute recompute)
{
    tg_step_options options = like->options;
    options.micro_batches = pieces;
    options.memory_budget = 0;
    options.recompute = recompute;
    tg_store *store = tg_store_create(tg_store_device(like->store));
    tg_step *step = NULL;
    const tg_plan *plan;
    size_t bytes = 0, eval_block;
    if (store && tg_step_create(like->root, store, &options, &step) == TENG_OK &&
        plan_cut(cfg, step, pieces, true, &plan) == TENG_OK &&
        plan_evaluation(cfg, step, pieces, &eval_block) == TENG_OK)
        bytes = bytes_of_run(plan, eval_block);
    teng_error_clear();
    tg_step_destroy(&step);
    tg_store_destroy(&store);
    return bytes;
}

/* The fewest micro-batches that fit, and what they need; 0 when none does: then what one sequence needs. */
static int64_t pieces_that_fit(const tg_config *cfg, const tg_step *step, tg_cfg_recompute recompute,
                               size_t *bytes)
{
    const int64_t batch = cfg->train.batch_size;
    *bytes = 0;
    for (int64_t pieces = cfg->train.micro_batches + 1; pieces <= batch; pieces++) {
        if (batch % pieces) continue;
        *bytes = bytes_of_cut(cfg, step, pieces, recompute);
        if (*bytes && *bytes <= cfg->memory.budget) return pieces;
    }
    if (!*bytes) *bytes = bytes_of_cut(cfg, step, batch, recompute);
    return 0;
}

/* Whether all that can lie on disk is enough. */
static void say_offload(const tg_config *cfg, const tg_step *like, tg_strbuf *out)
{
    char a[32];
    tg_step all = *like;
    all.options.offload = TG_OFFLOAD_ALL;
    if (like->options.offload == all.options.offload || like->options.parallel) return;
    const size_t bytes = bytes_of_cut(cfg, &all, cfg->train.micro_batches,
                                      cfg->memory.recompute == TG_CFG_RECOMPUTE_AUTO ? TG_CFG_RECOMPUTE_FULL
                                                                                     : cfg->memory.recompute);
    if (bytes && bytes <= cfg->memory.budget)
        tg_strbuf_printf(out,
                         "; memory.offload=auto would fit: with all that can lie on disk there it needs %s",
                         tg_format_bytes(a, (double)bytes));
}

/* Adds to the pending error, which says by how much the budget is exceeded. */
static teng_status say_what_fits(const tg_config *cfg, const tg_step *step)
{
    tg_error error;
    tg_error_take(&error);
    const tg_cfg_recompute asked = cfg->memory.recompute;
    const bool full = asked == TG_CFG_RECOMPUTE_FULL || asked == TG_CFG_RECOMPUTE_AUTO;
    char a[32], b[32];
    size_t bytes, bytes_full = 0;
    tg_strbuf more = {0};
    say_offload(cfg, step, &more);
    if (!full) {
        bytes_full = bytes_of_cut(cfg, step, cfg->train.micro_batches, TG_CFG_RECOMPUTE_FULL);
        if (bytes_full && bytes_full <= cfg->memory.budget)
            tg_strbuf_printf(&more, "; memory.recompute=auto would fit: full recompute needs %s",
                             tg_format_bytes(a, (double)bytes_full));
    }
    const int64_t pieces =
        pieces_that_fit(cfg, step, asked == TG_CFG_RECOMPUTE_AUTO ? TG_CFG_RECOMPUTE_FULL : asked, &bytes);
    if (pieces) {
        tg_strbuf_printf(&more, "; train.micro_batches=%lld would fit: it needs %s", (long long)pieces,
                         tg_format_bytes(a, (double)bytes));
    } else if (more.len == 0) {
        const int64_t both = full ? 0 : pieces_that_fit(cfg, step, TG_CFG_RECOMPUTE_FULL, &bytes_full);
        if (both)
            tg_strbuf_printf(&more,
                             "; train.micro_batches=%lld with memory.recompute=full would fit: it needs %s",
                             (long long)both, tg_format_bytes(a, (double)bytes_full));
        else
            tg_strbuf_printf(&more,
                             "; no cut of the batch fits: one sequence at a time needs %s%s%s. Lower "
                             "train.seq_len or the model's sizes, or raise the budget",
                             tg_format_bytes(a, (double)bytes),
                             bytes_full ? ", with memory.recompute=full " : "",
                             bytes_full ? tg_format_bytes(b, (double)bytes_full) : "");
    }
    const teng_status status = tg_fail(error.status, "%s%s", error.message, tg_strbuf_str(&more));
    tg_strbuf_free(&more);
    return status;
}

static teng_status check_evaluation(const tg_config *cfg, tg_step *step, const tg_plan *train)
{
    size_t block;
    TG_TRY(plan_evaluation(cfg, step, cfg->train.micro_batches, &block));
    const size_t need = bytes_of_run(train, block);
    if (need <= cfg->memory.budget) return TENG_OK;
    char a[32], b[32], c[32];
    return tg_fail(
        TENG_MEMORY,
        "memory.budget: evaluation needs %s, the budget is %s. The training step fits; the forward pass of "
        "an evaluation takes %s, which smaller micro-batches make less",
        tg_format_bytes(a, (double)need), tg_format_bytes(b, (double)cfg->memory.budget),
        tg_format_bytes(c, (double)block));
}

bool tg_run_plan_fits(const tg_config *cfg, tg_step *step, const tg_plan **out)
{
    *out = NULL;
    return plan_cut(cfg, step, cfg->train.micro_batches, true, out) == TENG_OK && *out &&
           check_evaluation(cfg, step, *out) == TENG_OK;
}

teng_status tg_run_plan_micro_batch(const tg_config *cfg, tg_step *step, const tg_plan **out)
{
    if (cfg->memory.recompute != TG_CFG_RECOMPUTE_NONE || step->options.offload)
        tg_step_measure_rates(&step->options);
    if (step->options.pynative && cfg->memory.budget)
        tg_warn("memory.budget is not checked: pynative mode plans nothing");
    teng_status status = plan_cut(cfg, step, cfg->train.micro_batches, true, out);
    if (status == TENG_OK && *out && cfg->memory.budget) status = check_evaluation(cfg, step, *out);
    return status == TENG_MEMORY && cfg->memory.budget ? say_what_fits(cfg, step) : status;
}
