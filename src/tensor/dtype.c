/*
 * Element types: names, sizes, and the three spellings that files use for them (ours, safetensors',
 * PyTorch's). One table, so that a new type is one line. Conversion of values is in convert.c.
 */
#include "teng/tensor.h"

#include "tensor/desc.h"

#include <string.h>

typedef struct dtype_row {
    const char *name;     /* ours; safetensors' is the same in capitals */
    const char *file;     /* safetensors */
    const char *torch[3]; /* PyTorch and config.json */
    int size;
    bool is_float;
} dtype_row;

static const dtype_row rows[TENG_DTYPE_COUNT] = {
    [TENG_F32] = {"f32", "F32", {"float32", "float"}, 4, true},
    [TENG_F16] = {"f16", "F16", {"float16", "half"}, 2, true},
    [TENG_BF16] = {"bf16", "BF16", {"bfloat16"}, 2, true},
    [TENG_F64] = {"f64", "F64", {"float64", "double"}, 8, true},
    [TENG_I8] = {"i8", "I8", {"int8"}, 1, false},
    [TENG_U8] = {"u8", "U8", {"uint8"}, 1, false},
    [TENG_I16] = {"i16", "I16", {"int16", "short"}, 2, false},
    [TENG_U16] = {"u16", "U16", {"uint16"}, 2, false},
    [TENG_I32] = {"i32", "I32", {"int32", "int"}, 4, false},
    [TENG_U32] = {"u32", "U32", {"uint32"}, 4, false},
    [TENG_I64] = {"i64", "I64", {"int64", "long"}, 8, false},
    [TENG_U64] = {"u64", "U64", {"uint64"}, 8, false},
    [TENG_BOOL] = {"bool", "BOOL", {NULL}, 1, false},
};

static bool known(teng_dtype t)
{
    return (unsigned)t < (unsigned)TENG_DTYPE_COUNT;
}

const char *teng_dtype_name(teng_dtype t)
{
    return known(t) ? rows[t].name : "?";
}

int teng_dtype_size(teng_dtype t)
{
    return known(t) ? rows[t].size : 0;
}

bool tg_dtype_is_float(teng_dtype t)
{
    return known(t) && rows[t].is_float;
}

teng_dtype teng_dtype_parse(const char *name)
{
    if (!name) return TENG_DTYPE_COUNT;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (int t = 0; t < TENG_DTYPE_COUNT; t++) {
        const dtype_row *r = &rows[t];
        if (strcmp(name, r->name) == 0 || strcmp(name, r->file) == 0) return (teng_dtype)t;
        for (int k = 0; k < 3 && r->torch[k]; k++)
            if (strcmp(name, r->torch[k]) == 0) return (teng_dtype)t;
    }
    return TENG_DTYPE_COUNT;
}
