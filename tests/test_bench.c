/*
 * Measurements: every figure is there and they agree with each other; settings arrive; nothing is left
 * behind. Not here: how fast anything is. Tiny models, moments of time.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "bench/bench.h"
#include "data/tokenizer.h"
#include "scratch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"

/* ---- reading answers ---- */
static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) fail_msg("%s is no number", key);
    return json_number_value(v);
}

/* The median of a figure with spread, whose parts are in order. */
static double median(const json_t *o, const char *key, int64_t n)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_object(v)) fail_msg("%s has no spread", key);
    const double mid = real(v, "median");
    assert_true(real(v, "min") > 0 && real(v, "min") <= mid && mid <= real(v, "max"));
    if (n > 0) assert_int_equal(real(v, "n"), n);
    assert_true(real(v, "n") >= 1);
    return mid;
}

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * fabs(b)) fail_msg("%.12g is not %.12g", a, b);
}

static void assert_frame(const json_t *o)
{
    const json_t *machine = json_object_get(o, "machine");
    assert_string_equal(json_string_value(json_object_get(o, "version")), teng_version());
    assert_non_null(strstr(json_string_value(json_object_get(machine, "line")),
                           json_string_value(json_object_get(machine, "cpu"))));
    assert_true(real(machine, "threads") >= 1 && real(machine, "memory_bytes") > 1 << 24);
}

static tg_config *config(const char *const *words, int n)
{
    bool misused;
    tg_config *cfg = NULL;
    assert_ok(tg_bench_config(NULL, words, n, &misused, &cfg));
    return cfg;
}

#define TINY                                                                                                 \
    "context.threads=1", "model.n_layer=1", "model.n_embd=32", "train.batch_size=4", "train.seq_len=16"
#define CONFIG(...)                                                                                          \
    config((const char *const[]){TINY, __VA_ARGS__},                                                         \
           (int)(sizeof((const char *[]){TINY, __VA_ARGS__}) / sizeof(char *)))

/* ---- figures ---- */
static void test_stat(void **state)
{
    (void)state;
    tg_bench_stat s = tg_bench_stat_of((double[]){3, 1, 2}, 3);
    assert_true(s.median == 2 && s.min == 1 && s.max == 3 && s.n == 3);
    s = tg_bench_stat_of((double[]){4, 1, 2, 10}, 4);
    assert_true(s.median == 3 && s.min == 1 && s.max == 10 && s.n == 4);
    json_t *none = tg_bench_stat_json(tg_bench_stat_of(NULL, 0));
    assert_true(json_is_null(none));
    json_decref(none);
}

/* ---- configuration ---- */
static void test_config_rule(void **state)
{
    (void)state;
    bool misused;
    tg_config *cfg = NULL;
    const char *path = TG_SOURCE_DIR "/configs/gpt2-124m.yaml";
    assert_ok(tg_bench_config(path, NULL, 0, &misused, &cfg));
    assert_true(cfg->train.batch_size == 512 && cfg->train.micro_batches == 128);
    tg_config_destroy(&cfg);
    const char *const batch[] = {"train.seq_len=1024", "train.batch_size=4", "train.micro_batches=2"};
    assert_ok(tg_bench_config(path, batch, 2, &misused, &cfg));
    assert_true(cfg->train.batch_size == 4 && cfg->train.micro_batches == 1);
    tg_config_destroy(&cfg);
    assert_ok(tg_bench_config(path, batch, 3, &misused, &cfg));
    assert_true(cfg->train.batch_size == 4 && cfg->train.micro_batches == 2);
    tg_config_destroy(&cfg);

    assert_error(tg_bench_config(path, (const char *const[]){"train.sequence=4"}, 1, &misused, &cfg),
                 TENG_INVALID, "train.sequence");
    assert_true(misused);
    assert_null(cfg);
    assert_error(tg_bench_config("no-such.yaml", NULL, 0, &misused, &cfg), TENG_IO, "no-such.yaml");
    assert_false(misused);
    assert_error(tg_bench_config(NULL, (const char *const[]){"train.micro_batches=5"}, 1, &misused, &cfg),
                 TENG_INVALID, "train.micro_batches = 5");
}

/* ---- step ---- */
static json_t *measure_step(tg_config *cfg, tg_bench_step_options options)
{
    tg_bench_step_figures f;
    assert_ok(tg_bench_step_measure(cfg, &options, &f));
    json_t *o = NULL;
    assert_ok(tg_bench_answer(tg_bench_step_json(cfg, &f), &o));
    assert_frame(o);
    tg_config_destroy(&cfg);
    return o;
}

static void test_step_figures(void **state)
{
    (void)state;
    json_t *o = measure_step(CONFIG("train.micro_batches=2"), (tg_bench_step_options){5, 1, true});
    const double ms = median(o, "step_ms", 5), tokens = real(o, "tokens_per_step");
    assert_true(tokens == 64 && real(o, "batch_size") == 4 && real(o, "seq_len") == 16);
    assert_true(real(o, "micro_batches") == 2 && real(o, "threads") == 1 && real(o, "dropped_steps") == 0);
    assert_near(real(o, "steps_per_s"), 1e3 / ms);
    assert_near(real(o, "tokens_per_s"), tokens * 1e3 / ms);
    assert_near(real(o, "gflops"), real(o, "tokens_per_s") * real(o, "flops_per_token") * 1e-9);
    assert_near(real(o, "mfu"), real(o, "gflops") / real(o, "matmul_peak_gflops"));
    assert_true(real(o, "mfu") > 0 && real(o, "matmul_best_gflops") >= real(o, "matmul_peak_gflops"));
    /* parameters, two moments and a sum of gradients in f32, and activations */
    assert_true(real(o, "planned_bytes") > 16 * real(o, "parameters"));
    assert_true(real(o, "peak_rss_bytes") > 1e6 && real(o, "wait_ms") < ms);
    assert_true(real(o, "base_rss_bytes") > 1e6 && real(o, "base_rss_bytes") < real(o, "peak_rss_bytes"));
    const json_t *parts = json_object_get(o, "startup_parts_ms");
    double sum = 0;
    for (int i = 0; i < 5; i++)
        sum += real(parts, (const char *[]){"load", "model", "plan", "init", "first_step"}[i]);
    assert_true(fabs(sum - real(o, "startup_ms")) < 1e-3 && real(parts, "load") >= 0);
    assert_near(real(o, "plan_ms"), real(parts, "plan"));
    assert_true(fabs(real(o, "first_loss") - log(257)) < 0.2); /* of a model that knows nothing yet */
    assert_string_equal(json_string_value(json_object_get(o, "mode")), "graph");
    assert_string_equal(json_string_value(json_object_get(o, "precision")), "O0");
    assert_string_equal(json_string_value(json_object_get(o, "dtype")), "f32");
    json_decref(o);
}

static void test_step_settings(void **state)
{
    (void)state;
    json_t *o = measure_step(CONFIG("context.mode=pynative"), (tg_bench_step_options){2, 0, false});
    assert_string_equal(json_string_value(json_object_get(o, "mode")), "pynative");
    assert_true(json_is_null(json_object_get(o, "planned_bytes")) &&
                json_is_null(json_object_get(o, "plan_ms")));
    assert_true(json_is_null(json_object_get(o, "mfu")) &&
                json_is_null(json_object_get(o, "matmul_peak_gflops")));
    assert_true(real(o, "micro_batches") == 1);
    median(o, "step_ms", 2);
    json_decref(o);
    o = measure_step(CONFIG("precision.level=O2", "precision.dtype=bf16"),
                     (tg_bench_step_options){1, 1, false});
    assert_string_equal(json_string_value(json_object_get(o, "precision")), "O2");
    assert_string_equal(json_string_value(json_object_get(o, "dtype")), "bf16");
    json_decref(o);
}

static void test_step_refuses(void **state)
{
    (void)state;
    tg_config *cfg = CONFIG("memory.budget=10KiB");
    tg_bench_step *b = NULL;
    assert_error(tg_bench_step_open(cfg, &b), TENG_MEMORY, "memory.budget");
    assert_null(b);
    tg_config_destroy(&cfg);
}

/* Several in turn are what each is alone. */
static void test_steps_in_turn(void **state)
{
    (void)state;
    tg_config *cfg = CONFIG("context.seed=3"), *other = CONFIG("context.seed=4");
    tg_bench_step *alone, *a, *b;
    assert_ok(tg_bench_step_open(cfg, &alone));
    assert_ok(tg_bench_step_run(alone, 3, true));
    assert_ok(tg_bench_step_open(cfg, &a));
    assert_ok(tg_bench_step_open(other, &b));
    for (int i = 0; i < 3; i++) {
        assert_ok(tg_bench_step_run(a, 1, i > 0));
        assert_ok(tg_bench_step_run(b, 1, false));
    }
    const tg_bench_step_figures x = tg_bench_step_get(alone), y = tg_bench_step_get(a),
                                z = tg_bench_step_get(b);
    assert_true(x.first_loss == y.first_loss && x.last_loss == y.last_loss);
    assert_true(x.last_loss != z.last_loss && x.last_loss != x.first_loss);
    assert_true(x.step_ms.n == 3 && y.step_ms.n == 2 && z.step_ms.n == 0 && z.tokens_per_s == 0);
    tg_bench_step_close(&alone);
    tg_bench_step_close(&a);
    tg_bench_step_close(&b);
    tg_config_destroy(&cfg);
    tg_config_destroy(&other);
}

/* ---- machine, operators ---- */
static void test_peak(void **state)
{
    (void)state;
    json_t *o = NULL;
    assert_ok(tg_bench_peak(&(tg_bench_peak_options){.threads = 2, .seconds = 0.001}, &o));
    assert_frame(o);
    const json_t *peaks = json_object_get(o, "peaks");
    assert_int_equal(json_array_size(peaks), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(peaks, i);
        assert_int_equal(real(row, "threads"), i + 1);
        median(row, "f32_gflops", 0);
        median(row, "read_gb_s", 0);
        median(row, "copy_gb_s", 0);
        median(row, "triad_gb_s", 0);
    }
    json_decref(o);
}

static void test_op(void **state)
{
    (void)state;
    json_t *o = NULL;
    tg_bench_op_options options = {.ops = (const char *const[]){"softmax", "matmul", "grouped_matmul"},
                                   .n_ops = 3,
                                   .dtypes = (const char *const[]){"f32", "bf16"},
                                   .n_dtypes = 2,
                                   .threads = 1,
                                   .elements = 20000,
                                   .seconds = 0.0005};
    assert_ok(tg_bench_op(&options, &o));
    assert_frame(o);
    const json_t *rows = json_object_get(o, "ops");
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_true(median(row, "us", 0) > 0 && real(row, "gb_s") > 0 && real(row, "roofline") > 0);
        assert_true(strlen(json_string_value(json_object_get(row, "kernel"))) > 0);
    }
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "op")), "matmul");
    json_decref(o);
    options.n_ops = options.n_dtypes = 1;
    options.all = true;
    assert_ok(tg_bench_op(&options, &o));
    assert_true(json_array_size(json_object_get(o, "ops")) > 5);
    json_decref(o);

    options.ops = (const char *const[]){"softmx"};
    assert_error(tg_bench_op(&options, &o), TENG_INVALID, "softmax");

    options.n_ops = 0;
    options.dtypes = (const char *const[]){"f64"};
    assert_error(tg_bench_op(&options, &o), TENG_INVALID, "f64");
}

/* ---- tokenizer ---- */
static void assert_empty(const char *dir)
{
    char **names;
    size_t n;
    assert_ok(tg_list_dir(dir, &names, &n));
    if (n) fail_msg("%s was left in %s", names[0], dir);
    tg_names_free(names, n);
}

static json_t *measure_tokenizer(tg_bench_tokenizer_options options)
{
    json_t *o = NULL;
    assert_ok(tg_bench_tokenizer(&options, &o));
    assert_frame(o);
    return o;
}

static const char *hash(const json_t *o)
{
    return json_string_value(json_object_get(o, "ids_hash"));
}

static void test_tokenizer(void **state)
{
    (void)state;
    const char text[] = "Measure twice, cut once. Measure twice, cut once.\n";
    assert_ok(tg_mkdirs(in_dir("tmp")));
    setenv("TMPDIR", in_dir("tmp"), 1);
    assert_ok(tg_file_write(in_dir("text"), text, strlen(text)));
    json_t *o = measure_tokenizer(
        (tg_bench_tokenizer_options){.tokenizer = "bytes", .file = in_dir("text"), .passes = 2});
    assert_near(real(o, "mb_per_s"), (double)strlen(text) * 1e-6 / median(o, "encode_s", 2));
    assert_true(real(o, "bytes") == (double)strlen(text) && real(o, "tokens") == real(o, "bytes"));
    assert_null(json_object_get(o, "train_mb_per_s"));
    json_decref(o);

    const tg_bench_tokenizer_options drawn = {
        .seed = 1, .drawn_bytes = 20000, .passes = 1, .train_vocab = 300};
    tg_bench_tokenizer_options other = drawn;
    other.seed = 2;
    json_t *a = measure_tokenizer(drawn), *b = measure_tokenizer(drawn), *c = measure_tokenizer(other);
    assert_string_equal(hash(a), hash(b));
    assert_string_not_equal(hash(a), hash(c));
    assert_true(real(a, "bytes") >= 20000 && real(a, "tokens") < real(a, "bytes"));
    assert_near(real(a, "train_mb_per_s"), real(a, "bytes") * 1e-6 / median(a, "train_s", 1));
    assert_true(real(a, "train_vocab") == 300);
    json_decref(a);
    json_decref(b);
    json_decref(c);
    assert_empty(in_dir("tmp"));

    assert_error(
        tg_bench_tokenizer(
            &(tg_bench_tokenizer_options){.tokenizer = "bytes", .file = "no-such.txt", .passes = 1}, &o),
        TENG_IO, "no-such.txt");

    assert_ok(tg_file_write(in_dir("text"), "", 0));
    assert_error(tg_bench_tokenizer(&(tg_bench_tokenizer_options){.file = in_dir("text"), .passes = 1}, &o),
                 TENG_INVALID, "text is empty");

    setenv("TMPDIR", in_dir("none"), 1);
    assert_error(tg_bench_tokenizer(&drawn, &o), TENG_IO, "set TMPDIR");

    unsetenv("TMPDIR");
}

/* ---- checkpoints, generation ---- */
static void test_checkpoint(void **state)
{
    (void)state;
    tg_config *cfg = CONFIG("checkpoint.async=true");
    json_t *o = NULL;
    assert_ok(tg_mkdirs(in_dir("ckpt")));
    const tg_bench_checkpoint_options options = {.dir = in_dir("ckpt"), .saves = 2};
    assert_ok(tg_bench_checkpoint(cfg, &options, &o));
    assert_frame(o);
    assert_near(real(o, "stall_share"), median(o, "stall_ms", 2) / median(o, "step_ms", 6));
    assert_true(real(o, "first_stall_ms") > 0);
    assert_near(real(o, "write_gb_s"), real(o, "bytes") * 1e-9 / median(o, "write_s", 2));
    assert_near(real(o, "disk_gb_s"), real(o, "bytes") * 1e-9 / median(o, "disk_s", 2));
    assert_true(real(o, "bytes") > 100000 && json_is_true(json_object_get(o, "async")));
    json_decref(o);
    assert_empty(in_dir("ckpt"));
    assert_ok(tg_file_write(in_dir("file"), "x", 1));
    assert_error(
        tg_bench_checkpoint(cfg, &(tg_bench_checkpoint_options){.dir = in_dir("file"), .saves = 1}, &o),
        TENG_IO, "file");

    tg_config_destroy(&cfg);
}

static void test_generate(void **state)
{
    (void)state;
    tg_config *cfg = CONFIG("context.seed=1");
    json_t *o = NULL;
    tg_bench_generate_options options = {.cfg = cfg,
                                         .prompt_tokens = 1000,
                                         .tokens = 1000,
                                         .dtype = TENG_F32,
                                         .passes = 2,
                                         .device = "cpu",
                                         .threads = 1};
    assert_ok(tg_bench_generate(&options, &o));
    assert_frame(o);
    assert_true(real(o, "prompt_tokens") == 32 && real(o, "tokens") == 32); /* 64 positions */
    assert_near(real(o, "tokens_per_s"), median(o, "passes_tokens_per_s", 2));
    assert_true(real(o, "cache_bytes_per_token") == 2 * 4 * 32 * (32 + 32 / 2)); /* one layer, 32 wide */
    assert_near(real(o, "gb_s"), real(o, "tokens_per_s") * 1e-9 *
                                     (real(o, "weight_bytes_per_token") + real(o, "cache_bytes_per_token")));
    assert_near(real(o, "bandwidth_share"), median(o, "passes_bandwidth_share", 2));
    assert_true(median(o, "read_gb_s", 2) > 0);
    /* attention and feed-forward of one layer, and the head */
    assert_true(real(o, "weight_bytes_per_token") == 4 * (12 * 32 * 32 + 257 * 32));
    json_decref(o);
    options.dtype = TENG_BF16;
    assert_ok(tg_bench_generate(&options, &o));
    assert_true(real(o, "weight_bytes_per_token") == 2 * (12 * 32 * 32 + 257 * 32));
    assert_string_equal(json_string_value(json_object_get(o, "dtype")), "bf16");
    json_decref(o);
    tg_config_destroy(&cfg);
    /* one layer of two experts, of which a token sees one; 2 heads of 16, one of keys and values; head and
     * router */
    const char *const moe[] = {"model.model_type=mixtral",         "model.hidden_size=32",
                               "model.intermediate_size=48",       "model.num_hidden_layers=1",
                               "model.num_attention_heads=2",      "model.num_key_value_heads=1",
                               "model.max_position_embeddings=64", "model.num_local_experts=2",
                               "model.num_experts_per_tok=1",      "model.vocab_size=100"};
    cfg = tg_config_create();
    for (size_t i = 0; i < sizeof moe / sizeof *moe; i++)
        assert_ok(tg_config_override(cfg, moe[i]));
    options.cfg = cfg;
    options.dtype = TENG_F32;
    assert_ok(tg_bench_generate(&options, &o));
    assert_true(real(o, "weight_bytes_per_token") ==
                4 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 2 * 32 + 3 * 32 * 48 + 100 * 32));
    json_decref(o);
    tg_config_destroy(&cfg);
    options.cfg = NULL;
    options.model_dir = "no-such-folder";
    assert_error(tg_bench_generate(&options, &o), TENG_IO, "no-such-folder");
}

static int enter(void **state)
{
    (void)state;
    return scratch_enter("test_bench");
}

static int leave(void **state)
{
    (void)state;
    return scratch_leave();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat),         cmocka_unit_test(test_config_rule),
        cmocka_unit_test(test_step_figures), cmocka_unit_test(test_step_settings),
        cmocka_unit_test(test_step_refuses), cmocka_unit_test(test_steps_in_turn),
        cmocka_unit_test(test_peak),         cmocka_unit_test(test_op),
        cmocka_unit_test(test_tokenizer),    cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_generate),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
