/*
 * Text written with caches of keys and values against text written without: every family, every kind of
 * rotary positions, windows, both modes. Logits at each length of a text, then whole texts, greedy and drawn.
 * Models have random weights, wide enough that every part of them matters.
 */
#include "teng/teng.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "op/op_list.h"
#include "train/lm_impl.h"
#include "train/model_folder.h"

#include "cmocka_all.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BODY                                                                                                 \
    "\"vocab_size\":261,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"                \
    "\"num_attention_heads\":4,\"initializer_range\":0.3"
#define GROUPED ",\"num_key_value_heads\":2"
#define LLAMA "\"model_type\":\"llama\"," BODY
#define GPT2                                                                                                 \
    "\"model_type\":\"gpt2\",\"vocab_size\":261,\"n_embd\":32,\"n_layer\":3,\"n_head\":4,\"initializer_"     \
    "range\":0.3"
#define POSITIONS(n) ",\"max_position_embeddings\":" #n
#define SCALING(text) ",\"rope_scaling\":{" text "}"

static const char *const configs[] = {
    "{" GPT2 ",\"n_positions\":70}",
    "{" GPT2
    ",\"n_positions\":600,\"scale_attn_by_inverse_layer_idx\":true,\"activation_function\":\"relu\"}",
    "{" LLAMA GROUPED POSITIONS(600) "}",
    "{" LLAMA POSITIONS(90) ",\"num_key_value_heads\":1,\"attention_bias\":true,\"head_dim\":20,\"tie_word_"
                            "embeddings\":true}",
    "{" LLAMA GROUPED POSITIONS(600) SCALING("\"rope_type\":\"linear\",\"factor\":3") "}",
    "{" LLAMA GROUPED POSITIONS(600)
        SCALING("\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":1.5,\"high_freq_factor\":3,"
                "\"original_max_position_embeddings\":24") "}",
    "{" LLAMA GROUPED POSITIONS(100) SCALING("\"rope_type\":\"dynamic\",\"factor\":2") "}",
    "{" LLAMA GROUPED POSITIONS(600)
        SCALING("\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":24") "}",
    "{\"model_type\":\"mistral\",\"sliding_window\":9," BODY GROUPED POSITIONS(600) "}",
    "{\"model_type\":\"mistral\",\"sliding_window\":130," BODY GROUPED POSITIONS(512) "}",
    "{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":11,\"max_window_layers\":"
    "1," BODY GROUPED POSITIONS(600) "}",
    "{\"model_type\":\"qwen3\",\"head_dim\":12," BODY GROUPED POSITIONS(600) "}",
    "{\"model_type\":\"mixtral\",\"num_local_experts\":5,\"sliding_window\":20," BODY GROUPED POSITIONS(
        600) "}",
    "{\"model_type\":\"qwen3_moe\",\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":20,"
    "\"decoder_sparse_step\":2," BODY GROUPED POSITIONS(600) "}",
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static int enter(void **state)
{
    (void)state;
    return scratch_enter("generate");
}

static int leave(void **state)
{
    (void)state;
    return scratch_leave();
}

/* A folder with random weights and the byte tokenizer. */
static const char *make_model(const char *config)
{
    teng_cell *lm = teng_lm_create(config);
    if (!lm) fail_msg("%s: %s", config, teng_error());
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    o.seed = 7;
    teng_model *model = teng_model_create(lm, &o);
    assert_non_null(model);
    const char *dir = in_dir("model");
    assert_ok(tg_remove_tree(dir));
    assert_ok(teng_model_save(model, dir, NULL));
    tg_tokenizer *bytes;
    assert_ok(tg_tokenizer_bytes(NULL, 0, &bytes));
    assert_ok(tg_tokenizer_save(bytes, in_dir("model/tokenizer.json")));
    tg_tokenizer_destroy(&bytes);
    teng_model_destroy(&model);
    teng_cell_destroy(&lm);
    return dir;
}

static tg_lm *open_lm(const char *dir, bool pynative)
{
    tg_device *dev;
    tg_lm *lm = NULL;
    assert_ok(tg_device_open("cpu", 1, &dev));
    const teng_status status = tg_lm_open(dir, dev, &lm);
    tg_device_close(&dev);
    assert_ok(status);
    if (!pynative) return lm;
    const tg_step_options options = {.pynative = true, .micro_batches = 1};
    tg_core_destroy(&lm->core);
    assert_ok(tg_core_create(lm->cell, "cpu", 1, &options, NULL, &lm->core));
    assert_ok(tg_core_load_path(lm->core, dir));
    return lm;
}

/* ---- logits ---- */
static double distance(const float *a, const float *b, int64_t n)
{
    double d = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(d / size);
}

/* A text of n tokens read from `prompt` on, token by token, with caches and without. */
static void compare_logits(const char *config, bool pynative, int64_t prompt, int64_t n, int64_t stride)
{
    tg_lm *lm = open_lm(make_model(config), pynative);
    uint32_t ids[700];
    tg_predictor cached, plain;
    assert_true(n <= 700);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint32_t)tg_rng_below(11, (uint64_t)i, 256);
    assert_ok(tg_predictor_open(&cached, lm, true, n));
    assert_ok(tg_predictor_open(&plain, lm, false, n));
    for (int64_t i = prompt; i <= n; i++) {
        assert_ok(tg_predictor_next(&cached, ids, i));
        if ((i - prompt) % stride && i != n) continue;
        assert_ok(tg_predictor_next(&plain, ids, i));
        const double d = distance(cached.logits, plain.logits, lm->info.vocab_size);
        if (!(d < 2e-5))
            fail_msg("%s: logits behind %d of %d tokens differ by %g", config, (int)i, (int)n, d);
    }
    if (n <= lm->info.max_positions) assert_int_equal(cached.kept, n); /* the caches were in use */
    tg_predictor_close(&cached);
    tg_predictor_close(&plain);
    tg_lm_close(&lm);
}

static void logits_of_every_family(void **state)
{
    (void)state;
    for (int i = 0; i < CONFIGS; i++)
        compare_logits(configs[i], false, 1, 68, 1);
}

static void logits_behind_a_long_prompt(void **state)
{
    (void)state;
    for (int i = 0; i < CONFIGS; i++) {
        const bool room = !strstr(configs[i], "_embeddings\":90") && !strstr(configs[i], ":100") &&
                          !strstr(configs[i], "n_positions\":70");
        compare_logits(configs[i], false, room ? 300 : 40, room ? 330 : 66,
                       7); /* two chunks, and a part of one */
    }
    compare_logits(configs[9], false, 480, 512, 9); /* up to the last position */
}

static void logits_in_pynative(void **state)
{
    (void)state;
    for (int i = 0; i < CONFIGS; i++)
        compare_logits(configs[i], true, 20, 44, 5);
}

/* ---- texts ---- */
static bool take(void *user, const char *bytes, size_t n)
{
    tg_strbuf_add(user, bytes, n);
    return true;
}

static void same_text(tg_lm *lm, const char *config, const char *prompt, tg_sampling s)
{
    tg_strbuf with = {0}, without = {0};
    s.no_cache = false;
    assert_ok(tg_lm_generate(lm, prompt, strlen(prompt), &s, take, &with));
    s.no_cache = true;
    assert_ok(tg_lm_generate(lm, prompt, strlen(prompt), &s, take, &without));
    if (with.len != without.len || memcmp(with.data, without.data, with.len) != 0)
        fail_msg("%s: behind a prompt of %zu bytes the text with caches differs from that without", config,
                 strlen(prompt));
    tg_strbuf_free(&with);
    tg_strbuf_free(&without);
}

static void texts_of_every_family(void **state)
{
    (void)state;
    static const char tale[] =
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
        "foolishness, it was the epoch of belief, it was the epoch of incredulity.";
    for (int i = 0; i < CONFIGS; i++) {
        tg_lm *lm = open_lm(make_model(configs[i]), false);
        lm->ends.len = 0; /* random models end soon */
        const tg_sampling greedy = {.top_p = 1, .max_tokens = 40};
        const tg_sampling drawn = {.temperature = 1, .top_p = 0.9, .top_k = 40, .seed = 5, .max_tokens = 90};
        same_text(lm, configs[i], "", greedy);
        same_text(lm, configs[i], tale,
                  greedy);                      /* longer than some windows, and than the positions of some */
        same_text(lm, configs[i], "A", drawn);  /* grows past the positions of some */
        same_text(lm, configs[i], tale, drawn); /* and the caches of the text before */
        tg_lm_close(&lm);
    }
}

/* ---- weights in 16 bits stay so, and give what the same values give in f32 ---- */
static void weights_in_16_bits(void **state)
{
    (void)state;
    static const teng_dtype types[] = {TENG_BF16, TENG_F16};
    for (int i = 0; i < CONFIGS; i++) {
        make_model(configs[i]);
        assert_ok(tg_folder_convert(in_dir("model"), in_dir("half"), types[i % 2], 0));
        assert_ok(tg_folder_convert(in_dir("half"), in_dir("wide"), TENG_F32, 0));
        tg_lm *half = open_lm(in_dir("half"), false), *wide = open_lm(in_dir("wide"), false);
        size_t narrow = 0;
        for (size_t e = 0; e < tg_store_count(half->core->store); e++)
            narrow += tg_store_at(half->core->store, e)->desc.dtype == types[i % 2];
        assert_true(narrow >= 6 && narrow < tg_store_count(half->core->store)); /* norms are f32 */
        uint32_t ids[60];
        tg_predictor a, b;
        for (int k = 0; k < 60; k++)
            ids[k] = (uint32_t)tg_rng_below(13, (uint64_t)k, 256);
        for (int cached = 0; cached < 2; cached++) {
            assert_ok(tg_predictor_open(&a, half, cached, 60));
            assert_ok(tg_predictor_open(&b, wide, cached, 60));
            for (int n = 50; n <= 60; n++) {
                assert_ok(tg_predictor_next(&a, ids, n));
                assert_ok(tg_predictor_next(&b, ids, n));
                const double d = distance(a.logits, b.logits, half->info.vocab_size);
                if (!(d < 2e-5)) fail_msg("%s: logits of 16-bit weights are off by %g", configs[i], d);
            }
            tg_predictor_close(&a);
            tg_predictor_close(&b);
        }
        tg_eval_result x, y;
        const char *text = in_dir("wide/config.json");
        assert_ok(tg_lm_eval(half, &text, 1, 32, &x));
        assert_ok(tg_lm_eval(wide, &text, 1, 32, &y));
        assert_true(fabs(x.nats_per_token - y.nats_per_token) < 1e-5);
        tg_lm_close(&half);
        tg_lm_close(&wide);
    }
}

/* ---- a token costs no allocation ---- */
static void tokens_allocate_nothing(void **state)
{
    (void)state;
    tg_lm *lm = open_lm(make_model(configs[2]), false);
    uint32_t ids[64];
    tg_predictor p;
    for (int i = 0; i < 64; i++)
        ids[i] = (uint32_t)i;
    assert_ok(tg_predictor_open(&p, lm, true, 64));
    assert_ok(tg_predictor_next(&p, ids, 9));
    assert_ok(tg_predictor_next(&p, ids, 10)); /* plans are made */
    const uint64_t before = tg_alloc_count();
    for (int i = 11; i <= 64; i++)
        assert_ok(tg_predictor_next(&p, ids, i));
    assert_int_equal(tg_alloc_count(), before);
    tg_predictor_close(&p);
    tg_lm_close(&lm);
}

static void what_is_refused(void **state)
{
    (void)state;
    teng_cell *lm = teng_lm_create(configs[0]);
    assert_error(tg_lm_set_room(lm, 71), TENG_INVALID, "room for 71 tokens|n_positions = 70");
    assert_error(tg_lm_set_room(lm, 0), TENG_INVALID, "room for 0 tokens");
    tg_graph *g = tg_graph_create("early");
    teng_tensor *in[] = {tg_graph_input(g, "tokens", &(teng_desc){TENG_I32, 2, {1, 1}}),
                         tg_graph_input(g, "rows", &(teng_desc){TENG_I32, 1, {1}}),
                         tg_graph_input(g, "positions", &(teng_desc){TENG_I32, 1, {1}})};
    assert_ok(tg_op_register_builtin());
    assert_null(tg_nn_trace(lm, g, in, 3, false));
    assert_error(teng_error_status(), TENG_STATE, "before tg_lm_set_room");
    tg_graph_destroy(&g);
    teng_cell_destroy(&lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(logits_of_every_family, enter, leave),
        cmocka_unit_test_setup_teardown(logits_behind_a_long_prompt, enter, leave),
        cmocka_unit_test_setup_teardown(logits_in_pynative, enter, leave),
        cmocka_unit_test_setup_teardown(texts_of_every_family, enter, leave),
        cmocka_unit_test_setup_teardown(weights_in_16_bits, enter, leave),
        cmocka_unit_test_setup_teardown(tokens_allocate_nothing, enter, leave),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
