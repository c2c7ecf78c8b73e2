/*
 * Cutting a graph into the pieces of a pipeline: layers as even as can be (against trying all cuts), every
 * node in one piece, values that travel only along the stream, gradients of a tied table in parts, refusals.
 */
#include "base/fail.h"
#include "base/rng.h"
#include "op/op_list.h"
#include "parallel/pipe_cut.h"
#include "tensor/desc.h"
#include "tiny_lm.h"
#include "train/step.h"

#include "cmocka_all.h"

#include <limits.h>
#include <string.h>

/* The training graph of one rank with accumulated gradients, of a root that takes tokens and labels. */
static tg_graph *whole_of(teng_cell *cell)
{
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){2, 16});
    const tg_step_feed shapes = {
        .in_desc = (teng_desc[]){desc, desc}, .in_name = (const char *[]){"tokens", "labels"}, .n_in = 2};
    tg_step_options options = tiny_options();
    tg_device *dev = NULL;
    tg_step *step = NULL;
    tg_graph *g = NULL;
    tg_recompute_try all = {.moves = INT_MAX};
    options.micro_batches = 2;
    assert_int_equal(tg_device_open("cpu", 1, &dev), TENG_OK);
    tg_store *store = tg_store_create(dev);
    if (tg_step_create(cell, store, &options, &step) != TENG_OK ||
        tg_step_make_graph(step, &shapes, TG_STEP_TRAIN, &all, &g) != TENG_OK)
        fail_msg("%s", teng_error());
    tg_step_destroy(&step);
    tg_store_destroy(&store);
    tg_device_close(&dev);
    return g;
}

/* ---- balance ---- */
static double worst_run(const double *cost, int n, const int *piece, int pieces)
{
    double worst = 0;
    for (int k = 0; k < pieces; k++) {
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += piece[i] == k ? cost[i] : 0;
        if (sum > worst) worst = sum;
    }
    return worst;
}

static double best_of_all(const double *cost, int n, int pieces)
{
    double best = 1e300;
    for (unsigned bits = 0; bits < 1u << (n - 1); bits++) { /* where a new piece begins */
        int piece[16] = {0}, k = 0;
        for (int i = 1; i < n; i++)
            piece[i] = k += (bits >> (i - 1) & 1u) ? 1 : 0;
        if (k + 1 != pieces) continue;
        const double worst = worst_run(cost, n, piece, pieces);
        if (worst < best) best = worst;
    }
    return best;
}

static void as_even_as_can_be(void **state)
{
    (void)state;
    uint64_t draws = 0;
    for (int round = 0; round < 300; round++) {
        const int n = 1 + (int)tg_rng_below(3, draws++, 10),
                  pieces = 1 + (int)tg_rng_below(3, draws++, (uint64_t)n);
        double cost[16];
        int piece[16];
        for (int i = 0; i < n; i++)
            cost[i] = (double)tg_rng_below(3, draws++, 9);
        assert_int_equal(tg_pipe_balance(cost, n, pieces, piece), TENG_OK);
        assert_int_equal(piece[0], 0);
        assert_int_equal(piece[n - 1], pieces - 1);
        for (int i = 1; i < n; i++)
            assert_true(piece[i] == piece[i - 1] || piece[i] == piece[i - 1] + 1);
        assert_true(worst_run(cost, n, piece, pieces) <= best_of_all(cost, n, pieces) * (1 + 1e-9));
    }
    int piece[3];
    assert_int_equal(tg_pipe_balance((const double[]){5, 1, 1, 1, 1, 1, 5}, 7, 3, (int[7]){0}), TENG_OK);
    assert_int_equal(tg_pipe_balance((const double[]){1, 1, 1}, 3, 4, piece), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "3 layers cannot be cut into 4 pieces"));
    teng_error_clear();
}

/* ---- the cut ---- */
static int count_op(const tg_graph *g, const teng_op_spec *op)
{
    int n = 0;
    for (size_t k = 0; k < g->nodes.len; k++)
        n += g->nodes.data[k]->op == op;
    return n;
}

/* Every node that lies somewhere lies in one piece, what may be made anew where it is read in at least one.
 */
static void check_pieces(const tg_pipe_cut *cut, int pieces, bool split)
{
    size_t placed = 0, copied = 0;
    for (size_t k = 0; k < cut->whole->nodes.len; k++)
        placed += cut->piece[k] >= 0 && !cut->parted[k];
    for (int piece = 0; piece < pieces; piece++) {
        tg_graph *g;
        if (tg_pipe_piece_graph(cut, piece, split, &g) != TENG_OK) fail_msg("%s", teng_error());
        if (tg_graph_check(g) != TENG_OK) fail_msg("%s", teng_error());
        for (size_t i = 0; i < cut->edges.len; i++) {
            const tg_pipe_edge *e = &cut->edges.data[i];
            if (e->to == piece) assert_int_equal(tg_graph_find(g, e->name)->kind, TG_VALUE_INPUT);
            if (e->from == piece) assert_non_null(tg_graph_output_find(g, e->name));
        }
        assert_int_equal(tg_graph_output_find(g, "loss") != NULL, piece == pieces - 1);
        copied += g->nodes.len;
        tg_graph_destroy(&g);
    }
    assert_true(copied >= placed);
}

static void check_update(const tg_pipe_cut *cut, int stages)
{
    int updates = 0, shared = 0;
    for (size_t i = 0; i < cut->shared.len; i++)
        for (int s = 0; s < stages; s++)
            shared += cut->shared.data[i].on[s];
    for (int stage = 0; stage < stages; stage++) {
        tg_graph *g;
        if (tg_pipe_update_graph(cut, stage, &g) != TENG_OK) fail_msg("%s", teng_error());
        if (tg_graph_check(g) != TENG_OK) fail_msg("%s", teng_error());
        assert_non_null(tg_graph_output_find(g, TG_PIPE_SUM));
        assert_non_null(tg_graph_output_find(g, "grad_norm"));
        updates += count_op(g, &tg_op_adamw);
        tg_graph_destroy(&g);
    }
    assert_int_equal(updates, count_op(cut->whole, &tg_op_adamw) + shared - (int)cut->shared.len);
}

static void families_cut(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "gpt2", "qwen3", "mixtral"};
    for (size_t f = 0; f < 4; f++) {
        teng_cell *cell = teng_lm_create(tiny_config(families[f]));
        tg_graph *g = whole_of(cell);
        tg_pipe_layers *layers;
        tg_pipe_cut *cut;
        if (tg_pipe_layers_make(g, 2, 0, 0, &layers) != TENG_OK) fail_msg("%s", teng_error());
        assert_int_equal(layers->list.len, 4); /* embedding, two layers, head */
        assert_int_equal(layers->list.data[0].piece, 0);
        assert_int_equal(layers->list.data[3].piece, 1);
        for (size_t i = 0; i < 4; i++)
            assert_true(layers->list.data[i].cost > 0);
        if (tg_pipe_cut_make(g, layers, 2, &cut) != TENG_OK) fail_msg("%s", teng_error());
        assert_true(cut->edges.len >= 2);
        for (size_t i = 0; i < cut->edges.len; i++) { /* never a weight's gradient */
            const teng_tensor *v = cut->whole->values.data[cut->edges.data[i].value];
            assert_true(v->desc.ndim != 2 || v->desc.dims[0] != TINY_VOCAB);
        }
        const bool tied = strcmp(families[f], "llama") == 0 || strcmp(families[f], "gpt2") == 0;
        assert_int_equal(cut->shared.len, tied);
        for (int s = 0; tied && s < 2; s++)
            assert_true(cut->shared.data[0].on[s] && cut->shared.data[0].adds[s]);
        for (int p = 0; p < 2; p++)
            assert_true(cut->costs[p].forward > 0 &&
                        cut->costs[p].input_grad + cut->costs[p].weight_grad > 0);
        assert_true(cut->costs[0].input_grad == 0); /* nobody waits for the first piece */
        assert_true(cut->costs[1].input_grad > 0 && cut->costs[1].weight_grad > 0);
        check_pieces(cut, 2, false);
        check_pieces(cut, 2, true);
        check_update(cut, 2);
        tg_strbuf text = {0};
        tg_pipe_cut_print(cut, &text);
        assert_non_null(strstr(tg_strbuf_str(&text), "piece 1   on stage 1"));
        tg_strbuf_free(&text);
        tg_pipe_cut_destroy(&cut);
        tg_pipe_layers_destroy(&layers);
        teng_cell_destroy(&cell);
    }
}

/* ---- refusals ---- */
/* tokens, labels → loss of two numbered cells, of which the first is used again behind the second. */
static teng_tensor *again_forward(teng_cell *self, teng_tensor *const *in, int n_in)
{
    (void)n_in;
    teng_cell **part = teng_cell_data(self);
    teng_tensor *x = teng_call(part[0], in[0]);
    x = teng_call(part[1], x);
    x = teng_call(part[2], x);
    x = teng_call(part[1], x);
    return teng_cross_entropy(x, in[1], TENG_IGNORE_INDEX);
}

static teng_cell *again_cell(const char *first, const char *second)
{
    teng_cell *root = teng_cell_create("Again", 3 * sizeof(teng_cell *), again_forward);
    teng_cell **part = teng_cell_data(root);
    part[0] = teng_nn_embedding(TINY_VOCAB, TINY_VOCAB, 0.02);
    part[1] = teng_nn_linear(TINY_VOCAB, TINY_VOCAB, true, 0.02);
    part[2] = teng_nn_linear(TINY_VOCAB, TINY_VOCAB, true, 0.02);
    if (!teng_cell_add(root, "table", part[0]) || !teng_cell_add(root, first, part[1]) ||
        !teng_cell_add(root, second, part[2]))
        fail_msg("%s", teng_error());
    return root;
}

static void refusals(void **state)
{
    (void)state;
    teng_cell *lm = teng_lm_create(tiny_config("llama"));
    tg_graph *g = whole_of(lm);
    tg_pipe_layers *layers = NULL;
    tg_pipe_cut *cut = NULL;
    assert_int_equal(tg_pipe_layers_make(g, 3, 0, 0, &layers), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "= 3 pieces are more than the 2 layers"));
    teng_error_clear();
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);

    teng_cell *cell = again_cell("one", "two");
    g = whole_of(cell);
    assert_int_equal(tg_pipe_layers_make(g, 2, 0, 0, &layers), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "has no layers"));
    teng_error_clear();
    tg_graph_destroy(&g);
    teng_cell_destroy(&cell);

    cell = again_cell("0", "1");
    g = whole_of(cell);
    assert_int_equal(tg_pipe_layers_make(g, 2, 0, 0, &layers), TENG_OK);
    layers->list.data[1].piece = 0; /* one layer here, the other there */
    layers->list.data[2].piece = 1;
    assert_int_equal(tg_pipe_cut_make(g, layers, 2, &cut), TENG_UNSUPPORTED);
    assert_non_null(strstr(teng_error(), "a layer that is used twice cannot lie on two stages"));
    teng_error_clear();
    assert_null(cut);
    tg_pipe_layers_destroy(&layers);
    teng_cell_destroy(&cell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_even_as_can_be),
        cmocka_unit_test(families_cut),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
