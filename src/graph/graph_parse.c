/*
 * Text → graph, the inverse of graph_print.c. Every line is checked: operator, attributes, operands, and that
 * the shapes written are those the operator's rule gives. Errors name the text's line. Untrusted input.
 */
#include "graph/graph.h"

#include "base/fail.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPERANDS 4096
#define MAX_NAME (TG_NAME_MAX + 1)

typedef struct parser {
    tg_graph *g;
    TG_VEC(teng_tensor *) numbered; /* %0, %1, … */
    tg_phase phase;
} parser;

static void skip(const char **p)
{
    while (**p == ' ' || **p == '\t')
        ++*p;
}

/* Nothing but blanks may be left of the line. */
static teng_status at_end(const char *p)
{
    skip(&p);
    return *p ? tg_fail(TENG_FORMAT, "unexpected text: \"%.40s\"", p) : TENG_OK;
}

static bool eat(const char **p, const char *word)
{
    skip(p);
    const size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0) return false;
    *p += n;
    return true;
}

/* A name: everything up to a space, comma, parenthesis or the end. */
static teng_status read_name(const char **p, char *out)
{
    skip(p);
    size_t n = strcspn(*p, " \t,()");
    if (n == 0 || n >= MAX_NAME)
        return tg_fail(TENG_FORMAT, "a name of 1 to %d bytes is expected", MAX_NAME - 1);
    memcpy(out, *p, n);
    out[n] = '\0';
    *p += n;
    return TENG_OK;
}

static teng_status read_ref(parser *ps, const char **p, teng_tensor **out)
{
    char name[MAX_NAME];
    skip(p);
    const char sign = **p;
    if (sign != '%' && sign != '$') return tg_fail(TENG_FORMAT, "a value (%%number or $name) is expected");
    ++*p;
    TG_TRY(read_name(p, name));
    if (sign == '$') {
        *out = tg_graph_find(ps->g, name);
        return *out ? TENG_OK : tg_fail(TENG_FORMAT, "no input, param or state is named %s", name);
    }
    char *end;
    const unsigned long long i = strtoull(name, &end, 10);
    if (*end || !isdigit((unsigned char)name[0]) || i >= ps->numbered.len)
        return tg_fail(TENG_FORMAT, "value %%%s is not computed before this line", name);
    *out = ps->numbered.data[i];
    return TENG_OK;
}

static teng_status read_named_value(parser *ps, const char *p, tg_value_kind kind)
{
    char name[MAX_NAME];
    teng_desc desc;
    TG_TRY(read_name(&p, name));
    skip(&p);
    TG_TRY(tg_desc_parse(p, &desc, &p));
    TG_TRY(at_end(p));
    const teng_tensor *v = kind == TG_VALUE_INPUT   ? tg_graph_input(ps->g, name, &desc)
                           : kind == TG_VALUE_PARAM ? tg_graph_param(ps->g, name, &desc)
                                                    : tg_graph_state(ps->g, name, &desc);
    return v ? TENG_OK : teng_error_status();
}

static teng_status read_operands(parser *ps, const char **p, teng_tensor **in, int *n)
{
    *n = 0;
    if (!eat(p, "(")) return tg_fail(TENG_FORMAT, "'(' is expected after the operator");
    if (eat(p, ")")) return TENG_OK;
    do {
        if (*n == MAX_OPERANDS) return tg_fail(TENG_FORMAT, "more than %d operands", MAX_OPERANDS);
        TG_TRY(read_ref(ps, p, &in[*n]));
        ++*n;
    } while (eat(p, ","));
    return eat(p, ")") ? TENG_OK : tg_fail(TENG_FORMAT, "')' is expected after the operands");
}

/* After the attributes: " : shapes [@ scope] [(recomputed)]". */
static teng_status finish_node(parser *ps, const char *p, const teng_op_spec *op, const void *attr, int n_in,
                               teng_tensor *const *in, int n_out)
{
    teng_desc want[TENG_MAX_OUT];
    int n_shapes = 0;
    if (!eat(&p, ":")) return tg_fail(TENG_FORMAT, "':' and the output shapes are expected");
    do {
        if (n_shapes == TENG_MAX_OUT) return tg_fail(TENG_FORMAT, "more than %d shapes", TENG_MAX_OUT);
        skip(&p);
        TG_TRY(tg_desc_parse(p, &want[n_shapes++], &p));
    } while (eat(&p, ","));
    char scope[MAX_NAME] = "";
    if (eat(&p, "@")) TG_TRY(read_name(&p, scope));
    const bool recomputed = eat(&p, "(recomputed)");
    TG_TRY(at_end(p));
    const char *kept = tg_arena_strdup(ps->g->arena, scope);
    tg_node *node = kept ? tg_graph_append(ps->g, op, attr, n_in, in, kept, NULL, ps->phase) : NULL;
    if (!node) return teng_error_status();
    node->recomputed = recomputed;
    if (node->n_out != n_out || n_out != n_shapes)
        return tg_fail(TENG_FORMAT, "%s has %d outputs, the line names %d", op->name, node->n_out, n_out);
    for (int o = 0; o < n_out; o++) {
        if (!tg_desc_equal(&want[o], &node->out[o]->desc))
            return tg_fail(TENG_FORMAT, "%s: output %d is not of the written shape", op->name, o);
        if (!tg_vec_push(&ps->numbered, node->out[o])) return TENG_MEMORY;
    }
    return TENG_OK;
}

static teng_status read_node(parser *ps, const char *p, teng_tensor **in)
{
    int n_out = 0, n_in;
    do {
        skip(&p);
        char *end;
        if (*p != '%' || !isdigit((unsigned char)p[1]) ||
            strtoull(p + 1, &end, 10) != ps->numbered.len + (unsigned)n_out)
            return tg_fail(TENG_FORMAT, "value %%%zu is expected here", ps->numbered.len + (unsigned)n_out);
        p = end;
        n_out++;
    } while (eat(&p, ","));
    if (!eat(&p, "=")) return tg_fail(TENG_FORMAT, "'=' is expected");
    char name[MAX_NAME];
    TG_TRY(read_name(&p, name));
    const teng_op_spec *op = tg_op_find(name);
    if (!op) return teng_error_status();
    TG_TRY(read_operands(ps, &p, in, &n_in));
    void *attr = tg_arena_alloc(ps->g->arena, op->attr_size + 1);
    if (!attr) return TENG_MEMORY;
    skip(&p);
    TG_TRY(tg_attr_parse(op, p, &p, attr));
    return finish_node(ps, p, op, attr, n_in, in, n_out);
}

static teng_status read_phase(parser *ps, const char *p)
{
    for (int i = 0; i < TG_PHASE_COUNT; i++)
        if (eat(&p, tg_phase_name((tg_phase)i))) {
            if ((tg_phase)i < ps->phase)
                return tg_fail(TENG_FORMAT, "phase %s stands after a later one", tg_phase_name((tg_phase)i));
            ps->phase = (tg_phase)i;
            return at_end(p);
        }
    return tg_fail(TENG_FORMAT, "phase must be forward, backward or update");
}

static teng_status read_output(parser *ps, const char *p)
{
    char name[MAX_NAME];
    teng_tensor *v;
    TG_TRY(read_name(&p, name));
    TG_TRY(read_ref(ps, &p, &v));
    TG_TRY(at_end(p));
    return tg_graph_output(ps->g, name, v);
}

static teng_status read_line(parser *ps, const char *line, teng_tensor **in)
{
    const char *p = line;
    char name[MAX_NAME];
    skip(&p);
    if (!*p || *p == '#') return TENG_OK;
    if (!ps->g) {
        if (!eat(&p, "graph ")) return tg_fail(TENG_FORMAT, "the first line must be \"graph NAME\"");
        TG_TRY(read_name(&p, name));
        TG_TRY(at_end(p));
        ps->g = tg_graph_create(name);
        return ps->g ? TENG_OK : TENG_MEMORY;
    }
    if (eat(&p, "input ")) return read_named_value(ps, p, TG_VALUE_INPUT);
    if (eat(&p, "param ")) return read_named_value(ps, p, TG_VALUE_PARAM);
    if (eat(&p, "state ")) return read_named_value(ps, p, TG_VALUE_STATE);
    if (eat(&p, "phase ")) return read_phase(ps, p);
    if (eat(&p, "output ")) return read_output(ps, p);
    return read_node(ps, p, in);
}

teng_status tg_graph_parse(const char *name, const char *text, tg_graph **out)
{
    parser ps = {0};
    teng_tensor **in = tg_alloc(sizeof *in * MAX_OPERANDS);
    if (!in) return TENG_MEMORY;
    teng_status status = TENG_OK;
    int number = 0;
    while (*text && status == TENG_OK) {
        const size_t n = strcspn(text, "\n");
        char *line = tg_strndup(text, n);
        number++;
        status = line ? read_line(&ps, line, in) : TENG_MEMORY;
        if (status != TENG_OK) tg_fail_context("%s:%d", name, number);
        tg_free(line);
        text += n + (text[n] == '\n');
    }
    if (status == TENG_OK && !ps.g)
        status = tg_fail(TENG_FORMAT, "%s: empty, \"graph NAME\" is expected", name);
    if (status == TENG_OK) {
        *out = ps.g;
        ps.g = NULL;
    }
    tg_graph_destroy(&ps.g);
    tg_vec_free(&ps.numbered);
    tg_free(in);
    return status;
}
