/*
 * linear_cross_entropy_with_grad on the CPU: a block of rows at a time, its logits whole, so that each row's
 * softmax is known when its dlogits are wanted. Three products a block: logits, dx, and dw, which is added up
 * over the blocks in f32. dlogits take the place of the logits: narrowed to the products' dtype in 16 bits,
 * at the start of their row. The size of a block depends on the shapes alone; more rows read w and dw less
 * often and need more memory. w is copied once, into the layout in which the product for dx is fastest.
 *
 * Ranks with a piece of the vocabulary each tell each other the maximum and the sum of each row of a block
 * before they make dlogits of it: a few numbers a row, and no logits are computed twice.
 *
 * In f16 dlogits are multiplied unscaled and 1 / valid is applied to the f32 sums: small probabilities times
 * a small factor would vanish.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_gemm.h"
#include "op/collective/collective.h"
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"
#include "op/ids.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"

#define BLOCK_LOGITS (52 << 20) /* f32 logits of a block: 208 MiB */
#define MAX_BLOCK_ROWS 1024

enum { LOGITS, DX, DW, PRODUCTS };

/* What one rank knows of a row: the maximum of its logits, their Σ exp(logit - max), the label's logit or 0.
 */
typedef struct row_sum {
    float max, sum, hit;
} row_sum;
enum { ROW_FLOATS = 3 };
_Static_assert(sizeof(row_sum) == ROW_FLOATS * sizeof(float), "rows of sums travel as f32");

typedef struct ce_state {
    teng_dtype dtype;
    int64_t rows, vocab, width;          /* x [rows, width], w [vocab, width] */
    int64_t block;                       /* rows of one */
    int64_t step;                        /* f32 from one row of logits to the next */
    tg_gemm_plan *plans[PRODUCTS][2][2]; /* of the last, shorter block; dw: added to */
    size_t scratch, logits_at, loss_at,
        packed_at; /* in the workspace: of the products, [block, step], loss of each row, w for dx */
    tg_linear_ce_ranks_attr ranks;    /* parts 0: one rank with all of the vocabulary */
    size_t own_at, all_at, counts_at; /* row_sum of a block: [block], [parts][block]; [parts] of a message */
    size_t workspace;
} ce_state;

static void release(void *state)
{
    ce_state *s = state;
    tg_gemm_plan **plans = s ? &s->plans[0][0][0] : NULL;
    for (size_t i = 0; s && i < sizeof s->plans / sizeof *plans; i++)
        tg_gemm_plan_destroy(&plans[i]);
    tg_free(s);
}

static int64_t rows_at(const ce_state *s, int64_t r)
{
    return r + s->block > s->rows ? s->rows - r : s->block;
}

static tg_gemm_plan **plan_of(ce_state *s, int product, int64_t r)
{
    return &s->plans[product][r + s->block > s->rows][product == DW && r > 0];
}

/* Elements from one row of dlogits to the next: they lie at the start of the rows of f32 logits. */
static int64_t dlogits_step(const ce_state *s)
{
    return s->step * 4 / teng_dtype_size(s->dtype);
}

/* Rows of logits begin at an odd multiple of 64 bytes from each other: on boundaries of vectors, and never
 * all in the same sets of a cache, as those of a vocabulary of 32,768 would. */
static int64_t logits_step(int64_t vocab)
{
    return (tg_blocks(vocab, 16) | 1) * 16;
}

static teng_status make_plan(ce_state *s, int product, int64_t r)
{
    tg_gemm_plan **plan = plan_of(s, product, r);
    if (*plan) {
        tg_gemm_again(*plan);
        return TENG_OK;
    }
    tg_gemm_spec spec = {.a = s->dtype, .b = s->dtype, .c = TENG_F32};
    if (product == LOGITS) { /* x · wᵀ */
        spec.m = rows_at(s, r), spec.n = s->vocab, spec.k = s->width, spec.trans_b = true, spec.ldc = s->step;
    } else if (product == DX) { /* dlogits · w */
        spec.m = rows_at(s, r), spec.n = s->width, spec.k = s->vocab, spec.lda = dlogits_step(s);
        spec.packed_b = s->rows > s->block && rows_at(s, r) == s->block;
    } else { /* dlogitsᵀ · x */
        spec.m = s->vocab, spec.n = s->width, spec.k = rows_at(s, r), spec.lda = dlogits_step(s);
        spec.trans_a = true, spec.accumulate = r > 0;
    }
    TG_TRY(tg_gemm_plan_create(&spec, plan));
    if (tg_gemm_scratch(*plan) > s->scratch) s->scratch = tg_gemm_scratch(*plan);
    return TENG_OK;
}

static size_t aligned(size_t bytes)
{
    return (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    const teng_desc *x = &call->in[0], *w = &call->in[1];
    ce_state *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    s->dtype = x->dtype;
    s->rows = tg_row_count(x);
    s->vocab = w->dims[0];
    s->width = w->dims[1];
    s->step = logits_step(s->vocab);
    int64_t most = BLOCK_LOGITS / s->vocab;
    most = most > MAX_BLOCK_ROWS ? MAX_BLOCK_ROWS : most < 16 ? 16 : most;
    const int64_t blocks = tg_blocks(s->rows, most);
    s->block = blocks ? tg_blocks(tg_blocks(s->rows, blocks), 16) * 16 : 16;
    teng_status status = TENG_OK;
    for (int64_t r = 0; r < s->rows; r += s->block)
        for (int p = 0; p < PRODUCTS && status == TENG_OK; p++)
            status = make_plan(s, p, r);
    if (status != TENG_OK) {
        release(s);
        return status;
    }
    s->logits_at = aligned(s->scratch);
    s->loss_at = aligned(s->logits_at + (size_t)(s->block * s->step) * sizeof(float));
    s->packed_at = aligned(s->loss_at + (size_t)s->rows * sizeof(float));
    s->workspace = s->packed_at + (s->rows ? tg_gemm_packed(*plan_of(s, DX, 0)) : 0);
    *out = (teng_prepared){s, s->workspace};
    return TENG_OK;
}

static size_t reserve(ce_state *s, size_t bytes)
{
    const size_t at = aligned(s->workspace);
    s->workspace = at + bytes;
    return at;
}

static teng_status prepare_ranks(const teng_op_call *call, teng_prepared *out)
{
    TG_TRY(prepare(call, out));
    ce_state *s = out->state;
    s->ranks = *(const tg_linear_ce_ranks_attr *)call->attr;
    s->own_at = reserve(s, (size_t)s->block * sizeof(row_sum));
    s->all_at = reserve(s, (size_t)(s->block * s->ranks.parts) * sizeof(row_sum));
    s->counts_at = reserve(s, (size_t)s->ranks.parts * sizeof(int64_t));
    out->workspace = s->workspace;
    return TENG_OK;
}

/* n logits become exp(logit - max); returns their sum. */
TG_INLINE float row_exps(float *logits, int64_t n, float *max_out)
{
    tg_vf m = tg_v_set(-INFINITY);
    TG_VECTORS(i, len, 0, n)
    {
        m = tg_v_max(m, tg_v_fill_tail(tg_v_load_part(TENG_F32, logits, i, len), len, -INFINITY));
    }
    const float max = tg_v_hmax(m);
    tg_sum16 sum = {0};
    TG_ROW16(i, len, p, n, {
        tg_vf e = tg_v_exp(tg_v_load_part(TENG_F32, logits, i, len) - max);
        if (len < TG_LANES) e = tg_v_fill_tail(e, len, 0.0f);
        sum.part[p] += e;
        tg_v_store_part(TENG_F32, logits, i, e, len);
    });
    *max_out = max;
    return tg_sum16_total(&sum);
}

/* Exponentials times scale, written from the row's start on in T (no element is written before it is read);
 * hit at the label, where the row has it. */
TG_INLINE void row_dlogits(teng_dtype T, float *logits, int64_t n, float scale, int64_t label, float hit)
{
    TG_VECTORS(i, len, 0, n)
    {
        tg_v_store_part(T, logits, i, tg_v_load_part(TENG_F32, logits, i, len) * scale, len);
    }
    if (label >= 0 && label < n) tg_v_store1(T, logits, label, hit);
}

/* A row of n logits becomes its dlogits times factor; returns lse - logit of the label. */
TG_INLINE float row(teng_dtype T, float *logits, int64_t n, int32_t label, float factor)
{
    const float own = logits[label];
    float max;
    const float total = row_exps(logits, n, &max);
    row_dlogits(T, logits, n, factor / total, label, (logits[label] / total - 1.0f) * factor);
    return max + logf(total) - own;
}

static void block_dlogits(const ce_state *s, const int32_t *labels, int64_t ignore, int64_t rows,
                          float *logits, float factor, float *loss)
{
    TG_PARALLEL_FOR(rows * s->vocab >= TG_PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        float *own = logits + i * s->step;
        loss[i] = 0;
        if (labels[i] == ignore)
            memset(own, 0, (size_t)(s->vocab * teng_dtype_size(s->dtype)));
        else
            TG_FLOAT_SWITCH(s->dtype, T, loss[i] = row(T, own, s->vocab, labels[i], factor));
    }
}

/* ---- a piece of the vocabulary ---- */
/* The row's sums over all ranks, which lie `rows` apart. */
static row_sum of_all(const row_sum *all, int64_t parts, int64_t rows, int64_t i)
{
    float max = -INFINITY, hit = 0.0f;
    double sum = 0;
    for (int64_t p = 0; p < parts; p++)
        max = fmaxf(max, all[p * rows + i].max);
    for (int64_t p = 0; p < parts; p++) {
        sum += (double)all[p * rows + i].sum * exp((double)all[p * rows + i].max - (double)max);
        hit += all[p * rows + i].hit;
    }
    return (row_sum){max, (float)sum, hit};
}

static teng_status block_dlogits_ranks(const ce_state *s, char *workspace, const int32_t *labels,
                                       int64_t rows, float *logits, float factor, float *loss)
{
    const int64_t ignore = s->ranks.ignore_index, parts = s->ranks.parts, begin = s->ranks.begin;
    row_sum *own = (void *)(workspace + s->own_at), *all = (void *)(workspace + s->all_at);
    int64_t *counts = (void *)(workspace + s->counts_at);
    tg_group *g;
    TG_TRY(tg_collective_group(s->ranks.axes, parts, &g));
    TG_PARALLEL_FOR(rows * s->vocab >= TG_PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        float *x = logits + i * s->step;
        own[i] = (row_sum){0};
        if (labels[i] == ignore) continue;
        if (labels[i] >= begin && labels[i] < begin + s->vocab) own[i].hit = x[labels[i] - begin];
        own[i].sum = row_exps(x, s->vocab, &own[i].max);
    }
    for (int64_t p = 0; p < parts; p++)
        counts[p] = rows * ROW_FLOATS;
    if (g) TG_TRY(tg_comm_all_gather(g, TENG_F32, own, all, counts));
    if (!g) all = own;
    TG_PARALLEL_FOR(rows * s->vocab >= TG_PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        float *x = logits + i * s->step;
        loss[i] = 0;
        if (labels[i] == ignore) {
            memset(x, 0, (size_t)(s->vocab * teng_dtype_size(s->dtype)));
            continue;
        }
        const row_sum row = of_all(all, parts, rows, i);
        const int64_t label = labels[i] - begin;
        const float share = expf(own[i].max - row.max) / row.sum;
        const float hit = label >= 0 && label < s->vocab ? (x[label] * share - 1.0f) * factor : 0.0f;
        TG_FLOAT_SWITCH(s->dtype, T, row_dlogits(T, x, s->vocab, factor * share, label, hit));
        loss[i] = row.max + logf(row.sum) - row.hit;
    }
    return TENG_OK;
}

static void scale_sums(float *sums, int64_t n, float factor)
{
    TG_PARALLEL_FOR(n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(n, TG_BLOCK); b++)
        TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n))
        {
            tg_v_store_part(TENG_F32, sums, i, tg_v_load_part(TENG_F32, sums, i, len) * factor, len);
        }
}

static teng_status run(const teng_kernel_args *args)
{
    ce_state *s = args->state;
    char *workspace = args->workspace;
    float *logits = (void *)(workspace + s->logits_at), *loss = (void *)(workspace + s->loss_at);
    float *dx = args->out[1], *dw = args->out[2];
    const int32_t *labels = args->in[2];
    const int64_t ignore = *(const int64_t *)args->call->attr,
                  row_bytes = s->width * teng_dtype_size(s->dtype);
    int64_t valid;
    const int64_t vocab = s->ranks.total ? s->ranks.total : s->vocab;
    TG_TRY(tg_labels_check(labels, s->rows, vocab, ignore, &valid));
    const double divisor = tg_labels_divisor(args, 3, valid);
    const float share = divisor > 0 ? (float)(1.0 / divisor) : 0.0f,
                inside = s->dtype == TENG_F16 ? 1.0f : share;
    if (s->rows && tg_gemm_packed(*plan_of(s, DX, 0)))
        TG_TRY(tg_gemm_pack(*plan_of(s, DX, 0), args->in[1], workspace + s->packed_at));
    if (!s->rows) memset(dw, 0, (size_t)(s->vocab * s->width) * sizeof *dw);
    for (int64_t r = 0; r < s->rows; r += s->block) {
        const void *x = (const char *)args->in[0] + r * row_bytes;
        TG_TRY(tg_gemm_run(*plan_of(s, LOGITS, r), x, args->in[1], NULL, logits, workspace));
        if (s->ranks.parts)
            TG_TRY(block_dlogits_ranks(s, workspace, labels + r, rows_at(s, r), logits, inside, loss + r));
        else
            block_dlogits(s, labels + r, ignore, rows_at(s, r), logits, inside, loss + r);
        tg_gemm_plan *for_dx = *plan_of(s, DX, r);
        const void *w = tg_gemm_packed(for_dx) ? workspace + s->packed_at : args->in[1];
        TG_TRY(tg_gemm_run(for_dx, logits, w, NULL, dx + r * s->width, workspace));
        TG_TRY(tg_gemm_run(*plan_of(s, DW, r), logits, x, NULL, dw, workspace));
    }
    if (inside != share) {
        scale_sums(dx, s->rows * s->width, share);
        scale_sums(dw, s->vocab * s->width, share);
    }
    double sum = 0;
    for (int64_t r = 0; r < s->rows; r++)
        sum += (double)loss[r];
    *(float *)args->out[0] = divisor > 0 ? (float)(sum / divisor) : 0.0f;
    return TENG_OK;
}

TG_KERNELS(tg_linear_cross_entropy_with_grad_kernels) = {{"blocks", NULL, prepare, run, release}, {0}};
TG_KERNELS(tg_linear_cross_entropy_by_vocabulary_kernels) = {{"blocks", NULL, prepare_ranks, run, release},
                                                             {0}};
