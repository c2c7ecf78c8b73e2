/* Mixtures of experts: the keys of their config.json, the names of their files, the shape of their graph.
 * Their numbers are held against references in test_verify. */
#include "base/fail.h"
#include "base/mem.h"
#include "nn/cell.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#define SIZES                                                                                                \
    "'vocab_size':40,'hidden_size':16,'intermediate_size':24,'num_hidden_layers':4,'num_attention_heads':4," \
    "'num_key_value_heads':2,'head_dim':4"
#define MIXTRAL "'model_type':'mixtral'," SIZES
#define QWEN "'model_type':'qwen3_moe','moe_intermediate_size':10," SIZES

/* Single quotes stand for double ones. */
static teng_cell *create(const char *members)
{
    char *text = tg_asprintf("{%s}", members);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    teng_cell *lm = teng_lm_create(text);
    tg_free(text);
    return lm;
}

static teng_cell *accepted(const char *members)
{
    teng_cell *lm = create(members);
    if (!lm) fail_msg("%s: %s", members, teng_error());
    return lm;
}

/* "f32[…]" of the parameter, "" when there is none. */
static const char *shape_of(teng_cell *lm, const char *name)
{
    static char text[TG_DESC_TEXT];
    const tg_param_info *params;
    size_t n;
    assert_int_equal(tg_nn_params(lm, &params, &n), TENG_OK);
    *text = '\0';
    for (size_t i = 0; i < n; i++)
        if (strcmp(params[i].name, name) == 0) tg_desc_text(text, &params[i].desc);
    return text;
}

static void test_keys(void **state)
{
    (void)state;
    teng_cell *lm = accepted(MIXTRAL ",'num_local_experts':6");
    assert_string_equal(shape_of(lm, "model.layers.3.mlp.experts.gate_up_proj"), "f32[6,48,16]");
    assert_string_equal(shape_of(lm, "model.layers.3.mlp.experts.down_proj"), "f32[6,16,24]");
    assert_string_equal(shape_of(lm, "model.layers.3.mlp.gate.weight"), "f32[6,16]");
    teng_cell_destroy(&lm);
    lm = accepted(MIXTRAL); /* defaults: 8 experts, 2 a token */
    tg_lm_info info;
    assert_int_equal(tg_lm_get_info(lm, &info), TENG_OK);
    assert_int_equal(info.num_experts, 8);
    assert_int_equal(info.experts_per_token, 2);
    teng_cell_destroy(&lm);
    /* Both names of the number of experts; every second layer, but not the last. */
    lm = accepted(
        QWEN ",'num_local_experts':5,'num_experts_per_tok':2,'decoder_sparse_step':2,'mlp_only_layers':[3]");
    assert_string_equal(shape_of(lm, "model.layers.1.mlp.experts.gate_up_proj"), "f32[5,20,16]");
    assert_string_equal(shape_of(lm, "model.layers.0.mlp.gate_proj.weight"), "f32[24,16]");
    assert_string_equal(shape_of(lm, "model.layers.3.mlp.gate_proj.weight"), "f32[24,16]");
    assert_non_null(strstr(teng_lm_config(lm), "\"num_experts\": 5"));
    assert_null(strstr(teng_lm_config(lm), "num_local_experts"));
    teng_cell_destroy(&lm);
    lm = accepted(QWEN ",'num_experts':0");
    assert_string_equal(shape_of(lm, "model.layers.0.mlp.gate_proj.weight"), "f32[24,16]");
    teng_cell_destroy(&lm);
}

static void test_flops(void **state)
{
    (void)state;
    teng_cell *few = accepted(MIXTRAL ",'num_local_experts':4,'num_experts_per_tok':2"),
              *many = accepted(MIXTRAL ",'num_local_experts':8,'num_experts_per_tok':2");
    tg_lm_info a, b;
    assert_int_equal(tg_lm_get_info(few, &a), TENG_OK);
    assert_int_equal(tg_lm_get_info(many, &b), TENG_OK);
    const int64_t router = 4 * 4 * 16, experts = 4 * 4 * 3 * 16 * 24; /* four more of each, in four layers */
    assert_int_equal(b.params - a.params, router + experts);
    assert_int_equal(b.params_matmul - a.params_matmul,
                     router); /* a token sees two, however many there are */
    teng_cell_destroy(&few);
    teng_cell_destroy(&many);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *members, *says;
    } list[] = {
        {MIXTRAL ",'num_experts_per_tok':9", "num_experts_per_tok = 9 is more than the 8 experts"},
        {MIXTRAL ",'num_local_experts':0", "num_local_experts = 0 is out of range"},
        {MIXTRAL ",'num_local_experts':4,'num_experts':5", "num_experts = 5 differs from num_experts"},
        {MIXTRAL ",'router_jitter_noise':0.1", "router_jitter_noise = 0.1 is not implemented"},
        {MIXTRAL ",'moe_intermediate_size':4", "model_type mixtral has no such key"},
        {QWEN ",'mlp_only_layers':1", "mlp_only_layers = 1: a list of layers is needed"},
        {QWEN ",'mlp_only_layers':['x']", "a list of layers is needed"},
        {QWEN ",'decoder_sparse_step':0", "decoder_sparse_step = 0 is out of range"},
        {"'model_type':'qwen3'," SIZES ",'num_experts':4", "model_type qwen3 has no such key"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        teng_cell *lm = create(list[i].members);
        if (lm) fail_msg("%s was accepted", list[i].members);
        if (!strstr(teng_error(), list[i].says))
            fail_msg("\"%s\" does not say \"%s\"", teng_error(), list[i].says);
        teng_error_clear();
    }
}

/* The parts cover each parameter once, in the family's names. */
static void check_parts(teng_cell *lm, const char *const *names)
{
    const tg_param_info *params;
    size_t n;
    int found = 0, wanted = 0;
    assert_int_equal(tg_nn_params(lm, &params, &n), TENG_OK);
    for (size_t i = 0; i < n; i++) {
        tg_lm_parts parts = {0};
        int64_t covered = 0;
        assert_int_equal(tg_lm_file_parts(lm, &params[i], &parts), TENG_OK);
        for (size_t k = 0; k < parts.len; k++) {
            assert_int_equal(parts.data[k].offset, covered);
            covered += tg_desc_numel(&parts.data[k].desc);
            for (int w = 0; names[w]; w++)
                found += strcmp(parts.data[k].name, names[w]) == 0;
        }
        assert_int_equal(covered, tg_desc_numel(&params[i].desc));
        tg_lm_parts_free(&parts);
    }
    while (names[wanted])
        wanted++;
    assert_int_equal(found, wanted);
}

static void test_parts(void **state)
{
    (void)state;
    teng_cell *lm = accepted(MIXTRAL);
    check_parts(lm, (const char *const[]){"model.layers.2.block_sparse_moe.experts.7.w1.weight",
                                          "model.layers.2.block_sparse_moe.experts.7.w3.weight",
                                          "model.layers.0.block_sparse_moe.experts.0.w2.weight",
                                          "model.layers.3.block_sparse_moe.gate.weight",
                                          "model.layers.3.self_attn.q_proj.weight", NULL});
    teng_cell_destroy(&lm);
    lm = accepted(QWEN ",'num_experts':3,'num_experts_per_tok':2,'mlp_only_layers':[0]");
    check_parts(lm, (const char *const[]){"model.layers.2.mlp.experts.2.gate_proj.weight",
                                          "model.layers.2.mlp.experts.2.up_proj.weight",
                                          "model.layers.1.mlp.experts.0.down_proj.weight",
                                          "model.layers.0.mlp.gate_proj.weight",
                                          "model.layers.3.mlp.gate.weight", NULL});
    teng_cell_destroy(&lm);
}

static int count_nodes(const char *members, const char *op, bool labels)
{
    teng_cell *lm = accepted(members);
    tg_graph *g = tg_graph_create("test");
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){2, 6});
    teng_tensor *in[2] = {tg_graph_input(g, "tokens", &desc), tg_graph_input(g, "labels", &desc)};
    if (!tg_nn_trace(lm, g, in, labels ? 2 : 1, false)) fail_msg("%s", teng_error());
    int n = 0;
    for (size_t i = 0; i < g->nodes.len; i++)
        n += strcmp(g->nodes.data[i]->op->name, op) == 0;
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
    return n;
}

/* One router and two grouped products a mixture; the auxiliary loss only where it is asked for, with labels.
 */
static void test_graph(void **state)
{
    (void)state;
    assert_int_equal(count_nodes(MIXTRAL, "moe_route", true), 4);
    assert_int_equal(count_nodes(MIXTRAL, "grouped_matmul", true), 8);
    assert_int_equal(count_nodes(QWEN ",'mlp_only_layers':[1]", "moe_route", true), 3);
    assert_int_equal(count_nodes(MIXTRAL, "softmax", true), 0);
    assert_int_equal(count_nodes(MIXTRAL ",'output_router_logits':true", "softmax", true), 4);
    assert_int_equal(count_nodes(MIXTRAL ",'output_router_logits':true", "softmax", false), 0);
    assert_int_equal(count_nodes(QWEN ",'num_experts':0,'output_router_logits':true", "moe_route", true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_flops),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_graph)};
    if (tg_op_register_builtin() != TENG_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
