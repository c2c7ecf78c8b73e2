/*
 * The tokenizer commands of teng with nothing else linked, for interop/tokenizer_interop.py: the same
 * arguments as `teng tokenizer …`, so that the script drives either. Not installed, not a test by itself.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", teng_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *tokenizer = NULL, *out = NULL, *pattern = NULL;
    uint32_t vocab = 0;
    const char *files[64];
    int n = 0;
    if (argc < 3) return 2;
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--tokenizer") == 0)
            tokenizer = argv[++i];
        else if (strcmp(argv[i], "--out") == 0)
            out = argv[++i];
        else if (strcmp(argv[i], "--pattern") == 0)
            pattern = argv[++i];
        else if (strcmp(argv[i], "--vocab-size") == 0)
            vocab = (uint32_t)atoi(argv[++i]);
        else if (n < 64)
            files[n++] = argv[i];
    }
    tg_tokenizer *t = NULL;
    char *data = NULL;
    size_t len = 0;
    if (!out || !n) return 2;
    double start = tg_clock_seconds();
    if (strcmp(argv[2], "train") == 0) {
        tg_bpe_options o = {.vocab_size = vocab, .pattern = pattern};
        if (tg_bpe_train(&o, files, n, &t) || tg_tokenizer_save(t, out)) return fail();
    } else if (strcmp(argv[2], "tiktoken") == 0) {
        const char *special = "<|endoftext|>";
        if (tg_tokenizer_load_tiktoken(files[0], pattern, &special, 1, &t) || tg_tokenizer_save(t, out))
            return fail();
    } else if (tg_tokenizer_load(tokenizer, &t) || tg_file_read(files[0], &data, &len)) {
        return fail();
    } else if (strcmp(argv[2], "encode") == 0) {
        tg_ids ids = {0};
        start = tg_clock_seconds();
        if (tg_tokenizer_encode(t, data, len, TG_ENCODE_SPECIAL, &ids)) return fail();
        double took = tg_clock_seconds() - start;
        fprintf(stderr, "%.1f MB/s, %.3f bytes per token\n", (double)len / took / 1e6,
                (double)len / (double)ids.len);
        if (tg_file_write(out, ids.data, ids.len * sizeof *ids.data)) return fail();
        tg_vec_free(&ids);
    } else {
        tg_strbuf text = {0};
        if (tg_tokenizer_decode(t, (const uint32_t *)(void *)data, len / 4, false, &text) ||
            tg_file_write(out, tg_strbuf_str(&text), text.len))
            return fail();
        tg_strbuf_free(&text);
    }
    fprintf(stderr, "%s: %.2f s\n", argv[2], tg_clock_seconds() - start);
    tg_free(data);
    tg_tokenizer_destroy(&t);
    return 0;
}
