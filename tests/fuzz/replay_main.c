/*
 * Replays a fuzz target without a fuzzer: every file of a corpus folder, then some thousand mutations of
 * each, the same on every run. A crash or a sanitizer report fails the test; an accepted or refused input is
 * the target's business. For open-ended search build with -DTENG_FUZZ=ON and clang, which links libFuzzer in
 * place of this file.
 *
 *   replay CORPUS_FOLDER [MUTATIONS_PER_FILE]
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    char *data;
    size_t size;
} input;

static uint64_t draws;

static uint64_t draw(uint64_t key, uint64_t bound)
{
    return tg_rng_below(key, draws++, bound);
}

/* One to four edits: flipped bits, numbers at the edge, cut ends, removed, repeated and foreign pieces. */
static size_t mutate(uint64_t key, uint8_t *b, size_t n, size_t room, const input *other)
{
    static const uint64_t edges[] = {0,      1,          0x7F,       0x80,       0xFF,      0x7FFF,
                                     0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1ull << 62, UINT64_MAX};
    for (uint64_t edits = 1 + draw(key, 4); edits; edits--) {
        size_t at = n ? (size_t)draw(key, n) : 0,
               len = n ? 1 + (size_t)draw(key, n - at < 64 ? n - at : 64) : 0;
        size_t width = (size_t)1 << draw(key, 4);
        switch (draw(key, 6)) {
        case 0:
            if (n) b[at] ^= (uint8_t)(1u << draw(key, 8));
            break;
        case 1:
            if (n >= at + width) memcpy(b + at, &edges[draw(key, sizeof edges / sizeof *edges)], width);
            break;
        case 2:
            n = at;
            break;
        case 3:
            memmove(b + at, b + at + len, n - at - len);
            n -= len;
            break;
        case 4:
            if (n + len <= room) {
                memmove(b + at + len, b + at, n - at);
                n += len;
            }
            break;
        default:
            if (other->size) {
                size_t from = (size_t)draw(key, other->size);
                len = other->size - from < 64 ? other->size - from : 64;
                if (at + len <= n) memcpy(b + at, other->data + from, len);
            }
        }
    }
    return n;
}

static int replay(const input *all, size_t count, uint64_t mutations)
{
    for (size_t i = 0; i < count; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)all[i].data, all[i].size);
    for (size_t i = 0; i < count; i++) {
        size_t room = all[i].size + 256;
        for (uint64_t m = 0; m < mutations; m++) {
            uint64_t key = tg_rng_key(m * count + i, "fuzz");
            uint8_t *b = tg_alloc(room);
            if (!b) return 1;
            draws = 0;
            memcpy(b, all[i].data, all[i].size);
            size_t n = mutate(key, b, all[i].size, room, &all[draw(key, count)]);
            uint8_t *exact = tg_realloc(b, n ? n : 1); /* so that a read past the end is seen */
            LLVMFuzzerTestOneInput(exact, n);
            tg_free(exact);
        }
    }
    printf("%zu files, %llu mutations each\n", count, (unsigned long long)mutations);
    return 0;
}

int main(int argc, char **argv)
{
    char **names;
    size_t count;
    if (argc < 2 || tg_list_dir(argv[1], &names, &count) != TENG_OK || count == 0) {
        fprintf(stderr, "no corpus: %s\n", argc < 2 ? "name a folder" : teng_error());
        return 1;
    }
    input *all = tg_calloc(count, sizeof *all);
    int rc = all ? 0 : 1;
    for (size_t i = 0; i < count && rc == 0; i++) {
        char *path = tg_path_join(argv[1], names[i]);
        if (!path || tg_file_read(path, &all[i].data, &all[i].size) != TENG_OK) {
            fprintf(stderr, "%s\n", teng_error());
            rc = 1;
        }
        tg_free(path);
    }
    if (rc == 0) rc = replay(all, count, argc > 2 ? strtoull(argv[2], NULL, 10) : 2000);
    for (size_t i = 0; i < count && all; i++)
        tg_free(all[i].data);
    tg_free(all);
    tg_names_free(names, count);
    return rc;
}
