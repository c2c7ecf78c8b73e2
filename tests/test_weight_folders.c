/*
 * Weights as others write them: names without the backbone's, a tied head that is there, alone or absent,
 * masks of old versions, F16 and BF16, shards; and what does not fit, by name.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/hf_folder.h"
#include "tensor/desc.h"
#include "train/core.h"

#include "cmocka_all.h"
#include "golden_edit.h"

#include <stdio.h>
#include <string.h>

typedef struct model {
    teng_cell *cell;
    tg_core *core;
} model;

static model open_model(const char *dir)
{
    static const char *const passes[] = {"default"};
    const tg_step_options options = {.micro_batches = 1, .passes = passes, .n_passes = 1};
    json_t *config;
    model m = {0};
    assert_int_equal(tg_hf_read_config(dir, &config), TENG_OK);
    char *text = tg_json_text(config, 0);
    m.cell = teng_lm_create(text);
    if (!m.cell) fail_msg("%s", teng_error());
    assert_int_equal(tg_core_create(m.cell, "cpu", 1, &options, NULL, &m.core), TENG_OK);
    tg_free(text);
    json_decref(config);
    return m;
}

static void close_model(model *m)
{
    tg_core_destroy(&m->core);
    teng_cell_destroy(&m->cell);
}

static teng_status load(model *m, const char *path)
{
    tg_weights *weights;
    const teng_status opened = tg_weights_open(path, &weights);
    if (opened != TENG_OK) return opened;
    const teng_status status = tg_core_load_weights(m->core, weights);
    tg_weights_close(&weights);
    return status;
}

/* The edited family loads and differs from the untouched one by at most `far` in any value. */
static void check_loads(const char *family, golden_edit *change, double far)
{
    char *dir = golden_path(family, ""), *edited = golden_edited_model(family, change, NULL, NULL);
    model a = open_model(dir), b = open_model(edited);
    assert_int_equal(load(&a, dir), TENG_OK);
    if (load(&b, edited) != TENG_OK) fail_msg("%s: %s", family, teng_error());
    double worst = 0;
    for (size_t i = 0; i < tg_store_count(a.core->store); i++) {
        const tg_store_entry *x = tg_store_at(a.core->store, i), *y = tg_store_at(b.core->store, i);
        tg_diff diff;
        assert_true(y->loaded);
        tg_compare(TENG_F32, x->data, TENG_F32, y->data, tg_desc_numel(&x->desc), &diff);
        worst = diff.max_abs > worst ? diff.max_abs : worst;
    }
    assert_true(worst <= far);
    assert_int_equal(worst > 0, far > 0);
    close_model(&a);
    close_model(&b);
    tg_free(edited);
    tg_free(dir);
}

static void check_refused(const char *family, golden_edit *change, const char *message)
{
    char *edited = golden_edited_model(family, change, NULL, NULL);
    model m = open_model(edited);
    assert_int_equal(load(&m, edited), TENG_FORMAT);
    if (!strstr(teng_error(), message)) fail_msg("%s: \"%s\" lacks \"%s\"", family, teng_error(), message);
    assert_non_null(strstr(teng_error(), "model.safetensors"));
    for (size_t i = 0; i < tg_store_count(m.core->store); i++)
        assert_false(tg_store_at(m.core->store, i)->loaded);
    teng_error_clear();
    close_model(&m);
    tg_free(edited);
}

/* ---- what is taken ---- */
static void strip_backbone(tg_ckpt_item *items, size_t *n)
{
    for (size_t i = 0; i < *n; i++) {
        const char *dot = strchr(items[i].name, '.');
        if (strncmp(items[i].name, "lm_head", 7) != 0) items[i].name = dot + 1;
    }
}

static void add_tied_head(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "transformer.wte.weight");
    items[(*n)++].name = "lm_head.weight";
}

static void only_tied_head(tg_ckpt_item *items, size_t *n)
{
    golden_item(items, *n, "model.embed_tokens.weight")->name = "lm_head.weight";
}

static void add_mask(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "transformer.wte.weight");
    items[(*n)++].name = "h.0.attn.masked_bias";
}

static void add_frequencies(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "model.norm.weight");
    items[(*n)++].name = "model.layers.0.self_attn.rotary_emb.inv_freq";
}

static void narrow(tg_ckpt_item *items, size_t n, teng_dtype to)
{
    for (size_t i = 0; i < n; i++) { /* in place: a narrower value never overtakes the one that is read */
        uint16_t *out = (uint16_t *)(uintptr_t)items[i].data;
        for (int64_t j = 0; j < tg_desc_numel(&items[i].desc); j++) {
            const float v = ((const float *)items[i].data)[j];
            out[j] = to == TENG_F16 ? tg_f32_to_f16(v) : tg_f32_to_bf16(v);
        }
        items[i].desc.dtype = to;
    }
}

static void to_f16(tg_ckpt_item *items, size_t *n)
{
    narrow(items, *n, TENG_F16);
}

static void to_bf16(tg_ckpt_item *items, size_t *n)
{
    narrow(items, *n, TENG_BF16);
}

static void test_taken(void **state)
{
    (void)state;
    check_loads("gpt2", strip_backbone, 0);
    check_loads("llama3", strip_backbone, 0);
    check_loads("gpt2", add_tied_head, 0);
    check_loads("qwen2", only_tied_head, 0);
    check_loads("gpt2", add_mask, 0);
    check_loads("qwen3", add_frequencies, 0);
    check_loads("llama3", to_f16, 1e-3); /* half a unit in the last place of values up to 2 */
    check_loads("llama3", to_bf16, 8e-3);
}

/* ---- what is refused ---- */
static void drop_two(tg_ckpt_item *items, size_t *n)
{
    *golden_item(items, *n, "model.layers.0.mlp.up_proj.weight") = items[*n - 1];
    --*n;
    *golden_item(items, *n, "model.layers.1.self_attn.q_proj.weight") = items[*n - 1];
    --*n;
}

static void rename_one(tg_ckpt_item *items, size_t *n)
{
    golden_item(items, *n, "model.norm.weight")->name = "model.norm.wait";
}

static void drop_head(tg_ckpt_item *items, size_t *n)
{
    *golden_item(items, *n, "lm_head.weight") = items[*n - 1];
    --*n;
}

static void other_tied_head(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "transformer.wpe.weight");
    items[(*n)++].name = "lm_head.weight";
}

static float odd_table[257 * 48];

static void unequal_tied_head(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "transformer.wte.weight");
    memcpy(odd_table, items[*n].data, sizeof odd_table);
    odd_table[7] += 1;
    items[*n].data = odd_table;
    items[(*n)++].name = "lm_head.weight";
}

static void twice(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "transformer.ln_f.bias");
    items[(*n)++].name = "ln_f.bias";
}

static void reshape(tg_ckpt_item *items, size_t *n)
{
    golden_item(items, *n, "model.embed_tokens.weight")->desc =
        tg_desc_make(TENG_F32, 2, (const int64_t[]){64, 320});
}

static void rename_all(tg_ckpt_item *items, size_t *n)
{
    static char names[64][32];
    for (size_t i = 0; i < *n; i++) {
        snprintf(names[i], sizeof names[i], "x.%zu", i);
        items[i].name = names[i];
    }
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("llama3", drop_two,
                  "missing: model.layers.0.mlp.up_proj.weight, model.layers.1.self_attn.q_proj.weight");
    check_refused("llama3", rename_one, "missing: model.norm.weight; unexpected: model.norm.wait");
    check_refused("llama3", drop_head, "missing: lm_head.weight");
    check_refused("gpt2", other_tied_head,
                  "lm_head.weight is f32[64,48] and transformer.wte.weight is f32[257,48]");
    check_refused("gpt2", unequal_tied_head,
                  "lm_head.weight and transformer.wte.weight differ in 1 of 12336 values");
    check_refused("gpt2", twice, "transformer.ln_f.bias and ln_f.bias are the same parameter");
    check_refused("llama3", rename_all, " and 13 more; unexpected: ");
}

static void test_shape(void **state)
{
    (void)state;
    char *edited = golden_edited_model("llama3", reshape, NULL, NULL);
    model m = open_model(edited);
    assert_int_equal(load(&m, edited), TENG_FORMAT);
    assert_non_null(
        strstr(teng_error(), "\"model.embed_tokens.weight\" is f32[64,320], but f32[320,64] is needed"));
    teng_error_clear();
    close_model(&m);
    tg_free(edited);
}

/* The old spelling of config.json: rope_theta and rope_scaling side by side, torch_dtype. */
static void test_old_spelling(void **state)
{
    (void)state;
    static const char old[] =
        "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"torch_dtype\": \"float32\","
        " \"hidden_size\": 64, \"intermediate_size\": 176, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 8,"
        " \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 320, \"max_position_embeddings\": 128,"
        " \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", \"rope_theta\": 10000.0, \"rope_scaling\": "
        "{\"factor\": 8.0,"
        " \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 32,"
        " \"rope_type\": \"llama3\"}}";
    char *dir = golden_path("llama3", ""), *edited = golden_edited_model("llama3", golden_same, NULL, NULL);
    char *config = tg_path_join(edited, "config.json");
    assert_int_equal(tg_file_write(config, old, strlen(old)), TENG_OK);
    model a = open_model(dir), b = open_model(edited);
    assert_int_equal(load(&a, dir), TENG_OK);
    assert_int_equal(load(&b, edited), TENG_OK);
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){1, 40}), both[2] = {desc, desc};
    int32_t tokens[40];
    for (int i = 0; i < 40; i++)
        tokens[i] = (i * 37) % 320;
    const tg_step_feed feed = {.in_desc = both,
                               .in = (const void *[]){tokens, tokens},
                               .in_name = (const char *[]){"tokens", "labels"},
                               .n_in = 2};
    static float x[40 * 320], y[40 * 320];
    assert_int_equal(tg_step_forward(a.core->step, &feed, x, sizeof x), TENG_OK);
    assert_int_equal(tg_step_forward(b.core->step, &feed, y, sizeof y), TENG_OK);
    assert_memory_equal(x, y, sizeof x);
    close_model(&a);
    close_model(&b);
    tg_free(config);
    tg_free(edited);
    tg_free(dir);
}

/* Shards with an index load as one file does. */
static void test_shards(void **state)
{
    (void)state;
    char *dir = golden_path("qwen3", ""), *file = golden_path("qwen3", "model.safetensors"), *to;
    json_t *config;
    tg_st_file *st;
    assert_int_equal(tg_hf_read_config(dir, &config), TENG_OK);
    assert_int_equal(tg_st_open(file, &st), TENG_OK);
    tg_ckpt_item *items = tg_calloc(tg_st_count(st), sizeof *items);
    for (size_t i = 0; i < tg_st_count(st); i++)
        items[i] = (tg_ckpt_item){
            .name = tg_st_at(st, i)->name, .desc = tg_st_at(st, i)->desc, .data = tg_st_at(st, i)->data};
    to = tg_path_join(golden_dir, "sharded");
    const tg_hf_folder folder = {
        .config = config, .items = items, .item_count = tg_st_count(st), .shard_bytes = 100000};
    assert_int_equal(tg_hf_save(to, &folder), TENG_OK);
    char *index = tg_path_join(to, "model.safetensors.index.json"),
         *single = tg_path_join(to, "model.safetensors");
    assert_true(tg_path_exists(index) && !tg_path_exists(single));
    model a = open_model(dir), b = open_model(to);
    assert_int_equal(load(&a, dir), TENG_OK);
    assert_int_equal(load(&b, to), TENG_OK);
    for (size_t i = 0; i < tg_store_count(a.core->store); i++)
        assert_memory_equal(tg_store_at(a.core->store, i)->data, tg_store_at(b.core->store, i)->data,
                            tg_desc_bytes(&tg_store_at(a.core->store, i)->desc));
    close_model(&a);
    close_model(&b);
    tg_free(index);
    tg_free(single);
    tg_free(to);
    tg_free(items);
    tg_st_close(&st);
    json_decref(config);
    tg_free(file);
    tg_free(dir);
}

/* What a core writes is what the file had: the same names, the same bytes. */
static void check_out(const char *family)
{
    char *dir = golden_path(family, "");
    model m = open_model(dir);
    tg_weights *weights;
    tg_arena *arena = tg_arena_create();
    tg_folder_items items = {0};
    assert_int_equal(load(&m, dir), TENG_OK);
    assert_int_equal(tg_weights_open(dir, &weights), TENG_OK);
    assert_int_equal(tg_core_folder_items(m.core, arena, &items), TENG_OK);
    assert_int_equal(items.len, tg_weights_count(weights));
    for (size_t i = 0; i < items.len; i++) {
        const tg_st_tensor *t = tg_weights_find(weights, items.data[i].name);
        if (!t) fail_msg("%s: %s is no name of the file", family, items.data[i].name);
        assert_true(tg_desc_equal(&t->desc, &items.data[i].desc));
        assert_memory_equal(t->data, items.data[i].data, tg_desc_bytes(&t->desc));
    }
    tg_vec_free(&items);
    tg_arena_destroy(&arena);
    tg_weights_close(&weights);
    close_model(&m);
    tg_free(dir);
}

static void test_out(void **state)
{
    (void)state;
    static const char *const families[] = {"gpt2", "llama3", "qwen2", "qwen3", "mixtral"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_out(families[i]);
}

/* A mixture whose file keeps one parameter whole, as it is in memory, and lacks a part of another. */
static void fuse(tg_ckpt_item *items, size_t *n)
{
    enum { EXPERTS = 4, SIZE = 48 * 80 };
    static float whole[EXPERTS * SIZE];
    for (int e = 0; e < EXPERTS; e++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.1.block_sparse_moe.experts.%d.w2.weight", e);
        tg_ckpt_item *item = golden_item(items, *n, name);
        memcpy(whole + e * SIZE, item->data, sizeof(float) * SIZE);
        *item = items[--*n];
    }
    items[(*n)++] = (tg_ckpt_item){.name = "model.layers.1.mlp.experts.down_proj",
                                   .desc = tg_desc_make(TENG_F32, 3, (const int64_t[]){EXPERTS, 48, 80}),
                                   .data = whole};
}

static void drop_expert(tg_ckpt_item *items, size_t *n)
{
    *golden_item(items, *n, "model.layers.1.block_sparse_moe.experts.2.w3.weight") = items[*n - 1];
    --*n;
}

static void add_expert(tg_ckpt_item *items, size_t *n)
{
    items[*n] = *golden_item(items, *n, "model.layers.1.block_sparse_moe.experts.2.w3.weight");
    items[(*n)++].name = "model.layers.1.block_sparse_moe.experts.4.w3.weight";
}

static void test_experts(void **state)
{
    (void)state;
    check_loads("mixtral", strip_backbone, 0);
    check_loads("mixtral", fuse, 0);
    check_loads("mixtral", to_f16, 1e-3);
    check_refused("mixtral", drop_expert, "missing: model.layers.1.block_sparse_moe.experts.2.w3.weight");
    check_refused("mixtral", add_expert, "unexpected: model.layers.1.block_sparse_moe.experts.4.w3.weight");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken),  cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_shape),  cmocka_unit_test(test_old_spelling),
                                       cmocka_unit_test(test_shards), cmocka_unit_test(test_out),
                                       cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, golden_scratch, golden_remove_scratch);
}
