/* Growing array of any type: struct { T *data; size_t len, cap; }. tg_vec_push is false when memory is out.
 */
#ifndef TG_BASE_VEC_H
#define TG_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>

#define TG_VEC(T)                                                                                            \
    struct {                                                                                                 \
        T *data;                                                                                             \
        size_t len, cap;                                                                                     \
    }

/* Grows *data (elements of `size` bytes) to hold at least `want`; false and a pending error when memory is
 * out. */
bool tg_vec_grow(void **data, size_t *cap, size_t want, size_t size);

#define tg_vec_reserve(v, n)                                                                                 \
    ((n) <= (v)->cap || tg_vec_grow((void **)&(v)->data, &(v)->cap, (n), sizeof *(v)->data))
#define tg_vec_push(v, value)                                                                                \
    (tg_vec_reserve((v), (v)->len + 1) ? ((v)->data[(v)->len++] = (value), true) : false)
#define tg_vec_free(v) (tg_free((v)->data), (v)->data = NULL, (v)->len = (v)->cap = 0)

#endif
