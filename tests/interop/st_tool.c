/*
 * The C side of safetensors_interop.py:
 *   st_tool dump PATH            each tensor of a file, index or folder as a JSON line with its bytes in hex
 *   st_tool copy IN OUT          reads IN, writes the file OUT
 *   st_tool shard IN DIR BYTES   reads IN, writes DIR/model-….safetensors and the index
 *   st_tool check FILE…          "ok", or the reader's message, for each file
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "ckpt/safetensors.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static teng_status dump(const char *path)
{
    tg_weights *w;
    TG_TRY(tg_weights_open(path, &w));
    for (size_t i = 0; i < tg_weights_count(w); i++) {
        const tg_st_tensor *t = tg_weights_at(w, i);
        const unsigned char *bytes = t->data;
        size_t n = tg_desc_bytes(&t->desc);
        tg_strbuf hex = {0};
        json_t *shape = json_array();
        for (int k = 0; k < t->desc.ndim; k++)
            json_array_append_new(shape, json_integer((json_int_t)t->desc.dims[k]));
        for (size_t k = 0; k < n; k++)
            tg_strbuf_printf(&hex, "%02x", bytes[k]);
        json_t *line = json_pack("{s:s, s:s, s:o, s:s}", "name", t->name, "dtype",
                                 teng_dtype_name(t->desc.dtype), "shape", shape, "hex", tg_strbuf_str(&hex));
        char *text = tg_json_text(line, 0);
        puts(text);
        tg_free(text);
        json_decref(line);
        tg_strbuf_free(&hex);
    }
    tg_weights_close(&w);
    return TENG_OK;
}

/* max: shard size, or 0 for the single file `to`. */
static teng_status rewrite(const char *from, const char *to, uint64_t max)
{
    tg_weights *w;
    TG_TRY(tg_weights_open(from, &w));
    size_t n = tg_weights_count(w);
    tg_ckpt_item *items = tg_calloc(n + 1, sizeof *items);
    if (!items) return teng_error_status();
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_weights_at(w, i);
        items[i] = (tg_ckpt_item){.name = t->name, .desc = t->desc, .data = t->data};
    }
    json_t *metadata = json_pack("{s:s}", "format", "pt");
    teng_status status = max ? tg_st_write_sharded(to, "model", items, n, max, metadata)
                             : tg_st_write(to, items, n, metadata, NULL);
    json_decref(metadata);
    tg_free(items);
    tg_weights_close(&w);
    return status;
}

static teng_status check(char **paths, int n)
{
    for (int i = 0; i < n; i++) {
        tg_st_file *f;
        const char *verdict = tg_st_open(paths[i], &f) == TENG_OK ? "ok" : teng_error();
        for (; *verdict; verdict++) /* one line a file, whatever the file's names hold */
            putchar(*verdict < ' ' || *verdict > '~' ? '?' : *verdict);
        putchar('\n');
        tg_st_close(&f);
        teng_error_clear();
    }
    return TENG_OK;
}

int main(int argc, char **argv)
{
    teng_status status = TENG_INVALID;
    if (argc == 3 && strcmp(argv[1], "dump") == 0)
        status = dump(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "copy") == 0)
        status = rewrite(argv[2], argv[3], 0);
    else if (argc == 5 && strcmp(argv[1], "shard") == 0)
        status = rewrite(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    else if (argc >= 2 && strcmp(argv[1], "check") == 0)
        status = check(argv + 2, argc - 2);
    if (status != TENG_OK) fprintf(stderr, "st_tool: %s\n", teng_error());
    return status != TENG_OK;
}
