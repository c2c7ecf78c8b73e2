/* Names of the dtypes in order, for attributes that hold one. */
#ifndef TG_OP_DTYPE_NAMES_H
#define TG_OP_DTYPE_NAMES_H

extern const char *const tg_dtype_names[]; /* ends with NULL */

#endif
