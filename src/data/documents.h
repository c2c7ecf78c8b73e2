/*
 * Documents, one after another, from text files, .jsonl files and folders of both. Text files are mapped, so
 * a document may be larger than memory; what a document points to is valid until the next call.
 */
#ifndef TG_DATA_DOCUMENTS_H
#define TG_DATA_DOCUMENTS_H

#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tg_document {
    const char *text;
    size_t len;
    size_t prompt; /* first bytes that are a prompt, not to be scored (.jsonl with prompt and completion) */
} tg_document;

typedef struct tg_documents tg_documents;
/* json_field NULL: "text"; separator NULL: one document a text file. Folders are searched at once. */
teng_status tg_documents_open(const char *const *inputs, int n, const char *json_field, const char *separator,
                              tg_documents **out);
void tg_documents_close(tg_documents **d);
/* *end: there is none left. Empty documents are given too. */
teng_status tg_documents_next(tg_documents *d, tg_document *out, bool *end);
void tg_documents_position(const tg_documents *d, uint64_t *done, uint64_t *total); /* bytes of the inputs */

#endif
