/*
 * The few calls in which oneDNN's majors 2 and 3 differ. gemm_dnnl2.c and gemm_dnnl3.c each hold all of them
 * for one major and compile to nothing for the other. The rest of the product code (cpu_gemm.c) is the same
 * for both.
 */
#ifndef TG_DEVICE_GEMM_DNNL_H
#define TG_DEVICE_GEMM_DNNL_H

#include <oneapi/dnnl/dnnl.h>

#include <stdbool.h>

/* A strided tensor of up to three dimensions, as oneDNN wants to hear of it. */
typedef struct tg_dnnl_view {
    bool any; /* oneDNN may choose the layout: strides do not count */
    int ndims;
    dnnl_dims_t dims, strides;
    dnnl_data_type_t dtype;
} tg_dnnl_view;

/* Primitive descriptor of C = A B (+ bias unless NULL). */
dnnl_status_t tg_dnnl_matmul(dnnl_engine_t engine, dnnl_primitive_attr_t attr, const tg_dnnl_view *a,
                             const tg_dnnl_view *b, const tg_dnnl_view *bias, const tg_dnnl_view *c,
                             dnnl_primitive_desc_t *out);
/* Memory objects without a buffer: of a view; of a primitive's scratchpad, with its size in *bytes. */
dnnl_status_t tg_dnnl_memory(dnnl_engine_t engine, const tg_dnnl_view *view, dnnl_memory_t *out);
dnnl_status_t tg_dnnl_scratchpad(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, dnnl_memory_t *out,
                                 size_t *bytes);
/* Without a buffer: the factor `arg` (DNNL_ARG_SRC or _WEIGHTS) in the layout that a product chose. */
dnnl_status_t tg_dnnl_chosen(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, int arg,
                             dnnl_memory_t *out, size_t *bytes);
/* A copy from one layout to the other, without a scratchpad. */
dnnl_status_t tg_dnnl_reorder(dnnl_engine_t engine, dnnl_memory_t from, dnnl_memory_t to,
                              dnnl_primitive_t *out);
/* "This post-operation adds the old C". */
dnnl_status_t tg_dnnl_post_sum(dnnl_post_ops_t ops);
/* The highest oneDNN instruction set of a TG_CPU_… level. */
dnnl_cpu_isa_t tg_dnnl_isa(int level);

#endif
