/* `teng plan`: what a configuration would do, without data and without weights. */
#include "base/clock.h"
#include "base/fail.h"
#include "device/cpu_isa.h"
#include "nn/precision.h"
#include "pass/pass.h"
#include "plan/plan_kinds.h"
#include "tensor/desc.h"
#include "train/run_impl.h"
#include "train/step_pipeline.h"

#include <stdio.h>
#include <string.h>

/* What a run holds beside the plan: the copy that a checkpoint is written from while training goes on, and
 * batches read ahead. */
typedef struct beside {
    size_t checkpoint, batches;
} beside;
static beside beside_plan(const tg_config *cfg, const tg_plan *plan)
{
    beside b = {0};
    const bool often = cfg->checkpoint.every > 0 || cfg->checkpoint.seconds > 0;
    for (size_t i = 0; i < plan->graph->values.len && cfg->checkpoint.async && often &&
                       !(plan->options.offload & TG_OFFLOAD_STORED);
         i++) {
        const teng_tensor *v = plan->graph->values.data[i];
        if (v->kind == TG_VALUE_PARAM || (v->kind == TG_VALUE_STATE && strncmp(v->name, "grad.", 5) != 0))
            b.checkpoint += tg_desc_bytes(&v->desc);
    }
    b.batches = 2 * sizeof(int32_t) * (size_t)(cfg->train.batch_size * cfg->train.seq_len) *
                ((size_t)cfg->data.prefetch + 1);
    return b;
}

static void print_on_disk(const tg_config *cfg, const tg_plan *plan, tg_strbuf *out)
{
    char a[32], b[32];
    const tg_plan_traffic traffic = tg_run_traffic(cfg, plan);
    tg_strbuf_puts(out, "on disk               ");
    tg_run_offload_text(plan->options.offload, out);
    tg_strbuf_printf(out, ": %s; %s read and written in a step",
                     tg_format_bytes(a, (double)tg_plan_offloaded(plan)), tg_format_bytes(b, traffic.bytes));
    tg_strbuf_printf(out, ", %.1f ms of waiting for a disk of %.0f GB/s\n", traffic.waits * 1e3,
                     TG_PLAN_DISK_RATE * 1e-9);
}

static teng_status print_summary(const tg_config *cfg, const tg_lm_info *info, const tg_step *step,
                                 const tg_plan *plan, const tg_cpu_peak *peak, double seconds_to_plan,
                                 tg_strbuf *out)
{
    char a[32], b[32];
    const double per_token = tg_lm_flops_per_token(info, cfg->train.seq_len);
    const double tokens = (double)(cfg->train.batch_size * cfg->train.seq_len);
    tg_strbuf_printf(out, "model                 %s, %s parameters (%lld), %lld layers, hidden_size %lld\n",
                     info->family, tg_format_count(a, (double)info->params), (long long)info->params,
                     (long long)info->num_layers, (long long)info->hidden_size);
    tg_strbuf_printf(out, "FLOPs a token         %sFLOP for training\n", tg_format_count(a, per_token));
    tg_strbuf_printf(
        out, "step                  %lld sequences of %lld = %.0f tokens in %lld micro-batches, %sFLOP\n",
        (long long)cfg->train.batch_size, (long long)cfg->train.seq_len, tokens,
        (long long)cfg->train.micro_batches, tg_format_count(a, per_token * tokens));
    const double seconds = tg_run_forecast_seconds(cfg, plan);
    if (seconds > 0)
        tg_strbuf_printf(out,
                         "forecast              %.1f ms a step, %.0f tokens/s (roofline of this machine)\n",
                         seconds * 1e3, tokens / seconds);
    tg_strbuf_printf(out, "instruction set       %s\n", tg_cpu_isa_name(plan->options.isa));
    tg_strbuf_printf(
        out,
        "graph                 %zu nodes, %zu steps; traced, differentiated, rewritten and planned in "
        "%.1f ms, planning %.1f ms of it\n",
        plan->graph->nodes.len, plan->steps.len, seconds_to_plan * 1e3, plan->seconds * 1e3);
    const tg_plan_memory *m = &plan->memory;
    tg_strbuf_printf(out, "memory                parameters %s, optimizer %s,",
                     tg_format_bytes(a, (double)m->params), tg_format_bytes(b, (double)m->states));
    tg_strbuf_printf(out, " activation block %s; peak %s (%zu bytes)\n", tg_format_bytes(a, (double)m->block),
                     tg_format_bytes(b, (double)(tg_plan_bytes(plan))), tg_plan_bytes(plan));
    if (tg_plan_offloaded(plan)) print_on_disk(cfg, plan, out);
    const beside more = beside_plan(cfg, plan);
    tg_strbuf_printf(out, "beside the plan       batches read ahead %s",
                     tg_format_bytes(a, (double)more.batches));
    if (more.checkpoint)
        tg_strbuf_printf(out, "; with checkpoints on the way, a copy of %s to write from (checkpoint.async)",
                         tg_format_bytes(a, (double)more.checkpoint));
    tg_strbuf_printf(out, "; program and libraries, resident now %s\n",
                     tg_format_bytes(a, (double)tg_current_rss()));
    TG_TRY(tg_plan_print_kinds(plan, out));
    tg_run_print_products(cfg, peak, out);
    tg_strbuf_printf(out, "passes\n%s", tg_step_pass_report(step));
    return TENG_OK;
}

static teng_status draw(const tg_config *cfg, const tg_lm_info *info, const tg_plan *plan, tg_strbuf *out)
{
    char title[160], count[32], cut[48] = "";
    if (cfg->train.micro_batches > 1)
        snprintf(cut, sizeof cut, " in %lld micro-batches", (long long)cfg->train.micro_batches);
    snprintf(title, sizeof title, "Memory of one step: %s, %s parameters, %lld × %lld tokens%s", info->family,
             tg_format_count(count, (double)info->params), (long long)cfg->train.batch_size,
             (long long)cfg->train.seq_len, cut);
    return tg_plan_memory_svg(plan, title, out);
}

static teng_status print_json(const tg_config *cfg, const tg_lm_info *info, const tg_step *step,
                              const tg_plan *plan, const tg_cpu_peak *peak, tg_strbuf *out)
{
    json_t *json = tg_plan_json(plan);
    if (!json) return tg_fail(TENG_MEMORY, "out of memory for the plan's JSON");
    const beside more = beside_plan(cfg, plan);
    json_object_set_new(json, "checkpoint_copy_bytes", json_integer((json_int_t)more.checkpoint));
    json_object_set_new(json, "batches_bytes", json_integer((json_int_t)more.batches));
    json_object_set_new(json, "memory_at_peak", tg_plan_kinds_json(plan));
    json_object_set_new(json, "family", json_string(info->family));
    json_object_set_new(json, "parameters", json_integer(info->params));
    json_object_set_new(json, "flops_per_token", json_real(tg_lm_flops_per_token(info, cfg->train.seq_len)));
    json_object_set_new(json, "tokens_per_step", json_integer(cfg->train.batch_size * cfg->train.seq_len));
    json_object_set_new(json, "passes", json_string(tg_step_pass_report(step)));
    json_object_set_new(json, "products", tg_run_products_json(peak));
    const tg_parallel *layout = tg_step_parallel(step, plan);
    if (layout) json_object_set_new(json, "parallel", tg_parallel_json(layout));
    char *text = tg_json_text(json, 2);
    json_decref(json);
    if (!text) return TENG_MEMORY;
    tg_strbuf_puts(out, text);
    tg_strbuf_putc(out, '\n');
    tg_free(text);
    return TENG_OK;
}

/* The stages of a pipeline as text, or its schedule as a picture. */
static teng_status print_pipeline(const tg_config *cfg, tg_step *step, bool picture, tg_strbuf *out)
{
    teng_desc desc[2];
    const tg_step_feed shapes = tg_run_shapes(cfg, cfg->train.micro_batches, desc);
    if (!step->pipe && picture)
        return tg_fail(TENG_INVALID, "there is no schedule to draw: parallel.pipeline=1; give the number of "
                                     "stages, as parallel.pipeline=4");
    if (!step->pipe) return TENG_OK;
    return picture ? tg_step_pipe_svg(step, &shapes, out) : tg_step_pipe_print(step, &shapes, out);
}

/* What this rank computes, and sends, in one optimizer step. */
static void print_rank(const tg_config *cfg, const tg_parallel *layout, const tg_plan *plan, tg_strbuf *out)
{
    char a[32];
    if (!layout) return;
    const double k = (double)cfg->train.micro_batches;
    tg_strbuf_printf(out, "rank                  ");
    tg_parallel_print_place(layout, out);
    const double flops = k * (tg_plan_cost(plan, TG_FORWARD).flops + tg_plan_cost(plan, TG_BACKWARD).flops) +
                         tg_plan_cost(plan, TG_UPDATE).flops;
    tg_strbuf_printf(out, "its step              %sFLOP\n", tg_format_count(a, flops));
    tg_parallel_print_bytes(layout, "sent in a step        ", out);
}

static teng_status print_redistributions(const tg_parallel *layout, tg_strbuf *out)
{
    if (!layout)
        tg_strbuf_puts(out, "one rank: nothing is redistributed\n");
    else
        tg_parallel_print(layout, out);
    return out->failed ? tg_fail(TENG_MEMORY, "out of memory for the listing") : TENG_OK;
}

/* What rates of products are a share of; NULL: they were not measured, for one rank of many. */
static const tg_cpu_peak *measured_peak(const tg_config *cfg, const tg_step *step, tg_cpu_peak *peak)
{
    if (cfg->context.products != TG_CFG_PRODUCTS_MEASURED || step->options.parallel) return NULL;
    if (tg_cpu_measure_peak(false, peak) == TENG_OK) return peak;
    teng_error_clear();
    return NULL;
}

static teng_status print(const tg_config *cfg, const tg_lm_info *info, tg_step *step, const char *what,
                         tg_strbuf *out)
{
    const tg_plan *plan;
    if (strcmp(what, "schedule-svg") == 0) return print_pipeline(cfg, step, true, out);
    const double begin = tg_clock_seconds();
    TG_TRY(tg_run_plan_micro_batch(cfg, step, &plan));
    const double seconds = tg_clock_seconds() - begin;
    tg_cpu_peak machine;
    const tg_cpu_peak *peak = measured_peak(cfg, step, &machine);
    TG_TRY(tg_run_note_products(cfg, step, plan));
    if (strcmp(what, "summary") == 0) {
        TG_TRY(print_summary(cfg, info, step, plan, peak, seconds, out));
        print_rank(cfg, tg_step_parallel(step, plan), plan, out);
        return print_pipeline(cfg, step, false, out);
    }
    if (strcmp(what, "memory-svg") == 0)
        return draw(cfg, info, plan, out);
    else if (strcmp(what, "graph") == 0)
        tg_graph_print(plan->graph, out);
    else if (strcmp(what, "redistributions") == 0)
        return print_redistributions(tg_step_parallel(step, plan), out);
    else if (strcmp(what, "casts") == 0)
        tg_precision_print(plan->graph, out);
    else if (strcmp(what, "dot") == 0)
        tg_graph_dot(plan->graph, out);
    else if (strcmp(what, "plan") == 0)
        tg_plan_print(plan, out);
    else if (strcmp(what, "memory") == 0) {
        TG_TRY(tg_plan_print_kinds(plan, out));
        tg_plan_print_memory(plan, out);
    } else if (strcmp(what, "json") == 0)
        return print_json(cfg, info, step, plan, peak, out);
    else
        return tg_fail(TENG_INVALID, "plan: there is no listing \"%s\"", what);
    return out->failed ? tg_fail(TENG_MEMORY, "out of memory for the listing") : TENG_OK;
}

/* The mesh that parallel.* makes, and a rank of it. */
static teng_status mesh_of(const tg_config *cfg, int64_t rank, tg_mesh *out)
{
    TG_TRY(tg_team_mesh(cfg, 0, out));
    if (rank < out->ranks) return TENG_OK;
    return tg_fail(TENG_INVALID, "--rank=%lld: parallel.* makes %d rank%s, 0 to %d", (long long)rank,
                   out->ranks, out->ranks == 1 ? "" : "s", out->ranks - 1);
}

teng_status tg_run_plan_text(const tg_config *cfg, int64_t rank, const char *what, tg_strbuf *out)
{
    TG_TRY(tg_config_check(cfg, 0));
    TG_TRY(tg_run_prepare_context(cfg));
    tg_tokenizer *tokenizer = NULL;
    teng_cell *lm = NULL;
    tg_lm_info info;
    tg_device *dev = NULL;
    tg_store *store = NULL;
    tg_step *step = NULL;
    tg_mesh mesh;
    tg_parallel_options split;
    tg_step_options options = tg_run_step_options(cfg);
    TG_TRY(mesh_of(cfg, rank, &mesh));
    if (mesh.ranks > 1) {
        tg_run_parallel_options(cfg, &mesh, (int)rank, &split);
        options.parallel = &split;
    }
    options.pynative = false; /* a plan is of the graph; PYNATIVE runs the same operators */
    teng_status status = cfg->model.vocab_size.set ? TENG_OK : tg_run_open_tokenizer(cfg, &tokenizer);
    if (status == TENG_OK) status = tg_run_open_model(cfg, tokenizer, &lm, &info);
    if (status == TENG_OK) status = tg_device_open(cfg->context.device, (int)cfg->context.threads, &dev);
    if (status == TENG_OK) tg_step_measure_rates(&options);
    if (status == TENG_OK) status = tg_run_choose_offload(cfg, lm, dev, &options);
    if (status == TENG_OK && mesh.ranks == 1)
        status = tg_run_choose_products(cfg, lm, dev, &options, NULL, NULL,
                                        strcmp(what, "summary") == 0 ? out : NULL);
    if (status == TENG_OK) {
        store = tg_store_create(dev);
        status = store ? tg_step_create(lm, store, &options, &step) : TENG_MEMORY;
    }
    if (status == TENG_OK) status = print(cfg, &info, step, what, out);
    tg_step_destroy(&step);
    tg_store_destroy(&store);
    tg_device_close(&dev);
    teng_cell_destroy(&lm);
    tg_tokenizer_destroy(&tokenizer);
    return status;
}
