/* teng data prepare: texts → token files, with a line that shows how far it is. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "base/file.h"
#include "data/corpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double ratio(uint64_t bytes, uint64_t tokens)
{
    return tokens ? (double)bytes / (double)tokens : 0;
}

static void show(void *user, const tg_corpus_progress *p)
{
    (void)user;
    char done[32], total[32], tokens[32], rate[32];
    tg_cli_status_line(false, "%s of %s, %" PRIu64 " documents, %s tokens, %.3f bytes per token, %s/s",
                       tg_format_bytes(done, (double)p->input_bytes),
                       tg_format_bytes(total, (double)p->input_total), p->documents,
                       tg_format_count(tokens, (double)p->tokens), ratio(p->text_bytes, p->tokens),
                       tg_format_bytes(rate, p->seconds > 0 ? (double)p->text_bytes / p->seconds : 0));
}

static json_t *part_json(const char *path, const tg_token_info *info)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:i}", "file", path, "documents", (json_int_t)info->documents,
                     "tokens", (json_int_t)info->tokens, "bytes", (json_int_t)info->text_bytes,
                     "bytes_per_token", ratio(info->text_bytes, info->tokens), "token_bytes",
                     info->token_bytes);
}

static void print_part(const char *path, const tg_token_info *info)
{
    printf("%s: %" PRIu64 " documents, %" PRIu64 " tokens of %d bytes, %.3f bytes per token\n", path,
           info->documents, info->tokens, info->token_bytes, ratio(info->text_bytes, info->tokens));
}

static int report(const tg_args_data_prepare *args, const char *train, const char *val,
                  const tg_corpus_result *r)
{
    if (args->json) {
        json_t *answer =
            json_pack("{s:s, s:o, s:I, s:f}", "format", args->format, "train", part_json(train, &r->train),
                      "empty_documents", (json_int_t)r->empty, "seconds", r->seconds);
        if (answer && val && json_object_set_new(answer, "val", part_json(val, &r->val)) != 0) {
            json_decref(answer);
            answer = NULL;
        }
        return tg_cli_put_json(&args->base, answer);
    }
    print_part(train, &r->train);
    if (val) print_part(val, &r->val);
    if (r->empty) printf("%" PRIu64 " documents without text were left out\n", r->empty);
    if (val)
        printf("To train on them: data.files=%s data.val_files=%s\n", train, val);
    else
        printf("To train on them: data.files=%s\n", train);
    return TG_EXIT_OK;
}

int tg_cmd_data_prepare(const tg_args_data_prepare *args)
{
    tg_cli_log_warnings(&args->base);
    tg_cli_set_threads(args->threads);
    tg_token_format format = tg_token_format_parse(args->format);
    const char *ending = format == TG_TOKENS_TENG ? "tok" : "bin";
    bool held_back = args->val_fraction > 0;
    tg_corpus_options options = {
        .json_field = args->field,
        .separator = args->separator,
        .add_eos = !args->no_eos,
        .parse_special = args->parse_special,
        .val_fraction = args->val_fraction,
        .seed = (uint64_t)args->seed,
    };
    tg_tokenizer *t = NULL;
    tg_corpus_result result = {0};
    char *train = tg_asprintf("%s/train.%s", args->out, ending);
    char *val = held_back ? tg_asprintf("%s/val.%s", args->out, ending) : NULL;
    int status;
    if (train) tg_cli_clean_up(train);
    if (val) tg_cli_clean_up(val);
    if (!train || (held_back && !val) || tg_cli_open_tokenizer(args->tokenizer, &t) != TENG_OK ||
        tg_mkdirs(args->out) != TENG_OK ||
        tg_corpus_prepare(t, &options, args->base.words, args->base.n_words, format, train, val, show, NULL,
                          &result) != TENG_OK) {
        status = tg_cli_failed(&args->base);
    } else {
        tg_cli_status_line(true, "%" PRIu64 " documents in %.1f s",
                           result.train.documents + result.val.documents, result.seconds);
        status = report(args, train, val, &result);
    }
    tg_tokenizer_destroy(&t);
    tg_free(train);
    tg_free(val);
    return status;
}
