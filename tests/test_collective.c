/* The operators that communicate, among as many ranks as this is started with: pieces along every dimension,
 * uneven and empty ones, in place; without the ranks that they were planned for they refuse. */
#include "base/mem.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "ranks_world.h"

#include <string.h>

static tg_comm *comm;
static int rank, ranks;
enum { AXES = 1 << TG_AXIS_DATA };

static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                       const void *const *data, teng_desc *out, void *result)
{
    int n_out;
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in, .out = out};
    teng_prepared prepared = {0};
    assert_int_equal(tg_op_infer(op, attr, n_in, in, out, &n_out), TENG_OK);
    call.n_out = n_out;
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", 0, NULL);
    assert_non_null(kernel);
    if (kernel->prepare) assert_int_equal(kernel->prepare(&call, &prepared), TENG_OK);
    void *workspace = tg_alloc(prepared.workspace + 1);
    const teng_status status = kernel->run(&(teng_kernel_args){&call, NULL, data, &result, workspace, NULL});
    tg_free(workspace);
    return status;
}

static float value(int r, int64_t i)
{
    return (float)(r * 1000 + i);
}

/* x [3, 5, 4] cut along each dimension: gathered, and the sum of all ranks' whole ones scattered. */
static void pieces(void **state)
{
    (void)state;
    const int64_t dims[] = {3, 5, 4};
    for (int d = 0; d < 3; d++) {
        const teng_desc whole = tg_desc_make(TENG_F32, 3, dims);
        const tg_pieces_attr attr = {AXES, ranks, rank, d, dims[d]};
        teng_desc part[TENG_MAX_OUT], got[TENG_MAX_OUT];
        float x[60], y[60], back[60];
        for (int i = 0; i < 60; i++)
            x[i] = value(rank, i);
        assert_int_equal(run(&tg_op_reduce_scatter, &attr, 1, &whole, (const void *[]){x}, part, y), TENG_OK);
        assert_int_equal(run(&tg_op_all_gather, &attr, 1, part, (const void *[]){y}, got, back), TENG_OK);
        assert_true(tg_desc_equal(got, &whole));
        for (int i = 0; i < 60; i++) {
            float want = 0;
            for (int r = 0; r < ranks; r++)
                want += value(r, i);
            assert_true(back[i] == want);
        }
    }
}

/* x [3, 5, 4]: from pieces along one dimension to pieces along another, for every pair. */
static void to_all(void **state)
{
    (void)state;
    const int64_t dims[] = {3, 5, 4}, step[] = {20, 4, 1};
    for (int f = 0; f < 3; f++)
        for (int t = 0; t < 3; t++) {
            if (f == t) continue;
            const tg_all_to_all_attr attr = {AXES, ranks, rank, f, t, dims[f], dims[t]};
            teng_desc in = tg_desc_make(TENG_F32, 3, dims), got[TENG_MAX_OUT];
            int64_t begin, size, n = 0;
            float x[60], y[60];
            tg_mesh_cut(dims[f], ranks, rank, &begin, &size);
            in.dims[f] = size;
            for (int64_t i = 0; i < 60; i++) {
                const int64_t at = i / step[f] % dims[f];
                if (at >= begin && at < begin + size) x[n++] = value(0, i);
            }
            assert_int_equal(run(&tg_op_all_to_all, &attr, 1, &in, (const void *[]){x}, got, y), TENG_OK);
            tg_mesh_cut(dims[t], ranks, rank, &begin, &size);
            assert_int_equal(got->dims[f], dims[f]);
            assert_int_equal(got->dims[t], size);
            n = 0;
            for (int64_t i = 0; i < 60; i++) {
                const int64_t at = i / step[t] % dims[t];
                if (at >= begin && at < begin + size) assert_true(y[n++] == value(0, i));
            }
        }
}

static void reduced(void **state)
{
    (void)state;
    const teng_desc d = tg_desc_make(TENG_F32, 1, (int64_t[]){7});
    teng_desc out[TENG_MAX_OUT];
    for (int op = TG_REDUCE_SUM; op <= TG_REDUCE_MIN; op++) {
        const tg_all_reduce_attr attr = {AXES, ranks, op};
        float x[7];
        for (int i = 0; i < 7; i++)
            x[i] = value(rank, i);
        assert_int_equal(run(&tg_op_all_reduce, &attr, 1, &d, (const void *[]){x}, out, x), TENG_OK);
        for (int i = 0; i < 7; i++) {
            float sum = 0;
            for (int r = 0; r < ranks; r++)
                sum += value(r, i);
            assert_true(x[i] == (op == TG_REDUCE_SUM ? sum : value(op == TG_REDUCE_MAX ? ranks - 1 : 0, i)));
        }
    }
}

static void many(void **state)
{
    (void)state;
    const teng_desc d[2] = {tg_desc_make(TENG_F32, 1, (int64_t[]){7}),
                            tg_desc_make(TENG_F32, 2, (int64_t[]){2, 3})};
    const tg_all_reduce_attr attr = {AXES, ranks, TG_REDUCE_SUM};
    teng_desc out[TENG_MAX_OUT];
    int n;
    float x[7], y[6];
    for (int i = 0; i < 7; i++)
        x[i] = value(rank, i), y[i % 6] = value(rank, 10 * i);
    teng_op_call call = {.op = &tg_op_all_reduce, .attr = &attr, .n_in = 2, .in = d, .out = out};
    assert_int_equal(tg_op_infer(&tg_op_all_reduce, &attr, 2, d, out, &n), TENG_OK);
    assert_int_equal(call.n_out = n, 2);
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", 0, NULL);
    assert_int_equal(
        kernel->run(&(teng_kernel_args){&call, NULL, (const void *[]){x, y}, (void *[]){x, y}, NULL, NULL}),
        TENG_OK);
    float want_x = 0, want_y = 0;
    for (int r = 0; r < ranks; r++)
        want_x += value(r, 6), want_y += value(r, 50);
    assert_true(x[6] == want_x && y[5] == want_y);
    const teng_desc mixed[2] = {d[0], tg_desc_make(TENG_BF16, 1, (int64_t[]){7})};
    assert_int_equal(tg_op_infer(&tg_op_all_reduce, &attr, 2, mixed, out, &n), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "they must be of one dtype"));
    teng_error_clear();
}

static void into(void **state)
{
    (void)state;
    int64_t begin, size;
    tg_mesh_cut(7, ranks, rank, &begin, &size);
    const teng_desc in[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){7, 2}),
                            tg_desc_make(TENG_F32, 2, (int64_t[]){size, 2})};
    const tg_pieces_attr attr = {AXES, ranks, rank, 0, 7};
    teng_desc out[TENG_MAX_OUT];
    float whole[14] = {0}, piece[14];
    for (int64_t i = 0; i < 2 * size; i++)
        piece[i] = value(0, 2 * begin + i);
    assert_int_equal(run(&tg_op_gather_into, &attr, 2, in, (const void *[]){whole, piece}, out, whole),
                     TENG_OK);
    for (int i = 0; i < 14; i++)
        assert_true(whole[i] == value(0, i));
}

static void refused(void **state)
{
    (void)state;
    const teng_desc d = tg_desc_make(TENG_F32, 1, (int64_t[]){7});
    teng_desc out[TENG_MAX_OUT];
    float x[7] = {0};
    const tg_all_reduce_attr attr = {AXES, ranks + 1, 0};
    assert_int_equal(run(&tg_op_all_reduce, &attr, 1, &d, (const void *[]){x}, out, x), TENG_STATE);
    assert_non_null(strstr(teng_error(), "planned for"));
    teng_error_clear();
    int n;
    assert_int_equal(tg_op_infer(&tg_op_all_gather, &(tg_pieces_attr){AXES, 2, 0, 0, 9}, 1, &d, out, &n),
                     TENG_INVALID);
    assert_non_null(strstr(teng_error(), "must be piece 0 of 2 of 9: 5"));
    teng_error_clear();
    assert_int_equal(
        tg_op_infer(&tg_op_all_to_all, &(tg_all_to_all_attr){AXES, 2, 0, 0, 0, 7, 7}, 1, &d, out, &n),
        TENG_INVALID);
    assert_non_null(strstr(teng_error(), "from_dim and to_dim are both 0"));
    teng_error_clear();
}

int main(void)
{
    if (!world_open(TG_AXIS_DATA, &comm)) return 1;
    rank = tg_comm_rank(comm);
    ranks = tg_comm_size(comm);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces), cmocka_unit_test(reduced), cmocka_unit_test(to_all),
        cmocka_unit_test(many),   cmocka_unit_test(into),    cmocka_unit_test(refused),
    };
    return world_close(&comm, cmocka_run_group_tests(tests, NULL, NULL));
}
