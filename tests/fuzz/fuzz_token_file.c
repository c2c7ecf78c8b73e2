/*
 * Token files from anywhere, in each format: opened or refused, and what is opened can be read to the end.
 * The first byte of the input says what follows: 'm': u32 length of the .idx, the .idx, the .bin; else one
 * file.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "data/token_file.h"
#include "data/token_format.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const tg_token_file *f)
{
    const tg_token_info *info = tg_token_file_info(f);
    int32_t tokens[64];
    uint8_t score[64];
    uint64_t begin, end, bytes, sum = 0;
    for (uint64_t i = 0; i < info->tokens; i += 64) {
        uint64_t n = info->tokens - i < 64 ? info->tokens - i : 64;
        if (tg_token_file_read(f, i, n, tokens) != TENG_OK) break;
        tg_token_file_score(f, i, n, score);
    }
    for (uint64_t d = 0; d < info->documents; d++) {
        tg_token_file_document(f, d, &begin, &end, &bytes);
        if (begin > end || end > info->tokens) __builtin_trap();
        sum += end - begin;
    }
    if (info->documents && sum != info->tokens) __builtin_trap();
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) __builtin_trap();
}

static void write_with_checksums(const char *path, const uint8_t *data, size_t size)
{
    tg_tok_header h;
    uint8_t *copy = tg_alloc(size);
    memcpy(copy, data, size);
    memcpy(&h, copy, sizeof h);
    if (h.blocks_at <= size && h.table_at <= h.blocks_at) {
        h.table_hash = tg_hash64(copy + h.table_at, h.blocks_at - h.table_at, 0);
        h.blocks_hash = tg_hash64(copy + h.blocks_at, size - h.blocks_at, 0);
    }
    h.header_hash = tg_hash64(&h, offsetof(tg_tok_header, header_hash), 0);
    memcpy(copy, &h, sizeof h);
    write_file(path, copy, size);
    tg_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char bin[64], idx[64];
    snprintf(bin, sizeof bin, "/dev/shm/teng-fuzz-%d.bin", (int)getpid());
    snprintf(idx, sizeof idx, "/dev/shm/teng-fuzz-%d.idx", (int)getpid());
    uint32_t n = 0;
    if (size >= 5 && data[0] == 'm') {
        memcpy(&n, data + 1, 4);
        if (n > size - 5) n = (uint32_t)(size - 5);
        write_file(idx, data + 5, n);
        write_file(bin, data + 5 + n, size - 5 - n);
    } else if (size > sizeof(tg_tok_header) && data[0] == 't') {
        write_with_checksums(bin, data + 1, size - 1);
    } else {
        write_file(bin, data + (size > 0), size - (size > 0));
    }
    for (int verify = 0; verify < 2; verify++) {
        tg_token_open o = {.vocab_limit = verify ? 1000 : 0, .eos = verify ? 7 : -1, .verify = verify};
        tg_token_file *f = NULL;
        teng_error_clear();
        if (tg_token_file_open(bin, &o, &f) == TENG_OK)
            read_all(f);
        else if (f || !*teng_error())
            __builtin_trap();
        tg_token_file_close(&f);
    }
    unlink(bin);
    unlink(idx);
    return 0;
}
