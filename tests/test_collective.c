/* The operators that communicate, among as many ranks as this is started with: pieces along every dimension,
 * uneven and empty ones, in place; without the ranks that they were planned for they refuse. */
#include "base/mem.h"
#include "op/collective/collective.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"
#include "ranks_world.h"

#include <math.h>
#include <string.h>

static tg_comm *comm;
static int rank, ranks;
enum { AXES = 1 << TG_AXIS_DATA };

static teng_status run_all(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                           const void *const *data, teng_desc *out, void *const *results)
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
    const teng_status status =
        kernel->run(&(teng_kernel_args){&call, prepared.state, data, results, workspace, NULL});
    if (kernel->release) kernel->release(prepared.state);
    tg_free(workspace);
    return status;
}

static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                       const void *const *data, teng_desc *out, void *result)
{
    return run_all(op, attr, n_in, in, data, out, &result);
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
    float x[7], y[6];
    for (int i = 0; i < 7; i++)
        x[i] = value(rank, i), y[i % 6] = value(rank, 10 * i);
    assert_int_equal(run_all(&tg_op_all_reduce, &attr, 2, d, (const void *[]){x, y}, out, (void *[]){x, y}),
                     TENG_OK);
    float want_x = 0, want_y = 0;
    for (int r = 0; r < ranks; r++)
        want_x += value(r, 6), want_y += value(r, 50);
    assert_true(x[6] == want_x && y[5] == want_y);
    int n;
    const teng_desc mixed[2] = {d[0], tg_desc_make(TENG_BF16, 1, (int64_t[]){7})};
    assert_int_equal(tg_op_infer(&tg_op_all_reduce, &attr, 2, mixed, out, &n), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "they must be of one dtype"));
    teng_error_clear();
}

static void into(void **state)
{
    (void)state;
    for (int dim = 0; dim < 2; dim++) { /* of [7, 2], of [2, 7] */
        int64_t begin, size, dims[] = {2, 2};
        tg_mesh_cut(7, ranks, rank, &begin, &size);
        dims[dim] = size;
        const teng_desc in[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){dim ? 2 : 7, dim ? 7 : 2}),
                                tg_desc_make(TENG_F32, 2, dims)};
        const tg_pieces_attr attr = {AXES, ranks, rank, dim, 7};
        teng_desc out[TENG_MAX_OUT];
        float whole[14] = {0}, piece[14];
        for (int64_t i = 0; i < 2 * size; i++)
            piece[i] = value(0, dim ? i / size * 7 + begin + i % size : 2 * begin + i);
        assert_int_equal(run(&tg_op_gather_into, &attr, 2, in, (const void *[]){whole, piece}, out, whole),
                         TENG_OK);
        for (int i = 0; i < 14; i++)
            assert_true(whole[i] == value(0, i));
    }
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

/* ---- the loss by pieces of the vocabulary, beside the one of all of it ---- */
enum { ROWS = 1030, VOCAB = 37, WIDTH = 5 }; /* rows of more than one block; pieces are uneven */
static float from_minus_one_to_one(int64_t i)
{
    return (float)((uint64_t)(i + 1) * 2654435761u % 2001) / 1000.0f - 1.0f;
}

static void check_loss(teng_dtype dtype, const int32_t *labels, bool valid_is_given, float tolerance)
{
    static float x[ROWS * WIDTH], w[VOCAB * WIDTH], dx[ROWS * WIDTH], dw[VOCAB * WIDTH], own_dx[ROWS * WIDTH],
        own_dw[VOCAB * WIDTH], wide[ROWS * WIDTH];
    float loss, own_loss;
    const float valid = 500;
    teng_desc in[] = {tg_desc_make(dtype, 2, (int64_t[]){ROWS, WIDTH}),
                      tg_desc_make(dtype, 2, (int64_t[]){VOCAB, WIDTH}),
                      tg_desc_make(TENG_I32, 1, (int64_t[]){ROWS}), tg_desc_make(TENG_F32, 0, NULL)},
              out[TENG_MAX_OUT];
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        wide[i] = 3 * from_minus_one_to_one(i);
    tg_convert(dtype, x, TENG_F32, wide, ROWS * WIDTH);
    tg_convert(dtype, w, TENG_F32, wide + 7, VOCAB * WIDTH);
    const int n_in = valid_is_given ? 4 : 3;
    tg_linear_ce_ranks_attr attr = {-1, AXES, ranks, 0, VOCAB};
    int64_t size;
    tg_mesh_cut(VOCAB, ranks, rank, &attr.begin, &size);
    const void *data[] = {x, w, labels, &valid};
    assert_int_equal(run_all(&tg_op_linear_cross_entropy_with_grad, &(int64_t){-1}, n_in, in, data, out,
                             (void *[]){&loss, dx, dw}),
                     TENG_OK);
    in[1].dims[0] = size;
    data[1] = (const char *)w + attr.begin * WIDTH * teng_dtype_size(dtype);
    assert_int_equal(run_all(&tg_op_linear_cross_entropy_by_vocabulary, &attr, n_in, in, data, out,
                             (void *[]){&own_loss, own_dx, own_dw}),
                     TENG_OK);
    assert_int_equal(
        tg_comm_all_reduce(tg_comm_along(comm, AXES), TG_REDUCE_SUM, TENG_F32, own_dx, own_dx, ROWS * WIDTH),
        TENG_OK);
    assert_true(fabsf(own_loss - loss) <= 1e-6f * fabsf(loss));
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        assert_true(fabsf(own_dx[i] - dx[i]) <= tolerance * 0.01f);
    for (int64_t i = 0; i < size * WIDTH; i++)
        assert_true(fabsf(own_dw[i] - dw[attr.begin * WIDTH + i]) <= tolerance);
}

static void loss_by_vocabulary(void **state)
{
    (void)state;
    int32_t labels[ROWS], none[ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        labels[i] = (int32_t)(i * 7 % (VOCAB + 1)) - 1;
        none[i] = -1;
    }
    for (int valid = 0; valid < 2; valid++) {
        check_loss(TENG_F32, labels, valid, 1e-6f);
        check_loss(TENG_BF16, labels, valid, 2e-3f);
        check_loss(TENG_F16, labels, valid, 2e-4f);
        check_loss(TENG_F32, none, valid, 0);
    }
    labels[ROWS - 1] = VOCAB;
    teng_desc out[TENG_MAX_OUT];
    const teng_desc in[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){1, 1}),
                            tg_desc_make(TENG_F32, 2, (int64_t[]){VOCAB, 1}),
                            tg_desc_make(TENG_I32, 1, (int64_t[]){1})};
    float x = 0, w[VOCAB] = {0}, loss, dx, dw[VOCAB];
    const tg_linear_ce_ranks_attr attr = {-1, AXES, ranks, 0, 0};
    assert_int_equal(run_all(&tg_op_linear_cross_entropy_by_vocabulary, &attr, 3, in,
                             (const void *[]){&x, w, labels + ROWS - 1}, out, (void *[]){&loss, &dx, dw}),
                     TENG_INVALID);
    teng_error_clear();
}

int main(void)
{
    if (!world_open(TG_AXIS_DATA, &comm)) return 1;
    rank = tg_comm_rank(comm);
    ranks = tg_comm_size(comm);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),
        cmocka_unit_test(reduced),
        cmocka_unit_test(to_all),
        cmocka_unit_test(many),
        cmocka_unit_test(into),
        cmocka_unit_test(refused),
        cmocka_unit_test(loss_by_vocabulary),
    };
    return world_close(&comm, cmocka_run_group_tests(tests, NULL, NULL));
}
