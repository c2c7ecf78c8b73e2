/*
 * attention_grad on the CPU (Dao 2023, algorithm 2). The unit of work is a tile: a panel of queries against a
 * block of keys, five products that add to dq of the panel and to dk, dv of the block. A panel takes its
 * blocks in rising order, a block its panels in rising order, head by head: that order alone fixes every bit,
 * so the schedule is free. With enough (batch, key head) pairs for the threads each pair is one piece, which
 * keeps a block's dk and dv in cache; with few pairs, tiles on an antidiagonal (panel + block = step) touch
 * different rows, so they run side by side, step by step.
 *
 * Sums are f32: in the outputs themselves, or, when those have 16 bits, packed in the workspace, where tiles
 * add to them in place; the last tile of a row rounds it.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "op/attention/attention_tile.h"
#include "op/cpu_kernel.h"

#include <omp.h>

#define KEYS 128 /* of a block: two panels wide */

typedef struct grad_state {
    int threads;
    size_t delta_at, sums_at[3]; /* in the workspace, after the buffers of the threads */
} grad_state;

typedef struct job {
    const teng_kernel_args *args;
    tg_attention_sizes z;
    teng_dtype dtype;
    int64_t dp, q_step, k_step; /* elements of a packed row; from one row of a head to the next */
    int64_t panels, blocks;     /* of queries, of keys */
    float *delta;               /* [batch][heads][rows]: Σ dy · y */
    teng_dtype to;              /* of the outputs: f32, or as the inputs */
    bool narrow;                /* outputs of 16 bits */
    float *dq, *dk, *dv; /* sums: of narrow outputs [batch][heads or groups][rows or keys, padded][dp] */
} job;

/* Without pairs a tile of rows serves all products, and weights lie where their scores did. */
typedef struct buffers {
    float *k, *v, *dk, *dv;        /* rows: [KEYS][dp], k and v of pairs [KEYS][words] */
    float *q, *dy, *dq;            /* rows: [TG_ATT_PANEL] */
    float *k_sum, *q_sum, *dy_sum; /* the same for sums over keys, over queries: pair rows, or k, q, dy */
    float *q_t, *dy_t;             /* [dp or words][TG_ATT_PANEL], q scaled but for pairs */
    float *score, *dp;             /* [KEYS][TG_ATT_PANEL] */
    float *p, *ds, *ds_keys;       /* weights for sums over queries, over keys */
    float *lse, *delta;            /* [TG_ATT_PANEL], lse times log2 e */
} buffers;

/* Rows that products write. */
static int64_t pad(int64_t rows)
{
    return tg_blocks(rows, TG_ATT_GROUP) * TG_ATT_GROUP;
}

static int64_t buffer_floats(bool pairs, int64_t dp)
{
    const int64_t tiles = 4 * KEYS * dp + 5 * TG_ATT_PANEL * dp + 2 * KEYS * TG_ATT_PANEL + 2 * TG_ATT_PANEL;
    return tiles + (pairs ? (KEYS / 2 + TG_ATT_PANEL) * dp + KEYS * TG_ATT_PANEL : 0);
}

static float *take(float **next, int64_t n)
{
    float *start = *next;
    *next += n;
    return start;
}

static buffers buffers_at(float *f, bool pairs, int64_t dp)
{
    const int64_t block = KEYS * dp, panel = TG_ATT_PANEL * dp, scores = KEYS * TG_ATT_PANEL;
    buffers m;
    m.k = take(&f, block);
    m.v = take(&f, block);
    m.dk = take(&f, block);
    m.dv = take(&f, block);
    m.q = take(&f, panel);
    m.dy = take(&f, panel);
    m.dq = take(&f, panel);
    m.q_t = take(&f, panel);
    m.dy_t = take(&f, panel);
    m.score = take(&f, scores);
    m.dp = take(&f, scores);
    m.lse = take(&f, TG_ATT_PANEL);
    m.delta = take(&f, TG_ATT_PANEL);
    m.k_sum = pairs ? take(&f, block / 2) : m.k;
    m.q_sum = pairs ? take(&f, panel / 2) : m.q;
    m.dy_sum = pairs ? take(&f, panel / 2) : m.dy;
    m.p = pairs ? take(&f, scores / 2) : m.score;
    m.ds = pairs ? take(&f, scores / 2) : m.dp;
    m.ds_keys = m.dp;
    return m;
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    grad_state *s = tg_alloc(sizeof *s);
    if (!s) return TENG_MEMORY;
    s->threads = omp_get_max_threads();
    const tg_attention_sizes z = tg_attention_sizes_of(call);
    int64_t floats = s->threads * buffer_floats(tg_att_pairs(call->in[0].dtype), tg_att_width(z.width));
    s->delta_at = (size_t)floats;
    floats += z.batch * z.heads * z.rows;
    for (int i = 0; i < 3; i++) {
        s->sums_at[i] = (size_t)floats;
        if (call->out[0].dtype != TENG_F32)
            floats += z.batch * (i ? z.groups * pad(z.keys) : z.heads * pad(z.rows)) * tg_att_width(z.width);
    }
    *out = (teng_prepared){s, (size_t)floats * sizeof(float)};
    return TENG_OK;
}

static int64_t q_at(const job *j, int64_t b, int64_t h, int64_t t)
{
    return (b * j->z.rows + t) * j->q_step + h * j->z.width;
}
static int64_t k_at(const job *j, int64_t b, int64_t g, int64_t s)
{
    return (b * j->z.keys + s) * j->k_step + g * j->z.width;
}

/* ---- which tiles hold something ---- */
static int64_t panel_rows(const job *j, int64_t panel)
{
    const int64_t left = j->z.rows - panel * TG_ATT_PANEL;
    return left < TG_ATT_PANEL ? left : TG_ATT_PANEL;
}
/* Blocks lo … hi - 1 hold the keys that the panel sees. */
static void blocks_of(const job *j, int64_t panel, int64_t *lo, int64_t *hi)
{
    const int64_t q0 = panel * TG_ATT_PANEL, first = tg_attention_first(&j->z, q0);
    *hi =
        tg_blocks(tg_att_clip(tg_attention_last(&j->z, q0 + panel_rows(j, panel) - 1) + 1, j->z.keys), KEYS);
    *lo = first / KEYS < *hi ? first / KEYS : *hi;
}
static bool holds(const job *j, int64_t panel, int64_t block)
{
    int64_t lo, hi;
    blocks_of(j, panel, &lo, &hi);
    return block >= lo && block < hi;
}

/* A block of keys against panels from … to - 1 of one head. */
typedef struct column_work {
    int64_t batch, head, block, from, to;
    bool started, done; /* the block's dk and dv hold sums of tiles before; get no more */
} column_work;

/* ---- one tile ---- */
/* p = 2^(score - lse), ds = p · (dp - delta) · scale for keys begin … end - 1 and the register at column c; 0
 * where nothing is seen, full: nowhere. */
TG_INLINE void differentiate_keys(bool pairs, bool full, const tg_att_tile *t, int64_t begin, int64_t end,
                                  int64_t c, const buffers *m)
{
    const float scale = t->z->scale;
    const tg_vf lse = tg_v_load(TENG_F32, m->lse, c), delta = tg_v_load(TENG_F32, m->delta, c);
    for (int64_t i = begin; i < end; i += 2) {
        tg_vf p[2], ds[2];
        TG_UNROLL(2)
        for (int r = 0; r < 2; r++) {
            const int64_t at = (i + r) * TG_ATT_PANEL + c;
            p[r] = tg_att_weight(pairs, tg_v_load(TENG_F32, m->score, at), scale * TG_ATT_LOG2E, lse);
            ds[r] = p[r] * (tg_v_load(TENG_F32, m->dp, at) - delta) * scale;
            if (!full) {
                const tg_vi seen = tg_att_seen(t, i + r, c);
                p[r] = (tg_vf)((tg_vi)p[r] & seen);
                ds[r] = (tg_vf)((tg_vi)ds[r] & seen);
            }
        }
        tg_att_store_queries(pairs, m->p, i, c, p[0], p[1]);
        tg_att_store_queries(pairs, m->ds, i, c, ds[0], ds[1]);
        if (pairs) tg_att_store_keys(pairs, m->ds_keys, i, c, ds[0], ds[1]);
    }
}
/* What no query of a register sees stays as it is. */
TG_INLINE void differentiate(bool pairs, const tg_att_tile *t, const buffers *m)
{
    for (int64_t c = 0; c < TG_ATT_PANEL; c += TG_LANES) {
        const tg_att_keys k = tg_att_register_keys(t, c);
        differentiate_keys(pairs, false, t, k.lo, k.from, c, m);
        differentiate_keys(pairs, true, t, k.from, k.to, c, m);
        differentiate_keys(pairs, false, t, k.to, k.hi, c, m);
    }
}

/* Sums of n rows, which begin at element `at` of the output and at row `packed` of narrow sums: where they
 * lie, or a tile with what the output holds. */
static float *begin_sums(const job *j, float *sums, float *tile, int64_t at, int64_t step, int64_t packed,
                         int64_t n, bool started)
{
    if (!j->narrow) {
        tg_att_load(TENG_F32, tile, j->dp, pad(n), sums, at, step, started ? n : 0, j->z.width);
        return tile;
    }
    float *rows = sums + packed * j->dp;
    if (!started) memset(rows, 0, (size_t)(pad(n) * j->dp) * sizeof *rows);
    return rows;
}
static void end_sums(const job *j, const float *rows, void *out, int64_t at, int64_t step, int64_t n,
                     bool done)
{
    if (!j->narrow || done) tg_att_store(j->to, out, at, step, rows, j->dp, n, j->z.width, NULL);
}

TG_INLINE void load_panel(bool pairs, const job *j, int64_t b, int64_t h, int64_t panel, const buffers *m)
{
    const int64_t t = panel * TG_ATT_PANEL, n = panel_rows(j, panel), at = q_at(j, b, h, t),
                  vec = (b * j->z.heads + h) * j->z.rows + t, width = j->z.width;
    const int64_t packed = tg_att_width(tg_att_words(pairs, width));
    const void *q = j->args->in[0], *dy = j->args->in[5];
    tg_att_load_rows(pairs, j->dtype, m->q, TG_ATT_PANEL, q, at, j->q_step, n, width);
    tg_att_load_rows(pairs, j->dtype, m->dy, TG_ATT_PANEL, dy, at, j->q_step, n, width);
    if (pairs) {
        tg_att_load_pairs(true, j->dtype, m->q_sum, TG_ATT_PANEL, q, at, j->q_step, n, width);
        tg_att_load_pairs(true, j->dtype, m->dy_sum, TG_ATT_PANEL, dy, at, j->q_step, n, width);
    }
    tg_att_transpose(m->q_t, m->q, packed, pairs ? 1.0f : j->z.scale * TG_ATT_LOG2E);
    tg_att_transpose(m->dy_t, m->dy, packed, 1.0f);
    const float *lse = (const float *)j->args->in[4] + vec;
    for (int64_t i = 0; i < TG_ATT_PANEL; i++) {
        m->lse[i] = i < n ? lse[i] * TG_ATT_LOG2E : 0.0f;
        m->delta[i] = i < n ? j->delta[vec + i] : 0.0f;
    }
}

TG_INLINE void column_as(bool pairs, const job *j, const column_work *w, const buffers *m)
{
    const tg_attention_sizes *z = &j->z;
    const int64_t k0 = w->block * KEYS, keys = z->keys - k0 < KEYS ? z->keys - k0 : KEYS, padded = pad(keys);
    const int64_t group = w->head / (z->heads / z->groups), at = k_at(j, w->batch, group, k0),
                  packed = (w->batch * z->groups + group) * pad(z->keys) + k0;
    const void *k = j->args->in[1];
    tg_att_load_rows(pairs, j->dtype, m->k, padded, k, at, j->k_step, keys, z->width);
    tg_att_load_rows(pairs, j->dtype, m->v, padded, j->args->in[2], at, j->k_step, keys, z->width);
    if (pairs) tg_att_load_pairs(true, j->dtype, m->k_sum, padded, k, at, j->k_step, keys, z->width);
    float *dk = begin_sums(j, j->dk, m->dk, at, j->k_step, packed, keys, w->started);
    float *dv = begin_sums(j, j->dv, m->dv, at, j->k_step, packed, keys, w->started);
    for (int64_t panel = w->from; panel < w->to; panel++) {
        int64_t lo, hi;
        blocks_of(j, panel, &lo, &hi);
        if (w->block < lo || w->block >= hi) continue;
        const tg_att_tile t = {z, panel * TG_ATT_PANEL, k0, keys};
        const int64_t rows = panel_rows(j, panel), q = q_at(j, w->batch, w->head, t.q0);
        load_panel(pairs, j, w->batch, w->head, panel, m);
        float *dq = begin_sums(j, j->dq, m->dq, q, j->q_step,
                               (w->batch * z->heads + w->head) * pad(z->rows) + t.q0, rows, w->block > lo);
        tg_att_scores(pairs, &t, padded, z->width, m->k, m->q_t, m->score);
        tg_att_scores(pairs, &t, padded, z->width, m->v, m->dy_t, m->dp);
        differentiate(pairs, &t, m);
        tg_att_scatter(pairs, &t, padded, m->p, m->dy_sum, j->dp, dv);
        tg_att_scatter(pairs, &t, padded, m->ds, m->q_sum, j->dp, dk);
        tg_att_gather(pairs, &t, rows, m->ds_keys, m->k_sum, j->dp, dq);
        end_sums(j, dq, j->args->out[0], q, j->q_step, rows, w->block == hi - 1);
    }
    end_sums(j, dk, j->args->out[1], at, j->k_step, keys, w->done);
    end_sums(j, dv, j->args->out[2], at, j->k_step, keys, w->done);
}

static void column(const job *j, const column_work *w, const buffers *m)
{
    if (tg_att_pairs(j->dtype))
        column_as(true, j, w, m);
    else
        column_as(false, j, w, m);
}

/* Panels lo … hi - 1 see keys of the block: whether they do changes at most twice as panels go up. */
static void panels_of(const job *j, int64_t block, int64_t *lo, int64_t *hi)
{
    for (*lo = 0; *lo < j->panels && !holds(j, *lo, block);)
        ++*lo;
    for (*hi = *lo; *hi < j->panels && holds(j, *hi, block);)
        ++*hi;
}

/* ---- all tiles ---- */
static void zero_rows(const job *j, int output, int64_t at, int64_t elements)
{
    const size_t size = (size_t)teng_dtype_size(j->to);
    memset((char *)j->args->out[output] + (size_t)at * size, 0, (size_t)elements * size);
}

/* Blocks that no query sees and panels that see no key get no tile: their sums are 0. */
static void zero_unseen(const job *j)
{
    const tg_attention_sizes *z = &j->z;
    for (int64_t block = 0; block < j->blocks; block++) {
        int64_t lo, hi;
        panels_of(j, block, &lo, &hi);
        const int64_t k0 = block * KEYS, keys = z->keys - k0 < KEYS ? z->keys - k0 : KEYS;
        for (int64_t b = 0; b < z->batch && lo == hi; b++) {
            zero_rows(j, 1, k_at(j, b, 0, k0), keys * j->k_step);
            zero_rows(j, 2, k_at(j, b, 0, k0), keys * j->k_step);
        }
    }
    for (int64_t panel = 0; panel < j->panels; panel++) {
        int64_t lo, hi;
        blocks_of(j, panel, &lo, &hi);
        for (int64_t b = 0; b < z->batch && lo == hi; b++)
            zero_rows(j, 0, q_at(j, b, 0, panel * TG_ATT_PANEL), panel_rows(j, panel) * j->q_step);
    }
}

static buffers own_buffers(const job *j)
{
    const bool pairs = tg_att_pairs(j->dtype);
    float *all = j->args->workspace;
    return buffers_at(all + omp_get_thread_num() * buffer_floats(pairs, j->dp), pairs, j->dp);
}

static void by_pairs(const job *j, int threads)
{
    const int64_t share = j->z.heads / j->z.groups;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t pair = 0; pair < j->z.batch * j->z.groups; pair++) {
        const buffers m = own_buffers(j);
        for (int64_t i = 0; i < share; i++)
            for (int64_t block = 0; block < j->blocks; block++) {
                int64_t lo, hi;
                panels_of(j, block, &lo, &hi);
                const column_work w = {.batch = pair / j->z.groups,
                                       .head = pair % j->z.groups * share + i,
                                       .block = block,
                                       .from = lo,
                                       .to = hi,
                                       .started = i > 0,
                                       .done = i == share - 1};
                if (lo < hi) column(j, &w, &m);
            }
    }
}

static void by_steps(const job *j, int threads)
{
    const int64_t share = j->z.heads / j->z.groups, pairs = j->z.batch * j->z.groups;
#pragma omp parallel num_threads(threads)
    {
        const buffers m = own_buffers(j);
        for (int64_t i = 0; i < share; i++)
            for (int64_t step = 0; step < j->panels + j->blocks - 1; step++)
#pragma omp for schedule(dynamic)
                for (int64_t u = 0; u < pairs * j->panels; u++) {
                    const int64_t pair = u % pairs, panel = u / pairs, block = step - panel;
                    if (block < 0 || block >= j->blocks || !holds(j, panel, block)) continue;
                    const bool before = panel > 0 && holds(j, panel - 1, block),
                               after = panel + 1 < j->panels && holds(j, panel + 1, block);
                    const column_work w = {.batch = pair / j->z.groups,
                                           .head = pair % j->z.groups * share + i,
                                           .block = block,
                                           .from = panel,
                                           .to = panel + 1,
                                           .started = i > 0 || before,
                                           .done = i == share - 1 && !after};
                    column(j, &w, &m);
                }
    }
}

/* delta of each row. */
static void prepare_rows(const job *j)
{
    const void *y = j->args->in[3], *dy = j->args->in[5];
    const int64_t n = j->z.width, rows = j->z.batch * j->z.rows;
    TG_PARALLEL_FOR(rows * j->q_step >= TG_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < j->z.heads; h++) {
            tg_sum16 sum = {0};
            TG_FLOAT_SWITCH(
                j->dtype, T, TG_VECTORS(i, len, 0, n) {
                    const int64_t at = r * j->q_step + h * n + i;
                    tg_sum16_add(&sum, i, tg_v_load_part(T, y, at, len) * tg_v_load_part(T, dy, at, len));
                });
            j->delta[(r / j->z.rows * j->z.heads + h) * j->z.rows + r % j->z.rows] = tg_sum16_total(&sum);
        }
}

static teng_status run(const teng_kernel_args *args)
{
    const grad_state *s = args->state;
    const tg_attention_sizes z = tg_attention_sizes_of(args->call);
    float *workspace = args->workspace;
    const bool narrow = args->call->out[0].dtype != TENG_F32;
    const job j = {.args = args,
                   .z = z,
                   .dtype = args->call->in[0].dtype,
                   .dp = tg_att_width(z.width),
                   .q_step = z.heads * z.width,
                   .k_step = z.groups * z.width,
                   .panels = tg_blocks(z.rows, TG_ATT_PANEL),
                   .blocks = tg_blocks(z.keys, KEYS),
                   .to = args->call->out[0].dtype,
                   .narrow = narrow,
                   .delta = workspace + s->delta_at,
                   .dq = narrow ? workspace + s->sums_at[0] : args->out[0],
                   .dk = narrow ? workspace + s->sums_at[1] : args->out[1],
                   .dv = narrow ? workspace + s->sums_at[2] : args->out[2]};
    const int64_t pairs = z.batch * z.groups;
    const int threads = tg_att_worth_threads(&z) ? s->threads : 1;
    prepare_rows(&j);
    zero_unseen(&j);
    if (pairs % threads == 0 || pairs >= 4 * threads)
        by_pairs(&j, threads);
    else
        by_steps(&j, threads);
    return TENG_OK;
}

TG_KERNELS(tg_attention_grad_kernels) = {{"tiles", NULL, prepare, run, tg_free}, {0}};
