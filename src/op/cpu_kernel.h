/*
 * Kernel tables per instruction set. A kernel file x_cpu.c is compiled once per set and ends with
 *
 *     TG_KERNELS(tg_softmax_kernels) = {{"rows f32", accept, prepare, run, NULL}, {0}};
 *
 * and the spec file x.c says TG_CPU_TABLES(tg_softmax_kernels) once, which declares the tables of all sets
 * and defines `static const teng_kernel_table tg_softmax_kernels_tables[]`, fastest first, for the spec's
 * .kernels.
 */
#ifndef TG_OP_CPU_KERNEL_H
#define TG_OP_CPU_KERNEL_H

#include "device/cpu_isa.h"
#include "teng/operator.h"

#if defined(__x86_64__)
#define TG_CPU_TABLES(name)                                                                                  \
    extern const teng_kernel name##_v4bf[], name##_v4[], name##_v3[], name##_v2[];                           \
    static const teng_kernel_table name##_tables[] = {{"cpu", TG_CPU_v4bf, name##_v4bf},                     \
                                                      {"cpu", TG_CPU_v4, name##_v4},                         \
                                                      {"cpu", TG_CPU_v3, name##_v3},                         \
                                                      {"cpu", TG_CPU_v2, name##_v2},                         \
                                                      {NULL, 0, NULL}}
#else
#define TG_CPU_TABLES(name)                                                                                  \
    extern const teng_kernel name##_neon[];                                                                  \
    static const teng_kernel_table name##_tables[] = {{"cpu", TG_CPU_neon, name##_neon}, {NULL, 0, NULL}}
#endif

#ifdef TG_ISA_SUFFIX
#define TG_ISA_PASTE2(a, b) a##_##b
#define TG_ISA_PASTE(a, b) TG_ISA_PASTE2(a, b)
#define TG_KERNELS(name)                                                                                     \
    extern const teng_kernel TG_ISA_PASTE(name, TG_ISA_SUFFIX)[];                                            \
    const teng_kernel TG_ISA_PASTE(name, TG_ISA_SUFFIX)[]
#endif

#endif
