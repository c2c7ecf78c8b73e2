/*
 * A whole configuration as YAML (which loads again to identical values), as JSON, and its model section as a
 * Hugging Face config.json. One walk over the table each; how one value looks is in config_value.c.
 */
#include "config/config_key.h"

#include "base/fail.h"

#include <string.h>

/* Opens the sections of name ("model.rope_scaling.factor") that `open` ("model") does not have yet; returns
 * the depth of the key. */
static int open_sections(tg_strbuf *out, const char *open, const char *name)
{
    int depth = 0;
    const char *part = name;
    for (const char *dot; (dot = strchr(part, '.')); part = dot + 1, depth++) {
        size_t n = (size_t)(dot - name) + 1;
        if (strncmp(open, name, n) == 0) continue;
        tg_strbuf_printf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - part), part);
    }
    return depth;
}

char *tg_config_yaml(const tg_config *cfg)
{
    tg_strbuf out = {0};
    const char *open = "";
    tg_strbuf_puts(&out,
                   "# Every value of the run, with where it came from. Keys that are not shown are unset.\n");
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        char place[TG_CONFIG_SOURCE_TEXT];
        if (!tg_config_is_set(cfg, key)) continue;
        int depth = open_sections(&out, open, key->name);
        open = key->name;
        tg_strbuf_printf(&out, "%*s%s: ", 2 * depth, "", tg_config_key_leaf(key));
        tg_config_value_yaml(cfg, key, &out);
        tg_strbuf_printf(&out, "  # %s\n", tg_config_source_text(cfg, key->name, place));
    }
    return tg_strbuf_take(&out);
}

json_t *tg_config_json(const tg_config *cfg)
{
    json_t *all = json_object();
    int failed = 0;
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        char place[TG_CONFIG_SOURCE_TEXT];
        json_t *one = json_object();
        failed |= json_object_set_new(one, "value", tg_config_value_json(cfg, key));
        failed |=
            json_object_set_new(one, "source", json_string(tg_config_source_text(cfg, key->name, place)));
        failed |= json_object_set_new(all, key->name, one);
    }
    if (!failed) return all;
    json_decref(all);
    tg_fail(TENG_MEMORY, "configuration as JSON: out of memory");
    return NULL;
}

json_t *tg_config_model_json(const tg_config *cfg)
{
    static const char model[] = "model.";
    json_t *object = json_object();
    int failed = !object;
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT && !failed; i++) {
        const tg_config_key *key = &tg_config_keys[i];
        if (strncmp(key->name, model, sizeof model - 1) != 0 || !tg_config_is_set(cfg, key)) continue;
        const char *name = key->name + sizeof model - 1;
        const char *dot = strchr(name, '.');
        if (strcmp(name, "from") == 0) continue;
        json_t *into = object;
        if (dot) {
            char group[64];
            snprintf(group, sizeof group, "%.*s", (int)(dot - name), name);
            into = json_object_get(object, group);
            if (!into) {
                failed |= json_object_set_new(object, group, json_object());
                into = json_object_get(object, group);
            }
            name = dot + 1;
        }
        failed |= json_object_set_new(into, name, tg_config_value_json(cfg, key));
    }
    if (!failed) return object;
    json_decref(object);
    tg_fail(TENG_MEMORY, "model configuration as JSON: out of memory");
    return NULL;
}
