/*
 * teng train and teng resume: a run with its console. Events of the run become lines and the log; signals
 * become a stop after the current step, the second one ends the process. Training itself is in train/.
 */
#include "cli/cli_config.h"
#include "cli/cli_console.h"
#include "cli/cli_ranks.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/signals.h"
#include "device/cpu_info.h"
#include "monitor/progress.h"
#include "train/team.h"
#include "train/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- signals ---- */

static atomic_int stopped_by;   /* number of the first signal */
static atomic_bool begun;       /* there is a run that can be stopped */
static atomic_bool others_tell; /* of many ranks the first alone says that it stops */

static void on_signal(int number)
{
    static const char notice[] =
        "\nStopping after this step and saving; once more ends at once, without saving.\n";
    if (!begun) tg_signals_default(number);
    if (stopped_by) _exit(TG_EXIT_SIGNAL + number);
    stopped_by = number;
    tg_run_stop();
    if (!others_tell) fputs(notice, stderr);
}

/* A reader that went away (teng train | head) ends no run, nor does a file that may not grow (ulimit -f). */
static void begin(const tg_team *team)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    others_tell = !tg_team_is_first(team);
    begun = true;
}

/* ---- the console ---- */

typedef struct console {
    const tg_cli_base *base;
    tg_team *team; /* rank 0 alone shows and logs */
    tg_progress *progress;
    bool quiet;
    tg_log_level level; /* least important message that is shown and logged */
    char *log_path;     /* of the run folder; NULL before there is one */
    tg_strbuf early;    /* log lines from before there was a run folder */
    int64_t tokens;     /* trained on so far, for the lines */
} console;

/* Until the run folder is there, lines are shown, and kept for its log. */
static void early_sink(void *user, tg_log_level level, const char *line)
{
    console *c = user;
    if (level < c->level || !tg_team_is_first(c->team)) return;
    const char *label = level == TG_LOG_DEBUG  ? "debug: "
                        : level == TG_LOG_INFO ? ""
                        : level == TG_LOG_WARN ? "warning: "
                                               : "error: ";
    char iso[32];
    tg_strbuf_printf(&c->early, "%s %s%s\n", tg_clock_iso(iso, tg_clock_unix()), label, line);
    if (level >= TG_LOG_WARN)
        fprintf(stderr, "teng %s: %s%s\n", c->base->command->name, label, line);
    else if (level == TG_LOG_INFO && !c->quiet)
        printf("%s\n", line);
}

static void level_sink(void *user, tg_log_level level, const char *line)
{
    console *c = user;
    if (level >= c->level) tg_progress_sink(c->progress, level, line);
}

/* Text to the log alone. A log that cannot be written stops no run. */
static void append_log(const console *c, const char *text)
{
    FILE *log = *text ? fopen(c->log_path, "ae") : NULL;
    if (!log) return;
    fputs(text, log);
    fclose(log);
}

/* The line on the console and DIR/log.txt, which gets the early lines first. */
static teng_status open_console(console *c, const tg_config *cfg)
{
    c->log_path = tg_path_join(cfg->run.dir, "log.txt");
    if (!c->log_path) return TENG_MEMORY;
    append_log(c, tg_strbuf_str(&c->early));
    tg_progress_options options = {
        .out = stdout,
        .style = c->quiet ? TG_PROGRESS_QUIET : TG_PROGRESS_AUTO,
        .log_path = c->log_path,
        .steps = cfg->train.steps,
    };
    teng_status status = tg_progress_open(&options, &c->progress);
    if (status == TENG_OK) tg_log_set_sink(level_sink, c);
    return status;
}

/* ", bf16 O2"; nothing for f32. */
static const char *precision_text(const tg_config *cfg)
{
    static const char *const texts[][2] = {
        {"", ""},
        {", bf16 O1", ", fp16 O1"},
        {", bf16 O2", ", fp16 O2"},
        {", bf16 O3", ", fp16 O3"},
        {", bf16 auto", ", fp16 auto"},
    };
    return texts[cfg->precision.level][cfg->precision.dtype == TG_CFG_DTYPE16_FP16];
}

/* "data 2 x tensor 4": the axes of more than one rank, the slowest first; with a rank its place on each:
 * "data 1, tensor 3". */
static void axes_text(const tg_mesh *mesh, int rank, tg_strbuf *out)
{
    int coord[TG_AXES];
    const size_t begin = out->len;
    if (rank >= 0) tg_mesh_coords(mesh, rank, coord);
    for (int a = 0; a < TG_AXES; a++)
        if (mesh->size[a] > 1)
            tg_strbuf_printf(out, "%s%s %d",
                             out->len == begin ? ""
                             : rank < 0        ? " x "
                                               : ", ",
                             tg_axis_name((tg_axis)a), rank < 0 ? mesh->size[a] : coord[a]);
}

/* The mesh, and where each rank runs and stands on it; of very many the first. */
static void say_ranks(console *c, const tg_config *cfg)
{
    enum { SHOWN = 16 };
    char *all = NULL;
    const tg_team *team = c->team;
    tg_strbuf text = {0};
    tg_mesh mesh;
    if (!tg_team_is_many(team) || tg_team_mesh(cfg, team->ranks, &mesh) != TENG_OK) return;
    if (tg_team_gather_text(c->team, tg_comm_binding(team->comm), &all) != TENG_OK) {
        teng_error_clear();
        return;
    }
    if (c->progress) {
        axes_text(&mesh, -1, &text);
        const int shards = tg_mesh_group(&mesh, 0, TG_SHARD_AXES, NULL, NULL);
        if (cfg->parallel.zero)
            tg_strbuf_printf(&text, "; ZeRO %lld%s", (long long)cfg->parallel.zero,
                             shards > 1 ? "" : ", with nothing to share out");
        if (cfg->parallel.sequence) tg_strbuf_puts(&text, "; sequence along tensor");
        tg_progress_say(c->progress, "ranks    %d: %s (the last axis counts fastest)", team->ranks,
                        tg_strbuf_str(&text));
        const char *at = all;
        for (int r = 0; r < team->ranks && r < SHOWN; r++, at += strlen(at) + 1) {
            text.len = 0;
            axes_text(&mesh, r, &text);
            tg_progress_say(c->progress, "         %s; %s", at, tg_strbuf_str(&text));
        }
        if (team->ranks > SHOWN) tg_progress_say(c->progress, "         … %d more", team->ranks - SHOWN);
    }
    tg_strbuf_free(&text);
    tg_free(all);
}

static void banner(console *c, const tg_run *run)
{
    const tg_config *cfg = tg_run_config(run);
    const tg_lm_info *model = tg_run_lm_info(run);
    const tg_device_info *dev = tg_run_device_info(run);
    char params[32], tokens[32], machine[TG_CPU_LINE];
    long long batch = cfg->train.batch_size, len = cfg->train.seq_len;
    tg_progress_say(c->progress, "model    %s, %s parameters, %lld layers of %lld, vocabulary %lld",
                    model->family, tg_format_count(params, (double)model->params),
                    (long long)model->num_layers, (long long)model->hidden_size,
                    (long long)model->vocab_size);
    tg_progress_say(c->progress, "step     %lld sequences of %lld: %s tokens", batch, len,
                    tg_format_count(tokens, (double)batch * (double)len));
    tg_progress_say(c->progress, "device   %s, %s mode%s",
                    strcmp(dev->kind, "cpu") == 0 ? tg_cpu_line(machine) : dev->name,
                    cfg->context.mode == TG_CFG_MODE_GRAPH ? "graph" : "pynative", precision_text(cfg));
    say_ranks(c, cfg);
    if (tg_run_step(run) > 0)
        tg_progress_say(c->progress, "run      %s, from step %lld to %lld", cfg->run.dir,
                        (long long)tg_run_step(run), (long long)cfg->train.steps);
    else
        tg_progress_say(c->progress, "run      %s, %lld steps", cfg->run.dir, (long long)cfg->train.steps);
}

static void on_step(console *c, const tg_run_event *e)
{
    c->tokens += e->tokens;
    tg_metrics_step step = {
        .step = e->step,
        .loss = (float)e->loss,
        .lr = (float)e->lr,
        .grad_norm = (float)e->grad_norm,
        .tokens = c->tokens,
        .tokens_per_s = e->tokens_per_s,
        .mfu = e->mfu,
        .step_ms = e->step_ms,
    };
    tg_progress_step(c->progress, &step);
}

static void on_event(void *user, const tg_run_event *e)
{
    console *c = user;
    long long step = e->step;
    switch (e->kind) {
    case TG_RUN_STEP:
        on_step(c, e);
        break;
    case TG_RUN_EVAL: {
        tg_metrics_eval eval = {
            .step = e->step, .val_loss = (float)e->val_loss, .bits_per_byte = e->bits_per_byte};
        tg_progress_eval(c->progress, &eval);
        break;
    }
    case TG_RUN_SAVED:
        tg_progress_say(c->progress, "step %lld  saved %s", step, e->text ? e->text : "");
        break;
    case TG_RUN_SAVE_FAILED:
        tg_warn("step %lld: could not save: %s; training goes on and the next checkpoint tries again", step,
                e->text ? e->text : "unknown reason");
        break;
    case TG_RUN_SAMPLE:
        tg_progress_say(c->progress, "step %lld  sample: %s", step, e->text ? e->text : "");
        break;
    case TG_RUN_NOTE:
        tg_progress_say(c->progress, "%s", e->text ? e->text : "");
        break;
    case TG_RUN_STARTED:
    case TG_RUN_DONE:
        break;
    }
}

static void console_free(console *c)
{
    tg_log_set_sink(NULL, NULL);
    tg_progress_close(&c->progress);
    tg_strbuf_free(&c->early);
    tg_free(c->log_path);
}

/* ---- the commands ---- */

static int failed(const console *c)
{
    return tg_cli_ranks_failed(c->team, c->base->command);
}

/* The signal that stopped the run, on whichever rank it came. */
static int common_signal(const console *c)
{
    int32_t number = stopped_by;
    if (tg_team_max(c->team, &number, 1) != TENG_OK) teng_error_clear();
    return number;
}

/* Other ranks than the first: the same run, told by nobody. */
static int train_quietly(console *c, tg_run *run)
{
    say_ranks(c, tg_run_config(run));
    const teng_status status = tg_run_train(run, NULL, NULL);
    if (status != TENG_OK && status != TENG_INTERRUPTED) return failed(c);
    const int number = common_signal(c);
    return status == TENG_INTERRUPTED && number ? TG_EXIT_SIGNAL + number : TG_EXIT_OK;
}

/* Trains an opened run; owns the printing from here on. */
static int train(console *c, tg_run *run)
{
    const tg_config *cfg = tg_run_config(run);
    c->level = (tg_log_level)cfg->context.log_level;
    if (!tg_team_is_first(c->team)) return train_quietly(c, run);
    if (open_console(c, cfg) != TENG_OK) return tg_cli_failed(c->base);
    banner(c, run);
    teng_status status = tg_run_train(run, on_event, c);
    long long step = tg_run_step(run);
    int code = TG_EXIT_OK;
    bool over = step >= cfg->train.steps;
    if (status == TENG_OK && over) {
        tg_progress_say(c->progress, "Done after %lld steps. The model is in %s/model:\n  teng generate %s",
                        step, cfg->run.dir, cfg->run.dir);
    } else if (status == TENG_INTERRUPTED || status == TENG_OK) { /* a signal, or train.max_seconds */
        char *line =
            tg_asprintf("Stopped after step %lld of %lld; everything is saved. To go on:\n  teng resume %s",
                        step, (long long)cfg->train.steps, cfg->run.dir);
        tg_progress_say(c->progress, "%s", line ? line : "Stopped; everything is saved.");
        if (c->quiet && line) fprintf(stderr, "%s\n", line);
        tg_free(line);
        code = status == TENG_INTERRUPTED ? TG_EXIT_SIGNAL : TG_EXIT_OK;
    }
    tg_log_set_sink(NULL, NULL);
    tg_progress_close(&c->progress);
    if (status == TENG_OK || status == TENG_INTERRUPTED) {
        const int number = common_signal(c);
        return code == TG_EXIT_SIGNAL && number ? code + number : TG_EXIT_OK;
    }
    char iso[32], *line = tg_asprintf("%s error: %s\n", tg_clock_iso(iso, tg_clock_unix()), teng_error());
    append_log(c, line ? line : "");
    tg_free(line);
    return failed(c);
}

/* Joins the ranks of this job before anything can fail on one of them alone. */
static int join(console *c)
{
    tg_log_set_sink(early_sink, c);
    if (tg_signals_watch(on_signal) == TENG_OK && tg_team_open(&c->team) == TENG_OK) return TG_EXIT_OK;
    return tg_cli_failed(c->base);
}

static int end(console *c, tg_run *run, tg_config *cfg, int status)
{
    tg_log_set_sink(NULL, NULL);
    tg_run_close(&run);
    tg_config_destroy(&cfg);
    console_free(c);
    tg_team_close(&c->team);
    return status;
}

/* The configuration of every rank, or of none. */
static int load(console *c, tg_config **cfg)
{
    const tg_cli_base *base = c->base;
    bool misused = false;
    *cfg = tg_config_create();
    teng_status status = *cfg ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) status = tg_config_load(*cfg, base->words[0]);
    if (status == TENG_OK) status = tg_cli_override(*cfg, base, &misused);
    if (status == TENG_OK) status = tg_config_check(*cfg, c->team->ranks);
    if (status == TENG_OK) status = tg_config_check_files(*cfg);
    return tg_cli_ranks_agree(c->team, base->command, NULL, status, misused);
}

int tg_cmd_train(const tg_args_train *args)
{
    console c = {.base = &args->base, .quiet = args->quiet, .level = TG_LOG_INFO};
    tg_config *cfg = NULL;
    tg_run *run = NULL;
    int status = join(&c);
    if (status == TG_EXIT_OK) status = load(&c, &cfg);
    if (status == TG_EXIT_OK) {
        begin(c.team);
        c.level = (tg_log_level)cfg->context.log_level;
        status = tg_run_create(cfg, &run) == TENG_OK ? train(&c, run) : failed(&c);
    }
    return end(&c, run, cfg, status);
}

int tg_cmd_resume(const tg_args_resume *args)
{
    console c = {.base = &args->base, .quiet = args->quiet, .level = TG_LOG_INFO};
    tg_run *run = NULL;
    int status = join(&c);
    if (status == TG_EXIT_OK) status = tg_cli_ranks_agree(c.team, args->base.command, NULL, TENG_OK, false);
    if (status == TG_EXIT_OK) {
        begin(c.team);
        const teng_status opened =
            tg_run_resume(args->base.words[0], args->base.keys, (size_t)args->base.n_keys, &run);
        status = opened == TENG_OK ? train(&c, run) : failed(&c);
    }
    return end(&c, run, NULL, status);
}
