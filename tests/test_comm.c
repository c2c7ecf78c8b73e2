/* Collectives against plain arithmetic, on as many ranks as this is started with (mpirun, or alone): sums in
 * every dtype the same bits on all ranks, uneven pieces, empty ones, groups along axes, messages in order,
 * posted calls beside direct ones, with and without parallel.check. Failures: test_comm_fault.sh. */
#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm_impl.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static tg_comm *comm;
static int rank, ranks;

static float value(int r, int64_t i)
{
    return (float)((r * 31 + i * 7) % 23) * 0.37f - 3;
}

static void sums(void **state)
{
    (void)state;
    static const teng_dtype dtypes[] = {TENG_F32, TENG_BF16, TENG_F16, TENG_F64, TENG_I32, TENG_I64};
    static const int64_t sizes[] = {0, 1, 7, 2048, 2049, 100003};
    tg_group *world = tg_comm_world(comm);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            const int64_t n = sizes[k];
            const size_t bytes = (size_t)n * (size_t)teng_dtype_size(dtypes[d]);
            char *in = tg_alloc(bytes + 1), *out = tg_alloc(bytes + 1), *theirs = tg_alloc(bytes + 1);
            for (int64_t i = 0; i < n; i++)
                tg_store_double(dtypes[d], in, i, (double)value(rank, i));
            assert_int_equal(tg_comm_all_reduce(world, TG_REDUCE_SUM, dtypes[d], in, out, n), TENG_OK);
            for (int64_t i = 0; i < n; i++) {
                double want = 0;
                char one[16];
                for (int r = 0; r < ranks; r++) {
                    tg_store_double(dtypes[d], one, 0, (double)value(r, i));
                    want += tg_load_double(dtypes[d], one, 0);
                }
                assert_true(fabs(tg_load_double(dtypes[d], out, i) - want) <= (dtypes[d] == TENG_BF16 ? 0.06
                                                                               : dtypes[d] == TENG_F16
                                                                                   ? 0.01
                                                                                   : 1e-5));
            }
            memcpy(theirs, out, bytes);
            assert_int_equal(tg_comm_broadcast(world, ranks - 1, theirs, bytes), TENG_OK);
            assert_memory_equal(out, theirs, bytes);
            assert_int_equal(tg_comm_all_reduce(world, TG_REDUCE_SUM, dtypes[d], in, in, n), TENG_OK);
            assert_memory_equal(out, in, bytes); /* in place */
            tg_free(in), tg_free(out), tg_free(theirs);
        }
    float x = (float)rank;
    assert_int_equal(tg_comm_all_reduce(world, TG_REDUCE_MAX, TENG_F32, &x, &x, 1), TENG_OK);
    assert_true(x == (float)(ranks - 1));
    assert_int_equal(tg_comm_all_reduce(world, TG_REDUCE_SUM, TENG_U8, &x, &x, 1), TENG_UNSUPPORTED);
    teng_error_clear();
}

/* Several tensors at once: empty ones, small and large, the bits of each by itself. */
static void many(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{3, 0, 5, 1}, {3000, 0, 7, 100001}, {0, 0, 0, 0}, {1, 4096, 4096, 0}};
    static float in[4][100001], want[4][100001], out[4][100001];
    const void *from[4] = {in[0], in[1], in[2], in[3]};
    void *to[4] = {out[0], in[1], out[2], in[3]}; /* every second one in place */
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int t = 0; t < 4; t++) {
            for (int64_t i = 0; i < sizes[k][t]; i++)
                in[t][i] = value(rank, i + t) / 3;
            assert_int_equal(
                tg_comm_all_reduce(tg_comm_world(comm), TG_REDUCE_SUM, TENG_F32, in[t], want[t], sizes[k][t]),
                TENG_OK);
        }
        assert_int_equal(
            tg_comm_all_reduce_many(tg_comm_world(comm), TG_REDUCE_SUM, TENG_F32, 4, from, to, sizes[k]),
            TENG_OK);
        for (int t = 0; t < 4; t++)
            assert_memory_equal(to[t], want[t], (size_t)sizes[k][t] * sizeof(float));
    }
}

/* Long messages travel in pieces: here of 1,000 bytes, else of 1 GiB. */
static void long_messages(void **state)
{
    (void)state;
    enum { N = 250 * 6 * 64 }; /* full pieces, and others */
    static float x[N];
    const size_t before = tg_mpi_piece;
    tg_mpi_piece = 1000;
    for (int64_t n = N; n > N - 3; n--) {
        for (int64_t i = 0; i < n; i++)
            x[i] = value(rank, i);
        assert_int_equal(tg_comm_all_reduce(tg_comm_world(comm), TG_REDUCE_MAX, TENG_F32, x, x, n), TENG_OK);
        for (int64_t i = 0; i < n; i++) {
            float want = value(0, i);
            for (int r = 1; r < ranks; r++)
                want = value(r, i) > want ? value(r, i) : want;
            assert_true(x[i] == want);
        }
    }
    tg_mpi_piece = before;
}

static void pieces(void **state)
{
    (void)state;
    tg_group *world = tg_comm_world(comm);
    for (int64_t n = 0; n < 40; n = n * 2 + 1) {
        float whole[64], part[64], back[64] = {0};
        int64_t counts[64], begin = 0, at = 0;
        for (int r = 0; r < ranks; r++) {
            tg_mesh_cut(n, ranks, r, &begin, &counts[r]);
            if (r < rank) at += counts[r];
        }
        for (int64_t i = 0; i < n; i++)
            whole[i] = value(rank, i);
        assert_int_equal(tg_comm_reduce_scatter(world, TENG_F32, whole, part, counts), TENG_OK);
        for (int64_t i = 0; i < counts[rank]; i++) {
            float want = value(0, at + i);
            for (int r = 1; r < ranks; r++)
                want += value(r, at + i);
            assert_true(part[i] == want);
        }
        assert_int_equal(tg_comm_all_gather(world, TENG_F32, part, back, counts), TENG_OK);
        for (int64_t i = 0; i < n; i++) {
            float want = value(0, i);
            for (int r = 1; r < ranks; r++)
                want += value(r, i);
            assert_true(back[i] == want);
        }
    }
}

static void to_all(void **state)
{
    (void)state;
    int32_t in[64 * 64], out[64 * 64];
    int64_t send[64], receive[64], n = 0;
    for (int r = 0; r < ranks; r++) {
        send[r] = (rank + 2 * r) % 4; /* some are empty */
        receive[r] = (r + 2 * rank) % 4;
        for (int64_t i = 0; i < send[r]; i++)
            in[n++] = rank * 1000 + r * 10 + (int32_t)i;
    }
    assert_int_equal(tg_comm_all_to_all(tg_comm_world(comm), TENG_I32, in, send, out, receive), TENG_OK);
    n = 0;
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < receive[r]; i++)
            assert_int_equal(out[n++], r * 1000 + rank * 10 + i);
}

static void groups(void **state)
{
    (void)state;
    tg_mesh mesh;
    const int size[TG_AXES] = {1, 1, ranks % 2 ? ranks : ranks / 2, 1, 1, ranks % 2 ? 1 : 2};
    assert_int_equal(tg_mesh_make(size, ranks, &mesh), TENG_OK);
    assert_null(tg_comm_along(comm, 1u << TG_AXIS_DATA));
    teng_error_clear();
    assert_int_equal(tg_comm_bind(comm, &mesh), TENG_OK);
    for (int a = 0; a < TG_AXES; a++) {
        tg_group *g = tg_comm_along(comm, 1u << a);
        int members[64], index;
        const int n = tg_mesh_group(&mesh, rank, 1u << a, members, &index);
        assert_int_equal(tg_group_size(g), n);
        assert_int_equal(tg_group_index(g), index);
        int32_t x = rank, want = 0;
        for (int k = 0; k < n; k++)
            want += members[k];
        const uint64_t before = tg_comm_bytes(comm, 1u << a);
        assert_int_equal(tg_comm_all_reduce(g, TG_REDUCE_SUM, TENG_I32, &x, &x, 1), TENG_OK);
        assert_int_equal(x, want);
        assert_int_equal(tg_comm_bytes(comm, 1u << a) - before, 4u * (unsigned)(n - 1));
    }
}

static void messages(void **state)
{
    (void)state;
    tg_group *world = tg_comm_world(comm);
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    int64_t got = -1, mine = rank;
    assert_int_equal(tg_comm_exchange(world, next, &mine, sizeof mine, last, &got, sizeof got), TENG_OK);
    assert_int_equal(got, last);
    if (ranks == 1) return;
    for (int32_t i = 0; i < 20; i++) /* all send first: sends do not wait */
        assert_int_equal(tg_comm_send(world, next, i % 2, &i, sizeof i), TENG_OK);
    for (int tag = 1; tag >= 0; tag--)
        for (int32_t i = tag, x; i < 20; i += 2) {
            assert_int_equal(tg_comm_receive(world, last, tag, &x, sizeof x), TENG_OK);
            assert_int_equal(x, i);
        }
}

typedef struct posted {
    float x[5000];
    int order;
} posted;
static int order;
static teng_status call(void *user)
{
    posted *p = user;
    p->order = order++;
    return tg_comm_all_reduce(tg_comm_world(comm), TG_REDUCE_SUM, TENG_F32, p->x, p->x, 5000);
}
static teng_status fails(void *user)
{
    (void)user;
    return tg_comm_all_reduce(tg_comm_world(comm), TG_REDUCE_SUM, TENG_BOOL, NULL, NULL, 1);
}

static void beside(void **state)
{
    (void)state;
    enum { N = 8 };
    posted *p = tg_alloc(sizeof *p * N);
    tg_ticket tickets[N];
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < 5000; i++)
            p[k].x[i] = (float)(rank + k);
        tickets[k] = tg_comm_post(comm, call, &p[k]);
        assert_true(tickets[k] > 0);
        int32_t one = 1; /* a direct call waits for them */
        if (k == 4)
            assert_int_equal(tg_comm_all_reduce(tg_comm_world(comm), TG_REDUCE_SUM, TENG_I32, &one, &one, 1),
                             TENG_OK);
    }
    for (int k = 0; k < N; k++) {
        assert_int_equal(tg_comm_wait(comm, tickets[k]), TENG_OK);
        assert_int_equal(p[k].order, k);
        assert_true(p[k].x[4999] == (float)(ranks * (ranks - 1) / 2 + ranks * k));
    }
    tg_free(p);
}

/* A posted call that failed ends all later ones. */
static void posted_failure(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const tg_ticket bad = tg_comm_post(comm, fails, NULL);
        assert_int_equal(tg_comm_wait(comm, bad), TENG_UNSUPPORTED);
        assert_non_null(strstr(teng_error(), "cannot reduce bool"));
        teng_error_clear();
    }
}

/* Facts that are equal; differing ones: test_comm_fault.sh. */
static void hello(void **state)
{
    (void)state;
    const tg_comm_fact facts[] = {{"the configuration", "a1"}, {"the mesh", ""}};
    assert_int_equal(tg_comm_hello(comm, facts, 2), TENG_OK);
    const tg_comm_times t = tg_comm_time(comm);
    assert_true(ranks == 1 ? t.busy == 0 : t.busy > 0 && t.waited <= t.busy && t.exposed > 0);
}

static void kinds(void **state)
{
    (void)state;
    tg_comm *c = NULL;
    assert_int_equal(tg_comm_open("pigeon", &c), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "there are auto, self, mpi"));
    teng_error_clear();
    assert_int_equal(tg_comm_open("self", &c), TENG_STATE); /* one is open */
    teng_error_clear();
    assert_ptr_equal(tg_comm_current(), comm);
}

int main(int argc, char **argv)
{
    if (tg_comm_open("auto", &comm) != TENG_OK) {
        print_error("%s\n", teng_error());
        return 1;
    }
    rank = tg_comm_rank(comm);
    ranks = tg_comm_size(comm);
    if (argc > 1 && strcmp(argv[1], "check") == 0) tg_comm_check(comm, true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),     cmocka_unit_test(pieces),         cmocka_unit_test(long_messages),
        cmocka_unit_test(many),     cmocka_unit_test(to_all),         cmocka_unit_test(groups),
        cmocka_unit_test(messages), cmocka_unit_test(kinds),          cmocka_unit_test(beside),
        cmocka_unit_test(hello),    cmocka_unit_test(posted_failure),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed)
        tg_comm_abandon(&comm, "a test failed"); /* the others may wait for ever */
    else
        tg_comm_close(&comm);
    return failed;
}
