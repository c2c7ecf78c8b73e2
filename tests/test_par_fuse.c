/* Sums of gradients in buckets: the same bits as each by itself, fewer collectives, no bucket over its limit,
 * none that waits for itself. */
#include "par_case.h"

#include "op/collective/collective.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

static const char llama[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,"
                            "\"intermediate_size\":48,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
                            "\"num_key_value_heads\":2,\"max_position_embeddings\":64}";

typedef struct counted {
    int sums, operands;
    size_t largest; /* bytes of a bucket of several */
} counted;
static counted count(const par_case *c, tg_phase phase)
{
    teng_cell *lm = teng_lm_create(c->config);
    tg_parallel *made;
    tg_graph *g = par_case_local(c, lm, 0, &made);
    counted r = {0};
    for (size_t k = 0; k < g->nodes.len; k++) {
        const tg_node *node = g->nodes.data[k];
        size_t bytes = 0;
        if (node->op != &tg_op_all_reduce || node->phase != phase) continue;
        for (int i = 0; i < node->n_in; i++)
            bytes += tg_desc_bytes(&node->in[i]->desc);
        r.sums++;
        r.operands += node->n_in;
        if (node->n_in > 1 && bytes > r.largest) r.largest = bytes;
    }
    double moved = 0; /* the record is of the nodes that are there */
    for (size_t i = 0; i < made->moves.len; i++) {
        assert_false(made->moves.data[i].node->dead);
        moved += made->moves.data[i].bytes;
    }
    assert_true(moved > 0);
    tg_graph_destroy(&g);
    tg_parallel_destroy(&made);
    teng_cell_destroy(&lm);
    return r;
}

static void same_bits(const char *what, par_case c, size_t fusion)
{
    par_result alone = {0}, together = {0};
    par_case_run(&c, &alone);
    c.fusion = fusion;
    par_case_run(&c, &together);
    if (memcmp(alone.loss, together.loss, sizeof alone.loss) != 0 ||
        memcmp(alone.norm, together.norm, sizeof alone.norm) != 0)
        fail_msg("%s, fusion %zu: losses differ", what, fusion);
    teng_cell *lm = teng_lm_create(c.config);
    const tg_param_info *infos;
    size_t n;
    assert_int_equal(tg_nn_params(lm, &infos, &n), TENG_OK);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(alone.params[i], together.params[i],
                            sizeof(float) * (size_t)tg_desc_numel(&infos[i].desc));
    teng_cell_destroy(&lm);
    par_result_free(&alone);
    par_result_free(&together);
}

static void keeps_every_bit(void **state)
{
    (void)state;
    static const size_t limits[] = {1, 20000, 1u << 30};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        same_bits("data 2", (par_case){.config = llama, .size = {[TG_AXIS_DATA] = 2}}, limits[i]);
        same_bits("data 2, bf16 sums",
                  (par_case){.config = llama, .size = {[TG_AXIS_DATA] = 2}, .reduce_dtype = TENG_BF16},
                  limits[i]);
        same_bits("data 2, 2 micro-batches",
                  (par_case){.config = llama, .size = {[TG_AXIS_DATA] = 2}, .micro_batches = 2}, limits[i]);
        same_bits(
            "tensor 2, data 2, sequence",
            (par_case){.config = llama, .size = {[TG_AXIS_DATA] = 2, [TG_AXIS_TENSOR] = 2}, .sequence = true},
            limits[i]);
    }
}

static void fills_buckets(void **state)
{
    (void)state;
    enum { PARAMS = 3 * 9 + 3 };
    for (int bf16 = 0; bf16 < 2; bf16++) {
        par_case c = {
            .config = llama, .size = {[TG_AXIS_DATA] = 2}, .reduce_dtype = bf16 ? TENG_BF16 : TENG_F32};
        const counted alone = count(&c, TG_BACKWARD);
        assert_int_equal(alone.sums, PARAMS);
        c.fusion = 1u << 30;
        const counted one = count(&c, TG_BACKWARD);
        assert_int_equal(one.operands, PARAMS);
        assert_int_equal(one.sums, 1); /* TENG_MAX_OUT holds them all */
        c.fusion = 20000;
        const counted some = count(&c, TG_BACKWARD);
        assert_int_equal(some.operands, PARAMS);
        assert_true(some.sums > 2 && some.sums < PARAMS / 2);
        assert_true(some.largest <= 20000 && some.largest > 8000);
    }
    par_case c = {.config = llama, .size = {[TG_AXIS_DATA] = 2}, .micro_batches = 2, .fusion = 1u << 30};
    assert_int_equal(count(&c, TG_UPDATE).sums, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_every_bit), cmocka_unit_test(fills_buckets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
