/*
 * The harness's kernel checks: every kernel of every instruction set that this machine has and that accepts
 * the case is run several times on guarded buffers. The runs differ in threads, in what outputs and workspace
 * held before, and in which output shares an input's buffer; they must not differ in a bit of the result.
 */
#include "op_harness_impl.h"

#include "device/cpu_gemm.h"
#include "device/cpu_isa.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define GUARD 64
#define GUARD_BYTE 0xA5

typedef struct buffer {
    unsigned char *base, *data;
    size_t bytes;
} buffer;

static buffer buffer_make(size_t bytes, int fill)
{
    buffer b = {.base = tg_alloc_aligned(bytes + 2 * GUARD), .bytes = bytes};
    b.data = b.base + GUARD;
    memset(b.base, GUARD_BYTE, bytes + 2 * GUARD);
    memset(b.data, fill, bytes);
    return b;
}

static bool buffer_guarded(const buffer *b)
{
    for (int i = 0; i < GUARD; i++)
        if (b->base[i] != GUARD_BYTE || b->data[b->bytes + (size_t)i] != GUARD_BYTE) return false;
    return true;
}

static void buffer_free(buffer *b)
{
    tg_free_aligned(b->base);
    *b = (buffer){0};
}

/* One kernel on one case. */
typedef struct trial {
    hx *h;
    const hx_case *x;
    const teng_kernel *kernel;
    int isa;
    teng_prepared prepared;
    buffer first[TENG_MAX_OUT]; /* what the first run gave */
} trial;

typedef struct variant {
    const char *name;
    int threads;
    int fill;             /* byte in outputs and workspace before the run */
    int share_o, share_i; /* output share_o in the buffer of input share_i; -1: none */
} variant;

static void fail(trial *t, const variant *v, const char *what, int which)
{
    hx_fail(t->h, t->x, "kernel \"%s\" (%s), %s: %s %d", t->kernel->name, tg_cpu_isa_name(t->isa), v->name,
            what, which);
}

static void compare(trial *t, const variant *v, const buffer *out);

static void run(trial *t, const variant *v)
{
    const teng_op_call *call = &t->x->call;
    buffer in[TENG_CASE_MAX_IN] = {0}, was[TENG_CASE_MAX_IN] = {0}, out[TENG_MAX_OUT] = {0};
    const void *in_data[TENG_CASE_MAX_IN];
    void *out_data[TENG_MAX_OUT];
    int shares[TENG_CASE_MAX_IN];
    for (int i = 0; i < call->n_in; i++) {
        const int64_t n = tg_desc_numel(&call->in[i]);
        was[i] = buffer_make(tg_desc_bytes(&call->in[i]), 0);
        tg_convert(call->in[i].dtype, was[i].data, TENG_F64, t->x->in64[i], n);
        in[i] = buffer_make(was[i].bytes, 0);
        memcpy(in[i].data, was[i].data, was[i].bytes);
        in_data[i] = in[i].data;
        shares[i] = 0;
    }
    for (int o = 0; o < call->n_out; o++) {
        const int shared = t->x->op->updates[o] ? t->x->op->updates[o] - 1
                           : v->share_o == o    ? v->share_i
                                                : -1;
        if (shared >= 0) {
            out[o] = in[shared];
            shares[shared] = 1;
        } else {
            out[o] = buffer_make(tg_desc_bytes(&call->out[o]), v->fill);
        }
        out_data[o] = out[o].data;
    }
    buffer work = buffer_make(t->prepared.workspace, v->fill);
    const teng_kernel_args args = {
        .call = call, .state = t->prepared.state, .in = in_data, .out = out_data, .workspace = work.data};
    omp_set_num_threads(v->threads);
    const uint64_t allocations = tg_alloc_count();
    if (t->kernel->run(&args) != TENG_OK) fail(t, v, "run fails", 0);
    if (tg_alloc_count() != allocations)
        fail(t, v, "run allocates, times", (int)(tg_alloc_count() - allocations));
    compare(t, v, out);
    if (!buffer_guarded(&work)) fail(t, v, "writes outside its workspace of KiB", (int)(work.bytes / 1024));
    for (int o = 0; o < call->n_out; o++) {
        if (!buffer_guarded(&out[o])) fail(t, v, "writes outside output", o);
        if (v->share_o != o && !t->x->op->updates[o]) buffer_free(&out[o]);
    }
    for (int i = 0; i < call->n_in; i++) {
        if (!buffer_guarded(&in[i])) fail(t, v, "writes outside input", i);
        if (!shares[i] && memcmp(in[i].data, was[i].data, was[i].bytes) != 0) fail(t, v, "changes input", i);
        buffer_free(&in[i]);
        buffer_free(&was[i]);
    }
    buffer_free(&work);
}

static double tolerance(const hx_case *x, int o)
{
    static const double standard[] = {1e-6, 8e-3, 1e-3};
    const double stated[] = {x->cases->tol_f32, x->cases->tol_bf16, x->cases->tol_f16};
    int coarsest = 0; /* of the floating inputs and this output: f32, f16, bf16 */
    for (int i = -1; i < x->call.n_in; i++) {
        const teng_dtype t = i < 0 ? x->out[o].dtype : x->in[i].dtype;
        if (t == TENG_BF16) coarsest = 1;
        if (t == TENG_F16 && coarsest == 0) coarsest = 2;
    }
    return stated[coarsest] > 0 ? stated[coarsest] : standard[coarsest];
}

/* The first run is compared with the reference and kept; the others must give its bits. */
static void compare(trial *t, const variant *v, const buffer *out)
{
    const hx_case *x = t->x;
    for (int o = 0; o < x->call.n_out; o++) {
        if (t->first[o].base) {
            if (memcmp(out[o].data, t->first[o].data, out[o].bytes) != 0)
                fail(t, v, "gives other bits in output", o);
            continue;
        }
        t->first[o] = buffer_make(out[o].bytes, 0);
        memcpy(t->first[o].data, out[o].data, out[o].bytes);
        const int64_t n = tg_desc_numel(&x->out[o]);
        double *got = tg_alloc(sizeof(double) * (size_t)(n + 1));
        for (int64_t i = 0; i < n; i++)
            got[i] = tg_load_double(x->out[o].dtype, out[o].data, i);
        const double limit = tg_dtype_is_float(x->out[o].dtype) ? tolerance(x, o) : 0;
        const double distance = hx_distance(got, x->out64[o], n);
        if (!(distance <= limit))
            hx_fail(t->h, x, "kernel \"%s\" (%s): output %d is %.3g from the reference, limit %g",
                    t->kernel->name, tg_cpu_isa_name(t->isa), o, distance, limit);
        tg_free(got);
    }
}

static void try_kernel(hx *h, const hx_case *x, const teng_kernel *kernel, int isa)
{
    trial t = {.h = h, .x = x, .kernel = kernel, .isa = isa};
    const int threads = omp_get_max_threads();
    /* oneDNN's products for arm64 cut the sums even of small cases by threads, unless strict. */
    tg_gemm_set_strict(isa == TG_CPU_neon);
    if (kernel->prepare && kernel->prepare(&x->call, &t.prepared) != TENG_OK) {
        hx_fail(h, x, "kernel \"%s\" (%s): prepare fails", kernel->name, tg_cpu_isa_name(isa));
        return;
    }
    run(&t, &(variant){"one thread", 1, 0xFF, -1, -1});
    run(&t, &(variant){"two threads", 2, 0x3C, -1, -1});
    run(&t, &(variant){"three threads", 3, 0x00, -1, -1});
    for (int o = 0; o < x->call.n_out; o++)
        for (int i = 0; i < x->call.n_in; i++)
            if (x->op->inplace[o] >> i & 1u && tg_desc_bytes(&x->in[i]) == tg_desc_bytes(&x->out[o]))
                run(&t, &(variant){"in place", 2, 0xFF, o, i});
    for (int o = 0; o < x->call.n_out; o++)
        buffer_free(&t.first[o]);
    if (kernel->release && t.prepared.state) kernel->release(t.prepared.state);
    omp_set_num_threads(threads);
}

/* A view moves nothing: same bytes, same values in the same order. */
static void check_view(hx *h, const hx_case *x)
{
    const int64_t offset = x->op->view_offset ? x->op->view_offset(&x->call) : 0,
                  n = tg_desc_numel(&x->out[0]), size = teng_dtype_size(x->in[0].dtype);
    const size_t end = (size_t)offset + tg_desc_bytes(&x->out[0]), whole = tg_desc_bytes(&x->in[0]);
    if ((x->op->view_offset ? end > whole : end != whole) || x->out[0].dtype != x->in[0].dtype)
        hx_fail(h, x, "a view that changes its size");
    else if (hx_distance(x->out64[0], x->in64[0] + offset / size, n) > 0)
        hx_fail(h, x, "a view whose reference changes values");
}

void hx_check_kernels(hx *h, const hx_case *x)
{
    if (h->op->traits & TENG_OP_VIEW) check_view(h, x);
    if (!h->op->kernels) return;
    for (int isa = 0; isa < TG_CPU_COUNT; isa++) {
        tg_strbuf why = {0};
        if (tg_cpu_isa_available(isa) && !tg_kernel_select(&x->call, "cpu", isa, &why))
            hx_fail(h, x, "nothing runs on %s", tg_cpu_isa_name(isa));
        tg_strbuf_free(&why);
    }
    for (const teng_kernel_table *t = h->op->kernels; t->kernels; t++) {
        if (strcmp(t->device, "cpu") != 0 || !tg_cpu_isa_available(t->isa)) continue;
        for (const teng_kernel *k = t->kernels; k->name; k++)
            if (!k->accept || !k->accept(&x->call)) try_kernel(h, x, k, t->isa);
    }
}
