/*
 * context.products: the ways of a training step's products (device/cpu_products.h), chosen before anything is
 * planned for good. The step is planned once by sizes, for the list of its products; rank 0 then chooses for
 * all ranks: as the run folder says, as this machine's cache says, and measures what neither knows. What a
 * list does not have (evaluation, other lengths) goes by sizes.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/cpu_products.h"
#include "train/run_impl.h"
#include "train/step_pipeline.h"

#include <string.h>

static bool measured(const tg_config *cfg)
{
    return cfg->context.products == TG_CFG_PRODUCTS_MEASURED;
}

/* Prepares the plan's kernels once more, each for as many times as a step runs it. */
static teng_status note_plan(const tg_plan *plan, int64_t micro_batches)
{
    for (size_t k = 0; k < plan->steps.len; k++) {
        const tg_plan_step *step = &plan->steps.data[k];
        teng_prepared again = {0};
        if (!step->prepared.state || !step->kernel->release) continue;
        tg_products_note(step->node->phase == TG_UPDATE ? 1 : micro_batches);
        TG_TRY(step->kernel->prepare(&step->call, &again));
        step->kernel->release(again.state);
    }
    return TENG_OK;
}

teng_status tg_run_note_products(const tg_config *cfg, const tg_step *step, const tg_plan *plan)
{
    const int64_t micro_batches = cfg->train.micro_batches;
    teng_status status = TENG_OK;
    if (!step->pipe) status = note_plan(plan, micro_batches);
    for (size_t i = 0; step->pipe && i < step->pipe->programs.len; i++)
        for (int c = 0; c < step->pipe->chunks && status == TENG_OK; c++)
            status = note_plan(step->pipe->programs.data[i]->pieces[c].plan, micro_batches);
    tg_products_note(0);
    return status;
}

/* The products of this rank's step, as a text. */
static teng_status list_products(const tg_config *cfg, teng_cell *lm, tg_device *dev,
                                 const tg_step_options *options, char **text)
{
    tg_store *store = tg_store_create(dev);
    tg_step *step = NULL;
    const tg_plan *plan;
    teng_status status = store ? tg_step_create(lm, store, options, &step) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_run_plan_micro_batch(cfg, step, &plan);
    if (status == TENG_OK) status = tg_run_note_products(cfg, step, plan);
    tg_step_destroy(&step);
    tg_store_destroy(&store);
    json_t *json = status == TENG_OK ? tg_products_json(false) : NULL;
    *text = json ? tg_json_text(json, 0) : NULL;
    json_decref(json);
    return status == TENG_OK && !*text ? TENG_MEMORY : status;
}

static void load(const char *path, const char *remedy)
{
    if (!path || tg_products_load(path, false) == TENG_OK) return;
    tg_warn("products: %s; %s", teng_error(), remedy);
    teng_error_clear();
}

/* Ways for all products of the list, of which `all` has every rank's; their text. */
static teng_status choose(const tg_team *team, const char *all, const char *recorded, char **text,
                          tg_strbuf *said)
{
    char *cache = tg_products_cache_path();
    int n = 0;
    teng_status status = TENG_OK;
    for (int rank = 0; rank < (team ? team->ranks : 1) && status == TENG_OK; rank++) {
        json_t *json = NULL;
        status = tg_json_parse("products of a rank", all, strlen(all), &json);
        if (status == TENG_OK) status = tg_products_take(json, "products of a rank", true);
        json_decref(json);
        all += strlen(all) + 1;
    }
    if (recorded && !tg_path_exists(recorded))
        tg_warn(
            "products: %s is gone: ways are chosen anew, and may differ from those that the run began with",
            recorded);
    load(recorded, "ways are chosen anew, and may differ from those that the run began with");
    load(cache, "products are measured anew");
    const double begin = tg_clock_seconds();
    if (status == TENG_OK) status = tg_products_measure(&n);
    const double seconds = tg_clock_seconds() - begin;
    json_t *json = status == TENG_OK ? tg_products_json(true) : NULL;
    *text = json ? tg_json_text(json, 0) : NULL;
    if (status == TENG_OK && !*text) status = TENG_MEMORY;
    json_decref(json);
    tg_strbuf line = {0};
    tg_strbuf_printf(&line, "%zu, of which %d measured in %.1f s; ways are kept in %s", tg_products_count(),
                     n, seconds, cache ? cache : "no cache: there is no home folder");
    if (status == TENG_OK && said)
        tg_strbuf_printf(said, "products              %s\n", tg_strbuf_str(&line));
    else if (status == TENG_OK)
        tg_info("products: %s", tg_strbuf_str(&line));
    tg_strbuf_free(&line);
    if (status == TENG_OK && n && cache) { /* with what others have measured since */
        (void)tg_products_load(cache, true);
        if (tg_products_save(cache) != TENG_OK) tg_warn("products: %s", teng_error());
        teng_error_clear();
    }
    tg_free(cache);
    return status;
}

teng_status tg_run_choose_products(const tg_config *cfg, teng_cell *lm, tg_device *dev,
                                   const tg_step_options *options, tg_team *team, const char *recorded,
                                   tg_strbuf *said)
{
    char *own = NULL, *all = NULL, *chosen = NULL, *text = NULL;
    if (!measured(cfg)) return TENG_OK;
    teng_status status = tg_team_agree(team, list_products(cfg, lm, dev, options, &own));
    if (status == TENG_OK) status = tg_team_gather_text(team, own, &all);
    if (status == TENG_OK)
        status = tg_team_agree(team,
                               tg_team_is_first(team) ? choose(team, all, recorded, &chosen, said) : TENG_OK);
    if (status == TENG_OK) status = tg_team_first_text(team, chosen ? chosen : "", &text);
    json_t *json = NULL;
    tg_products_clear();
    if (status == TENG_OK) status = tg_json_parse("products of rank 0", text, strlen(text), &json);
    if (status == TENG_OK) status = tg_products_take(json, "products of rank 0", true);
    json_decref(json);
    tg_free(own);
    tg_free(all);
    tg_free(chosen);
    tg_free(text);
    return status;
}

teng_status tg_run_keep_products(const tg_config *cfg, const char *path)
{
    return measured(cfg) ? tg_products_save(path) : TENG_OK;
}

/* ---- listings ---- */
static double share_of_peak(const tg_product *p, const tg_cpu_peak *peak)
{
    const double most =
        p->spec.a == TENG_BF16 && peak->bf16_gflops > 0 ? peak->bf16_gflops : peak->f32_gflops;
    return most > 0 ? p->gflops / most : 0;
}

static void print_product(const tg_product *p, const tg_cpu_peak *peak, tg_strbuf *out)
{
    const tg_gemm_spec *s = &p->spec;
    tg_strbuf what = {0};
    if (s->batch > 1) tg_strbuf_printf(&what, "%lld × ", (long long)s->batch);
    tg_strbuf_printf(&what, "%lld × %lld × %lld %s", (long long)s->m, (long long)s->n, (long long)s->k,
                     teng_dtype_name(s->a));
    if (s->c != s->a) tg_strbuf_printf(&what, " to %s", teng_dtype_name(s->c));
    tg_strbuf_printf(&what, "%s%s%s%s", s->trans_a ? ", a transposed" : "",
                     s->trans_b ? ", b transposed" : "", s->bias ? ", bias" : "",
                     s->accumulate ? ", added" : "");
    tg_strbuf_printf(out, "  %6lld  %-58s %-18s", (long long)p->times, tg_strbuf_str(&what),
                     tg_gemm_way_name(tg_products_way(p)));
    if (p->gflops > 0) tg_strbuf_printf(out, " %6.0f  %3.0f %%", p->gflops, 100 * share_of_peak(p, peak));
    tg_strbuf_putc(out, '\n');
    tg_strbuf_free(&what);
}

void tg_run_print_products(const tg_config *cfg, const tg_cpu_peak *peak, tg_strbuf *out)
{
    tg_strbuf_printf(out, "products              m × n × k, %s\n",
                     measured(cfg) && peak ? "the way that was fastest here, GFLOP/s, share of the peak"
                     : measured(cfg)       ? "the way by sizes; they are measured when the ranks start"
                                           : "the way by sizes (context.products=measured measures)");
    tg_strbuf_puts(out, "  a step\n");
    for (size_t i = 0; i < tg_products_count(); i++)
        if (tg_products_at(i)->times) print_product(tg_products_at(i), peak, out);
}

json_t *tg_run_products_json(const tg_cpu_peak *peak)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tg_products_count(); i++) {
        const tg_product *p = tg_products_at(i);
        if (!p->times) continue;
        json_t *one = tg_product_json(p);
        json_object_set_new(one, "times", json_integer(p->times));
        json_object_set_new(one, "way", json_string(tg_gemm_way_name(tg_products_way(p))));
        json_object_set_new(one, "gflops", p->gflops > 0 ? json_real(p->gflops) : json_null());
        json_object_set_new(one, "peak_share",
                            p->gflops > 0 && peak ? json_real(share_of_peak(p, peak)) : json_null());
        json_array_append_new(list, one);
    }
    return list;
}
