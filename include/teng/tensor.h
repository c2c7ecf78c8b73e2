/* Tensor descriptions: element types and shapes. Values live where the device keeps them (see teng/nn.h). */
#ifndef TENG_TENSOR_H
#define TENG_TENSOR_H

#include "teng/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENG_MAX_DIMS 8

typedef enum teng_dtype {
    TENG_F32,
    TENG_F16,
    TENG_BF16,
    TENG_F64,
    TENG_I8,
    TENG_U8,
    TENG_I16,
    TENG_U16,
    TENG_I32,
    TENG_U32,
    TENG_I64,
    TENG_U64,
    TENG_BOOL,
    TENG_DTYPE_COUNT
} teng_dtype;

/* A dense row-major tensor: ndim 0 is a scalar. dims[i] >= 0 for i < ndim, 0 above. */
typedef struct teng_desc {
    teng_dtype dtype;
    int ndim;
    int64_t dims[TENG_MAX_DIMS];
} teng_desc;

/* Where a tensor lies on one axis of a mesh of ranks: >= 0 is split along that dimension. */
typedef int8_t teng_place;
enum { TENG_REPLICATED = -1, TENG_PARTIAL = -2 /* the ranks' values sum to the true one */ };

/* "f32", "bf16", "i32", ... Never NULL. */
TENG_API const char *teng_dtype_name(teng_dtype t);
/* Accepts the short names and safetensors' ("F32"), PyTorch's ("float32"); TENG_DTYPE_COUNT when unknown. */
TENG_API teng_dtype teng_dtype_parse(const char *name);
/* Bytes of one element. */
TENG_API int teng_dtype_size(teng_dtype t);
/* "f32[4,128]" into buf, which holds TENG_DESC_TEXT bytes; returns buf. */
#define TENG_DESC_TEXT 200
TENG_API char *teng_desc_text(char *buf, const teng_desc *desc);

#ifdef __cplusplus
}
#endif
#endif
