/* teng bench: asks the bench room for figures and prints them, as JSON or as a table. */
#include "cli/cli_console.h"
#include "cli/cli_table.h"

#include "base/fail.h"
#include "base/file.h"
#include "bench/bench.h"

#include <string.h>

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

static void show_operator(void *user, const char *op)
{
    (void)user;
    tg_cli_status_line(false, "%s", op);
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
        .progress = show_operator,
    };
    const teng_status status = tg_bench_op(&options, &figures);
    return answer(&args->base, args->json, status, figures);
}

int tg_cmd_bench_step(const tg_args_bench_step *args)
{
    tg_config *cfg = NULL;
    const int loaded = load(&args->base, &cfg);
    if (loaded != TG_EXIT_OK) return loaded;
    const tg_bench_step_options options = {
        .steps = args->steps, .warmup = args->warmup, .peak = !args->no_peak};
    tg_bench_step_figures f;
    json_t *figures = NULL;
    teng_status status = tg_bench_step_measure(cfg, &options, &f);
    if (status == TENG_OK) status = tg_bench_answer(tg_bench_step_json(cfg, &f), &figures);
    tg_config_destroy(&cfg);
    if (!args->json) json_object_del(figures, "first_step_at"); /* a clock that only programs share */
    return answer(&args->base, args->json, status, figures);
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
    const int loaded = load(&args->base, &cfg);
    if (loaded != TG_EXIT_OK) return loaded;
    const tg_bench_checkpoint_options options = {.dir = args->dir, .saves = args->saves};
    const teng_status status = tg_bench_checkpoint(cfg, &options, &figures);
    tg_config_destroy(&cfg);
    return answer(&args->base, args->json, status, figures);
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
