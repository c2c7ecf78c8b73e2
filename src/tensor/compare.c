/*
 * How far two tensors are apart: the one measure that tests, precision reports and import checks share. It
 * reports and judges nothing; tolerances belong to the caller.
 */
#include "tensor/desc.h"

#include <math.h>
#include <string.h>

static bool is_wide_int(teng_dtype t)
{
    return t == TENG_I64 || t == TENG_U64;
}

/* Equality of 64-bit integers of one type, which a double cannot tell apart above 2^53. */
static bool same_word(const void *a, const void *b, int64_t i)
{
    return ((const uint64_t *)a)[i] == ((const uint64_t *)b)[i];
}

void tg_compare(teng_dtype ta, const void *a, teng_dtype tb, const void *b, int64_t n, tg_diff *out)
{
    tg_diff d = {.count = n, .worst = -1};
    double sum_diff = 0, sum_b = 0;
    bool words = ta == tb && is_wide_int(ta);
    for (int64_t i = 0; i < n; i++) {
        double x = tg_load_double(ta, a, i), y = tg_load_double(tb, b, i);
        bool finite_x = isfinite(x), finite_y = isfinite(y);
        d.nonfinite_a += !finite_x;
        d.nonfinite_b += !finite_y;
        if (finite_y) sum_b += y * y;
        if (words ? same_word(a, b, i) : (x == y || (isnan(x) && isnan(y)))) continue;
        d.unequal++;
        double gap = finite_x && finite_y ? fabs(x - y) : INFINITY;
        if (d.worst < 0 || gap > d.max_abs) {
            d.max_abs = gap;
            d.worst = i;
        }
        sum_diff += gap * gap;
    }
    d.rel_l2 = sum_b > 0 ? sqrt(sum_diff / sum_b) : sqrt(sum_diff);
    *out = d;
}
