/* The configuration of a benchmark: a file or one of the models below, with key=value words on top. */
#include "bench/bench.h"

#include "base/fail.h"
#include "comm/comm.h"

#include <string.h>

const char *const TG_BENCH_DEFAULT =
    "model: {model_type: gpt2, n_embd: 128, n_layer: 4, n_head: 4, n_positions: 64, vocab_size: 257,\n"
    "  attn_pdrop: 0, embd_pdrop: 0, resid_pdrop: 0}\n"
    "train: {batch_size: 12, seq_len: 64}\n"
    "optimizer: {lr: 1e-3}\n";
const char *const TG_BENCH_MIDDLE =
    "model: {model_type: gpt2, n_embd: 384, n_layer: 6, n_head: 6, n_positions: 128, vocab_size: 257,\n"
    "  attn_pdrop: 0, embd_pdrop: 0, resid_pdrop: 0}\n"
    "train: {batch_size: 4, seq_len: 128}\n"
    "optimizer: {lr: 1e-3}\n";

static bool sets(const char *const *words, int n, const char *key)
{
    const size_t len = strlen(key);
    for (int i = 0; i < n; i++)
        if (strncmp(words[i], key, len) == 0 && words[i][len] == '=') return true;
    return false;
}

static teng_status load(tg_config *cfg, const char *path, const char *const *words, int n, bool *misused)
{
    const bool middle = path && strcmp(path, "middle") == 0;
    const char *text = middle ? TG_BENCH_MIDDLE : TG_BENCH_DEFAULT;
    if (path && !middle && strcmp(path, "default") != 0)
        TG_TRY(tg_config_load(cfg, path));
    else
        TG_TRY(tg_config_parse(cfg, middle ? "the middle model" : "the default model", text, strlen(text)));
    for (int i = 0; i < n; i++) {
        const teng_status status = tg_config_override(cfg, words[i]);
        *misused = status == TENG_INVALID;
        if (status != TENG_OK) return status;
    }
    if (sets(words, n, "train.batch_size") && !sets(words, n, "train.micro_batches"))
        TG_TRY(tg_config_set(cfg, "train.micro_batches", "1"));
    return tg_config_check(cfg, tg_comm_current() ? tg_comm_size(tg_comm_current()) : 1);
}

teng_status tg_bench_config(const char *path, const char *const *words, int n_words, bool *misused,
                            tg_config **out)
{
    *misused = false;
    tg_config *cfg = tg_config_create();
    const teng_status status = cfg ? load(cfg, path, words, n_words, misused) : TENG_MEMORY;
    if (status != TENG_OK) {
        tg_config_destroy(&cfg);
        return status;
    }
    *out = cfg;
    return TENG_OK;
}
