/*
 * The loop of a run: step, books, evaluation, checkpoints, stop. A failing save never ends a run: it is
 * reported and tried again at the next interval. A step whose loss or norm is not finite is dropped and said
 * so.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "train/run_impl.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_bool stop_requested; /* also by a signal's handler, or the thread that tells steps */

void tg_run_stop(void)
{
    stop_requested = true;
}

/* ---- checkpoints ---- */
/* A failure of step `fatal` is the run's own error, told by whoever sees that; -1: there is none. */
static void report_saves(tg_run *run, int64_t fatal)
{
    tg_ckpt_done done;
    while (tg_saver_poll(run->saver, &done)) {
        char text[512];
        if (done.error.status != TENG_OK) {
            if (done.step != fatal)
                tg_run_tell_text(run, TG_RUN_SAVE_FAILED, run->core->done, done.error.message);
            if (done.step == run->saved_step) run->saved_step = -1;
            continue;
        }
        snprintf(text, sizeof text, "%s/checkpoints/step-%08lld", run->cfg->run.dir, (long long)done.step);
        if (run->metrics)
            tg_run_keep_books(
                run, run->core->done,
                tg_metrics_put_checkpoint(run->metrics, done.step, text, done.bytes, done.seconds));
        tg_run_tell_text(run, TG_RUN_SAVED, run->core->done, text);
    }
}

static teng_status submit_save(tg_run *run, bool last)
{
    json_t *state = json_object();
    teng_status status = state ? tg_run_note_data(run, state) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_saver_submit(run->saver, run->core, state, last);
    json_decref(state);
    return status;
}

static void save(tg_run *run)
{
    const teng_status status = submit_save(run, false);
    run->saved_at = tg_clock_seconds();
    if (status == TENG_OK) {
        run->saved_step = run->core->done;
    } else {
        tg_run_tell_text(run, TG_RUN_SAVE_FAILED, run->core->done, teng_error());
        teng_error_clear();
    }
}

static bool save_is_due(const tg_run *run)
{
    const tg_config *cfg = run->cfg;
    if (run->core->again) return false; /* a batch that is tried again ends no step */
    if (cfg->checkpoint.every > 0 && run->core->done % cfg->checkpoint.every == 0) return true;
    return run->save_by_time;
}

/* A save will come that is not the last. */
static bool saves_ahead(const tg_run *run)
{
    const int64_t every = run->cfg->checkpoint.every;
    return run->cfg->checkpoint.seconds > 0 ||
           (every > 0 && (run->core->done / every + 1) * every < run->cfg->train.steps);
}

/* The last save of a run is waited for; its failure is the run's failure. */
static teng_status save_last(tg_run *run)
{
    teng_status status = run->saved_step == run->core->done ? TENG_OK : submit_save(run, true);
    if (status == TENG_OK) status = tg_saver_wait(run->saver);
    tg_error error;
    tg_error_take(&error);
    report_saves(run, run->core->done);
    if (status == TENG_OK) return TENG_OK;
    return tg_fail(
        error.status,
        "%s; once that is mended, `teng resume %s` goes on from the last whole checkpoint, or from the start",
        error.message, run->cfg->run.dir);
}

/* ---- evaluation ---- */
static teng_status evaluate(tg_run *run, tg_core_eval_result *out)
{
    tg_source source = tg_source_of_loader(run->val);
    TG_TRY(source.seek(source.user, 0));
    return tg_core_eval(run->core, &source, run->cfg->train.eval_batches, run->tokenizer, out);
}

static double bits_per_byte(const tg_core_eval_result *r)
{
    return r->bytes ? r->loss * (double)r->tokens / (double)r->bytes / log(2.0) : NAN;
}

teng_status tg_run_eval(tg_run *run, double *loss, double *bits)
{
    if (!run->val)
        return tg_fail(TENG_INVALID, "%s",
                       run->no_val ? run->no_val : "data.val_fraction is 0: nothing is held back");
    tg_core_eval_result r;
    TG_TRY(evaluate(run, &r));
    *loss = r.loss;
    *bits = bits_per_byte(&r);
    return TENG_OK;
}

static teng_status evaluate_and_tell(tg_run *run)
{
    tg_core_eval_result r;
    TG_TRY(evaluate(run, &r));
    const tg_metrics_eval line = {run->core->done, (float)r.loss, bits_per_byte(&r), r.tokens};
    if (run->metrics) tg_run_keep_books(run, run->core->done, tg_metrics_put_eval(run->metrics, &line));
    const tg_run_event event = {.kind = TG_RUN_EVAL,
                                .step = run->core->done,
                                .steps = run->cfg->train.steps,
                                .val_loss = r.loss,
                                .bits_per_byte = line.bits_per_byte};
    tg_run_tell(run, &event);
    return TENG_OK;
}

/* ---- steps ---- */
typedef struct pace {
    double begin, last; /* clock seconds: of the loop, of the last step */
    double in_steps;    /* seconds */
    int64_t first_step;
} pace;

/* A rate above the peak means that the peak was measured while the machine was busy: it is measured again,
 * once. */
static double flops_utilisation(tg_run *run, double flops_per_s)
{
    tg_cpu_peak peak;
    if (run->peak_flops > 0 && flops_per_s > run->peak_flops && !run->peak_again) {
        run->peak_again = true;
        if (tg_cpu_measure_peak(true, &peak) == TENG_OK) run->peak_flops = tg_run_peak_flops(run, &peak);
        teng_error_clear();
    }
    return run->peak_flops > 0 ? flops_per_s / run->peak_flops : NAN;
}

/* All that is told of a step that has just run. */
static tg_run_record record_of(tg_run *run, pace *p, const tg_core_result *r, double lr)
{
    const tg_core *core = run->core;
    const double now = tg_clock_seconds(), seconds = now - p->last;
    const double rate = seconds > 0 ? (double)r->tokens / seconds : 0;
    const double mfu =
        flops_utilisation(run, rate * tg_lm_flops_per_token(&run->info, run->cfg->train.seq_len));
    const double mean = (now - p->begin) / (double)(core->done - p->first_step);
    p->last = now;
    p->in_steps += seconds;
    return (tg_run_record){
        .counts = true,
        .line = {.step = core->done,
                 .epoch = core->epoch,
                 .loss = (float)r->loss,
                 .lr = (float)lr,
                 .grad_norm = (float)r->grad_norm,
                 .tokens = core->tokens,
                 .tokens_per_s = rate,
                 .mfu = mfu,
                 .step_ms = seconds * 1e3,
                 .data_wait = seconds > 0 ? r->wait_s / seconds : 0},
        .event = {.kind = TG_RUN_STEP,
                  .step = core->done,
                  .steps = run->cfg->train.steps,
                  .loss = r->loss,
                  .lr = lr,
                  .grad_norm = r->grad_norm,
                  .tokens = r->tokens,
                  .tokens_per_s = rate,
                  .mfu = mfu,
                  .step_ms = seconds * 1e3,
                  .seconds_left = mean * (double)(run->cfg->train.steps - core->done)},
    };
}

static char *dropped_text(const tg_core *core, const tg_core_result *r)
{
    tg_strbuf text = {0};
    tg_core_dropped_text(core, r, &text);
    return tg_strbuf_take(&text);
}

/* What clocks and signals say, which differ from rank to rank: one that says so is enough for all. */
static teng_status look_up(tg_run *run, const pace *p)
{
    const tg_config *cfg = run->cfg;
    const double now = tg_clock_seconds();
    int32_t said[3] = {stop_requested, cfg->train.max_seconds > 0 && now - p->begin >= cfg->train.max_seconds,
                       cfg->checkpoint.seconds > 0 && now - run->saved_at >= cfg->checkpoint.seconds};
    TG_TRY(tg_team_max(run->team, said, 3));
    run->stopped = said[0];
    run->out_of_time = said[1];
    run->save_by_time = said[2];
    return TENG_OK;
}

static bool is_over(const tg_run *run)
{
    return run->core->done >= run->cfg->train.steps || run->stopped || run->out_of_time;
}

/* parallel.checksum_every: what ranks hold in common is still the same. */
static teng_status compare_copies(const tg_run *run)
{
    const int64_t every = run->cfg->parallel.checksum_every;
    char when[64];
    if (every == 0 || run->core->done % every || run->core->again) return TENG_OK;
    snprintf(when, sizeof when, "after step %lld", (long long)run->core->done);
    return tg_core_same_copies(run->core, when);
}

static teng_status one_step(tg_run *run, pace *p)
{
    const double lr = tg_schedule_lr(run->cfg, run->core->done + 1);
    tg_core_result r = {0};
    tg_profiler_end_step(run->profiler);
    tg_profiler_begin_step(run->profiler, run->core->done + 1);
    const teng_status status = tg_core_train_step(run->core, &run->source, lr, &r);
    tg_profiler_ran(run->profiler, r.wait_s);
    TG_TRY(status);
    tg_run_record record = {.line = {.step = run->core->done}};
    if (!r.again) record = record_of(run, p, &r, lr);
    record.profiled = tg_profiler_is_inside(run->profiler);
    if (!r.finite) record.note = dropped_text(run->core, &r);
    tg_run_put_record(run, &record);
    if (!r.finite) TG_TRY(tg_core_check_dropped(run->core));
    TG_TRY(compare_copies(run));
    return look_up(run, p);
}

static bool eval_is_due(const tg_run *run)
{
    const int64_t every = run->cfg->train.eval_every;
    return run->val && every > 0 && run->core->done % every == 0 && !run->core->again;
}

/* Steps back to back, until the sink is full or something else is due. */
static teng_status fill_sink(tg_run *run, pace *p)
{
    const int64_t size = run->cfg->data.sink_size;
    const double epoch = floor(run->core->epoch);
    for (int64_t n = 1;; n++) {
        TG_TRY(one_step(run, p));
        const bool full = size > 0 ? n == size : floor(run->core->epoch) > epoch;
        if (full || is_over(run) || eval_is_due(run) || save_is_due(run) || tg_profiler_is_due(run->profiler))
            return TENG_OK;
    }
}

static teng_status run_sink(tg_run *run, pace *p)
{
    TG_TRY(tg_run_open_books(run));
    const teng_status status = fill_sink(run, p);
    tg_run_close_books(run);
    return status;
}

/* A profile that cannot be written ends no run. */
static void write_profile(tg_run *run)
{
    bool written;
    const teng_status status = tg_profiler_write(run->profiler, run->cfg->run.dir, &written);
    tg_run_keep_books(run, run->core->done, status);
    if (!written) return;
    char text[512];
    snprintf(text, sizeof text, "profile of steps %s written: teng profile %s", run->cfg->profile.steps,
             run->cfg->run.dir);
    tg_run_tell_text(run, TG_RUN_NOTE, run->core->done, text);
}

teng_status tg_run_more_steps(tg_run *run, int64_t steps, tg_run_sink *sink, void *user)
{
    const int64_t until = run->core->done + steps;
    pace p = {.begin = tg_clock_seconds(), .first_step = run->core->done};
    p.last = p.begin;
    run->sink = sink;
    run->user = user;
    while (run->core->done < until)
        TG_TRY(run->cfg->data.sink ? run_sink(run, &p) : one_step(run, &p));
    return TENG_OK;
}

static teng_status loop(tg_run *run, pace *p)
{
    TG_TRY(look_up(run, p));
    for (bool first = true; !is_over(run); first = false) {
        TG_TRY(run->cfg->data.sink ? run_sink(run, p) : one_step(run, p));
        if (first && saves_ahead(run) && !save_is_due(run)) tg_saver_prepare(run->saver, run->core);
        report_saves(run, -1);
        const bool more = run->core->done < run->cfg->train.steps;
        if (eval_is_due(run) && more) {
            const double begin = tg_clock_seconds();
            TG_TRY(evaluate_and_tell(run));
            tg_profiler_host(run->profiler, TG_PROFILE_EVALUATION, begin);
            p->last = tg_clock_seconds();
        }
        if (save_is_due(run) && more && !run->stopped) {
            const double begin = tg_clock_seconds();
            save(run);
            tg_profiler_host(run->profiler, TG_PROFILE_CHECKPOINT, begin);
            report_saves(run, -1);
            p->last = tg_clock_seconds();
        }
        tg_profiler_end_step(run->profiler);
        if (tg_profiler_is_due(run->profiler)) write_profile(run);
    }
    return TENG_OK;
}

/* Of many ranks, out of the checkpoint that all have just written. */
static teng_status save_model_from(tg_run *run, const char *dir)
{
    char *root = tg_path_join(run->cfg->run.dir, "checkpoints"), *latest = NULL;
    tg_ckpt *ck = NULL;
    teng_status status = root ? tg_ckpt_latest(root, false, &latest) : TENG_MEMORY;
    if (status == TENG_OK)
        status = latest ? tg_ckpt_open(latest, false, &ck)
                        : tg_fail(TENG_STATE, "%s holds no checkpoint to make the model of", root);
    if (status == TENG_OK)
        status = tg_core_save_folder_from(run->core, ck, dir, run->tokenizer, run->cfg->run.dir);
    tg_ckpt_close(&ck);
    tg_free(latest);
    tg_free(root);
    return status;
}

/* <run.dir>/model, with the tokenizer that lies in the run folder. */
static teng_status save_model(tg_run *run)
{
    char *dir = tg_path_join(run->cfg->run.dir, "model");
    teng_status status = dir ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && tg_team_is_first(run->team))
        status = tg_team_is_many(run->team)
                     ? save_model_from(run, dir)
                     : tg_core_save_folder(run->core, dir, run->tokenizer, run->cfg->run.dir);
    tg_free(dir);
    return tg_team_agree(run->team, status);
}

static teng_status finish(tg_run *run)
{
    if (run->val && run->core->done >= run->cfg->train.steps) TG_TRY(evaluate_and_tell(run));
    TG_TRY(save_last(run));
    TG_TRY(save_model(run));
    if (run->stopped)
        return tg_fail(TENG_INTERRUPTED, "stopped at step %lld of %lld; everything is saved",
                       (long long)run->core->done, (long long)run->cfg->train.steps);
    tg_run_tell_text(run, TG_RUN_DONE, run->core->done, run->cfg->run.dir);
    return TENG_OK;
}

teng_status tg_run_train(tg_run *run, tg_run_sink *sink, void *user)
{
    run->sink = sink;
    run->user = user;
    tg_run_tell_text(run, TG_RUN_STARTED, run->core->done, run->cfg->run.dir);
    if (run->no_val) tg_run_tell_text(run, TG_RUN_NOTE, run->core->done, run->no_val);
    if (run->core->done >= run->cfg->train.steps)
        tg_run_tell_text(run, TG_RUN_NOTE, run->core->done,
                         "all steps were done before; train.steps=N with a larger N goes on");
    int64_t first, last;
    if (tg_config_profile_steps(run->cfg, &first, &last) && last <= run->core->done)
        tg_run_tell_text(run, TG_RUN_NOTE, run->core->done,
                         "profile.steps names steps that were done before: nothing is measured");
    pace p = {.begin = tg_clock_seconds(), .first_step = run->core->done};
    p.last = p.begin;
    tg_run_tell_forecast(run);
    teng_status status = tg_profiler_create(run->cfg, run->core, &run->profiler);
    if (status == TENG_OK) status = loop(run, &p);
    if (status == TENG_OK && tg_team_is_first(run->team))
        write_profile(run); /* when the run ended before the last of its steps */
    if (status == TENG_OK) {
        tg_run_tell_measured(run, p.in_steps, run->core->done - p.first_step);
        status = finish(run);
    } else {
        tg_error error;
        tg_error_take(&error);
        /* Only of a failure that all ranks share can they save together. */
        const bool together = !tg_team_is_many(run->team) || error.status == TENG_NUMERIC;
        if (together && run->cfg->checkpoint.on_error && run->core->done > 0 && save_last(run) != TENG_OK)
            teng_error_clear();
        status = tg_error_give(&error);
    }
    stop_requested = false; /* the next run of this process starts anew */
    return status;
}
