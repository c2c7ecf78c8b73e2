/*
 * Random graphs of elementwise operators, views, products, reductions, updates and collectives, each run in
 * every way there is: the plan with buffers taken over and without, the plan in poisoned memory, PYNATIVE.
 * All give the same bits.
 */
#include "poison_run.h"

#include "base/rng.h"
#include "base/strmap.h"
#include "device/cpu_isa.h"
#include "eager/eager.h"
#include "exec/exec.h"
#include "op/collective/collective.h"
#include "op/op_list.h"
#include "pass/pass.h"
#include "tensor/desc.h"
#include "teng/ops.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAPHS 400
#define MAX_POOL 96

/* ---- making ---- */
typedef struct maker {
    tg_graph *g;
    uint64_t key, draws;
    teng_tensor *pool[MAX_POOL], *rng, *keep;
    int n, states;
} maker;

static int draw(maker *m, int bound)
{
    return (int)tg_rng_below(m->key, m->draws++, (uint64_t)bound);
}

static teng_tensor *any(maker *m)
{
    return m
        ->pool[m->n > 6 && draw(m, 3) ? m->n - 1 - draw(m, 6) : draw(m, m->n)]; /* recent ones more often */
}

static teng_tensor *like(maker *m, const teng_tensor *x)
{
    teng_tensor *found = NULL;
    int n = 0;
    for (int i = 0; i < m->n; i++)
        if (tg_desc_equal(&m->pool[i]->desc, &x->desc) && draw(m, ++n) == 0) found = m->pool[i];
    return found;
}

static void add(maker *m, teng_tensor *v)
{
    if (!v) fail_msg("%s", teng_error());
    if (m->n < MAX_POOL) m->pool[m->n++] = v;
}

static teng_tensor *unary(maker *m, teng_tensor *x)
{
    switch (draw(m, 7)) {
    case 0:
        return teng_tanh(x);
    case 1:
        return teng_sigmoid(x);
    case 2:
        return teng_relu(x);
    case 3:
        return teng_affine(x, 0.5 + draw(m, 3), 0.25);
    case 4:
        return teng_silu(x);
    case 5:
        return teng_dropout(x, m->rng, 0.25, draw(m, 4));
    default:
        return teng_gelu_tanh(x);
    }
}

static teng_tensor *binary(maker *m, teng_tensor *x, teng_tensor *y)
{
    switch (draw(m, 4)) {
    case 0:
        return teng_add(x, y);
    case 1:
        return teng_sub(x, y);
    case 2:
        return teng_mul(x, y);
    default:
        return tg_desc_equal(&x->desc, &y->desc) ? teng_swiglu(x, y) : teng_mul(x, y);
    }
}

/* A matrix view of any value: rows by the last dimension. */
static teng_tensor *matrix(teng_tensor *x)
{
    const int64_t n = tg_desc_numel(&x->desc), c = x->desc.ndim ? x->desc.dims[x->desc.ndim - 1] : 1;
    return teng_reshape(x, TENG_DIMS(n / c, c));
}

static teng_tensor *shaped(maker *m, teng_tensor *x)
{
    teng_tensor *y = matrix(x), *parts[2], *twice[2] = {y, y};
    const int64_t r = y->desc.dims[0], c = y->desc.dims[1];
    switch (draw(m, 7)) {
    case 0:
        return teng_reshape(x, TENG_DIMS(-1));
    case 1:
        return c % 2 == 0 ? teng_reshape(x, TENG_DIMS(r * 2, c / 2)) : y;
    case 2:
        return teng_transpose(y, TENG_DIMS(1, 0));
    case 3:
        return teng_slice(y, 0, 0, r > 1 ? r / 2 : r);
    case 4:
        return teng_concat(twice, 2, draw(m, 2));
    case 5:
        if (c < 2) return y;
        teng_split(y, 1, TENG_DIMS(1, c - 1), parts);
        add(m, parts[0]);
        return parts[1];
    default:
        return y;
    }
}

static teng_tensor *joined(maker *m, teng_tensor *x)
{
    teng_tensor *y = matrix(x);
    switch (draw(m, 5)) {
    case 0:
        return y->desc.dims[0] <= 64 && y->desc.dims[1] <= 256
                   ? teng_scale(teng_matmul(y, y, false, true), 0.1)
                   : y;
    case 1:
        return teng_softmax(y);
    case 2:
        return teng_mul(y, teng_sum(y, TENG_DIMS(1), true)); /* broadcasts */
    case 3:
        return teng_add(y, teng_mean(y, TENG_DIMS(0), false));
    default:
        return teng_cast(unary(m, teng_cast(x, TENG_BF16)), TENG_F32);
    }
}

/* One rank alone: a copy, or nothing where it takes over its operand. */
static teng_tensor *reduced(maker *m, teng_tensor *x)
{
    static const tg_all_reduce_attr reduce = {.axes = 2, .parts = 1};
    const tg_pieces_attr gather = {.axes = 2, .parts = 1, .total = x->desc.dims[0]};
    if (x->desc.ndim && draw(m, 2)) return teng_apply((teng_src){0}, &tg_op_all_gather, &gather, 1, &x, NULL);
    return teng_apply((teng_src){0}, &tg_op_all_reduce, &reduce, 1, &x, NULL);
}

/* Adds x to a persistent value, whose old one may still be on its way to other ranks; both go on as operands.
 */
static teng_tensor *accumulated(maker *m, teng_tensor *x)
{
    char name[24];
    snprintf(name, sizeof name, "state%d", m->states++);
    teng_tensor *state = tg_graph_state(m->g, name, &x->desc);
    if (draw(m, 2)) add(m, reduced(m, state));
    teng_tensor *y =
        teng_apply((teng_src){0}, &tg_op_accumulate, NULL, 3, (teng_tensor *[]){state, x, m->keep}, NULL);
    if (y) tg_graph_output(m->g, name, y);
    return y;
}

static void grow(maker *m)
{
    teng_tensor *x = any(m), *y = NULL;
    const tg_trace *trace = tg_trace_current();
    switch (draw(m, 7)) {
    case 6:
        y = reduced(m, x);
        break;
    case 0:
    case 1:
        y = unary(m, x);
        break;
    case 2:
    case 3:
        y = binary(m, x, like(m, x));
        break;
    case 4:
        y = tg_desc_numel(&x->desc) < 4096 ? shaped(m, x) : unary(m, x);
        break;
    default:
        y = trace->phase != TG_FORWARD && draw(m, 2) ? accumulated(m, x) : joined(m, x);
    }
    add(m, y);
}

static tg_graph *random_graph(uint64_t seed)
{
    maker m = {.g = tg_graph_create("random"), .key = tg_rng_key(seed, "graph")};
    static const int64_t sides[] = {1, 4, 8, 12, 17};
    const int64_t dims[2] = {sides[draw(&m, 5)], sides[draw(&m, 5)]}, two = 2;
    const teng_desc mat = tg_desc_make(TENG_F32, 2, dims), pair = tg_desc_make(TENG_U64, 1, &two),
                    scalar = tg_desc_make(TENG_F32, 0, NULL);
    m.rng = tg_graph_input(m.g, "rng", &pair);
    m.keep = tg_graph_input(m.g, "keep", &scalar);
    add(&m, tg_graph_input(m.g, "x", &mat));
    add(&m, tg_graph_input(m.g, "y", &mat));
    add(&m, tg_graph_param(m.g, "w", &mat));
    tg_trace trace;
    tg_trace_begin(&trace, m.g);
    for (int phase = TG_FORWARD; phase <= TG_UPDATE; phase++) {
        trace.phase = (tg_phase)phase;
        for (int k = 3 + draw(&m, 14); k > 0; k--)
            grow(&m);
    }
    tg_trace_end(&trace);
    for (int i = 3; i < m.n; i++) {
        char name[24];
        snprintf(name, sizeof name, "out%d", i);
        if (m.pool[i]->kind == TG_VALUE_COMPUTED && (draw(&m, 4) == 0 || i == m.n - 1))
            assert_int_equal(tg_graph_output(m.g, name, m.pool[i]), TENG_OK);
    }
    return m.g;
}

/* ---- running ---- */
static tg_device *device;

/* The same bytes for the same name, every time. */
static void fill(void *user, const teng_tensor *v, void *to)
{
    (void)user;
    if (v->desc.dtype == TENG_U64)
        memcpy(to, (const uint64_t[]){7, 3}, 16);
    else if (strcmp(v->name, "keep") == 0)
        *(float *)to = 0.5F;
    else
        tg_rng_normal(tg_hash64(v->name, strlen(v->name), 0), 1, to, tg_desc_numel(&v->desc));
}

static tg_store *filled_store(const tg_graph *g)
{
    tg_store *store = tg_store_create(device);
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (v->kind != TG_VALUE_PARAM && v->kind != TG_VALUE_STATE) continue;
        tg_store_entry *e;
        assert_int_equal(tg_store_add(store, v->kind == TG_VALUE_PARAM ? TG_STORE_PARAM : TG_STORE_STATE,
                                      v->name, &v->desc, &e),
                         TENG_OK);
        fill(NULL, v, e->data);
    }
    return store;
}

/* Values of all outputs one after the other; their size first. */
static size_t output_bytes(const tg_graph *g)
{
    size_t bytes = 0;
    for (size_t i = 0; i < g->outputs.len; i++)
        bytes += tg_desc_bytes(&g->outputs.data[i].value->desc);
    return bytes;
}

enum way { TAKE_OVER, TAKE_OVER_POISONED, SEPARATE, SEPARATE_POISONED, PASSES, PASSES_POISONED, WAYS };
static size_t nodes_before, nodes_after; /* of the passes, over all graphs */

static tg_plan *plan_of(const char *text, int way)
{
    tg_graph *g = NULL;
    tg_plan *plan = NULL;
    const tg_plan_options o = {.device = "cpu",
                               .isa = tg_cpu_isa_current(),
                               .no_inplace = way == SEPARATE || way == SEPARATE_POISONED};
    teng_status status = tg_graph_parse("random", text, &g);
    if (status == TENG_OK && way >= PASSES) {
        nodes_before += g->nodes.len;
        status = tg_pass_run(g, (const char *const[]){"default"}, 1, NULL, NULL, NULL);
        nodes_after += g->nodes.len;
    }
    if (status != TENG_OK || tg_plan_create(g, &o, &plan) != TENG_OK) fail_msg("%s\n%s", teng_error(), text);
    return plan;
}

static void run_plan(const tg_plan *plan, unsigned char *out)
{
    const tg_graph *g = plan->graph;
    tg_store *store = filled_store(g);
    tg_exec_block *block = tg_exec_block_create(device);
    tg_exec *exec = NULL;
    assert_int_equal(tg_exec_create(plan, store, block, &exec), TENG_OK);
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (v->kind != TG_VALUE_INPUT) continue;
        void *host = tg_alloc(tg_desc_bytes(&v->desc));
        fill(NULL, v, host);
        assert_int_equal(tg_exec_feed(exec, v->name, host), TENG_OK);
        tg_free(host);
    }
    if (tg_exec_run(exec, TG_FORWARD, TG_UPDATE) != TENG_OK) fail_msg("%s", teng_error());
    for (size_t i = 0; i < g->outputs.len; i++) {
        const size_t bytes = tg_desc_bytes(&g->outputs.data[i].value->desc);
        assert_int_equal(tg_exec_fetch(exec, g->outputs.data[i].name, out, bytes), TENG_OK);
        out += bytes;
    }
    tg_exec_destroy(&exec);
    tg_exec_block_destroy(&block);
    tg_store_destroy(&store);
}

static void run_poisoned(const tg_plan *plan, unsigned char *out)
{
    tg_store *store = filled_store(plan->graph);
    unsigned char *block = poison_run(plan, store, NULL, TG_FORWARD, TG_UPDATE, fill, NULL);
    for (size_t i = 0; i < plan->graph->outputs.len; i++) {
        const teng_tensor *v = plan->graph->outputs.data[i].value;
        memcpy(out, poison_value(plan, store, block, v), tg_desc_bytes(&v->desc));
        out += tg_desc_bytes(&v->desc);
    }
    tg_free_aligned(block);
    tg_store_destroy(&store);
}

/* Appends the nodes of g to a graph whose nodes run at once. */
static void run_eager(const tg_graph *g, unsigned char *out)
{
    tg_store *store = filled_store(g);
    tg_eager *eager = tg_eager_create(store, tg_cpu_isa_current());
    tg_graph *e = tg_graph_create("eager");
    tg_eager_begin(eager, e);
    teng_tensor **twin = tg_calloc(g->values.len, sizeof(teng_tensor *));
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_tensor *v = g->values.data[i];
        if (v->kind == TG_VALUE_COMPUTED) continue;
        twin[i] = v->kind == TG_VALUE_INPUT   ? tg_graph_input(e, v->name, &v->desc)
                  : v->kind == TG_VALUE_PARAM ? tg_graph_param(e, v->name, &v->desc)
                                              : tg_graph_state(e, v->name, &v->desc);
        void *host = tg_alloc(tg_desc_bytes(&v->desc));
        fill(NULL, v, host);
        if (v->kind == TG_VALUE_INPUT) assert_int_equal(tg_eager_feed(eager, twin[i], host), TENG_OK);
        tg_free(host);
    }
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        teng_tensor *in[8];
        assert_true(node->n_in <= 8);
        for (int i = 0; i < node->n_in; i++)
            in[i] = twin[node->in[i]->id];
        const tg_node *copy = tg_graph_append(e, node->op, node->attr, node->n_in, in, "", NULL, node->phase);
        if (!copy) fail_msg("%s", teng_error());
        for (int o = 0; o < node->n_out; o++)
            twin[node->out[o]->id] = copy->out[o];
    }
    for (size_t i = 0; i < g->outputs.len; i++) {
        const size_t bytes = tg_desc_bytes(&g->outputs.data[i].value->desc);
        assert_int_equal(tg_eager_fetch(eager, twin[g->outputs.data[i].value->id], out, bytes), TENG_OK);
        out += bytes;
    }
    tg_free(twin);
    tg_graph_destroy(&e);
    tg_eager_destroy(&eager);
    tg_store_destroy(&store);
}

static int taken_over, beside;

static void run_every_way(uint64_t seed)
{
    tg_graph *g = random_graph(seed);
    tg_strbuf text = {0};
    tg_graph_print(g, &text);
    const size_t bytes = output_bytes(g);
    unsigned char *want = tg_calloc(bytes, 1), *got = tg_calloc(bytes, 1);
    run_eager(g, want);
    for (int way = 0; way < WAYS; way++) {
        tg_plan *plan = plan_of(tg_strbuf_str(&text), way);
        memset(got, 1, bytes);
        if (way % 2)
            run_poisoned(plan, got);
        else
            run_plan(plan, got);
        for (size_t k = 0; k < plan->steps.len; k++) {
            taken_over += plan->steps.data[k].inplace_of >= 0;
            beside += plan->steps.data[k].join >= 0;
        }
        if (memcmp(want, got, bytes) != 0)
            fail_msg("graph %llu, way %d gives other bits than PYNATIVE:\n%s", (unsigned long long)seed, way,
                     tg_strbuf_str(&text));
        tg_plan_destroy(&plan);
    }
    tg_free(want);
    tg_free(got);
    tg_strbuf_free(&text);
    tg_graph_destroy(&g);
}

static void all_ways_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++)
        run_every_way(seed);
    assert_true(taken_over > 4 * GRAPHS); /* the interesting cases did happen */
    assert_true(beside > 4 * GRAPHS);
    assert_true(nodes_after + 4 * GRAPHS < nodes_before);
}

int main(void)
{
    tg_op_register_builtin();
    if (tg_device_open("cpu", 2, &device) != TENG_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ways_agree)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tg_device_close(&device);
    return failed;
}
