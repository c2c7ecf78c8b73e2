/* The table test: every registered operator through the harness, one test each. An argument picks one
 * operator. */
#include "op_harness.h"

#include "base/mem.h"
#include "graph/op_table.h"
#include "op/op_list.h"

#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

static void check(void **state)
{
    const teng_op_spec *op = *state;
    tg_strbuf report = {0};
    const int failures = tg_harness_check(op, tg_op_cases_find(op->name), &report);
    if (failures) fprintf(stderr, "%s", tg_strbuf_str(&report)); /* cmocka cuts long messages */
    tg_strbuf_free(&report);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[512];
    size_t n = 0;
    if (tg_op_register_builtin() != TENG_OK) {
        fprintf(stderr, "%s\n", teng_error());
        return 1;
    }
    for (int i = 0; i < tg_op_count(); i++)
        if (argc < 2 || strcmp(argv[1], tg_op_at(i)->name) == 0)
            tests[n++] = (struct CMUnitTest){.name = tg_op_at(i)->name,
                                             .test_func = check,
                                             .initial_state = (void *)(intptr_t)tg_op_at(i)};
    return _cmocka_run_group_tests("operators", tests, n, NULL, NULL);
}
