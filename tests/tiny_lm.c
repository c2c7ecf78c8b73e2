/* Models of three families that a CPU trains in milliseconds, and batches made from a counter. */
#include "tiny_lm.h"

#include "base/rng.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <string.h>

#define SIZES                                                                                                \
    "\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"                 \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":64"

const char *tiny_config(const char *family)
{
    if (strcmp(family, "llama") == 0)
        return "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true}";
    if (strcmp(family, "mixtral") == 0)
        return "{\"model_type\":\"mixtral\"," SIZES ",\"num_local_experts\":4,\"num_experts_per_tok\":2}";
    if (strcmp(family, "qwen3") == 0) return "{\"model_type\":\"qwen3\"," SIZES ",\"head_dim\":12}";
    return "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"n_"
           "positions\":64,"
           "\"embd_pdrop\":0.1,\"resid_pdrop\":0.2,\"attn_pdrop\":0}";
}

tg_step_options tiny_options(void)
{
    static const char *const passes[] = {"default"};
    return (tg_step_options){.optimizer = TG_CFG_OPTIMIZER_ADAMW,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .momentum = 0.9,
                             .clip_norm = 1,
                             .micro_batches = 1,
                             .passes = passes,
                             .n_passes = 1,
                             .seed = 5};
}

tg_core *tiny_core(teng_cell *cell, const tg_step_options *options)
{
    tg_core *core = NULL;
    if (tg_core_create(cell, "cpu", 0, options, NULL, &core) != TENG_OK || tg_core_init(core, 11) != TENG_OK)
        fail_msg("%s", teng_error());
    return core;
}

static int32_t token(uint64_t key, int64_t i)
{
    return (int32_t)tg_rng_below(key, (uint64_t)i, TINY_VOCAB);
}

static teng_status next(void *user, tg_source_batch *out)
{
    tiny_data *d = user;
    const int64_t seq = d->other_seq && d->next % 2 ? d->other_seq : d->seq;
    const uint64_t key = tg_rng_key(d->next++, "tiny");
    for (int64_t r = 0; r < d->rows; r++) {
        /* Row r keeps a share of its labels that falls with r; the last row none at all. */
        const int64_t kept = d->ragged ? seq * (d->rows - 1 - r) / (d->rows > 1 ? d->rows - 1 : 1) : seq;
        for (int64_t t = 0; t < seq; t++) {
            d->tokens[r * seq + t] = token(key, r * (seq + 1) + t);
            d->labels[r * seq + t] = t < kept ? token(key, r * (seq + 1) + t + 1) : TG_LABEL_IGNORE;
        }
    }
    const teng_desc desc = tg_desc_make(TENG_I32, 2, (const int64_t[]){d->rows, seq});
    *out = (tg_source_batch){.n_in = 2,
                             .desc = {desc, desc},
                             .data = {d->tokens, d->labels},
                             .name = {"tokens", "labels"},
                             .labels = 1};
    return TENG_OK;
}

static uint64_t cursor(void *user)
{
    return ((const tiny_data *)user)->next;
}

static teng_status seek(void *user, uint64_t to)
{
    ((tiny_data *)user)->next = to;
    return TENG_OK;
}

tg_source tiny_source(tiny_data *data)
{
    if (!data->rows) data->rows = TINY_ROWS;
    if (!data->seq) data->seq = TINY_SEQ;
    assert_true(data->rows * data->seq <= TINY_MAX && data->rows * data->other_seq <= TINY_MAX);
    return (tg_source){.user = data, .next = next, .cursor = cursor, .seek = seek};
}

tg_core_result tiny_step(tg_core *core, tiny_data *data, double lr)
{
    const tg_source source = tiny_source(data);
    tg_core_result r = {0};
    if (tg_core_train_step(core, &source, lr, &r) != TENG_OK) fail_msg("%s", teng_error());
    return r;
}

static void *values_of(const tg_ckpt_item *item)
{
    const size_t bytes = tg_desc_bytes(&item->desc);
    void *copy = tg_alloc(bytes + 1);
    assert_non_null(copy);
    if (item->data)
        memcpy(copy, item->data, bytes);
    else
        assert_int_equal(item->fetch(item->user, item, copy), TENG_OK);
    return copy;
}

void tiny_assert_same_state(const tg_core *a, const tg_core *b)
{
    tg_ckpt_item *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(tg_core_items(a, &x, &n), TENG_OK);
    assert_int_equal(tg_core_items(b, &y, &m), TENG_OK);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < m && strcmp(y[k].name, x[i].name) != 0)
            k++;
        if (k == m) fail_msg("only one of the two has %s", x[i].name);
        assert_true(tg_desc_equal(&x[i].desc, &y[k].desc));
        const size_t bytes = tg_desc_bytes(&x[i].desc);
        void *p = values_of(&x[i]), *q = values_of(&y[k]);
        if (memcmp(p, q, bytes) != 0) fail_msg("%s differs", x[i].name);
        tg_free(p);
        tg_free(q);
    }
    tg_free(x);
    tg_free(y);
}
