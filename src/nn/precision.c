/*
 * What each operator computes in, by its class and the level (precision.h). A level decides three things:
 * what products read (16 bits from O1 on), what the black list reads (f32 in O1 and auto, data as it is with
 * f32 parameters in O2, 16-bit parameters too in O3), and what all others do with operands of two widths.
 */
#include "nn/precision.h"

#include "base/fail.h"
#include "op/cast/cast.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"O0", "O1", "O2", "O3", "auto"};

const char *teng_precision_level_name(teng_precision_level level)
{
    return (unsigned)level < sizeof level_names / sizeof *level_names ? level_names[level] : "?";
}

static bool is_16(teng_dtype t)
{
    return t == TENG_BF16 || t == TENG_F16;
}

static bool is_float(teng_dtype t)
{
    return is_16(t) || t == TENG_F32;
}

teng_status tg_precision_check(const teng_precision *o)
{
    if (!o || o->level == TENG_O0) return TENG_OK;
    if ((unsigned)o->level > TENG_AUTO)
        return tg_fail(TENG_INVALID, "precision.level is %d; it must be O0, O1, O2, O3 or auto",
                       (int)o->level);
    if (!is_16(o->dtype))
        return tg_fail(TENG_INVALID, "precision.dtype is %s; precision.level=%s needs bf16 or fp16",
                       (unsigned)o->dtype < TENG_DTYPE_COUNT ? teng_dtype_name(o->dtype) : "unknown",
                       teng_precision_level_name(o->level));
    return TENG_OK;
}

/* ---- casts ---- */
static teng_tensor *cast(tg_precision *p, teng_tensor *v, teng_dtype to)
{
    if (v->desc.dtype == to) return v;
    for (size_t i = 0; i < p->casts.len; i++)
        if (p->casts.data[i].from == v && p->casts.data[i].to->desc.dtype == to) return p->casts.data[i].to;
    const tg_trace *t = tg_trace_current();
    const tg_cast_attr attr = {to};
    const tg_node *node = tg_graph_append(p->graph, &tg_op_cast, &attr, 1, &v, t->scope, t->frame, t->phase);
    if (!node) return NULL;
    const tg_precision_cast entry = {v, node->out[0]};
    return tg_vec_push(&p->casts, entry) ? node->out[0] : NULL;
}

static bool kept(tg_precision *p, const char *scope)
{
    bool found = false;
    for (int i = 0; i < p->options->n_keep_fp32; i++) {
        if (fnmatch(p->options->keep_fp32[i], scope, 0) != 0) continue;
        p->matched[i] = 1;
        found = true;
    }
    return found;
}

/* What the floating operands of a call become; -1: as they are. */
static int wanted(const tg_precision *p, const teng_op_spec *op, bool keep, bool any_16, bool any_32)
{
    const teng_precision_level level = p->options->level;
    const int low = (int)p->options->dtype;
    switch (op->precision) {
    case TENG_PRECISION_MOVE:
    case TENG_PRECISION_LOOKUP:
        return -1;
    case TENG_PRECISION_PRODUCT:
        return keep ? TENG_F32 : low;
    case TENG_PRECISION_NORM:
        if (keep || level == TENG_O1 || level == TENG_AUTO) return TENG_F32;
        return any_16 ? low : -1;
    case TENG_PRECISION_OTHER:
        break;
    }
    if (keep || level == TENG_O1) return TENG_F32;
    if (level == TENG_AUTO) return any_32 ? TENG_F32 : -1;
    return any_16 ? low : -1;
}

/* Whether operand i may stay f32 although the operator computes in 16 bits. */
static bool may_stay(const tg_precision *p, const teng_op_spec *op, int i)
{
    return p->options->level != TENG_O3 && i < 32 && (op->f32_in >> i & 1);
}

static teng_status refuse_twice(const tg_precision *p, const teng_op_spec *op, const void *attr, teng_src at,
                                int n_in, teng_tensor *const *in)
{
    const char *level = teng_precision_level_name(p->options->level);
    if (op == &tg_op_cast && is_16((teng_dtype)((const tg_cast_attr *)attr)->to))
        return tg_fail(TENG_INVALID,
                       "the model casts to %s itself (layer %s, %s:%d) and precision.level=%s converts it "
                       "already: take the cast out, or set precision.level=O0",
                       teng_dtype_name((teng_dtype)((const tg_cast_attr *)attr)->to),
                       tg_trace_current()->scope, at.file ? at.file : "?", at.line, level);
    for (int i = 0; i < n_in; i++)
        if (in[i]->kind == TG_VALUE_PARAM && is_16(in[i]->desc.dtype) && !p->options->stored_16)
            return tg_fail(TENG_INVALID,
                           "parameter %s is %s already and precision.level=%s would convert it again: keep "
                           "parameters in f32, or set precision.level=O0",
                           in[i]->name, teng_dtype_name(in[i]->desc.dtype), level);
    return TENG_OK;
}

static teng_status before(void *user, const teng_op_spec *op, const void *attr, teng_src at, int n_in,
                          teng_tensor **in)
{
    tg_precision *p = user;
    TG_TRY(refuse_twice(p, op, attr, at, n_in, in));
    const bool keep = kept(p, tg_trace_current()->scope);
    bool any_16 = false, any_32 = false;
    for (int i = 0; i < n_in; i++) {
        any_16 = any_16 || is_16(in[i]->desc.dtype);
        any_32 = any_32 || (in[i]->desc.dtype == TENG_F32 && !may_stay(p, op, i));
    }
    const int to = wanted(p, op, keep, any_16, any_32);
    for (int i = 0; to >= 0 && i < n_in; i++) {
        const teng_dtype now = in[i]->desc.dtype;
        if (!is_float(now) || (now == TENG_F32 && is_16((teng_dtype)to) && may_stay(p, op, i))) continue;
        if (!(in[i] = cast(p, in[i], (teng_dtype)to))) return teng_error_status();
    }
    return TENG_OK;
}

static teng_tensor *after(void *user, const tg_node *node)
{
    tg_precision *p = user;
    teng_tensor *y = node->out[0];
    const bool narrows = p->options->level == TENG_O2 || p->options->level == TENG_O3;
    if (node->op->precision != TENG_PRECISION_LOOKUP || !narrows || y->desc.dtype != TENG_F32 ||
        kept(p, node->scope))
        return y;
    return cast(p, y, p->options->dtype);
}

teng_status tg_precision_begin(tg_precision *p, const teng_precision *options, tg_trace *trace)
{
    *p = (tg_precision){.options = options, .graph = trace->graph};
    if (!options || options->level == TENG_O0) return TENG_OK;
    TG_TRY(tg_precision_check(options));
    p->matched = tg_calloc((size_t)options->n_keep_fp32 + 1, 1);
    if (!p->matched) return TENG_MEMORY;
    p->hook = (tg_trace_hook){p, before, after};
    trace->hook = &p->hook;
    return TENG_OK;
}

/* Layers of the graph, each once where they are neighbours. */
static const char *nearest_layer(const tg_graph *g, const char *pattern)
{
    enum { MAX = 512 };
    const char *names[MAX] = {NULL};
    int n = 0;
    for (size_t k = 0; k < g->nodes.len && n < MAX; k++)
        if (!n || strcmp(names[n - 1], g->nodes.data[k]->scope) != 0) names[n++] = g->nodes.data[k]->scope;
    const char *near = tg_nearest_name(pattern, names, n);
    return near ? near : n > 1 ? names[1] : NULL;
}

teng_status tg_precision_finish(tg_precision *p)
{
    if (!p->matched) return TENG_OK;
    for (int i = 0; i < p->options->n_keep_fp32; i++) {
        if (p->matched[i]) continue;
        const char *near = nearest_layer(p->graph, p->options->keep_fp32[i]);
        return tg_fail(
            TENG_INVALID,
            "precision.keep_fp32: \"%s\" matches no layer of the model%s%s%s; * stands for any text",
            p->options->keep_fp32[i], near ? "; a layer is named \"" : "", near ? near : "",
            near ? "\"" : "");
    }
    return TENG_OK;
}

void tg_precision_free(tg_precision *p)
{
    tg_vec_free(&p->casts);
    tg_free(p->matched);
    p->matched = NULL;
}

/* ---- listing ---- */
static const char *operand(char *buf, size_t size, const teng_tensor *v)
{
    if (v->name) return v->name;
    snprintf(buf, size, "%%%d of %s", v->id, v->node ? v->node->op->name : "?");
    return buf;
}

/* The first node that reads v. */
static const tg_node *reader(const tg_graph *g, const teng_tensor *v)
{
    for (size_t k = 0; k < g->nodes.len; k++)
        for (int i = 0; i < g->nodes.data[k]->n_in; i++)
            if (g->nodes.data[k]->in[i] == v) return g->nodes.data[k];
    return NULL;
}

void tg_precision_print(const tg_graph *g, tg_strbuf *out)
{
    int64_t n = 0, bytes = 0;
    tg_strbuf_printf(out, "%-44s %-20s %-5s casts\n", "layer", "operator", "in");
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        if (node->phase != TG_FORWARD || node->op == &tg_op_cast ||
            node->op->precision == TENG_PRECISION_MOVE)
            continue;
        tg_strbuf_printf(out, "%-44s %-20s %-5s", *node->scope ? node->scope : "-", node->op->name,
                         node->n_in ? teng_dtype_name(node->in[0]->desc.dtype) : "-");
        for (int i = 0; i < node->n_in; i++) {
            const tg_node *from = node->in[i]->node;
            char buf[64];
            if (!from || from->op != &tg_op_cast || !is_float(from->in[0]->desc.dtype) ||
                reader(g, node->in[i]) != node)
                continue;
            tg_strbuf_printf(out, " %s %s->%s", operand(buf, sizeof buf, from->in[0]),
                             teng_dtype_name(from->in[0]->desc.dtype),
                             teng_dtype_name(node->in[i]->desc.dtype));
            bytes += (int64_t)tg_desc_bytes(&node->in[i]->desc);
            n++;
        }
        tg_strbuf_putc(out, '\n');
    }
    char text[32];
    tg_strbuf_printf(out,
                     "%lld casts in the forward pass, %s of converted values; the backward pass casts the "
                     "gradients of the same values back\n",
                     (long long)n, tg_format_bytes(text, (double)bytes));
}
