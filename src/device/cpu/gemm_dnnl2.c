/* oneDNN major 2 (Debian 12): memory descriptors are plain structs, matmul has an operation descriptor. */
#include "device/cpu/gemm_dnnl.h"

#include "device/cpu_isa.h"

#if DNNL_VERSION_MAJOR == 2

static dnnl_status_t describe(const tg_dnnl_view *view, dnnl_memory_desc_t *out)
{
    if (view->any)
        return dnnl_memory_desc_init_by_tag(out, view->ndims, view->dims, view->dtype, dnnl_format_tag_any);
    return dnnl_memory_desc_init_by_strides(out, view->ndims, view->dims, view->dtype, view->strides);
}

dnnl_status_t tg_dnnl_matmul(dnnl_engine_t engine, dnnl_primitive_attr_t attr, const tg_dnnl_view *a,
                             const tg_dnnl_view *b, const tg_dnnl_view *bias, const tg_dnnl_view *c,
                             dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t ma, mb, mc, mbias;
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = describe(a, &ma);
    if (status == dnnl_success) status = describe(b, &mb);
    if (status == dnnl_success) status = describe(c, &mc);
    if (status == dnnl_success && bias) status = describe(bias, &mbias);
    if (status == dnnl_success) status = dnnl_matmul_desc_init(&desc, &ma, &mb, bias ? &mbias : NULL, &mc);
    if (status == dnnl_success) status = dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
    return status;
}

dnnl_status_t tg_dnnl_memory(dnnl_engine_t engine, const tg_dnnl_view *view, dnnl_memory_t *out)
{
    dnnl_memory_desc_t desc;
    dnnl_status_t status = describe(view, &desc);
    if (status == dnnl_success) status = dnnl_memory_create(out, &desc, engine, DNNL_MEMORY_NONE);
    return status;
}

dnnl_status_t tg_dnnl_scratchpad(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, dnnl_memory_t *out,
                                 size_t *bytes)
{
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    *bytes = dnnl_memory_desc_get_size(desc);
    return dnnl_memory_create(out, desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t tg_dnnl_chosen(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, int arg,
                             dnnl_memory_t *out, size_t *bytes)
{
    const dnnl_memory_desc_t *desc =
        dnnl_primitive_desc_query_md(pd, arg == DNNL_ARG_SRC ? dnnl_query_src_md : dnnl_query_weights_md, 0);
    *bytes = dnnl_memory_desc_get_size(desc);
    return dnnl_memory_create(out, desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t tg_dnnl_reorder(dnnl_engine_t engine, dnnl_memory_t from, dnnl_memory_t to,
                              dnnl_primitive_t *out)
{
    const dnnl_memory_desc_t *source, *target;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_memory_get_memory_desc(from, &source);
    if (status == dnnl_success) status = dnnl_memory_get_memory_desc(to, &target);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(&pd, source, engine, target, engine, NULL);
    if (status == dnnl_success) status = dnnl_primitive_create(out, pd);
    if (pd) dnnl_primitive_desc_destroy(pd);
    return status;
}

dnnl_status_t tg_dnnl_post_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

dnnl_cpu_isa_t tg_dnnl_isa(int level)
{
    switch (level) {
    case TG_CPU_v2:
        return dnnl_cpu_isa_sse41;
    case TG_CPU_v3:
        return dnnl_cpu_isa_avx2;
    case TG_CPU_v4:
        return dnnl_cpu_isa_avx512_core;
    case TG_CPU_v4bf:
        return dnnl_cpu_isa_avx512_core_bf16;
    default:
        return dnnl_cpu_isa_all;
    }
}

#else
typedef int tg_gemm_dnnl2_is_empty; /* ISO C wants one declaration */
#endif
