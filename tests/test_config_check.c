/* The rules that join several keys, each with its message; and every file of configs/ loads and passes them.
 */
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/config.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static tg_config *cfg;

static int setup(void **state)
{
    (void)state;
    teng_error_clear();
    cfg = tg_config_create();
    return cfg ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tg_config_destroy(&cfg);
    teng_error_clear();
    return 0;
}

/* A configuration that passes, plus these lines, is refused with a message that holds both words. */
static void refuses_at(const char *lines, int64_t ranks, const char *place, const char *words)
{
    static const char good[] = "data.files: [.]\nmodel.model_type: llama\n";
    tg_config_destroy(&cfg);
    cfg = tg_config_create();
    assert_int_equal(tg_config_parse(cfg, "good.yaml", good, sizeof good - 1), TENG_OK);
    assert_int_equal(tg_config_check(cfg, 0), TENG_OK);
    if (tg_config_parse(cfg, "f.yaml", lines, strlen(lines)) != TENG_OK) fail_msg("%s", teng_error());
    teng_status s = tg_config_check(cfg, ranks);
    if (s != TENG_INVALID || strncmp(teng_error(), place, strlen(place)) != 0 || !strstr(teng_error(), words))
        fail_msg("wanted \"%s … %s\", got %s \"%s\"", place, words, teng_status_name(s), teng_error());
    teng_error_clear();
}

static void refuses(const char *lines, const char *place, const char *words)
{
    refuses_at(lines, 0, place, words);
}

static void passes(const char *lines)
{
    tg_config_destroy(&cfg);
    cfg = tg_config_create();
    if (tg_config_parse(cfg, "f.yaml", lines, strlen(lines)) != TENG_OK || tg_config_check(cfg, 0) != TENG_OK)
        fail_msg("%s", teng_error());
}

static void test_model(void **state)
{
    (void)state;
    refuses("model.model_type: null\n", "f.yaml:1:19: ", "model.model_type is not set");
    refuses("model.n_embd: 8\n", "f.yaml:1:15: ",
            "model.n_embd is set, and model.model_type = llama has no such field; "
            "its name is model.hidden_size");
    refuses("model: {model_type: gpt2, num_hidden_layers: 8}\n",
            "f.yaml:1:46: ", "its name is model.n_layer");
    refuses("model: {hidden_size: 256,\n  num_attention_heads: 6}\n", "f.yaml:2:24: ",
            "model.num_attention_heads = 6 does not divide model.hidden_size = 256 (remainder 4); take "
            "model.hidden_size = 252");
    refuses("model: {hidden_size: 4, num_attention_heads: 6}\n",
            "f.yaml:1:46: ", "take model.hidden_size = 6");
    refuses("model: {model_type: gpt2, n_embd: 100, n_head: 3}\n",
            "f.yaml:1:48: ", "model.n_head = 3 does not divide");
    refuses("model: {num_attention_heads: 8, num_key_value_heads: 3}\n",
            "f.yaml:1:54: ", "model.num_key_value_heads = 3 does not divide model.num_attention_heads = 8");
    refuses("model: {num_attention_heads: 4, num_key_value_heads: 8}\n", "f.yaml:1:54: ", "does not divide");
    refuses("model.head_dim: 15\n",
            "f.yaml:1:17: ", "a head is 15 wide; rotary positions need an even width");
    refuses("model: {hidden_size: 36, num_attention_heads: 4}\n", "f.yaml:1:22: ", "a head is 9 wide");
    refuses("model: {num_experts: 4, num_experts_per_tok: 5}\n",
            "f.yaml:1:46: ", "5 is more than model.num_experts = 4");
    passes("data.files: [.]\nmodel: {model_type: llama, hidden_size: 256, num_attention_heads: 6, head_dim: "
           "64}\n");
    passes("data.files: [.]\nmodel: {model_type: gpt2, n_embd: 27, n_head: 3}\n");
}

static void test_rope(void **state)
{
    (void)state;
    refuses("model.rope_scaling: {factor: 2}\n", "default: ", "rope_type is not set");
    refuses("model.rope_scaling: {rope_type: linear}\n",
            "f.yaml:1:33: ", "linear needs model.rope_scaling.factor");
    refuses("model.rope_scaling: {rope_type: llama3, factor: 8}\n",
            "f.yaml:1:33: ", "llama3 needs low_freq_factor");
    refuses("model.rope_scaling: {rope_type: llama3, factor: 8, low_freq_factor: 4, high_freq_factor: 1, "
            "original_max_position_embeddings: 64}\n",
            "f.yaml:1:69: ", "low_freq_factor = 4 must be below high_freq_factor = 1");
}

static void offload(void **state)
{
    (void)state;
    refuses("memory.offload: [optimizer, none]\n", "f.yaml:1:17: ", "none stands alone");
    refuses("memory.offload: auto, parameters\n", "f.yaml:1:17: ", "auto stands alone");
    refuses("train.micro_batches: 2\nparallel.pipeline: 2\nmemory.offload: optimizer,activations\n",
            "f.yaml:3:17: ", "take memory.offload=optimizer");
    assert_int_equal(tg_config_override(cfg, "memory.offload= optimizer , parameters"), TENG_OK);
    assert_int_equal(cfg->memory.offload.count, 2);
    assert_string_equal(cfg->memory.offload.items[0], "optimizer");
    assert_string_equal(cfg->memory.offload.items[1], "parameters");
    tg_config_destroy(&cfg);
    cfg = tg_config_create();
    assert_int_equal(tg_config_override(cfg, "memory.offload=optimizer,gradients"), TENG_INVALID);
    assert_non_null(
        strstr(teng_error(), "memory.offload = \"gradients\" is not one of: none, optimizer, parameters"));
}

static void test_lengths(void **state)
{
    (void)state;
    refuses("model.max_position_embeddings: 128\ntrain.seq_len: 129\n", "f.yaml:2:16: ",
            "train.seq_len = 129 is more than the model's positions, model.max_position_embeddings = 128");
    refuses("model: {model_type: gpt2, n_positions: 64}\n", "default: ", "model.n_positions = 64");
    refuses("data.seq_buckets: [64, 32]\n", "f.yaml:1:19: ", "must rise: 32 comes after 64");
    refuses("data.seq_buckets: [64, 64]\n", "f.yaml:1:19: ", "must rise");
    refuses("data.seq_buckets: [64, 512]\n", "f.yaml:1:19: ", "holds 512, more than train.seq_len = 256");
}

static void test_batch(void **state)
{
    (void)state;
    refuses("train: {batch_size: 10, micro_batches: 4}\n", "f.yaml:1:21: ",
            "train.batch_size = 10 cannot be cut into train.micro_batches = 4 equal pieces; the next batch "
            "size that "
            "can is 12");
    refuses("train: {batch_size: 3, micro_batches: 4}\n", "f.yaml:1:21: ", "that can is 4");
    refuses(
        "train: {batch_size: 8, micro_batches: 4}\nparallel.data: 4\n", "f.yaml:1:21: ",
        "cannot be cut into 4 data ranks (parallel.data x parallel.expert) x train.micro_batches = 4 equal "
        "pieces; the next batch size that can is 16");
}

static void test_parallel(void **state)
{
    (void)state;
    refuses_at("parallel: {data: 2, tensor: 2}\n", 1, "f.yaml:1:18: ",
               "= 2 x 2 x 1 x 1 x 1 = 4 ranks, and 1 run; start so many (mpirun -n 4 teng …)");
    refuses_at("train.steps: 9\n", 4,
               "default: ", "4 ranks run, and no key says what they share: set parallel.data = 4");
    refuses_at("parallel: {mode: stand_alone, pipeline: 2}\n", 2,
               "f.yaml:1:41: ", "parallel.pipeline = 2 does not go with parallel.mode = stand_alone");
    refuses("parallel: {mode: data_parallel, tensor: 2}\n", "f.yaml:1:41: ", "set parallel.mode = semi_auto");
    refuses("parallel: {data: 1048576, tensor: 4096}\ntrain.batch_size: 1048576\n",
            "f.yaml:1:18: ", "more than 2147483647 ranks");
    refuses(
        "parallel.tensor: 3\nmodel.num_attention_heads: 8\n", "f.yaml:1:18: ",
        "parallel.tensor = 3 does not divide model.num_attention_heads = 8: every rank takes whole heads");
    refuses("parallel.tensor: 4\nmodel: {num_attention_heads: 12, num_key_value_heads: 6}\n",
            "f.yaml:1:18: ", "neither divides model.num_key_value_heads = 6 nor is a multiple");
    refuses("parallel.sequence: true\n", "f.yaml:1:20: ", "parallel.tensor = 1");
    refuses("parallel.pipeline: 4\nmodel.num_hidden_layers: 3\n",
            "f.yaml:1:20: ", "are more than the model.num_hidden_layers = 3 layers");
    refuses("parallel.chunks: 2\n", "f.yaml:1:18: ", "belongs to parallel.schedule = interleaved");
    refuses("parallel.context: 2\ntrain.seq_len: 66\n", "f.yaml:2:16: ",
            "train.seq_len = 66 cannot be cut into 4 equal pieces, two for each of parallel.context ranks");
    refuses("parallel: {tensor: 2, sequence: true}\ntrain.seq_len: 65\n", "f.yaml:2:16: ", "into 2 equal");
    refuses("parallel.context: 2\ndata.seq_buckets: [30, 256]\n", "f.yaml:2:19: ", "holds 30");
    refuses("parallel.expert: 2\n", "f.yaml:1:18: ", "model.model_type = llama has none; use parallel.data");
    refuses("parallel.expert: 3\ntrain.batch_size: 9\nmodel: {model_type: mixtral, num_local_experts: 4}\n",
            "f.yaml:1:18: ", "parallel.expert = 3 does not divide model.num_local_experts = 4");
    refuses("parallel: {data: 4, shard_group: 2}\n", "f.yaml:1:34: ", "no meaning with parallel.zero = 0");
    refuses("parallel: {data: 4, zero: 1, shard_group: 3}\n",
            "f.yaml:1:43: ", "does not divide parallel.data");
    refuses("context: {mode: pynative, products: measured}\n",
            "f.yaml:1:37: ", "needs a step that is planned");
    refuses("context: {deterministic: strict, products: measured}\n", "f.yaml:1:44: ", "by sizes alone");
    refuses("context.mode: pynative\nparallel.tensor: 2\n",
            "f.yaml:2:18: ", "set context.mode = graph; pynative knows parallel.data and parallel.zero");
    refuses("parallel.fusion: much\n", "f.yaml:1:18: ", "is none of: off, auto, a number of bytes");
    int64_t size[TG_CONFIG_AXES];
    uint64_t bytes;
    passes("data.files: [.]\nmodel.model_type: llama\nparallel: {mode: data_parallel, fusion: 2MiB}\n");
    tg_config_axes(cfg, 8, size);
    assert_int_equal(size[1] * size[2], 8);
    assert_int_equal(tg_config_check(cfg, 8), TENG_OK);
    assert_true(tg_config_fusion(cfg, &bytes) && bytes == 2 << 20);
    passes(
        "data.files: [.]\nmodel.model_type: llama\nparallel: {data: 2, zero: 3, tensor: 2, sequence: true, "
        "context: 2, pipeline: 2, fusion: off}\n");
    assert_int_equal(tg_config_check(cfg, 16), TENG_OK);
    assert_int_equal(tg_config_check(cfg, 8), TENG_INVALID);
    teng_error_clear();
    assert_true(tg_config_fusion(cfg, &bytes) && bytes == 0);
}

static void test_schedule(void **state)
{
    (void)state;
    refuses("schedule.warmup_steps: 100\ntrain.steps: 100\n", "f.yaml:1:24: ", "it must be at most 99");
    passes("data.files: [.]\nmodel.model_type: llama\ntrain.steps: 20\nschedule: {name: constant, "
           "warmup_steps: 30}\n");
    refuses("schedule: {name: wsd, warmup_steps: 10, decay_steps: 11}\ntrain.steps: 20\n",
            "f.yaml:1:54: ", "10 steps of warmup and 11 of decay are more than train.steps = 20");
    refuses("schedule: {name: wsd, warmup_fraction: 0.5, decay_fraction: 0.6}\n",
            "f.yaml:1:61: ", "more than train.steps");
    refuses("schedule: {decay_steps: 5}\n", "f.yaml:1:25: ", "belongs to schedule.name = wsd");
    refuses("optimizer.nesterov: true\n", "f.yaml:1:21: ", "belongs to optimizer.name = sgd");
    refuses("optimizer: {name: sgd, nesterov: true, momentum: 0}\n",
            "f.yaml:1:34: ", "needs optimizer.momentum above 0");
    passes("data.files: [.]\nmodel.model_type: llama\ntrain.steps: 1\nschedule.warmup_fraction: 0.9\n");
    assert_int_equal(tg_config_warmup_steps(cfg), 0);
    passes("data.files: [.]\nmodel.model_type: llama\ntrain.steps: 200\nschedule: {name: wsd, "
           "warmup_fraction: 0.1}\n");
    assert_int_equal(tg_config_warmup_steps(cfg), 20);
    assert_int_equal(tg_config_decay_steps(cfg), 40);
}

/* The files that a user is pointed to. Those that name their data find it. */
static void test_shipped_configs(void **state)
{
    (void)state;
    char **names;
    size_t count, tiny = 0;
    assert_int_equal(tg_list_dir(TG_SOURCE_DIR "/configs", &names, &count), TENG_OK);
    assert_true(count >= 5);
    for (size_t i = 0; i < count; i++) {
        char *path = tg_path_join(TG_SOURCE_DIR "/configs", names[i]);
        tg_config_destroy(&cfg);
        cfg = tg_config_create();
        teng_status s = tg_config_load(cfg, path);
        bool has_data = cfg->data.files.count > 0;
        if (strstr(names[i], "-tiny.yaml")) {
            tiny++;
            assert_true(has_data);
            assert_string_equal(cfg->data.tokenizer, "bytes");
        }
        if (s == TENG_OK && !has_data) s = tg_config_override(cfg, "data.files=.");
        if (s == TENG_OK && strcmp(names[i], "finetune.yaml") == 0)
            s = tg_config_override(cfg, "model.from=.");
        if (s == TENG_OK) s = tg_config_check(cfg, 1);
        if (s == TENG_OK) s = tg_config_check_files(cfg);
        /* the acceptance run shortens them */
        if (s == TENG_OK) s = tg_config_override(cfg, "train.steps=2");
        if (s == TENG_OK) s = tg_config_check(cfg, 1);
        if (s != TENG_OK) fail_msg("%s", teng_error());
        char folder[100];
        snprintf(folder, sizeof folder, "runs/%.*s", (int)(strlen(names[i]) - strlen(".yaml")), names[i]);
        assert_string_equal(cfg->run.dir, folder); /* or two of them would meet in one folder */
        tg_free(path);
    }
    assert_true(tiny >= 2);
    tg_names_free(names, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(offload, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rope, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parallel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_schedule, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shipped_configs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
