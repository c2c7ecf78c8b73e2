/* teng eval and teng generate: a trained model at work. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "base/file.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static teng_status open_model(const tg_cli_base *base, const char *kind, int64_t threads, tg_device **dev,
                              tg_lm **lm)
{
    tg_cli_log_warnings(base);
    TG_TRY(tg_device_open(kind, (int)threads, dev));
    return tg_lm_open(base->words[0], *dev, lm);
}

/* ---- eval ---- */

static const char windowing[] =
    "texts joined, each with an end token behind it, cut into windows of window_len tokens that do not "
    "overlap; each token but "
    "the first is predicted once, from those before it in its window and the last of the window before";

static int report(const tg_args_eval *args, const tg_eval_result *r)
{
    if (args->json)
        return tg_cli_put_json(&args->base,
                               json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s}", "nats_per_token",
                                         r->nats_per_token, "bits_per_byte", r->bits_per_byte, "perplexity",
                                         r->perplexity, "tokens", (json_int_t)r->tokens, "bytes",
                                         (json_int_t)r->bytes, "windows", (json_int_t)r->windows,
                                         "window_len", (json_int_t)r->window_len, "windowing", windowing));
    printf("%.4f nats per token, %.4f bits per byte, perplexity %.2f\n", r->nats_per_token, r->bits_per_byte,
           r->perplexity);
    printf("%" PRId64 " tokens of %" PRId64 " bytes in %" PRId64 " windows of %" PRId64 "\n", r->tokens,
           r->bytes, r->windows, r->window_len);
    return TG_EXIT_OK;
}

int tg_cmd_eval(const tg_args_eval *args)
{
    tg_device *dev = NULL;
    tg_lm *lm = NULL;
    tg_eval_result result = {0};
    int status;
    if (open_model(&args->base, args->device, args->threads, &dev, &lm) != TENG_OK ||
        tg_lm_eval(lm, args->base.words + 1, (size_t)args->base.n_words - 1, args->seq_len, &result) !=
            TENG_OK)
        status = tg_cli_failed(&args->base);
    else
        status = report(args, &result);
    tg_lm_close(&lm);
    tg_device_close(&dev);
    return status;
}

/* ---- generate ---- */

typedef struct output {
    tg_strbuf text;
    bool collect; /* for JSON; else each piece is printed at once */
} output;

static bool take_text(void *user, const char *bytes, size_t n)
{
    output *out = user;
    if (out->collect) {
        tg_strbuf_add(&out->text, bytes, n);
        return !out->text.failed;
    }
    fwrite(bytes, 1, n, stdout);
    return fflush(stdout) == 0;
}

static int answer_json(const tg_args_generate *args, const char *prompt, size_t prompt_len, const output *out)
{
    if (out->text.failed) {
        tg_fail(TENG_MEMORY, "generated text: out of memory");
        return tg_cli_failed(&args->base);
    }
    return tg_cli_put_json(&args->base,
                           json_pack("{s:o, s:o, s:I}", "prompt", tg_cli_json_text(prompt, prompt_len),
                                     "text", tg_cli_json_text(tg_strbuf_str(&out->text), out->text.len),
                                     "seed", (json_int_t)args->seed));
}

int tg_cmd_generate(const tg_args_generate *args)
{
    if (args->prompt && args->prompt_file) {
        tg_fail(TENG_INVALID, "--prompt and --prompt-file exclude each other");
        return tg_cli_misused(args->base.command, NULL);
    }
    tg_sampling sampling = {
        .temperature = args->temperature,
        .top_k = args->top_k,
        .top_p = args->top_p,
        .seed = (uint64_t)args->seed,
        .max_tokens = args->max_tokens,
        .no_cache = args->no_cache,
    };
    char *from_file = NULL;
    const char *prompt = args->prompt ? args->prompt : "";
    size_t prompt_len = strlen(prompt);
    if (args->prompt_file) {
        if (tg_file_read(args->prompt_file, &from_file, &prompt_len) != TENG_OK)
            return tg_cli_failed(&args->base);
        prompt = from_file;
    }
    tg_device *dev = NULL;
    tg_lm *lm = NULL;
    output out = {.collect = args->json};
    int status = TG_EXIT_OK;
    if (open_model(&args->base, args->device, args->threads, &dev, &lm) != TENG_OK) {
        status = tg_cli_failed(&args->base);
    } else {
        if (!args->json) fwrite(prompt, 1, prompt_len, stdout);
        teng_status made = tg_lm_generate(lm, prompt, prompt_len, &sampling, take_text, &out);
        if (!args->json) putchar('\n');
        if (made != TENG_OK)
            status = tg_cli_failed(&args->base);
        else if (args->json)
            status = answer_json(args, prompt, prompt_len, &out);
    }
    tg_strbuf_free(&out.text);
    tg_lm_close(&lm);
    tg_device_close(&dev);
    tg_free(from_file);
    return status;
}
