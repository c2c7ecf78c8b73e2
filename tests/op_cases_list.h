/* Case lists of the built-in operators by symbol: an operator without one fails to link. */
#ifndef TENG_TESTS_OP_CASES_LIST_H
#define TENG_TESTS_OP_CASES_LIST_H

#include "teng/operator.h"

#define OP(symbol) extern const teng_op_cases tg_cases_##symbol;
#include "op/ops.def"
#undef OP

#endif
