/*
 * cross_entropy of logits that exist, in a model of one's own: with tensor ranks each keeps its piece of the
 * vocabulary, no rank ever has all logits of a row, and the numbers are those of one rank.
 */
#include "par_case.h"

#include "op/op_list.h"
#include "teng/ops.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <stdio.h>

/* 61 entries of the vocabulary: pieces are uneven. */
enum { V = 61, ROWS = 8, T = 16 };
#define CONFIG(kind)                                                                                         \
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"               \
    "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":4,"                           \
    "\"max_position_embeddings\":64,\"tie_word_embeddings\":" kind "}"
static const char untied[] = CONFIG("false"), tied[] = CONFIG("true");

static teng_tensor *loss_of(teng_cell *self, teng_tensor *const *in, int n_in)
{
    (void)n_in;
    teng_tensor *logits = teng_call(*(teng_cell **)teng_cell_data(self), in[0]);
    return teng_cross_entropy(logits, in[1], TENG_IGNORE_INDEX);
}

/* Logits, and the loss of them as an operator of its own. */
static teng_cell *apart(const char *config)
{
    teng_cell *cell = teng_cell_create("apart", sizeof(teng_cell *), loss_of);
    *(teng_cell **)teng_cell_data(cell) = teng_cell_add(cell, "lm", teng_lm_create(config));
    return cell;
}

/* Elements of the largest value of the graph that ends in the vocabulary or a piece of it. */
static int64_t most_logits(const par_case *c, int rank)
{
    teng_cell *lm = c->make(c->config);
    tg_parallel *made;
    tg_graph *g = par_case_local(c, lm, rank, &made);
    int64_t most = 0;
    for (size_t i = 0; i < g->values.len; i++) {
        const teng_desc *d = &g->values.data[i]->desc;
        const int64_t last = d->ndim > 1 ? d->dims[d->ndim - 1] : 0, n = tg_desc_numel(d);
        if (last > V / 5 && last <= V && last != 32 && last != 48 && n > most && d->ndim == 3) most = n;
    }
    tg_graph_destroy(&g);
    tg_parallel_destroy(&made);
    teng_cell_destroy(&lm);
    return most;
}

static void split(const char *what, par_case c)
{
    static const char *const configs[] = {untied, tied};
    for (int i = 0; i < 2; i++) {
        char text[120];
        snprintf(text, sizeof text, "%s, %s", what, i ? "tied" : "untied");
        c.config = configs[i];
        c.make = apart;
        par_case_compare(text, &c, 1e-5);
        int64_t rows = ROWS * T, parts = c.size[TG_AXIS_TENSOR];
        for (int a = 0; a < TG_AXES; a++)
            if (a != TG_AXIS_TENSOR && c.size[a] > 1) rows /= c.size[a];
        const int64_t most = most_logits(&c, 0), piece = rows * ((V + parts - 1) / parts);
        if (most != piece)
            fail_msg("%s: a rank has %lld logits, its piece is %lld", text, (long long)most,
                     (long long)piece);
    }
}

static void no_rank_has_all_logits(void **state)
{
    (void)state;
    split("tensor 2", (par_case){.size = {[TG_AXIS_TENSOR] = 2}});
    split("tensor 4", (par_case){.size = {[TG_AXIS_TENSOR] = 4}});
    split("tensor 2, sequence", (par_case){.size = {[TG_AXIS_TENSOR] = 2}, .sequence = true});
    split("data 2, tensor 2, ZeRO 3",
          (par_case){.size = {[TG_AXIS_DATA] = 2, [TG_AXIS_TENSOR] = 2}, .zero = 3});
    split("context 2, tensor 2, 2 micro-batches",
          (par_case){.size = {[TG_AXIS_CONTEXT] = 2, [TG_AXIS_TENSOR] = 2}, .micro_batches = 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_rank_has_all_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
