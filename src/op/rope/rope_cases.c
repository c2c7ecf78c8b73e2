/* Cases of rope. The reference derives its frequencies by itself, from wavelengths as Llama's own code does.
 */
#include "op/case_list.h"
#include "teng/ops.h"

#include <math.h>

static double frequency(const teng_rope_options *o, int64_t rotary, int64_t i)
{
    const double f = 1 / pow(o->theta, 2 * (double)i / (double)rotary), wavelength = 2 * acos(-1) / f;
    const double length = (double)o->original_max_position;
    if (o->type == TENG_ROPE_LINEAR) return f / o->factor;
    if (o->type == TENG_ROPE_DEFAULT || wavelength < length / o->high_freq_factor) return f;
    if (wavelength > length / o->low_freq_factor) return f / o->factor;
    const double s = (length / wavelength - o->low_freq_factor) / (o->high_freq_factor - o->low_freq_factor);
    return (1 - s) * f / o->factor + s * f;
}

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_rope_options *o = call->attr;
    const teng_desc *x = &call->in[0];
    const int64_t t = x->dims[1], heads = x->dims[2], d = x->dims[3],
                  rotary = o->rotary_dim ? o->rotary_dim : d;
    for (int64_t e = 0; e < tg_desc_numel(x); e++) {
        const int64_t i = e % d, position = e / d / heads % t + o->offset, half = rotary / 2;
        const double angle = (double)position * frequency(o, rotary, i % half) * (o->inverse ? -1 : 1);
        if (i < half)
            out[0][e] = in[0][e] * cos(angle) - in[0][e + half] * sin(angle);
        else if (i < rotary)
            out[0][e] = in[0][e] * cos(angle) + in[0][e - half] * sin(angle);
        else
            out[0][e] = in[0][e];
    }
    return TENG_OK;
}

static const teng_rope_options plain = {.theta = 10000}, back = {.theta = 10000, .inverse = 1},
                               part = {.theta = 10000, .rotary_dim = 6},
                               later = {.theta = 500000, .offset = 1000},
                               linear = {.theta = 10000, .type = TENG_ROPE_LINEAR, .factor = 4},
                               llama3 = {.theta = 500000,
                                         .type = TENG_ROPE_LLAMA3,
                                         .factor = 8,
                                         .low_freq_factor = 1,
                                         .high_freq_factor = 4,
                                         .original_max_position = 64,
                                         .offset = 200};

static const teng_op_case list[] = {
    {"plain", &plain, 1, {TG_X(4, 2, 5, 3, 10)}},          {"back", &back, 1, {TG_X(4, 2, 5, 3, 10)}},
    {"part of the head", &part, 1, {TG_X(4, 2, 3, 2, 9)}}, {"later rows", &later, 1, {TG_X(4, 1, 4, 2, 64)}},
    {"linear", &linear, 1, {TG_X(4, 1, 7, 2, 32)}},        {"llama3", &llama3, 1, {TG_X(4, 1, 7, 2, 48)}},
    {"blocks", &plain, 1, {TG_X(4, 2, 40, 4, 66)}},
};

const teng_op_cases tg_cases_rope = {
    .op = "rope", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};
