/*
 * What ranks do with their shards where the placement rules of single operators (test_ops) do not tell all:
 * the loss by pieces of the vocabulary as a whole, uneven pieces, sequences in pairs of pieces. Everything is
 * evaluated in float64 by the operators' references.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "graph/graph.h"
#include "graph/op_table.h"
#include "mesh/mesh.h"
#include "op/builtin_cases.h"
#include "op/embedding/embedding.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

static double *draw(const char *name, int64_t n)
{
    float *f = tg_alloc(sizeof(float) * (size_t)(n + 1));
    double *x = tg_alloc(sizeof(double) * (size_t)(n + 1));
    tg_rng_normal(tg_rng_key(3, name), 1, f, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)f[i];
    tg_free(f);
    return x;
}

static double *draw_ids(const char *name, int64_t n, int64_t least, int64_t limit)
{
    double *x = tg_alloc(sizeof(double) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        x[i] =
            (double)least + (double)tg_rng_below(tg_rng_key(3, name), (uint64_t)i, (uint64_t)(limit - least));
    return x;
}

static void same(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-10 * (1 + fabs(b[i]))))
            fail_msg("element %lld is %.15g, not %.15g", (long long)i, a[i], b[i]);
}

/* One call by its reference; out[] are new arrays. */
static void run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in_desc,
                const double *const *in, double **out)
{
    teng_desc out_desc[TENG_MAX_OUT];
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in_desc, .out = out_desc};
    if (tg_op_infer(op, attr, n_in, in_desc, out_desc, &call.n_out) != TENG_OK) fail_msg("%s", teng_error());
    for (int o = 0; o < call.n_out; o++)
        out[o] = tg_calloc((size_t)tg_desc_numel(&out_desc[o]) + 1, sizeof(double));
    assert_int_equal(tg_op_cases_find(op->name)->reference(&call, in, out), TENG_OK);
}

/* All nodes of g; value[id] holds its inputs before, everything after. */
static void run_graph(const tg_graph *g, double **value)
{
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        const double *in[TENG_CASE_MAX_IN];
        teng_desc in_desc[TENG_CASE_MAX_IN];
        double *out[TENG_MAX_OUT];
        for (int i = 0; i < node->n_in; i++) {
            in[i] = value[node->in[i]->id];
            in_desc[i] = node->in[i]->desc;
        }
        run(node->op, node->attr, node->n_in, in_desc, in, out);
        for (int o = 0; o < node->n_out; o++)
            value[node->out[o]->id] = out[o];
    }
}

/* A loss node and what stands for it by pieces of the vocabulary give the same. */
static void check_vocabulary(const teng_op_spec *op, int n_in, int64_t parts)
{
    enum { ROWS = 6, V = 11, C = 4 };
    const teng_desc desc[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){ROWS, C}),
                              tg_desc_make(TENG_F32, 2, (int64_t[]){V, C}),
                              tg_desc_make(TENG_I32, 1, (int64_t[]){ROWS}), tg_desc_make(TENG_F32, 0, NULL)};
    static const char *const names[] = {"x", "w", "labels", "valid"};
    double *value[64] = {0}, nine = 9;
    teng_tensor *in[4], *split[3];
    const int64_t ignore = -1;
    tg_graph *g = tg_graph_create("loss");
    for (int i = 0; i < n_in; i++) {
        in[i] = tg_graph_input(g, names[i], &desc[i]);
        value[in[i]->id] = i < 2    ? draw(names[i], tg_desc_numel(&desc[i]))
                           : i == 2 ? draw_ids(names[i], ROWS, -1, V)
                                    : &nine;
    }
    const tg_node *node = tg_graph_append(g, op, &ignore, n_in, in, "head", NULL, TG_FORWARD);
    assert_non_null(node);
    assert_int_equal(tg_linear_ce_by_vocabulary(g, node, n_in, in, parts, split), TENG_OK);
    assert_int_equal(tg_graph_check(g), TENG_OK);
    assert_true(g->values.len <= 64);
    run_graph(g, value);
    for (int o = 0; o < node->n_out; o++) {
        assert_true(tg_desc_equal(&split[o]->desc, &node->out[o]->desc));
        const int64_t n = tg_desc_numel(&split[o]->desc);
        if (op == &tg_op_linear_cross_entropy && o == 1) continue; /* lse of ignored rows is not read */
        same(value[split[o]->id], value[node->out[o]->id], n);
    }
    for (size_t v = 0; v < g->values.len; v++)
        if (value[v] != &nine) tg_free(value[v]);
    tg_graph_destroy(&g);
}

static void test_vocabulary(void **state)
{
    (void)state;
    for (int64_t parts = 1; parts <= 4; parts++)
        for (int n_in = 3; n_in <= 4; n_in++) {
            check_vocabulary(&tg_op_linear_cross_entropy, n_in, parts);
            check_vocabulary(&tg_op_linear_cross_entropy_with_grad, n_in, parts);
        }
}

/* Pieces of 7 rows on 3 ranks: the sum over the ranks is the whole embedding, their gradients make up one. */
static void test_uneven_vocabulary(void **state)
{
    (void)state;
    enum { V = 7, C = 3, N = 10, PARTS = 3 };
    const teng_desc whole[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){V, C}),
                               tg_desc_make(TENG_I32, 1, (int64_t[]){N})};
    const teng_desc back[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){N, C}), whole[1]};
    const tg_embedding_attr attr = {0, 0};
    const tg_embedding_grad_attr grad = {{0, 0}, V};
    double *table = draw("table", V * C), *ids = draw_ids("ids", N, 0, V), *dy = draw("dy", N * C), *want, *y;
    double sum[N * C] = {0};
    run(&tg_op_embedding, &attr, 2, whole, (const double *[]){table, ids}, &want);
    double *dtable;
    run(&tg_op_embedding_grad, &grad, 2, back, (const double *[]){dy, ids}, &dtable);
    for (int64_t r = 0; r < PARTS; r++) {
        int64_t begin, size;
        tg_mesh_cut(V, PARTS, r, &begin, &size);
        tg_embedding_attr own = attr;
        tg_embedding_grad_attr own_grad = grad;
        const teng_op_call call = {.attr = &attr, .n_in = 2, .in = whole},
                           call_grad = {.attr = &grad, .n_in = 2, .in = back};
        tg_op_embedding.localize(&call, (teng_place[]){0, TENG_REPLICATED}, (teng_place[]){TENG_PARTIAL},
                                 PARTS, r, &own);
        tg_op_embedding_grad.localize(&call_grad, (teng_place[]){TENG_REPLICATED, TENG_REPLICATED},
                                      (teng_place[]){0}, PARTS, r, &own_grad);
        teng_desc piece[] = {whole[0], whole[1]};
        piece[0].dims[0] = size;
        run(&tg_op_embedding, &own, 2, piece, (const double *[]){table + begin * C, ids}, &y);
        for (int i = 0; i < N * C; i++)
            sum[i] += y[i];
        tg_free(y);
        assert_int_equal(own_grad.vocab, size);
        run(&tg_op_embedding_grad, &own_grad, 2, back, (const double *[]){dy, ids}, &y);
        same(y, dtable + begin * C, size * C);
        tg_free(y);
    }
    same(sum, want, N * C);
    tg_free(table);
    tg_free(ids);
    tg_free(dy);
    tg_free(want);
    tg_free(dtable);
}

int main(void)
{
    if (tg_op_register_builtin() != TENG_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_uneven_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
