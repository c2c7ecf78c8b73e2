/*
 * Matrix products on the CPU, through oneDNN (majors 2 and 3): C = op(A) op(B) [+ bias] [+ C], optionally
 * batched. A plan is made once and run many times, one of several ways. Products of f32 are exact f32 (strict
 * math mode); bf16 and f16 are summed in f32. This is not an operator: it knows buffers and strides only.
 */
#ifndef TG_DEVICE_CPU_GEMM_H
#define TG_DEVICE_CPU_GEMM_H

#include "teng/tensor.h"

#include <stdbool.h>
#include <stddef.h>

/* How a product is carried out. All but the first are for single products, not batches; those that share out
 * take operands as they are stored. */
typedef enum tg_gemm_way {
    TG_GEMM_BY_SIZES, /* whichever of the others sizes and threads alone point to */
    TG_GEMM_STORED,   /* one product of oneDNN, operands as they are stored */
    TG_GEMM_COPY_B,   /* B copied whole into the layout that oneDNN likes best */
    TG_GEMM_COPY_AB,  /* and A, which is stored transposed, into rows */
    TG_GEMM_ROWS,     /* rows of C shared out among the threads, columns where rows are too few */
    TG_GEMM_COLUMNS,  /* columns shared out, rows where columns are too few */
    TG_GEMM_PACKED,   /* B copied once by the caller, tg_gemm_pack: if packed_b says that he can */
    TG_GEMM_WAYS
} tg_gemm_way;

/* op(A) is [m,k], op(B) is [k,n], C is [m,n], rows outermost. Zeroed members mean the usual thing. */
typedef struct tg_gemm_spec {
    teng_dtype a, b, c;                   /* a = b in {f32, bf16, f16}; c the same or f32 */
    int64_t m, n, k;                      /* all >= 1 */
    int64_t batch;                        /* number of products; 0 counts as 1 */
    bool trans_a;                         /* A is stored [k,m] */
    bool trans_b;                         /* B is stored [n,k], as the weight of a linear layer */
    bool shared_a, shared_b;              /* all products of the batch use one A, one B */
    int64_t lda, ldb, ldc;                /* elements from one stored row to the next; 0: dense */
    int64_t stride_a, stride_b, stride_c; /* elements from one product's matrix to the next; 0: dense */
    bool bias;                            /* an f32[n] is added to every row */
    bool accumulate;                      /* C is added to, not overwritten */
    bool packed_b;                        /* B may come from tg_gemm_pack: tg_gemm_packed says so */
    tg_gemm_way way;
} tg_gemm_spec;

typedef struct tg_gemm_plan tg_gemm_plan;

/* Strict: plans made from here on give the same bits on any number of threads. Without it they do on the same
 * number: where a product is a long sum for few results, oneDNN cuts the sum by threads. Of the process. */
void tg_gemm_set_strict(bool strict);
/* Whether a single product can go that way here: rows and columns suffice for the threads, a copy has a use.
 * Strict plans go by sizes only. */
bool tg_gemm_can(const tg_gemm_spec *spec, tg_gemm_way way);
const char *tg_gemm_way_name(tg_gemm_way way); /* "rows shared out" */
/* The way that sizes and threads point to; never TG_GEMM_BY_SIZES. */
tg_gemm_way tg_gemm_by_sizes(const tg_gemm_spec *spec);
/* NULL when such a product can run here, else the reason, a constant string ("bf16 products need AVX-512").
 */
const char *tg_gemm_refuse(const tg_gemm_spec *spec);
/* Whether this CPU, under the limit that oneDNN met first, multiplies this dtype without converting to f32.
 */
bool tg_gemm_native(teng_dtype dtype);
/* TENG_INVALID for a wrong specification; TENG_UNSUPPORTED with the reason when oneDNN declines it. */
teng_status tg_gemm_plan_create(const tg_gemm_spec *spec, tg_gemm_plan **out);
void tg_gemm_plan_destroy(tg_gemm_plan **plan);
/* Says, to the list of products (cpu_products.h), that the caller runs the plan once more. */
void tg_gemm_again(const tg_gemm_plan *plan);
/* Bytes that each run needs at `scratch` (64-byte aligned, contents undefined before and after). May be 0. */
size_t tg_gemm_scratch(const tg_gemm_plan *plan);
/* Implementation that oneDNN chose ("brg:avx512_core"), for plan listings. */
const char *tg_gemm_impl(const tg_gemm_plan *plan);
/* Bytes of B in the layout that this plan wants (64-byte aligned); 0: it takes B as the caller stores it, as
 * all but TG_GEMM_PACKED do. One packed B serves many runs of the plan. */
size_t tg_gemm_packed(const tg_gemm_plan *plan);
teng_status tg_gemm_pack(tg_gemm_plan *plan, const void *b, void *packed);
/* bias is ignored unless the spec has one. C must not overlap the inputs. Makes no allocation of ours. A plan
 * holds its argument list: one thread at a time may run it (its inside is OpenMP-parallel). */
teng_status tg_gemm_run(tg_gemm_plan *plan, const void *a, const void *b, const float *bias, void *c,
                        void *scratch);

/* "oneDNN 2.6.3". buf >= 32 bytes; returns buf. */
char *tg_gemm_version(char *buf);

#endif
