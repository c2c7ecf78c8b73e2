/*
 * attention on the CPU (Dao 2023, algorithm 1): each piece of work is a block of queries of one head, which
 * goes over the blocks of keys it sees and carries the maximum, the sum of exponentials and the weighted sum
 * of values of each row. A cache is read by the same pieces, for a single query by attention_row.h. Pieces
 * share nothing, so the number of threads changes no bit. Buffers of the threads lie in the workspace.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "op/attention/attention_row.h"
#include "op/cpu_kernel.h"

#include <omp.h>

#define PANELS 2   /* of a block of queries: they share each block of keys while it is in cache */
#define KEYS 64    /* of a block */
#define SLACK 8.0f /* of pairs: weights up to 2^8 are as good, and sums need no scaling by a new maximum */
#define LOWEST (-1e30f) /* below every score; finite, so that its difference with itself is 0 */

typedef struct panel {
    float *queries;            /* [dp][TG_ATT_PANEL], scaled */
    float *sums;               /* [TG_ATT_PANEL][dp], Σ p · v */
    float *max, *total, *fall; /* [TG_ATT_PANEL]: of the scores; Σ p; 2^(old maximum - new maximum) */
} panel;
typedef struct scratch {
    panel panels[PANELS];
    float *keys, *values, *scores; /* [KEYS][dp], [KEYS][dp], [KEYS][TG_ATT_PANEL] */
} scratch;

static int64_t panel_floats(int64_t dp)
{
    return TG_ATT_PANEL * (2 * dp + 3);
}
static int64_t scratch_floats(int64_t dp)
{
    return PANELS * panel_floats(dp) + KEYS * (2 * dp + TG_ATT_PANEL);
}

static scratch scratch_at(float *f, int64_t dp)
{
    scratch s;
    for (int p = 0; p < PANELS; p++, f += panel_floats(dp)) {
        float *vectors = f + 2 * TG_ATT_PANEL * dp;
        s.panels[p] =
            (panel){f, f + TG_ATT_PANEL * dp, vectors, vectors + TG_ATT_PANEL, vectors + 2 * TG_ATT_PANEL};
    }
    s.keys = f;
    s.values = f + KEYS * dp;
    s.scores = f + 2 * KEYS * dp;
    return s;
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    int *threads = tg_alloc(sizeof *threads);
    if (!threads) return TENG_MEMORY;
    *threads = omp_get_max_threads();
    const int64_t dp = tg_att_width(call->in[0].dims[3]);
    *out = (teng_prepared){threads, (size_t)(*threads * scratch_floats(dp)) * sizeof(float)};
    return TENG_OK;
}

/* One register of a panel's columns on its way through the keys. */
typedef struct column {
    const tg_att_tile *t;
    float *scores;
    int64_t at;
    tg_vf max[2], total;
} column;

/* The maxima of even and of odd keys begin … end - 1, so that one need not wait for the other; full: all
 * lanes see them all. */
TG_INLINE void find_max(bool pairs, bool full, column *c, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j += 2) {
        TG_UNROLL(2)
        for (int r = 0; r < 2; r++) {
            tg_vf x = tg_v_load(TENG_F32, c->scores, (j + r) * TG_ATT_PANEL + c->at);
            if (pairs) x *= c->t->z->scale * TG_ATT_LOG2E;
            if (!full) x = tg_v_select(tg_att_seen(c->t, j + r, c->at), x, tg_v_set(-INFINITY));
            c->max[r] = tg_v_max(c->max[r], x);
        }
    }
}

/* Scores become exponentials, of pairs in pair rows. */
TG_INLINE void weigh(bool pairs, bool full, column *c, int64_t begin, int64_t end)
{
    for (int64_t j = begin; j < end; j += 2) {
        tg_vf e[2];
        TG_UNROLL(2)
        for (int r = 0; r < 2; r++) {
            const tg_vf x = tg_v_load(TENG_F32, c->scores, (j + r) * TG_ATT_PANEL + c->at);
            e[r] = tg_att_weight(pairs, x, c->t->z->scale * TG_ATT_LOG2E, c->max[0]);
            if (!full) e[r] = (tg_vf)((tg_vi)e[r] & tg_att_seen(c->t, j + r, c->at));
            c->total += e[r];
        }
        tg_att_store_keys(pairs, c->scores, j, c->at, e[0], e[1]);
    }
}

/* The panel's maxima and totals go on. What no query of a register sees stays as it is. */
TG_INLINE void soften(bool pairs, const tg_att_tile *t, float *scores, const panel *p)
{
    for (int64_t at = 0; at < TG_ATT_PANEL; at += TG_LANES) {
        const tg_att_keys k = tg_att_register_keys(t, at);
        const tg_vf before = tg_v_load(TENG_F32, p->max, at);
        column c = {t, scores, at, {before, before}, {0}};
        find_max(pairs, false, &c, k.lo, k.from);
        find_max(pairs, true, &c, k.from, k.to);
        find_max(pairs, false, &c, k.to, k.hi);
        tg_vf max = tg_v_max(c.max[0], c.max[1]);
        if (pairs) max = tg_v_select(max > before + SLACK, max, before);
        c.max[0] = max;
        weigh(pairs, false, &c, k.lo, k.from);
        weigh(pairs, true, &c, k.from, k.to);
        weigh(pairs, false, &c, k.to, k.hi);
        const tg_vf fall = tg_att_exp2(before - max);
        tg_v_store(TENG_F32, p->fall, at, fall);
        tg_v_store(TENG_F32, p->max, at, max);
        tg_v_store(TENG_F32, p->total, at, tg_v_fma(tg_v_load(TENG_F32, p->total, at), fall, c.total));
    }
}

/* One block of keys for one panel of `queries` queries. */
TG_INLINE void block(bool pairs, const tg_att_tile *t, int64_t queries, int64_t dp, const scratch *s,
                     panel *p)
{
    const int64_t padded = tg_blocks(t->keys, TG_ATT_GROUP) * TG_ATT_GROUP;
    tg_att_scores(pairs, t, padded, t->z->width, s->keys, p->queries, s->scores);
    soften(pairs, t, s->scores, p);
    for (int64_t i = 0; i < queries; i++)
        if (p->fall[i] != 1.0f)
            for (int64_t c = 0; c < dp; c += TG_LANES)
                tg_v_store(TENG_F32, p->sums, i * dp + c,
                           tg_v_load(TENG_F32, p->sums, i * dp + c) * p->fall[i]);
    tg_att_gather(pairs, t, queries, s->scores, s->values, dp, p->sums);
}

TG_INLINE void begin_panel(bool pairs, const teng_kernel_args *args, const tg_attention_sizes *z, int64_t at,
                           int64_t queries, int64_t dp, panel *p)
{
    tg_att_load_rows(pairs, args->call->in[0].dtype, p->sums, TG_ATT_PANEL, args->in[0], at,
                     z->heads * z->width, queries, z->width);
    tg_att_transpose(p->queries, p->sums, tg_att_width(tg_att_words(pairs, z->width)),
                     pairs ? 1.0f : z->scale * TG_ATT_LOG2E);
    for (int64_t i = 0; i < TG_ATT_PANEL * dp; i += TG_LANES)
        tg_v_store(TENG_F32, p->sums, i, tg_v_set(0.0f));
    for (int64_t i = 0; i < TG_ATT_PANEL; i++) {
        p->max[i] = LOWEST;
        p->total[i] = 0.0f;
    }
}

static void end_panel(const teng_kernel_args *args, const tg_attention_sizes *z, int64_t at, float *lse,
                      int64_t queries, int64_t dp, panel *p)
{
    for (int64_t i = 0; i < queries; i++) {
        const bool blind = p->total[i] == 0.0f;
        if (lse) lse[i] = blind ? 0.0f : p->max[i] / TG_ATT_LOG2E + logf(p->total[i]);
        p->fall[i] = blind ? 0.0f : 1.0f / p->total[i];
    }
    tg_att_store(args->call->out[0].dtype, args->out[0], at, z->heads * z->width, p->sums, dp, queries,
                 z->width, p->fall);
}

/* Queries from q0 of head h, batch b. */
TG_INLINE void piece_as(bool pairs, const teng_kernel_args *args, const tg_attention_sizes *z, int64_t b,
                        int64_t h, int64_t q0, float *memory)
{
    const teng_dtype dtype = args->call->in[0].dtype;
    const int64_t dp = tg_att_width(z->width), q_step = z->heads * z->width, k_step = z->groups * z->width;
    const int64_t k_base = b * z->room * k_step + h / (z->heads / z->groups) * z->width;
    const int64_t q_end = q0 + PANELS * TG_ATT_PANEL < z->rows ? q0 + PANELS * TG_ATT_PANEL : z->rows;
    scratch s = scratch_at(memory, dp);
    int64_t q_at[PANELS], queries[PANELS];
    int panels = 0;
    for (int64_t q = q0; q < q_end; q += TG_ATT_PANEL, panels++) {
        q_at[panels] = (b * z->rows + q) * q_step + h * z->width;
        queries[panels] = q_end - q < TG_ATT_PANEL ? q_end - q : TG_ATT_PANEL;
        begin_panel(pairs, args, z, q_at[panels], queries[panels], dp, &s.panels[panels]);
    }
    const int64_t keys_end = tg_attention_last(z, q_end - 1) + 1;
    for (int64_t k0 = tg_attention_first(z, q0) / KEYS * KEYS; k0 < keys_end; k0 += KEYS) {
        const int64_t keys = z->keys - k0 < KEYS ? z->keys - k0 : KEYS;
        const int64_t padded = tg_blocks(keys, TG_ATT_GROUP) * TG_ATT_GROUP;
        tg_att_load_rows(pairs, dtype, s.keys, padded, args->in[1], k_base + k0 * k_step, k_step, keys,
                         z->width);
        tg_att_load_pairs(pairs, dtype, s.values, padded, args->in[2], k_base + k0 * k_step, k_step, keys,
                          z->width);
        for (int p = 0; p < panels; p++) {
            const tg_att_tile t = {z, q0 + p * TG_ATT_PANEL, k0, keys};
            const int64_t last = t.q0 + queries[p] - 1;
            if (tg_attention_last(z, last) >= k0 && tg_attention_first(z, t.q0) < k0 + keys)
                block(pairs, &t, queries[p], dp, &s, &s.panels[p]);
        }
    }
    float *lse = args->call->n_out > 1 ? (float *)args->out[1] + (b * z->heads + h) * z->rows + q0 : NULL;
    for (int p = 0; p < panels; p++)
        end_panel(args, z, q_at[p], lse ? lse + p * TG_ATT_PANEL : NULL, queries[p], dp, &s.panels[p]);
}

static void piece(const teng_kernel_args *args, const tg_attention_sizes *z, int64_t b, int64_t h, int64_t q0,
                  float *memory)
{
    if (tg_att_pairs(args->call->in[0].dtype))
        piece_as(true, args, z, b, h, q0, memory);
    else
        piece_as(false, args, z, b, h, q0, memory);
}

static teng_status run_pieces(const teng_kernel_args *args, const tg_attention_sizes *sizes)
{
    const tg_attention_sizes z = *sizes;
    const int64_t blocks = tg_blocks(z.rows, PANELS * TG_ATT_PANEL), pieces = z.batch * z.heads * blocks;
    const int64_t floats = scratch_floats(tg_att_width(z.width));
    const int threads = *(const int *)args->state;
    const bool many = tg_att_worth_threads(&z);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (many && pieces > 1)
    for (int64_t i = 0; i < pieces; i++) { /* one head after the other: its keys and values stay in cache */
        const int64_t head = i / blocks, q0 = (blocks - 1 - i % blocks) * PANELS * TG_ATT_PANEL;
        piece(args, &z, head / z.heads, head % z.heads, q0,
              (float *)args->workspace + omp_get_thread_num() * floats);
    }
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    const tg_attention_sizes z = tg_attention_sizes_of(args->call);
    return run_pieces(args, &z);
}

/* ---- on a cache ---- */
static teng_status run_cached(const teng_kernel_args *args)
{
    const int64_t rows = args->call->in[0].dims[1];
    if (rows == 0) return TENG_OK;
    int64_t first = 0;
    TG_TRY(tg_att_first_position(args, &first));
    const tg_attention_sizes z = tg_cached_attention_sizes(args->call, first);
    return run_pieces(args, &z);
}

TG_KERNELS(tg_cached_attention_kernels) = {
    {"one row", tg_att_accept_row, tg_att_prepare_row, tg_att_run_row, NULL},
    {"tiles", NULL, prepare, run_cached, tg_free},
    {0}};
TG_KERNELS(tg_attention_kernels) = {{"tiles", NULL, prepare, run, tg_free}, {0}};
