/* Growing byte string. Always NUL-terminated; a failed allocation sets .failed and later appends do nothing.
 */
#ifndef TG_BASE_STRBUF_H
#define TG_BASE_STRBUF_H

#include "teng/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct tg_strbuf {
    char *data; /* NULL while empty; use tg_strbuf_str */
    size_t len, cap;
    bool failed;
} tg_strbuf;

void tg_strbuf_free(tg_strbuf *b);
void tg_strbuf_clear(tg_strbuf *b); /* length 0, keeps the memory */
void tg_strbuf_add(tg_strbuf *b, const void *bytes, size_t n);
void tg_strbuf_puts(tg_strbuf *b, const char *s);
void tg_strbuf_putc(tg_strbuf *b, char c);
void tg_strbuf_printf(tg_strbuf *b, const char *fmt, ...) TENG_PRINTF(2, 3);
const char *tg_strbuf_str(const tg_strbuf *b); /* never NULL */
char *tg_strbuf_take(tg_strbuf *b);            /* heap string for tg_free, NULL if an append failed */

/* Numbers as people read them, into a caller's buffer of at least 32 bytes; returns buf. */
char *tg_format_bytes(char *buf, double bytes);     /* "1.50 GiB" */
char *tg_format_count(char *buf, double count);     /* "124.4 M" */
char *tg_format_seconds(char *buf, double seconds); /* "3 min 05 s" */

#endif
