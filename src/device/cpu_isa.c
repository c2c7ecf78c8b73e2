/*
 * Reads the CPU's features with cpuid itself, since compilers differ in the names that __builtin_cpu_supports
 * knows, and asks xgetbv whether the operating system saves the wide registers. It selects no kernel.
 */
#include "device/cpu_isa.h"

#include "base/fail.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TG_CPU_COUNT] = {"v2", "v3", "v4", "v4bf", "neon"};
static atomic_int limit = -2; /* -2: never set */

#if defined(__x86_64__)
#include <cpuid.h>

static bool has(unsigned reg, unsigned bits)
{
    return (reg & bits) == bits;
}

static uint64_t saved_state(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static int detect(void)
{
    unsigned a, b, d, c1, b7 = 0, c7 = 0, a71 = 0, cx = 0;
    if (!__get_cpuid(1, &a, &b, &c1, &d)) return -1;
    /* SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT */
    if (!has(c1, 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23)) return -1;
    if (!has(c1, 1u << 27)) return TG_CPU_v2; /* OSXSAVE: xgetbv works */
    uint64_t state = saved_state();
    if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d) && a >= 1) {
        unsigned b71, c71, d71;
        if (!__get_cpuid_count(7, 1, &a71, &b71, &c71, &d71)) a71 = 0;
    }
    if (!__get_cpuid(0x80000001u, &a, &b, &cx, &d)) cx = 0;
    /* FMA, MOVBE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT; YMM state */
    bool v3 = has(c1, 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29) && has(b7, 1u << 3 | 1u << 5 | 1u << 8) &&
              has(cx, 1u << 5) && (state & 0x06) == 0x06;
    if (!v3) return TG_CPU_v2;
    /* AVX-512 F, DQ, CD, BW, VL; opmask and ZMM state */
    if (!has(b7, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31) || (state & 0xe6) != 0xe6)
        return TG_CPU_v3;
    /* VBMI, VNNI; BF16 */
    return has(c7, 1u << 1 | 1u << 11) && has(a71, 1u << 5) ? TG_CPU_v4bf : TG_CPU_v4;
}
#else
static int detect(void)
{
    return TG_CPU_neon;
}
#endif

int tg_cpu_isa_best(void)
{
    static atomic_int best = -2;
    int known = atomic_load(&best);
    if (known == -2) {
        known = detect();
        atomic_store(&best, known);
    }
    return known;
}

bool tg_cpu_isa_available(int isa)
{
    int best = tg_cpu_isa_best();
    return isa == best || (best != TG_CPU_neon && isa >= 0 && isa < best);
}

bool tg_cpu_isa_allows(int under, int isa)
{
    return isa == 0 || isa == under || (under != TG_CPU_neon && isa < under);
}

const char *tg_cpu_isa_name(int isa)
{
    return isa >= 0 && isa < TG_CPU_COUNT ? names[isa] : "?";
}

int tg_cpu_isa_parse(const char *name)
{
    for (int i = 0; i < TG_CPU_COUNT; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

char *tg_cpu_isa_list(char *buf)
{
    size_t len = 0;
    buf[0] = 0;
    for (int i = 0; i < TG_CPU_COUNT; i++)
        if (tg_cpu_isa_available(i))
            len += (size_t)snprintf(buf + len, 64 - len, "%s%s", len ? " " : "", names[i]);
    return buf;
}

teng_status tg_cpu_isa_limit(const char *name)
{
    const char *source = "";
    if (!name || !name[0]) {
        name = getenv("TENG_CPU_ISA");
        source = " (from the environment variable TENG_CPU_ISA)";
    }
    int best = tg_cpu_isa_best();
    if (best < 0)
        return tg_fail(TENG_UNSUPPORTED,
                       "this CPU is older than x86-64-v2 (SSE4.2, POPCNT), the lowest level that "
                       "teng is built for");
    int isa = best;
    if (name && name[0] && strcmp(name, "native")) {
        char list[64];
        isa = tg_cpu_isa_parse(name);
        if (isa < 0)
            return tg_fail(TENG_INVALID,
                           "CPU instruction set \"%s\"%s is unknown: use native, or one of this "
                           "machine's: %s",
                           name, source, tg_cpu_isa_list(list));
        if (!tg_cpu_isa_available(isa))
            return tg_fail(TENG_UNSUPPORTED,
                           "CPU instruction set \"%s\"%s is not available on this machine: it has %s", name,
                           source, tg_cpu_isa_list(list));
    }
    atomic_store(&limit, isa);
    return TENG_OK;
}

int tg_cpu_isa_current(void)
{
    int set = atomic_load(&limit);
    return set == -2 ? tg_cpu_isa_best() : set;
}
