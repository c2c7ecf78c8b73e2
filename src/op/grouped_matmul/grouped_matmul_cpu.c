/*
 * grouped_matmul and grouped_outer on oneDNN, whose products have fixed sizes while groups have not. A group
 * is cut into tiles of 256, 128, 64, 32 and 16 rows, largest first, one plan for each size; what is left is
 * copied into a tile of 16 with zeros below. So the cost follows the rows that are there, and nothing is
 * planned while running.
 */
#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu_gemm.h"
#include "op/cpu_kernel.h"
#include "op/cpu_rows.h"
#include "tensor/desc.h"

#define TILES 5
#define SMALLEST 16 /* rows of tile 0; each further one has twice as many */

typedef struct grouped_state {
    bool outer;
    teng_dtype dtype;
    int64_t rows, a_cols, b_cols, y_cols; /* outer: a, b; else x, -, y */
    tg_gemm_plan *plans[TILES][2];        /* outer: the first tile of a group overwrites, [1] adds */
    int tiles;
    size_t a_at, b_at,
        y_at; /* in the workspace: a padded tile of x or a, of b, and of y or the f32 sum of an outer */
} grouped_state;

static int64_t tile_rows(int tile)
{
    return (int64_t)SMALLEST << tile;
}

static void release(void *state)
{
    grouped_state *s = state;
    for (int t = 0; s && t < TILES; t++)
        for (int i = 0; i < 2; i++)
            tg_gemm_plan_destroy(&s->plans[t][i]);
    tg_free(s);
}

static size_t reserve(size_t *workspace, int64_t elements, int size)
{
    const size_t at = (*workspace + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
    *workspace = at + (size_t)(elements * size);
    return at;
}

static teng_status make_plan(const tg_gemm_spec *spec, tg_gemm_plan **plan, size_t *scratch)
{
    TG_TRY(tg_gemm_plan_create(spec, plan));
    if (tg_gemm_scratch(*plan) > *scratch) *scratch = tg_gemm_scratch(*plan);
    return TENG_OK;
}

static teng_status make_plans(grouped_state *s, bool trans, size_t *scratch)
{
    for (int t = 0; t < TILES && (t == 0 || tile_rows(t) <= s->rows); t++) {
        s->tiles = t + 1;
        tg_gemm_spec spec = {.a = s->dtype, .b = s->dtype, .c = s->outer ? TENG_F32 : s->dtype};
        if (s->outer) {
            spec.m = s->a_cols, spec.n = s->b_cols, spec.k = tile_rows(t), spec.trans_a = true;
        } else {
            spec.m = tile_rows(t), spec.n = s->y_cols, spec.k = s->a_cols, spec.trans_b = trans;
        }
        TG_TRY(make_plan(&spec, &s->plans[t][0], scratch));
        spec.accumulate = true;
        if (s->outer) TG_TRY(make_plan(&spec, &s->plans[t][1], scratch));
    }
    return TENG_OK;
}

static teng_status prepare_state(grouped_state *s, bool trans, teng_prepared *out)
{
    size_t workspace = 0;
    const int size = teng_dtype_size(s->dtype);
    const bool empty = !s->rows || !s->a_cols || (s->outer ? !s->b_cols : !s->y_cols);
    const teng_status status = empty ? TENG_OK : make_plans(s, trans, &workspace);
    if (status != TENG_OK) {
        release(s);
        return status;
    }
    s->a_at = reserve(&workspace, SMALLEST * s->a_cols, size);
    s->b_at = reserve(&workspace, s->outer ? SMALLEST * s->b_cols : 0, size);
    s->y_at =
        reserve(&workspace, s->outer ? s->a_cols * s->b_cols : SMALLEST * s->y_cols, s->outer ? 4 : size);
    *out = (teng_prepared){s, workspace};
    return TENG_OK;
}

static teng_status prepare(const teng_op_call *call, teng_prepared *out)
{
    grouped_state *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    s->dtype = call->in[0].dtype;
    s->rows = call->in[0].dims[0];
    s->a_cols = call->in[0].dims[1];
    s->y_cols = call->out[0].dims[1];
    return prepare_state(s, *(const int64_t *)call->attr != 0, out);
}

static teng_status prepare_outer(const teng_op_call *call, teng_prepared *out)
{
    grouped_state *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    s->outer = true;
    s->dtype = call->in[0].dtype;
    s->rows = call->in[0].dims[0];
    s->a_cols = call->in[0].dims[1];
    s->b_cols = call->in[1].dims[1];
    return prepare_state(s, false, out);
}

static teng_status check_counts(const int32_t *counts, int64_t groups, int64_t rows, int64_t *total)
{
    *total = 0;
    for (int64_t g = 0; g < groups; g++) {
        if (counts[g] < 0)
            return tg_fail(TENG_INVALID, "counts[%lld] is %d; a group cannot be smaller than empty",
                           (long long)g, counts[g]);
        *total += counts[g];
    }
    if (*total <= rows) return TENG_OK;
    return tg_fail(TENG_INVALID, "counts sum to %lld, there are %lld rows", (long long)*total,
                   (long long)rows);
}

/* Rows at … of a matrix, `n` of them, in a tile of SMALLEST rows with zeros below. */
static const void *pad(const grouped_state *s, const void *matrix, int64_t at, int64_t n, int64_t cols,
                       char *tile)
{
    const size_t row = (size_t)(cols * teng_dtype_size(s->dtype));
    memcpy(tile, (const char *)matrix + (size_t)at * row, (size_t)n * row);
    memset(tile + (size_t)n * row, 0, (size_t)(SMALLEST - n) * row);
    return tile;
}

/* The largest tile that fits n rows; -1: less than the smallest. */
static int tile_for(const grouped_state *s, int64_t n)
{
    int t = s->tiles - 1;
    while (t >= 0 && tile_rows(t) > n)
        t--;
    return t;
}

static teng_status multiply_group(const grouped_state *s, const teng_kernel_args *args, const void *w,
                                  int64_t at, int64_t n)
{
    char *workspace = args->workspace, *y = args->out[0];
    const size_t x_row = (size_t)(s->a_cols * teng_dtype_size(s->dtype)),
                 y_row = (size_t)(s->y_cols * teng_dtype_size(s->dtype));
    while (n > 0) {
        const int t = tile_for(s, n);
        if (t < 0) {
            const void *x = pad(s, args->in[0], at, n, s->a_cols, workspace + s->a_at);
            TG_TRY(tg_gemm_run(s->plans[0][0], x, w, NULL, workspace + s->y_at, workspace));
            memcpy(y + (size_t)at * y_row, workspace + s->y_at, (size_t)n * y_row);
            return TENG_OK;
        }
        TG_TRY(tg_gemm_run(s->plans[t][0], (const char *)args->in[0] + (size_t)at * x_row, w, NULL,
                           y + (size_t)at * y_row, workspace));
        at += tile_rows(t);
        n -= tile_rows(t);
    }
    return TENG_OK;
}

static teng_status run(const teng_kernel_args *args)
{
    const grouped_state *s = args->state;
    const int32_t *counts = args->in[2];
    const teng_desc *w = &args->call->in[1];
    const size_t matrix = (size_t)(w->dims[1] * w->dims[2] * teng_dtype_size(w->dtype)),
                 y_row = (size_t)(s->y_cols * teng_dtype_size(s->dtype));
    int64_t total, at = 0;
    TG_TRY(check_counts(counts, w->dims[0], s->rows, &total));
    if (!s->tiles) total = 0; /* nothing to sum over, or nothing to write */
    for (int64_t g = 0; g < w->dims[0] && s->tiles; at += counts[g++])
        TG_TRY(multiply_group(s, args, (const char *)args->in[1] + (size_t)g * matrix, at, counts[g]));
    memset((char *)args->out[0] + (size_t)total * y_row, 0, (size_t)(s->rows - total) * y_row);
    return TENG_OK;
}

static teng_status outer_group(const grouped_state *s, const teng_kernel_args *args, float *sum, int64_t at,
                               int64_t n)
{
    char *workspace = args->workspace;
    const size_t size = (size_t)teng_dtype_size(s->dtype);
    for (bool first = true; n > 0; first = false) {
        const int t = tile_for(s, n);
        const void *a = (const char *)args->in[0] + (size_t)(at * s->a_cols) * size;
        const void *b = (const char *)args->in[1] + (size_t)(at * s->b_cols) * size;
        if (t < 0) {
            a = pad(s, args->in[0], at, n, s->a_cols, workspace + s->a_at);
            b = pad(s, args->in[1], at, n, s->b_cols, workspace + s->b_at);
        }
        TG_TRY(tg_gemm_run(s->plans[t < 0 ? 0 : t][!first], a, b, NULL, sum, workspace));
        at += tile_rows(t < 0 ? 0 : t);
        n -= tile_rows(t < 0 ? 0 : t);
    }
    return TENG_OK;
}

static void round_sum(teng_dtype dtype, const float *sum, void *out, int64_t at, int64_t n)
{
    TG_PARALLEL_FOR(n >= TG_PARALLEL_MIN)
    for (int64_t b = 0; b < tg_blocks(n, TG_BLOCK); b++)
        TG_FLOAT_SWITCH(
            dtype, T, TG_VECTORS(i, len, b * TG_BLOCK, tg_block_end(b, TG_BLOCK, n)) {
                tg_v_store_part(T, out, at + i, tg_v_load_part(TENG_F32, sum, i, len), len);
            });
}

static teng_status run_outer(const teng_kernel_args *args)
{
    const grouped_state *s = args->state;
    const int32_t *counts = args->in[2];
    const int64_t groups = args->call->in[2].dims[0], matrix = s->a_cols * s->b_cols;
    const int size = teng_dtype_size(s->dtype);
    int64_t total, at = 0;
    TG_TRY(check_counts(counts, groups, s->rows, &total));
    for (int64_t g = 0; g < groups; at += counts[g++]) {
        char *to = (char *)args->out[0] + (size_t)(g * matrix * size);
        if (!counts[g] || !s->tiles) {
            memset(to, 0, (size_t)(matrix * size));
            continue;
        }
        float *sum =
            s->dtype == TENG_F32 ? (float *)(void *)to : (float *)(void *)((char *)args->workspace + s->y_at);
        TG_TRY(outer_group(s, args, sum, at, counts[g]));
        if (s->dtype != TENG_F32) round_sum(s->dtype, sum, args->out[0], g * matrix, matrix);
    }
    return TENG_OK;
}

TG_KERNELS(tg_grouped_matmul_kernels) = {{"oneDNN, tiles of rows", NULL, prepare, run, release}, {0}};
TG_KERNELS(tg_grouped_outer_kernels) = {{"oneDNN, tiles of rows", NULL, prepare_outer, run_outer, release},
                                        {0}};
