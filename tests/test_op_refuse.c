/*
 * What operators refuse, in words, and what they make of special values (NaN, infinities, ties, nothing
 * valid). The values of ordinary calls are the business of test_ops.
 */
#include "cmocka_all.h"
#include "op_calls.h"

#include "base/mem.h"
#include "device/cpu_isa.h"
#include "op/add_positions/add_positions.h"
#include "op/cross_entropy/cross_entropy.h"
#include "op/dropout/dropout.h"
#include "op/embedding/embedding.h"
#include "op/linear_cross_entropy/linear_cross_entropy.h"
#include "op/op_list.h"
#include "op/reduce/reduce.h"
#include "op/rope/rope_table.h"
#include "op/slice/slice.h"
#include "op/split/split.h"
#include "tensor/desc.h"

#include <math.h>
#include <string.h>

static const tg_rope_positions_attr
    roomy = {{.theta = 1e4}, 9},
    moved = {{.theta = 1e4, .offset = 3}, 9}, no_room = {{.theta = 1e4}, 0},
    grown = {{.theta = 1e4, .type = TENG_ROPE_DYNAMIC, .factor = 2, .original_max_position = 8}, 9};
static const teng_attention_options all_see_all = {0}, window_of_4 = {.causal = 1, .window = 4};
static const tg_add_positions_attr all_rows = {{0, 0, 0}};
static const teng_rope_options torn = {.theta = 1e4, .turn = -1};
static const teng_rope_options odd = {.theta = 1e4, .rotary_dim = 7}, cold = {.theta = 0},
                               early = {.theta = 1e4, .offset = -1}, unscaled = {.theta = 1e4, .type = 1},
                               bands = {.theta = 1e4,
                                        .type = 2,
                                        .factor = 8,
                                        .low_freq_factor = 4,
                                        .high_freq_factor = 1,
                                        .original_max_position = 64},
                               strange = {.theta = 1e4, .type = 9};
static const double eps = 1e-5, below = -1;
static const int64_t one = 1, three = 3, ignore = -100;
static const tg_cross_entropy_attr ignore_all = {.ignore_index = -100};
static const tg_embedding_attr table_attr = {0, 0}, piece = {2, 10};
static const tg_embedding_grad_attr fewer = {{0, 0}, -3};
static const refusal list[] = {
    {&tg_op_reshape,
     &(teng_dims){2, {4, -1}},
     1,
     {D(F32, 1, 6)},
     "x is f32[6] with 6 elements; they do not fill f32[4,1]"},
    {&tg_op_reshape,
     &(teng_dims){2, {-1, -1}},
     1,
     {D(F32, 1, 6)},
     "dimension 1 of the new shape is -1; one may be -1"},
    {&tg_op_transpose,
     &(teng_dims){2, {0, 0}},
     1,
     {D(F32, 2, 3, 4)},
     "entry 1 of perm is 0 and x is f32[3,4]"},
    {&tg_op_transpose, &(teng_dims){1, {0}}, 1, {D(F32, 2, 3, 4)}, "perm has 1 entries and x is f32[3,4]"},
    {&tg_op_slice,
     &(tg_slice_attr){1, 3, 2},
     1,
     {D(F32, 2, 3, 4)},
     "2 elements from 3 on leave axis 1 of x, which is f32[3,4]"},
    {&tg_op_slice, &(tg_slice_attr){2, 0, 1}, 1, {D(F32, 2, 3, 4)}, "axis 2 is outside x, which is f32[3,4]"},
    {&tg_op_slice_grad,
     &(tg_slice_grad_attr){.slice = {0, 3, 5}},
     1,
     {D(F32, 1, 3)},
     "x is f32[3]; from 3 on it leaves the 5 elements of axis 0"},
    {&tg_op_split,
     &(tg_split_attr){0, {2, {2, 2}}},
     1,
     {D(F32, 1, 5)},
     "the pieces have 4 elements together; axis 0 of x, which is f32[5], has 5"},
    {&tg_op_split, &(tg_split_attr){0, {2, {6, -1}}}, 1, {D(F32, 1, 5)}, "piece 1 has the size -1"},
    {&tg_op_concat,
     &one,
     2,
     {D(F32, 2, 3, 4), D(F32, 2, 4, 4)},
     "input 0 is f32[3,4] and input 1 is f32[4,4]; they may differ along axis 1 only"},
    {&tg_op_concat, &one, 2, {D(F32, 2, 3, 4), D(BF16, 2, 3, 4)}, "input 1 is bf16[3,4]"},
    {&tg_op_broadcast,
     &(teng_dims){2, {4, 5}},
     1,
     {D(F32, 1, 4)},
     "x is f32[4] and cannot be repeated to f32[4,5]"},
    {&tg_op_sum,
     &(tg_reduce_attr){{2, {0, -2}}, 0, 0},
     1,
     {D(F32, 2, 3, 4)},
     "axis 0 of x, which is f32[3,4], is named twice"},
    {&tg_op_sum, &(tg_reduce_attr){{1, {5}}, 0, 0}, 1, {D(F32, 2, 3, 4)}, "axis 5 is outside x"},
    {&tg_op_sum, &(tg_reduce_attr){{0}, 0, 0}, 1, {D(I32, 1, 3)}, "x is i32[3]; it must be f32, bf16 or f16"},
    {&tg_op_mean, &(tg_reduce_attr){{0}, 0, 0}, 1, {D(F32, 1, 0)}, "there is no mean of no elements"},
    {&tg_op_max_grad,
     &(tg_reduce_attr){{1, {1}}, 0, 0},
     3,
     {D(F32, 2, 3, 4), D(F32, 1, 4), D(F32, 1, 3)},
     "y is f32[4]; it must be f32[3]"},
    {&tg_op_softmax, NULL, 1, {D(F32, 0, 0)}, "it must have at least 1 dimension"},
    {&tg_op_softmax_grad,
     NULL,
     2,
     {D(F32, 1, 3), D(F32, 1, 4)},
     "dy is f32[4] and y is f32[3]; they must agree"},
    {&tg_op_layer_norm,
     &eps,
     3,
     {D(BF16, 2, 2, 4), D(BF16, 1, 4), D(F32, 1, 4)},
     "bias is f32[4] and weight is bf16[4]; they must agree"},
    {&tg_op_layer_norm,
     &eps,
     2,
     {D(BF16, 2, 2, 4), D(BF16, 1, 5)},
     "weight is bf16[5] and x is bf16[2,4]; weight must be [4] in f32 or bf16"},
    {&tg_op_rms_norm, &eps, 2, {D(F32, 2, 2, 4), D(BF16, 1, 4)}, "weight is bf16[4] and x is f32[2,4]"},
    {&tg_op_rms_norm, &below, 2, {D(F32, 2, 2, 4), D(F32, 1, 4)}, "eps is -1"},
    {&tg_op_rms_norm_grad,
     NULL,
     4,
     {D(F32, 2, 2, 4), D(F32, 1, 4), D(F32, 2, 2, 4), D(F32, 1, 4)},
     "rstd is f32[4]; it must be f32[2], the shape of x without its last dimension"},
    {&tg_op_embedding,
     &table_attr,
     2,
     {D(F32, 2, 9, 4), D(I64, 1, 3)},
     "ids is i64[3]; its elements must be i32"},
    {&tg_op_embedding, &table_attr, 2, {D(F32, 1, 9), D(I32, 1, 3)}, "table is f32[9]; it must be [V, C]"},
    {&tg_op_embedding,
     &piece,
     2,
     {D(F32, 2, 9, 4), D(I32, 1, 3)},
     "9 rows from 2 on leave the vocabulary of 10"},
    {&tg_op_embedding_grad, &fewer, 2, {D(F32, 2, 3, 4), D(I32, 1, 3)}, "vocab is -3"},
    {&tg_op_linear_lse,
     &(const tg_linear_lse_attr){.parts = 5},
     3,
     {D(F32, 2, 9, 4), D(F32, 2, 4, 4), D(I32, 1, 9)},
     "parts is 5; w has 4 entries, which make 1 to 4 pieces"},
    {&tg_op_linear_lse,
     &(const tg_linear_lse_attr){.parts = 1, .begin = 3, .total = 6},
     3,
     {D(F32, 2, 9, 4), D(F32, 2, 4, 4), D(I32, 1, 9)},
     "w has 4 entries; from 3 on they leave the vocabulary of 6"},
    {&tg_op_cross_entropy,
     &ignore,
     3,
     {D(F32, 2, 9, 4), D(I32, 1, 9), D(F32, 1, 1)},
     "valid is f32[1]; it must be an f32 scalar"},
    {&tg_op_logits_lse,
     &(const tg_logits_lse_attr){.parts = 5},
     2,
     {D(F32, 2, 9, 4), D(I32, 1, 9)},
     "parts is 5; logits are f32[9,4], which make 1 to 4 pieces"},
    {&tg_op_add_positions,
     &all_rows,
     2,
     {D(F32, 3, 2, 300, 4), D(F32, 2, 256, 4)},
     "sequence 300 is longer than the 256 positions: "},
    {&tg_op_add_positions,
     &all_rows,
     2,
     {D(F32, 3, 2, 3, 4), D(F32, 2, 256, 5)},
     "x is f32[2,3,4] and table is f32[256,5]; table must be [positions, 4]"},
    {&tg_op_add_positions,
     &(const tg_add_positions_attr){{9, 2, 20}},
     2,
     {D(F32, 3, 2, 4, 4), D(F32, 2, 20, 4)},
     "2 rows from 9 on and 2 from 20 on leave the 20 positions"},
    {&tg_op_dropout,
     &(const tg_dropout_attr){.p = 0.5, .whole = {2, {4, 9}}, .begin = {2, {2, 0}}},
     2,
     {D(F32, 2, 3, 9), D(U64, 1, 2)},
     "x is f32[3,9]; as a shard it leaves the whole"},
    {&tg_op_slice_grad,
     &(const tg_slice_grad_attr){{0, 1, 9}, 2, 2},
     1,
     {D(F32, 2, 4, 3)},
     "from 1 on and from its element 2 on at 2 it leaves the 9 elements of axis 0"},
    {&tg_op_rope, &torn, 1, {D(F32, 4, 1, 2, 3, 8)}, "rope turn is -1, later 0, length 0"},
    {&tg_op_rope,
     &odd,
     1,
     {D(F32, 4, 1, 2, 3, 8)},
     "rotary_dim is 7 and x is f32[1,2,3,8]; it must be even and at most the head size 8"},
    {&tg_op_rope, &cold, 1, {D(F32, 4, 1, 2, 3, 8)}, "rope theta is 0; it must be positive"},
    {&tg_op_rope, &early, 1, {D(F32, 4, 1, 2, 3, 8)}, "rope offset is -1"},
    {&tg_op_rope,
     &unscaled,
     1,
     {D(F32, 4, 1, 2, 3, 8)},
     "rope factor is 0; linear scaling needs a positive one"},
    {&tg_op_rope, &bands, 1, {D(F32, 4, 1, 2, 3, 8)}, "low_freq_factor is 4, high_freq_factor 1"},
    {&tg_op_rope, &strange, 1, {D(F32, 4, 1, 2, 3, 8)}, "rope type 9 is unknown"},
    {&tg_op_rope, &bands, 1, {D(F32, 3, 2, 3, 8)}, "x is f32[2,3,8]; it must be [B, T, H, D]"},
    {&tg_op_rope_positions,
     &roomy,
     2,
     {D(F32, 4, 1, 2, 3, 8), D(I32, 1, 3)},
     "positions are i32[3]; they must be i32[2], one for each row"},
    {&tg_op_rope_positions, &moved, 2, {D(F32, 4, 1, 2, 3, 8), D(I32, 1, 2)}, "rope offset is 3, inverse 0"},
    {&tg_op_rope_positions, &no_room, 2, {D(F32, 4, 1, 2, 3, 8), D(I32, 1, 2)}, "room is 0 positions"},
    {&tg_op_rope_positions,
     &grown,
     2,
     {D(F32, 4, 1, 2, 3, 8), D(I32, 1, 2)},
     "room is 9 positions and original_max_position 8"},
    {&tg_op_cache_write,
     NULL,
     3,
     {D(F32, 3, 1, 9, 4), D(F32, 3, 1, 2, 5), D(I32, 1, 2)},
     "cache is f32[1,9,4] and rows are f32[1,2,5]"},
    {&tg_op_cache_write,
     NULL,
     3,
     {D(F32, 3, 1, 9, 4), D(BF16, 3, 1, 2, 4), D(I32, 1, 2)},
     "cache is f32[1,9,4] and rows are bf16[1,2,4]"},
    {&tg_op_cache_write,
     NULL,
     3,
     {D(F32, 3, 1, 9, 4), D(F32, 3, 1, 2, 4), D(U64, 1, 2)},
     "positions are u64[2]"},
    {&tg_op_cached_attention,
     &all_see_all,
     4,
     {D(F32, 4, 1, 2, 2, 8), D(F32, 4, 1, 9, 2, 8), D(F32, 4, 1, 9, 2, 8), D(I32, 1, 2)},
     "causal is 0, shift 0; attention on a cache is causal"},
    {&tg_op_cached_attention,
     &window_of_4,
     4,
     {D(F32, 4, 1, 2, 2, 8), D(F32, 4, 1, 9, 2, 8), D(F32, 4, 1, 9, 2, 8), D(I32, 2, 1, 2)},
     "positions are i32[1,2]"},
    {&tg_op_cross_entropy,
     &ignore,
     2,
     {D(F32, 2, 3, 4), D(I32, 1, 4)},
     "labels is i32[4]; it must be i32[3]"},
    {&tg_op_cross_entropy_grad,
     &ignore_all,
     4,
     {D(F32, 2, 3, 4), D(I32, 1, 3), D(F32, 1, 3), D(F32, 1, 1)},
     "dy is f32[1]; it must be an f32 scalar"},
    {&tg_op_layer_norm_grad,
     &three,
     5,
     {D(F32, 2, 3, 4), D(F32, 1, 4), D(F32, 2, 3, 4), D(F32, 1, 3), D(BF16, 1, 3)},
     "rstd is bf16[3]; its elements must be f32"},
};

static void infer_refuses(void **state)
{
    (void)state;
    check_refusals(list, sizeof list / sizeof *list);
}

static teng_status run(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                       const void *const *data, void *const *out)
{
    return run_op(op, attr, n_in, in, data, out, 0);
}

static void ids_out_of_range(void **state)
{
    (void)state;
    static const float table[8] = {0}, dy[6] = {0}, lse[3] = {0}, unit[1] = {1};
    static const int32_t high[3] = {0, 4, 9}, low[3] = {3, 2, -1}, labels[3] = {3, -100, 4};
    static const tg_embedding_grad_attr rows = {{0, 0}, 4};
    float y[16], z[16];
    const teng_desc in[] = {D(F32, 2, 4, 2), D(I32, 1, 3)}, back[] = {D(F32, 2, 3, 2), D(I32, 1, 3)};
    assert_int_equal(run(&tg_op_embedding, &table_attr, 2, in, (const void *[]){table, high}, (void *[]){y}),
                     TENG_INVALID);
    check_text("the id at position 1 is 4, the vocabulary has 4 entries (ids 0 to 3)");
    assert_int_equal(run(&tg_op_embedding, &table_attr, 2, in, (const void *[]){table, low}, (void *[]){y}),
                     TENG_INVALID);
    check_text("the id at position 2 is -1");
    assert_int_equal(run(&tg_op_embedding_grad, &rows, 2, back, (const void *[]){dy, high}, (void *[]){y}),
                     TENG_INVALID);
    check_text("the id at position 1 is 4");
    const teng_desc loss[] = {D(F32, 2, 3, 4), D(I32, 1, 3), D(F32, 1, 3), D(F32, 0, 0)};
    static const float logits[12] = {0};
    assert_int_equal(
        run(&tg_op_cross_entropy, &ignore, 2, loss, (const void *[]){logits, labels}, (void *[]){y, z}),
        TENG_INVALID);
    check_text("the label at position 2 is 4; it must be 0 to 3 (the logits have V = 4 entries) or "
               "ignore_index, which is -100");
    assert_int_equal(run(&tg_op_cross_entropy_grad, &ignore_all, 4, loss,
                         (const void *[]){logits, labels, lse, unit}, (void *[]){y}),
                     TENG_INVALID);
    check_text("the label at position 2 is 4");
}

static void no_valid_label(void **state)
{
    (void)state;
    static const float logits[6] = {1, 2, NAN, INFINITY, 5, 6}, unit[1] = {1};
    static const int32_t labels[2] = {-100, -100};
    float loss = 9, lse[2] = {9, 9}, dx[6] = {9, 9, 9, 9, 9, 9};
    const teng_desc in[] = {D(F32, 2, 2, 3), D(I32, 1, 2), D(F32, 1, 2), D(F32, 0, 0)};
    assert_int_equal(
        run(&tg_op_cross_entropy, &ignore, 2, in, (const void *[]){logits, labels}, (void *[]){&loss, lse}),
        TENG_OK);
    assert_true(loss == 0);
    assert_int_equal(run(&tg_op_cross_entropy_grad, &ignore_all, 4, in,
                         (const void *[]){logits, labels, lse, unit}, (void *[]){dx}),
                     TENG_OK);
    for (int i = 0; i < 6; i++)
        assert_true(dx[i] == 0);
}

/* An impossible entry (-inf) counts nothing; a NaN is not hidden; huge values do not overflow. */
static void extreme_logits(void **state)
{
    (void)state;
    static const float x[9] = {-INFINITY, 0, -INFINITY, 3e38f, -3e38f, 3e38f, 1, NAN, 2};
    static const int32_t labels[3] = {1, 0, 2};
    const teng_desc in[] = {D(F32, 2, 3, 3), D(I32, 1, 3)};
    float y[9], loss, lse[3];
    assert_int_equal(run(&tg_op_softmax, NULL, 1, in, (const void *[]){x}, (void *[]){y}), TENG_OK);
    const float want[6] = {0, 1, 0, 0.5f, 0, 0.5f};
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(y[i] - want[i]) < 1e-6f);
    for (int i = 6; i < 9; i++)
        assert_true(isnan(y[i]));
    assert_int_equal(
        run(&tg_op_cross_entropy, &ignore, 2, in, (const void *[]){x, labels}, (void *[]){&loss, lse}),
        TENG_OK);
    assert_true(lse[0] == 0 && lse[1] == 3e38f && isnan(lse[2]) && isnan(loss));
}

static void max_of_ties_and_nan(void **state)
{
    (void)state;
    static const tg_reduce_attr rows = {{1, {1}}, 0, 0}, columns = {{1, {0}}, 0, 0};
    static const float x[6] = {2, 7, 7, NAN, 1, NAN}, dy[3] = {1, 2, 3};
    const teng_desc in[] = {D(F32, 2, 2, 3), D(F32, 1, 2), D(F32, 1, 2)},
                    in3[] = {D(F32, 2, 2, 3), D(F32, 1, 3), D(F32, 1, 3)};
    float y[3], dx[6];
    assert_int_equal(run(&tg_op_max, &rows, 1, in, (const void *[]){x}, (void *[]){y}), TENG_OK);
    assert_true(y[0] == 7 && isnan(y[1]));
    assert_int_equal(run(&tg_op_max_grad, &rows, 3, in, (const void *[]){x, y, dy}, (void *[]){dx}), TENG_OK);
    const float by_row[6] = {0, 1, 0, 2, 0, 0};
    assert_memory_equal(dx, by_row, sizeof dx);
    assert_int_equal(run(&tg_op_max, &columns, 1, in3, (const void *[]){x}, (void *[]){y}), TENG_OK);
    assert_true(isnan(y[0]) && y[1] == 7 && isnan(y[2]));
    assert_int_equal(run(&tg_op_max_grad, &columns, 3, in3, (const void *[]){x, y, dy}, (void *[]){dx}),
                     TENG_OK);
    const float by_column[6] = {0, 2, 0, 1, 0, 3};
    assert_memory_equal(dx, by_column, sizeof dx);
}

static void sum_of_nothing(void **state)
{
    (void)state;
    static const tg_reduce_attr rows = {{1, {1}}, 0, 0}, columns = {{1, {0}}, 0, 0};
    const teng_desc no_columns[] = {D(F32, 2, 3, 0)}, no_rows[] = {D(F32, 2, 0, 3)};
    float y[3] = {9, 9, 9};
    assert_int_equal(run(&tg_op_sum, &rows, 1, no_columns, (const void *[]){y}, (void *[]){y}), TENG_OK);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    y[0] = y[1] = y[2] = 9;
    assert_int_equal(run(&tg_op_sum, &columns, 1, no_rows, (const void *[]){y}, (void *[]){y}), TENG_OK);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
}

/* Layers share one table of angles; other options get another; the last user frees it. */
/* Positions are data: what is wrong with them is found when the operator runs, before anything is written. */
static void positions_out_of_room(void **state)
{
    (void)state;
    float x[2 * 8] = {0}, cache[4 * 8], y[2 * 8];
    const int32_t beyond[2] = {3, 4}, before[2] = {-1, 0}, apart[2] = {1, 3};
    memset(cache, 1, sizeof cache);
    const teng_desc rope[] = {D(F32, 4, 1, 2, 1, 8), D(I32, 1, 2)};
    static const tg_rope_positions_attr four = {{.theta = 1e4}, 4};
    assert_int_equal(
        run_op(&tg_op_rope_positions, &four, 2, rope, (const void *[]){x, beyond}, (void *[]){y}, 0),
        TENG_INVALID);
    check_text("row 1 has position 4; there is room for 4 (0 to 3)");
    const teng_desc write[] = {D(F32, 3, 1, 4, 8), D(F32, 3, 1, 2, 8), D(I32, 1, 2)};
    const void *data[] = {cache, x, before};
    assert_int_equal(run_op(&tg_op_cache_write, NULL, 3, write, data, (void *[]){cache}, 0), TENG_INVALID);
    check_text("row 0 has position -1");
    const teng_desc attend[] = {D(F32, 4, 1, 2, 1, 8), D(F32, 4, 1, 4, 1, 8), D(F32, 4, 1, 4, 1, 8),
                                D(I32, 1, 2)};
    const int32_t *wrong[] = {beyond, before, apart};
    for (int i = 0; i < 3; i++) {
        const void *in[] = {x, cache, cache, wrong[i]};
        assert_int_equal(run_op(&tg_op_cached_attention, &window_of_4, 4, attend, in, (void *[]){y}, 0),
                         TENG_INVALID);
        check_text("positions follow on by one from the first");
    }
    for (size_t i = 0; i < sizeof cache; i++)
        assert_int_equal(((const unsigned char *)cache)[i], 1);
}

static void rope_tables_are_shared(void **state)
{
    (void)state;
    teng_rope_options a = {.theta = 10000}, b = {.theta = 10000, .inverse = 1},
                      c = {.theta = 10000, .offset = 5};
    tg_rope_table *first = tg_rope_table_get(8, 4, &a), *back = tg_rope_table_get(8, 4, &b);
    tg_rope_table *later = tg_rope_table_get(8, 4, &c), *longer = tg_rope_table_get(9, 4, &a);
    assert_non_null(first);
    assert_ptr_equal(first, back);
    assert_ptr_not_equal(first, later);
    assert_ptr_not_equal(first, longer);
    for (int i = 0; i < 4; i++) /* row 5 of one is row 0 of the other */
        assert_true(first->angles[5 * 4 + i] == later->angles[i]);
    tg_rope_table_put(first);
    assert_true(back->angles[0] == 1.0f); /* still there for its other user */
    tg_rope_table_put(back);
    tg_rope_table_put(later);
    tg_rope_table_put(longer);
    tg_alloc_fail_at(1);
    assert_null(tg_rope_table_get(8, 4, &a));
    tg_alloc_fail_at(0);
    assert_int_equal(teng_error_status(), TENG_MEMORY);
    teng_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_refuses),          cmocka_unit_test(ids_out_of_range),
        cmocka_unit_test(no_valid_label),         cmocka_unit_test(extreme_logits),
        cmocka_unit_test(max_of_ties_and_nan),    cmocka_unit_test(sum_of_nothing),
        cmocka_unit_test(rope_tables_are_shared), cmocka_unit_test(positions_out_of_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
