/* UTF-8 scanning. Plain loops with an eight-byte step over ASCII: it must cost little beside the regex. */
#include "data/utf8_scan.h"

#include <string.h>
#include <utf8proc.h>

int tg_utf8_char(const unsigned char *p, size_t n, uint32_t *cp)
{
    if (n == 0) return 0;
    uint32_t c = p[0], value;
    int len;
    if (c < 0x80) {
        value = c;
        len = 1;
    } else if (c >= 0xC2 && c <= 0xDF) {
        if (n < 2 || (p[1] & 0xC0) != 0x80) return 0;
        value = (c & 0x1F) << 6 | (p[1] & 0x3Fu);
        len = 2;
    } else if (c >= 0xE0 && c <= 0xEF) {
        if (n < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80) return 0;
        value = (c & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
        if (value < 0x800 || (value >= 0xD800 && value <= 0xDFFF)) return 0;
        len = 3;
    } else if (c >= 0xF0 && c <= 0xF4) {
        if (n < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 || (p[3] & 0xC0) != 0x80) return 0;
        value = (c & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
        if (value < 0x10000 || value > 0x10FFFF) return 0;
        len = 4;
    } else {
        return 0;
    }
    if (cp) *cp = value;
    return len;
}

size_t tg_utf8_prefix(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (i + 8 <= n && (memcpy(&eight, p + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int len = tg_utf8_char(p + i, n - i, NULL);
        if (len == 0) break;
        i += (size_t)len;
    }
    return i;
}

size_t tg_utf8_invalid(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && tg_utf8_char(p + i, n - i, NULL) == 0)
        i++;
    return i;
}

size_t tg_utf8_back(const unsigned char *p, size_t at)
{
    do
        at--;
    while (at > 0 && (p[at] & 0xC0) == 0x80);
    return at;
}

int tg_utf8_put(uint32_t cp, char out[4])
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
}

bool tg_utf8_is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return cp == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

bool tg_utf8_is_letter(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool tg_utf8_is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ND) || c == UTF8PROC_CATEGORY_PC;
}

uint32_t tg_byte_char(unsigned byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
    if (byte < 33) return 0x100 + byte;
    if (byte < 161) return 0x100 + 33 + (byte - 127);
    return 0x100 + 33 + 34;
}

int tg_char_byte(uint32_t cp)
{
    if (cp < 0x100) return tg_byte_char(cp) == cp ? (int)cp : -1;
    if (cp < 0x100 + 33) return (int)(cp - 0x100);
    if (cp < 0x100 + 67) return (int)(cp - 0x100 - 33 + 127);
    return cp == 0x100 + 67 ? 173 : -1;
}
