/*
 * CPU instruction-set levels: which one this machine has, which one kernels may use. Files named *_cpu.c are
 * compiled once per level with TG_ISA_SUFFIX (v3) and TG_ISA_LEVEL (TG_CPU_v3) defined. A lower level can be
 * forced from outside, for tests and bisection; a level that the machine lacks is refused.
 */
#ifndef TG_DEVICE_CPU_ISA_H
#define TG_DEVICE_CPU_ISA_H

#include "teng/status.h"

#include <stdbool.h>

/* The numbers are ordered: on x86-64 a machine of one level runs all lower ones. */
enum {
    TG_CPU_v2 = 0, /* SSE4.2, POPCNT */
    TG_CPU_v3,     /* AVX2, FMA, F16C, BMI2 */
    TG_CPU_v4,     /* AVX-512 F, BW, CD, DQ, VL */
    TG_CPU_v4bf,   /* and AVX-512 BF16, VNNI, VBMI */
    TG_CPU_neon,   /* arm64 */
    TG_CPU_COUNT
};

/* TG_ISA(tg_softmax_rows) is tg_softmax_rows_v3 in the v3 compilation. */
#ifdef TG_ISA_SUFFIX
#define TG_ISA_JOIN2(name, suffix) name##_##suffix
#define TG_ISA_JOIN(name, suffix) TG_ISA_JOIN2(name, suffix)
#define TG_ISA(name) TG_ISA_JOIN(name, TG_ISA_SUFFIX)
#endif

/* Highest level of this machine and its operating system; -1 when it is below x86-64-v2. */
int tg_cpu_isa_best(void);
bool tg_cpu_isa_available(int isa);
/* Whether code of level `isa` may run under the limit `limit`. Level 0 runs under every limit. */
bool tg_cpu_isa_allows(int limit, int isa);
/* "v2", "v3", "v4", "v4bf", "neon"; "?" for other numbers. */
const char *tg_cpu_isa_name(int isa);
/* Level of a name; -1 when unknown. */
int tg_cpu_isa_parse(const char *name);
/* "v2 v3 v4": the levels this machine has. buf >= 64 bytes; returns buf. */
char *tg_cpu_isa_list(char *buf);

/* Sets the limit: a level's name, or "native" for the best one. NULL or "" takes the environment variable
 * TENG_CPU_ISA, and the best one without it. TENG_INVALID for an unknown name, TENG_UNSUPPORTED for a level
 * that this machine lacks; the limit then stays as it was. The last call holds for kernels selected from then
 * on; oneDNN keeps the limit that it met at its first use in the process. */
teng_status tg_cpu_isa_limit(const char *name);
/* The limit now in force (the best level before any tg_cpu_isa_limit). */
int tg_cpu_isa_current(void);

#endif
