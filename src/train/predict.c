/*
 * Logits of the token that follows a text. With caches each token runs through the model once: a prompt in
 * chunks, then token by token, keys and values of the earlier ones kept in the store. Plans exist for a few
 * chunk lengths, whatever the text. Without caches, and where a text outgrows the model's positions, the
 * model runs on the last of them anew for each token, padded on the right to one of a few lengths: attention
 * is causal, so padding changes nothing.
 */
#include "base/fail.h"
#include "tensor/desc.h"
#include "train/lm_impl.h"

#define SHORTEST 32 /* tokens of a window or chunk that is not a single token */
#define CHUNK 256   /* most tokens of a prompt that run at once: memory for activations stays small */
#define ROOM 64     /* smallest caches */

/* The smallest power of two from `least` on that is at least n, but not above `most`. */
static int64_t rounded(int64_t n, int64_t least, int64_t most)
{
    while (least < n && least < most)
        least *= 2;
    return least < most ? least : most;
}

/* Caches for so many tokens. Larger ones than before need another step: plans are made for a size. */
static teng_status make_room(tg_lm *lm, int64_t tokens)
{
    const int64_t room = rounded(tokens, ROOM, lm->info.max_positions);
    if (lm->writer && room <= lm->room) return TENG_OK;
    TG_TRY(tg_lm_set_room(lm->cell, room));
    tg_step_destroy(&lm->writer);
    TG_TRY(tg_step_create(lm->cell, lm->core->store, &lm->core->options, &lm->writer));
    lm->room = room;
    return TENG_OK;
}

teng_status tg_predictor_open(tg_predictor *p, tg_lm *lm, bool cached, int64_t tokens)
{
    const int64_t window = lm->info.max_positions > CHUNK ? lm->info.max_positions : CHUNK;
    *p = (tg_predictor){.lm = lm, .cached = cached};
    p->tokens = tg_calloc((size_t)window, sizeof *p->tokens);
    p->positions = tg_calloc(CHUNK, sizeof *p->positions);
    p->logits = tg_calloc((size_t)lm->info.vocab_size, sizeof *p->logits);
    teng_status status = p->tokens && p->positions && p->logits ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK && cached) status = make_room(lm, tokens);
    if (status != TENG_OK) tg_predictor_close(p);
    return status;
}

void tg_predictor_close(tg_predictor *p)
{
    tg_free(p->tokens);
    tg_free(p->positions);
    tg_free(p->logits);
    *p = (tg_predictor){0};
}

/* One forward pass over a window of `len` tokens, the first n of which are ids; logits of the last. */
static teng_status run(tg_predictor *p, tg_step *step, const uint32_t *ids, int64_t n, int64_t len,
                       bool positions)
{
    const int64_t dims[2] = {1, len}, one = 1;
    for (int64_t i = 0; i < len; i++)
        p->tokens[i] = i < n ? (int32_t)ids[i] : 0;
    const int32_t row = (int32_t)(n - 1);
    /* A forward pass leaves out the last operand, which in training is the labels. */
    const teng_desc nothing = tg_desc_make(TENG_I32, 0, NULL);
    const teng_desc desc[4] = {tg_desc_make(TENG_I32, 2, dims), tg_desc_make(TENG_I32, 1, &one),
                               positions ? tg_desc_make(TENG_I32, 1, &len) : nothing, nothing};
    const tg_step_feed feed = {.in_desc = desc,
                               .in = (const void *const[]){p->tokens, &row, p->positions, NULL},
                               .in_name = (const char *const[]){"tokens", "rows", "positions", "labels"},
                               .n_in = positions ? 4 : 3,
                               .weight = 1.0};
    return tg_step_forward(step, &feed, p->logits, sizeof(float) * (size_t)p->lm->info.vocab_size);
}

static teng_status run_cached(tg_predictor *p, const uint32_t *ids, int64_t n)
{
    while (p->kept < n) {
        const int64_t left = n - p->kept,
                      most = p->lm->room - p->kept < CHUNK ? p->lm->room - p->kept : CHUNK;
        const int64_t len = left == 1 ? 1 : rounded(left, SHORTEST, most), now = left < len ? left : len;
        for (int64_t i = 0; i < len; i++)
            p->positions[i] = (int32_t)(p->kept + i);
        TG_TRY(run(p, p->lm->writer, ids + p->kept, now, len, true));
        p->kept += now; /* what padding left in the caches is overwritten before anything sees it */
    }
    return TENG_OK;
}

teng_status tg_predictor_next(tg_predictor *p, const uint32_t *ids, int64_t n)
{
    const int64_t most = p->lm->info.max_positions;
    if (p->cached && n <= p->lm->room) return run_cached(p, ids, n);
    const int64_t skip = n > most ? n - most : 0;
    return run(p, p->lm->core->step, ids + skip, n - skip, rounded(n - skip, SHORTEST, most), false);
}
