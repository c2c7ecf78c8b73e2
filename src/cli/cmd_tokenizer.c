/* teng tokenizer: train, encode, decode, info. Ids travel as raw 32-bit little-endian numbers. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- train ---- */

static void show_training(void *user, const tg_bpe_progress *p)
{
    (void)user;
    char done[32], total[32], words[32], seconds[32];
    tg_format_seconds(seconds, p->seconds);
    if (strcmp(p->phase, "count") == 0)
        tg_cli_status_line(false, "reading %s of %s, %s", tg_format_bytes(done, (double)p->done),
                           tg_format_bytes(total, (double)p->total), seconds);
    else
        tg_cli_status_line(false, "merging %" PRIu64 " of %" PRIu64 ", %s distinct words, %s", p->done,
                           p->total, tg_format_count(words, (double)p->words), seconds);
}

int tg_cmd_tokenizer_train(const tg_args_tokenizer_train *args)
{
    tg_cli_log_warnings(&args->base);
    tg_cli_set_threads(args->threads);
    tg_bpe_options options = {
        .vocab_size = (uint32_t)args->vocab_size,
        .pattern = args->pattern,
        .specials = args->special.items,
        .n_specials = (int)args->special.count,
        .threads = (int)args->threads,
        .min_frequency = args->min_frequency,
        .max_token_bytes = (uint32_t)args->max_token_bytes,
        .json_field = args->field,
        .progress = show_training,
    };
    tg_tokenizer *t = NULL;
    int status = TG_EXIT_OK;
    if (tg_bpe_train(&options, args->base.words, args->base.n_words, &t) != TENG_OK ||
        tg_tokenizer_save(t, args->out) != TENG_OK)
        status = tg_cli_failed(&args->base);
    else if (tg_tokenizer_vocab_size(t) < args->vocab_size)
        tg_cli_status_line(true,
                           "%s: %" PRIu32 " tokens; %" PRId64 " were asked for, but no pair is left to merge",
                           args->out, tg_tokenizer_vocab_size(t), args->vocab_size);
    else
        tg_cli_status_line(true, "%s: %" PRIu32 " tokens", args->out, tg_tokenizer_vocab_size(t));
    tg_tokenizer_destroy(&t);
    return status;
}

/* ---- encode ---- */

/* Ids as bytes, little-endian whatever the machine. */
static teng_status write_ids(const char *path, const tg_ids *ids)
{
    tg_writer *w = NULL;
    TG_TRY(tg_writer_open(path, &w));
    unsigned char block[4096];
    for (size_t i = 0; i < ids->len;) {
        size_t n = 0;
        for (; n < sizeof block && i < ids->len; i++)
            for (int shift = 0; shift < 32; shift += 8)
                block[n++] = (unsigned char)(ids->data[i] >> shift);
        teng_status status = tg_writer_put(w, block, n);
        if (status == TENG_OK) continue;
        tg_writer_abort(&w);
        return status;
    }
    return tg_writer_commit(&w);
}

static int print_ids(const tg_args_tokenizer_encode *args, const tg_ids *ids, size_t bytes)
{
    if (!args->json) {
        for (size_t i = 0; i < ids->len; i++)
            printf("%s%" PRIu32, i ? " " : "", ids->data[i]);
        putchar('\n');
        return TG_EXIT_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < ids->len; i++)
        json_array_append_new(list, json_integer(ids->data[i]));
    json_t *answer = json_pack("{s:I, s:I}", "tokens", (json_int_t)ids->len, "bytes", (json_int_t)bytes);
    if (args->out)
        json_decref(list);
    else if (json_object_set_new(answer, "ids", list) != 0) {
        json_decref(answer);
        answer = NULL;
    }
    return tg_cli_put_json(&args->base, answer);
}

int tg_cmd_tokenizer_encode(const tg_args_tokenizer_encode *args)
{
    tg_cli_log_warnings(&args->base);
    tg_cli_set_threads(args->threads);
    tg_tokenizer *t = NULL;
    char *text = NULL;
    size_t size = 0;
    tg_ids ids = {0};
    uint32_t flags =
        (args->parse_special ? TG_ENCODE_SPECIAL : 0u) | (args->template ? TG_ENCODE_TEMPLATE : 0u);
    int status = TG_EXIT_OK;
    if (tg_cli_open_tokenizer(args->tokenizer, &t) != TENG_OK ||
        tg_file_read(args->base.words[0], &text, &size) != TENG_OK ||
        tg_tokenizer_encode(t, text, size, flags, &ids) != TENG_OK ||
        (args->out && write_ids(args->out, &ids) != TENG_OK))
        status = tg_cli_failed(&args->base);
    else if (args->out && !args->json)
        tg_cli_status_line(true, "%s: %zu tokens of %zu bytes (%.3f bytes per token)", args->out, ids.len,
                           size, ids.len ? (double)size / (double)ids.len : 0.0);
    else
        status = print_ids(args, &ids, size);
    tg_vec_free(&ids);
    tg_free(text);
    tg_tokenizer_destroy(&t);
    return status;
}

/* ---- decode ---- */

static teng_status read_ids(const char *path, tg_ids *ids)
{
    char *raw = NULL;
    size_t size = 0;
    TG_TRY(tg_file_read(path, &raw, &size));
    teng_status status = TENG_OK;
    if (size % 4)
        status = tg_fail(
            TENG_FORMAT,
            "%s: %zu bytes are no whole number of 32-bit ids; it was cut short, or holds something else",
            path, size);
    else if (!tg_vec_reserve(ids, size / 4 + 1))
        status = TENG_MEMORY;
    const unsigned char *p = (const unsigned char *)raw;
    for (size_t i = 0; status == TENG_OK && i < size / 4; i++, p += 4)
        ids->data[ids->len++] = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    tg_free(raw);
    return status;
}

static teng_status decode(const tg_args_tokenizer_decode *args, const tg_tokenizer *t, const tg_ids *ids)
{
    tg_strbuf bytes = {0};
    teng_status status = tg_tokenizer_decode(t, ids->data, ids->len, args->skip_special, &bytes);
    if (status == TENG_OK && bytes.failed) status = tg_fail(TENG_MEMORY, "decoding: out of memory");
    if (status == TENG_OK && args->out) status = tg_file_write(args->out, tg_strbuf_str(&bytes), bytes.len);
    if (status == TENG_OK && !args->out) fwrite(tg_strbuf_str(&bytes), 1, bytes.len, stdout);
    tg_strbuf_free(&bytes);
    return status;
}

int tg_cmd_tokenizer_decode(const tg_args_tokenizer_decode *args)
{
    tg_cli_log_warnings(&args->base);
    tg_tokenizer *t = NULL;
    tg_ids ids = {0};
    int status = TG_EXIT_OK;
    if (tg_cli_open_tokenizer(args->tokenizer, &t) != TENG_OK ||
        read_ids(args->base.words[0], &ids) != TENG_OK)
        status = tg_cli_failed(&args->base);
    else if (decode(args, t, &ids) != TENG_OK) {
        tg_fail_context("%s", args->base.words[0]);
        status = tg_cli_failed(&args->base);
    }
    tg_vec_free(&ids);
    tg_tokenizer_destroy(&t);
    return status;
}

/* ---- info ---- */

int tg_cmd_tokenizer_info(const tg_args_tokenizer_info *args)
{
    tg_cli_log_warnings(&args->base);
    tg_tokenizer *t = NULL;
    if (tg_cli_open_tokenizer(args->tokenizer, &t) != TENG_OK) return tg_cli_failed(&args->base);
    json_t *info = tg_tokenizer_info_json(t);
    tg_tokenizer_destroy(&t);
    if (args->json || !info) return tg_cli_put_json(&args->base, info);
    const char *key;
    json_t *value;
    json_object_foreach(info, key, value)
    {
        char *text = json_is_string(value) ? tg_strdup(json_string_value(value)) : tg_json_text(value, 0);
        if (text) printf("%-20s %s\n", key, text);
        tg_free(text);
    }
    json_decref(info);
    return teng_error_status() == TENG_OK ? TG_EXIT_OK : tg_cli_failed(&args->base);
}
