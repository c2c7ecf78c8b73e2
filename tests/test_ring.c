/*
 * ring_attention among as many ranks as this is started with, against attention on the whole sequence, which
 * every rank computes by itself: causal in pairs of pieces, windows that end in other pieces, all against
 * all, grouped heads, each dtype, and the gradients.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "op/op_list.h"
#include "op/ring_attention/ring_attention.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "ranks_world.h"

#include <math.h>
#include <string.h>

static tg_comm *comm;
static int rank, ranks;
enum { B = 2, H = 4, G = 2, D = 16, AXES = 1 << TG_AXIS_CONTEXT };

static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                       const void *const *data, void *const *out)
{
    teng_desc out_desc[TENG_MAX_OUT];
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in, .out = out_desc};
    teng_prepared prepared = {0};
    if (tg_op_infer(op, attr, n_in, in, out_desc, &call.n_out) != TENG_OK) fail_msg("%s", teng_error());
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", tg_cpu_isa_current(), NULL);
    assert_non_null(kernel);
    assert_int_equal(kernel->prepare(&call, &prepared), TENG_OK);
    void *workspace = tg_alloc_aligned(prepared.workspace);
    memset(workspace, 0xff, prepared.workspace); /* NaN: nothing of it may be read before it is written */
    const teng_kernel_args args = {&call, prepared.state, data, out, workspace, NULL};
    const teng_status status = kernel->run(&args);
    kernel->release(prepared.state);
    tg_free_aligned(workspace);
    return status;
}

/* One operand: all of it, and this rank's rows. rows: 1 [B, t, heads, D], 2 [B, heads, t]. */
typedef struct operand {
    teng_desc whole, own;
    char *all, *mine;
} operand;

static int64_t row_of(const tg_ring_attr *a, int64_t t, int64_t r)
{
    const int64_t rows = t / tg_ring_pieces(a);
    return tg_ring_begin(a, rows, a->index, r / rows) + r % rows;
}

static void take_rows(const tg_ring_attr *a, const operand *x, char *mine)
{
    const int dim = x->own.ndim == 3 ? 2 : 1;
    const size_t size = (size_t)teng_dtype_size(x->own.dtype);
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < x->own.ndim; d++) {
        if (d < dim) outer *= x->own.dims[d];
        if (d > dim) inner *= x->own.dims[d];
    }
    const int64_t t = x->own.dims[dim], all = x->whole.dims[dim];
    const size_t bytes = size * (size_t)inner;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < t; r++)
            memcpy(mine + (size_t)(o * t + r) * bytes, x->all + (size_t)(o * all + row_of(a, t, r)) * bytes,
                   bytes);
}

static operand operand_of(const tg_ring_attr *a, teng_dtype dtype, int64_t t, int64_t heads, bool lse)
{
    operand x = {.own = lse ? tg_desc_make(TENG_F32, 3, (int64_t[]){B, heads, t})
                            : tg_desc_make(dtype, 4, (int64_t[]){B, t, heads, D})};
    x.whole = x.own;
    x.whole.dims[lse ? 2 : 1] *= a->parts;
    x.all = tg_calloc(tg_desc_bytes(&x.whole) + 1, 1);
    x.mine = tg_calloc(tg_desc_bytes(&x.own) + 1, 1);
    return x;
}

static void fill(const tg_ring_attr *a, operand *x, const char *name)
{
    const int64_t n = tg_desc_numel(&x->whole);
    float *draw = tg_alloc(sizeof *draw * (size_t)(n + 1));
    tg_rng_normal(tg_rng_key(9, name), 1, draw, n);
    for (int64_t i = 0; i < n; i++)
        tg_store_double(x->whole.dtype, x->all, i, (double)draw[i]);
    tg_free(draw);
    take_rows(a, x, x->mine);
}

/* This rank's rows of what the whole gives are what the ring gave. */
static void near(const tg_ring_attr *a, const operand *x, const char *what)
{
    const int64_t n = tg_desc_numel(&x->own);
    char *want = tg_alloc(tg_desc_bytes(&x->own) + 1);
    double gap = 0, norm = 0;
    take_rows(a, x, want);
    for (int64_t i = 0; i < n; i++) {
        const double w = tg_load_double(x->own.dtype, want, i), g = tg_load_double(x->own.dtype, x->mine, i);
        gap += (g - w) * (g - w);
        norm += w * w;
    }
    tg_free(want);
    const teng_dtype t = x->own.dtype;
    const double most = t == TENG_F32 ? 2e-6 : t == TENG_BF16 ? 1e-2 : 1.5e-3;
    if (!(sqrt(gap) <= most * sqrt(norm) + 1e-12))
        fail_msg("rank %d of %d: %s of causal %d, window %d in %s is %.3g from the whole", rank, ranks, what,
                 (int)a->options.causal, (int)a->options.window, teng_dtype_name(t), sqrt(gap / norm));
}

static void check(teng_attention_options options, teng_dtype dtype, int64_t t)
{
    const tg_ring_attr a = {options, AXES, ranks, rank};
    enum { Q, K, V, Y, LSE, DY, DQ, DK, DV, N };
    static const char *const names[N] = {"q", "k", "v", "y", "lse", "dy", "dq", "dk", "dv"};
    operand x[N];
    teng_desc whole[N], own[N];
    void *all[N], *mine[N];
    for (int i = 0; i < N; i++) {
        const bool grouped = i == K || i == V || i == DK || i == DV;
        x[i] = operand_of(&a, dtype, t, grouped ? G : H, i == LSE);
        if (i <= V || i == DY) fill(&a, &x[i], names[i]);
        whole[i] = x[i].whole;
        own[i] = x[i].own;
        all[i] = x[i].all;
        mine[i] = x[i].mine;
    }
    assert_int_equal(run(&tg_op_attention, &options, 3, whole, (const void *const *)all, &all[Y]), TENG_OK);
    if (run(&tg_op_ring_attention, &a, 3, own, (const void *const *)mine, &mine[Y]) != TENG_OK)
        fail_msg("%s", teng_error());
    assert_int_equal(run(&tg_op_attention_grad, &options, 6, whole, (const void *const *)all, &all[DQ]),
                     TENG_OK);
    if (run(&tg_op_ring_attention_grad, &a, 6, own, (const void *const *)mine, &mine[DQ]) != TENG_OK)
        fail_msg("%s", teng_error());
    const int outputs[] = {Y, LSE, DQ, DK, DV};
    for (int i = 0; i < 5; i++)
        near(&a, &x[outputs[i]], names[outputs[i]]);
    for (int i = 0; i < N; i++) {
        tg_free(x[i].all);
        tg_free(x[i].mine);
    }
}

static void against_the_whole(void **state)
{
    (void)state;
    static const teng_dtype dtypes[] = {TENG_F32, TENG_BF16, TENG_F16};
    static const int64_t windows[] = {0, 1, 7, 37, 100};
    for (int d = 0; d < 3; d++) {
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            check((teng_attention_options){.causal = 1, .window = windows[w]}, dtypes[d], 10);
            check((teng_attention_options){.causal = 1, .window = windows[w]}, dtypes[d], 140);
        }
        check((teng_attention_options){.scale = 0.4}, dtypes[d], 9);
    }
}

/* Twice the same bits, whoever is late. */
static void same_bits(void **state)
{
    (void)state;
    const tg_ring_attr a = {{.causal = 1}, AXES, ranks, rank};
    enum { T = 70 };
    operand q = operand_of(&a, TENG_F32, T, H, false), k = operand_of(&a, TENG_F32, T, G, false);
    fill(&a, &q, "q");
    fill(&a, &k, "k");
    const teng_desc in[] = {q.own, k.own, k.own};
    float *y[2], *lse = tg_alloc(sizeof *lse * B * H * T);
    for (int i = 0; i < 2; i++) {
        y[i] = tg_alloc(tg_desc_bytes(&q.own));
        assert_int_equal(run(&tg_op_ring_attention, &a, 3, in, (const void *[]){q.mine, k.mine, k.mine},
                             (void *[]){y[i], lse}),
                         TENG_OK);
    }
    assert_memory_equal(y[0], y[1], tg_desc_bytes(&q.own));
    for (int i = 0; i < 2; i++)
        tg_free(y[i]);
    tg_free(lse);
    tg_free(q.all);
    tg_free(q.mine);
    tg_free(k.all);
    tg_free(k.mine);
}

static void refused(const tg_ring_attr *a, int64_t t, const char *text)
{
    const teng_desc q = tg_desc_make(TENG_F32, 4, (int64_t[]){1, t, 2, 8});
    const teng_desc in[] = {q, q, q};
    teng_desc out[TENG_MAX_OUT];
    int n_out;
    assert_int_equal(tg_op_infer(&tg_op_ring_attention, a, 3, in, out, &n_out), TENG_INVALID);
    if (!strstr(teng_error(), text)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), text);
    teng_error_clear();
}

static void refusals(void **state)
{
    (void)state;
    refused(&(tg_ring_attr){{.causal = 1}, AXES, 2, 2}, 4, "index is 2 of 2 parts");
    refused(&(tg_ring_attr){{.causal = 1}, AXES, 2, 0}, 5, "a rank has 2 equal pieces of rows");
    refused(&(tg_ring_attr){{.window = 3}, AXES, 2, 0}, 4, "windows only with causal");
    refused(&(tg_ring_attr){{.causal = 1, .shift = 1}, AXES, 2, 0}, 4, "shift is 1");
    /* planned for other ranks than there are */
    const tg_ring_attr other = {{.causal = 1}, AXES, ranks + 1, rank};
    const teng_desc q = tg_desc_make(TENG_F32, 4, (int64_t[]){1, 2, 1, 4});
    const teng_desc in[] = {q, q, q};
    float x[8] = {0}, y[8], lse[2];
    assert_int_equal(run(&tg_op_ring_attention, &other, 3, in, (const void *[]){x, x, x}, (void *[]){y, lse}),
                     TENG_STATE);
    assert_non_null(strstr(teng_error(), "planned for rank"));
    teng_error_clear();
}

int main(void)
{
    if (!world_open(TG_AXIS_CONTEXT, &comm)) return 1;
    rank = tg_comm_rank(comm);
    ranks = tg_comm_size(comm);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_the_whole),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(refusals),
    };
    return world_close(&comm, cmocka_run_group_tests(tests, NULL, NULL));
}
