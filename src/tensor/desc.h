/* Shapes, dtype conversion, host tensors, comparison. Public types are in teng/tensor.h. */
#ifndef TG_TENSOR_DESC_H
#define TG_TENSOR_DESC_H

#include "teng/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of elements (1 for a scalar), bytes of the whole tensor. */
int64_t tg_desc_numel(const teng_desc *d);
size_t tg_desc_bytes(const teng_desc *d);
bool tg_desc_equal(const teng_desc *a, const teng_desc *b);
teng_desc tg_desc_make(teng_dtype dtype, int ndim, const int64_t *dims);
/* Dimension counted from the end when negative; -1 when outside. */
int tg_desc_axis(const teng_desc *d, int64_t axis);
/* "f32[4,128]" into buf (TG_DESC_TEXT bytes); returns buf. Parses the same form. */
#define TG_DESC_TEXT TENG_DESC_TEXT
char *tg_desc_text(char *buf, const teng_desc *d);
teng_status tg_desc_parse(const char *text, teng_desc *out, const char **end);

/* "[1,17,203]": the place of element `flat`. Returns buf. */
#define TG_INDEX_TEXT 192
char *tg_desc_index_text(char *buf, const teng_desc *d, int64_t flat);

/* Integer, unsigned and bool dtypes are exact; floats round to nearest even; f64 → bf16/f16 goes once. */
bool tg_dtype_is_float(teng_dtype t);
void tg_convert(teng_dtype to, void *dst, teng_dtype from, const void *src, int64_t n);
double tg_load_double(teng_dtype t, const void *data, int64_t i); /* element i as double */
void tg_store_double(teng_dtype t, void *data, int64_t i, double v);

static inline float tg_bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } b = {(uint32_t)h << 16};
    return b.f;
}
static inline uint16_t tg_f32_to_bf16(float f) /* round to nearest even, NaN stays NaN */
{
    union {
        float f;
        uint32_t u;
    } b = {f};
    if ((b.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((b.u >> 16) | 0x40u);
    return (uint16_t)((b.u + 0x7fffu + ((b.u >> 16) & 1u)) >> 16);
}
float tg_f16_to_f32(uint16_t h);
uint16_t tg_f32_to_f16(float f);

/* What two tensors differ by. Shapes must be equal; dtypes may differ. NaN in the same place counts as equal.
 */
typedef struct tg_diff {
    int64_t count;   /* elements compared */
    int64_t unequal; /* elements whose values differ */
    double max_abs;  /* max |a - b| */
    double rel_l2;   /* ||a - b|| / ||b||, or ||a|| when b is zero */
    int64_t worst;   /* flat index of max_abs, -1 when all equal */
    int64_t nonfinite_a, nonfinite_b;
} tg_diff;
void tg_compare(teng_dtype ta, const void *a, teng_dtype tb, const void *b, int64_t n, tg_diff *out);

#endif
