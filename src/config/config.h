/*
 * The configuration of a run: YAML files, then overrides from the command line, into one checked struct.
 * Every key is a row of config.def; each value remembers where it came from, so that messages can say
 * file:line:column. This room checks what can be known from the text alone; what needs a model, a tokenizer
 * or a device is checked there.
 */
#ifndef TG_CONFIG_CONFIG_H
#define TG_CONFIG_CONFIG_H

#include "base/json.h"
#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lists and optional values. Strings and arrays belong to the tg_config. */
typedef struct tg_config_strings {
    const char *const *items;
    size_t count;
} tg_config_strings;
typedef struct tg_config_ints {
    const int64_t *items;
    size_t count;
} tg_config_ints;
typedef struct tg_config_opt_int {
    bool set;
    int64_t value;
} tg_config_opt_int;
typedef struct tg_config_opt_real {
    bool set;
    double value;
} tg_config_opt_real;
typedef struct tg_config_opt_bool {
    bool set;
    bool value;
} tg_config_opt_bool;

/* The C type behind each kind of config.def. */
#define TG_CTYPE_INT int64_t
#define TG_CTYPE_REAL double
#define TG_CTYPE_BOOL bool
#define TG_CTYPE_STRING const char *
#define TG_CTYPE_PATH const char *
#define TG_CTYPE_SIZE uint64_t
#define TG_CTYPE_STRINGS tg_config_strings
#define TG_CTYPE_PATHS tg_config_strings
#define TG_CTYPE_INTS tg_config_ints
#define TG_CTYPE_OPT_INT tg_config_opt_int
#define TG_CTYPE_OPT_REAL tg_config_opt_real
#define TG_CTYPE_OPT_BOOL tg_config_opt_bool

/* tg_cfg_mode { TG_CFG_MODE_GRAPH, TG_CFG_MODE_PYNATIVE }, and so on. */
#define TG_CHOICES(type) typedef enum type {
#define TG_CHOICE(constant, text) constant,
#define TG_CHOICES_END(type)                                                                                 \
    }                                                                                                        \
    type;
#include "config/config.def"

enum {
    TG_CONFIG_KEY_COUNT = 0
#define TG_KEY(section, field, kind, def, range, help) +1
#define TG_ENUM(section, field, type, def, help) +1
#include "config/config.def"
};

/* Where a value came from. file is NULL for a default (line 0), "command line" or "program" (line 0), or a
 * path. */
typedef struct tg_config_source {
    const char *file;
    int line, column; /* from 1 */
} tg_config_source;

struct tg_arena;
/* cfg->train.seq_len, cfg->model.hidden_size.set, cfg->model.rope_scaling.factor.value, … */
typedef struct tg_config {
#define TG_SECTION(name, help) struct {
#define TG_SECTION_END(name)                                                                                 \
    }                                                                                                        \
    name;
#define TG_KEY(section, field, kind, def, range, help) TG_CTYPE_##kind field;
#define TG_ENUM(section, field, type, def, help) type field;
#include "config/config.def"
    tg_config_source sources[TG_CONFIG_KEY_COUNT]; /* in the order of config.def */
    struct tg_arena *arena;                        /* owns every string and list */
} tg_config;

/* All defaults. NULL when memory is out. */
tg_config *tg_config_create(void);
void tg_config_destroy(tg_config **cfg);

/*
 * Reads a YAML file on top of what cfg holds. Keys may be nested maps or dotted ("train.seq_len: 64"). A
 * top-level `base: other.yaml`, relative to the file that says it, is read first and overridden. null unsets
 * a key whose default is unset. A relative path in a PATH or PATHS value is made absolute: from the folder of
 * the file when it exists there, else from the current directory when it exists there, else it is left as
 * written. On the command line only the current directory counts.
 */
teng_status tg_config_load(tg_config *cfg, const char *path);
/* The same from memory; `name` stands for the file in messages and decides the folder. */
teng_status tg_config_parse(tg_config *cfg, const char *name, const char *text, size_t len);
/* "train.steps=20", "data.files=[a.txt, b.txt]", "model.head_dim=null". Naming one key twice is an error. */
teng_status tg_config_override(tg_config *cfg, const char *assignment);
/* As one override, from a program: `value` as in YAML; a later call wins. */
teng_status tg_config_set(tg_config *cfg, const char *key, const char *value);

/* Refuses what cannot run together (heads, lengths, batch, schedule, ranks, …). ranks: how many processes
 * run, 0 when that is not known (any product of parallel.* is good). Touches no file. */
teng_status tg_config_check(const tg_config *cfg, int64_t ranks);
/* What a run reads is there: data.files names something, and every PATH and PATHS value exists (the message
 * names both places that were tried). Plans and measurements need no data. */
teng_status tg_config_check_files(const tg_config *cfg);

/* What the schedule's *_steps and *_fraction keys come to. */
int64_t tg_config_warmup_steps(const tg_config *cfg);
int64_t tg_config_decay_steps(const tg_config *cfg);
/* profile.steps as first and last step; false when it is unset or cannot be read. */
bool tg_config_profile_steps(const tg_config *cfg, int64_t *first, int64_t *last);

/* Sizes of the mesh: pipeline, replica, data, expert, context, tensor, from the slowest axis to the fastest.
 * parallel.data is replica x data: with parallel.shard_group groups of so many, else one group. ranks as
 * above, for parallel.mode=data_parallel. */
enum { TG_CONFIG_AXES = 6 };
void tg_config_axes(const tg_config *cfg, int64_t ranks, int64_t size[TG_CONFIG_AXES]);
/* parallel.fusion in bytes; 0: off, UINT64_MAX: auto. False when it cannot be read. */
bool tg_config_fusion(const tg_config *cfg, uint64_t *bytes);

/* Whether a key was given by file, command line or program. False for an unknown key. */
bool tg_config_is_given(const tg_config *cfg, const char *key);
/* "default", "command line", "program" or "configs/x.yaml:12:5" into buf; returns buf. */
#define TG_CONFIG_SOURCE_TEXT 512
char *tg_config_source_text(const tg_config *cfg, const char *key, char *buf);

/* Every set value as YAML with its source in a comment; loads to identical values. Heap string, NULL on
 * failure. */
char *tg_config_yaml(const tg_config *cfg);
/* {"train.steps": {"value": 20, "source": "command line"}, …}, unset values as null. New reference. */
json_t *tg_config_json(const tg_config *cfg);
/* The model.* keys that are set (without `from`) as a Hugging Face config.json object. New reference. */
json_t *tg_config_model_json(const tg_config *cfg);

typedef enum tg_config_format {
    TG_CONFIG_TEXT,
    TG_CONFIG_JSON,
    TG_CONFIG_MARKDOWN /* docs/configuration.md */
} tg_config_format;
/* Every key with type, default, range and help. `only` is NULL, a section ("train") or a key ("train.steps");
 * an unknown name is an error that suggests one. Heap string, NULL on failure. */
char *tg_config_help(tg_config_format format, const char *only);
/* Completions of a half-typed word of the command line, one a line: "train.s" gives "train.steps=" …,
 * "context.mode=" gives "context.mode=graph" …. Heap string, NULL when memory is out. */
char *tg_config_complete(const char *word);

#endif
