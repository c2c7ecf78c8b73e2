/* The case lists of the built-in operators, for tests and measurements: the library does not hold them. */
#ifndef TG_OP_BUILTIN_CASES_H
#define TG_OP_BUILTIN_CASES_H

#include "teng/operator.h"

/* Cases of a built-in operator or of a registered plugin's; NULL when there are none. */
const teng_op_cases *tg_op_cases_find(const char *op);

#endif
