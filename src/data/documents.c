/*
 * Reading documents. One file is open at a time. Not here: compressed files and other containers (a pipe
 * through zcat and one of the formats below does that), and any look at what the text says.
 */
#include "data/documents.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/vec.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#define MAX_DEPTH 32 /* of folders: a link that points upwards ends here */

struct tg_documents {
    TG_VEC(char *) files;
    char *field, *separator;
    size_t file, at, line; /* the open file's index, offset, line */
    bool open, jsonl, fresh;
    tg_map map;
    tg_strbuf text; /* of a .jsonl line */
    uint64_t done, total;
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcasecmp(s + n - m, end) == 0;
}

static teng_status add_file(tg_documents *d, const char *path)
{
    int64_t size = tg_file_size(path);
    if (size < 0) return tg_fail(TENG_IO, "%s: no such file or folder", path);
    d->total += (uint64_t)size;
    char *copy = tg_strdup(path);
    if (copy && tg_vec_push(&d->files, copy)) return TENG_OK;
    tg_free(copy);
    return TENG_MEMORY;
}

static teng_status add_folder(tg_documents *d, const char *path, int depth)
{
    char **names;
    size_t count;
    if (depth > MAX_DEPTH)
        return tg_fail(TENG_INVALID, "%s: folders nested more than %d deep", path, MAX_DEPTH);
    TG_TRY(tg_list_dir(path, &names, &count));
    teng_status status = TENG_OK;
    for (size_t i = 0; i < count && status == TENG_OK; i++) {
        if (names[i][0] == '.') continue;
        char *full = tg_path_join(path, names[i]);
        if (!full)
            status = TENG_MEMORY;
        else if (tg_path_is_dir(full))
            status = add_folder(d, full, depth + 1);
        else if (ends_with(full, ".txt") || ends_with(full, ".md") || ends_with(full, ".jsonl"))
            status = add_file(d, full);
        tg_free(full);
    }
    tg_names_free(names, count);
    return status;
}

teng_status tg_documents_open(const char *const *inputs, int n, const char *json_field, const char *separator,
                              tg_documents **out)
{
    *out = NULL;
    tg_documents *d = tg_calloc(1, sizeof *d);
    if (!d) return TENG_MEMORY;
    teng_status status = TENG_OK;
    d->field = tg_strdup(json_field ? json_field : "text");
    d->separator = separator && *separator ? tg_strdup(separator) : NULL;
    if (!d->field || (separator && *separator && !d->separator)) status = TENG_MEMORY;
    for (int i = 0; i < n && status == TENG_OK; i++) {
        size_t before = d->files.len;
        status = tg_path_is_dir(inputs[i]) ? add_folder(d, inputs[i], 0) : add_file(d, inputs[i]);
        if (status == TENG_OK && d->files.len == before)
            status = tg_fail(TENG_INVALID, "%s: the folder holds no .txt, .md or .jsonl file", inputs[i]);
    }
    if (status == TENG_OK && d->files.len == 0) status = tg_fail(TENG_INVALID, "no input file was named");
    if (status != TENG_OK) tg_documents_close(&d);
    *out = d;
    return status;
}

void tg_documents_close(tg_documents **d)
{
    if (!*d) return;
    for (size_t i = 0; i < (*d)->files.len; i++)
        tg_free((*d)->files.data[i]);
    tg_vec_free(&(*d)->files);
    if ((*d)->open) tg_map_close(&(*d)->map);
    tg_strbuf_free(&(*d)->text);
    tg_free((*d)->field);
    tg_free((*d)->separator);
    tg_free(*d);
    *d = NULL;
}

static teng_status missing_field(const tg_documents *d, const char *path, json_t *root)
{
    const char *key, *first = NULL;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (!first && json_is_string(value)) first = key;
    }
    return tg_fail(TENG_FORMAT, "%s:%zu: the line has no string \"%s\"%s%s%s", path, d->line, d->field,
                   first ? "; name another field, such as \"" : "", first ? first : "", first ? "\"" : "");
}

/* One line of JSON: the text goes to d->text. */
static teng_status read_line(tg_documents *d, const char *path, const char *line, size_t len,
                             tg_document *out)
{
    json_error_t error;
    json_t *root = json_loadb(line, len, JSON_ALLOW_NUL, &error);
    if (!root)
        return tg_fail(TENG_FORMAT, "%s:%zu:%d: not valid JSON: %s", path, d->line, error.column, error.text);
    json_t *text = json_object_get(root, d->field), *prompt = json_object_get(root, "prompt"),
           *completion = json_object_get(root, "completion");
    tg_strbuf_clear(&d->text);
    out->prompt = 0;
    teng_status status = TENG_OK;
    if (json_is_string(text)) {
        tg_strbuf_add(&d->text, json_string_value(text), json_string_length(text));
    } else if (json_is_string(prompt) && json_is_string(completion)) {
        tg_strbuf_add(&d->text, json_string_value(prompt), json_string_length(prompt));
        out->prompt = d->text.len;
        tg_strbuf_add(&d->text, json_string_value(completion), json_string_length(completion));
    } else {
        status = missing_field(d, path, root);
    }
    json_decref(root);
    if (d->text.failed) status = tg_fail(TENG_MEMORY, "%s:%zu: no memory for the line", path, d->line);
    out->text = tg_strbuf_str(&d->text);
    out->len = d->text.len;
    return status;
}

/* The next document of the open file; *found false: the file is over. */
static teng_status next_in_file(tg_documents *d, tg_document *out, bool *found)
{
    const char *text = (const char *)d->map.data, *path = d->files.data[d->file];
    size_t left = d->map.size - d->at;
    *found = true;
    if (d->jsonl) {
        while (left > 0) {
            const char *line = text + d->at, *end = memchr(line, '\n', left);
            size_t len = end ? (size_t)(end - line) : left;
            d->at += len + (end != NULL);
            left = d->map.size - d->at;
            d->line++;
            if (len && strspn(line, " \t\r\n") < len) return read_line(d, path, line, len, out);
        }
        *found = false;
        return TENG_OK;
    }
    if (!d->fresh && left == 0) {
        *found = false;
        return TENG_OK;
    }
    d->fresh = false;
    const char *cut = d->separator ? memmem(text + d->at, left, d->separator, strlen(d->separator)) : NULL;
    *out = (tg_document){.text = text + d->at, .len = cut ? (size_t)(cut - text) - d->at : left};
    d->at += out->len + (cut ? strlen(d->separator) : 0);
    return TENG_OK;
}

teng_status tg_documents_next(tg_documents *d, tg_document *out, bool *end)
{
    for (;;) {
        if (!d->open) {
            *end = d->file == d->files.len;
            if (*end) return TENG_OK;
            TG_TRY(tg_map_open(d->files.data[d->file], &d->map));
            d->open = d->fresh = true;
            d->at = d->line = 0;
            d->jsonl = ends_with(d->files.data[d->file], ".jsonl");
        }
        bool found;
        *end = false;
        TG_TRY(next_in_file(d, out, &found));
        if (found) return TENG_OK;
        d->done += d->map.size;
        tg_map_close(&d->map);
        d->open = false;
        d->file++;
    }
}

void tg_documents_position(const tg_documents *d, uint64_t *done, uint64_t *total)
{
    *done = d->done + (d->open ? d->at : 0);
    *total = d->total;
}
