/*
 * Times operators: every kernel of every instruction set on the operators' own cases, with the first
 * dimension grown so that the work no longer fits a cache.
 *
 *     bench_ops [OPERATOR] [--json] [--elements N] [--ms N]
 *
 * One line a kernel and dtype: best time of a run, GB/s and GFLOP/s by the operator's cost rule. --elements:
 * inputs grow up to so many elements in all (default 4194304); --ms: time spent on each line (default 100).
 */
#include "op_harness.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *op;
    bool json;
    int64_t elements;
    double seconds;
} options;

typedef struct bench {
    teng_desc in[TENG_CASE_MAX_IN], out[TENG_MAX_OUT];
    teng_op_call call;
    void *in_data[TENG_CASE_MAX_IN], *out_data[TENG_MAX_OUT];
} bench;

static int64_t elements(const teng_op_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_in; i++)
        n += tg_desc_numel(&call->in[i]);
    for (int o = 0; o < call->n_out; o++)
        n += tg_desc_numel(&call->out[o]);
    return n;
}

/* Doubles the first dimension of every input that shares the first input's, as long as the operator agrees.
 */
static void grow(bench *b, const teng_op_case *c, int64_t limit)
{
    while (b->in[0].ndim > 0 && b->in[0].dims[0] > 0 && elements(&b->call) * 2 <= limit) {
        teng_desc in[TENG_CASE_MAX_IN], out[TENG_MAX_OUT];
        int n_out;
        memcpy(in, b->in, sizeof in);
        for (int i = 0; i < c->n_in; i++)
            if (in[i].ndim > 0 && in[i].dims[0] == b->in[0].dims[0] && in[i].ndim == b->in[0].ndim)
                in[i].dims[0] *= 2;
        for (int i = 0; i < c->n_in; i++) /* labels and statistics of the same rows */
            if (in[i].ndim > 0 && in[i].dims[0] == b->in[0].dims[0] && in[i].ndim == b->in[0].ndim - 1 &&
                in[0].ndim > 1)
                in[i].dims[0] *= 2;
        if (tg_op_infer(b->call.op, c->attr, c->n_in, in, out, &n_out) != TENG_OK) {
            teng_error_clear();
            return;
        }
        memcpy(b->in, in, sizeof in);
        memcpy(b->out, out, sizeof(teng_desc) * (size_t)n_out);
    }
}

/* A block of draws, repeated. */
static void *make_input(const teng_desc *d, const teng_case_input *spec)
{
    enum { BLOCK = 16384 };
    static float draw[BLOCK];
    const int64_t n = tg_desc_numel(d), size = teng_dtype_size(d->dtype);
    char *data = tg_alloc_aligned((size_t)(n * size) + 1);
    if (!data) return NULL;
    tg_rng_normal(1, 1, draw, BLOCK);
    for (int64_t i = 0; i < n && i < BLOCK; i++) {
        const double u = tg_rng_double(2, (uint64_t)i), span = spec->hi - spec->lo;
        double v = spec->lo;
        if (spec->fill == TENG_FILL_NORMAL)
            v = spec->lo == 0 && spec->hi == 0 ? (double)draw[i] : spec->lo + spec->hi * (double)draw[i];
        else if (spec->fill == TENG_FILL_UNIFORM)
            v = spec->lo + span * u;
        else if (spec->fill == TENG_FILL_INTS)
            v = spec->lo + (double)(int64_t)(span * u);
        else if (spec->fill == TENG_FILL_STEPS)
            v = spec->lo + (double)i;
        tg_store_double(d->dtype, data, i, v);
    }
    for (int64_t i = BLOCK; i < n; i += BLOCK)
        memcpy(data + i * size, data, (size_t)((n - i < BLOCK ? n - i : BLOCK) * size));
    return data;
}

static void print_line(const bench *b, const options *o, const teng_op_case *c, teng_dtype dtype,
                       const char *kernel, int isa, double seconds)
{
    teng_cost cost;
    char shape[TG_DESC_TEXT];
    tg_op_cost(&b->call, &cost);
    const double gb = (cost.bytes_read + cost.bytes_written) / seconds * 1e-9,
                 gflops = cost.flops / seconds * 1e-9;
    tg_desc_text(shape, b->call.n_in ? &b->in[0] : &b->out[0]);
    if (o->json)
        printf("{\"op\":\"%s\",\"case\":\"%s\",\"dtype\":\"%s\",\"input\":\"%s\",\"kernel\":\"%s\",\"isa\":"
               "\"%s\",\"us\":%.3f,"
               "\"gb_s\":%.3f,\"gflops\":%.3f}\n",
               b->call.op->name, c->label, teng_dtype_name(dtype), shape, kernel, tg_cpu_isa_name(isa),
               seconds * 1e6, gb, gflops);
    else
        printf("%-26s %-18.18s %-22s %-5s %-14.14s %10.1f us %8.2f GB/s %9.2f GFLOP/s\n", b->call.op->name,
               c->label, shape, tg_cpu_isa_name(isa), kernel, seconds * 1e6, gb, gflops);
    fflush(stdout);
}

/* Best of as many runs as fit the time; negative when the kernel fails. */
static double time_kernel(const bench *b, const teng_kernel *kernel, double budget)
{
    teng_prepared prepared = {0};
    if (kernel->prepare && kernel->prepare(&b->call, &prepared) != TENG_OK) return -1;
    void *work = tg_alloc_aligned(prepared.workspace + 1);
    const teng_kernel_args args = {.call = &b->call,
                                   .state = prepared.state,
                                   .in = (const void *const *)b->in_data,
                                   .out = b->out_data,
                                   .workspace = work};
    double best = -1;
    const double start = tg_clock_seconds();
    for (int runs = 0; work && (runs < 3 || tg_clock_seconds() - start < budget); runs++) {
        const double begin = tg_clock_seconds();
        if (kernel->run(&args) != TENG_OK) break;
        const double took = tg_clock_seconds() - begin;
        if (best < 0 || took < best) best = took;
    }
    tg_free_aligned(work);
    if (kernel->release && prepared.state) kernel->release(prepared.state);
    return best;
}

static void bench_case(const teng_op_spec *op, const teng_op_case *c, teng_dtype dtype, const options *o)
{
    bench b = {.call = {.op = op, .attr = c->attr, .n_in = c->n_in}};
    b.call.in = b.in;
    b.call.out = b.out;
    for (int i = 0; i < c->n_in; i++) {
        b.in[i] = c->in[i].desc;
        if (tg_dtype_is_float(b.in[i].dtype) && !c->in[i].keep_dtype) b.in[i].dtype = dtype;
    }
    if (tg_op_infer(op, c->attr, c->n_in, b.in, b.out, &b.call.n_out) != TENG_OK) return;
    if (c->n_in > 0) grow(&b, c, o->elements);
    for (int i = 0; i < c->n_in; i++)
        b.in_data[i] = make_input(&b.in[i], &c->in[i]);
    for (int k = 0; k < b.call.n_out; k++)
        b.out_data[k] =
            op->updates[k] ? b.in_data[op->updates[k] - 1] : tg_alloc_aligned(tg_desc_bytes(&b.out[k]) + 1);
    for (const teng_kernel_table *t = op->kernels; t->kernels; t++) {
        if (strcmp(t->device, "cpu") != 0 || !tg_cpu_isa_available(t->isa)) continue;
        for (const teng_kernel *k = t->kernels; k->name; k++) {
            if (k->accept && k->accept(&b.call)) continue;
            const double seconds = time_kernel(&b, k, o->seconds);
            if (seconds > 0) print_line(&b, o, c, dtype, k->name, t->isa, seconds);
        }
    }
    for (int k = 0; k < b.call.n_out; k++)
        if (!op->updates[k]) tg_free_aligned(b.out_data[k]);
    for (int i = 0; i < c->n_in; i++)
        tg_free_aligned(b.in_data[i]);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_ops [OPERATOR] [--json] [--elements N] [--ms N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const teng_dtype dtypes[] = {TENG_F32, TENG_BF16, TENG_F16};
    options o = {.elements = 1 << 22, .seconds = 0.1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            o.json = true;
        else if (strcmp(argv[i], "--elements") == 0 && i + 1 < argc)
            o.elements = strtoll(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--ms") == 0 && i + 1 < argc)
            o.seconds = strtod(argv[++i], NULL) * 1e-3;
        else if (argv[i][0] != '-' && !o.op)
            o.op = argv[i];
        else
            return usage();
    }
    if (tg_op_register_builtin() != TENG_OK || (o.op && !tg_op_find(o.op))) {
        fprintf(stderr, "bench_ops: %s\n", teng_error());
        return 1;
    }
    for (int i = 0; i < tg_op_count(); i++) {
        const teng_op_spec *op = tg_op_at(i);
        const teng_op_cases *cases = tg_harness_cases(op->name);
        if ((o.op && strcmp(o.op, op->name) != 0) || !op->kernels || !cases) continue;
        for (int c = 0; c < cases->n; c++)
            for (int k = 0; k < 3; k++)
                if (cases->dtypes >> dtypes[k] & 1u) bench_case(op, &cases->list[c], dtypes[k], &o);
    }
    return 0;
}
