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
#include "op/add_positions/add_positions.h"
#include "op/builtin_cases.h"
#include "op/dropout/dropout.h"
#include "op/embedding/embedding.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "op/slice/slice.h"
#include "tensor/desc.h"
#include "teng/ops.h"

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
    const teng_desc logits = tg_desc_make(TENG_F32, 2, (int64_t[]){ROWS, V});
    const int skip = op == &tg_op_cross_entropy; /* it has logits in the place of x and w */
    double *value[64] = {0}, nine = 9;
    teng_tensor *in[4], *split[3];
    const int64_t ignore = -1;
    tg_graph *g = tg_graph_create("loss");
    for (int i = 0; i < n_in; i++) {
        const int k = i + skip; /* its place in the names */
        const teng_desc *d = k == skip && skip ? &logits : &desc[k];
        in[i] = tg_graph_input(g, names[k], d);
        value[in[i]->id] = k < 2    ? draw(names[k], tg_desc_numel(d))
                           : k == 2 ? draw_ids(names[k], ROWS, -1, V)
                                    : &nine;
    }
    const tg_node *node = tg_graph_append(g, op, &ignore, n_in, in, "head", NULL, TG_FORWARD);
    assert_non_null(node);
    assert_int_equal(tg_linear_ce_by_vocabulary(g, node, n_in, in, 1 << TG_AXIS_TENSOR, parts, split),
                     TENG_OK);
    assert_int_equal(tg_graph_check(g), TENG_OK);
    assert_true(g->values.len <= 64);
    run_graph(g, value);
    for (int o = 0; o < node->n_out; o++) {
        assert_true(tg_desc_equal(&split[o]->desc, &node->out[o]->desc));
        const int64_t n = tg_desc_numel(&split[o]->desc);
        if (n == ROWS && o == 1) continue; /* lse: in ignored rows it is not read */
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
            check_vocabulary(&tg_op_cross_entropy, n_in - 1, parts);
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

/* The loss on 3 ranks with 4, 4 and 3 of 11 entries: columns of lse, summands of hit and dx, pieces of dw. */
static void test_uneven_loss(void **state)
{
    (void)state;
    enum { V = 11, C = 3, N = 6, PARTS = 3 };
    const teng_desc whole[] = {tg_desc_make(TENG_F32, 2, (int64_t[]){N, C}),
                               tg_desc_make(TENG_F32, 2, (int64_t[]){V, C}),
                               tg_desc_make(TENG_I32, 1, (int64_t[]){N}),
                               tg_desc_make(TENG_F32, 1, (int64_t[]){N}), tg_desc_make(TENG_F32, 0, NULL)};
    const tg_linear_lse_attr attr = {.ignore_index = -1, .parts = PARTS};
    const tg_linear_ce_attr grad = {.ignore_index = -1};
    const double one = 1;
    double *x = draw("x", N * C), *w = draw("w", V * C), *labels = draw_ids("labels", N, -1, V);
    double *lse = draw("lse", N), *want[4], *mine[4], hit[N] = {0}, dx[N * C] = {0};
    run(&tg_op_linear_lse, &attr, 3, whole, (const double *[]){x, w, labels}, want);
    run(&tg_op_linear_cross_entropy_grad, &grad, 5, whole, (const double *[]){x, w, labels, lse, &one},
        want + 2);
    for (int64_t r = 0; r < PARTS; r++) {
        enum { R = TENG_REPLICATED, P = TENG_PARTIAL };
        int64_t begin, size;
        tg_mesh_cut(V, PARTS, r, &begin, &size);
        tg_linear_lse_attr own = attr;
        tg_linear_ce_attr own_grad = grad;
        const teng_op_call call = {.attr = &attr, .n_in = 3, .in = whole},
                           call_grad = {.attr = &grad, .n_in = 5, .in = whole};
        tg_op_linear_lse.localize(&call, (teng_place[]){R, 0, R}, (teng_place[]){1, P}, PARTS, r, &own);
        tg_op_linear_cross_entropy_grad.localize(&call_grad, (teng_place[]){R, 0, R, R, R},
                                                 (teng_place[]){P, 0}, PARTS, r, &own_grad);
        teng_desc piece[5];
        memcpy(piece, whole, sizeof piece);
        piece[1].dims[0] = size;
        run(&tg_op_linear_lse, &own, 3, piece, (const double *[]){x, w + begin * C, labels}, mine);
        run(&tg_op_linear_cross_entropy_grad, &own_grad, 5, piece,
            (const double *[]){x, w + begin * C, labels, lse, &one}, mine + 2);
        for (int i = 0; i < N; i++) {
            same(mine[0] + i, want[0] + i * PARTS + r, 1);
            hit[i] += mine[1][i];
        }
        for (int i = 0; i < N * C; i++)
            dx[i] += mine[2][i];
        same(mine[3], want[3] + begin * C, size * C);
        for (int i = 0; i < 4; i++)
            tg_free(mine[i]);
    }
    same(hit, want[1], N);
    same(dx, want[2], N * C);
    double *const all[] = {x, w, labels, lse, want[0], want[1], want[2], want[3]};
    for (int i = 0; i < 8; i++)
        tg_free(all[i]);
}

/* ---- sequences in pairs of pieces ---- */
enum { B = 2, INNER = 6 };

/* Row t of the whole that row r of the rank is. */
static int64_t pair_row(int64_t t, int64_t parts, int64_t rank, int64_t r)
{
    const int64_t piece = t / (2 * parts);
    return r < piece ? rank * piece + r : (2 * parts - 1 - rank) * piece + r - piece;
}

/* Rows first … first + n - 1 of the rank's rows of x [B, t, INNER]. */
static double *own_rows(const double *x, int64_t t, int64_t parts, int64_t rank, int64_t first, int64_t n)
{
    double *own = tg_alloc(sizeof *own * (size_t)(B * n * INNER));
    for (int64_t b = 0; b < B; b++)
        for (int64_t r = 0; r < n; r++)
            memcpy(own + (b * n + r) * INNER, x + (b * t + pair_row(t, parts, rank, first + r)) * INNER,
                   sizeof *own * INNER);
    return own;
}

/* Each rank, and each of `halves` ranks among which its rows are split again, computes its rows of the
 * whole. x is [B, t, INNER] under the dimensions of `whole`; other: the second operand, or NULL. */
static void check_pair(const teng_op_spec *op, const void *attr, const teng_desc *whole, const double *other,
                       int64_t parts, int64_t halves)
{
    const int64_t t = whole[0].dims[1], n = t / parts;
    const int n_in = other ? 2 : 1;
    double *x = draw("x", B * t * INNER), *y, *mine;
    void *own = tg_calloc(1, op->attr_size);
    run(op, attr, n_in, whole, (const double *[]){x, other}, &y);
    for (int64_t rank = 0; rank < parts; rank++)
        for (int64_t half = 0; half < halves; half++) {
            const teng_place split[] = {1, TENG_REPLICATED};
            teng_desc local[] = {whole[0], whole[1]};
            int64_t first, rows;
            memcpy(own, attr, op->attr_size);
            teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = local};
            op->localize_pair(&call, split, split, parts, rank, own);
            local[0].dims[1] = n;
            void *before = tg_calloc(1, op->attr_size);
            memcpy(before, own, op->attr_size);
            call.attr = before;
            if (halves > 1) op->localize(&call, split, split, halves, half, own);
            tg_free(before);
            tg_mesh_cut(n, halves, half, &first, &rows);
            local[0].dims[1] = rows;
            double *want = own_rows(y, t, parts, rank, first, rows),
                   *in = own_rows(x, t, parts, rank, first, rows);
            run(op, own, n_in, local, (const double *[]){in, other}, &mine);
            same(mine, want, B * rows * INNER);
            tg_free(want);
            tg_free(in);
            tg_free(mine);
        }
    tg_free(own);
    tg_free(x);
    tg_free(y);
}

static void test_pairs(void **state)
{
    (void)state;
    static const teng_rope_options rope = {
        .theta = 100, .type = TENG_ROPE_DYNAMIC, .factor = 2, .original_max_position = 8};
    static const tg_add_positions_attr all = {{0, 0, 0}};
    static const tg_dropout_attr drop = {.p = 0.5, .stream = 3};
    const double rng[] = {77, 5};
    for (int64_t parts = 1; parts <= 4; parts++)
        for (int64_t halves = 1; halves <= 4; halves++) {
            const int64_t t = parts * 6;
            const teng_desc heads[] = {tg_desc_make(TENG_F32, 4, (int64_t[]){B, t, 1, INNER}), {0}};
            const teng_desc rows[] = {tg_desc_make(TENG_F32, 3, (int64_t[]){B, t, INNER}),
                                      tg_desc_make(TENG_F32, 2, (int64_t[]){t + 2, INNER})};
            const teng_desc drops[] = {rows[0], tg_desc_make(TENG_U64, 1, (int64_t[]){2})};
            double *table = draw("positions", (t + 2) * INNER);
            check_pair(&tg_op_rope, &rope, heads, NULL, parts, halves);
            check_pair(&tg_op_add_positions, &all, rows, table, parts, halves);
            check_pair(&tg_op_dropout, &drop, drops, rng, parts, halves);
            tg_free(table);
        }
}

/* The ranks' gradients of a table of positions sum to the whole one. */
static void test_pair_of_slice_grad(void **state)
{
    (void)state;
    enum { T = 24, P = 30 };
    const tg_slice_grad_attr whole = {{0, 2, P}, 0, 0};
    const teng_desc desc = tg_desc_make(TENG_F32, 2, (int64_t[]){T, INNER});
    double *dy = draw("dy", T * INNER), *want, *part, in[T * INNER];
    run(&tg_op_slice_grad, &whole, 1, &desc, (const double *[]){dy}, &want);
    for (int64_t parts = 1; parts <= 4; parts++) {
        double sum[P * INNER] = {0};
        teng_desc local = desc;
        local.dims[0] = T / parts;
        for (int64_t rank = 0; rank < parts; rank++) {
            const teng_op_call call = {.attr = &whole, .n_in = 1, .in = &desc};
            tg_slice_grad_attr own = whole;
            tg_op_slice_grad.localize_pair(&call, (teng_place[]){0}, (teng_place[]){TENG_PARTIAL}, parts,
                                           rank, &own);
            for (int64_t r = 0; r < T / parts; r++)
                memcpy(in + r * INNER, dy + pair_row(T, parts, rank, r) * INNER, sizeof *in * INNER);
            run(&tg_op_slice_grad, &own, 1, &local, (const double *[]){in}, &part);
            for (int i = 0; i < P * INNER; i++)
                sum[i] += part[i];
            tg_free(part);
        }
        same(sum, want, P * INNER);
    }
    tg_free(dy);
    tg_free(want);
}

int main(void)
{
    if (tg_op_register_builtin() != TENG_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary),         cmocka_unit_test(test_uneven_vocabulary),
        cmocka_unit_test(test_uneven_loss),        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pair_of_slice_grad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
