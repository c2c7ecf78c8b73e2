/* Fuzz target: any bytes as a configuration file. Either they are refused with a message, or what was read
 * prints as YAML that loads to the same values. Inputs that name a base file are left out: they would read
 * other files. */
#include "base/fail.h"
#include "config/config_key.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth) abort();
}

static char *values_of(const tg_config *cfg)
{
    tg_strbuf out = {0};
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        tg_config_value_yaml(cfg, &tg_config_keys[i], &out);
        tg_strbuf_putc(&out, '\n');
    }
    return tg_strbuf_take(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (memmem(data, size, "base", 4)) return 0;
    teng_error_clear();
    tg_config *cfg = tg_config_create();
    require(cfg != NULL);
    if (tg_config_parse(cfg, "fuzz.yaml", (const char *)data, size) == TENG_OK) {
        tg_config *again = tg_config_create();
        char *text = tg_config_yaml(cfg);
        require(text && again);
        require(tg_config_parse(again, "again.yaml", text, strlen(text)) == TENG_OK);
        char *before = values_of(cfg), *after = values_of(again);
        require(strcmp(before, after) == 0);
        tg_free(text);
        tg_free(before);
        tg_free(after);
        tg_config_destroy(&again);
        if (tg_config_check(cfg, 1) != TENG_OK) require(teng_error()[0] != '\0');
    } else {
        require(strncmp(teng_error(), "fuzz.yaml:", 10) == 0);
    }
    teng_error_clear();
    tg_config_destroy(&cfg);
    return 0;
}
