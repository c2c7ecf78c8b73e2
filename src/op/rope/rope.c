/* rope: rotary position embedding of queries and keys. Its gradient is the rotation back, the same operator.
 * rope_positions is the same for rows whose positions are known only when it runs. */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/rope/rope_table.h"
#include "op/want.h"
#include "teng/ops.h"

#include <math.h>
#include <stddef.h>

static const char *const types[] = {"default", "linear", "llama3", "dynamic", "yarn", NULL};
#define FIELD(name, type, choices)                                                                           \
    {                                                                                                        \
#name, type, offsetof(teng_rope_options, name), choices                                              \
    }
/* In rope_positions the options come first, so that one list of fields begins both. */
#define FIELDS                                                                                               \
    FIELD(theta, TENG_ATTR_REAL, NULL), FIELD(type, TENG_ATTR_INT, types),                                   \
        FIELD(factor, TENG_ATTR_REAL, NULL), FIELD(low_freq_factor, TENG_ATTR_REAL, NULL),                   \
        FIELD(high_freq_factor, TENG_ATTR_REAL, NULL), FIELD(original_max_position, TENG_ATTR_INT, NULL),    \
        FIELD(rotary_dim, TENG_ATTR_INT, NULL), FIELD(inverse, TENG_ATTR_INT, NULL),                         \
        FIELD(offset, TENG_ATTR_INT, NULL), FIELD(beta_fast, TENG_ATTR_REAL, NULL),                          \
        FIELD(beta_slow, TENG_ATTR_REAL, NULL), FIELD(exact_range, TENG_ATTR_INT, NULL),                     \
        FIELD(attention_factor, TENG_ATTR_REAL, NULL), FIELD(turn, TENG_ATTR_INT, NULL),                     \
        FIELD(later, TENG_ATTR_INT, NULL), FIELD(length, TENG_ATTR_INT, NULL)
static const teng_attr_field fields[] = {FIELDS, {0}};
static const teng_attr_field positions_fields[] = {
    FIELDS, {"room", TENG_ATTR_INT, offsetof(tg_rope_positions_attr, room), NULL}, {0}};

static teng_status check_scaling(const teng_rope_options *o)
{
    if (!(o->theta > 0) || !isfinite(o->theta))
        return tg_fail(TENG_INVALID, "rope theta is %g; it must be positive", o->theta);
    if (o->type < TENG_ROPE_DEFAULT || o->type > TENG_ROPE_YARN)
        return tg_fail(TENG_INVALID,
                       "rope type %lld is unknown; default, linear, llama3, dynamic and yarn are known",
                       (long long)o->type);
    if (o->type != TENG_ROPE_DEFAULT && !(o->factor > 0))
        return tg_fail(TENG_INVALID, "rope factor is %g; %s scaling needs a positive one", o->factor,
                       types[o->type]);
    if (o->type == TENG_ROPE_LLAMA3 && (!(o->high_freq_factor > o->low_freq_factor) ||
                                        o->low_freq_factor <= 0 || o->original_max_position < 1))
        return tg_fail(TENG_INVALID,
                       "rope low_freq_factor is %g, high_freq_factor %g, original_max_position %lld; llama3 "
                       "scaling needs "
                       "0 < low < high and a positive original_max_position",
                       o->low_freq_factor, o->high_freq_factor, (long long)o->original_max_position);
    if (o->type >= TENG_ROPE_DYNAMIC && o->original_max_position < 1)
        return tg_fail(TENG_INVALID, "rope original_max_position is %lld; %s scaling needs a positive one",
                       (long long)o->original_max_position, types[o->type]);
    if (o->type == TENG_ROPE_YARN && (!(o->beta_slow > 0) || !(o->beta_fast > 0)))
        return tg_fail(TENG_INVALID, "rope beta_fast is %g, beta_slow %g; yarn scaling needs positive ones",
                       o->beta_fast, o->beta_slow);
    if (!(o->attention_factor >= 0) || !isfinite(o->attention_factor))
        return tg_fail(TENG_INVALID, "rope attention_factor is %g; it must not be negative",
                       o->attention_factor);
    return TENG_OK;
}

static teng_status infer_x(teng_op_call *call, const teng_rope_options *o)
{
    const teng_desc *x = &call->in[0];
    char buf[TG_DESC_TEXT];
    TG_TRY(tg_want_float(call, 0, "x"));
    if (x->ndim != 4) return tg_fail(TENG_INVALID, "x is %s; it must be [B, T, H, D]", tg_desc_text(buf, x));
    const int64_t rotary = o->rotary_dim ? o->rotary_dim : x->dims[3];
    if (rotary < 2 || rotary % 2 || rotary > x->dims[3])
        return tg_fail(TENG_INVALID,
                       "rotary_dim is %lld and x is %s; it must be even and at most the head size %lld",
                       (long long)rotary, tg_desc_text(buf, x), (long long)x->dims[3]);
    TG_TRY(check_scaling(o));
    call->out[0] = *x;
    return TENG_OK;
}

static teng_status infer(teng_op_call *call)
{
    const teng_rope_options *o = call->attr;
    TG_TRY(infer_x(call, o));
    if (o->offset < 0)
        return tg_fail(TENG_INVALID, "rope offset is %lld; positions count from 0", (long long)o->offset);
    if (o->turn < 0 || o->later < 0 || o->length < 0)
        return tg_fail(TENG_INVALID, "rope turn is %lld, later %lld, length %lld; none may be negative",
                       (long long)o->turn, (long long)o->later, (long long)o->length);
    return TENG_OK;
}

static teng_status infer_positions(teng_op_call *call)
{
    const tg_rope_positions_attr *a = call->attr;
    TG_TRY(infer_x(call, &a->rope));
    TG_TRY(tg_want_positions(call, 1, call->in[0].dims[1]));
    if (a->rope.offset || a->rope.inverse || a->rope.turn)
        return tg_fail(TENG_INVALID,
                       "rope offset is %lld, inverse %lld, turn %lld; with positions given all must be 0",
                       (long long)a->rope.offset, (long long)a->rope.inverse, (long long)a->rope.turn);
    if (a->room < 1)
        return tg_fail(TENG_INVALID, "room is %lld positions; it must be positive", (long long)a->room);
    if (a->rope.type == TENG_ROPE_DYNAMIC && a->room > a->rope.original_max_position)
        return tg_fail(
            TENG_UNSUPPORTED,
            "room is %lld positions and original_max_position %lld: dynamic scaling turns all rows by other "
            "angles as a sequence grows beyond it",
            (long long)a->room, (long long)a->rope.original_max_position);
    return TENG_OK;
}

static teng_status grad(teng_grad_ctx *ctx)
{
    teng_rope_options back = *(const teng_rope_options *)ctx->attr;
    back.inverse = !back.inverse;
    ctx->in_grad[0] = teng_rope_at((teng_src){NULL, 0}, ctx->out_grad[0], &back);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

static void place(const teng_op_call *call, teng_place_rules *rules)
{
    (void)call;
    for (teng_place d = 0; d < 3; d++) /* batch, sequence, heads */
        teng_place_add(rules, &d, &d);
    teng_place_add(rules, &(teng_place){TENG_PARTIAL}, &(teng_place){TENG_PARTIAL});
}

static void take_rows(const teng_op_call *call, tg_row_map rows, teng_rope_options *o)
{
    if (!o->length) o->length = o->offset + call->in[0].dims[1];
    o->offset = rows.begin;
    o->turn = rows.turn;
    o->later = rows.later;
}

static void localize(const teng_op_call *call, const teng_place *in, const teng_place *out, int64_t parts,
                     int64_t index, void *attr)
{
    const tg_row_map rows = tg_rope_rows(attr);
    (void)out;
    if (in[0] == 1) take_rows(call, tg_row_map_cut(rows, call->in[0].dims[1], parts, index), attr);
}

static void localize_pair(const teng_op_call *call, const teng_place *in, const teng_place *out,
                          int64_t parts, int64_t index, void *attr)
{
    const tg_row_map rows = tg_rope_rows(attr);
    (void)out;
    if (in[0] == 1) take_rows(call, tg_row_map_pair(rows, call->in[0].dims[1], parts, index), attr);
}

static void place_positions(const teng_op_call *call, teng_place_rules *rules)
{
    (void)call;
    teng_place_add(rules, (teng_place[]){0, TENG_REPLICATED}, &(teng_place){0});
    teng_place_add(rules, (teng_place[]){1, 0}, &(teng_place){1});
    teng_place_add(rules, (teng_place[]){2, TENG_REPLICATED}, &(teng_place){2});
    teng_place_add(rules, (teng_place[]){TENG_PARTIAL, TENG_REPLICATED}, &(teng_place){TENG_PARTIAL});
}

static void cost(const teng_op_call *call, teng_cost *c)
{
    c->flops = 3.0 * (double)tg_desc_numel(&call->in[0]);
}

TG_CPU_TABLES(tg_rope_kernels);
TG_CPU_TABLES(tg_rope_positions_kernels);

const teng_op_spec tg_op_rope = {
    .name = "rope",
    .doc =
        "Rotates pairs (x_i, x_{i+r/2}) of the first r = rotary_dim elements of each head by the angle "
        "position · f_i, "
        "f_i = theta^(-2i/r): y_i = x_i cos - x_{i+r/2} sin, y_{i+r/2} = x_{i+r/2} cos + x_i sin; the "
        "rest of the head "
        "stays. x [B, T, H, D], row t has position offset + t; inverse rotates back (Su et al. 2021, "
        "\"RoFormer\"; halves "
        "paired as in GPT-NeoX). type linear divides f_i by factor; llama3 divides only those that turn "
        "less than "
        "low_freq_factor times in original_max_position and blends up to high_freq_factor (Llama 3.1); "
        "dynamic raises theta where offset + T exceeds original_max_position; yarn divides f_i by factor "
        "below "
        "beta_slow turns, not above beta_fast, and blends by i between (Peng et al. 2023). cos and sin are "
        "multiplied by attention_factor, by which the inverse then differs. turn > 0: row t >= turn has "
        "position "
        "later + t - turn; length: of the whole sequence, in the place of offset + T.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(teng_rope_options),
    .attrs = fields,
    .inplace = {1},
    .infer = infer,
    .grad = grad,
    .place = place,
    .localize = localize,
    .localize_pair = localize_pair,
    .cost = cost,
    .kernels = tg_rope_kernels_tables,
};

const teng_op_spec tg_op_rope_positions = {
    .name = "rope_positions",
    .doc = "rope of x [B, T, H, D] with row t at positions[t], i32[T], below room. Of dynamic scaling only "
           "what does not "
           "depend on the length: room <= original_max_position.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(tg_rope_positions_attr),
    .attrs = positions_fields,
    .inplace = {1},
    .infer = infer_positions,
    .no_grad = "it serves writing text; training uses rope",
    .place = place_positions,
    .cost = cost,
    .kernels = tg_rope_positions_kernels_tables,
};

teng_tensor *teng_rope_at(teng_src at, teng_tensor *x, const teng_rope_options *options)
{
    return teng_apply(at, &tg_op_rope, options, 1, &x, NULL);
}

teng_tensor *teng_rope_positions_at(teng_src at, teng_tensor *x, teng_tensor *positions,
                                    const teng_rope_options *options, int64_t room)
{
    const tg_rope_positions_attr attr = {*options, room};
    return teng_apply(at, &tg_op_rope_positions, &attr, 2, (teng_tensor *[]){x, positions}, NULL);
}
