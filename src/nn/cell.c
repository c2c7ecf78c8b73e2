/*
 * The tree of cells: building it, naming its parameters, calling it inside a trace. Names are paths from the
 * root joined by dots and are fixed when the tree is first used, since a cell is often filled before it gets
 * a parent. Cells hold no values and know no model; ready parts are in cells_basic.c, language models in
 * lm.c.
 */
#include "base/fail.h"
#include "base/rng.h"
#include "base/strmap.h"
#include "nn/cell_impl.h"
#include "nn/precision.h"
#include "tensor/desc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_DEPTH = 256, /* cells inside cells, and calls inside calls */
    MAX_FRAMES = 8,  /* lines named in an error */
};

/* What trace->user points to while a tree is traced. */
typedef struct nn_trace {
    teng_cell *root;
    int64_t dropouts; /* so far: the stream number of the next one */
    int depth;
} nn_trace;

static teng_cell *root_of(const teng_cell *cell)
{
    while (cell->parent)
        cell = cell->parent;
    return (teng_cell *)(uintptr_t)cell;
}

/* ---- building ---- */

teng_cell *teng_cell_create(const char *type, size_t data_size, teng_forward *forward)
{
    if (!type || !*type || !forward) {
        tg_fail(TENG_INVALID, "teng_cell_create: a cell needs a type name and a forward function");
        return NULL;
    }
    teng_cell *cell = tg_calloc(1, sizeof *cell);
    if (!cell) return NULL;
    cell->forward = forward;
    cell->type = tg_strdup(type);
    cell->data = tg_calloc(1, data_size ? data_size : 1);
    if (!cell->type || !cell->data) teng_cell_destroy(&cell);
    return cell;
}

static void destroy_param(teng_param *p)
{
    tg_free(p->name);
    tg_free(p->full);
    tg_free(p);
}

static void destroy_tree(teng_cell *cell)
{
    for (size_t i = 0; i < cell->children.len; i++)
        destroy_tree(cell->children.data[i]);
    for (size_t i = 0; i < cell->params.len; i++)
        destroy_param(cell->params.data[i]);
    tg_vec_free(&cell->children);
    tg_vec_free(&cell->params);
    tg_vec_free(&cell->infos);
    tg_free(cell->type);
    tg_free(cell->name);
    tg_free(cell->path);
    tg_free(cell->data);
    tg_free(cell);
}

void teng_cell_destroy(teng_cell **cell)
{
    if (!cell || !*cell || (*cell)->parent) return;
    destroy_tree(*cell);
    *cell = NULL;
}

void *teng_cell_data(teng_cell *cell)
{
    return cell ? cell->data : NULL;
}

/* Names become parts of file keys and of the graph's text. */
static bool name_is_valid(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    if (!name || !*name || name[strspn(name, allowed)]) return false;
    return name[0] != '.' && name[strlen(name) - 1] != '.' && !strstr(name, "..");
}

static bool name_is_taken(const teng_cell *cell, const char *name)
{
    for (size_t i = 0; i < cell->params.len; i++)
        if (strcmp(cell->params.data[i]->name, name) == 0) return true;
    for (size_t i = 0; i < cell->children.len; i++)
        if (strcmp(cell->children.data[i]->name, name) == 0) return true;
    return false;
}

static bool check_name(const teng_cell *cell, const char *name)
{
    if (!name_is_valid(name))
        tg_fail(TENG_INVALID,
                "cell %s: the name \"%s\" is not letters, digits, \"_\", \"-\" and single dots inside",
                cell->type, name ? name : "");
    else if (name_is_taken(cell, name))
        tg_fail(TENG_INVALID, "cell %s: the name \"%s\" is taken", cell->type, name);
    else
        return true;
    return false;
}

static int depth_of(const teng_cell *cell)
{
    int depth = 0;
    for (; cell; cell = cell->parent)
        depth++;
    return depth;
}

static int height_of(const teng_cell *cell)
{
    int height = 0;
    for (size_t i = 0; i < cell->children.len; i++) {
        const int h = height_of(cell->children.data[i]);
        if (h > height) height = h;
    }
    return height + 1;
}

static bool check_add(const teng_cell *parent, const char *name, const teng_cell *child)
{
    if (!check_name(parent, name)) return false;
    if (root_of(parent) == child)
        tg_fail(TENG_INVALID, "cell %s: \"%s\" would become a part of itself", parent->type, name);
    else if (depth_of(parent) + height_of(child) > MAX_DEPTH)
        tg_fail(TENG_INVALID, "cell %s: with \"%s\" cells are nested deeper than %d", parent->type, name,
                MAX_DEPTH);
    else
        return true;
    return false;
}

teng_cell *teng_cell_add(teng_cell *parent, const char *name, teng_cell *child)
{
    if (parent && child && child->parent) {
        tg_fail(TENG_INVALID,
                "cell %s: \"%s\" already is a part of a %s; share parameters with teng_nn_weight",
                parent->type, name ? name : "", child->parent->type);
        return NULL;
    }
    if (!parent || !child) {
        if (teng_error_status() == TENG_OK)
            tg_fail(TENG_INVALID, "teng_cell_add: the %s of \"%s\" is NULL", parent ? "cell" : "parent",
                    name ? name : "");
        teng_cell_destroy(&child);
        return NULL;
    }
    char *copy = check_add(parent, name, child) ? tg_strdup(name) : NULL;
    if (!copy || !tg_vec_push(&parent->children, child)) {
        tg_free(copy);
        if (child != root_of(parent)) teng_cell_destroy(&child);
        return NULL;
    }
    child->name = copy;
    child->parent = parent;
    root_of(parent)->named = false;
    return child;
}

/* Positive sizes whose product a pointer can reach. */
static bool check_dims(const teng_cell *cell, const char *name, const teng_dims *dims)
{
    int64_t numel = 1;
    bool fits = dims->n >= 0 && dims->n <= TENG_MAX_DIMS;
    for (int64_t i = 0; fits && i < dims->n; i++)
        fits =
            dims->v[i] >= 1 && !__builtin_mul_overflow(numel, dims->v[i], &numel) && numel <= INT64_MAX / 16;
    if (!fits)
        tg_fail(TENG_INVALID, "cell %s: parameter \"%s\" has a shape with %lld dimensions, one of them %s",
                cell->type, name, (long long)dims->n,
                "below 1 or too large; sizes start at 1 and there are at most 8 of them");
    return fits;
}

teng_param *teng_cell_param(teng_cell *cell, const char *name, teng_dims dims, teng_init init)
{
    if (!cell) {
        if (teng_error_status() == TENG_OK)
            tg_fail(TENG_INVALID, "teng_cell_param: the cell of \"%s\" is NULL", name ? name : "");
        return NULL;
    }
    if (!check_name(cell, name) || !check_dims(cell, name, &dims)) return NULL;
    teng_param *p = tg_calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (teng_param){.cell = cell, .init = init, .desc = tg_desc_make(TENG_F32, (int)dims.n, dims.v)};
    p->name = tg_strdup(name);
    if (!p->name || !tg_vec_push(&cell->params, p)) {
        destroy_param(p);
        return NULL;
    }
    root_of(cell)->named = false;
    return p;
}

const teng_desc *teng_param_desc(const teng_param *param)
{
    return param ? &param->desc : NULL;
}

/* ---- names ---- */

static char *join(const char *path, const char *name)
{
    return *path ? tg_asprintf("%s.%s", path, name) : tg_strdup(name);
}

static teng_status name_param(teng_cell *root, tg_strmap *seen, const char *path, teng_param *p)
{
    tg_free(p->full);
    p->full = join(path, p->name);
    if (!p->full) return TENG_MEMORY;
    bool existed;
    if (!tg_strmap_set(seen, p->full, strlen(p->full), 0, &existed)) return TENG_MEMORY;
    if (existed) return tg_fail(TENG_INVALID, "two parameters have the full name \"%s\"", p->full);
    const tg_param_info info = {p->full, p->desc, p->init};
    return tg_vec_push(&root->infos, info) ? TENG_OK : TENG_MEMORY;
}

static teng_status name_tree(teng_cell *root, tg_strmap *seen, teng_cell *cell)
{
    tg_free(cell->path);
    cell->path = cell->parent ? join(cell->parent->path, cell->name) : tg_strdup("");
    if (!cell->path) return TENG_MEMORY;
    for (size_t i = 0; i < cell->params.len; i++)
        TG_TRY(name_param(root, seen, cell->path, cell->params.data[i]));
    for (size_t i = 0; i < cell->children.len; i++)
        TG_TRY(name_tree(root, seen, cell->children.data[i]));
    return TENG_OK;
}

static teng_status name_all(teng_cell *root)
{
    if (root->named) return TENG_OK;
    root->infos.len = 0;
    tg_strmap *seen = tg_strmap_create();
    if (!seen) return TENG_MEMORY;
    const teng_status status = name_tree(root, seen, root);
    tg_strmap_destroy(&seen);
    root->named = status == TENG_OK;
    return status;
}

teng_status tg_nn_params(teng_cell *root, const tg_param_info **out, size_t *n)
{
    if (!root) return teng_error_status() ? teng_error_status() : tg_fail(TENG_INVALID, "the model is NULL");
    if (root->parent)
        return tg_fail(TENG_STATE, "cell %s is a part of a %s; only the root of a tree is a model",
                       root->type, root->parent->type);
    TG_TRY(name_all(root));
    *out = root->infos.data;
    *n = root->infos.len;
    return TENG_OK;
}

int64_t teng_cell_numel(const teng_cell *cell)
{
    int64_t numel = 0;
    if (!cell) return 0;
    for (size_t i = 0; i < cell->params.len; i++)
        numel += tg_desc_numel(&cell->params.data[i]->desc);
    for (size_t i = 0; i < cell->children.len; i++)
        numel += teng_cell_numel(cell->children.data[i]);
    return numel;
}

static void visit_tree(teng_cell *cell, teng_param_visit *visit, void *user)
{
    for (size_t i = 0; i < cell->params.len; i++)
        visit(user, cell->params.data[i], cell->params.data[i]->full);
    for (size_t i = 0; i < cell->children.len; i++)
        visit_tree(cell->children.data[i], visit, user);
}

void teng_cell_visit(teng_cell *cell, teng_param_visit *visit, void *user)
{
    if (cell && name_all(root_of(cell)) == TENG_OK) visit_tree(cell, visit, user);
}

/* ---- inside a trace ---- */

static nn_trace *current_nn(void)
{
    tg_trace *t = tg_trace_current();
    return t ? t->user : NULL;
}

teng_tensor *tg_cell_fail(const teng_cell *cell, teng_status status, const char *fmt, ...)
{
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    tg_strbuf where = {0};
    tg_strbuf_printf(&where, "%s (%s", cell->path && *cell->path ? cell->path : "model", cell->type);
    const tg_trace *t = tg_trace_current();
    const tg_frame *f = t ? t->frame : NULL;
    for (int i = 0; f && i < MAX_FRAMES; i++, f = f->caller)
        tg_strbuf_printf(&where, "%s%s:%d", i ? " < " : ", ", f->at.file, f->at.line);
    if (f) tg_strbuf_puts(&where, " < …");
    tg_fail(status, "%s): %s", tg_strbuf_str(&where), message);
    tg_strbuf_free(&where);
    return NULL;
}

bool tg_cell_takes(const teng_cell *cell, int n_in, int wanted)
{
    if (n_in != wanted) tg_cell_fail(cell, TENG_INVALID, "called with %d operands, takes %d", n_in, wanted);
    return n_in == wanted;
}

/* The state of the trace that `what` needs; an error without one. */
static nn_trace *want_trace(teng_src at, const char *what)
{
    nn_trace *nn = current_nn();
    if (!nn)
        tg_fail(TENG_STATE, "%s: called outside a model's forward function (%s:%d)", what,
                at.file ? at.file : "?", at.line);
    return nn;
}

teng_tensor *teng_value_at(teng_src at, teng_param *param)
{
    if (!param) {
        if (teng_error_status() == TENG_OK)
            tg_fail(TENG_INVALID, "teng_value: the parameter is NULL (%s:%d)", at.file ? at.file : "?",
                    at.line);
        return NULL;
    }
    const nn_trace *nn = want_trace(at, "teng_value");
    if (!nn) return NULL;
    if (root_of(param->cell) != nn->root) {
        tg_fail(TENG_INVALID,
                "parameter \"%s\" of a %s is not a part of this model; teng_cell_add makes it one (%s:%d)",
                param->name, param->cell->type, at.file ? at.file : "?", at.line);
        return NULL;
    }
    tg_graph *g = tg_trace_current()->graph;
    teng_tensor *value = tg_graph_find(g, param->full);
    if (!value) {
        value = tg_graph_param(g, param->full, &param->desc);
        if (value) value->mark = param->mark;
        return value;
    }
    if (value->kind == TG_VALUE_PARAM) return value;
    tg_fail(TENG_INVALID, "parameter \"%s\" has the name of another value of graph %s; rename it",
            param->full, g->name);
    return NULL;
}

static bool check_call(teng_src at, const teng_cell *cell, teng_tensor *const *in, int n_in)
{
    if (!cell) {
        if (teng_error_status() == TENG_OK)
            tg_fail(TENG_INVALID, "teng_call: the cell is NULL (%s:%d)", at.file ? at.file : "?", at.line);
        return false;
    }
    for (int i = 0; i < n_in; i++) {
        if (in[i]) continue;
        if (teng_error_status() == TENG_OK)
            tg_fail(TENG_INVALID, "%s: operand %d is NULL (%s:%d)", cell->type, i, at.file ? at.file : "?",
                    at.line);
        return false;
    }
    const nn_trace *nn = want_trace(at, cell->type);
    if (!nn) return false;
    if (root_of(cell) == nn->root) return true;
    tg_fail(TENG_INVALID,
            "a %s is called that is not a part of this model; teng_cell_add makes it one (%s:%d)", cell->type,
            at.file ? at.file : "?", at.line);
    return false;
}

teng_tensor *teng_call_at(teng_src at, teng_cell *cell, teng_tensor *const *in, int n_in)
{
    if (!check_call(at, cell, in, n_in)) return NULL;
    nn_trace *nn = current_nn();
    tg_trace *trace = tg_trace_current();
    const tg_trace_mark mark = tg_trace_enter(NULL, at);
    /* The whole path, not one more step: a cell may call any other of its tree. */
    const char *scope = tg_arena_strdup(trace->graph->arena, cell->path);
    teng_tensor *value = NULL;
    if (scope) {
        trace->scope = scope;
        if (++nn->depth > MAX_DEPTH)
            tg_cell_fail(cell, TENG_INVALID, "more than %d calls inside each other: does a cell call itself?",
                         MAX_DEPTH);
        else
            value = cell->forward(cell, in, n_in);
        nn->depth--;
        if (!value && teng_error_status() == TENG_OK)
            tg_cell_fail(cell, TENG_INVALID, "the forward function returned NULL and no operator failed");
    }
    tg_trace_leave(mark);
    return value;
}

teng_tensor *tg_nn_trace(teng_cell *root, tg_graph *g, teng_tensor *const *in, int n_in, bool training)
{
    return tg_nn_trace_with(root, g, in, n_in, &(tg_nn_options){.training = training});
}

teng_tensor *tg_nn_trace_with(teng_cell *root, tg_graph *g, teng_tensor *const *in, int n_in,
                              const tg_nn_options *options)
{
    const teng_precision *precision = options->precision;
    const tg_param_info *infos;
    size_t n;
    if (tg_nn_params(root, &infos, &n) != TENG_OK) return NULL;
    nn_trace nn = {.root = root};
    tg_trace trace;
    tg_precision mixed;
    teng_tensor *value = NULL;
    tg_trace_begin(&trace, g);
    trace.training = options->training;
    trace.differentiate = options->differentiate;
    trace.user = &nn;
    if (tg_precision_begin(&mixed, precision, &trace) == TENG_OK)
        value = teng_call_at((teng_src){NULL, 0}, root, in, n_in);
    if (value && tg_precision_finish(&mixed) != TENG_OK) value = NULL;
    trace.hook = NULL;
    if (value && precision && precision->level != TENG_O0 && value->desc.dtype == precision->dtype)
        value = teng_cast(value, TENG_F32);
    tg_precision_free(&mixed);
    tg_trace_end(&trace);
    return value;
}

bool teng_is_training(void)
{
    const tg_trace *t = tg_trace_current();
    return t && t->training;
}

teng_tensor *teng_train_dropout_at(teng_src at, teng_tensor *x, double p)
{
    if (!(p >= 0 && p < 1)) {
        tg_fail(TENG_INVALID, "dropout with p = %g: it must be in [0, 1) (%s:%d)", p, at.file ? at.file : "?",
                at.line);
        return NULL;
    }
    if (!x || p == 0 || !teng_is_training()) return x;
    nn_trace *nn = want_trace(at, "dropout");
    if (!nn) return NULL;
    tg_graph *g = tg_trace_current()->graph;
    teng_tensor *rng = tg_graph_find(g, "rng");
    if (!rng) rng = tg_graph_input(g, "rng", &(teng_desc){TENG_U64, 1, {2}});
    return teng_dropout_at(at, x, rng, p, nn->dropouts++);
}

/* ---- initial values ---- */

void tg_nn_init_param(const tg_param_info *param, uint64_t seed, float *out)
{
    const int64_t n = tg_desc_numel(&param->desc);
    const teng_init *init = &param->init;
    const uint64_t key = tg_rng_key(tg_rng_key(seed, "init"), param->name);
    const float a = (float)init->a;
    switch (init->kind) {
    case TENG_INIT_NORMAL:
        tg_rng_normal(key, (float)init->b, out, n);
        for (int64_t i = 0; a != 0 && i < n; i++)
            out[i] += a;
        return;
    case TENG_INIT_UNIFORM:
        tg_rng_uniform(key, a, (float)init->b, out, n);
        return;
    case TENG_INIT_CONST:
        for (int64_t i = 0; i < n; i++)
            out[i] = a;
    }
}
