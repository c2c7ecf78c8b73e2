/*
 * linear_cross_entropy and its gradient on the CPU. Logits are computed in tiles of rows × vocabulary
 * entries, cut both ways so that the products stay square enough to be fast and w is read once for all rows.
 * The outer loop runs over the vocabulary. Forward: each row carries its maximum and its sum of exponentials
 * from tile to tile. Gradient: with log Σ exp known, a tile of dlogits needs nothing of its neighbours; dx
 * and dw are summed over tiles in f32, in tile order. Tile sizes depend on the shapes alone.
 *
 * In 16 bits dlogits are multiplied unscaled and dy / valid is applied to the f32 sums: small probabilities
 * times a small scale would vanish in f16.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_gemm.h"
#include "mesh/mesh.h"
#include "op/cpu_kernel.h"
#include "op/cpu_row16.h"
#include "op/ids.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"

#define MAX_TILE_ROWS 1024 /* a tile of f32 logits is 4 MiB: 512 to 2048 either way measured alike */
#define MAX_TILE_VOCAB 1024

enum { LOGITS, DX, DW, PRODUCTS };

typedef struct ce_state {
    teng_dtype dtype;
    int64_t rows, vocab, width; /* x [rows, width], w [vocab, width] */
    int64_t tile_rows, tile_vocab;
    bool want[PRODUCTS];
    tg_gemm_plan *plans[PRODUCTS][2][2][2]; /* of the last, shorter tiles; accumulating */
    size_t scratch_bytes, at[4], workspace; /* scratch of the products comes first */
} ce_state;
/* Parts of the workspace. Forward: */
enum { TILE, ROW_MAX, ROW_SUM, ROW_HIT };
/* Gradient: the tile of dlogits in 16 bits, f32 sums of dx (all rows) and dw (one tile), unless the outputs
 * are f32. */
enum { NARROW = 1, SUM_DX, SUM_DW };

/* n cut into equal tiles of a multiple of 16, at most `most`. */
static int64_t tile_size(int64_t n, int64_t most)
{
    const int64_t tiles = tg_blocks(n, most), size = tiles ? tg_blocks(n, tiles) : 1;
    return tg_blocks(size, 16) * 16;
}

static void release(void *state)
{
    ce_state *s = state;
    tg_gemm_plan **plans = s ? &s->plans[0][0][0][0] : NULL;
    for (size_t i = 0; s && i < sizeof s->plans / sizeof *plans; i++)
        tg_gemm_plan_destroy(&plans[i]);
    tg_free(s);
}

static tg_gemm_plan **plan_of(ce_state *s, int product, int64_t r, int64_t v)
{
    const bool accumulate = (product == DX && v > 0) || (product == DW && r > 0);
    return &s->plans[product][r + s->tile_rows > s->rows][v + s->tile_vocab > s->vocab][accumulate];
}

static int64_t rows_at(const ce_state *s, int64_t r)
{
    return r + s->tile_rows > s->rows ? s->rows - r : s->tile_rows;
}
static int64_t vocab_at(const ce_state *s, int64_t v)
{
    return v + s->tile_vocab > s->vocab ? s->vocab - v : s->tile_vocab;
}

static teng_status make_plan(ce_state *s, int product, int64_t r, int64_t v)
{
    tg_gemm_plan **plan = plan_of(s, product, r, v);
    if (*plan) tg_gemm_again(*plan);
    if (*plan || !s->want[product]) return TENG_OK;
    const int64_t rows = rows_at(s, r), vocab = vocab_at(s, v);
    tg_gemm_spec spec = {.a = s->dtype, .b = s->dtype, .c = TENG_F32};
    if (product == LOGITS) { /* x · wᵀ */
        spec.m = rows, spec.n = vocab, spec.k = s->width, spec.trans_b = true;
    } else if (product == DX) { /* dlogits · w */
        spec.m = rows, spec.n = s->width, spec.k = vocab, spec.accumulate = v > 0;
    } else { /* dlogitsᵀ · x */
        spec.m = vocab, spec.n = s->width, spec.k = rows, spec.trans_a = true, spec.accumulate = r > 0;
    }
    TG_TRY(tg_gemm_plan_create(&spec, plan));
    if (tg_gemm_scratch(*plan) > s->scratch_bytes) s->scratch_bytes = tg_gemm_scratch(*plan);
    return TENG_OK;
}

#define EACH_TILE(s, v, r)                                                                                   \
    for (int64_t v = 0; v < (s)->vocab; v += (s)->tile_vocab)                                                \
        for (int64_t r = 0; r < (s)->rows; r += (s)->tile_rows)

static ce_state *make_state(const teng_op_call *call, bool dx, bool dw)
{
    ce_state *s = tg_calloc(1, sizeof *s);
    if (!s) return NULL;
    const teng_desc *x = &call->in[0], *w = &call->in[1];
    s->dtype = x->dtype;
    s->rows = tg_row_count(x);
    s->width = w->dims[1];
    s->vocab = w->dims[0];
    s->tile_rows = tile_size(s->rows, MAX_TILE_ROWS);
    s->tile_vocab = tile_size(s->vocab, MAX_TILE_VOCAB);
    s->want[LOGITS] = true;
    s->want[DX] = dx;
    s->want[DW] = dw;
    EACH_TILE(s, v, r)
    for (int p = 0; p < PRODUCTS; p++)
        if (make_plan(s, p, r, v) != TENG_OK) {
            release(s);
            return NULL;
        }
    s->workspace = s->scratch_bytes;
    return s;
}

static void reserve(ce_state *s, int part, int64_t elements, int64_t size)
{
    s->at[part] = s->workspace = (s->workspace + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
    s->workspace += (size_t)(elements * size);
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    ce_state *s = make_state(call, false, false);
    if (!s) return teng_error_status();
    reserve(s, TILE, s->tile_rows * s->tile_vocab, 4);
    for (int part = ROW_MAX; part <= ROW_HIT; part++)
        reserve(s, part, s->rows, 4);
    *out = (teng_prepared){s, s->workspace};
    return TENG_OK;
}

static teng_status prepare_grad(const teng_op_call *call, teng_prepared *out)
{
    const tg_linear_ce_attr *attr = call->attr;
    const int64_t outputs = attr->outputs;
    ce_state *s = make_state(call, outputs != TG_LINEAR_CE_DW, outputs != TG_LINEAR_CE_DX);
    if (!s) return teng_error_status();
    reserve(s, TILE, s->tile_rows * s->tile_vocab, 4);
    if (s->dtype != TENG_F32) {
        reserve(s, NARROW, s->tile_rows * s->tile_vocab, 2);
        if (s->want[DX]) reserve(s, SUM_DX, s->rows * s->width, 4);
        if (s->want[DW]) reserve(s, SUM_DW, s->tile_vocab * s->width, 4);
    }
    *out = (teng_prepared){s, s->workspace};
    return TENG_OK;
}

/* One product of the tile at (r, v). */
static teng_status multiply(ce_state *s, int product, int64_t r, int64_t v, const void *a, const void *b,
                            void *c, void *workspace)
{
    return tg_gemm_run(*plan_of(s, product, r, v), a, b, NULL, c, workspace);
}
static const void *row_of(const ce_state *s, const void *matrix, int64_t r)
{
    return (const char *)matrix + r * s->width * teng_dtype_size(s->dtype);
}

/* ---- forward ---- */
typedef struct row_sums {
    float *max, *sum, *hit; /* of each row so far: maximum, Σ exp(logit - maximum), the label's logit */
} row_sums;
static row_sums row_sums_at(const ce_state *s, char *workspace)
{
    return (row_sums){(void *)(workspace + s->at[ROW_MAX]), (void *)(workspace + s->at[ROW_SUM]),
                      (void *)(workspace + s->at[ROW_HIT])};
}

/* Takes n logits of row r, entries v … v + n - 1 of the vocabulary, into its sums. */
TG_INLINE void take_logits(row_sums s, int64_t r, const float *logits, int64_t v, int64_t n, int64_t label)
{
    if (label >= v && label < v + n) s.hit[r] = logits[label - v];
    tg_vf m = tg_v_set(s.max[r]);
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
    });
    s.sum[r] = (v ? s.sum[r] * expf(s.max[r] - max) : 0.0f) + tg_sum16_total(&sum);
    s.max[r] = max;
}

/* Of all rows whose label is not ignored; w holds entries first, first + 1, … of the vocabulary. */
static teng_status sum_rows(ce_state *s, const teng_kernel_args *args, const void *w, int64_t first,
                            row_sums sums)
{
    char *workspace = args->workspace;
    float *tile = (void *)(workspace + s->at[TILE]);
    const int32_t *labels = args->in[2];
    const int64_t ignore = *(const int64_t *)args->call->attr;
    for (int64_t r = 0; r < s->rows; r++)
        sums.max[r] = -INFINITY;
    EACH_TILE(s, v, r)
    {
        TG_TRY(multiply(s, LOGITS, r, v, row_of(s, args->in[0], r), row_of(s, w, v), tile, workspace));
        const int64_t n = vocab_at(s, v), rows = rows_at(s, r);
        TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
        for (int64_t i = 0; i < rows; i++)
            if (labels[r + i] != ignore) take_logits(sums, r + i, tile + i * n, v, n, labels[r + i] - first);
    }
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    ce_state *s = args->state;
    float *lse = args->out[1];
    const row_sums sums = row_sums_at(s, args->workspace);
    const int32_t *labels = args->in[2];
    const int64_t ignore = *(const int64_t *)args->call->attr;
    int64_t valid;
    TG_TRY(tg_labels_check(labels, s->rows, s->vocab, ignore, &valid));
    TG_TRY(sum_rows(s, args, args->in[1], 0, sums));
    double loss = 0.0;
    for (int64_t r = 0; r < s->rows; r++) {
        lse[r] = labels[r] == ignore ? 0.0f : sums.max[r] + logf(sums.sum[r]);
        if (labels[r] != ignore) loss += (double)lse[r] - (double)sums.hit[r];
    }
    const double divisor = tg_labels_divisor(args, 3, valid);
    *(float *)args->out[0] = divisor > 0 ? (float)(loss / divisor) : 0.0f;
    return TENG_OK;
}

/* ---- forward, by pieces of the vocabulary: a state for the longer and one for the shorter ---- */
static void release_lse(void *state)
{
    ce_state **s = state;
    for (int i = 0; s && i < 2; i++)
        release(s[i]);
    tg_free(s);
}

static teng_status prepare_lse(const teng_op_call *call, teng_prepared *out)
{
    const int64_t parts = ((const tg_linear_lse_attr *)call->attr)->parts;
    ce_state **s = tg_calloc(2, sizeof *s);
    if (!s) return TENG_MEMORY;
    *out = (teng_prepared){s, 0};
    for (int i = 0; i < 2; i++) {
        int64_t begin;
        teng_desc in[2] = {call->in[0], call->in[1]};
        tg_mesh_cut(call->in[1].dims[0], parts, i ? parts - 1 : 0, &begin, &in[1].dims[0]);
        const teng_op_call piece = {.in = in};
        if (!(s[i] = make_state(&piece, false, false))) {
            release_lse(s);
            return teng_error_status();
        }
        reserve(s[i], TILE, s[i]->tile_rows * s[i]->tile_vocab, 4);
        for (int part = ROW_MAX; part <= ROW_HIT; part++)
            reserve(s[i], part, s[i]->rows, 4);
        if (s[i]->workspace > out->workspace) out->workspace = s[i]->workspace;
    }
    return TENG_OK;
}

static teng_status run_lse(const teng_kernel_args *args)
{
    ce_state **states = args->state;
    const tg_linear_lse_attr *attr = args->call->attr;
    const int32_t *labels = args->in[2];
    const int64_t rows = states[0]->rows, vocab = args->call->in[1].dims[0];
    float *lse = args->out[0], *hit = args->out[1];
    int64_t valid;
    TG_TRY(tg_labels_check(labels, rows, attr->total ? attr->total : vocab, attr->ignore_index, &valid));
    for (int64_t p = 0; p < attr->parts; p++) {
        int64_t begin, size;
        tg_mesh_cut(vocab, attr->parts, p, &begin, &size);
        ce_state *s = states[size != states[0]->vocab];
        const row_sums sums = row_sums_at(s, args->workspace);
        for (int64_t r = 0; r < rows; r++)
            sums.hit[r] = 0.0f;
        TG_TRY(sum_rows(s, args, row_of(s, args->in[1], begin), attr->begin + begin, sums));
        for (int64_t r = 0; r < rows; r++) {
            const bool ignored = labels[r] == attr->ignore_index;
            lse[r * attr->parts + p] = ignored ? 0.0f : sums.max[r] + logf(sums.sum[r]);
            hit[r] = (p ? hit[r] : 0.0f) + sums.hit[r];
        }
    }
    return TENG_OK;
}

/* ---- gradient ---- */
/* n logits of a row, entries v … of the vocabulary, become dlogits; T f32 writes in place. */
TG_INLINE void row_dlogits(teng_dtype T, float *logits, void *out, int64_t at, int64_t v, int64_t n,
                           int64_t label, float lse, float scale)
{
    const bool hit = label >= v && label < v + n;
    const float own = hit ? (expf(logits[label - v] - lse) - 1.0f) * scale : 0.0f;
    TG_VECTORS(i, len, 0, n)
    {
        tg_v_store_part(T, out, at + i, tg_v_exp(tg_v_load_part(TENG_F32, logits, i, len) - lse) * scale,
                        len);
    }
    if (hit) tg_v_store1(T, out, at + label - v, own);
}

static void tile_dlogits(const ce_state *s, const teng_kernel_args *args, int64_t r, int64_t v, float *tile,
                         void *out, float scale)
{
    const tg_linear_ce_attr *attr = args->call->attr;
    const int64_t n = vocab_at(s, v), rows = rows_at(s, r), ignore = attr->ignore_index;
    const int32_t *labels = (const int32_t *)args->in[2] + r;
    const float *lse = (const float *)args->in[3] + r;
    const int64_t size = teng_dtype_size(s->dtype);
    TG_PARALLEL_FOR(rows * n >= TG_PARALLEL_MIN)
    for (int64_t i = 0; i < rows; i++) {
        if (labels[i] == ignore)
            memset((char *)out + i * n * size, 0, (size_t)(n * size));
        else
            TG_FLOAT_SWITCH(
                s->dtype, T,
                row_dlogits(T, tile + i * n, out, i * n, v, n, labels[i] - attr->begin, lse[i], scale));
    }
}

/* out[at …] = factor · sums. */
static void round_sums(teng_dtype dtype, const float *sums, void *out, int64_t at, int64_t n, float factor)
{
    TG_PARALLEL_FOR(n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(n, TG_BLOCK); b++)
        TG_FLOAT_SWITCH(
            dtype, T, TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n)) {
                tg_v_store_part(T, out, at + i, tg_v_load_part(TENG_F32, sums, i, len) * factor, len);
            });
}

static teng_status run_grad(const teng_kernel_args *args)
{
    ce_state *s = args->state;
    char *workspace = args->workspace;
    const tg_linear_ce_attr *attr = args->call->attr;
    const bool f32 = s->dtype == TENG_F32; /* sums lie in the outputs */
    float *tile = (void *)(workspace + s->at[TILE]);
    void *dlogits = f32 ? (void *)tile : workspace + s->at[NARROW];
    void *dx_out = s->want[DX] ? args->out[0] : NULL,
         *dw_out = s->want[DW] ? args->out[s->want[DX] ? 1 : 0] : NULL;
    float *dx = f32 ? dx_out : (void *)(workspace + s->at[SUM_DX]);
    int64_t valid;
    TG_TRY(tg_labels_check(args->in[2], s->rows, attr->total ? attr->total : s->vocab, attr->ignore_index,
                           &valid));
    const double divisor = tg_labels_divisor(args, 5, valid);
    const float dy = *(const float *)args->in[4], scale = divisor > 0 ? (float)((double)dy / divisor) : 0.0f;
    if (!s->rows && dw_out) memset(dw_out, 0, (size_t)(s->vocab * s->width * teng_dtype_size(s->dtype)));
    if (!s->rows) return TENG_OK;
    for (int64_t v = 0; v < s->vocab; v += s->tile_vocab) {
        const void *w = row_of(s, args->in[1], v);
        float *dw = f32 && dw_out ? (float *)dw_out + v * s->width : (void *)(workspace + s->at[SUM_DW]);
        for (int64_t r = 0; r < s->rows; r += s->tile_rows) {
            const void *x = row_of(s, args->in[0], r);
            TG_TRY(multiply(s, LOGITS, r, v, x, w, tile, workspace));
            tile_dlogits(s, args, r, v, tile, dlogits, f32 ? scale : 1.0f);
            if (dx_out) TG_TRY(multiply(s, DX, r, v, dlogits, w, dx + r * s->width, workspace));
            if (dw_out) TG_TRY(multiply(s, DW, r, v, dlogits, x, dw, workspace));
        }
        if (dw_out && !f32) round_sums(s->dtype, dw, dw_out, v * s->width, vocab_at(s, v) * s->width, scale);
    }
    if (dx_out && !f32) round_sums(s->dtype, dx, dx_out, 0, s->rows * s->width, scale);
    return TENG_OK;
}

TG_KERNELS(tg_linear_cross_entropy_kernels) = {{"tiles", NULL, prepare, run, release}, {0}};
TG_KERNELS(tg_linear_lse_kernels) = {{"tiles", NULL, prepare_lse, run_lse, release_lse}, {0}};
TG_KERNELS(tg_linear_cross_entropy_grad_kernels) = {{"tiles", NULL, prepare_grad, run_grad, release}, {0}};
