/*
 * Model families: the parameters that a config.json gives, against the tensor lists of files that
 * transformers wrote (tests/data/families), the defaults, and every refusal with its words. What a model's
 * graph looks like is tested in test_nn_models.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "nn/cell.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_fails(teng_status status, const char *part)
{
    assert_int_equal(teng_error_status(), status);
    if (!strstr(teng_error(), part)) fail_msg("\"%s\" does not say \"%s\"", teng_error(), part);
    teng_error_clear();
}

static char *read_data(const char *name)
{
    char *path = tg_asprintf("%s/families/%s", TG_TEST_DATA, name), *text = NULL;
    assert_int_equal(tg_file_read(path, &text, NULL), TENG_OK);
    tg_free(path);
    return text;
}

/* A model from a base config with members of `changes` (an object, single quotes for double ones) put over
 * it. */
static teng_cell *create(const char *base, const char *changes)
{
    json_t *config = NULL, *over = NULL;
    char *text = tg_strdup(changes);
    for (char *c = text; *c; c++)
        if (*c == '\'') *c = '"';
    assert_int_equal(tg_json_parse("base", base, strlen(base), &config), TENG_OK);
    assert_int_equal(tg_json_parse("changes", text, strlen(text), &over), TENG_OK);
    tg_free(text);
    json_object_update(config, over);
    text = tg_json_text(config, 0);
    teng_cell *lm = teng_lm_create(text);
    tg_free(text);
    json_decref(config);
    json_decref(over);
    return lm;
}

#define TINY                                                                                                 \
    "\"vocab_size\":40,\"hidden_size\":16,\"intermediate_size\":24,\"num_hidden_layers\":2,"                 \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":32"
static const char llama[] = "{\"model_type\":\"llama\"," TINY "}";
static const char mistral[] = "{\"model_type\":\"mistral\"," TINY "}";
static const char qwen2[] = "{\"model_type\":\"qwen2\"," TINY "}";
static const char qwen3[] = "{\"model_type\":\"qwen3\"," TINY "}";
static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_embd\":16,\"n_layer\":2,\"n_head\":4,"
    "\"n_positions\":32}";

static const tg_param_info *find_param(teng_cell *lm, const char *name)
{
    const tg_param_info *p;
    size_t n;
    assert_int_equal(tg_nn_params(lm, &p, &n), TENG_OK);
    for (size_t i = 0; i < n; i++)
        if (strcmp(p[i].name, name) == 0) return &p[i];
    return NULL;
}

static size_t count_params(teng_cell *lm)
{
    const tg_param_info *p;
    size_t n;
    assert_int_equal(tg_nn_params(lm, &p, &n), TENG_OK);
    return n;
}

static json_t *full_config(teng_cell *lm)
{
    json_t *config;
    assert_int_equal(tg_json_parse("full", teng_lm_config(lm), strlen(teng_lm_config(lm)), &config), TENG_OK);
    return config;
}

/* ---- against files of transformers ---- */

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *list_of(teng_cell *lm)
{
    const tg_param_info *p;
    size_t n;
    assert_int_equal(tg_nn_params(lm, &p, &n), TENG_OK);
    char **lines = tg_calloc(n, sizeof *lines);
    for (size_t i = 0; i < n; i++) {
        tg_strbuf line = {0};
        tg_strbuf_printf(&line, "%s ", p[i].name);
        for (int d = 0; d < p[i].desc.ndim; d++)
            tg_strbuf_printf(&line, "%s%lld", d ? "," : "", (long long)p[i].desc.dims[d]);
        lines[i] = tg_strbuf_take(&line);
    }
    qsort(lines, n, sizeof *lines, compare_lines);
    tg_strbuf all = {0};
    for (size_t i = 0; i < n; i++) {
        tg_strbuf_printf(&all, "%s\n", lines[i]);
        tg_free(lines[i]);
    }
    tg_free(lines);
    return tg_strbuf_take(&all);
}

static void check_against_files(const char *name)
{
    char file[40];
    snprintf(file, sizeof file, "%s.json", name);
    char *config = read_data(file);
    snprintf(file, sizeof file, "%s.txt", name);
    char *expect = read_data(file);
    teng_cell *lm = teng_lm_create(config);
    if (!lm) fail_msg("%s: %s", name, teng_error());
    char *list = list_of(lm);
    assert_string_equal(list, expect);
    /* Every key of the file is kept as it was; a value that was null may have been filled in. */
    json_t *given, *full = full_config(lm), *v;
    const char *key;
    assert_int_equal(tg_json_parse(name, config, strlen(config), &given), TENG_OK);
    json_object_foreach(given, key, v) if (!json_is_null(v) && !json_equal(v, json_object_get(full, key)))
        fail_msg("%s: %s changed", name, key);
    json_decref(given);
    json_decref(full);
    tg_free(list);
    tg_free(expect);
    tg_free(config);
    teng_cell_destroy(&lm);
}

static void tensors_of_gpt2(void **state)
{
    (void)state;
    check_against_files("gpt2");
}

static void tensors_of_llama3(void **state)
{
    (void)state;
    check_against_files("llama3");
}

static void tensors_of_qwen2(void **state)
{
    (void)state;
    check_against_files("qwen2");
}

static void tensors_of_qwen3(void **state)
{
    (void)state;
    check_against_files("qwen3");
}

/* ---- options ---- */

static void biases(void **state)
{
    (void)state;
    teng_cell *plain = create(llama, "{}"), *all = create(llama, "{'attention_bias':true,'mlp_bias':true}"),
              *q2 = create(qwen2, "{'attention_bias':true}"), *q3 = create(qwen3, "{'attention_bias':true}");
    assert_int_equal(count_params(plain), 3 + 2 * 9);
    assert_int_equal(count_params(all), 3 + 2 * (9 + 7));
    assert_non_null(find_param(all, "model.layers.1.self_attn.o_proj.bias"));
    assert_non_null(find_param(all, "model.layers.1.mlp.down_proj.bias"));
    assert_int_equal(count_params(q2), 3 + 2 * (9 + 3));
    assert_null(find_param(q2, "model.layers.0.self_attn.o_proj.bias"));
    assert_non_null(find_param(q3, "model.layers.0.self_attn.o_proj.bias"));
    assert_int_equal(find_param(q3, "model.layers.0.self_attn.q_norm.weight")->desc.dims[0],
                     128); /* its default */
    teng_cell_destroy(&plain);
    teng_cell_destroy(&all);
    teng_cell_destroy(&q2);
    teng_cell_destroy(&q3);
}

static void tied_heads(void **state)
{
    (void)state;
    tg_lm_info a, b;
    teng_cell *tied = create(llama, "{'tie_word_embeddings':true}"), *untied = create(llama, "{}"),
              *gpt = create(gpt2, "{'tie_word_embeddings':false}");
    assert_null(find_param(tied, "lm_head.weight"));
    assert_non_null(find_param(untied, "lm_head.weight"));
    assert_int_equal(find_param(gpt, "lm_head.weight")->desc.dims[0], 40);
    assert_int_equal(tg_lm_get_info(tied, &a), TENG_OK);
    assert_int_equal(tg_lm_get_info(untied, &b), TENG_OK);
    assert_true(a.tied && !b.tied);
    assert_int_equal(a.params + 40 * 16, b.params);
    assert_int_equal(a.params_matmul, b.params_matmul); /* the table is multiplied either way */
    assert_int_equal(a.params_matmul, 2 * (16 * 16 * 2 + 16 * 8 * 2 + 16 * 24 * 3) + 40 * 16);
    assert_int_equal(b.params, teng_cell_numel(untied));
    assert_true(tg_lm_flops_per_token(&b, 32) == 6.0 * (double)b.params_matmul + 6.0 * 2 * 4 * 4 * 32);
    assert_string_equal(a.family, "llama");
    assert_string_equal(a.backbone, "model");
    assert_false(a.positions_are_hard);
    assert_int_equal(tg_lm_get_info(gpt, &a), TENG_OK);
    assert_true(a.positions_are_hard);
    assert_string_equal(a.backbone, "transformer");
    assert_int_equal(a.intermediate_size, 64);
    assert_int_equal(a.params_matmul, 2 * (12 * 16 * 16) + 40 * 16);
    teng_cell_destroy(&tied);
    teng_cell_destroy(&untied);
    teng_cell_destroy(&gpt);
}

/* Published sizes: parameter counts that everybody quotes. */
static void published_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t params;
    } models[] = {
        {"{\"model_type\":\"gpt2\",\"vocab_size\":50257}", 124439808},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_embd\":1600,\"n_layer\":48,\"n_head\":25}",
         1557611200},
        {"{\"model_type\":\"llama\",\"vocab_size\":32000}", 6738415616},
        {"{\"model_type\":\"mistral\",\"vocab_size\":32000}", 7241732096},
        {"{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":896,\"intermediate_size\":4864,"
         "\"num_hidden_layers\":24,\"num_attention_heads\":14,\"num_key_value_heads\":2,\"tie_word_"
         "embeddings\":true}",
         494032768},
        {"{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":1024,\"intermediate_size\":3072,"
         "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":8,\"tie_word_"
         "embeddings\":true}",
         596049920},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        teng_cell *lm = teng_lm_create(models[i].config);
        if (!lm) fail_msg("%s", teng_error());
        assert_int_equal(teng_cell_numel(lm), models[i].params);
        teng_cell_destroy(&lm);
    }
}

static void initialisation(void **state)
{
    (void)state;
    teng_cell *lm = create(gpt2, "{'initializer_range':0.5,'n_layer':8}");
    const tg_param_info *p = find_param(lm, "transformer.h.0.attn.c_attn.weight");
    assert_true(p->init.kind == TENG_INIT_NORMAL && p->init.a == 0 && p->init.b == 0.5);
    p = find_param(lm, "transformer.h.7.mlp.c_proj.weight");
    assert_true(fabs(p->init.b - 0.5 / 4) < 1e-15);
    p = find_param(lm, "transformer.h.0.attn.c_proj.weight");
    assert_true(fabs(p->init.b - 0.5 / 4) < 1e-15);
    p = find_param(lm, "transformer.wpe.weight");
    assert_true(p->init.b == 0.5 && p->init.role == TENG_ROLE_EMBEDDING);
    p = find_param(lm, "transformer.ln_f.weight");
    assert_true(p->init.kind == TENG_INIT_CONST && p->init.a == 1 && p->init.role == TENG_ROLE_NORM);
    p = find_param(lm, "transformer.ln_f.bias");
    assert_true(p->init.kind == TENG_INIT_CONST && p->init.a == 0 && p->init.role == TENG_ROLE_BIAS);
    teng_cell_destroy(&lm);
    lm = create(llama, "{'initializer_range':0.25}");
    assert_true(find_param(lm, "model.layers.0.self_attn.o_proj.weight")->init.b == 0.25);
    assert_int_equal(find_param(lm, "lm_head.weight")->init.role, TENG_ROLE_WEIGHT);
    assert_int_equal(find_param(lm, "model.embed_tokens.weight")->init.role, TENG_ROLE_EMBEDDING);
    teng_cell_destroy(&lm);
}

static void config_is_complete(void **state)
{
    (void)state;
    teng_cell *lm = create(llama, "{'eos_token_id':[3,4],'my_key':{'a':1},'num_key_value_heads':null}");
    json_t *full = full_config(lm), *architecture = json_object_get(full, "architectures");
    assert_string_equal(json_string_value(json_array_get(architecture, 0)), "LlamaForCausalLM");
    assert_int_equal(json_integer_value(json_object_get(full, "head_dim")), 4);
    assert_int_equal(json_integer_value(json_object_get(full, "num_key_value_heads")), 4);
    assert_true(json_real_value(json_object_get(full, "rms_norm_eps")) == 1e-6);
    assert_true(json_real_value(json_object_get(full, "rope_theta")) == 10000.0);
    assert_string_equal(json_string_value(json_object_get(full, "hidden_act")), "silu");
    assert_int_equal(json_array_size(json_object_get(full, "eos_token_id")), 2);
    assert_non_null(json_object_get(json_object_get(full, "my_key"), "a"));
    /* Read again, it gives itself. */
    teng_cell *again = teng_lm_create(teng_lm_config(lm));
    assert_non_null(again);
    assert_string_equal(teng_lm_config(again), teng_lm_config(lm));
    json_decref(full);
    teng_cell_destroy(&again);
    teng_cell_destroy(&lm);
    lm = create(gpt2, "{}");
    full = full_config(lm);
    assert_true(json_is_null(json_object_get(full, "n_inner")));
    assert_null(json_object_get(full, "rope_theta"));
    assert_null(json_object_get(full, "hidden_size"));
    json_decref(full);
    teng_cell_destroy(&lm);
}

/* ---- refusals ---- */

typedef struct refusal {
    const char *base, *changes;
    teng_status status;
    const char *says;
} refusal;

static void check_refusals(const refusal *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        teng_cell *lm = create(list[i].base, list[i].changes);
        if (lm) fail_msg("%s was accepted", list[i].changes);
        assert_fails(list[i].status, list[i].says);
    }
}
#define CHECK_REFUSALS(list) check_refusals(list, sizeof(list) / sizeof *(list))

static void refuses_sizes(void **state)
{
    (void)state;
    static const refusal list[] = {
        {llama, "{'num_attention_heads':5}", TENG_INVALID,
         "num_attention_heads = 5 does not divide hidden_size = 16; change one, or set head_dim"},
        {gpt2, "{'n_head':5}", TENG_INVALID, "n_head = 5 does not divide n_embd = 16; change one"},
        {llama, "{'num_key_value_heads':3}", TENG_INVALID,
         "num_key_value_heads = 3 does not divide num_attention_heads = 4"},
        {llama, "{'head_dim':7}", TENG_INVALID, "heads are 7 wide"},
        {llama, "{'hidden_size':12,'num_attention_heads':4}", TENG_INVALID, "heads are 3 wide"},
        {llama, "{'vocab_size':null}", TENG_INVALID, "vocab_size is not set"},
        {llama, "{'vocab_size':0}", TENG_INVALID, "vocab_size = 0 is out of range, 1 … 16777216"},
        {llama, "{'num_hidden_layers':-1}", TENG_INVALID, "num_hidden_layers = -1 is out of range"},
        {llama, "{'num_key_value_heads':0}", TENG_INVALID, "num_key_value_heads = 0 is out of range"},
        {llama, "{'rms_norm_eps':1}", TENG_INVALID, "rms_norm_eps = 1 is out of range, [0, 1)"},
        {gpt2, "{'resid_pdrop':1.0}", TENG_INVALID, "resid_pdrop = 1 is out of range"},
        {llama, "{'hidden_size':'big'}", TENG_FORMAT,
         "the key \"hidden_size\" must be an integer, found \"big\""},
        {llama, "{'attention_bias':1}", TENG_FORMAT, "the key \"attention_bias\" must be true or false"},
    };
    CHECK_REFUSALS(list);
}

static void refuses_families(void **state)
{
    (void)state;
    static const refusal list[] = {
        {llama, "{'model_type':null}", TENG_INVALID,
         "model_type is not set; families: llama, mistral, qwen2"},
        {llama, "{'model_type':'jamba'}", TENG_UNSUPPORTED, "model_type \"jamba\" is not implemented"},
        {llama, "{'model_type':'lama'}", TENG_UNSUPPORTED, "(did you mean llama?); families: llama, mistral"},
        {llama, "{'model_type':3}", TENG_FORMAT, "must be a string"},
        {llama, "{'n_embd':16}", TENG_INVALID,
         "n_embd = 16: model_type llama has no such key; its name there is hidden_size"},
        {gpt2, "{'hidden_size':16}", TENG_INVALID, "no such key; its name there is n_embd"},
        {gpt2, "{'rms_norm_eps':0.1}", TENG_INVALID, "no such key; its name there is layer_norm_epsilon"},
        {llama, "{'resid_pdrop':0.1}", TENG_INVALID, "resid_pdrop = 0.1: model_type llama has no such key"},
        {llama, "{'sliding_window':8}", TENG_INVALID, "sliding_window = 8: model_type llama has no such key"},
    };
    CHECK_REFUSALS(list);
    assert_null(teng_lm_create("[]"));
    assert_fails(TENG_FORMAT, "a JSON object is needed");
    assert_null(teng_lm_create("{\"model_type\":"));
    assert_fails(TENG_FORMAT, "model:1:");
    assert_null(teng_lm_create(NULL));
    assert_fails(TENG_INVALID, "the config is NULL");
    teng_cell *cell = teng_nn_linear(2, 2, false, 0);
    tg_lm_info info;
    assert_int_equal(tg_lm_get_info(cell, &info), TENG_INVALID);
    assert_fails(TENG_INVALID, "a linear is not a language model");
    assert_null(teng_lm_config(cell));
    teng_error_clear();
    teng_cell_destroy(&cell);
}

static void refuses_other_maths(void **state)
{
    (void)state;
    static const refusal list[] = {
        {llama, "{'hidden_act':'quick_gelu'}", TENG_UNSUPPORTED,
         "hidden_act = \"quick_gelu\" is not implemented"},
        {qwen2, "{'attention_bias':false}", TENG_UNSUPPORTED,
         "attention_bias = false is not implemented for model_type qwen2; leave it true"},
        {mistral, "{'attention_bias':true}", TENG_UNSUPPORTED, "attention_bias = true"},
        {qwen3, "{'mlp_bias':true}", TENG_UNSUPPORTED, "mlp_bias = true"},
        {llama, "{'partial_rotary_factor':0.5}", TENG_UNSUPPORTED, "partial_rotary_factor = 0.5"},
        {llama, "{'quantization_config':{'bits':4}}", TENG_UNSUPPORTED,
         "quantization_config = {\"bits\":4} is not implemented for model_type llama; leave it out"},
        {gpt2, "{'add_cross_attention':true}", TENG_UNSUPPORTED, "add_cross_attention = true"},
        {gpt2, "{'rope_theta':5}", TENG_UNSUPPORTED, "rope_theta = 5"},
        {llama, "{'num_experts_per_tok':2}", TENG_INVALID,
         "num_experts_per_tok = 2: model_type llama has no such key"},
        {llama, "{'rope_scaling':{'rope_type':'longrope','factor':4}}", TENG_UNSUPPORTED,
         "model.rope_scaling: rope_type = \"longrope\" is not implemented; default, linear, llama3, dynamic "
         "and yarn are"},
        {llama, "{'rope_scaling':{'type':'dynamic'}}", TENG_FORMAT, "the key \"factor\" is missing"},
        {llama, "{'rope_scaling':{'type':'yarn','factor':4,'beta_fast':-1}}", TENG_INVALID, "beta_fast = -1"},
        {llama, "{'rope_scaling':{'type':'yarn','factor':4,'attention_factor':0}}", TENG_INVALID,
         "attention_factor = 0"},
        {llama, "{'rope_scaling':{'type':'linear'}}", TENG_FORMAT,
         "model.rope_scaling: the key \"factor\" is missing"},
        {llama, "{'rope_scaling':{'type':'linear','factor':0}}", TENG_INVALID, "factor = 0 must be positive"},
        {llama,
         "{'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':1,"
         "'original_max_position_embeddings':8}}",
         TENG_INVALID, "0 < low < high"},
        {llama, "{'rope_parameters':{'rope_type':'llama3','factor':8}}", TENG_FORMAT,
         "model.rope_parameters: the key \"low_freq_factor\" is missing"},
        {llama, "{'rope_parameters':{'full_attention':{'rope_theta':1}}}", TENG_UNSUPPORTED,
         "one set of values"},
        {llama, "{'rope_parameters':{'partial_rotary_factor':0.5}}", TENG_UNSUPPORTED,
         "partial_rotary_factor = 0.5"},
        {llama, "{'rope_parameters':{'rope_theta':5},'rope_theta':6}", TENG_INVALID, "differ; leave one out"},
        {llama, "{'rope_parameters':{'rope_theta':5},'rope_scaling':{'type':'linear','factor':2}}",
         TENG_INVALID, "rope_scaling and rope_parameters are both set and differ"},
        {llama, "{'rope_theta':-1}", TENG_INVALID, "rope_theta = -1 must be positive"},
        {llama, "{'rope_scaling':'linear'}", TENG_FORMAT, "rope_scaling = \"linear\": an object is needed"},
    };
    CHECK_REFUSALS(list);
}

static void refuses_windows(void **state)
{
    (void)state;
    static const refusal list[] = {
        {llama, "{'layer_types':['full_attention','sliding_attention']}", TENG_INVALID,
         "has no sliding window"},
        {mistral, "{'layer_types':['full_attention','sliding_attention']}", TENG_UNSUPPORTED,
         "the window in every layer or in none"},
        {qwen3, "{'layer_types':['full_attention','sliding_attention']}", TENG_INVALID,
         "no sliding_window is in use"},
        {qwen3, "{'layer_types':['full_attention']}", TENG_INVALID, "a list of num_hidden_layers = 2 names"},
        {qwen3, "{'layer_types':['full_attention','linear_attention']}", TENG_UNSUPPORTED,
         "layer_types[1] = \"linear_attention\" is not implemented"},
    };
    CHECK_REFUSALS(list);
    static const char *const good[] = {
        "{'layer_types':['sliding_attention','full_attention'],'use_sliding_window':true,'sliding_window':8}",
        "{'layer_types':['full_attention','full_attention'],'use_sliding_window':true,'sliding_window':8}",
        "{'use_sliding_window':true,'sliding_window':8,'max_window_layers':1}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        teng_cell *lm = create(qwen3, good[i]);
        if (!lm) fail_msg("%s: %s", good[i], teng_error());
        teng_cell_destroy(&lm);
    }
}

static void survives_no_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        assert_in_range(n, 1, 5000);
        tg_alloc_fail_at(n);
        teng_cell *lm = teng_lm_create(qwen3);
        tg_alloc_fail_at(0);
        if (lm) {
            teng_cell_destroy(&lm);
            break;
        }
        assert_int_equal(teng_error_status(), TENG_MEMORY);
        teng_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_gpt2),
        cmocka_unit_test(tensors_of_llama3),
        cmocka_unit_test(tensors_of_qwen2),
        cmocka_unit_test(tensors_of_qwen3),
        cmocka_unit_test(biases),
        cmocka_unit_test(tied_heads),
        cmocka_unit_test(published_sizes),
        cmocka_unit_test(initialisation),
        cmocka_unit_test(config_is_complete),
        cmocka_unit_test(refuses_sizes),
        cmocka_unit_test(refuses_families),
        cmocka_unit_test(refuses_other_maths),
        cmocka_unit_test(refuses_windows),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
