/*
 * Shapes: sizes, equality, axes, and the text form "f32[4,128]" that dumps and graph files share.
 * Descriptions handed in are trusted (dims >= 0, product fits); text is not.
 */
#include "tensor/desc.h"

#include "base/fail.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

int64_t tg_desc_numel(const teng_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n *= d->dims[i];
    return n;
}

size_t tg_desc_bytes(const teng_desc *d)
{
    return (size_t)tg_desc_numel(d) * (size_t)teng_dtype_size(d->dtype);
}

bool tg_desc_equal(const teng_desc *a, const teng_desc *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

teng_desc tg_desc_make(teng_dtype dtype, int ndim, const int64_t *dims)
{
    teng_desc d = {.dtype = dtype, .ndim = ndim, .dims = {0}};
    for (int i = 0; i < ndim && i < TENG_MAX_DIMS; i++)
        d.dims[i] = dims[i];
    return d;
}

int tg_desc_axis(const teng_desc *d, int64_t axis)
{
    if (axis < 0) axis += d->ndim;
    return axis >= 0 && axis < d->ndim ? (int)axis : -1;
}

char *tg_desc_text(char *buf, const teng_desc *d)
{
    size_t at = (size_t)snprintf(buf, TG_DESC_TEXT, "%s[", teng_dtype_name(d->dtype));
    for (int i = 0; i < d->ndim; i++)
        at += (size_t)snprintf(buf + at, TG_DESC_TEXT - at, i ? ",%lld" : "%lld", (long long)d->dims[i]);
    snprintf(buf + at, TG_DESC_TEXT - at, "]");
    return buf;
}

char *teng_desc_text(char *buf, const teng_desc *desc)
{
    return tg_desc_text(buf, desc);
}

char *tg_desc_index_text(char *buf, const teng_desc *d, int64_t flat)
{
    int64_t at[TENG_MAX_DIMS] = {0};
    for (int i = d->ndim - 1; i >= 0; i--) {
        at[i] = flat % d->dims[i];
        flat /= d->dims[i];
    }
    int len = snprintf(buf, TG_INDEX_TEXT, "[");
    for (int i = 0; i < d->ndim; i++)
        len += snprintf(buf + len, TG_INDEX_TEXT - (size_t)len, i ? ",%lld" : "%lld", (long long)at[i]);
    snprintf(buf + len, TG_INDEX_TEXT - (size_t)len, "]");
    return buf;
}

/* One dimension at *at; false when there is no digit or the number does not fit. */
static bool parse_dim(const char **at, int64_t *out)
{
    const char *p = *at;
    int64_t v = 0;
    if (!isdigit((unsigned char)*p)) return false;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_add_overflow(v, (int64_t)(*p - '0'), &v))
            return false;
    *at = p;
    *out = v;
    return true;
}

teng_status tg_desc_parse(const char *text, teng_desc *out, const char **end)
{
    const char *open = strchr(text, '[');
    char name[16];
    size_t len = open ? (size_t)(open - text) : 0;
    if (len == 0 || len >= sizeof name)
        return tg_fail(TENG_FORMAT, "\"%.40s\" is not a tensor type: expected a form like f32[4,128]", text);
    memcpy(name, text, len);
    name[len] = '\0';
    teng_desc d = {.dtype = teng_dtype_parse(name), .ndim = 0, .dims = {0}};
    if (d.dtype == TENG_DTYPE_COUNT)
        return tg_fail(TENG_FORMAT,
                       "\"%.40s\": unknown element type \"%s\" (known: f32, f16, bf16, i32, ...)", text,
                       name);
    const char *p = open + 1;
    int64_t bytes = teng_dtype_size(d.dtype);
    while (*p != ']') {
        if (d.ndim == TENG_MAX_DIMS)
            return tg_fail(TENG_FORMAT, "\"%.60s\": more than %d dimensions", text, TENG_MAX_DIMS);
        int64_t *dim = &d.dims[d.ndim];
        if (!parse_dim(&p, dim) || (*p != ',' && *p != ']') || (*p == ',' && p[1] == ']'))
            return tg_fail(TENG_FORMAT,
                           "\"%.60s\": dimension %d is not a whole number followed by ',' or ']'", text,
                           d.ndim);
        if (__builtin_mul_overflow(bytes, *dim ? *dim : 1, &bytes))
            return tg_fail(TENG_FORMAT, "\"%.60s\": the tensor has more than 2^63 bytes", text);
        d.ndim++;
        if (*p == ',') p++;
    }
    p++;
    if (end)
        *end = p;
    else if (*p)
        return tg_fail(TENG_FORMAT, "\"%.60s\": unexpected \"%.20s\" after the tensor type", text, p);
    *out = d;
    return TENG_OK;
}
