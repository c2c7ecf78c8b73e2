/*
 * Language models for use: trained a little through the public interface, saved as a folder, opened, made to
 * write and measured. Also token datasets, weights without the backbone's name, and what opening refuses.
 */
#include "teng/teng.h"

#include "base/fail.h"
#include "base/file.h"
#include "ckpt/hf_folder.h"
#include "data/tokenizer.h"
#include "tensor/desc.h"
#include "train/trainer.h"

#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 260, POSITIONS = 24 }; /* the byte tokenizer has 257 tokens */
static const char config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 260, \"n_embd\": 32, \"n_layer\": 1, \"n_head\": 2, "
    "\"n_positions\": 24, \"attn_pdrop\": 0, \"embd_pdrop\": 0, \"resid_pdrop\": 0}";

static char folder[] = "lm_use_XXXXXX";

static char *in_folder(const char *name)
{
    static char paths[16][200];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void ok(teng_status status)
{
    if (status != TENG_OK) fail_msg("%s: %s", teng_status_name(status), teng_error());
}

static void refused(teng_status got, teng_status want, const char *words)
{
    if (!strstr(teng_error(), words)) fail_msg("\"%s\" is not in: %s", words, teng_error());
    assert_int_equal(got, want);
    teng_error_clear();
}

static teng_dataset *open_text(const char *path, teng_part part, bool once, int64_t len)
{
    teng_token_options o = teng_token_options_default();
    o.files = &path;
    o.n_files = 1;
    o.vocab_size = VOCAB;
    o.seq_len = len;
    o.batch_size = 4;
    o.separator = "\n";
    o.val_fraction = part == TENG_PART_ALL ? 0 : 0.25;
    o.part = part;
    o.once = once;
    return teng_dataset_tokens(&o);
}

/* Every document is the same few characters of one to four bytes: soon the model knows what comes. */
static const char line[] = "aé€𝄞b\n";

static int make_model(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    tg_strbuf text = {0};
    for (int i = 0; i < 64; i++)
        tg_strbuf_puts(&text, line);
    ok(tg_file_write(in_folder("text.txt"), text.data, text.len));
    tg_strbuf_free(&text);
    teng_cell *lm = teng_lm_create(config);
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    o.schedule.lr = 0.01;
    teng_model *model = teng_model_create(lm, &o);
    /* 13 and the 12 tokens of a document have no common factor: windows begin anywhere in one. */
    teng_dataset *data = open_text(in_folder("text.txt"), TENG_PART_ALL, false, 13);
    if (!model || !data) fail_msg("%s", teng_error());
    assert_int_equal(teng_dataset_vocab_size(data), 257);
    ok(teng_model_train(model, data, 100, NULL, 0));
    ok(teng_model_save(model, in_folder("model"), data));
    ok(teng_model_save(model, in_folder("bare.safetensors"), NULL));
    teng_model_destroy(&model);
    teng_dataset_destroy(&data);
    teng_cell_destroy(&lm);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return tg_remove_tree(folder) == TENG_OK ? 0 : 1;
}

static tg_lm *open_lm(const char *dir)
{
    tg_device *dev;
    tg_lm *lm = NULL;
    ok(tg_device_open("cpu", 1, &dev));
    const teng_status status = tg_lm_open(dir, dev, &lm);
    tg_device_close(&dev);
    ok(status);
    return lm;
}

/* ---- writing ---- */
typedef struct written {
    tg_strbuf text;
    int pieces, most; /* most: pieces after which to stop, 0: never */
} written;

/* Whole characters only, but for a piece that ends the text. */
static bool take(void *user, const char *bytes, size_t n)
{
    written *w = user;
    assert_true(n > 0);
    for (size_t i = 0; i < n;) {
        const unsigned char c = (unsigned char)bytes[i];
        const size_t len = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        assert_true(c < 0x80 || c >= 0xC0);
        assert_true(i + len <= n);
        i += len;
    }
    tg_strbuf_add(&w->text, bytes, n);
    return ++w->pieces != w->most;
}

static const tg_sampling greedy = {.top_p = 1, .max_tokens = 40};

static void check_text(tg_lm *lm, const char *prompt, const tg_sampling *s, const char *want)
{
    written w = {0};
    ok(tg_lm_generate(lm, prompt, strlen(prompt), s, take, &w));
    assert_string_equal(tg_strbuf_str(&w.text), want);
    tg_strbuf_free(&w.text);
}

static void writes_until_the_end_token(void **state)
{
    (void)state;
    tg_lm *lm = open_lm(in_folder("model"));
    check_text(lm, "a", &greedy, "é€𝄞b");
    check_text(lm, "aé€", &greedy, "𝄞b");
    check_text(lm, "", &greedy, "aé€𝄞b"); /* begins behind an end token, as documents do */
    check_text(lm, "<|endoftext|>a", &greedy, "é€𝄞b");
    check_text(lm, "b<|endoftext|>", &greedy, "aé€𝄞b"); /* an end token of the prompt's own stays */
    const tg_sampling short_one = {.top_p = 1, .max_tokens = 2}, none = {.top_p = 1};
    check_text(lm, "a", &short_one, "é");
    check_text(lm, "a", &none, "");
    written w = {.most = 1};
    ok(tg_lm_generate(lm, "a", 1, &greedy, take, &w));
    assert_string_equal(tg_strbuf_str(&w.text), "é"); /* the sink stopped it */
    tg_strbuf_free(&w.text);
    tg_lm_close(&lm);
}

static bool take_any(void *user, const char *bytes, size_t n)
{
    tg_strbuf_add(user, bytes, n);
    return true;
}

static void write_any(tg_lm *lm, const tg_sampling *s, tg_strbuf *out)
{
    tg_strbuf_clear(out);
    ok(tg_lm_generate(lm, "a", 1, s, take_any, out));
}

static void cut_characters_come_out_at_the_end(void **state)
{
    (void)state;
    tg_lm *lm = open_lm(in_folder("model"));
    tg_strbuf out = {0};
    const tg_sampling one = {.top_p = 1, .max_tokens = 1};
    write_any(lm, &one, &out);
    assert_string_equal(tg_strbuf_str(&out), "\xC3"); /* the first byte of é */
    tg_strbuf_free(&out);
    tg_lm_close(&lm);
}

static void sampling_rules(void **state)
{
    (void)state;
    tg_lm *lm = open_lm(in_folder("model"));
    tg_strbuf a = {0}, b = {0}, best = {0};
    write_any(lm, &greedy, &best);
    tg_sampling s = {.temperature = 8, .top_p = 1, .seed = 3, .max_tokens = 60}; /* longer than the window */
    write_any(lm, &s, &a);
    write_any(lm, &s, &b);
    assert_string_equal(tg_strbuf_str(&a), tg_strbuf_str(&b));
    s.seed = 4;
    write_any(lm, &s, &b);
    assert_string_not_equal(tg_strbuf_str(&a), tg_strbuf_str(&b));
    assert_true(b.len >= 20);
    const tg_sampling same_as_greedy[] = {
        {.temperature = 8, .top_p = 1, .top_k = 1, .max_tokens = 40},
        {.temperature = 8, .top_p = 1e-9, .max_tokens = 40},
        {.temperature = 1e-9, .top_p = 1, .max_tokens = 40},
        {.temperature = 8, .top_p = 1e-9, .top_k = 5, .max_tokens = 40},
    };
    for (size_t i = 0; i < sizeof same_as_greedy / sizeof *same_as_greedy; i++) {
        write_any(lm, &same_as_greedy[i], &b);
        assert_string_equal(tg_strbuf_str(&b), tg_strbuf_str(&best));
    }
    static const struct {
        tg_sampling s;
        const char *words;
    } bad[] = {{{.temperature = -1, .top_p = 1}, "temperature -1"},
               {{.top_p = 0}, "top-p 0"},
               {{.top_p = 1.5}, "top-p 1.5"},
               {{.top_p = 1, .top_k = -2}, "top-k -2"},
               {{.top_p = 1, .max_tokens = -3}, "-3 tokens"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(tg_lm_generate(lm, "a", 1, &bad[i].s, take_any, &b), TENG_INVALID, bad[i].words);
    tg_strbuf_free(&a);
    tg_strbuf_free(&b);
    tg_strbuf_free(&best);
    tg_lm_close(&lm);
}

/* Draws follow the model's probabilities: the first of many texts, against softmax of the logits at one
 * place. */
static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    enum { DRAWS = 600 };
    teng_cell *cell = teng_lm_create(config);
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    teng_model *model = teng_model_create(cell, &o);
    ok(teng_model_load(model, in_folder("model")));
    int32_t token = 'a';
    const void *data = &token;
    const teng_input in = {"tokens", {TENG_I32, 2, {1, 1}}};
    float logits[VOCAB];
    ok(teng_model_forward(model, &in, &data, 1, logits, VOCAB));
    const double temperature = 6;
    double sum = 0, p_low = 0;
    for (int i = 0; i < 257; i++) {
        const double p = exp((double)logits[i] / temperature);
        sum += p;
        if (i < 128) p_low += p;
    }
    int low = 0, total = 0;
    tg_lm *lm = open_lm(in_folder("model"));
    tg_strbuf out = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        const tg_sampling s = {.temperature = temperature, .top_p = 1, .seed = seed, .max_tokens = 1};
        write_any(lm, &s, &out);
        low += out.len && (unsigned char)out.data[0] < 128;
        total++;
    }
    const double p = p_low / sum, deviation = sqrt(p * (1 - p) / total);
    if (fabs((double)low / total - p) > 4 * deviation)
        fail_msg("%d of %d draws are ASCII, the probability is %g", low, total, p);
    tg_strbuf_free(&out);
    tg_lm_close(&lm);
    teng_model_destroy(&model);
    teng_cell_destroy(&cell);
}

/* Logits of chosen positions are those that the whole model gives there. */
static void logits_of_rows(void **state)
{
    (void)state;
    enum { B = 2, T = 5, N = 3 };
    static float all[B * T * VOCAB], some[N * VOCAB];
    int32_t tokens[B * T];
    const int32_t rows[N] = {9, 0, 4};
    for (int i = 0; i < B * T; i++)
        tokens[i] = (int32_t)'a' + i % 3;
    teng_cell *cell = teng_lm_create(config);
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    teng_model *model = teng_model_create(cell, &o);
    ok(teng_model_load(model, in_folder("bare.safetensors")));
    const teng_input in[] = {{"tokens", {TENG_I32, 2, {B, T}}}, {"rows", {TENG_I32, 1, {N}}}};
    const void *data[] = {tokens, rows};
    ok(teng_model_forward(model, in, data, 1, all, B * T * VOCAB));
    ok(teng_model_forward(model, in, data, 2, some, N * VOCAB));
    for (int i = 0; i < N; i++)
        for (int v = 0; v < VOCAB; v++)
            assert_true(fabsf(some[i * VOCAB + v] - all[rows[i] * VOCAB + v]) < 1e-4f);
    const int32_t beyond = B * T;
    data[1] = &beyond;
    const teng_input one[] = {in[0], {"rows", {TENG_I32, 1, {1}}}};
    refused(teng_model_forward(model, one, data, 2, some, VOCAB), TENG_INVALID, "10");
    teng_model_destroy(&model);
    teng_cell_destroy(&cell);
}

/* ---- measuring ---- */
static double log_prob(const float *logits, int32_t label)
{
    double sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += exp((double)logits[v]);
    return (double)logits[label] - log(sum);
}

/* By definition: windows of `len` tokens and the one behind, each by itself. */
static void evaluation_by_definition(void **state)
{
    (void)state;
    enum { LEN = 10 };
    static const char text[] = "aé€𝄞b, once more: b𝄞€éa"; /* one document: no separator is asked for */
    ok(tg_file_write(in_folder("eval.txt"), text, sizeof text - 1));
    int32_t tokens[sizeof text];
    const int64_t n = (int64_t)sizeof text; /* bytes and the end token */
    for (int64_t i = 0; i < n - 1; i++)
        tokens[i] = (unsigned char)text[i];
    tokens[n - 1] = 256;
    teng_cell *cell = teng_lm_create(config);
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    teng_model *model = teng_model_create(cell, &o);
    ok(teng_model_load(model, in_folder("model")));
    double nats = 0;
    static float logits[LEN * VOCAB];
    for (int64_t begin = 0; begin < n - 1; begin += LEN) {
        const int64_t len = n - 1 - begin < LEN ? n - 1 - begin : LEN;
        const teng_input in = {"tokens", {TENG_I32, 2, {1, len}}};
        const void *data = tokens + begin;
        ok(teng_model_forward(model, &in, &data, 1, logits, len * VOCAB));
        for (int64_t t = 0; t < len; t++)
            nats -= log_prob(logits + t * VOCAB, tokens[begin + t + 1]);
    }
    tg_lm *lm = open_lm(in_folder("model"));
    const char *path = in_folder("eval.txt");
    tg_eval_result r;
    ok(tg_lm_eval(lm, &path, 1, LEN, &r));
    assert_int_equal(r.tokens, n - 1);
    assert_int_equal(r.bytes, n - 2); /* the first byte has nothing before it, the end token is no text */
    assert_int_equal(r.windows, (n - 2) / LEN + 1);
    assert_int_equal(r.window_len, LEN);
    assert_true(fabs(r.nats_per_token - nats / (double)(n - 1)) < 1e-5);
    assert_true(fabs(r.bits_per_byte - nats / (double)(n - 2) / log(2)) < 1e-5);
    assert_true(fabs(r.perplexity - exp(r.nats_per_token)) < 1e-9);
    ok(tg_lm_eval(lm, &path, 1, 0, &r));
    assert_int_equal(r.window_len, POSITIONS);
    refused(tg_lm_eval(lm, &path, 1, POSITIONS + 1, &r), TENG_INVALID, "n_positions = 24");
    path = in_folder("nothing.txt");
    refused(tg_lm_eval(lm, &path, 1, LEN, &r), TENG_IO, "nothing.txt");
    tg_lm_close(&lm);
    teng_model_destroy(&model);
    teng_cell_destroy(&cell);
}

/* The public evaluation of held-back documents; parts of a split do not overlap. */
static void datasets_of_a_split(void **state)
{
    (void)state;
    teng_cell *cell = teng_lm_create(config);
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    teng_model *model = teng_model_create(cell, &o);
    teng_eval_info train, val, all;
    struct {
        teng_part part;
        teng_eval_info *info;
    } parts[] = {{TENG_PART_TRAIN, &train}, {TENG_PART_VAL, &val}, {TENG_PART_ALL, &all}};
    for (int i = 0; i < 3; i++) {
        teng_dataset *data = open_text(in_folder("text.txt"), parts[i].part, true, 16);
        if (!data) fail_msg("%s", teng_error());
        ok(teng_model_eval(model, data, 0, parts[i].info));
        if (i == 0) refused(teng_model_train(model, data, 1, NULL, 0), TENG_INVALID, "once is set");
        teng_dataset_destroy(&data);
    }
    const int64_t document = (int64_t)sizeof line - 1; /* its bytes, the end token for the separator */
    assert_int_equal(all.tokens, 64 * document - 1);
    assert_int_equal(train.tokens + val.tokens, 64 * document - 2);
    assert_true(val.tokens > 4 * document && val.tokens < 32 * document);
    assert_true(val.bytes > 0 && val.bytes < val.tokens);
    assert_true(fabs(val.loss - log(VOCAB)) < 0.5); /* untrained */
    teng_model_destroy(&model);
    teng_cell_destroy(&cell);
    /* what is refused */
    assert_null(open_text(in_folder("absent.txt"), TENG_PART_ALL, false, 16));
    refused(teng_error_status(), TENG_IO, "absent.txt");
    const char *path = in_folder("text.txt");
    teng_token_options t = teng_token_options_default();
    t.files = &path;
    t.n_files = 1;
    t.vocab_size = 100;
    assert_null(teng_dataset_tokens(&t));
    refused(teng_error_status(), TENG_INVALID, "the tokenizer has 257 tokens and vocab_size is 100");
    t.vocab_size = 0;
    t.part = TENG_PART_VAL;
    assert_null(teng_dataset_tokens(&t));
    refused(teng_error_status(), TENG_INVALID, "nothing is held back");
}

/* ---- opening ---- */
static void write_text(const char *path, const char *text)
{
    ok(tg_file_write(path, text, strlen(text)));
}

static teng_status try_open(const char *dir)
{
    tg_device *dev;
    tg_lm *lm = NULL;
    ok(tg_device_open("cpu", 1, &dev));
    const teng_status status = tg_lm_open(dir, dev, &lm);
    tg_device_close(&dev);
    tg_lm_close(&lm);
    return status;
}

static void copy_model(const char *to)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors",
                                        "generation_config.json"};
    ok(tg_mkdirs(to));
    for (int i = 0; i < 4; i++) {
        char from[300], path[300];
        snprintf(from, sizeof from, "%s/model/%s", folder, files[i]);
        snprintf(path, sizeof path, "%s/%s", to, files[i]);
        ok(tg_file_copy(from, path));
    }
}

/* Renames and adds tensors in the copied model: `cut` bytes are dropped from names that begin with
 * "transformer."; `extra` is a copy of the embedding. */
static void rewrite(const char *dir, size_t cut, const char *extra)
{
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    tg_st_file *file;
    ok(tg_st_open(path, &file));
    tg_ckpt_item items[64];
    size_t n = 0;
    for (; n < tg_st_count(file); n++) {
        const tg_st_tensor *t = tg_st_at(file, n);
        const size_t skip = strncmp(t->name, "transformer.", 12) == 0 ? cut : 0;
        items[n] = (tg_ckpt_item){.name = t->name + skip, .desc = t->desc, .data = t->data};
    }
    const tg_st_tensor *same = tg_st_find(file, "transformer.wte.weight");
    if (extra) items[n++] = (tg_ckpt_item){.name = extra, .desc = same->desc, .data = same->data};
    snprintf(path, sizeof path, "%s/new.safetensors", dir);
    ok(tg_st_write(path, items, n, NULL, NULL));
    tg_st_close(&file);
    char place[300];
    snprintf(place, sizeof place, "%s/model.safetensors", dir);
    ok(tg_rename(path, place));
}

static void names_as_other_files_have_them(void **state)
{
    (void)state;
    char *dir = in_folder("names");
    copy_model(dir);
    rewrite(dir, 12, "h.0.attn.bias"); /* as the files of GPT-2 are: no backbone, masks beside the weights */
    tg_lm *lm = open_lm(dir);
    check_text(lm, "a", &greedy, "é€𝄞b");
    tg_lm_close(&lm);
    copy_model(dir);
    rewrite(dir, 0, "lm_head.weight"); /* tied: the head is the embedding */
    ok(try_open(dir));
    copy_model(dir);
    rewrite(dir, 0, "h.0.attn.c_attn.scale");
    refused(try_open(dir), TENG_FORMAT, "unexpected: h.0.attn.c_attn.scale");
}

static void a_run_folder_and_its_newest_checkpoint(void **state)
{
    (void)state;
    char *run = in_folder("run"), *model = in_folder("run/model");
    copy_model(model);
    tg_lm *lm = open_lm(run);
    check_text(lm, "a", &greedy, "é€𝄞b");
    tg_lm_close(&lm);
    /* An untrained checkpoint: from now on that is the run's model. */
    teng_cell *cell = teng_lm_create(config);
    teng_model_options o = teng_model_options_default();
    o.threads = 1;
    o.schedule.lr = 0;
    teng_model *untrained = teng_model_create(cell, &o);
    teng_dataset *data = open_text(in_folder("text.txt"), TENG_PART_ALL, false, 16);
    teng_callback save = teng_checkpoint(in_folder("run/checkpoints"), 0, 0);
    ok(teng_model_train(untrained, data, 1, &save, 1));
    teng_model_destroy(&untrained);
    teng_dataset_destroy(&data);
    teng_cell_destroy(&cell);
    lm = open_lm(run);
    tg_strbuf out = {0};
    write_any(lm, &greedy, &out);
    assert_string_not_equal(tg_strbuf_str(&out), "é€𝄞b");
    tg_strbuf_free(&out);
    tg_lm_close(&lm);
    ok(tg_remove_tree(in_folder("run/checkpoints")));
    ok(tg_remove_tree(in_folder("run/model/model.safetensors")));
    refused(try_open(run), TENG_STATE, "no checkpoint yet");
}

static void what_opening_refuses(void **state)
{
    (void)state;
    char *dir = in_folder("bad");
    refused(try_open(dir), TENG_IO, "is not a folder");
    ok(tg_mkdirs(dir));
    refused(try_open(dir), TENG_INVALID, "neither config.json");
    copy_model(dir);
    tg_tokenizer *big;
    static const char *const specials[] = {"<a>", "<b>", "<c>", "<d>", "<e>"};
    ok(tg_tokenizer_bytes(specials, 5, &big));
    ok(tg_tokenizer_save(big, in_folder("bad/tokenizer.json")));
    tg_tokenizer_destroy(&big);
    refused(try_open(dir), TENG_FORMAT, "has 261 tokens and the model in");
    copy_model(dir);
    write_text(in_folder("bad/config.json"),
               "{\"model_type\": \"gpt2\", \"vocab_size\": 260, \"n_embd\": 64, "
               "\"n_layer\": 1, \"n_head\": 2, \"n_positions\": 24}");
    refused(try_open(dir), TENG_FORMAT, "transformer.");
    ok(tg_remove_tree(in_folder("bad/tokenizer.json")));
    refused(try_open(dir), TENG_IO, "tokenizer.json");
}

/* A generation configuration may name several end tokens. */
static void end_tokens_of_the_folder(void **state)
{
    (void)state;
    char *dir = in_folder("ends");
    copy_model(dir);
    write_text(in_folder("ends/generation_config.json"), "{\"eos_token_id\": [98, 5, 100000]}"); /* 98: b */
    tg_lm *lm = open_lm(dir);
    check_text(lm, "a", &greedy, "é€𝄞");
    tg_lm_close(&lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_until_the_end_token),
        cmocka_unit_test(cut_characters_come_out_at_the_end),
        cmocka_unit_test(sampling_rules),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(logits_of_rows),
        cmocka_unit_test(evaluation_by_definition),
        cmocka_unit_test(datasets_of_a_split),
        cmocka_unit_test(names_as_other_files_have_them),
        cmocka_unit_test(a_run_folder_and_its_newest_checkpoint),
        cmocka_unit_test(what_opening_refuses),
        cmocka_unit_test(end_tokens_of_the_folder),
    };
    return cmocka_run_group_tests(tests, make_model, remove_folder);
}
