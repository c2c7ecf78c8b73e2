/* Cases of rope. The reference derives its frequencies by itself, from wavelengths as Llama's own code does.
 */
#include "op/case_list.h"
#include "op/rope/rope_table.h"
#include "teng/ops.h"

#include <math.h>

/* As the paper has it: the share of frequency i that is kept, by the number of turns mapped to dimensions. */
static double yarn(const teng_rope_options *o, double r, double i, double f)
{
    const double length = (double)o->original_max_position, pi = acos(-1);
    double low = r * log(length / (o->beta_fast * 2 * pi)) / (2 * log(o->theta));
    double high = r * log(length / (o->beta_slow * 2 * pi)) / (2 * log(o->theta));
    if (!o->exact_range) low = floor(low), high = ceil(high);
    if (low < 0) low = 0;
    if (high > r - 1) high = r - 1;
    const double keep = i <= low ? 1 : i >= high ? 0 : 1 - (i - low) / (high - low);
    return keep * f + (1 - keep) * f / o->factor;
}

static double frequency(const teng_rope_options *o, int64_t rotary, int64_t i, int64_t total)
{
    const double r = (double)rotary;
    if (o->type == TENG_ROPE_DYNAMIC && total > o->original_max_position) {
        const double ratio = (double)total / (double)o->original_max_position;
        const double base = o->theta * pow(o->factor * ratio - o->factor + 1, r / (r - 2));
        return 1 / pow(base, 2 * (double)i / r);
    }
    if (o->type == TENG_ROPE_YARN) return yarn(o, r, (double)i, 1 / pow(o->theta, 2 * (double)i / r));
    const double f = 1 / pow(o->theta, 2 * (double)i / (double)rotary), wavelength = 2 * acos(-1) / f;
    const double length = (double)o->original_max_position;
    if (o->type == TENG_ROPE_LINEAR) return f / o->factor;
    if (o->type == TENG_ROPE_DEFAULT || o->type == TENG_ROPE_DYNAMIC ||
        wavelength < length / o->high_freq_factor)
        return f;
    if (wavelength > length / o->low_freq_factor) return f / o->factor;
    const double s = (length / wavelength - o->low_freq_factor) / (o->high_freq_factor - o->low_freq_factor);
    return (1 - s) * f / o->factor + s * f;
}

/* positions NULL: from the options' offset on; `total` positions in all. */
static teng_status turn(const teng_op_call *call, const teng_rope_options *o, const double *positions,
                        int64_t total, const double *const *in, double *const *out)
{
    const teng_desc *x = &call->in[0];
    const int64_t t = x->dims[1], heads = x->dims[2], d = x->dims[3],
                  rotary = o->rotary_dim ? o->rotary_dim : d;
    for (int64_t e = 0; e < tg_desc_numel(x); e++) {
        const int64_t i = e % d, row = e / d / heads % t, half = rotary / 2;
        const double position = positions                   ? positions[row]
                                : o->turn && row >= o->turn ? (double)(row - o->turn + o->later)
                                                            : (double)(row + o->offset);
        const double angle = position * frequency(o, rotary, i % half, total) * (o->inverse ? -1 : 1);
        const double size = o->attention_factor > 0 ? o->attention_factor : 1;
        if (i < half)
            out[0][e] = size * (in[0][e] * cos(angle) - in[0][e + half] * sin(angle));
        else if (i < rotary)
            out[0][e] = size * (in[0][e] * cos(angle) + in[0][e - half] * sin(angle));
        else
            out[0][e] = in[0][e];
    }
    return TENG_OK;
}

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    const teng_rope_options *o = call->attr;
    return turn(call, o, NULL, o->length ? o->length : call->in[0].dims[1] + o->offset, in, out);
}

static teng_status reference_positions(const teng_op_call *call, const double *const *in, double *const *out)
{
    const tg_rope_positions_attr *a = call->attr;
    return turn(call, &a->rope, in[1], a->room, in, out);
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
                                         .offset = 200},
                               dynamic = {.theta = 10000,
                                          .type = TENG_ROPE_DYNAMIC,
                                          .factor = 2,
                                          .original_max_position = 8,
                                          .offset = 4},
                               calm = {.theta = 10000,
                                       .type = TENG_ROPE_DYNAMIC,
                                       .factor = 2,
                                       .original_max_position = 8},
                               pair = {.theta = 10000, .offset = 3, .turn = 3, .later = 12},
                               pair_dynamic = {.theta = 10000,
                                               .type = TENG_ROPE_DYNAMIC,
                                               .factor = 2,
                                               .original_max_position = 8,
                                               .turn = 4,
                                               .later = 28,
                                               .length = 32},
                               yarn4 = {.theta = 10000,
                                        .type = TENG_ROPE_YARN,
                                        .factor = 4,
                                        .original_max_position = 64,
                                        .beta_fast = 8,
                                        .beta_slow = 1,
                                        .attention_factor = 1.138629,
                                        .offset = 70},
                               exact = {.theta = 500,
                                        .type = TENG_ROPE_YARN,
                                        .factor = 3,
                                        .original_max_position = 200,
                                        .beta_fast = 16,
                                        .beta_slow = 0.5,
                                        .exact_range = 1};

static const teng_op_case list[] = {
    {"plain", &plain, 1, {TG_X(4, 2, 5, 3, 10)}},
    {"back", &back, 1, {TG_X(4, 2, 5, 3, 10)}},
    {"part of the head", &part, 1, {TG_X(4, 2, 3, 2, 9)}},
    {"later rows", &later, 1, {TG_X(4, 1, 4, 2, 64)}},
    {"linear", &linear, 1, {TG_X(4, 1, 7, 2, 32)}},
    {"llama3", &llama3, 1, {TG_X(4, 1, 7, 2, 48)}},
    {"dynamic", &dynamic, 1, {TG_X(4, 1, 7, 2, 32)}},
    {"dynamic, short", &calm, 1, {TG_X(4, 1, 7, 2, 16)}},
    {"two pieces", &pair, 1, {TG_X(4, 2, 6, 3, 10)}},
    {"two pieces, dynamic", &pair_dynamic, 1, {TG_X(4, 1, 8, 2, 16)}},
    {"dynamic, even", &dynamic, 1, {TG_X(4, 1, 8, 2, 16)}},
    {"yarn", &yarn4, 1, {TG_X(4, 1, 7, 2, 48)}},
    {"yarn, exact range", &exact, 1, {TG_X(4, 1, 7, 2, 32)}},
    {"blocks", &plain, 1, {TG_X(4, 2, 40, 4, 66)}},
};

const teng_op_cases tg_cases_rope = {
    .op = "rope", .list = list, .n = TG_COUNT(list), .reference = reference, .dtypes = TG_ALL_FLOATS};

static const tg_rope_positions_attr
    p_plain = {{.theta = 10000}, 4096},
    p_part = {{.theta = 500, .rotary_dim = 6}, 12},
    p_dynamic = {{.theta = 10000, .type = TENG_ROPE_DYNAMIC, .factor = 3, .original_max_position = 40}, 40},
    p_yarn = {{.theta = 10000,
               .type = TENG_ROPE_YARN,
               .factor = 3,
               .original_max_position = 200,
               .beta_fast = 16,
               .beta_slow = 0.5,
               .attention_factor = 1.2},
              600},
    p_llama3 = {{.theta = 10000,
                 .type = TENG_ROPE_LLAMA3,
                 .factor = 8,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4,
                 .original_max_position = 64},
                512};

static const teng_op_case list_positions[] = {
    {"plain", &p_plain, 2, {TG_X(4, 2, 5, 3, 10), TG_STEPS(4000, 5)}},
    {"one row", &p_plain, 2, {TG_X(4, 1, 1, 2, 64), TG_STEPS(77, 1)}},
    {"part of the head", &p_part, 2, {TG_X(4, 2, 3, 2, 9), TG_STEPS(9, 3)}},
    {"dynamic", &p_dynamic, 2, {TG_X(4, 1, 7, 2, 32), TG_STEPS(33, 7)}},
    {"yarn", &p_yarn, 2, {TG_X(4, 1, 4, 2, 48), TG_STEPS(500, 4)}},
    {"llama3", &p_llama3, 2, {TG_X(4, 1, 4, 2, 48), TG_STEPS(300, 4)}},
    {"any order", &p_plain, 2, {TG_X(4, 1, 6, 2, 16), TG_IDS(4096, 1, 6)}},
};

const teng_op_cases tg_cases_rope_positions = {.op = "rope_positions",
                                               .list = list_positions,
                                               .n = TG_COUNT(list_positions),
                                               .reference = reference_positions,
                                               .dtypes = TG_ALL_FLOATS};
