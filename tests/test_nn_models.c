/*
 * What language models compute, as graphs: which operators, with which attributes, over which parameters;
 * what a model refuses when it is called. Numbers are tested where operators run.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "nn/cell.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#define TINY                                                                                                 \
    "\"vocab_size\":40,\"hidden_size\":16,\"intermediate_size\":24,\"num_hidden_layers\":2,"                 \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":32"
#define GPT2                                                                                                 \
    "\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_embd\":16,\"n_layer\":2,\"n_head\":4,\"n_positions\":32"

static teng_cell *create(const char *config)
{
    teng_cell *lm = teng_lm_create(config);
    if (!lm) fail_msg("%s: %s", config, teng_error());
    return lm;
}

/* Traces lm over tokens [B, T], and labels when asked; NULL value allowed. */
static tg_graph *trace(teng_cell *lm, int64_t b, int64_t t, bool labels, bool training, teng_tensor **value)
{
    tg_graph *g = tg_graph_create("model");
    const teng_desc ids = {TENG_I32, 2, {b, t}};
    teng_tensor *in[2] = {tg_graph_input(g, "tokens", &ids),
                          labels ? tg_graph_input(g, "labels", &ids) : NULL};
    *value = tg_nn_trace(lm, g, in, labels ? 2 : 1, training);
    return g;
}

static int count_ops(const tg_graph *g, const char *op)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.len; i++)
        n += strcmp(g->nodes.data[i]->op->name, op) == 0;
    return n;
}

/* The nth node of an operator. */
static const tg_node *nth(const tg_graph *g, const char *op, int n)
{
    for (size_t i = 0; i < g->nodes.len; i++)
        if (strcmp(g->nodes.data[i]->op->name, op) == 0 && n-- == 0) return g->nodes.data[i];
    fail_msg("too few nodes of %s", op);
    return NULL;
}

static double attr(const tg_node *node, const char *name)
{
    for (const teng_attr_field *f = node->op->attrs; f->name; f++) {
        if (strcmp(f->name, name)) continue;
        const void *at = (const char *)node->attr + f->offset;
        return f->type == TENG_ATTR_REAL ? *(const double *)at : (double)*(const int64_t *)at;
    }
    fail_msg("%s has no attribute %s", node->op->name, name);
    return 0;
}

/* Every parameter of the tree is used, and nothing else is. */
static void check_graph(teng_cell *lm, const tg_graph *g)
{
    const tg_param_info *p;
    size_t n, used = 0;
    assert_int_equal(tg_graph_check(g), TENG_OK);
    assert_int_equal(tg_nn_params(lm, &p, &n), TENG_OK);
    for (size_t i = 0; i < n; i++) {
        const teng_tensor *v = tg_graph_find(g, p[i].name);
        if (!v) fail_msg("%s is not used", p[i].name);
        assert_true(tg_desc_equal(&v->desc, &p[i].desc));
    }
    for (size_t i = 0; i < g->values.len; i++)
        used += g->values.data[i]->kind == TG_VALUE_PARAM;
    assert_int_equal(used, n);
}

static void logits_and_loss(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\":\"llama\"," TINY "}",
        "{\"model_type\":\"llama\"," TINY ",\"tie_word_embeddings\":true}",
        "{\"model_type\":\"mistral\"," TINY "}",
        "{\"model_type\":\"qwen2\"," TINY "}",
        "{\"model_type\":\"qwen3\"," TINY ",\"head_dim\":6}",
        "{" GPT2 "}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        teng_cell *lm = create(configs[i]);
        teng_tensor *value;
        tg_graph *g = trace(lm, 3, 8, false, false, &value);
        if (!value) fail_msg("%s: %s", configs[i], teng_error());
        const teng_desc logits = {TENG_F32, 3, {3, 8, 40}};
        assert_true(tg_desc_equal(&value->desc, &logits));
        check_graph(lm, g);
        tg_graph_destroy(&g);
        g = trace(lm, 3, 8, true, false, &value);
        if (!value) fail_msg("%s: %s", configs[i], teng_error());
        assert_int_equal(value->desc.ndim, 0);
        assert_int_equal(value->desc.dtype, TENG_F32);
        assert_int_equal(count_ops(g, "linear_cross_entropy"), 1); /* logits are never in memory */
        for (size_t k = 0; k < g->values.len; k++) {
            const teng_tensor *v = g->values.data[k];
            if (v->kind == TG_VALUE_COMPUTED && v->desc.ndim)
                assert_int_not_equal(v->desc.dims[v->desc.ndim - 1], 40);
        }
        check_graph(lm, g);
        tg_graph_destroy(&g);
        teng_cell_destroy(&lm);
    }
}

static void head_is_the_embedding_when_tied(void **state)
{
    (void)state;
    teng_tensor *value;
    for (int tied = 0; tied < 2; tied++) {
        char config[300];
        snprintf(config, sizeof config, "{\"model_type\":\"llama\"," TINY ",\"tie_word_embeddings\":%s}",
                 tied ? "true" : "false");
        teng_cell *lm = create(config);
        tg_graph *g = trace(lm, 1, 4, true, true, &value);
        assert_non_null(value);
        assert_string_equal(nth(g, "linear_cross_entropy", 0)->in[1]->name,
                            tied ? "model.embed_tokens.weight" : "lm_head.weight");
        assert_string_equal(nth(g, "embedding", 0)->in[0]->name, "model.embed_tokens.weight");
        tg_graph_destroy(&g);
        teng_cell_destroy(&lm);
    }
}

static void paths_of_nodes(void **state)
{
    (void)state;
    teng_tensor *value;
    teng_cell *lm = create("{\"model_type\":\"qwen3\"," TINY ",\"head_dim\":6}");
    tg_graph *g = trace(lm, 1, 4, false, false, &value);
    assert_string_equal(nth(g, "embedding", 0)->scope, "model.embed_tokens");
    assert_string_equal(nth(g, "attention", 1)->scope, "model.layers.1.self_attn");
    assert_string_equal(nth(g, "rms_norm", 0)->scope, "model.layers.0.input_layernorm");
    assert_string_equal(nth(g, "rms_norm", 1)->scope, "model.layers.0.self_attn.q_norm");
    assert_string_equal(nth(g, "rms_norm", 8)->scope, "model.norm");
    assert_string_equal(nth(g, "swiglu", 0)->scope, "model.layers.0.mlp");
    /* Heads of 6, normed by head before they are rotated; v is not. */
    assert_int_equal(nth(g, "rms_norm", 1)->in[0]->desc.dims[3], 6);
    assert_ptr_equal(nth(g, "rope", 0)->in[0]->node, nth(g, "rms_norm", 1));
    assert_ptr_equal(nth(g, "rope", 1)->in[0]->node, nth(g, "rms_norm", 2));
    assert_ptr_equal(nth(g, "attention", 0)->in[0]->node, nth(g, "rope", 0));
    assert_ptr_equal(nth(g, "attention", 0)->in[1]->node, nth(g, "rope", 1));
    assert_int_equal(nth(g, "attention", 0)->in[1]->desc.dims[2], 2);
    assert_int_equal(count_ops(g, "rope"), 4);
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
}

static void check_rope(const char *more, double theta, double type, double factor)
{
    char config[600];
    teng_tensor *value;
    snprintf(config, sizeof config, "{\"model_type\":\"llama\"," TINY "%s}", more);
    teng_cell *lm = create(config);
    tg_graph *g = trace(lm, 1, 4, false, false, &value);
    const tg_node *rope = nth(g, "rope", 3);
    assert_true(attr(rope, "theta") == theta);
    assert_true(attr(rope, "type") == type);
    assert_true(attr(rope, "factor") == factor);
    assert_true(attr(rope, "rotary_dim") == 0 && attr(rope, "inverse") == 0 && attr(rope, "offset") == 0);
    if (type == TENG_ROPE_LLAMA3) {
        assert_true(attr(rope, "low_freq_factor") == 1 && attr(rope, "high_freq_factor") == 4);
        assert_true(attr(rope, "original_max_position") == 16);
    }
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
}

#define LLAMA3                                                                                               \
    "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                \
    "\"original_max_position_embeddings\":16"
static void both_spellings_of_rope(void **state)
{
    (void)state;
    check_rope("", 10000, TENG_ROPE_DEFAULT, 1);
    check_rope(",\"rope_theta\":500000", 500000, TENG_ROPE_DEFAULT, 1);
    check_rope(",\"rope_scaling\":null,\"rope_theta\":5e5", 500000, TENG_ROPE_DEFAULT, 1);
    check_rope(",\"rope_theta\":500000.0,\"rope_scaling\":{" LLAMA3 "}", 500000, TENG_ROPE_LLAMA3, 8);
    check_rope(",\"rope_parameters\":{\"rope_theta\":500000.0," LLAMA3 "}", 500000, TENG_ROPE_LLAMA3, 8);
    check_rope(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}", 10000, TENG_ROPE_LINEAR, 2.5);
    check_rope(",\"rope_parameters\":{\"rope_theta\":7,\"rope_type\":\"default\"}", 7, TENG_ROPE_DEFAULT, 1);
}

static void check_windows(const char *type, const char *more, double first, double second)
{
    char config[600];
    teng_tensor *value;
    snprintf(config, sizeof config, "{\"model_type\":\"%s\"," TINY "%s}", type, more);
    teng_cell *lm = create(config);
    tg_graph *g = trace(lm, 1, 8, false, false, &value);
    assert_true(attr(nth(g, "attention", 0), "causal") == 1);
    assert_true(attr(nth(g, "attention", 0), "window") == first);
    assert_true(attr(nth(g, "attention", 1), "window") == second);
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
}

static void windows(void **state)
{
    (void)state;
    check_windows("llama", "", 0, 0);
    check_windows("mistral", "", 4096, 4096);
    check_windows("mistral", ",\"sliding_window\":4", 4, 4);
    check_windows("mistral", ",\"sliding_window\":null", 0, 0);
    check_windows("qwen2", ",\"sliding_window\":4", 0, 0);                             /* not in use */
    check_windows("qwen2", ",\"sliding_window\":4,\"use_sliding_window\":true", 0, 0); /* from layer 28 on */
    check_windows("qwen2", ",\"sliding_window\":4,\"use_sliding_window\":true,\"max_window_layers\":1", 0, 4);
    check_windows("qwen3",
                  ",\"sliding_window\":4,\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\","
                  "\"full_attention\"]",
                  4, 0);
}

static void scales_of_gpt2(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        double first, second;
    } cases[] = {
        {"", 0.5, 0.5}, /* heads of 4 */
        {",\"scale_attn_weights\":false", 1, 1},
        {",\"scale_attn_by_inverse_layer_idx\":true", 0.5, 0.25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[300];
        teng_tensor *value;
        snprintf(config, sizeof config, "{" GPT2 "%s}", cases[i].more);
        teng_cell *lm = create(config);
        tg_graph *g = trace(lm, 1, 8, false, false, &value);
        assert_true(attr(nth(g, "attention", 0), "scale") == cases[i].first);
        assert_true(attr(nth(g, "attention", 1), "scale") == cases[i].second);
        tg_graph_destroy(&g);
        teng_cell_destroy(&lm);
    }
}

static void activations(void **state)
{
    (void)state;
    static const char *const acts[][2] = {{"gelu", "gelu"},           {"gelu_new", "gelu_tanh"},
                                          {"relu", "relu"},           {"gelu_pytorch_tanh", "gelu_tanh"},
                                          {"gelu_fast", "gelu_tanh"}, {"silu", "silu"}};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        for (int gpt2 = 0; gpt2 < 2; gpt2++) {
            char config[300];
            teng_tensor *value;
            if (gpt2)
                snprintf(config, sizeof config, "{" GPT2 ",\"activation_function\":\"%s\"}", acts[i][0]);
            else
                snprintf(config, sizeof config, "{\"model_type\":\"llama\"," TINY ",\"hidden_act\":\"%s\"}",
                         acts[i][0]);
            teng_cell *lm = create(config);
            tg_graph *g = trace(lm, 1, 8, false, false, &value);
            const bool fused = !gpt2 && strcmp(acts[i][0], "silu") == 0;
            assert_int_equal(count_ops(g, fused ? "swiglu" : acts[i][1]), 2);
            assert_int_equal(count_ops(g, "mul"), gpt2 || fused ? 0 : 2);
            tg_graph_destroy(&g);
            teng_cell_destroy(&lm);
        }
}

static void dropout_of_gpt2(void **state)
{
    (void)state;
    teng_tensor *value;
    teng_cell *lm = create("{" GPT2 ",\"attn_pdrop\":0,\"embd_pdrop\":0.25,\"resid_pdrop\":0.5}");
    tg_graph *g = trace(lm, 1, 8, true, true, &value);
    assert_int_equal(count_ops(g, "dropout"), 5);
    assert_true(attr(nth(g, "dropout", 0), "p") == 0.25);
    assert_string_equal(nth(g, "dropout", 0)->scope, "transformer");
    for (int i = 1; i < 5; i++)
        assert_true(attr(nth(g, "dropout", i), "p") == 0.5 && attr(nth(g, "dropout", i), "stream") == i);
    assert_string_equal(nth(g, "dropout", 4)->scope, "transformer.h.1.mlp");
    tg_graph_destroy(&g);
    g = trace(lm, 1, 8, true, false, &value);
    assert_int_equal(count_ops(g, "dropout"), 0);
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
}

static void assert_fails(teng_status status, const char *part)
{
    assert_int_equal(teng_error_status(), status);
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
}

static void refuses_at_the_call(void **state)
{
    (void)state;
    teng_tensor *value;
    teng_cell *lm = create("{" GPT2 "}"); /* with the family's attn_pdrop */
    tg_graph *g = trace(lm, 1, 8, true, true, &value);
    assert_null(value);
    assert_fails(TENG_UNSUPPORTED,
                 "attn_pdrop = 0.1: attention is one fused operator without dropout; train with "
                 "model.attn_pdrop=0");
    tg_graph_destroy(&g);
    g = trace(lm, 1, 8, true, false, &value); /* evaluation needs none */
    assert_non_null(value);
    tg_graph_destroy(&g);
    g = trace(lm, 1, 33, false, false, &value);
    assert_null(value);
    assert_fails(TENG_INVALID,
                 "a sequence of 33 tokens is longer than the model's positions, n_positions = 32");
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);

    lm = create("{\"model_type\":\"llama\"," TINY ",\"attention_dropout\":0.5}");
    g = trace(lm, 1, 33, false, false, &value); /* rotary positions do not end */
    assert_non_null(value);
    tg_graph_destroy(&g);
    g = trace(lm, 1, 8, false, true, &value);
    assert_null(value);
    assert_fails(TENG_UNSUPPORTED, "attention_dropout = 0.5: attention is one fused operator");
    tg_graph_destroy(&g);
    g = tg_graph_create("wrong");
    const teng_desc wrong = {TENG_I64, 1, {8}};
    value = tg_graph_input(g, "tokens", &wrong);
    assert_null(tg_nn_trace(lm, g, &value, 1, false));
    assert_fails(TENG_INVALID, "tokens are i64[8]; they must be i32 [B, T]");
    assert_null(tg_nn_trace(lm, g, NULL, 0, false));
    assert_fails(TENG_INVALID, "called with 0 operands, takes tokens, or tokens and labels");
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_loss),
        cmocka_unit_test(head_is_the_embedding_when_tied),
        cmocka_unit_test(paths_of_nodes),
        cmocka_unit_test(both_spellings_of_rope),
        cmocka_unit_test(windows),
        cmocka_unit_test(scales_of_gpt2),
        cmocka_unit_test(activations),
        cmocka_unit_test(dropout_of_gpt2),
        cmocka_unit_test(refuses_at_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
