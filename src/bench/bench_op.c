/*
 * Operators against the roofline: each kernel on the operator's own cases (the ones that tests use), with
 * their dimensions grown until the work is of the size of training. Williams, Waterman & Patterson 2009: no
 * run takes less than FLOPs ÷ peak and bytes ÷ bandwidth.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "device/cpu_gemm.h"
#include "device/cpu_info.h"
#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "op/builtin_cases.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <string.h>

#define MAX_FLOPS 4e9 /* of one run */
#define MAX_DIM 4096  /* of what is not rows */
#define MAX_WIDTH 64  /* innermost of four dimensions: the width of a head */
#define MAX_SAMPLES 256
#define DRAWS 16384 /* then they repeat */

typedef struct bench {
    const tg_bench_op_options *options;
    json_t *rows;
    double peak[TENG_DTYPE_COUNT], bandwidth; /* FLOP/s, bytes/s */
} bench;

typedef struct work { /* one case, in one dtype, grown */
    const teng_op_case *c;
    teng_dtype dtype;
    teng_desc in[TENG_CASE_MAX_IN], out[TENG_MAX_OUT];
    teng_op_call call;
    void *in_data[TENG_CASE_MAX_IN], *out_data[TENG_MAX_OUT];
} work;

/* ---- growing a case ---- */
static int64_t elements(const teng_op_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_in; i++)
        n += tg_desc_numel(&call->in[i]);
    for (int o = 0; o < call->n_out; o++)
        n += tg_desc_numel(&call->out[o]);
    return n;
}

/* Dimensions that are equal in the case count as one: all are doubled, or none. */
static bool grow_one(work *w, int64_t was, int64_t limit)
{
    teng_desc in[TENG_CASE_MAX_IN], out[TENG_MAX_OUT];
    int n_out;
    memcpy(in, w->in, sizeof in);
    for (int i = 0; i < w->c->n_in; i++)
        for (int d = 0; d < in[i].ndim; d++) {
            if (w->c->in[i].desc.dims[d] != was) continue;
            in[i].dims[d] *= 2;
            const bool inner = in[i].ndim == 4 && d == 3;
            if (d > 0 && in[i].dims[d] > (inner ? MAX_WIDTH : MAX_DIM)) return false;
        }
    if (tg_op_infer(w->call.op, w->c->attr, w->c->n_in, in, out, &n_out) != TENG_OK) {
        teng_error_clear();
        return false;
    }
    const teng_op_call grown = {w->call.op, w->c->attr, w->c->n_in, n_out, in, out};
    teng_cost cost;
    tg_op_cost(&grown, &cost);
    if (elements(&grown) > limit || cost.flops > MAX_FLOPS) return false;
    memcpy(w->in, in, sizeof in);
    memcpy(w->out, out, sizeof(teng_desc) * (size_t)n_out);
    return true;
}

static void grow(work *w, int64_t limit)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < w->c->n_in; i++)
            for (int d = 0; d < w->c->in[i].desc.ndim; d++) {
                const int64_t was = w->c->in[i].desc.dims[d];
                bool first = was > 1;
                for (int j = 0; j <= i && first; j++)
                    for (int e = 0; e < (j < i ? w->c->in[j].desc.ndim : d); e++)
                        if (w->c->in[j].desc.dims[e] == was) first = false;
                if (first && grow_one(w, was, limit)) again = true;
            }
    }
}

/* ---- operands ---- */
static double draw(const teng_case_input *spec, float normal, int64_t i)
{
    const double span = spec->hi - spec->lo, u = tg_rng_double(2, (uint64_t)i);
    switch (spec->fill) {
    case TENG_FILL_NORMAL:
        return spec->lo == 0 && spec->hi == 0 ? (double)normal : spec->lo + spec->hi * (double)normal;
    case TENG_FILL_UNIFORM:
        return spec->lo + span * u;
    case TENG_FILL_INTS:
        return spec->lo + (double)(int64_t)(span * u);
    case TENG_FILL_STEPS:
        return spec->lo + (double)i;
    default:
        return spec->lo;
    }
}

static void *make_input(const teng_desc *d, const teng_case_input *spec)
{
    static float normal[DRAWS];
    const int64_t n = tg_desc_numel(d), size = teng_dtype_size(d->dtype);
    const int64_t own = spec->fill == TENG_FILL_STEPS || n < DRAWS ? n : DRAWS;
    char *data = tg_alloc_aligned((size_t)(n * size) + 1);
    if (!data) return NULL;
    tg_rng_normal(1, 1, normal, DRAWS);
    for (int64_t i = 0; i < own; i++)
        tg_store_double(d->dtype, data, i, draw(spec, normal[i % DRAWS], i));
    for (int64_t i = own; i < n; i += own)
        memcpy(data + i * size, data, (size_t)((n - i < own ? n - i : own) * size));
    return data;
}

/* Rows of each group: the case's own would leave most of the grown rows without one. */
static bool is_group_sizes(const work *w, int i)
{
    return strncmp(w->call.op->name, "grouped_", 8) == 0 && w->in[i].dtype == TENG_I32 && w->in[i].ndim == 1;
}

static teng_status make_operands(work *w)
{
    for (int i = 0; i < w->c->n_in; i++) {
        teng_case_input spec = w->c->in[i];
        if (is_group_sizes(w, i) && w->in[i].dims[0] > 0) {
            spec.fill = TENG_FILL_CONST;
            spec.lo = (double)(w->in[0].dims[0] / w->in[i].dims[0]);
        }
        w->in_data[i] = make_input(&w->in[i], &spec);
        if (!w->in_data[i]) return TENG_MEMORY;
    }
    for (int k = 0; k < w->call.n_out; k++) {
        const int of = w->call.op->updates[k];
        w->out_data[k] = of ? w->in_data[of - 1] : tg_alloc_aligned(tg_desc_bytes(&w->out[k]) + 1);
        if (!w->out_data[k]) return TENG_MEMORY;
    }
    return TENG_OK;
}

static void free_operands(work *w)
{
    for (int k = 0; k < w->call.n_out; k++)
        if (!w->call.op->updates[k]) tg_free_aligned(w->out_data[k]);
    for (int i = 0; i < w->c->n_in; i++)
        tg_free_aligned(w->in_data[i]);
}

/* ---- one kernel ---- */
/* Times of as many runs as fit, at least three; n 0 when the kernel declines. */
static teng_status time_kernel(const work *w, const teng_kernel *kernel, double budget, tg_bench_stat *out)
{
    double seconds[MAX_SAMPLES];
    int n = 0;
    teng_prepared prepared = {0};
    *out = (tg_bench_stat){0};
    if (kernel->prepare) TG_TRY(kernel->prepare(&w->call, &prepared));
    void *space = tg_alloc_aligned(prepared.workspace + 1);
    const teng_kernel_args args = {.call = &w->call,
                                   .state = prepared.state,
                                   .in = (const void *const *)w->in_data,
                                   .out = w->out_data,
                                   .workspace = space};
    teng_status status = space ? kernel->run(&args) : TENG_MEMORY; /* warms up */
    const double start = tg_clock_seconds();
    double now = start;
    while (status == TENG_OK && n < MAX_SAMPLES && (n < 3 || now - start < budget)) {
        const double before = now;
        status = kernel->run(&args);
        now = tg_clock_seconds();
        seconds[n++] = now - before;
    }
    if (status == TENG_OK) *out = tg_bench_stat_of(seconds, n);
    tg_free_aligned(space);
    if (kernel->release && prepared.state) kernel->release(prepared.state);
    return status;
}

static teng_status put_row(bench *b, const work *w, const teng_kernel *kernel, int isa, tg_bench_stat s)
{
    char shape[TG_DESC_TEXT];
    teng_cost cost;
    tg_op_cost(&w->call, &cost);
    const double bytes = cost.bytes_read + cost.bytes_written;
    const double by_flops = cost.flops / b->peak[w->dtype], by_bytes = bytes / b->bandwidth;
    const tg_bench_stat us = {s.median * 1e6, s.min * 1e6, s.max * 1e6, s.n};
    tg_desc_text(shape, w->call.n_in ? &w->in[0] : &w->out[0]);
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:f, s:f, s:f}", "op", w->call.op->name,
                            "case", w->c->label, "dtype", teng_dtype_name(w->dtype), "input", shape, "kernel",
                            kernel->name, "isa", tg_cpu_isa_name(isa), "us", tg_bench_stat_json(us), "gflops",
                            cost.flops / s.median * 1e-9, "gb_s", bytes / s.median * 1e-9, "roofline",
                            (by_flops > by_bytes ? by_flops : by_bytes) / s.median);
    return json_array_append_new(b->rows, row) == 0 ? TENG_OK : TENG_MEMORY;
}

static teng_status bench_kernel(bench *b, const work *w, const teng_kernel *kernel, int isa)
{
    tg_bench_stat s;
    const teng_status status = time_kernel(w, kernel, b->options->seconds, &s);
    if (status != TENG_OK)
        return tg_fail_context("%s, case \"%s\", %s, kernel %s", w->call.op->name, w->c->label,
                               teng_dtype_name(w->dtype), kernel->name);
    return put_row(b, w, kernel, isa, s);
}

/* The level that the chosen kernel is from. */
static int level_of(const teng_op_spec *op, const teng_kernel *kernel)
{
    for (const teng_kernel_table *t = op->kernels; t->kernels; t++)
        for (const teng_kernel *k = t->kernels; k->name; k++)
            if (k == kernel) return t->isa;
    return 0;
}

static teng_status bench_kernels(bench *b, const work *w)
{
    const teng_op_spec *op = w->call.op;
    if (!b->options->all) {
        const teng_kernel *k = tg_kernel_select(&w->call, "cpu", tg_cpu_isa_current(), NULL);
        return k ? bench_kernel(b, w, k, level_of(op, k)) : teng_error_status();
    }
    for (const teng_kernel_table *t = op->kernels; t->kernels; t++) {
        if (strcmp(t->device, "cpu") != 0 || !tg_cpu_isa_available(t->isa) ||
            !tg_cpu_isa_allows(tg_cpu_isa_current(), t->isa))
            continue;
        for (const teng_kernel *k = t->kernels; k->name; k++)
            if (!k->accept || !k->accept(&w->call)) TG_TRY(bench_kernel(b, w, k, t->isa));
    }
    return TENG_OK;
}

/* ---- one case, one operator ---- */
static teng_status bench_case(bench *b, const teng_op_spec *op, const teng_op_case *c, teng_dtype dtype)
{
    work w = {.c = c, .dtype = dtype, .call = {.op = op, .attr = c->attr, .n_in = c->n_in}};
    w.call.in = w.in;
    w.call.out = w.out;
    for (int i = 0; i < c->n_in; i++) {
        w.in[i] = c->in[i].desc;
        if (tg_dtype_is_float(w.in[i].dtype) && !c->in[i].keep_dtype) w.in[i].dtype = dtype;
    }
    TG_TRY(tg_op_infer(op, c->attr, c->n_in, w.in, w.out, &w.call.n_out));
    grow(&w, b->options->elements);
    if (elements(&w.call) == 0) return TENG_OK;
    teng_status status = make_operands(&w);
    if (status == TENG_OK) status = bench_kernels(b, &w);
    free_operands(&w);
    return status;
}

static teng_status bench_op(bench *b, const teng_op_spec *op, const teng_dtype *dtypes, int n_dtypes)
{
    const teng_op_cases *cases = tg_op_cases_find(op->name);
    if (!op->kernels || !cases) return TENG_OK;
    if (b->options->progress) b->options->progress(b->options->user, op->name);
    for (int k = 0; k < n_dtypes; k++)
        for (int i = 0; i < cases->n && (i == 0 || b->options->all); i++)
            if (cases->dtypes >> dtypes[k] & 1u) TG_TRY(bench_case(b, op, &cases->list[i], dtypes[k]));
    return TENG_OK;
}

static bool is_asked(const tg_bench_op_options *o, const char *name)
{
    for (int i = 0; i < o->n_ops; i++)
        if (strcmp(o->ops[i], name) == 0) return true;
    return o->n_ops == 0;
}

static teng_status read_dtypes(const tg_bench_op_options *o, teng_dtype *dtypes, int *n)
{
    static const teng_dtype known[] = {TENG_F32, TENG_BF16, TENG_F16};
    *n = 0;
    for (int k = 0; k < 3; k++) {
        bool asked =
            o->n_dtypes == 0 && (known[k] == TENG_F32 || (known[k] == TENG_BF16 && tg_gemm_native(known[k])));
        for (int i = 0; i < o->n_dtypes; i++)
            asked = asked || strcmp(o->dtypes[i], teng_dtype_name(known[k])) == 0;
        if (asked) dtypes[(*n)++] = known[k];
    }
    for (int i = 0; i < o->n_dtypes; i++) {
        bool found = false;
        for (int k = 0; k < 3; k++)
            found = found || strcmp(o->dtypes[i], teng_dtype_name(known[k])) == 0;
        if (!found)
            return tg_fail(TENG_INVALID, "--dtype \"%.40s\": known are f32, bf16 and f16", o->dtypes[i]);
    }
    return TENG_OK;
}

static teng_status measure_machine(bench *b, const teng_dtype *dtypes, int n)
{
    tg_cpu_rates r;
    for (int k = 0; k < n; k++) {
        tg_bench_stat s;
        TG_TRY(tg_bench_matmul_peak(dtypes[k], b->options->seconds, &s));
        b->peak[dtypes[k]] = s.max * 1e9;
    }
    TG_TRY(tg_cpu_time_stream(TG_CPU_TRIAD, b->options->seconds, &r));
    b->bandwidth = tg_bench_stat_of(r.rate, r.n).max * 1e9;
    return TENG_OK;
}

static teng_status measure(bench *b)
{
    teng_dtype dtypes[3];
    int n;
    TG_TRY(tg_op_register_builtin());
    TG_TRY(read_dtypes(b->options, dtypes, &n));
    for (int i = 0; i < b->options->n_ops; i++)
        if (!tg_op_find(b->options->ops[i])) return teng_error_status();
    TG_TRY(measure_machine(b, dtypes, n));
    for (int i = 0; i < tg_op_count(); i++)
        if (is_asked(b->options, tg_op_at(i)->name)) TG_TRY(bench_op(b, tg_op_at(i), dtypes, n));
    return TENG_OK;
}

teng_status tg_bench_op(const tg_bench_op_options *options, json_t **out)
{
    tg_device *dev = NULL;
    bench b = {.options = options, .rows = json_array()};
    teng_status status = b.rows ? tg_device_open("cpu", options->threads, &dev) : TENG_MEMORY;
    if (status == TENG_OK) status = measure(&b);
    if (status == TENG_OK)
        status = tg_bench_answer(json_pack("{s:O, s:f}", "ops", b.rows, "bandwidth_gb_s", b.bandwidth * 1e-9),
                                 out);
    else if (teng_error_status() == TENG_OK)
        tg_fail(status, "measuring operators: out of memory");
    json_decref(b.rows);
    tg_device_close(&dev);
    return status;
}
