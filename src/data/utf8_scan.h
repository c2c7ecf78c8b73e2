/*
 * UTF-8 by hand, and the byte ↔ character table of byte-level BPE. Strict: no overlong forms, no surrogates,
 * nothing above U+10FFFF. What it is not: Unicode properties and normal forms, which utf8proc gives.
 */
#ifndef TG_DATA_UTF8_SCAN_H
#define TG_DATA_UTF8_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1 to 4) of the valid character at p, 0 when there is none; its code point in *cp (may be NULL). */
int tg_utf8_char(const unsigned char *p, size_t n, uint32_t *cp);
/* Length of the longest valid prefix. */
size_t tg_utf8_prefix(const unsigned char *p, size_t n);
/* Length of the invalid bytes at the front: up to the next valid character. */
size_t tg_utf8_invalid(const unsigned char *p, size_t n);
/* Start of the character that ends before p[at]; at > 0; in valid UTF-8 only. */
size_t tg_utf8_back(const unsigned char *p, size_t at);
int tg_utf8_put(uint32_t cp, char out[4]); /* bytes written */

bool tg_utf8_is_space(uint32_t cp);  /* White_Space */
bool tg_utf8_is_word(uint32_t cp);   /* regex \w: letters, marks, digits, connectors */
bool tg_utf8_is_letter(uint32_t cp); /* category L* */

/* GPT-2's table: bytes 33–126, 161–172, 174–255 stand for themselves, the other 68 in order for U+0100, … */
uint32_t tg_byte_char(unsigned byte);
int tg_char_byte(uint32_t cp); /* -1: not in the table */

#endif
