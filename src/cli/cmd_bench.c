/* teng bench: asks the bench room for figures and prints them, as JSON or as a table. */
#include "cli/cli_console.h"
#include "cli/cli_ranks.h"
#include "cli/cli_table.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/signals.h"
#include "bench/bench.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- measurements that make files are ended between two steps, so that they can remove them ---- */
static atomic_int stopped_by;

static void on_signal(int number)
{
    if (stopped_by) tg_signals_default(number);
    stopped_by = number;
    tg_bench_stop();
}

static int exit_status(teng_status status, int otherwise)
{
    return status == TENG_INTERRUPTED && stopped_by ? TG_EXIT_SIGNAL + stopped_by : otherwise;
}

static int answer(const tg_cli_base *base, bool as_json, teng_status status, json_t *figures)
{
    if (status != TENG_OK) return tg_cli_failed(base);
    if (as_json) return tg_cli_put_json(base, figures);
    tg_strbuf text = {0};
    tg_cli_table(figures, &text);
    json_decref(figures);
    if (text.failed) tg_fail(TENG_MEMORY, "the figures as text: out of memory");
    return tg_cli_put_text(base, tg_strbuf_take(&text));
}

/* The first word, NULL for the default model. */
static const char *config_path(const tg_cli_base *base)
{
    return base->n_words && strcmp(base->words[0], "default") != 0 ? base->words[0] : NULL;
}

/* Returns the exit status; the message has been printed. */
static int load(const tg_cli_base *base, tg_config **cfg)
{
    bool misused;
    tg_cli_log_warnings(base);
    if (tg_bench_config(config_path(base), base->keys, base->n_keys, &misused, cfg) == TENG_OK)
        return TG_EXIT_OK;
    return misused ? tg_cli_misused(base->command, NULL) : tg_cli_failed(base);
}

int tg_cmd_bench_peak(const tg_args_bench_peak *args)
{
    json_t *figures = NULL;
    tg_cli_log_warnings(&args->base);
    const tg_bench_peak_options options = {.threads = args->threads, .seconds = (double)args->ms * 1e-3};
    const teng_status status = tg_bench_peak(&options, &figures);
    return answer(&args->base, args->json, status, figures);
}

static void show(void *user, const char *what)
{
    (void)user;
    tg_cli_status_line(false, "%s", what);
}

int tg_cmd_bench_op(const tg_args_bench_op *args)
{
    static const char *const every[] = {"f32", "bf16", "f16"};
    const bool all = strcmp(args->dtype, "all") == 0, choose = strcmp(args->dtype, "auto") == 0;
    json_t *figures = NULL;
    tg_cli_log_warnings(&args->base);
    const tg_bench_op_options options = {
        .ops = args->base.words,
        .n_ops = args->base.n_words,
        .dtypes = all ? every : &args->dtype,
        .n_dtypes = all      ? 3
                    : choose ? 0
                             : 1,
        .threads = (int)args->threads,
        .elements = args->elements,
        .seconds = (double)args->ms * 1e-3,
        .all = args->all,
        .progress = show,
    };
    const teng_status status = tg_bench_op(&options, &figures);
    return answer(&args->base, args->json, status, figures);
}

static int bench_step(const tg_args_bench_step *args, tg_team *team)
{
    const tg_cli_base *base = &args->base;
    tg_config *cfg = NULL;
    bool misused;
    const teng_status loaded = tg_bench_config(config_path(base), base->keys, base->n_keys, &misused, &cfg);
    const int agreed = tg_cli_ranks_agree(team, base->command, NULL, loaded, misused);
    if (agreed != TG_EXIT_OK) {
        tg_config_destroy(&cfg);
        return agreed;
    }
    const tg_bench_step_options options = {
        .steps = args->steps, .warmup = args->warmup, .peak = !args->no_peak};
    tg_bench_step_figures f;
    json_t *figures = NULL;
    teng_status status = tg_bench_step_measure(cfg, &options, &f);
    if (status == TENG_OK && tg_team_is_first(team))
        status = tg_bench_answer(tg_bench_step_json(cfg, &f), &figures);
    tg_config_destroy(&cfg);
    if (status != TENG_OK) return tg_cli_ranks_failed(team, base->command);
    if (!figures) return TG_EXIT_OK;
    if (!args->json) json_object_del(figures, "first_step_at"); /* a clock that only programs share */
    return answer(base, args->json, TENG_OK, figures);
}

int tg_cmd_bench_step(const tg_args_bench_step *args)
{
    tg_team *team;
    tg_cli_log_warnings(&args->base);
    if (tg_team_open(&team) != TENG_OK) return tg_cli_failed(&args->base);
    const int status = bench_step(args, team);
    tg_team_close(&team);
    return status;
}

int tg_cmd_bench_tokenizer(const tg_args_bench_tokenizer *args)
{
    json_t *figures = NULL;
    tg_cli_log_warnings(&args->base);
    tg_cli_set_threads(args->threads);
    const tg_bench_tokenizer_options options = {
        .tokenizer = args->tokenizer,
        .file = args->file,
        .seed = (uint64_t)args->seed,
        .drawn_bytes = args->drawn_bytes,
        .passes = args->passes,
        .train_vocab = (uint32_t)args->train_vocab,
    };
    const teng_status status = tg_bench_tokenizer(&options, &figures);
    return answer(&args->base, args->json, status, figures);
}

int tg_cmd_bench_checkpoint(const tg_args_bench_checkpoint *args)
{
    tg_config *cfg = NULL;
    json_t *figures = NULL;
    if (tg_signals_watch(on_signal) != TENG_OK) return tg_cli_failed(&args->base);
    const int loaded = load(&args->base, &cfg);
    if (loaded != TG_EXIT_OK) return loaded;
    const tg_bench_checkpoint_options options = {.dir = args->dir, .saves = args->saves};
    const teng_status status = tg_bench_checkpoint(cfg, &options, &figures);
    tg_config_destroy(&cfg);
    return exit_status(status, answer(&args->base, args->json, status, figures));
}

int tg_cmd_bench_startup(const tg_args_bench_startup *args)
{
    tg_config *cfg = NULL; /* wrong words are told here, not by the started program */
    json_t *figures = NULL;
    const int loaded = load(&args->base, &cfg);
    if (loaded != TG_EXIT_OK) return loaded;
    tg_config_destroy(&cfg);
    const tg_bench_startup_options options = {.config = config_path(&args->base),
                                              .words = args->base.keys,
                                              .n_words = args->base.n_keys,
                                              .runs = args->runs};
    const teng_status status = tg_bench_startup(&options, &figures);
    return answer(&args->base, args->json, status, figures);
}

int tg_cmd_bench_generate(const tg_args_bench_generate *args)
{
    const char *dir = config_path(&args->base);
    tg_config *cfg = NULL;
    json_t *figures = NULL;
    if (!dir || !tg_path_is_dir(dir)) {
        const int loaded = load(&args->base, &cfg);
        if (loaded != TG_EXIT_OK) return loaded;
        dir = NULL;
    } else if (args->base.n_keys > 0) {
        tg_fail(TENG_INVALID, "\"%.80s\": a model folder takes no key=value words", args->base.keys[0]);
        return tg_cli_misused(args->base.command, NULL);
    }
    const tg_bench_generate_options options = {.model_dir = dir,
                                               .cfg = cfg,
                                               .dtype = teng_dtype_parse(args->dtype),
                                               .prompt_tokens = args->prompt_tokens,
                                               .tokens = args->tokens,
                                               .passes = args->passes,
                                               .device = args->device,
                                               .threads = (int)args->threads};
    const teng_status status = tg_bench_generate(&options, &figures);
    tg_config_destroy(&cfg);
    return answer(&args->base, args->json, status, figures);
}

/* ---- levers ---- */
/* A line of the table; what is long stands below. */
static json_t *lever_row(const json_t *l)
{
    const json_t *a = json_object_get(l, "baseline"), *b = json_object_get(l, "with");
    json_t *row = json_object();
    const struct {
        const char *key;
        json_t *value;
    } columns[] = {
        {"lever", json_object_get(l, "name")},
        {"model", json_object_get(l, "model")},
        {"baseline_ms", json_object_get(a, "step_ms")},
        {"with_ms", json_object_get(b, "step_ms")},
        {"speedup", json_object_get(l, "speedup")},
        {"of_pairs", json_object_get(l, "speedup_pairs")},
        {"baseline_bytes", json_object_get(a, "memory_bytes")},
        {"with_bytes", json_object_get(b, "memory_bytes")},
        {"ratio", json_object_get(l, "memory_ratio")},
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        json_object_set_new(row, columns[i].key,
                            columns[i].value ? json_incref(columns[i].value) : json_null());
    return row;
}

static void put_claim(const json_t *l, tg_strbuf *out)
{
    const char *from = json_string_value(json_object_get(json_object_get(l, "baseline"), "words")),
               *to = json_string_value(json_object_get(json_object_get(l, "with"), "words"));
    tg_strbuf_printf(out, "%s", json_string_value(json_object_get(l, "name")));
    if (from && to) tg_strbuf_printf(out, " (%s -> %s)", from, to);
    tg_strbuf_printf(out, "\n  %s\n  %s\n", json_string_value(json_object_get(l, "article")),
                     json_string_value(json_object_get(l, "note")));
}

/* The table, below it each lever once with what is claimed of it, and the machine. */
static char *levers_text(json_t *figures)
{
    const json_t *levers = json_object_get(figures, "levers"), *l;
    json_t *rows = json_array();
    tg_strbuf text = {0};
    size_t i, k;
    json_array_foreach(levers, i, l) json_array_append_new(rows, lever_row(l));
    json_t *table = json_pack("{s:o}", "levers", rows);
    tg_cli_table(table, &text);
    json_decref(table);
    json_array_foreach(levers, i, l)
    {
        for (k = 0; k < i; k++)
            if (json_equal(json_object_get(json_array_get(levers, k), "name"), json_object_get(l, "name")))
                break;
        if (k == i) put_claim(l, &text);
    }
    json_object_del(figures, "levers");
    tg_cli_table(figures, &text);
    json_decref(figures);
    if (text.failed) tg_fail(TENG_MEMORY, "the figures as text: out of memory");
    return tg_strbuf_take(&text);
}

int tg_cmd_bench_levers(const tg_args_bench_levers *args)
{
    tg_config *cfg = NULL; /* wrong words are told before anything is measured */
    json_t *figures = NULL;
    if (tg_signals_watch(on_signal) != TENG_OK) return tg_cli_failed(&args->base);
    const int loaded = load(&args->base, &cfg);
    if (loaded != TG_EXIT_OK) return loaded;
    tg_config_destroy(&cfg);
    const char *tmp = getenv("TMPDIR");
    const tg_bench_levers_options options = {
        .config = args->base.n_words && !config_path(&args->base) ? "default" : config_path(&args->base),
        .words = args->base.keys,
        .n_words = args->base.n_keys,
        .only = args->only.items,
        .n_only = (int)args->only.count,
        .dir = args->dir     ? args->dir
               : tmp && *tmp ? tmp
                             : "/tmp",
        .steps = args->steps,
        .seconds = (double)args->ms * 1e-3,
        .progress = show,
    };
    const teng_status status = tg_bench_levers(&options, &figures);
    if (status != TENG_OK) return exit_status(status, tg_cli_failed(&args->base));
    if (args->json) return tg_cli_put_json(&args->base, figures);
    return tg_cli_put_text(&args->base, levers_text(figures));
}
