/*
 * The loop of a run, measured: a run folder, a file of drawn tokens, the loader with its thread, the data
 * sink with its own, metrics.jsonl. What a step alone (bench_step.c) does not have, so that levers of the
 * loop can be pulled. No console stands behind it: its lines cost what the terminal costs.
 */
#include "bench/bench.h"

#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/token_file.h"
#include "train/run_impl.h"

struct tg_bench_loop {
    tg_run *run;
};

#define PIECE 4096
#define LEAST_TOKENS ((int64_t)1 << 18)
#define BATCHES 64 /* in an epoch, at least */

static teng_status write_tokens(const char *path, const tg_config *cfg, int64_t vocab_size)
{
    const int64_t batches = BATCHES * cfg->train.batch_size * (cfg->train.seq_len + 1);
    const int64_t n = batches > LEAST_TOKENS ? batches : LEAST_TOKENS;
    const tg_token_info info = {.format = TG_TOKENS_TENG, .vocab_size = (uint32_t)vocab_size, .eos = -1};
    const uint64_t key = tg_rng_key((uint64_t)cfg->context.seed, "bench");
    uint32_t tokens[PIECE];
    tg_token_writer *w = NULL;
    TG_TRY(tg_token_writer_open(path, &info, &w));
    teng_status status = TENG_OK;
    for (int64_t at = 0; at < n && status == TENG_OK; at += PIECE) {
        for (int64_t i = 0; i < PIECE; i++)
            tokens[i] = (uint32_t)tg_rng_below(key, (uint64_t)(at + i), (uint64_t)vocab_size);
        status = tg_token_writer_add(w, tokens, PIECE);
    }
    if (status == TENG_OK) status = tg_token_writer_end(w, 0);
    if (status == TENG_OK) return tg_token_writer_commit(&w);
    tg_token_writer_abort(&w);
    return status;
}

/* Tokens that the configuration's model knows, in a file. */
static teng_status draw(const tg_config *cfg, const char *path)
{
    tg_tokenizer *tokenizer = NULL;
    teng_cell *lm = NULL;
    tg_lm_info info;
    teng_status status = TENG_OK;
    if (!cfg->model.vocab_size.set && !cfg->model.from) status = tg_run_open_tokenizer(cfg, &tokenizer);
    if (status == TENG_OK) status = tg_run_open_model(cfg, tokenizer, &lm, &info);
    if (status == TENG_OK) status = write_tokens(path, cfg, info.vocab_size);
    teng_cell_destroy(&lm);
    tg_tokenizer_destroy(&tokenizer);
    return status;
}

/* A path as YAML in a list of one; quotes in it are doubled. */
static teng_status set_path(tg_config *cfg, const char *key, const char *path, bool list)
{
    tg_strbuf text = {0};
    tg_strbuf_puts(&text, list ? "['" : "'");
    for (const char *c = path; *c; c++)
        tg_strbuf_puts(&text, *c == '\'' ? "''" : (const char[]){*c, 0});
    tg_strbuf_puts(&text, list ? "']" : "'");
    const teng_status status = text.failed ? TENG_MEMORY : tg_config_set(cfg, key, tg_strbuf_str(&text));
    tg_strbuf_free(&text);
    return status;
}

static teng_status prepare(tg_config *cfg, const char *dir)
{
    char *tokens = tg_path_join(dir, "drawn.tok"), *run = tg_path_join(dir, "run");
    teng_status status = tokens && run ? draw(cfg, tokens) : TENG_MEMORY;
    if (status == TENG_OK) status = set_path(cfg, "data.files", tokens, true);
    if (status == TENG_OK) status = set_path(cfg, "run.dir", run, false);
    tg_free(tokens);
    tg_free(run);
    TG_TRY(status);
    TG_TRY(tg_config_set(cfg, "data.val_files", "[]"));
    TG_TRY(tg_config_set(cfg, "data.val_fraction", "0"));
    return tg_config_set(cfg, "train.steps", "1000000000"); /* the schedule's; nobody waits for it */
}

teng_status tg_bench_loop_open(tg_config *cfg, const char *dir, tg_bench_loop **out)
{
    TG_TRY(tg_mkdirs(dir));
    TG_TRY(prepare(cfg, dir));
    tg_bench_loop *loop = tg_calloc(1, sizeof *loop);
    if (!loop) return TENG_MEMORY;
    const teng_status status = tg_run_create(cfg, &loop->run);
    if (status != TENG_OK) {
        tg_bench_loop_close(&loop);
        return status;
    }
    *out = loop;
    return TENG_OK;
}

void tg_bench_loop_close(tg_bench_loop **loop)
{
    if (!*loop) return;
    tg_run_close(&(*loop)->run);
    tg_free(*loop);
    *loop = NULL;
}

/* Nobody looks. A note says that metrics could not be written, or that a step was dropped. */
static void hear(void *user, const tg_run_event *event)
{
    (void)user;
    (void)event;
}

teng_status tg_bench_loop_run(tg_bench_loop *loop, int64_t n)
{
    if (tg_bench_stopped()) return TENG_INTERRUPTED;
    return tg_run_more_steps(loop->run, n, hear, NULL);
}
