/* Attributes of any operator through its field table: print, parse, compare. Reals print so that they read
 * back. */
#include "graph/op_table.h"

#include "base/fail.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const void *field(const void *attr, const teng_attr_field *f)
{
    return (const char *)attr + f->offset;
}

static void print_int(const teng_attr_field *f, int64_t v, tg_strbuf *out)
{
    int64_t n = 0;
    while (f->choices && f->choices[n])
        n++;
    if (v >= 0 && v < n)
        tg_strbuf_puts(out, f->choices[v]);
    else
        tg_strbuf_printf(out, "%lld", (long long)v);
}

void tg_attr_print(const teng_op_spec *op, const void *attr, tg_strbuf *out)
{
    tg_strbuf_putc(out, '{');
    for (const teng_attr_field *f = op->attrs; attr && f && f->name; f++) {
        tg_strbuf_printf(out, "%s%s=", f == op->attrs ? "" : ", ", f->name);
        if (f->type == TENG_ATTR_INT) {
            print_int(f, *(const int64_t *)field(attr, f), out);
        } else if (f->type == TENG_ATTR_REAL) {
            char text[40];
            const double v = *(const double *)field(attr, f);
            for (int digits = 6; digits <= 17; digits++) {
                snprintf(text, sizeof text, "%.*g", digits, v);
                if (strtod(text, NULL) == v || isnan(v)) break;
            }
            tg_strbuf_puts(out, text);
        } else {
            const teng_dims *d = field(attr, f);
            tg_strbuf_putc(out, '[');
            for (int64_t i = 0; i < d->n; i++)
                tg_strbuf_printf(out, "%s%lld", i ? "," : "", (long long)d->v[i]);
            tg_strbuf_putc(out, ']');
        }
    }
    tg_strbuf_putc(out, '}');
}

bool tg_attr_equal(const teng_op_spec *op, const void *a, const void *b)
{
    for (const teng_attr_field *f = op->attrs; op->attr_size && f->name; f++) {
        const void *x = field(a, f), *y = field(b, f);
        if (f->type != TENG_ATTR_DIMS) {
            if (memcmp(x, y, sizeof(int64_t)) != 0) return false;
            continue;
        }
        const teng_dims *d = x, *e = y;
        if (d->n != e->n || memcmp(d->v, e->v, sizeof d->v[0] * (size_t)d->n) != 0) return false;
    }
    return true;
}

static void skip(const char **p)
{
    while (**p == ' ')
        ++*p;
}

static bool eat(const char **p, char c)
{
    skip(p);
    if (**p != c) return false;
    ++*p;
    return true;
}

/* Texts are not trusted: numbers stay small enough for rules to add and multiply them. */
#define INT_LIMIT (1LL << 50)

static bool parse_integer(const char **p, int64_t *out)
{
    char *end;
    errno = 0;
    const long long v = strtoll(*p, &end, 10);
    if (end == *p || errno || v > INT_LIMIT || v < -INT_LIMIT) return false;
    *p = end;
    *out = v;
    return true;
}

static bool parse_dims(const char **p, teng_dims *d)
{
    *d = (teng_dims){0};
    int64_t product = 1;
    if (!eat(p, '[')) return false;
    if (eat(p, ']')) return true;
    do {
        if (d->n == TENG_MAX_DIMS || !parse_integer(p, &d->v[d->n])) return false;
        const int64_t v = d->v[d->n++];
        if (__builtin_mul_overflow(product, v ? v : 1, &product) || product > INT_LIMIT ||
            product < -INT_LIMIT)
            return false;
    } while (eat(p, ','));
    return eat(p, ']');
}

static bool parse_value(const teng_attr_field *f, const char **p, void *attr)
{
    char *at = (char *)attr + f->offset;
    skip(p);
    if (f->type == TENG_ATTR_DIMS) return parse_dims(p, (teng_dims *)(void *)at);
    if (f->type == TENG_ATTR_REAL) {
        char *end;
        *(double *)(void *)at = strtod(*p, &end);
        if (end == *p) return false;
        *p = end;
        return true;
    }
    int64_t n_choices = 0;
    for (int64_t i = 0; f->choices && f->choices[i]; i++) {
        n_choices++;
        const size_t n = strlen(f->choices[i]);
        if (strncmp(*p, f->choices[i], n) == 0 && !isalnum((unsigned char)(*p)[n]) && (*p)[n] != '_' &&
            (*p)[n] != '+') {
            *(int64_t *)(void *)at = i;
            *p += n;
            return true;
        }
    }
    int64_t *number = (int64_t *)(void *)at;
    return parse_integer(p, number) && (!f->choices || (*number >= 0 && *number < n_choices));
}

teng_status tg_attr_parse(const teng_op_spec *op, const char *text, const char **end, void *attr)
{
    const char *p = text;
    if (op->attr_size) memset(attr, 0, op->attr_size);
    if (!eat(&p, '{')) return tg_fail(TENG_FORMAT, "%s: attributes must start with '{'", op->name);
    while (!eat(&p, '}')) {
        skip(&p);
        size_t n = 0;
        while (isalnum((unsigned char)p[n]) || p[n] == '_')
            n++;
        const teng_attr_field *f = op->attrs;
        while (f && f->name && (strlen(f->name) != n || strncmp(f->name, p, n) != 0))
            f++;
        if (!f || !f->name || !n)
            return tg_fail(TENG_FORMAT, "%s has no attribute \"%.*s\"", op->name, n > 64 ? 64 : (int)n, p);
        p += n;
        if (!eat(&p, '=') || !parse_value(f, &p, attr))
            return tg_fail(TENG_FORMAT, "%s: the value of %s cannot be read", op->name, f->name);
        if (!eat(&p, ',')) {
            if (!eat(&p, '}'))
                return tg_fail(TENG_FORMAT, "%s: ',' or '}' expected after %s", op->name, f->name);
            break;
        }
    }
    *end = p;
    return TENG_OK;
}
