/*
 * Fuzz target: any bytes as a model.safetensors.index.json beside two shards and, one folder up, a third that
 * it must not reach. Either the index is refused with a message that names it, or its tensors are those of
 * the two shards, each found by its name.
 */
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char outer[] = "fuzz_index_XXXXXX";

static void require(int truth)
{
    if (!truth) abort();
}

static char *in_outer(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", outer, name);
    return path;
}

static void remove_outer(void)
{
    tg_remove_tree(outer);
}

static void put_shard(const char *name, const char *a, const char *b)
{
    static const float values[4] = {1, 2, 3, 4};
    const teng_desc desc = {TENG_F32, 1, {4}};
    const tg_ckpt_item items[] = {{.name = a, .desc = desc, .data = values},
                                  {.name = b, .desc = desc, .data = values}};
    require(tg_st_write(in_outer(name), items, 2, NULL, NULL) == TENG_OK);
}

static void make_folder(void)
{
    static int made;
    if (made++) return;
    require(mkdtemp(outer) != NULL);
    atexit(remove_outer);
    require(tg_mkdirs(in_outer("model")) == TENG_OK);
    put_shard("model/1.safetensors", "a", "b");
    put_shard("model/2.safetensors", "c", "d");
    put_shard("x.safetensors", "e", "f");
    require(symlink("model", in_outer("loop")) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_folder();
    const char *index = in_outer("model/model.safetensors.index.json");
    FILE *f = fopen(index, "wb");
    require(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
    tg_weights *w;
    teng_error_clear();
    if (tg_weights_open(in_outer("model"), &w) != TENG_OK) {
        require(w == NULL && (strstr(teng_error(), "index.json") || strstr(teng_error(), ".safetensors")));
    } else {
        require(tg_weights_count(w) % 2 == 0 && tg_weights_count(w) <= 4);
        for (size_t i = 0; i < tg_weights_count(w); i++) {
            const tg_st_tensor *t = tg_weights_at(w, i);
            require(tg_weights_find(w, t->name) == t && strlen(t->name) == 1 && *t->name >= 'a' &&
                    *t->name <= 'd');
        }
        tg_weights_close(&w);
    }
    teng_error_clear();
    return 0;
}
