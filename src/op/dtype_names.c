/* Names of the dtypes in order. A test compares them with teng_dtype_name. */
#include "op/dtype_names.h"

#include "teng/tensor.h"

#include <stddef.h>

const char *const tg_dtype_names[] = {
    [TENG_F32] = "f32",   [TENG_F16] = "f16",       [TENG_BF16] = "bf16", [TENG_F64] = "f64",
    [TENG_I8] = "i8",     [TENG_U8] = "u8",         [TENG_I16] = "i16",   [TENG_U16] = "u16",
    [TENG_I32] = "i32",   [TENG_U32] = "u32",       [TENG_I64] = "i64",   [TENG_U64] = "u64",
    [TENG_BOOL] = "bool", [TENG_DTYPE_COUNT] = NULL};
