/* Functions of one operand: the numbers of unary_grad's attribute `fn`. */
#ifndef TG_OP_UNARY_H
#define TG_OP_UNARY_H

#include <stdint.h>

#define UNARY(name, formula, reads, flops) TG_UNARY_##name,
enum {
#include "op/unary/unary.def"
    TG_UNARY_COUNT
};
#undef UNARY

/* unary_grad: in r, dy (one dtype and shape) → dx = f'(x) · dy, where r is x or f(x) as unary.def says for f.
 */
typedef struct tg_unary_attr {
    int64_t fn;
} tg_unary_attr;

typedef struct tg_affine_attr {
    double factor, offset;
} tg_affine_attr;

#endif
