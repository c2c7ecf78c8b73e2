/*
 * JSON through jansson, with errors that name file, line and column, numbers that round-trip, and checked
 * access. json_t values are jansson's own: json_decref() them. Duplicate keys are refused.
 */
#ifndef TG_BASE_JSON_H
#define TG_BASE_JSON_H

#include "teng/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Parses a file or text; `name` is used in errors. *out is a new reference. */
teng_status tg_json_load_file(const char *path, json_t **out);
/* The same with every number as a real, for files of others that hold integers beyond 64 bits (transformers
 * writes 10^30 as "no limit"). */
teng_status tg_json_load_file_real(const char *path, json_t **out);
teng_status tg_json_parse(const char *name, const char *text, size_t len, json_t **out);
/* Text of a value, keys in insertion order; indent 0 gives one line. Heap string for tg_free, NULL on
 * failure. */
char *tg_json_text(const json_t *value, int indent);
/* Atomic write (temporary, fsync, rename). */
teng_status tg_json_save_file(const char *path, const json_t *value);

/* Checked members: `where` ("config.json") and the key are named in the error. Missing → *out keeps its value
 * unless required. A JSON null counts as missing. */
teng_status tg_json_get_int(const json_t *obj, const char *where, const char *key, bool required,
                            int64_t *out);
teng_status tg_json_get_real(const json_t *obj, const char *where, const char *key, bool required,
                             double *out);
teng_status tg_json_get_bool(const json_t *obj, const char *where, const char *key, bool required, bool *out);
/* Borrowed string. */
teng_status tg_json_get_string(const json_t *obj, const char *where, const char *key, bool required,
                               const char **out);
/* A float as the shortest decimal that reads back to the same float ("%.9g" at most). buf >= 32 bytes. NaN
 * and infinities, which JSON lacks, print as null. */
char *tg_json_float(char *buf, float value);

#endif
