/* Instruction-set levels: order, names, limits, the environment variable, refusals. */
#include "base/fail.h"
#include "device/cpu_isa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < TG_CPU_COUNT; i++)
        assert_int_equal(tg_cpu_isa_parse(tg_cpu_isa_name(i)), i);
    assert_string_equal(tg_cpu_isa_name(TG_CPU_v4bf), "v4bf");
    assert_string_equal(tg_cpu_isa_name(-1), "?");
    assert_string_equal(tg_cpu_isa_name(TG_CPU_COUNT), "?");
    assert_int_equal(tg_cpu_isa_parse("v5"), -1);
}

static void test_order(void **state)
{
    (void)state;
    assert_true(tg_cpu_isa_allows(TG_CPU_v3, TG_CPU_v2));
    assert_true(tg_cpu_isa_allows(TG_CPU_v3, TG_CPU_v3));
    assert_false(tg_cpu_isa_allows(TG_CPU_v3, TG_CPU_v4));
    assert_false(tg_cpu_isa_allows(TG_CPU_v4bf, TG_CPU_neon));
    assert_false(tg_cpu_isa_allows(TG_CPU_neon, TG_CPU_v3));
    assert_true(tg_cpu_isa_allows(TG_CPU_neon, 0)); /* 0 runs anywhere */
}

/* The kernel's own list of flags must tell the same story. */
static void test_agrees_with_the_system(void **state)
{
    (void)state;
#ifdef __aarch64__ /* always there; an emulator shows the flags of the machine around it */
    assert_int_equal(tg_cpu_isa_best(), TG_CPU_neon);
    return;
#endif
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) skip();
    char line[8192];
    bool found = false;
    while (!found && fgets(line, sizeof line - 2, f))
        found = !strncmp(line, "flags", 5);
    fclose(f);
    if (!found) skip();
    line[strcspn(line, "\n")] = ' ';
    int expect = strstr(line, " sse4_2 ") ? TG_CPU_v2 : -1;
    if (expect == TG_CPU_v2 && strstr(line, " avx2 ") && strstr(line, " fma ")) expect = TG_CPU_v3;
    if (expect == TG_CPU_v3 && strstr(line, " avx512f ") && strstr(line, " avx512vl ") &&
        strstr(line, " avx512bw ") && strstr(line, " avx512dq ") && strstr(line, " avx512cd "))
        expect = TG_CPU_v4;
    if (expect == TG_CPU_v4 && strstr(line, " avx512_bf16 ") && strstr(line, " avx512_vnni ") &&
        strstr(line, " avx512vbmi "))
        expect = TG_CPU_v4bf;
    assert_int_equal(tg_cpu_isa_best(), expect);
}

static void test_limit(void **state)
{
    (void)state;
    unsetenv("TENG_CPU_ISA");
    int best = tg_cpu_isa_best();
    assert_int_equal(tg_cpu_isa_current(), best);
    char list[64];
    tg_cpu_isa_list(list);
    assert_non_null(strstr(list, tg_cpu_isa_name(best)));
    for (int i = 0; i < TG_CPU_COUNT; i++) {
        bool have = tg_cpu_isa_available(i);
        int before = tg_cpu_isa_current();
        teng_error_clear();
        assert_int_equal(tg_cpu_isa_limit(tg_cpu_isa_name(i)), have ? TENG_OK : TENG_UNSUPPORTED);
        assert_int_equal(tg_cpu_isa_current(), have ? i : before);
        if (!have) {
            assert_non_null(strstr(teng_error(), "not available on this machine: it has"));
            assert_non_null(strstr(teng_error(), list));
        }
    }
    teng_error_clear();
    assert_int_equal(tg_cpu_isa_limit("avx9"), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "\"avx9\" is unknown"));
    teng_error_clear();
    assert_int_equal(tg_cpu_isa_limit("native"), TENG_OK);
    assert_int_equal(tg_cpu_isa_current(), best);
}

static void test_environment(void **state)
{
    (void)state;
    int best = tg_cpu_isa_best();
    int low = best == TG_CPU_neon ? TG_CPU_neon : TG_CPU_v2;
    setenv("TENG_CPU_ISA", tg_cpu_isa_name(low), 1);
    assert_int_equal(tg_cpu_isa_limit(NULL), TENG_OK);
    assert_int_equal(tg_cpu_isa_current(), low);
    assert_int_equal(tg_cpu_isa_limit("native"), TENG_OK); /* a name given beats the environment */
    assert_int_equal(tg_cpu_isa_current(), best);
    setenv("TENG_CPU_ISA", "fast", 1);
    assert_int_equal(tg_cpu_isa_limit(""), TENG_INVALID);
    assert_non_null(strstr(teng_error(), "TENG_CPU_ISA"));
    teng_error_clear();
    unsetenv("TENG_CPU_ISA");
    assert_int_equal(tg_cpu_isa_limit(NULL), TENG_OK);
    assert_int_equal(tg_cpu_isa_current(), best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_agrees_with_the_system),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
