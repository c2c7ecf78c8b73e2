/* The harness's walk over an operator's cases; see op_harness.h. */
#include "op_harness_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void hx_fail(hx *h, const hx_case *x, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    tg_strbuf_puts(h->report, h->op->name);
    if (x) tg_strbuf_printf(h->report, ", %s, %s", x->c->label, teng_dtype_name(x->dtype));
    tg_strbuf_printf(h->report, ": %s%s%s\n", text, *teng_error() ? ": " : "", teng_error());
    teng_error_clear();
    h->failures++;
}

double *hx_normal(const hx_case *x, const char *purpose, int64_t n)
{
    char name[200];
    snprintf(name, sizeof name, "%s/%s/%s", x->op->name, x->c->label, purpose);
    float *draw = tg_alloc(sizeof(float) * (size_t)(n + 1));
    double *out = tg_alloc(sizeof(double) * (size_t)(n + 1));
    tg_rng_normal(tg_rng_key(1, name), 1, draw, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)draw[i];
    tg_free(draw);
    return out;
}

/* Input i of a case, rounded to its dtype. */
static double *make_input(const hx_case *x, int i)
{
    const teng_case_input *spec = &x->c->in[i];
    const int64_t n = tg_desc_numel(&x->in[i]);
    char purpose[40], name[200];
    snprintf(purpose, sizeof purpose, "input %d", i);
    snprintf(name, sizeof name, "%s/%s/%s", x->op->name, x->c->label, purpose);
    const uint64_t key = tg_rng_key(1, name);
    double *v = hx_normal(x, purpose, n);
    const bool standard = spec->lo == 0 && spec->hi == 0;
    for (int64_t k = 0; k < n; k++) {
        if (spec->fill == TENG_FILL_NORMAL)
            v[k] = standard ? v[k] : spec->lo + spec->hi * v[k];
        else if (spec->fill == TENG_FILL_UNIFORM)
            v[k] = spec->lo + (spec->hi - spec->lo) * tg_rng_double(key, (uint64_t)k);
        else if (spec->fill == TENG_FILL_INTS)
            v[k] = spec->lo + (double)tg_rng_below(key, (uint64_t)k, (uint64_t)(spec->hi - spec->lo));
        else
            v[k] = spec->lo + (spec->fill == TENG_FILL_STEPS ? (double)k : 0);
        uint64_t room;
        tg_store_double(x->in[i].dtype, &room, 0, v[k]);
        v[k] = tg_load_double(x->in[i].dtype, &room, 0);
    }
    return v;
}

teng_status hx_reference(const teng_op_cases *cases, const teng_op_call *call, const double *const *in,
                         double **out)
{
    for (int o = 0; o < call->n_out; o++)
        out[o] = tg_calloc((size_t)tg_desc_numel(&call->out[o]) + 1, sizeof(double));
    return cases->reference(call, in, out);
}

bool hx_case_open(hx *h, const teng_op_case *c, teng_dtype dtype, hx_case *x)
{
    *x = (hx_case){.op = h->op, .cases = h->cases, .c = c, .dtype = dtype};
    for (int i = 0; i < c->n_in; i++) {
        x->in[i] = c->in[i].desc;
        if (tg_dtype_is_float(x->in[i].dtype) && !c->in[i].keep_dtype) x->in[i].dtype = dtype;
        x->in64[i] = make_input(x, i);
    }
    x->call = (teng_op_call){.op = h->op, .attr = c->attr, .n_in = c->n_in, .in = x->in, .out = x->out};
    if (tg_op_infer(h->op, c->attr, c->n_in, x->in, x->out, &x->call.n_out) != TENG_OK) {
        hx_fail(h, x, "infer refuses the case");
        return false;
    }
    if (hx_reference(h->cases, &x->call, (const double *const *)x->in64, x->out64) != TENG_OK) {
        hx_fail(h, x, "the reference fails");
        return false;
    }
    return true;
}

void hx_case_free(hx_case *x)
{
    for (int i = 0; i < TENG_CASE_MAX_IN; i++)
        tg_free(x->in64[i]);
    for (int o = 0; o < TENG_MAX_OUT; o++)
        tg_free(x->out64[o]);
    *x = (hx_case){0};
}

double hx_distance(const double *a, const double *b, int64_t n)
{
    double gap = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(b[i]) || !isfinite(a[i])) {
            if (!(isnan(a[i]) && isnan(b[i])) && a[i] != b[i]) return INFINITY;
            continue;
        }
        gap += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 0 ? sqrt(gap / norm) : sqrt(gap);
}

/* Attributes print and read back; every field counts in the comparison by its text. */
static void check_attr(hx *h, const hx_case *x)
{
    if (!h->op->attr_size) return;
    tg_strbuf text = {0}, again = {0};
    void *back = tg_calloc(1, h->op->attr_size);
    const char *end = NULL;
    if (!x->c->attr) {
        hx_fail(h, x, "the case lacks attributes");
    } else {
        tg_attr_print(h->op, x->c->attr, &text);
        if (tg_attr_parse(h->op, tg_strbuf_str(&text), &end, back) != TENG_OK)
            hx_fail(h, x, "attributes %s do not parse", tg_strbuf_str(&text));
        else if (!tg_attr_equal(h->op, x->c->attr, back) || *end)
            hx_fail(h, x, "attributes %s read back differently", tg_strbuf_str(&text));
        tg_attr_print(h->op, back, &again);
        if (strcmp(tg_strbuf_str(&text), tg_strbuf_str(&again)) != 0)
            hx_fail(h, x, "attributes %s print as %s after reading", tg_strbuf_str(&text),
                    tg_strbuf_str(&again));
    }
    tg_free(back);
    tg_strbuf_free(&text);
    tg_strbuf_free(&again);
}

/* What inference must refuse: a wrong number of inputs, and types it does not take, naming what it saw. */
static void check_infer(hx *h, const hx_case *x)
{
    teng_desc in[TENG_CASE_MAX_IN + 1], out[TENG_MAX_OUT];
    int n_out = 0;
    memcpy(in, x->in, sizeof x->in);
    if (h->op->n_out > 0 && x->call.n_out != h->op->n_out)
        hx_fail(h, x, "infer gives %d outputs, the spec says %d", x->call.n_out, h->op->n_out);
    if (h->op->min_in > 0 && tg_op_infer(h->op, x->c->attr, h->op->min_in - 1, in, out, &n_out) == TENG_OK)
        hx_fail(h, x, "infer accepts %d inputs", h->op->min_in - 1);
    teng_error_clear();
    for (int i = 0; i < x->call.n_in; i++) {
        in[i] = tg_desc_make(TENG_BOOL, 3, (int64_t[]){3, 1, 2});
        if (tg_op_infer(h->op, x->c->attr, x->call.n_in, in, out, &n_out) != TENG_OK) {
            if (!strstr(teng_error(), "bool[3,1,2]"))
                hx_fail(h, x, "the error for input %d hides what it was", i);
            teng_error_clear();
        }
        in[i] = x->in[i];
    }
    teng_cost cost;
    tg_op_cost(&x->call, &cost);
    const double parts[] = {cost.flops, cost.bytes_read, cost.bytes_written};
    for (int k = 0; k < 3; k++)
        if (!isfinite(parts[k]) || parts[k] < 0) hx_fail(h, x, "the cost holds %g", parts[k]);
}

static void check_case(hx *h, const teng_op_case *c)
{
    static const teng_dtype dtypes[] = {TENG_F32, TENG_BF16, TENG_F16};
    for (int k = 0; k < 3; k++) {
        hx_case x;
        if (!(h->cases->dtypes >> dtypes[k] & 1u)) continue;
        if (hx_case_open(h, c, dtypes[k], &x)) {
            hx_check_kernels(h, &x);
            if (k == 0) {
                check_attr(h, &x);
                check_infer(h, &x);
                hx_check_grad(h, &x);
                hx_check_place(h, &x);
            }
        }
        hx_case_free(&x);
    }
}

int tg_harness_check(const teng_op_spec *op, const teng_op_cases *cases, tg_strbuf *report)
{
    hx h = {.op = op, .cases = cases, .report = report};
    teng_error_clear();
    if (tg_op_check(op) != TENG_OK) hx_fail(&h, NULL, "the spec is incomplete");
    if (!cases || cases->n < 1 || !cases->reference) {
        hx_fail(&h, NULL, "there are no cases");
        return h.failures;
    }
    if (strcmp(cases->op, op->name) != 0) hx_fail(&h, NULL, "the case list is of %s", cases->op);
    if (!(cases->dtypes >> TENG_F32 & 1u)) hx_fail(&h, NULL, "the case list leaves out f32");
    for (int i = 0; i < cases->n; i++)
        check_case(&h, &cases->list[i]);
    if (op->grad && h.used_in != op->grad_in)
        hx_fail(&h, NULL, "grad_in is 0x%x, over all cases the gradient reads inputs 0x%x", op->grad_in,
                h.used_in);
    if (op->grad && h.used_out != op->grad_out)
        hx_fail(&h, NULL, "grad_out is 0x%x, over all cases the gradient reads outputs 0x%x", op->grad_out,
                h.used_out);
    if (op->place && h.rules_checked == 0) hx_fail(&h, NULL, "no case can be cut by any placement rule");
    return h.failures;
}
