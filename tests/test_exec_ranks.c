/* Plans with collectives on as many ranks as this is started with: those beside computation give the bits of
 * those in their places, are told to a probe on their own thread's time, and fail with the place in the
 * model. */
#include "base/fail.h"
#include "comm/comm.h"
#include "device/cpu_isa.h"
#include "exec/exec.h"
#include "op/op_list.h"

#include "cmocka_all.h"
#include "ranks_world.h"

#include <stdio.h>
#include <string.h>

enum { N = 96 };
static tg_device *device;
static tg_comm *comm;
static int rank, ranks;

/* Two layers' gradients, summed while the other one is computed; the second sum is needed at once. */
static const char graph[] = "graph g\n"
                            "input x f32[96,96]\n"
                            "param w f32[96,96]\n"
                            "state s f32[96,96]\n"
                            "input keep f32[]\n"
                            "phase forward\n"
                            "%%0 = matmul($x, $w) {} : f32[96,96] @ layers.0\n"
                            "phase backward\n"
                            "%%1 = tanh(%%0) {} : f32[96,96] @ layers.1\n"
                            "%%2 = all_reduce(%%1) {axes=data, parts=%d, op=sum} : f32[96,96] @ layers.1\n"
                            "%%3 = matmul(%%0, $w) {} : f32[96,96] @ layers.0\n"
                            "%%4 = exp(%%3) {} : f32[96,96] @ layers.0\n"
                            "%%5 = accumulate($s, %%2, $keep) {} : f32[96,96]\n"
                            "%%6 = all_reduce(%%4) {axes=data, parts=%d, op=max} : f32[96,96] @ layers.0\n"
                            "phase update\n"
                            "%%7 = add(%%5, %%6) {} : f32[96,96]\n"
                            "output y %%7\n";

typedef struct run_of {
    tg_store *store;
    tg_exec_block *block;
    tg_plan *plan;
    tg_exec *exec;
} run_of;

static run_of set_up(const char *format, int parts, bool no_overlap)
{
    char text[2048];
    tg_graph *g = NULL;
    run_of r = {tg_store_create(device), tg_exec_block_create(device), NULL, NULL};
    const tg_plan_options o = {.device = "cpu", .isa = tg_cpu_isa_current(), .no_overlap = no_overlap};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, parts, parts);
#pragma GCC diagnostic pop
    if (tg_graph_parse("t", text, &g) != TENG_OK || tg_plan_create(g, &o, &r.plan) != TENG_OK ||
        tg_exec_create(r.plan, r.store, r.block, &r.exec) != TENG_OK)
        fail_msg("%s", teng_error());
    static float x[N * N];
    const float keep = 0;
    for (int i = 0; i < N * N; i++)
        x[i] = (float)((i * 7 + rank * 13) % 17) * 0.01F - 0.05F;
    float *w = tg_store_find(r.store, "w")->data;
    for (int i = 0; i < N * N; i++)
        w[i] = (float)((i * 5) % 19) * 0.01F - 0.08F;
    assert_int_equal(tg_exec_feed(r.exec, "x", x), TENG_OK);
    assert_int_equal(tg_exec_feed(r.exec, "keep", &keep), TENG_OK);
    return r;
}

static void tear_down(run_of *r)
{
    tg_exec_destroy(&r->exec);
    tg_plan_destroy(&r->plan);
    tg_exec_block_destroy(&r->block);
    tg_store_destroy(&r->store);
}

static const tg_plan_step *step_of(const tg_plan *plan, int id)
{
    for (size_t k = 0; k < plan->steps.len; k++)
        if (plan->steps.data[k].node->id == id) return &plan->steps.data[k];
    return NULL;
}

static void beside_gives_the_same_bits(void **state)
{
    (void)state;
    static float y[2][N * N];
    for (int way = 0; way < 2; way++) {
        run_of r = set_up(graph, ranks, way == 1);
        const tg_plan_step *first = step_of(r.plan, 2), *second = step_of(r.plan, 6);
        assert_int_equal(first->join, way == 1 ? -1 : 5);
        assert_int_equal(second->join, -1); /* nothing to compute meanwhile */
        assert_int_equal(step_of(r.plan, 5)->waits, way == 1 ? -1 : 2);
        if (way == 0) assert_int_equal(first->inplace_of, 0);
        uint64_t allocated = 0;
        for (int i = 0; i < 20; i++) {
            if (i == 2) allocated = tg_alloc_count();
            if (tg_exec_run(r.exec, TG_FORWARD, TG_BACKWARD) != TENG_OK) fail_msg("%s", teng_error());
            if (tg_exec_run(r.exec, TG_UPDATE, TG_UPDATE) != TENG_OK) fail_msg("%s", teng_error());
        }
        assert_int_equal(tg_alloc_count(), allocated); /* nothing in a step, collectives too */
        assert_int_equal(tg_exec_fetch(r.exec, "y", y[way], sizeof y[way]), TENG_OK);
        tear_down(&r);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    static float theirs[N * N];
    memcpy(theirs, y[0], sizeof theirs);
    assert_int_equal(tg_comm_broadcast(tg_comm_world(comm), 0, theirs, sizeof theirs), TENG_OK);
    assert_memory_equal(theirs, y[0], sizeof theirs); /* on every rank */
}

typedef struct seen {
    int nodes, beside;
    double end;
} seen;
static void ran(void *user, const tg_node_run *r)
{
    seen *s = user;
    s->nodes++;
    assert_true(r->begin <= r->end && r->begin >= s->end); /* in order, one after the other */
    s->end = r->end;
    if (r->beside_end > 0) {
        s->beside++;
        assert_int_equal(r->node->id, 2);
        assert_true(r->beside_begin < r->beside_end && r->beside_end <= r->end);
    }
}

static void a_probe_sees_it(void **state)
{
    (void)state;
    run_of r = set_up(graph, ranks, false);
    seen s = {0};
    const tg_probe probe = {ran, &s};
    tg_exec_block_probe(r.block, &probe);
    assert_int_equal(tg_exec_run(r.exec, TG_FORWARD, TG_UPDATE), TENG_OK);
    assert_int_equal(s.nodes, 8);
    assert_int_equal(s.beside, ranks > 1);
    tear_down(&r);
}

static void failures_name_the_place(void **state)
{
    (void)state;
    run_of r = set_up(graph, ranks + 1, false);
    assert_int_equal(tg_exec_run(r.exec, TG_FORWARD, TG_UPDATE), TENG_STATE);
    assert_non_null(strstr(teng_error(), "layers.1 (all_reduce"));
    assert_non_null(strstr(teng_error(), "planned for"));
    teng_error_clear();
    tear_down(&r);
}

int main(void)
{
    if (!world_open(TG_AXIS_DATA, &comm)) return 1;
    rank = tg_comm_rank(comm);
    ranks = tg_comm_size(comm);
    if (tg_device_open("cpu", 1, &device) != TENG_OK) {
        print_error("%s\n", teng_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_gives_the_same_bits), cmocka_unit_test(a_probe_sees_it),
        cmocka_unit_test(failures_name_the_place), /* last: a posted call that failed ends communication */
    };
    const int failed = world_close(&comm, cmocka_run_group_tests(tests, NULL, NULL));
    tg_device_close(&device);
    return failed;
}
