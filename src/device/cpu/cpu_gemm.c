/*
 * Matrix products on oneDNN's matmul primitive. Where this CPU has no bf16 or f16 product, the plan converts
 * the operands to f32 in its scratch and multiplies there: right, and slow; its name says so. Layouts are
 * taken as they are: the caller's strides go to oneDNN, which packs blocks itself. A single product goes one
 * of several ways (tg_gemm_way); unless the caller names one, its sizes and the threads decide, so the same
 * product gives the same bits in every run. Large ones copy B first, whole, into the layout that oneDNN likes
 * best: it would pack the same blocks again and again. Where A is stored transposed, each thread makes a
 * product of its own for a part of C, whole in k, which is faster than one product that oneDNN shares out. A
 * strict plan cuts C into blocks by its sizes alone; each is a product made for one thread, and our threads
 * share the blocks out. What a block gives then depends on nothing but its operands.
 */
#include "device/cpu_gemm.h"

#include "base/fail.h"
#include "base/mem.h"
#include "device/cpu/gemm_dnnl.h"
#include "device/cpu_isa.h"
#include "device/cpu_products.h"
#include "tensor/desc.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ARG_A, ARG_B, ARG_C, ARG_PAD, ARG_BIAS, ARG_COUNT };

typedef struct matrix { /* a stack of stored matrices */
    teng_dtype dtype;
    int64_t batch, rows, cols, ld, stride;
} matrix;

/* C in blocks of m by n; blocks at the far edges may be smaller, so there are up to four sizes. */
typedef struct blocks {
    int threads; /* that run them */
    int64_t m, n, across_m, across_n;
    size_t step[ARG_COUNT][2]; /* bytes from a block to the next along m and n, of A, B, C and the bias */
    tg_gemm_plan *part[4];     /* [size]: an array of [threads]; NULL: no such block */
    size_t pad_bytes;          /* scratch of one thread */
} blocks;

typedef struct copy {         /* of A or B, into the layout that the product takes */
    dnnl_primitive_t reorder; /* NULL: taken as it is */
    dnnl_exec_arg_t args[2];
    size_t at, bytes; /* in scratch */
} copy;

struct tg_gemm_plan {
    copy copies[2]; /* of A and B */
    bool packed_b;  /* the caller copies B */
    blocks *blocks; /* shared out: instead of a product of its own */
    dnnl_stream_t stream;
    dnnl_primitive_t product;
    dnnl_exec_arg_t args[ARG_COUNT];
    int n_args;
    size_t pad_bytes; /* of oneDNN, at the start of scratch */
    int64_t loops;    /* products run one after the other: 1 unless oneDNN declines the batch */
    size_t step[3];   /* bytes from one of them to the next in A, B, C */
    bool widen, accumulate;
    matrix narrow[3];  /* widen: A, B, C as the caller stores them */
    size_t wide_at[3]; /* and where their f32 copies lie in scratch; C: only if it is not f32 */
    size_t scratch;
    char impl[64];
    tg_gemm_spec spec; /* complete, as it was asked for */
};

static dnnl_engine_t engine; /* one for the process, never destroyed: oneDNN's own caches refer to it */
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;
static bool strict;

static void make_engine(void)
{
    if (tg_cpu_isa_current() < tg_cpu_isa_best()) dnnl_set_max_cpu_isa(tg_dnnl_isa(tg_cpu_isa_current()));
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

static const char *dnnl_reason(dnnl_status_t status)
{
    switch (status) {
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_unimplemented:
        return "not implemented for this CPU";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    default:
        return "runtime error";
    }
}

static dnnl_data_type_t dnnl_type(teng_dtype t)
{
    return t == TENG_F32 ? dnnl_f32 : t == TENG_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* ---- specification ---- */

static bool size_ok(int64_t batch, int64_t rows, int64_t ld, int64_t stride)
{
    int64_t all;
    return !__builtin_mul_overflow(rows, ld, &all) && !__builtin_mul_overflow(batch, stride, &all) &&
           all <= INT64_MAX / 16;
}

/* Sizes and dtypes; a constant message when they are wrong. */
static const char *check_sizes(const tg_gemm_spec *s)
{
    if (s->m < 1 || s->n < 1 || s->k < 1 || s->batch < 1) return "matrix product sizes must be at least 1";
    if (s->m > INT32_MAX || s->n > INT32_MAX || s->k > INT32_MAX || s->batch > INT32_MAX)
        return "matrix product sizes must be below 2^31";
    if (s->a != s->b) return "both factors of a matrix product must have one dtype";
    if (s->a != TENG_F32 && s->a != TENG_BF16 && s->a != TENG_F16)
        return "matrix products exist for f32, bf16 and f16 only";
    if (s->c != TENG_F32 && s->c != s->a)
        return "the result of a matrix product is f32 or the dtype of its factors";
    return NULL;
}

/* Row strides that were left 0 become dense. */
static const char *complete_rows(tg_gemm_spec *s)
{
    const int64_t cols_a = s->trans_a ? s->m : s->k, cols_b = s->trans_b ? s->k : s->n;
    if (!s->lda) s->lda = cols_a;
    if (!s->ldb) s->ldb = cols_b;
    if (!s->ldc) s->ldc = s->n;
    if (s->lda < cols_a || s->ldb < cols_b || s->ldc < s->n)
        return "a row stride of a matrix product is shorter than its row";
    return NULL;
}

/* Batch strides that were left 0 become dense, those of a shared factor 0. */
static const char *complete_batch(tg_gemm_spec *s)
{
    const int64_t rows_a = s->trans_a ? s->k : s->m, rows_b = s->trans_b ? s->n : s->k;
    if (s->shared_a) s->stride_a = 0;
    if (s->shared_b) s->stride_b = 0;
    if (!s->stride_a && !s->shared_a) s->stride_a = rows_a * s->lda;
    if (!s->stride_b && !s->shared_b) s->stride_b = rows_b * s->ldb;
    if (!s->stride_c) s->stride_c = s->m * s->ldc;
    if (s->stride_a < 0 || s->stride_b < 0) return "a batch stride of a matrix product is negative";
    /* Products of a batch may be interleaved by rows (heads): then the row stride spans them. */
    if (s->batch > 1 && s->stride_c < (s->m - 1) * s->ldc + s->n &&
        s->ldc < (s->batch - 1) * s->stride_c + s->n)
        return "the results of a batch of matrix products overlap";
    if (!size_ok(s->batch, rows_a, s->lda, s->stride_a) || !size_ok(s->batch, rows_b, s->ldb, s->stride_b) ||
        !size_ok(s->batch, s->m, s->ldc, s->stride_c))
        return "a matrix product is larger than memory can be";
    return NULL;
}

/* Fills defaults; a constant message when the specification is wrong. */
static const char *complete(tg_gemm_spec *s)
{
    if (!s->batch) s->batch = 1;
    const char *wrong = check_sizes(s);
    if (!wrong) wrong = complete_rows(s);
    if (!wrong) wrong = complete_batch(s);
    if (wrong) return wrong;
    /* One shared B and rows of A and C that follow on: a single tall product. */
    if (s->batch > 1 && s->shared_b && !s->shared_a && !s->trans_a && s->stride_a == s->m * s->lda &&
        s->stride_c == s->m * s->ldc && s->m <= INT32_MAX / s->batch) {
        s->m *= s->batch;
        s->batch = 1;
    }
    return NULL;
}

static matrix matrix_a(const tg_gemm_spec *s)
{
    return (matrix){
        s->a,       s->shared_a ? 1 : s->batch, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda,
        s->stride_a};
}

static matrix matrix_b(const tg_gemm_spec *s)
{
    return (matrix){
        s->b,       s->shared_b ? 1 : s->batch, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb,
        s->stride_b};
}

static matrix matrix_c(const tg_gemm_spec *s)
{
    return (matrix){s->c, s->batch, s->m, s->n, s->ldc, s->stride_c};
}

static tg_dnnl_view view_of(const matrix *x, bool trans, bool batched)
{
    tg_dnnl_view v = {.ndims = batched ? 3 : 2, .dtype = dnnl_type(x->dtype)};
    int at = 0;
    if (batched) {
        v.dims[0] = x->batch;
        v.strides[0] = x->batch == 1 ? x->rows * x->ld : x->stride;
        at = 1;
    }
    v.dims[at] = trans ? x->cols : x->rows;
    v.dims[at + 1] = trans ? x->rows : x->cols;
    v.strides[at] = trans ? 1 : x->ld;
    v.strides[at + 1] = trans ? x->ld : 1;
    return v;
}

static tg_dnnl_view view_bias(int64_t n, bool batched)
{
    tg_dnnl_view v = {.ndims = batched ? 3 : 2, .dtype = dnnl_f32};
    for (int i = 0; i < v.ndims; i++) {
        v.dims[i] = i == v.ndims - 1 ? n : 1;
        v.strides[i] = i == v.ndims - 1 ? 1 : n;
    }
    return v;
}

/* ---- plan ---- */

static size_t round_up(size_t bytes)
{
    return (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
}

static dnnl_status_t add_arg(tg_gemm_plan *plan, int name, const tg_dnnl_view *view)
{
    dnnl_exec_arg_t *arg = &plan->args[plan->n_args];
    arg->arg = name;
    dnnl_status_t status = tg_dnnl_memory(engine, view, &arg->memory);
    if (status == dnnl_success) plan->n_args++;
    return status;
}

static dnnl_status_t make_attr(bool accumulate, dnnl_primitive_attr_t *out)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_fpmath_mode(attr, dnnl_fpmath_mode_strict);
    if (status == dnnl_success && accumulate) {
        status = dnnl_post_ops_create(&ops);
        if (status == dnnl_success) status = tg_dnnl_post_sum(ops);
        if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
        if (ops) dnnl_post_ops_destroy(ops);
    }
    if (status != dnnl_success && attr) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    *out = attr;
    return status;
}

static dnnl_status_t make_desc(const tg_gemm_spec *s, const tg_dnnl_view v[3], const tg_dnnl_view *bias,
                               dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = make_attr(s->accumulate, &attr);
    if (status != dnnl_success) return status;
    status = tg_dnnl_matmul(engine, attr, &v[0], &v[1], s->bias ? bias : NULL, &v[2], out);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* Not the scalar reference, which oneDNN falls back to for some types and batches. */
static bool usable(dnnl_primitive_desc_t pd)
{
    const char *impl = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl);
    return impl && !strstr(impl, "ref:any") && strcmp(impl, "ref");
}

/* The product takes the argument `which` (ARG_A, ARG_B) in another layout than the caller's. */
static dnnl_status_t add_copy(tg_gemm_plan *plan, dnnl_primitive_desc_t pd, int which,
                              const tg_dnnl_view *stored)
{
    const int name = which == ARG_A ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS;
    copy *own = &plan->copies[which];
    dnnl_memory_t memory = NULL;
    dnnl_status_t status = tg_dnnl_memory(engine, stored, &memory);
    if (status != dnnl_success) return status;
    own->args[0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, memory};
    status = tg_dnnl_chosen(engine, pd, name, &memory, &own->bytes);
    if (status != dnnl_success) return status;
    own->args[1] = (dnnl_exec_arg_t){DNNL_ARG_TO, memory};
    plan->args[plan->n_args++] = (dnnl_exec_arg_t){name, memory};
    return tg_dnnl_reorder(engine, own->args[0].memory, memory, &own->reorder);
}

static void place_copies(tg_gemm_plan *plan)
{
    plan->scratch = round_up(plan->pad_bytes);
    for (int i = 0; i < 2; i++)
        if (plan->copies[i].reorder && !(i == ARG_B && plan->packed_b)) {
            plan->copies[i].at = plan->scratch;
            plan->scratch += round_up(plan->copies[i].bytes);
        }
}

static dnnl_status_t add_scratchpad(tg_gemm_plan *plan, dnnl_primitive_desc_t pd)
{
    dnnl_exec_arg_t *arg = &plan->args[plan->n_args];
    arg->arg = DNNL_ARG_SCRATCHPAD;
    const dnnl_status_t status = tg_dnnl_scratchpad(engine, pd, &arg->memory, &plan->pad_bytes);
    if (status == dnnl_success) plan->n_args++;
    return status;
}

/* One product of oneDNN, going any way that does not share out. */
static dnnl_status_t build(const tg_gemm_spec *s, tg_gemm_way way, tg_gemm_plan *plan)
{
    const bool batched = s->batch > 1, rows_of_a = way == TG_GEMM_COPY_AB,
               copied = rows_of_a || way == TG_GEMM_COPY_B || way == TG_GEMM_PACKED;
    matrix a = matrix_a(s), b = matrix_b(s), c = matrix_c(s);
    const tg_dnnl_view stored[2] = {view_of(&a, s->trans_a, batched), view_of(&b, s->trans_b, batched)};
    tg_dnnl_view v[3] = {stored[0], stored[1], view_of(&c, false, batched)};
    tg_dnnl_view bias = view_bias(s->n, batched);
    v[ARG_B].any = copied;
    if (rows_of_a) v[ARG_A].strides[0] = s->k, v[ARG_A].strides[1] = 1;
    plan->packed_b = way == TG_GEMM_PACKED;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = make_desc(s, v, &bias, &pd);
    if (status != dnnl_success) return status;
    if ((s->a != TENG_F32 || batched) && !usable(pd)) status = dnnl_unimplemented;
    const char *impl = "";
    if (status == dnnl_success)
        status = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl);
    snprintf(plan->impl, sizeof plan->impl, copied ? "%s, %s" : "%s", impl, tg_gemm_way_name(way));
    if (status == dnnl_success)
        status = rows_of_a ? add_copy(plan, pd, ARG_A, &stored[ARG_A]) : add_arg(plan, DNNL_ARG_SRC, &v[0]);
    if (status == dnnl_success)
        status = copied ? add_copy(plan, pd, ARG_B, &stored[ARG_B]) : add_arg(plan, DNNL_ARG_WEIGHTS, &v[1]);
    if (status == dnnl_success) status = add_arg(plan, DNNL_ARG_DST, &v[2]);
    if (status == dnnl_success) status = add_scratchpad(plan, pd);
    if (status == dnnl_success && s->bias) status = add_arg(plan, DNNL_ARG_BIAS, &bias);
    if (status == dnnl_success) status = dnnl_primitive_create(&plan->product, pd);
    if (status == dnnl_success) status = dnnl_stream_create(&plan->stream, engine, dnnl_stream_default_flags);
    dnnl_primitive_desc_destroy(pd);
    place_copies(plan);
    return status;
}

static void clear(tg_gemm_plan *plan)
{
    for (int i = 0; plan->blocks && i < 4; i++) {
        for (int t = 0; plan->blocks->part[i] && t < plan->blocks->threads; t++)
            clear(&plan->blocks->part[i][t]);
        tg_free(plan->blocks->part[i]);
    }
    tg_free(plan->blocks);
    for (int i = 0; i < plan->n_args; i++)
        dnnl_memory_destroy(plan->args[i].memory);
    for (int i = 0; i < 2; i++) {
        if (plan->copies[i].args[0].memory) dnnl_memory_destroy(plan->copies[i].args[0].memory);
        if (plan->copies[i].reorder) dnnl_primitive_destroy(plan->copies[i].reorder);
    }
    if (plan->product) dnnl_primitive_destroy(plan->product);
    if (plan->stream) dnnl_stream_destroy(plan->stream);
    memset(plan, 0, sizeof *plan);
}

static size_t wide_bytes(const matrix *x)
{
    return round_up((size_t)(x->batch * x->rows * x->cols) * sizeof(float));
}

/* ---- ways ---- */
void tg_gemm_set_strict(bool on)
{
    strict = on;
}

const char *tg_gemm_way_name(tg_gemm_way way)
{
    static const char *const names[TG_GEMM_WAYS] = {
        [TG_GEMM_BY_SIZES] = "by sizes",    [TG_GEMM_STORED] = "as stored",
        [TG_GEMM_COPY_B] = "b copied",      [TG_GEMM_COPY_AB] = "a and b copied",
        [TG_GEMM_ROWS] = "rows shared out", [TG_GEMM_COLUMNS] = "columns shared out",
        [TG_GEMM_PACKED] = "b packed once"};
    return names[way];
}

static int64_t pieces_of(int64_t size, int64_t pieces, int64_t *step)
{
    enum { ROUND = 64 };
    *step = pieces == 1 ? size : ((size + pieces - 1) / pieces + ROUND - 1) / ROUND * ROUND;
    return (size + *step - 1) / *step;
}

/* Strict: sizes of blocks, from the product's sizes alone: enough for the threads of a large machine, few
 * enough that packing operands again for each block costs little; no narrower than what fills a core. */
static void choose_blocks(const tg_gemm_spec *s, blocks *b)
{
    enum { NARROW = 128, MOST = 256 };
    const double wanted = sqrt((double)s->m * (double)s->n * (double)s->k / 1e6);
    int64_t p = 1, q = 1;
    while (p * q < MOST && (double)(p * q) < wanted) {
        const bool m_fits = s->m / p >= 2 * NARROW, n_fits = s->n / q >= 2 * NARROW;
        if (m_fits && (!n_fits || s->m / p >= s->n / q))
            p *= 2;
        else if (n_fits)
            q *= 2;
        else
            break;
    }
    b->across_m = pieces_of(s->m, p, &b->m);
    b->across_n = pieces_of(s->n, q, &b->n);
}

/* A block for each thread, two for one thread alone (whose blocks are then no larger than those of two):
 * as many along one side as may be, the rest along the other. False: they would be too small. */
static bool share_out(const tg_gemm_spec *s, tg_gemm_way way, int threads, blocks *b)
{
    enum { LEAST = 128 };
    const bool rows = way == TG_GEMM_ROWS;
    const int64_t size = rows ? s->m : s->n, pieces = threads > 1 ? threads : 2;
    int64_t first = pieces;
    while (first > 1 && (pieces % first || size / first < LEAST))
        first--;
    b->threads = threads;
    b->across_m = pieces_of(s->m, rows ? first : pieces / first, &b->m);
    b->across_n = pieces_of(s->n, rows ? pieces / first : first, &b->n);
    return s->batch == 1 && b->m >= LEAST && b->n >= LEAST && b->across_m * b->across_n == pieces;
}

bool tg_gemm_can(const tg_gemm_spec *spec, tg_gemm_way way)
{
    blocks b;
    tg_gemm_spec s = *spec;
    if (way == TG_GEMM_BY_SIZES) return true;
    if (strict || complete(&s) || s.batch > 1) return false;
    if (way == TG_GEMM_ROWS || way == TG_GEMM_COLUMNS) return share_out(&s, way, omp_get_max_threads(), &b);
    if (way == TG_GEMM_COPY_AB) return s.trans_a;
    return way != TG_GEMM_PACKED || s.packed_b;
}

/* Measured on AVX-512 CPUs. Products of one thread on a part of C beat one that oneDNN shares out where A is
 * transposed (768 x 2304 x 4096, bf16 on two cores: 856 GFLOP/s, 755 with both copied, 733 as stored), and
 * where the sum is long (docs/performance.md). Else a large product copies B: 4096 x 768 x 3072 with B as
 * rows 340 to 370 GFLOP/s, transposed 375 to 395, copied 400 to 410. */
tg_gemm_way tg_gemm_by_sizes(const tg_gemm_spec *spec)
{
    enum { LEAST = 512, LEAST_TRANSPOSED = 2048, THIN = 256, LONG = 16384 };
    const tg_gemm_spec *s = spec;
    if (strict || s->batch > 1) return TG_GEMM_STORED;
    if (s->trans_a && s->k >= THIN && tg_gemm_can(s, TG_GEMM_ROWS)) return TG_GEMM_ROWS;
    if (!s->trans_b && s->k >= LONG && tg_gemm_can(s, TG_GEMM_COLUMNS)) return TG_GEMM_COLUMNS;
    if (s->packed_b) return TG_GEMM_PACKED;
    if (s->m < (s->trans_b && !s->trans_a ? LEAST_TRANSPOSED : LEAST) || s->n < THIN || s->k < THIN)
        return TG_GEMM_STORED;
    return s->trans_a && s->m <= s->n ? TG_GEMM_COPY_AB : TG_GEMM_COPY_B;
}

/* ---- shared out ---- */
static void set_steps(const tg_gemm_spec *s, blocks *b)
{
    const size_t in = (size_t)teng_dtype_size(s->a), out = (size_t)teng_dtype_size(s->c);
    b->step[ARG_A][0] = in * (size_t)(s->trans_a ? b->m : b->m * s->lda);
    b->step[ARG_B][1] = in * (size_t)(s->trans_b ? b->n * s->ldb : b->n);
    b->step[ARG_C][0] = out * (size_t)(b->m * s->ldc);
    b->step[ARG_C][1] = out * (size_t)b->n;
    b->step[ARG_BIAS][1] = sizeof(float) * (size_t)b->n;
}

/* One product of a block's size for each thread: an argument list is one thread's. */
static dnnl_status_t build_part(const tg_gemm_spec *s, blocks *b, int size)
{
    tg_gemm_spec part = *s;
    part.m = size & 1 ? s->m % b->m : s->m < b->m ? s->m : b->m;
    part.n = size & 2 ? s->n % b->n : s->n < b->n ? s->n : b->n;
    if (part.m == 0 || part.n == 0) return dnnl_success;
    b->part[size] = tg_calloc((size_t)b->threads, sizeof *b->part[size]);
    if (!b->part[size]) return dnnl_out_of_memory;
    for (int t = 0; t < b->threads; t++) {
        const dnnl_status_t status = build(&part, TG_GEMM_STORED, &b->part[size][t]);
        if (status != dnnl_success) return status;
        if (b->part[size][t].scratch > b->pad_bytes) b->pad_bytes = b->part[size][t].scratch;
    }
    return dnnl_success;
}

/* A single product, not a batch. oneDNN decides by OpenMP's threads when a product is made. */
static dnnl_status_t build_blocks(const tg_gemm_spec *s, tg_gemm_way way, tg_gemm_plan *plan)
{
    blocks *b = plan->blocks = tg_calloc(1, sizeof *b);
    if (!b) return dnnl_out_of_memory;
    b->threads = omp_get_max_threads();
    if (strict)
        choose_blocks(s, b);
    else
        share_out(s, way, b->threads, b);
    set_steps(s, b);
    dnnl_status_t status = dnnl_success;
    omp_set_num_threads(1);
    for (int size = 0; size < 4 && status == dnnl_success; size++)
        status = build_part(s, b, size);
    omp_set_num_threads(b->threads);
    if (status != dnnl_success) return status;
    snprintf(plan->impl, sizeof plan->impl, "%s %lld x %lld, %.32s",
             strict ? "strict" : tg_gemm_way_name(way), (long long)b->across_m, (long long)b->across_n,
             b->part[0][0].impl);
    plan->scratch = b->pad_bytes * (size_t)b->threads;
    return dnnl_success;
}

static dnnl_status_t build_single(const tg_gemm_spec *s, tg_gemm_plan *plan)
{
    const tg_gemm_way way =
        s->way != TG_GEMM_BY_SIZES && tg_gemm_can(s, s->way) ? s->way : tg_gemm_by_sizes(s);
    return strict || way == TG_GEMM_ROWS || way == TG_GEMM_COLUMNS ? build_blocks(s, way, plan)
                                                                   : build(s, way, plan);
}

/* A batch that oneDNN declines, or would run as a scalar reference, becomes a loop over single products. */
static dnnl_status_t build_or_loop(const tg_gemm_spec *s, tg_gemm_plan *plan)
{
    plan->loops = 1;
    if (s->batch == 1) return build_single(s, plan);
    /* It knows no batch of one pair of factors. */
    const bool one_pair = s->shared_a && s->shared_b;
    const dnnl_status_t status = one_pair || strict ? dnnl_unimplemented : build(s, TG_GEMM_STORED, plan);
    if (status != dnnl_unimplemented) return status;
    tg_gemm_spec one = *s;
    one.batch = 1;
    clear(plan);
    plan->loops = s->batch;
    plan->step[ARG_A] = s->shared_a ? 0 : (size_t)(s->stride_a * teng_dtype_size(s->a));
    plan->step[ARG_B] = s->shared_b ? 0 : (size_t)(s->stride_b * teng_dtype_size(s->b));
    plan->step[ARG_C] = (size_t)(s->stride_c * teng_dtype_size(s->c));
    return build_single(&one, plan);
}

/* The product of f32 copies, dense in scratch. */
static dnnl_status_t build_wide(const tg_gemm_spec *s, tg_gemm_plan *plan)
{
    tg_gemm_spec w = *s;
    w.a = w.b = w.c = TENG_F32;
    w.packed_b = false;
    w.lda = w.ldb = w.stride_a = w.stride_b = 0;
    if (s->c != TENG_F32) w.ldc = w.stride_c = 0;
    if (complete(&w)) return dnnl_invalid_arguments;
    dnnl_status_t status = build_or_loop(&w, plan);
    if (status != dnnl_success) return status;
    char inner[48];
    snprintf(inner, sizeof inner, "%.40s", plan->impl);
    snprintf(plan->impl, sizeof plan->impl, "%s as f32, %s", teng_dtype_name(s->a), inner);
    plan->widen = true;
    plan->accumulate = s->accumulate;
    matrix narrow[3] = {matrix_a(s), matrix_b(s), matrix_c(s)};
    for (int i = 0; i < 3; i++) {
        plan->narrow[i] = narrow[i];
        plan->wide_at[i] = plan->scratch;
        if (narrow[i].dtype != TENG_F32) plan->scratch += wide_bytes(&narrow[i]);
    }
    return dnnl_success;
}

const char *tg_gemm_refuse(const tg_gemm_spec *spec)
{
    tg_gemm_spec s = *spec;
    return complete(&s);
}

bool tg_gemm_native(teng_dtype dtype)
{
    pthread_once(&engine_once, make_engine);
    tg_gemm_spec s = {.a = dtype, .b = dtype, .c = TENG_F32, .m = 64, .n = 64, .k = 64};
    if (!engine || complete(&s)) return false;
    matrix a = matrix_a(&s), b = matrix_b(&s), c = matrix_c(&s);
    tg_dnnl_view v[3] = {view_of(&a, false, false), view_of(&b, false, false), view_of(&c, false, false)};
    dnnl_primitive_desc_t pd = NULL;
    if (make_desc(&s, v, NULL, &pd) != dnnl_success) return false;
    bool ok = dtype == TENG_F32 || usable(pd);
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

teng_status tg_gemm_plan_create(const tg_gemm_spec *spec, tg_gemm_plan **out)
{
    *out = NULL;
    tg_gemm_spec s = *spec;
    const char *why = complete(&s);
    if (why)
        return tg_fail(TENG_INVALID, "%s (m %lld, n %lld, k %lld, batch %lld, %s x %s -> %s)", why,
                       (long long)s.m, (long long)s.n, (long long)s.k, (long long)s.batch,
                       teng_dtype_name(s.a), teng_dtype_name(s.b), teng_dtype_name(s.c));
    pthread_once(&engine_once, make_engine);
    if (!engine)
        return tg_fail(TENG_UNSUPPORTED, "oneDNN has no CPU engine here: its library was built without one");
    tg_gemm_plan *plan = tg_calloc(1, sizeof *plan);
    if (!plan) return TENG_MEMORY;
    const tg_gemm_spec asked = s;
    if (s.way == TG_GEMM_BY_SIZES) s.way = tg_products_find(&s);
    dnnl_status_t status = build_or_loop(&s, plan);
    if (status == dnnl_unimplemented && s.a != TENG_F32) {
        clear(plan);
        status = build_wide(&s, plan);
    }
    if (status != dnnl_success) {
        tg_gemm_plan_destroy(&plan);
        return tg_fail(status == dnnl_out_of_memory ? TENG_MEMORY : TENG_UNSUPPORTED,
                       "oneDNN makes no %s product of m %lld, n %lld, k %lld, batch %lld: %s",
                       teng_dtype_name(s.a), (long long)s.m, (long long)s.n, (long long)s.k,
                       (long long)s.batch, dnnl_reason(status));
    }
    plan->spec = asked;
    *out = plan;
    return TENG_OK;
}

void tg_gemm_again(const tg_gemm_plan *plan)
{
    (void)tg_products_find(&plan->spec);
}

void tg_gemm_plan_destroy(tg_gemm_plan **plan)
{
    if (!plan || !*plan) return;
    clear(*plan);
    tg_free(*plan);
    *plan = NULL;
}

size_t tg_gemm_scratch(const tg_gemm_plan *plan)
{
    return plan->scratch;
}

const char *tg_gemm_impl(const tg_gemm_plan *plan)
{
    return plan->impl;
}

/* ---- run ---- */

/* Between the caller's strided rows and dense f32 rows. */
static void convert_rows(const matrix *x, bool to_wide, char *narrow, float *wide)
{
    int64_t rows = x->batch * x->rows;
    size_t size = (size_t)teng_dtype_size(x->dtype);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        char *row = narrow + size * (size_t)(r / x->rows * x->stride + r % x->rows * x->ld);
        if (to_wide)
            tg_convert(TENG_F32, wide + r * x->cols, x->dtype, row, x->cols);
        else
            tg_convert(x->dtype, row, TENG_F32, wide + r * x->cols, x->cols);
    }
}

static float *wide_copy(const tg_gemm_plan *plan, int which, const void *narrow, void *scratch, bool fill)
{
    float *wide = (float *)(void *)((char *)scratch + plan->wide_at[which]);
    union { /* rows are only read in this direction */
        const void *in;
        char *rows;
    } from = {narrow};
    if (fill) convert_rows(&plan->narrow[which], true, from.rows, wide);
    return wide;
}

static dnnl_status_t set(dnnl_memory_t memory, const void *buffer)
{
    union { /* oneDNN takes no const; inputs are only read */
        const void *in;
        void *out;
    } handle = {buffer};
    return dnnl_memory_set_data_handle(memory, handle.out);
}

static dnnl_status_t run_one(tg_gemm_plan *plan, const char *a, const char *b, char *c)
{
    dnnl_status_t status = set(plan->args[ARG_A].memory, a);
    if (status == dnnl_success) status = set(plan->args[ARG_B].memory, b);
    if (status == dnnl_success) status = set(plan->args[ARG_C].memory, c);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(plan->product, plan->stream, plan->n_args, plan->args);
    if (status == dnnl_success) status = dnnl_stream_wait(plan->stream);
    return status;
}

static dnnl_status_t run_block(const tg_gemm_plan *plan, int64_t index, const char *const at[ARG_COUNT],
                               char *c, char *scratch)
{
    const blocks *b = plan->blocks;
    const int64_t each = b->across_m * b->across_n, loop = index / each, i = index % each / b->across_n,
                  j = index % b->across_n;
    const bool edge_m = i == b->across_m - 1 && b->part[1], edge_n = j == b->across_n - 1 && b->part[2];
    const int thread = omp_get_thread_num();
    tg_gemm_plan *part = &b->part[edge_m + 2 * edge_n][thread];
    size_t from[ARG_COUNT];
    for (int x = 0; x < ARG_COUNT; x++)
        from[x] = (x < ARG_PAD ? (size_t)loop * plan->step[x] : 0) + (size_t)i * b->step[x][0] +
                  (size_t)j * b->step[x][1];
    dnnl_status_t status = set(part->args[ARG_PAD].memory, scratch + (size_t)thread * b->pad_bytes);
    if (status == dnnl_success && part->n_args > ARG_BIAS)
        status = set(part->args[ARG_BIAS].memory, at[ARG_BIAS] + from[ARG_BIAS]);
    return status == dnnl_success
               ? run_one(part, at[ARG_A] + from[ARG_A], at[ARG_B] + from[ARG_B], c + from[ARG_C])
               : status;
}

static dnnl_status_t run_blocks(const tg_gemm_plan *plan, const char *const at[ARG_COUNT], char *c,
                                char *scratch)
{
    const blocks *b = plan->blocks;
    const int64_t n = plan->loops * b->across_m * b->across_n;
    const int threads = n < b->threads ? (int)n : b->threads;
    int failed = dnnl_success;
#pragma omp parallel num_threads(threads)
    {
        omp_set_num_threads(1); /* of this region's thread: some products look at it only when they run */
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) {
            const int status = (int)run_block(plan, i, at, c, scratch);
            if (status != dnnl_success) {
#pragma omp atomic write
                failed = status;
            }
        }
    }
    return (dnnl_status_t)failed;
}

static dnnl_status_t run_copy(const tg_gemm_plan *plan, const copy *own, const char *from, char *to)
{
    dnnl_status_t status = set(own->args[0].memory, from);
    if (status == dnnl_success) status = set(own->args[1].memory, to);
    if (status == dnnl_success) status = dnnl_primitive_execute(own->reorder, plan->stream, 2, own->args);
    if (status == dnnl_success) status = dnnl_stream_wait(plan->stream);
    return status;
}

/* *from becomes its copy, if the product wants one. */
static dnnl_status_t copied(const tg_gemm_plan *plan, int which, const char **from, char *scratch)
{
    const copy *own = &plan->copies[which];
    if (!own->reorder || (which == ARG_B && plan->packed_b)) return dnnl_success;
    const dnnl_status_t status = run_copy(plan, own, *from, scratch + own->at);
    *from = scratch + own->at;
    return status;
}

size_t tg_gemm_packed(const tg_gemm_plan *plan)
{
    return plan->packed_b ? plan->copies[ARG_B].bytes : 0;
}

teng_status tg_gemm_pack(tg_gemm_plan *plan, const void *b, void *packed)
{
    if (!plan->packed_b)
        return tg_fail(TENG_STATE, "this product (%s) takes b as it is stored: tg_gemm_packed is 0",
                       plan->impl);
    const dnnl_status_t status = run_copy(plan, &plan->copies[ARG_B], b, packed);
    return status == dnnl_success ? TENG_OK
                                  : tg_fail(TENG_STATE, "oneDNN copy of b: %s", dnnl_reason(status));
}

static dnnl_status_t run_loops(tg_gemm_plan *plan, const void *a, const void *b, const float *bias, void *c,
                               void *scratch)
{
    dnnl_status_t status = set(plan->args[ARG_PAD].memory, plan->pad_bytes ? scratch : NULL);
    if (status == dnnl_success && plan->n_args > ARG_BIAS) status = set(plan->args[ARG_BIAS].memory, bias);
    for (int64_t i = 0; status == dnnl_success && i < plan->loops; i++) {
        const char *own_a = (const char *)a + (size_t)i * plan->step[ARG_A],
                   *own_b = (const char *)b + (size_t)i * plan->step[ARG_B];
        status = copied(plan, ARG_A, &own_a, scratch);
        if (status == dnnl_success) status = copied(plan, ARG_B, &own_b, scratch);
        if (status == dnnl_success)
            status = run_one(plan, own_a, own_b, (char *)c + (size_t)i * plan->step[ARG_C]);
    }
    return status;
}

teng_status tg_gemm_run(tg_gemm_plan *plan, const void *a, const void *b, const float *bias, void *c,
                        void *scratch)
{
    void *product_c = c;
    if (plan->widen) {
        a = wide_copy(plan, ARG_A, a, scratch, true);
        b = wide_copy(plan, ARG_B, b, scratch, true);
        if (plan->narrow[ARG_C].dtype != TENG_F32)
            product_c = wide_copy(plan, ARG_C, c, scratch, plan->accumulate);
    }
    const char *const at[ARG_COUNT] = {[ARG_A] = a, [ARG_B] = b, [ARG_BIAS] = (const char *)bias};
    const dnnl_status_t status = plan->blocks ? run_blocks(plan, at, product_c, scratch)
                                              : run_loops(plan, a, b, bias, product_c, scratch);
    if (status != dnnl_success)
        return tg_fail(status == dnnl_out_of_memory ? TENG_MEMORY : TENG_STATE, "oneDNN product (%s): %s",
                       plan->impl, dnnl_reason(status));
    if (plan->widen && product_c != c) convert_rows(&plan->narrow[ARG_C], false, c, product_c);
    return TENG_OK;
}

char *tg_gemm_version(char *buf)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, 32, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return buf;
}
