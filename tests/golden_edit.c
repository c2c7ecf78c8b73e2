/* Edited copies of reference cases; no test is in here. */
#include "golden_edit.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

char golden_dir[] = "/tmp/teng-golden-XXXXXX";

int golden_scratch(void **state)
{
    (void)state;
    return mkdtemp(golden_dir) ? 0 : -1;
}

int golden_remove_scratch(void **state)
{
    (void)state;
    return tg_remove_tree(golden_dir) == TENG_OK ? 0 : -1;
}

char *golden_path(const char *family, const char *file)
{
    char *path = tg_asprintf(TG_TEST_DATA "/golden/%s/%s", family, file);
    assert_non_null(path);
    return path;
}

tg_ckpt_item *golden_item(tg_ckpt_item *items, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(items[i].name, name) == 0) return &items[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

void *golden_values(tg_ckpt_item *items, size_t n, const char *name)
{
    return (void *)(uintptr_t)golden_item(items, n, name)->data;
}

void golden_same(tg_ckpt_item *items, size_t *n)
{
    (void)items;
    (void)n;
}

char *golden_edited(const char *from, const char *to, golden_edit *change)
{
    tg_st_file *file;
    assert_int_equal(tg_st_open(from, &file), TENG_OK);
    size_t n = tg_st_count(file);
    const size_t all = n;
    tg_ckpt_item *items = tg_calloc(n + 1, sizeof *items);
    void **copies = tg_calloc(n, sizeof *copies);
    for (size_t i = 0; i < n; i++) {
        const tg_st_tensor *t = tg_st_at(file, i);
        copies[i] = tg_alloc(tg_desc_bytes(&t->desc));
        memcpy(copies[i], t->data, tg_desc_bytes(&t->desc));
        items[i] = (tg_ckpt_item){.name = t->name, .desc = t->desc, .data = copies[i]};
    }
    change(items, &n);
    char *path = tg_path_join(golden_dir, to);
    assert_int_equal(tg_st_write(path, items, n, NULL, NULL), TENG_OK);
    for (size_t i = 0; i < all; i++)
        tg_free(copies[i]);
    tg_free(copies);
    tg_free(items);
    tg_st_close(&file);
    return path;
}

char *golden_edited_model(const char *family, golden_edit *change, const char *old, const char *now)
{
    char *weights = golden_path(family, "model.safetensors"), *config = golden_path(family, "config.json");
    char *to = tg_path_join(golden_dir, "config.json"), *text;
    size_t len;
    tg_free(golden_edited(weights, "model.safetensors", change));
    assert_int_equal(tg_file_read(config, &text, &len), TENG_OK);
    if (old) {
        char *at = strstr(text, old);
        assert_non_null(at);
        assert_true(strlen(now) <= strlen(old));
        memset(at, ' ', strlen(old));
        memcpy(at, now, strlen(now));
    }
    assert_int_equal(tg_file_write(to, text, len), TENG_OK);
    tg_free(text);
    tg_free(to);
    tg_free(config);
    tg_free(weights);
    return tg_strdup(golden_dir);
}
