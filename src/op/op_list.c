/* Registers the built-in operators. An operator that ops.def names and no folder defines fails to link. */
#include "op/op_list.h"

#include "base/fail.h"

teng_status tg_op_register_builtin(void)
{
#define OP(symbol) TG_TRY(tg_op_register(&tg_op_##symbol, NULL));
#include "op/ops.def"
#undef OP
    return TENG_OK;
}
