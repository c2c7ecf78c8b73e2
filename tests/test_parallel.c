/*
 * The graphs that ranks get, run in one process beside the graph of one rank: losses, gradient norms and
 * parameters after three steps agree, for every family and strategy, alone and together. Nothing here needs
 * MPI.
 */
#include "par_case.h"

#include "base/fail.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

#define LLAMA(heads, kv)                                                                                     \
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"               \
    "\"num_hidden_layers\":2,\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #kv                \
    ",\"max_position_embeddings\":64,\"tie_word_embeddings\":false}"
static const char llama[] = LLAMA(4, 2), gpt2[] = "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":32,"
                                                  "\"n_layer\":2,\"n_head\":4,\"n_positions\":64,"
                                                  "\"embd_pdrop\":0.1,\"resid_pdrop\":0.1,\"attn_pdrop\":0}";
static const char tied[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,"
                           "\"intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                           "\"num_key_value_heads\":4,\"max_position_embeddings\":64,"
                           "\"tie_word_embeddings\":true}";
static const char qwen2[] = "{\"model_type\":\"qwen2\",\"vocab_size\":61,\"hidden_size\":32,"
                            "\"intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                            "\"num_key_value_heads\":2,\"max_position_embeddings\":64}";
static const char qwen3[] = "{\"model_type\":\"qwen3\",\"vocab_size\":61,\"hidden_size\":32,"
                            "\"intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                            "\"num_key_value_heads\":2,\"head_dim\":12,\"max_position_embeddings\":64}";
/* Its norms of heads have four elements, as the scalars of a step have. */
static const char narrow[] = "{\"model_type\":\"qwen3\",\"vocab_size\":61,\"hidden_size\":16,"
                             "\"intermediate_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                             "\"num_key_value_heads\":1,\"head_dim\":4,\"max_position_embeddings\":64}";
static const char mixtral[] =
    "{\"model_type\":\"mixtral\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"max_position_embeddings\":64,\"num_local_experts\":4,\"num_experts_per_tok\":2,"
    "\"output_router_logits\":true,\"router_aux_loss_coef\":0.02}";

static const struct family {
    const char *name, *config;
} families[] = {{"llama", llama}, {"tied", tied},     {"gpt2", gpt2},      {"qwen2", qwen2},
                {"qwen3", qwen3}, {"narrow", narrow}, {"mixtral", mixtral}};
enum { FAMILIES = sizeof families / sizeof *families, DENSE = FAMILIES };

static void every(const char *what, par_case c, int n)
{
    for (int f = 0; f < n; f++) {
        char text[120];
        snprintf(text, sizeof text, "%s, %s", families[f].name, what);
        c.config = families[f].config;
        par_case_compare(text, &c, 1e-5);
    }
}

static void data_ranks(void **state)
{
    (void)state;
    every("data 2", (par_case){.size = {[TG_AXIS_DATA] = 2}}, DENSE);
    every("data 4, 2 micro-batches", (par_case){.size = {[TG_AXIS_DATA] = 4}, .micro_batches = 2}, DENSE);
}

static void zero(void **state)
{
    (void)state;
    for (int level = 1; level <= 3; level++) {
        every("ZeRO, data 3", (par_case){.size = {[TG_AXIS_DATA] = 3}, .zero = level, .rows = 9}, DENSE);
        every("ZeRO, data 2, 2 micro-batches",
              (par_case){.size = {[TG_AXIS_DATA] = 2}, .zero = level, .micro_batches = 2}, DENSE);
    }
}

static void shard_groups(void **state)
{
    (void)state;
    for (int level = 1; level <= 3; level++)
        for (int64_t micro = 1; micro <= 2; micro++)
            every("ZeRO in groups of 2 of 4",
                  (par_case){.size = {[TG_AXIS_REPLICA] = 2, [TG_AXIS_DATA] = 2},
                             .zero = level,
                             .micro_batches = micro},
                  DENSE);
    every("ZeRO 2 in groups of 2 of 4, tensor 2",
          (par_case){.size = {[TG_AXIS_REPLICA] = 2, [TG_AXIS_DATA] = 2, [TG_AXIS_TENSOR] = 2},
                     .zero = 2,
                     .sequence = true},
          DENSE);
}

/* The ranks that hold a parameter in common, on whichever axes they are. */
static void zero_of_any_axes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int size[TG_AXES];
        int64_t rows;
        bool sequence;
    } meshes[] = {
        {"ZeRO, context 2", {[TG_AXIS_CONTEXT] = 2}, 0, false},
        {"ZeRO, expert 3", {[TG_AXIS_EXPERT] = 3}, 9, false}, /* of a dense model: rows of the batch */
        {"ZeRO, expert 2, context 2", {[TG_AXIS_EXPERT] = 2, [TG_AXIS_CONTEXT] = 2}, 0, false},
        {"ZeRO, data 3, context 2", {[TG_AXIS_DATA] = 3, [TG_AXIS_CONTEXT] = 2}, 9, false},
        {"ZeRO, context 2, tensor 2", {[TG_AXIS_CONTEXT] = 2, [TG_AXIS_TENSOR] = 2}, 0, true},
        {"ZeRO in groups of 1 of 2, context 2", {[TG_AXIS_REPLICA] = 2, [TG_AXIS_CONTEXT] = 2}, 0, false},
        {"ZeRO, tensor 2", {[TG_AXIS_TENSOR] = 2}, 0, false}, /* nobody holds the same */
    };
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int level = 1; level <= 3; level++) {
            par_case c = {.zero = level,
                          .rows = meshes[i].rows,
                          .sequence = meshes[i].sequence,
                          .micro_batches = 1 + level % 2};
            memcpy(c.size, meshes[i].size, sizeof c.size);
            every(meshes[i].name, c,
                  c.size[TG_AXIS_EXPERT] > 1 ? DENSE - 1 : DENSE); /* mixtral is the last */
        }
}

static void tensor_ranks(void **state)
{
    (void)state;
    every("tensor 2", (par_case){.size = {[TG_AXIS_TENSOR] = 2}}, DENSE);
    every("tensor 2, sequence", (par_case){.size = {[TG_AXIS_TENSOR] = 2}, .sequence = true}, DENSE);
    every("tensor 4", (par_case){.size = {[TG_AXIS_TENSOR] = 4}}, DENSE);
    every("tensor 4, sequence", (par_case){.size = {[TG_AXIS_TENSOR] = 4}, .sequence = true}, DENSE);
}

static void tensor_and_data(void **state)
{
    (void)state;
    for (int level = 0; level <= 3; level++)
        every("tensor 2, sequence, data 2, ZeRO",
              (par_case){.size = {[TG_AXIS_TENSOR] = 2, [TG_AXIS_DATA] = 2},
                         .sequence = true,
                         .zero = level,
                         .micro_batches = 2},
              DENSE);
}

static void context_ranks(void **state)
{
    (void)state;
    every("context 2", (par_case){.size = {[TG_AXIS_CONTEXT] = 2}}, DENSE);
    every("context 4, data 2, ZeRO 3",
          (par_case){.size = {[TG_AXIS_CONTEXT] = 4, [TG_AXIS_DATA] = 2}, .zero = 3, .dropout = true}, DENSE);
    every("context 2, tensor 2, sequence, data 2",
          (par_case){.size = {[TG_AXIS_CONTEXT] = 2, [TG_AXIS_TENSOR] = 2, [TG_AXIS_DATA] = 2},
                     .sequence = true,
                     .zero = 1,
                     .micro_batches = 2},
          DENSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(data_ranks),   cmocka_unit_test(zero),
                                       cmocka_unit_test(shard_groups), cmocka_unit_test(zero_of_any_axes),
                                       cmocka_unit_test(tensor_ranks), cmocka_unit_test(tensor_and_data),
                                       cmocka_unit_test(context_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
