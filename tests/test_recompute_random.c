/*
 * Recompute on random graphs: layers of elementwise operators, views, norms, products, splits, dropout and
 * reads across layers, with a backward pass; what comes out is the same bits whatever is recomputed. And the
 * minimum cut against all cuts there are.
 */
#include "autograd/autograd.h"
#include "base/rng.h"
#include "base/strmap.h"
#include "device/cpu_isa.h"
#include "exec/exec.h"
#include "op/op_list.h"
#include "pass/pass.h"
#include "pass/recompute_impl.h"
#include "tensor/desc.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { GRAPHS = 250, CUTS = 400, ROWS = 6, WIDTH = 8, MAX_POOL = 64, MAX_PARAMS = 16 };

typedef struct maker {
    tg_graph *g;
    uint64_t key, draws;
    teng_tensor *pool[MAX_POOL], *rng, *params[MAX_PARAMS];
    int n, n_params;
} maker;

static int draw(maker *m, int bound)
{
    return (int)tg_rng_below(m->key, m->draws++, (uint64_t)bound);
}

static teng_tensor *recent(maker *m)
{
    return m->pool[m->n > 4 && draw(m, 5) ? m->n - 1 - draw(m, 4) : draw(m, m->n)];
}

static teng_tensor *param(maker *m, int64_t rows, int64_t columns)
{
    char name[24];
    if (m->n_params == MAX_PARAMS) {
        for (int i = 0; i < m->n_params; i++)
            if (m->params[i]->desc.dims[0] == rows && m->params[i]->desc.ndim == (columns ? 2 : 1))
                return m->params[i];
        return NULL;
    }
    snprintf(name, sizeof name, "w%d", m->n_params);
    const teng_desc desc = tg_desc_make(TENG_F32, columns ? 2 : 1, (const int64_t[]){rows, columns});
    return m->params[m->n_params++] = tg_graph_param(m->g, name, &desc);
}

/* Every value of the pool is f32 [ROWS, WIDTH]. */
static teng_tensor *grown(maker *m)
{
    teng_tensor *x = recent(m), *parts[2], *w;
    switch (draw(m, 12)) {
    case 0:
        return teng_gelu_tanh(x);
    case 1:
        return teng_dropout(x, m->rng, 0.25, draw(m, 4));
    case 2:
        return teng_add(x, recent(m));
    case 3:
        return teng_mul(x, teng_sigmoid(recent(m)));
    case 4:
        return teng_swiglu(x, recent(m));
    case 5:
        w = param(m, WIDTH, WIDTH);
        return w ? teng_matmul(x, w, false, draw(m, 2)) : teng_tanh(x);
    case 6:
        w = param(m, WIDTH, 0);
        return w ? teng_rms_norm(x, w, 1e-5) : teng_square(x);
    case 7:
        w = param(m, WIDTH, 0);
        return w ? teng_layer_norm(x, w, NULL, false, 1e-5) : teng_silu(x);
    case 8: /* views of views */
        return teng_reshape(teng_relu(teng_reshape(teng_reshape(x, TENG_DIMS(WIDTH, ROWS)), TENG_DIMS(-1))),
                            TENG_DIMS(ROWS, WIDTH));
    case 9:
        teng_split(x, 1, TENG_DIMS(3, WIDTH - 3), parts);
        return teng_concat(((teng_tensor *[]){parts[1], parts[0]}), 2, 1);
    case 10:
        return teng_transpose(teng_transpose(x, TENG_DIMS(1, 0)), TENG_DIMS(1, 0));
    default:
        return teng_cast(teng_cast(x, TENG_BF16), TENG_F32);
    }
}

static tg_graph *random_graph(uint64_t seed)
{
    maker m = {.g = tg_graph_create("random"), .key = tg_rng_key(seed, "recompute")};
    const teng_desc mat = tg_desc_make(TENG_F32, 2, (const int64_t[]){ROWS, WIDTH}),
                    pair = tg_desc_make(TENG_U64, 1, (const int64_t[]){2});
    m.rng = tg_graph_input(m.g, "rng", &pair);
    m.pool[m.n++] = tg_graph_input(m.g, "x", &mat);
    m.pool[m.n++] = teng_matmul(m.pool[0], param(&m, WIDTH, WIDTH), false, false);
    tg_trace trace;
    tg_trace_begin(&trace, m.g);
    const int layers = 1 + draw(&m, 4);
    for (int l = 0; l < layers; l++) {
        char scope[32];
        snprintf(scope, sizeof scope, "model.layers.%d", l);
        const tg_trace_mark mark = tg_trace_enter(scope, (teng_src){0});
        for (int k = 2 + draw(&m, 9); k > 0 && m.n < MAX_POOL; k--) {
            m.pool[m.n] = grown(&m);
            if (!m.pool[m.n++]) fail_msg("%s", teng_error());
        }
        tg_trace_leave(mark);
    }
    teng_tensor *last = teng_add(m.pool[m.n - 1], recent(&m)), *grads[MAX_PARAMS] = {0};
    teng_tensor *loss = teng_mean(teng_square(last), ((teng_dims){0}), false);
    tg_trace_end(&trace);
    assert_int_equal(tg_graph_output(m.g, "loss", loss), TENG_OK);
    if (draw(&m, 3) == 0) assert_int_equal(tg_graph_output(m.g, "seen", recent(&m)), TENG_OK);
    if (tg_autograd_backward(m.g, loss, NULL, m.params, m.n_params, grads) != TENG_OK)
        fail_msg("%s", teng_error());
    for (int i = 0; i < m.n_params; i++) {
        char name[24];
        snprintf(name, sizeof name, "grad%d", i);
        if (grads[i]) assert_int_equal(tg_graph_output(m.g, name, grads[i]), TENG_OK);
    }
    if (draw(&m, 2))
        assert_int_equal(tg_pass_run(m.g, (const char *const[]){"default"}, 1, NULL, NULL, NULL), TENG_OK);
    return m.g;
}

/* ---- running ---- */
static tg_device *device;

static void fill(const teng_tensor *v, void *to)
{
    if (v->desc.dtype == TENG_U64)
        memcpy(to, (const uint64_t[]){7, 3}, 16);
    else
        tg_rng_normal(tg_hash64(v->name, strlen(v->name), 0), 1, to, tg_desc_numel(&v->desc));
}

/* Plans g (taken over), runs it, and gives all outputs one after the other; their size is returned. */
static size_t outputs_of(tg_graph *g, unsigned char *out)
{
    const tg_plan_options o = {.device = "cpu", .isa = tg_cpu_isa_current()};
    tg_plan *plan = NULL;
    if (tg_plan_create(g, &o, &plan) != TENG_OK) fail_msg("%s", teng_error());
    tg_store *store = tg_store_create(device);
    tg_exec_block *block = tg_exec_block_create(device);
    tg_exec *exec = NULL;
    assert_int_equal(tg_exec_create(plan, store, block, &exec), TENG_OK);
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        unsigned char host[ROWS * WIDTH * 16];
        if (v->kind == TG_VALUE_PARAM) fill(v, tg_store_find(store, v->name)->data);
        if (v->kind != TG_VALUE_INPUT) continue;
        fill(v, host);
        assert_int_equal(tg_exec_feed(exec, v->name, host), TENG_OK);
    }
    if (tg_exec_run(exec, TG_FORWARD, TG_BACKWARD) != TENG_OK) fail_msg("%s", teng_error());
    size_t at = 0;
    for (size_t i = 0; i < g->outputs.len; i++) {
        const size_t bytes = tg_desc_bytes(&g->outputs.data[i].value->desc);
        assert_int_equal(tg_exec_fetch(exec, g->outputs.data[i].name, out + at, bytes), TENG_OK);
        at += bytes;
    }
    tg_exec_destroy(&exec);
    tg_exec_block_destroy(&block);
    tg_store_destroy(&store);
    tg_plan_destroy(&plan);
    return at;
}

static void clones_keep_the_meaning(void **state)
{
    (void)state;
    enum { BYTES = 1 << 16 };
    unsigned char *want = tg_alloc(BYTES), *got = tg_alloc(BYTES);
    int clones = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        const size_t n = outputs_of(random_graph(seed), want);
        assert_true(n <= BYTES);
        for (int way = 0; way < 6; way++) {
            const tg_recompute_options o = {.kind = way == 0   ? TG_RECOMPUTE_SELECTIVE
                                                    : way == 1 ? TG_RECOMPUTE_FULL
                                                               : TG_RECOMPUTE_AUTO,
                                            .moves = way == 5 ? INT_MAX : way - 2};
            tg_recompute_result r;
            tg_graph *g = random_graph(seed);
            if (tg_recompute(g, &o, &r, NULL) != TENG_OK) fail_msg("seed %d: %s", (int)seed, teng_error());
            clones += r.clones;
            assert_true(r.kept <= r.before);
            if (way == 1) assert_int_equal(r.kept, 0);
            if (way == 2) assert_int_equal(r.clones, 0);
            assert_int_equal(outputs_of(g, got), n);
            if (memcmp(want, got, n) != 0) fail_msg("seed %d, way %d: other bits", (int)seed, way);
        }
    }
    assert_true(clones > 5 * GRAPHS);
    tg_free(want);
    tg_free(got);
}

/* ---- the cut ---- */
/* Whether all that is needed can be had when the set is kept. */
static bool serves(const tg_cut_value *v, int n, unsigned set)
{
    bool have[16], want[16] = {false};
    for (int i = 0; i < n; i++) {
        have[i] = v[i].producible;
        for (int k = 0; k < v[i].n_from; k++)
            have[i] = have[i] && have[v[i].from[k]];
        have[i] = have[i] || (set >> i & 1);
        want[i] = v[i].needed;
    }
    for (int i = 0; i < n; i++)
        if (want[i] && !have[i]) return false;
    return true;
}

static void the_cut_is_the_smallest(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CUTS; seed++) {
        maker m = {.key = tg_rng_key(seed, "cut")};
        const int n = 1 + draw(&m, 11);
        tg_cut_value v[16] = {0};
        int from[16][3];
        bool keep[16];
        for (int i = 0; i < n; i++) {
            v[i] = (tg_cut_value){.bytes = 1 + draw(&m, 9),
                                  .needed = draw(&m, 3) == 0,
                                  .producible = draw(&m, 3) != 0,
                                  .from = from[i],
                                  .n_from = i ? draw(&m, 4) : 0};
            for (int k = 0; k < v[i].n_from; k++)
                from[i][k] = draw(&m, i);
        }
        assert_int_equal(tg_pass_min_cut(v, n, keep), TENG_OK);
        unsigned set = 0;
        int64_t bytes = 0, best = INT64_MAX;
        for (int i = 0; i < n; i++)
            if (keep[i]) set |= 1u << i, bytes += v[i].bytes;
        assert_true(serves(v, n, set));
        for (unsigned other = 0; other < 1u << n; other++) {
            int64_t sum = 0;
            for (int i = 0; i < n; i++)
                if (other >> i & 1) sum += v[i].bytes;
            if (sum < best && serves(v, n, other)) best = sum;
        }
        assert_int_equal(bytes, best);
    }
}

int main(void)
{
    tg_op_register_builtin();
    if (tg_device_open("cpu", 1, &device) != TENG_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(clones_keep_the_meaning),
                                       cmocka_unit_test(the_cut_is_the_smallest)};
    const int failed = cmocka_run_group_tests_name("recompute on random graphs", tests, NULL, NULL);
    tg_device_close(&device);
    return failed;
}
