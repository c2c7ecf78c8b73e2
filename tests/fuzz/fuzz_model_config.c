/*
 * Fuzz target: any bytes as a config.json. Either it is refused with a message, or it is a model whose
 * complete configuration gives the same model again. Beside the bytes as they are, each key of an object in
 * turn gets values that configurations go wrong by: other types, huge and negative numbers, nothing.
 */
#include "base/json.h"
#include "base/mem.h"
#include "nn/cell.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth) abort();
}

/* Returns whether it is a model. */
static int try_config(const char *text)
{
    teng_error_clear();
    teng_cell *lm = teng_lm_create(text);
    if (!lm) {
        require(teng_error_status() != TENG_OK && *teng_error());
        return 0;
    }
    tg_lm_info info, again;
    require(tg_lm_get_info(lm, &info) == TENG_OK && info.params > 0 && info.vocab_size > 0 &&
            info.num_layers > 0);
    teng_cell *copy = teng_lm_create(teng_lm_config(lm));
    require(copy && tg_lm_get_info(copy, &again) == TENG_OK && again.params == info.params);
    require(strcmp(teng_lm_config(lm), teng_lm_config(copy)) == 0);
    teng_cell_destroy(&copy);
    teng_cell_destroy(&lm);
    return 1;
}

/* The object with one member replaced (text of a JSON value). */
static void try_value(const json_t *object, const char *key, const char *value)
{
    json_t *copy = json_deep_copy(object), *v = json_loads(value, JSON_DECODE_ANY, NULL);
    require(copy && v && json_object_set_new(copy, key, v) == 0);
    char *text = tg_json_text(copy, 0);
    require(text != NULL);
    try_config(text);
    tg_free(text);
    json_decref(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const values[] = {"0",
                                         "-1",
                                         "1",
                                         "3",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "4294967296",
                                         "1e308",
                                         "-0.5",
                                         "1e-308",
                                         "\"\"",
                                         "\"x\"",
                                         "true",
                                         "null",
                                         "[]",
                                         "{}",
                                         "[1,\"a\",{}]",
                                         "[[[]]]",
                                         "{\"rope_type\":\"yarn\",\"factor\":-2}",
                                         "{\"type\":5}",
                                         "{\"rope_type\":\"llama3\",\"factor\":1e300}"};
    char *text = tg_strndup((const char *)data, size);
    require(text != NULL);
    const int model = try_config(text);
    json_t *object = NULL;
    if (model && tg_json_parse("config", text, strlen(text), &object) == TENG_OK) {
        const char *key;
        json_t *member;
        json_object_foreach(object, key, member)
        {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++)
                try_value(object, key, values[v]);
        }
    }
    json_decref(object);
    tg_free(text);
    teng_error_clear();
    return 0;
}
