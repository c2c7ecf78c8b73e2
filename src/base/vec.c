/* Growth of the arrays of base/vec.h: doubling, so that n pushes cost O(n) copies. */
#include "base/vec.h"

#include "base/fail.h"
#include "base/mem.h"

bool tg_vec_grow(void **data, size_t *cap, size_t want, size_t size)
{
    size_t next = *cap < 8 ? 8 : *cap;
    while (next < want && next <= SIZE_MAX / 2)
        next *= 2;
    if (next < want || next > SIZE_MAX / size) {
        tg_fail(TENG_MEMORY, "out of memory: an array of %zu elements of %zu bytes is too large", want, size);
        return false;
    }
    if (next <= *cap) return true;
    void *grown = tg_realloc(*data, next * size);
    if (!grown) return false;
    *data = grown;
    *cap = next;
    return true;
}
