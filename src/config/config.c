/*
 * A configuration from its sources: defaults, a chain of YAML files, overrides. Later sources win; inside one
 * source a key may be named once. The YAML is read in config_yaml.c, each value checked in config_value.c.
 */
#include "config/config.h"

#include "base/fail.h"
#include "base/file.h"
#include "config/config_key.h"

#include <string.h>

#define MAX_BASES 8 /* files in one chain of `base:` */

static const char command_line[] = "command line";
static const char program[] = "program";

static teng_status set_default(tg_config *cfg, const tg_config_key *key)
{
    tg_config_entry entry = {.key = key->name};
    teng_status s = tg_config_read_value(cfg->arena, key->name, key->def, &entry);
    return s == TENG_OK ? tg_config_store(cfg, key, &entry, NULL, NULL) : s;
}

tg_config *tg_config_create(void)
{
    tg_config *cfg = tg_calloc(1, sizeof *cfg);
    if (!cfg) return NULL;
    cfg->arena = tg_arena_create();
    teng_status s = cfg->arena ? TENG_OK : TENG_MEMORY;
    for (size_t i = 0; i < TG_CONFIG_KEY_COUNT && s == TENG_OK; i++)
        s = set_default(cfg, &tg_config_keys[i]);
    if (s != TENG_OK) tg_config_destroy(&cfg);
    return cfg;
}

void tg_config_destroy(tg_config **cfg)
{
    if (!*cfg) return;
    if ((*cfg)->arena) tg_arena_destroy(&(*cfg)->arena);
    tg_free(*cfg);
    *cfg = NULL;
}

static teng_status unknown_key(const char *place, const char *name)
{
    const char *near = tg_config_key_suggest(name);
    if (near)
        return tg_fail(TENG_INVALID, "%s: unknown key \"%.80s\"; did you mean \"%s\"?", place, name, near);
    return tg_fail(TENG_INVALID, "%s: unknown key \"%.80s\"; `teng config` lists every key", place, name);
}

/* The key of an entry, or NULL and *s: TENG_OK for a section that holds entries of its own, else the error.
 */
static const tg_config_key *entry_key(const tg_config_entry *e, const char *name, teng_status *s)
{
    char place[TG_CONFIG_SOURCE_TEXT];
    const tg_config_key *key = tg_config_key_find(e->key);
    *s = TENG_OK;
    bool nothing = e->shape == TG_SHAPE_SCALAR && e->items[0].plain && !*e->items[0].text;
    if (key && e->shape == TG_SHAPE_MAP) {
        *s =
            tg_fail(TENG_INVALID, "%s: %s: a map is given where one value is wanted (%s)",
                    tg_config_place(place, name, e->line, e->column), e->key, tg_config_kind_text(key->kind));
        return NULL;
    }
    if (key) return key;
    tg_config_place(place, name, e->key_line, e->key_column);
    if (!tg_config_is_section(e->key))
        *s = unknown_key(place, e->key);
    else if (e->shape != TG_SHAPE_MAP && !nothing)
        *s =
            tg_fail(TENG_INVALID, "%s: \"%s\" is a section: its keys go below it, one a line", place, e->key);
    return NULL;
}

/* The folder of a file: "configs/x.yaml" → "configs", "x.yaml" → ".". NULL when memory is out. */
static const char *folder_of(tg_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return tg_arena_strdup(arena, ".");
    return tg_arena_printf(arena, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static teng_status load(tg_config *cfg, const char *path, int depth);

/* Reads the file that `base:` names; nothing to do when there is none. */
static teng_status load_base(tg_config *cfg, const char *name, const char *dir,
                             const tg_config_entries *entries, int depth)
{
    const tg_config_entry *base = NULL;
    char place[TG_CONFIG_SOURCE_TEXT];
    for (size_t i = 0; i < entries->len; i++) {
        const tg_config_entry *e = &entries->data[i];
        if (strcmp(e->key, "base") != 0) continue;
        tg_config_place(place, name, e->line, e->column);
        if (base)
            return tg_fail(TENG_INVALID, "%s: base is given twice; the first is in line %d", place,
                           base->key_line);
        if (e->shape != TG_SHAPE_SCALAR || !*e->items[0].text)
            return tg_fail(TENG_INVALID, "%s: base: the path of one YAML file is wanted", place);
        base = e;
    }
    if (!base) return TENG_OK;
    if (depth >= MAX_BASES)
        return tg_fail(TENG_INVALID, "%s: base: a chain of more than %d files; does one name itself?", place,
                       MAX_BASES);
    const char *path = base->items[0].text;
    if (*path != '/' && strcmp(dir, ".") != 0) path = tg_arena_printf(cfg->arena, "%s/%s", dir, path);
    if (!path) return teng_error_status();
    teng_status s = load(cfg, path, depth + 1);
    if (s == TENG_IO) return tg_fail_context("%s: base", place);
    return s;
}

static teng_status apply(tg_config *cfg, const char *name, const tg_config_entries *entries, int depth)
{
    const char *dir = folder_of(cfg->arena, name);
    if (!dir) return teng_error_status();
    TG_TRY(load_base(cfg, name, dir, entries, depth));
    int first[TG_CONFIG_KEY_COUNT] = {0}; /* line that gave a key */
    for (size_t i = 0; i < entries->len; i++) {
        const tg_config_entry *e = &entries->data[i];
        if (strcmp(e->key, "base") == 0) continue;
        teng_status s;
        const tg_config_key *key = entry_key(e, name, &s);
        TG_TRY(s);
        if (!key) continue;
        int *line = &first[tg_config_key_index(key)];
        char place[TG_CONFIG_SOURCE_TEXT];
        if (*line)
            return tg_fail(TENG_INVALID, "%s: %s is given twice; the first is in line %d",
                           tg_config_place(place, name, e->key_line, e->key_column), key->name, *line);
        *line = e->key_line;
        TG_TRY(tg_config_store(cfg, key, e, name, dir));
    }
    return TENG_OK;
}

static teng_status parse(tg_config *cfg, const char *name, const char *text, size_t len, int depth)
{
    const char *kept = tg_arena_strdup(cfg->arena, name);
    if (!kept) return teng_error_status();
    tg_config_entries entries = {0};
    teng_status s = tg_config_read_yaml(cfg->arena, kept, text, len, &entries);
    if (s == TENG_OK) s = apply(cfg, kept, &entries, depth);
    tg_vec_free(&entries);
    return s;
}

static teng_status load(tg_config *cfg, const char *path, int depth)
{
    char *text;
    size_t size;
    TG_TRY(tg_file_read(path, &text, &size));
    teng_status s = parse(cfg, path, text, size, depth);
    tg_free(text);
    return s;
}

teng_status tg_config_load(tg_config *cfg, const char *path)
{
    return load(cfg, path, 1);
}

teng_status tg_config_parse(tg_config *cfg, const char *name, const char *text, size_t len)
{
    return parse(cfg, name, text, len, 1);
}

/* Shells have eaten the quotes already: a text or path is taken as it stands, unless it is quoted or a list.
 */
static bool is_taken_raw(const tg_config_key *key, const char *value)
{
    switch (key->kind) {
    case TG_KIND_STRING:
    case TG_KIND_PATH:
        return *value != '"' && *value != '\'';
    case TG_KIND_STRINGS:
    case TG_KIND_PATHS:
        return *value && *value != '"' && *value != '\'' && *value != '[';
    default:
        return false;
    }
}

static teng_status set(tg_config *cfg, const tg_config_key *key, const char *value, const char *file)
{
    tg_config_entry entry = {.key = key->name};
    bool can_unset = strcmp(key->def, "null") == 0;
    tg_config_item raw = {.text = value, .plain = can_unset && strcmp(value, "null") == 0};
    if (is_taken_raw(key, value)) {
        entry.items = &raw;
        entry.count = 1;
    } else {
        teng_status s = tg_config_read_value(cfg->arena, file, value, &entry);
        if (s != TENG_OK) return tg_fail_context("%s", key->name);
    }
    return tg_config_store(cfg, key, &entry, file, NULL);
}

teng_status tg_config_override(tg_config *cfg, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return tg_fail(TENG_INVALID,
                       "command line: \"%.80s\" is no override; write key=value, as in train.steps=20",
                       assignment);
    const char *name = tg_arena_printf(cfg->arena, "%.*s", (int)(equals - assignment), assignment);
    if (!name) return teng_error_status();
    const tg_config_key *key = tg_config_key_find(name);
    if (!key && tg_config_is_section(name))
        return tg_fail(TENG_INVALID,
                       "command line: \"%s\" is a section; name one of its keys, as %s.key=value", name,
                       name);
    if (!key) return unknown_key(command_line, name);
    if (cfg->sources[tg_config_key_index(key)].file == command_line)
        return tg_fail(TENG_INVALID, "command line: %s is given twice; remove \"%.80s\" or the one before it",
                       key->name, assignment);
    return set(cfg, key, equals + 1, command_line);
}

teng_status tg_config_set(tg_config *cfg, const char *name, const char *value)
{
    const tg_config_key *key = tg_config_key_find(name);
    return key ? set(cfg, key, value, program) : unknown_key(program, name);
}

bool tg_config_is_given(const tg_config *cfg, const char *name)
{
    const tg_config_key *key = tg_config_key_find(name);
    return key && cfg->sources[tg_config_key_index(key)].file;
}

char *tg_config_source_text(const tg_config *cfg, const char *name, char *buf)
{
    const tg_config_key *key = tg_config_key_find(name);
    if (!key) return strcpy(buf, "unknown key");
    const tg_config_source *s = &cfg->sources[tg_config_key_index(key)];
    return tg_config_place(buf, s->file, s->line, s->column);
}
