/*
 * The rows of config.def at run time, and a value on its way from YAML text to its field. Only for the files
 * of this room: others read the fields of tg_config.
 */
#ifndef TG_CONFIG_CONFIG_KEY_H
#define TG_CONFIG_CONFIG_KEY_H

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "config/config.h"

typedef enum tg_config_kind {
    TG_KIND_INT,
    TG_KIND_REAL,
    TG_KIND_BOOL,
    TG_KIND_STRING,
    TG_KIND_PATH,
    TG_KIND_SIZE,
    TG_KIND_STRINGS,
    TG_KIND_PATHS,
    TG_KIND_INTS,
    TG_KIND_OPT_INT,
    TG_KIND_OPT_REAL,
    TG_KIND_OPT_BOOL,
    TG_KIND_ENUM,
    TG_KIND_COUNT
} tg_config_kind;

typedef struct tg_config_key {
    const char *name; /* "train.steps" */
    tg_config_kind kind;
    size_t offset;     /* in tg_config */
    const char *def;   /* as in YAML */
    const char *range; /* "[1, inf)", "a|b", or "" */
    const char *help;
    const char *const *choices; /* ENUM: names by value, NULL at the end */
} tg_config_key;

typedef struct tg_config_section {
    const char *name; /* last part: "rope_scaling" */
    const char *help;
} tg_config_section;

extern const tg_config_key tg_config_keys[TG_CONFIG_KEY_COUNT];
extern const tg_config_section tg_config_sections[];
extern const size_t tg_config_section_count;

/* NULL when there is no such key. */
const tg_config_key *tg_config_key_find(const char *name);
size_t tg_config_key_index(const tg_config_key *key);
const char *tg_config_key_leaf(const tg_config_key *key); /* "steps" */
/* Whether some key's name starts with name and a dot. */
bool tg_config_is_section(const char *name);
/* The key a person may have meant, or NULL: the same last part in another section, else the nearest spelling.
 */
const char *tg_config_key_suggest(const char *name);

/* A range in words, "at least 1", into buf of TG_RANGE_TEXT bytes; "" when there is none. */
#define TG_RANGE_TEXT 256
char *tg_config_range_text(const tg_config_key *key, char *buf);
/* Whether x is in an interval range; always when the range is empty. */
bool tg_config_in_range(const char *range, double x);
/* "whole number", "list of paths", … */
const char *tg_config_kind_text(tg_config_kind kind);

/* Numbers as text, whatever the locale. False when text is no number of that kind, or too large for it. */
bool tg_config_read_int(const char *text, int64_t *out);
bool tg_config_read_real(const char *text, double *out);
bool tg_config_read_size(const char *text, uint64_t *out);
/* Shortest text that reads back to the same value; buf >= 32 bytes. */
char *tg_config_real_text(char *buf, double x);
char *tg_config_size_text(char *buf, uint64_t bytes);

/* A value as the YAML file has it. */
typedef struct tg_config_item {
    const char *text;
    bool plain; /* not quoted: may be null, true, a number */
    int line, column;
} tg_config_item;
typedef enum tg_config_shape { TG_SHAPE_SCALAR, TG_SHAPE_LIST, TG_SHAPE_MAP } tg_config_shape;
typedef struct tg_config_entry {
    const char *key; /* dotted */
    int key_line, key_column;
    int line, column; /* of the value */
    tg_config_shape shape;
    const tg_config_item *items; /* SCALAR: one; MAP: none, its members are entries of their own */
    size_t count;
} tg_config_entry;
typedef TG_VEC(tg_config_entry) tg_config_entries;

/* All entries of a YAML document, in order, allocated in arena (the vector itself: tg_vec_free). */
teng_status tg_config_read_yaml(tg_arena *arena, const char *name, const char *text, size_t len,
                                tg_config_entries *out);
/* One scalar or flow list; out->key stays as it is. */
teng_status tg_config_read_value(tg_arena *arena, const char *name, const char *text, tg_config_entry *out);

/* Checks entry against key and stores it in cfg. `file` as in tg_config_source; `dir` is the folder that
 * relative paths are tried from after the current one, or NULL. */
teng_status tg_config_store(tg_config *cfg, const tg_config_key *key, const tg_config_entry *entry,
                            const char *file, const char *dir);
bool tg_config_is_set(const tg_config *cfg, const tg_config_key *key);
/* One value as YAML (one line) or JSON; a value that is not set is null. */
void tg_config_value_yaml(const tg_config *cfg, const tg_config_key *key, tg_strbuf *out);
json_t *tg_config_value_json(const tg_config *cfg, const tg_config_key *key);

/* Rules of parallel.* (config_parallel.c). */
teng_status tg_config_check_parallel(const tg_config *cfg, int64_t ranks);
/* TENG_INVALID, "place: message"; the place is where `key` was given. */
TENG_PRINTF(3, 4) teng_status tg_config_refuse(const tg_config *cfg, const char *key, const char *fmt, ...);
/* A model field under its two names; GPT-2 has its own. */
typedef struct tg_config_named {
    const char *key;
    tg_config_opt_int value;
} tg_config_named;
tg_config_named tg_config_heads(const tg_config *cfg);

/* "file:line:column", "command line", "program" or "default". */
char *tg_config_place(char *buf, const char *file, int line, int column);

#endif
