/*
 * What a rank sends and holds, as each strategy's formula says: bytes by axis of an optimizer step, and
 * elements of parameters, gradients and optimizer states under each level of ZeRO, sizes that do not divide
 * too. Of plans, without MPI; that collectives send what their formula says is test_comm's.
 */
#include "par_case.h"

#include "base/fail.h"
#include "parallel/pipe_cut.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

/* vocabulary V, width C, inner I, layers L, heads H of D, KV of keys; 12 rows of 16 positions */
enum { V = 61, C = 32, I = 48, L = 2, D = 8, KV = 2, ROWS = 12, T = 16 };
static const char config[] =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"max_position_embeddings\":64,\"tie_word_embeddings\":false}";
static const double scalar = 4, layer = C * C * 2 + C * D * KV * 2 + 3 * C * I + 2 * C,
                    others = 2 * V * C + C;
static const double residual = 4.0 * ROWS * T * C; /* bytes of the residual stream */

static teng_cell *model(const char *text)
{
    json_t *json = NULL;
    assert_int_equal(tg_json_parse("config", text, strlen(text), &json), TENG_OK);
    teng_cell *lm = tg_lm_create_json(json);
    json_decref(json);
    if (!lm) fail_msg("%s", teng_error());
    return lm;
}

static tg_parallel *plan(par_case c, int rank)
{
    if (!c.config) c.config = config;
    teng_cell *lm = model(c.config);
    tg_parallel *made;
    c.rows = ROWS;
    c.seq = T;
    tg_graph *g = par_case_local(&c, lm, rank, &made);
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
    return made;
}

/* The mean over the ranks, since pieces may be uneven: then it is the formula's. */
static double mean_bytes(par_case c, int n, tg_axis axis)
{
    double sum = 0;
    for (int r = 0; r < n; r++) {
        tg_parallel *made = plan(c, r);
        sum += tg_parallel_bytes(made, 1u << axis);
        if (tg_parallel_bytes(made, 0) != tg_parallel_bytes(made, 1u << axis))
            fail_msg("bytes along another axis");
        tg_parallel_destroy(&made);
    }
    return sum / n;
}

static void want(const char *what, int n, double bytes, double formula)
{
    if (fabs(bytes - formula) > 1e-9 * formula)
        fail_msg("%s %d: %.1f bytes, its formula says %.1f", what, n, bytes, formula);
}

/* Gradients reduced: 2 shares; or scattered, and the updated parameters gathered: 1 and 1. With ZeRO 3
 * scattered, and parameters gathered in both passes, but for what backward does not read: the embedding, and
 * the head, whose gradients are made forward. */
static double of_params(double params, int zero)
{
    return zero < 3 ? 2 * params : 3 * params - 4 * 2 * V * C;
}

static void data_and_zero(void **state)
{
    (void)state;
    const double params = 4 * (L * layer + others);
    for (int n = 2; n <= 4; n++) {
        const double share = (double)(n - 1) / n;
        for (int zero = 0; zero <= 3; zero++) {
            const par_case c = {.size = {[TG_AXIS_DATA] = n}, .zero = zero};
            const double scalars = (zero ? 3 : 2) * scalar; /* loss, labels; norm of what is split */
            want("data, zero", n * 10 + zero, mean_bytes(c, n, TG_AXIS_DATA),
                 share * (of_params(params, zero) + 2 * scalars));
        }
    }
}

static void tensor_and_sequence(void **state)
{
    (void)state;
    {
        const int n = 2;
        const double share = 0.5;
        /* Of each layer's two blocks the output is summed forward and the input's gradient backward; so are
         * the embedding's output and the head's. Of the loss: three numbers of each row. */
        const double loss = (n - 1) * 3 * 4 * ROWS * T;
        const double sums = 2 * (L * 2 + 1);
        par_case c = {.size = {[TG_AXIS_TENSOR] = n}};
        want("tensor", n, mean_bytes(c, n, TG_AXIS_TENSOR),
             2 * share * residual * sums + loss + 2 * share * scalar);
        /* A sum becomes a scatter and a gather. Backward gathers the block's input once more, for the
         * gradient of its weights, instead of keeping it: twice a layer. Gradients of norms are sums. */
        c.sequence = true;
        want("tensor, sequence", n, mean_bytes(c, n, TG_AXIS_TENSOR),
             share * residual * (2 * sums + 2 * L) + loss + 2 * share * (scalar + 4 * C * (2 * L + 1)));
    }
}

static void context_ring(void **state)
{
    (void)state;
    const double params = 4 * (L * layer + others);
    for (int n = 2; n <= 4; n += 2)
        for (int zero = 0; zero <= 3; zero++) {
            const double share = (double)(n - 1) / n, keys = 2.0 * 4 * ROWS * (T / n) * KV * D;
            const par_case c = {.size = {[TG_AXIS_CONTEXT] = n}, .zero = zero};
            /* Keys and values go past all ranks in both passes, their gradients once round; parameters and
             * gradients as along data. */
            want("context, zero", n * 10 + zero, mean_bytes(c, n, TG_AXIS_CONTEXT),
                 share * (of_params(params, zero) + 2 * (zero ? 3 : 2) * scalar) +
                     L * keys * (2 * (n - 1) + n));
        }
}

enum { E = 4, K = 2 }; /* experts, of which a token goes to two */
static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"num_local_experts\":4,"
    "\"num_experts_per_tok\":2,\"max_position_embeddings\":64,\"tie_word_embeddings\":false}";
static const double experts = L * E * 3.0 * C * I, dense = L * (layer - 3 * C * I + E * C) + others;

static void expert_dispatch(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2)
        for (int zero = 0; zero <= 3; zero++) {
            const double share = (double)(n - 1) / n, rows = 4.0 * ROWS * T / n * K * C;
            const par_case c = {.config = mixtral, .size = {[TG_AXIS_EXPERT] = n}, .zero = zero};
            /* Routed rows, when they are even: there and back in both passes, and backward the rows that the
             * first product read once more, instead of keeping them. Experts are summed by nobody; labels,
             * loss and the norm of what is split are. */
            want("expert, zero", n * 10 + zero, mean_bytes(c, n, TG_AXIS_EXPERT),
                 share * (5 * L * rows + of_params(4 * dense, zero) + 2 * 3 * scalar));
        }
}

/* The bytes of a stage of two along an axis: its pieces are cut out of the graph of a rank. */
static double stage_bytes(par_case c, int rank, tg_axis axis)
{
    teng_cell *lm = model(c.config);
    tg_pipe_layers *layers;
    tg_pipe_cut *cut;
    tg_parallel *made;
    tg_graph *piece;
    const int stage = rank / (c.size[TG_AXIS_DATA] > 1 ? c.size[TG_AXIS_DATA] : 1);
    c.rows = ROWS;
    c.seq = T;
    tg_graph *g = par_case_local(&c, lm, rank, &made);
    assert_int_equal(tg_pipe_layers_make(g, 2, 0, 0, &layers), TENG_OK);
    assert_int_equal(tg_pipe_cut_make(g, layers, 2, &cut), TENG_OK);
    assert_int_equal(tg_pipe_piece_graph(cut, stage, false, &piece), TENG_OK);
    tg_graph_destroy(&piece);
    assert_int_equal(tg_pipe_update_graph(cut, stage, &piece), TENG_OK);
    tg_graph_destroy(&piece);
    assert_int_equal(tg_pipe_cut_moves(cut, stage, made), TENG_OK);
    const double bytes = tg_parallel_bytes(made, 1u << axis);
    tg_parallel_destroy(&made);
    tg_pipe_cut_destroy(&cut);
    tg_pipe_layers_destroy(&layers);
    teng_cell_destroy(&lm);
    return bytes;
}

static void pipeline_edges(void **state)
{
    (void)state;
    char tied[sizeof config];
    memcpy(tied, config, sizeof tied);
    memcpy(strstr(tied, ":false"), ":true ", 6);
    const double table = 4 * V * C, half = 4 * L / 2 * layer;
    for (int micro = 2; micro <= 4; micro += 2)
        for (int data = 1; data <= 2; data++)
            for (int ties = 0; ties <= 1; ties++) {
                const par_case c = {.config = ties ? tied : config,
                                    .size = {[TG_AXIS_PIPELINE] = 2, [TG_AXIS_DATA] = data},
                                    .micro_batches = micro};
                /* Each stage sends the residual stream, one forward and one its gradient backward; of a tied
                 * table the last its part of the gradient, the first the sum. */
                for (int rank = 0; rank < 2 * data; rank++)
                    want("pipeline", rank, stage_bytes(c, rank, TG_AXIS_PIPELINE),
                         micro * residual / data + ties * table);
                if (data == 1) continue;
                /* Along data each stage sums the gradients of what it holds alone. */
                want("data of the first stage", ties, stage_bytes(c, 0, TG_AXIS_DATA), half + table);
                want("data of the last stage", ties, stage_bytes(c, 2, TG_AXIS_DATA),
                     half + table + 4 * C + micro * 2 * scalar);
            }
}

/* ---- elements that a rank holds ---- */
static double held(const tg_parallel *p, int rank, tg_value_kind kind)
{
    double sum = 0;
    for (size_t i = 0; i < p->entries.len; i++) {
        const tg_parallel_entry *e = &p->entries.data[i];
        if (e->kind != kind || e->whole.ndim == 0) continue;
        const teng_desc local = tg_mesh_local(&p->options.mesh, rank, &e->whole, &e->placement);
        sum += (double)tg_desc_numel(&local);
    }
    return sum;
}

/* Two moments of AdamW, and with 2 micro-batches an accumulator of gradients, of each parameter. */
static void memory_of_zero(void **state)
{
    (void)state;
    const double params = L * layer + others;
    for (int n = 2; n <= 4; n++)
        for (int zero = 0; zero <= 3; zero++) {
            double of_params = 0, of_states = 0;
            const par_case c = {.size = {[TG_AXIS_DATA] = n}, .zero = zero, .micro_batches = 2, .rows = 0};
            for (int r = 0; r < n; r++) {
                tg_parallel *made = plan(c, r);
                const double p = held(made, r, TG_VALUE_PARAM), s = held(made, r, TG_VALUE_STATE);
                /* Uneven pieces differ by one row of each tensor at most. */
                const double rows = (9 * L + 3) * (double)I * (zero ? 3 : 0);
                if (fabs(p - (zero == 3 ? params / n : params)) > rows)
                    fail_msg("zero %d: rank %d holds %g parameters", zero, r, p);
                of_params += p;
                of_states += s;
                tg_parallel_destroy(&made);
            }
            const double grads = zero >= 2 ? params : params * n,
                         moments = 2 * (zero >= 1 ? params : params * n);
            want("parameters, zero", n * 10 + zero, of_params, zero == 3 ? params : params * n);
            want("gradients and moments, zero", n * 10 + zero, of_states, grads + moments);
        }
}

/* Ranks that hold a parameter in common have equal shares of it, on whichever axes they are: experts, of whom
 * there are fewer than ranks, too. */
static void memory_of_axes(void **state)
{
    (void)state;
    static const int meshes[][3] = {{1, 1, 2}, {1, 2, 1},  {1, 2, 2}, {2, 1, 4},
                                    {3, 2, 2}, {12, 1, 1}, {3, 4, 1}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int zero = 0; zero <= 3; zero++) {
            par_case c = {.config = mixtral, .zero = zero, .micro_batches = 2};
            const int data = c.size[TG_AXIS_DATA] = meshes[i][0], ep = c.size[TG_AXIS_EXPERT] = meshes[i][1],
                      n = data * ep * (c.size[TG_AXIS_CONTEXT] = meshes[i][2]);
            const double one = dense + experts, held_by_one = dense + experts / ep;
            double params = 0, states = 0;
            for (int r = 0; r < n; r++) {
                tg_parallel *made = plan(c, r);
                const double p = held(made, r, TG_VALUE_PARAM), s = held(made, r, TG_VALUE_STATE);
                const double p_even = zero == 3 ? one / n : held_by_one,
                             s_even = (zero >= 2 ? one / n : held_by_one) +
                                      2 * (zero >= 1 ? one / n : held_by_one);
                /* A piece may be a quarter longer than an even one; 32 of 12 are an eighth. */
                const double more = zero ? 0.125 * one / n : 0;
                if (fabs(p - p_even) > more || fabs(s - s_even) > 3 * more)
                    fail_msg("data %d, expert %d, of %d ranks, zero %d: rank %d holds %g parameters, %g "
                             "states; even are "
                             "%g, %g",
                             data, ep, n, zero, r, p, s, p_even, s_even);
                params += p;
                states += s;
                tg_parallel_destroy(&made);
            }
            want("parameters of all", n * 10 + zero, params, zero == 3 ? one : n * held_by_one);
            want("states of all", n * 10 + zero, states,
                 (zero >= 2 ? one : n * held_by_one) + 2 * (zero >= 1 ? one : n * held_by_one));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_and_zero),  cmocka_unit_test(tensor_and_sequence),
        cmocka_unit_test(context_ring),   cmocka_unit_test(expert_dispatch),
        cmocka_unit_test(pipeline_edges), cmocka_unit_test(memory_of_zero),
        cmocka_unit_test(memory_of_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
