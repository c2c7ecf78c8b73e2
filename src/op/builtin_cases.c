/* Case lists by the operator's name. An operator of ops.def without a case list fails to link. */
#include "op/builtin_cases.h"

#include "graph/op_table.h"

#include <string.h>

#define OP(symbol) extern const teng_op_cases tg_cases_##symbol;
#include "op/ops.def"
#undef OP

static const teng_op_cases *const builtin[] = {
#define OP(symbol) &tg_cases_##symbol,
#include "op/ops.def"
#undef OP
};

const teng_op_cases *tg_op_cases_find(const char *op)
{
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++)
        if (strcmp(builtin[i]->op, op) == 0) return builtin[i];
    for (int i = 0; i < tg_op_count(); i++)
        if (strcmp(tg_op_at(i)->name, op) == 0) return tg_op_cases_at(i);
    return NULL;
}
