/*
 * The table of operators by name, checks of a spec, and what can be computed for any operator from its table:
 * inference with counts checked, cost with defaults, kernel choice. Registration happens before threads
 * start.
 */
#include "graph/op_table.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/vec.h"
#include "device/cpu_isa.h"
#include "tensor/desc.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_OPS 512
static struct {
    const teng_op_spec *op;
    const teng_op_cases *cases;
} table[MAX_OPS];
static int table_len;

teng_status teng_fail(teng_status status, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tg_fail(status, "%s", text);
}

static teng_status check_attrs(const teng_op_spec *op)
{
    if (!op->attr_size) return TENG_OK;
    if (!op->attrs) return tg_fail(TENG_INVALID, "operator %s: attributes without a field table", op->name);
    for (const teng_attr_field *f = op->attrs; f->name; f++) {
        const size_t size = f->type == TENG_ATTR_DIMS ? sizeof(teng_dims) : sizeof(int64_t);
        if (f->offset + size > op->attr_size)
            return tg_fail(TENG_INVALID, "operator %s: attribute %s lies outside its struct", op->name,
                           f->name);
    }
    return TENG_OK;
}

static bool stated(const char *reason)
{
    return reason && *reason;
}

teng_status tg_op_check(const teng_op_spec *op)
{
    if (!op->name || !*op->name) return tg_fail(TENG_INVALID, "an operator has no name");
    if (!stated(op->doc)) return tg_fail(TENG_INVALID, "operator %s: no doc", op->name);
    if (!op->infer || !op->cost)
        return tg_fail(TENG_INVALID, "operator %s: infer and cost are required", op->name);
    if (op->n_out == 0 || op->n_out > TENG_MAX_OUT)
        return tg_fail(TENG_INVALID, "operator %s: n_out %d is not in 1 … %d or -1", op->name, op->n_out,
                       TENG_MAX_OUT);
    if (op->max_in >= 0 && op->max_in < op->min_in)
        return tg_fail(TENG_INVALID, "operator %s: max_in %d below min_in %d", op->name, op->max_in,
                       op->min_in);
    if (!op->grad && !stated(op->no_grad))
        return tg_fail(TENG_INVALID, "operator %s: neither a gradient nor a reason (no_grad)", op->name);
    if (!op->place && !stated(op->no_place))
        return tg_fail(TENG_INVALID, "operator %s: neither a placement rule nor a reason (no_place)",
                       op->name);
    if (!op->kernels && !stated(op->no_kernels))
        return tg_fail(TENG_INVALID, "operator %s: neither kernels nor a reason (no_kernels)", op->name);
    for (const teng_kernel_table *t = op->kernels; t && t->kernels; t++)
        for (const teng_kernel *k = t->kernels; k->name; k++)
            if (!k->run) return tg_fail(TENG_INVALID, "operator %s: kernel %s cannot run", op->name, k->name);
    return check_attrs(op);
}

teng_status tg_op_register(const teng_op_spec *op, const teng_op_cases *cases)
{
    TG_TRY(tg_op_check(op));
    for (int i = 0; i < table_len; i++) {
        if (table[i].op == op) return TENG_OK;
        if (strcmp(table[i].op->name, op->name) == 0)
            return tg_fail(TENG_INVALID, "operator %s is registered twice", op->name);
    }
    if (table_len == MAX_OPS)
        return tg_fail(TENG_MEMORY, "operator %s: the table holds %d", op->name, MAX_OPS);
    table[table_len].op = op;
    table[table_len++].cases = cases;
    return TENG_OK;
}

const teng_op_spec *tg_op_find(const char *name)
{
    const char *names[MAX_OPS];
    for (int i = 0; i < table_len; i++) {
        names[i] = table[i].op->name;
        if (strcmp(names[i], name) == 0) return table[i].op;
    }
    const char *near = tg_nearest_name(name, names, table_len);
    tg_fail(TENG_INVALID, "no operator is named \"%s\"%s%s%s", name, near ? "; did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
    return NULL;
}

int tg_op_count(void)
{
    return table_len;
}

const teng_op_spec *tg_op_at(int i)
{
    return table[i].op;
}

const teng_op_cases *tg_op_cases_at(int i)
{
    return table[i].cases;
}

teng_status tg_op_check_size(const teng_desc *desc, const char *what)
{
    if (desc->ndim < 0 || desc->ndim > TENG_MAX_DIMS)
        return tg_fail(TENG_INVALID, "%s has %d dimensions, the limit is %d", what, desc->ndim,
                       TENG_MAX_DIMS);
    if ((unsigned)desc->dtype >= TENG_DTYPE_COUNT)
        return tg_fail(TENG_INVALID, "%s has the unknown element type %d", what, (int)desc->dtype);
    int64_t bytes = teng_dtype_size(desc->dtype);
    for (int i = 0; i < desc->ndim; i++) {
        const int64_t dim = desc->dims[i];
        if (dim < 0)
            return tg_fail(TENG_INVALID, "%s: dimension %d is %lld, it must not be negative", what, i,
                           (long long)dim);
        if (__builtin_mul_overflow(bytes, dim ? dim : 1, &bytes) || bytes > TG_VALUE_MAX) {
            char text[TG_DESC_TEXT];
            return tg_fail(TENG_INVALID, "%s is %s: more than the 2^50 bytes that a value may have", what,
                           tg_desc_text(text, desc));
        }
    }
    return TENG_OK;
}

teng_status tg_op_infer(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                        teng_desc *out, int *n_out)
{
    if (n_in < op->min_in || (op->max_in >= 0 && n_in > op->max_in))
        return tg_fail(TENG_INVALID, "%s takes %d%s inputs, not %d", op->name, op->min_in,
                       op->max_in < 0            ? " or more"
                       : op->max_in > op->min_in ? " (or some more)"
                                                 : "",
                       n_in);
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .n_out = op->n_out, .in = in, .out = out};
    TG_TRY(op->infer(&call));
    if (call.n_out < 1 || call.n_out > TENG_MAX_OUT)
        return tg_fail(TENG_INVALID, "%s: %d outputs, the limit is %d", op->name, call.n_out, TENG_MAX_OUT);
    for (int o = 0; o < call.n_out; o++)
        TG_TRY(tg_op_check_size(&out[o], "the result"));
    *n_out = call.n_out;
    return TENG_OK;
}

void tg_op_cost(const teng_op_call *call, teng_cost *out)
{
    *out = (teng_cost){0};
    for (int i = 0; i < call->n_in; i++)
        out->bytes_read += (double)tg_desc_bytes(&call->in[i]);
    for (int o = 0; o < call->n_out; o++)
        out->bytes_written += (double)tg_desc_bytes(&call->out[o]);
    if (call->op->traits & TENG_OP_VIEW) *out = (teng_cost){0};
    call->op->cost(call, out);
}

double tg_cost_seconds(const teng_cost *cost, double flops_per_s, double bytes_per_s)
{
    const double compute = cost->flops / flops_per_s;
    const double move = (cost->bytes_read + cost->bytes_written) / bytes_per_s;
    return compute > move ? compute : move;
}

static void explain(tg_strbuf *why, const char *kernel, int isa, const char *reason)
{
    if (!why) return;
    tg_strbuf_printf(why, "%s%s (%s): %s", why->len ? "; " : "", kernel, tg_cpu_isa_name(isa), reason);
}

const teng_kernel *tg_kernel_select(const teng_op_call *call, const char *device, int isa, tg_strbuf *why)
{
    tg_strbuf reasons = {0};
    const teng_kernel *found = NULL;
    for (const teng_kernel_table *t = call->op->kernels; t && t->kernels && !found; t++) {
        if (strcmp(t->device, device) != 0) continue;
        for (const teng_kernel *k = t->kernels; k->name; k++) {
            const char *reason = t->isa > isa ? "the instruction set is not available or not allowed"
                                 : k->accept  ? k->accept(call)
                                              : NULL;
            if (!reason) {
                found = k;
                break;
            }
            explain(&reasons, k->name, t->isa, reason);
        }
    }
    if (why) tg_strbuf_puts(why, tg_strbuf_str(&reasons));
    if (!found) {
        char text[TG_DESC_TEXT];
        const char *none = call->op->kernels ? tg_strbuf_str(&reasons) : call->op->no_kernels;
        tg_fail(TENG_UNSUPPORTED, "%s: no %s kernel for %s: %s", call->op->name, device,
                call->n_in ? tg_desc_text(text, &call->in[0]) : "this call",
                *none ? none : "the operator has none for this device");
    }
    tg_strbuf_free(&reasons);
    return found;
}

/* ---- placement rules ---- */
void teng_place_add(teng_place_rules *rules, const teng_place *in, const teng_place *out)
{
    if (rules->failed) return;
    if (rules->n == rules->cap) {
        const int cap = rules->cap ? rules->cap * 2 : 8;
        tg_place_rule *more = tg_realloc(rules->rules, sizeof *more * (size_t)cap);
        if (!more) {
            rules->failed = true;
            return;
        }
        rules->rules = more;
        rules->cap = cap;
    }
    teng_place *both = tg_alloc((size_t)(rules->n_in + rules->n_out + 1));
    if (!both) {
        rules->failed = true;
        return;
    }
    if (rules->n_in) memcpy(both, in, (size_t)rules->n_in);
    memcpy(both + rules->n_in, out, (size_t)rules->n_out);
    rules->rules[rules->n++] = (tg_place_rule){both, both + rules->n_in};
}

teng_status tg_place_rules_get(const teng_op_call *call, teng_place_rules *out)
{
    *out = (teng_place_rules){.n_in = call->n_in, .n_out = call->n_out};
    teng_place *all = tg_alloc((size_t)(call->n_in + call->n_out + 1));
    if (!all) return TENG_MEMORY;
    memset(all, TENG_REPLICATED, (size_t)(call->n_in + call->n_out));
    teng_place_add(out, all, all + call->n_in);
    tg_free(all);
    if (call->op->place) call->op->place(call, out);
    return out->failed ? TENG_MEMORY : TENG_OK;
}

void tg_place_rules_free(teng_place_rules *rules)
{
    for (int i = 0; i < rules->n; i++)
        tg_free(rules->rules[i].in);
    tg_free(rules->rules);
    *rules = (teng_place_rules){0};
}

/* ---- plugins ---- */
teng_status teng_plugin_load(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return tg_fail(TENG_IO, "context.plugins: %s", dlerror());
    const teng_plugin *(*entry)(void) = NULL;
    *(void **)&entry = dlsym(lib, "teng_plugin_entry");
    if (!entry) return tg_fail(TENG_FORMAT, "context.plugins: %s does not export teng_plugin_entry", path);
    const teng_plugin *plugin = entry();
    if (!plugin || plugin->abi != TENG_PLUGIN_ABI)
        return tg_fail(TENG_FORMAT, "context.plugins: %s was built for plugin interface %d, this teng has %d",
                       path, plugin ? plugin->abi : 0, TENG_PLUGIN_ABI);
    for (int i = 0; plugin->ops && plugin->ops[i]; i++) {
        const teng_op_cases *cases = NULL;
        for (int c = 0; plugin->cases && plugin->cases[c]; c++)
            if (strcmp(plugin->cases[c]->op, plugin->ops[i]->name) == 0) cases = plugin->cases[c];
        if (!cases)
            return tg_fail(TENG_INVALID, "context.plugins: %s: operator %s has no case list", path,
                           plugin->ops[i]->name);
        if (tg_op_register(plugin->ops[i], cases) != TENG_OK)
            return tg_fail_context("context.plugins: %s", path);
    }
    return TENG_OK; /* the library stays loaded: specs point into it */
}

const teng_op_spec *teng_op_find(const char *name)
{
    return tg_op_find(name);
}
