/*
 * expert_dispatch and expert_return among as many ranks as this is started with: each rank knows the tokens
 * of all and what it must get of them; uneven counts, ranks that send or get nothing, all tokens to one rank;
 * and grouped_matmul there is grouped_matmul here.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "device/cpu_isa.h"
#include "graph/op_table.h"
#include "op/expert_dispatch/expert_dispatch.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "ranks_world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static tg_comm *comm;
static int rank, ranks;
enum { M = 30, C = 6, N = 5, OWN = 3, MOST = 8, AXES = 1 << TG_AXIS_EXPERT };

static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                       const void *const *data, void *const *out)
{
    teng_desc out_desc[TENG_MAX_OUT];
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in, .out = out_desc};
    teng_prepared prepared = {0};
    if (tg_op_infer(op, attr, n_in, in, out_desc, &call.n_out) != TENG_OK) fail_msg("%s", teng_error());
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", tg_cpu_isa_current(), NULL);
    assert_non_null(kernel);
    if (kernel->prepare) assert_int_equal(kernel->prepare(&call, &prepared), TENG_OK);
    void *workspace = tg_alloc_aligned(prepared.workspace + 1);
    const teng_kernel_args args = {&call, prepared.state, data, out, workspace, NULL};
    const teng_status status = kernel->run(&args);
    if (kernel->release) kernel->release(prepared.state);
    tg_free_aligned(workspace);
    return status;
}

/* How many tokens of rank r go to expert e. */
typedef int (*counts_fn)(int r, int e);
static int even(int r, int e)
{
    (void)r, (void)e;
    return M / (OWN * MOST);
}
static int uneven(int r, int e)
{
    return (int)tg_rng_below(5, (uint64_t)(r * 100 + e), M / (OWN * MOST) + 1);
}
static int to_the_first(int r, int e)
{
    (void)r;
    return e == 0 ? M : 0;
}
static int from_the_last(int r, int e)
{
    return r == ranks - 1 && e < OWN * ranks ? M / (OWN * MOST) : 0;
}
static int to_the_last(int r, int e)
{
    return e == OWN * ranks - 2 ? M - r : 0;
}

/* Column c of the i-th token that rank r has for expert e; 16 bits hold it too. */
static float value(int r, int e, int i, int c)
{
    return (float)((r * 37 + e * 11 + i * 5 + c) % 128);
}

static void check(counts_fn of, teng_dtype dtype)
{
    const tg_expert_attr a = {AXES, ranks};
    const int experts = OWN * ranks;
    const size_t size = (size_t)teng_dtype_size(dtype);
    int32_t counts[OWN * MOST], own[OWN], received[OWN * MOST];
    char *rows = tg_calloc(M * C, size), *there = tg_alloc(M * C * size * (size_t)ranks),
         *back = tg_alloc(M * C * size);
    int64_t at = 0;
    for (int e = 0; e < experts; e++) {
        counts[e] = of(rank, e);
        for (int i = 0; i < counts[e]; i++)
            for (int c = 0; c < C; c++)
                tg_store_double(dtype, rows, at++, (double)value(rank, e, i, c));
    }
    const int64_t used = at;
    const teng_desc in[] = {tg_desc_make(dtype, 2, (int64_t[]){M, C}),
                            tg_desc_make(TENG_I32, 1, (int64_t[]){experts})};
    const teng_desc home[] = {tg_desc_make(dtype, 2, (int64_t[]){M * ranks, C}), in[1],
                              tg_desc_make(TENG_I32, 2, (int64_t[]){ranks, OWN})};
    if (run(&tg_op_expert_dispatch, &a, 2, in, (const void *[]){rows, counts},
            (void *[]){there, own, received}) != TENG_OK)
        fail_msg("%s", teng_error());
    at = 0;
    for (int e = 0; e < OWN; e++) { /* by expert, then by the rank they come from */
        int sum = 0;
        for (int r = 0; r < ranks; r++) {
            const int n = of(r, rank * OWN + e);
            assert_int_equal(received[r * OWN + e], n);
            sum += n;
            for (int i = 0; i < n; i++)
                for (int c = 0; c < C; c++)
                    assert_true(tg_load_double(dtype, there, at++) == (double)value(r, rank * OWN + e, i, c));
        }
        assert_int_equal(own[e], sum);
    }
    for (; at < (int64_t)M * C * ranks; at++)
        assert_true(tg_load_double(dtype, there, at) == 0);
    if (run(&tg_op_expert_return, &a, 3, home, (const void *[]){there, counts, received}, (void *[]){back}) !=
        TENG_OK)
        fail_msg("%s", teng_error());
    for (int64_t i = 0; i < (int64_t)M * C; i++)
        assert_true(tg_load_double(dtype, back, i) == (i < used ? tg_load_double(dtype, rows, i) : 0));
    tg_free(rows);
    tg_free(there);
    tg_free(back);
}

static void rows_go_and_come_back(void **state)
{
    (void)state;
    static const counts_fn loads[] = {even, uneven, to_the_first, from_the_last, to_the_last};
    static const teng_dtype dtypes[] = {TENG_F32, TENG_BF16, TENG_F16};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        for (int d = 0; d < 3; d++)
            check(loads[i], dtypes[d]);
}

/* The products of the tokens, made by the ranks that have the experts. */
static void products(void **state)
{
    (void)state;
    const tg_expert_attr a = {AXES, ranks};
    const int64_t none = 0, experts = OWN * ranks;
    float *x = tg_alloc(sizeof *x * M * C), *w = tg_alloc(sizeof *w * OWN * MOST * C * N),
          *there = tg_alloc(sizeof *there * (size_t)(M * C * ranks)),
          *y = tg_alloc(sizeof *y * (size_t)(M * N * ranks)), got[M * N], want[M * N];
    int32_t counts[OWN * MOST], own[OWN], received[OWN * MOST];
    char name[20];
    snprintf(name, sizeof name, "x of %d", rank);
    tg_rng_normal(tg_rng_key(1, name), 1, x, M * C);
    tg_rng_normal(tg_rng_key(1, "w"), 1, w, experts * C * N);
    for (int e = 0; e < experts; e++)
        counts[e] = uneven(rank, e);
    const teng_desc count = tg_desc_make(TENG_I32, 1, &experts);
    const teng_desc all[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){M, C}),
                             tg_desc_make(TENG_F32, 3, (int64_t[]){experts, C, N}), count};
    const teng_desc go[] = {all[0], count};
    const teng_desc part[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){M * ranks, C}),
                              tg_desc_make(TENG_F32, 3, (int64_t[]){OWN, C, N}),
                              tg_desc_make(TENG_I32, 1, (int64_t[]){OWN})};
    const teng_desc home[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){M * ranks, N}), count,
                              tg_desc_make(TENG_I32, 2, (int64_t[]){ranks, OWN})};
    assert_int_equal(
        run(&tg_op_grouped_matmul, &none, 3, all, (const void *[]){x, w, counts}, (void *[]){want}), TENG_OK);
    assert_int_equal(
        run(&tg_op_expert_dispatch, &a, 2, go, (const void *[]){x, counts}, (void *[]){there, own, received}),
        TENG_OK);
    assert_int_equal(run(&tg_op_grouped_matmul, &none, 3, part,
                         (const void *[]){there, w + rank * OWN * C * N, own}, (void *[]){y}),
                     TENG_OK);
    assert_int_equal(
        run(&tg_op_expert_return, &a, 3, home, (const void *[]){y, counts, received}, (void *[]){got}),
        TENG_OK);
    for (int i = 0; i < M * N; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f)) fail_msg("element %d is %g, not %g", i, got[i], want[i]);
    tg_free(x);
    tg_free(w);
    tg_free(there);
    tg_free(y);
}

static void says(teng_status status, teng_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(teng_error(), text)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), text);
    teng_error_clear();
}

static void refusals(void **state)
{
    (void)state;
    const tg_expert_attr two = {AXES, 2}, other = {AXES, ranks + 1}, alone = {AXES, 1};
    const teng_desc rows = tg_desc_make(TENG_F32, 2, (int64_t[]){4, 2}),
                    three = tg_desc_make(TENG_I32, 1, (int64_t[]){3}),
                    fit = tg_desc_make(TENG_I32, 1, (int64_t[]){ranks + 1}),
                    pair = tg_desc_make(TENG_I32, 2, (int64_t[]){1, 2}),
                    couple = tg_desc_make(TENG_I32, 1, (int64_t[]){2});
    teng_desc out[TENG_MAX_OUT];
    int n_out;
    int32_t counts[MOST + 1] = {0}, own[MOST + 1], received[MOST + 1], many[] = {3, 2}, negative[] = {2, -1};
    float x[8] = {0}, y[8 * (MOST + 1)];
    void *const to[] = {y, own, received};
    says(tg_op_infer(&tg_op_expert_dispatch, &two, 2, (teng_desc[]){rows, three}, out, &n_out), TENG_INVALID,
         "counts are i32[3]; the experts must be a multiple of the 2 ranks");
    says(tg_op_infer(&tg_op_expert_return, &two, 3, (teng_desc[]){rows, couple, couple}, out, &n_out),
         TENG_INVALID, "received is i32[2]; it must be i32[2,1]");
    says(run(&tg_op_expert_dispatch, &other, 2, (teng_desc[]){rows, fit}, (const void *[]){x, counts}, to),
         TENG_STATE, "planned for");
    says(run(&tg_op_expert_dispatch, &alone, 2, (teng_desc[]){rows, couple}, (const void *[]){x, many}, to),
         TENG_INVALID, "counts sum to 5, there are 4 rows");
    says(run(&tg_op_expert_dispatch, &alone, 2, (teng_desc[]){rows, couple}, (const void *[]){x, negative},
             to),
         TENG_INVALID, "counts[1] is -1");
    says(run(&tg_op_expert_return, &alone, 3, (teng_desc[]){rows, couple, pair},
             (const void *[]){x, counts, many}, to),
         TENG_INVALID, "5 rows come, there is room for 4");
}

int main(void)
{
    if (!world_open(TG_AXIS_EXPERT, &comm)) return 1;
    rank = tg_comm_rank(comm);
    ranks = tg_comm_size(comm);
    if (ranks > MOST) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_and_come_back),
        cmocka_unit_test(products),
        cmocka_unit_test(refusals),
    };
    return world_close(&comm, cmocka_run_group_tests(tests, NULL, NULL));
}
