/*
 * Layout of buffers in one block, on thousands of random sets: buffers that are live together never overlap,
 * offsets are aligned, the block holds them all, the peak is what a plain count gives; and some sets with
 * known answers.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "plan/layout.h"

#include "cmocka_all.h"

#include <stdbool.h>
#include <string.h>

#define MAX_BUFFERS 64
#define CASES 6000

static uint64_t draws;

static size_t draw(uint64_t key, size_t bound)
{
    return (size_t)tg_rng_below(key, draws++, bound);
}

static size_t padded(size_t bytes)
{
    return (bytes + TG_ALIGN - 1) / TG_ALIGN * TG_ALIGN;
}

static size_t random_bytes(uint64_t key)
{
    static const size_t edges[] = {0, 1, 63, 64, 65, 128};
    if (draw(key, 3) == 0) return edges[draw(key, 6)];
    return draw(key, (size_t)1 << (4 + draw(key, 16)));
}

static size_t make_buffers(uint64_t key, tg_buffer *b)
{
    const size_t n = draw(key, MAX_BUFFERS + 1), steps = 1 + draw(key, 50);
    for (size_t i = 0; i < n; i++) {
        const size_t first = draw(key, steps), length = draw(key, 3) ? 1 + draw(key, 5) : steps;
        const size_t last = first + length < steps ? first + length : steps - 1;
        b[i] = (tg_buffer){random_bytes(key), (int)first, (int)last, (size_t)-1, (int)i};
    }
    return n;
}

static bool live_together(const tg_buffer *a, const tg_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool overlap(const tg_buffer *a, const tg_buffer *b)
{
    return a->bytes && b->bytes && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static size_t live_at(const tg_buffer *b, size_t n, int step)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (b[i].first <= step && step <= b[i].last) sum += padded(b[i].bytes);
    return sum;
}

static void check(uint64_t key, const tg_buffer *b, size_t n, size_t block, size_t peak, int peak_step)
{
    size_t most = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (b[i].offset % TG_ALIGN || b[i].offset + b[i].bytes > block)
            fail_msg("case %llu: buffer %zu at %zu of %zu bytes", (unsigned long long)key, i, b[i].offset,
                     block);
        for (size_t k = 0; k < i; k++)
            if (live_together(&b[i], &b[k]) && overlap(&b[i], &b[k]))
                fail_msg("case %llu: buffers %zu and %zu overlap", (unsigned long long)key, i, k);
        sum += padded(b[i].bytes);
        const size_t live = live_at(b, n, b[i].first);
        if (live > most) most = live;
    }
    assert_int_equal(peak, most);
    assert_int_equal(live_at(b, n, peak_step), peak);
    assert_true(block >= peak && block <= sum);
}

static void random_sets(void **state)
{
    (void)state;
    size_t blocks = 0, peaks = 0;
    for (uint64_t c = 0; c < CASES; c++) {
        tg_buffer b[MAX_BUFFERS], again[MAX_BUFFERS];
        size_t block, peak, block2, peak2;
        int step, step2;
        const uint64_t key = tg_rng_key(c, "layout");
        const size_t n = make_buffers(key, b);
        memcpy(again, b, sizeof b);
        assert_int_equal(tg_layout(b, n, &block, &peak, &step), TENG_OK);
        check(c, b, n, block, peak, step);
        assert_int_equal(tg_layout(again, n, &block2, &peak2, &step2), TENG_OK);
        assert_memory_equal(again, b, n * sizeof *b);
        assert_int_equal(block2, block);
        blocks += block;
        peaks += peak;
    }
    assert_true((double)blocks < 1.10 * (double)peaks); /* fragmentation stays small on the whole */
}

static void known_answers(void **state)
{
    (void)state;
    size_t block, peak;
    int step;
    assert_int_equal(tg_layout(NULL, 0, &block, &peak, &step), TENG_OK);
    assert_int_equal(block, 0);
    assert_int_equal(peak, 0);
    /* A chain: each value lives until the next is computed; two places suffice. */
    tg_buffer chain[4] = {{100, 0, 1, 0, 0}, {100, 1, 2, 0, 1}, {100, 2, 3, 0, 2}, {100, 3, 4, 0, 3}};
    assert_int_equal(tg_layout(chain, 4, &block, &peak, &step), TENG_OK);
    assert_int_equal(block, 256);
    assert_int_equal(peak, 256);
    assert_int_equal(step, 1);
    assert_int_equal(chain[0].offset, 0);
    assert_int_equal(chain[1].offset, 128);
    assert_int_equal(chain[2].offset, 0);
    /* The smallest gap from below is taken. */
    tg_buffer gap[3] = {{640, 0, 9, 0, 0}, {320, 5, 9, 0, 1}, {64, 0, 3, 0, 2}};
    assert_int_equal(tg_layout(gap, 3, &block, &peak, &step), TENG_OK);
    assert_int_equal(gap[1].offset, 640);
    assert_int_equal(gap[2].offset, 640);
    assert_int_equal(block, 960);
    assert_int_equal(step, 5);
}

static void memory_runs_out(void **state)
{
    (void)state;
    tg_buffer b[2] = {{100, 0, 1, 0, 0}, {100, 1, 2, 0, 1}};
    size_t block, peak;
    int step;
    uint64_t n = 1;
    teng_status status = TENG_MEMORY;
    for (; status != TENG_OK; n++) {
        tg_alloc_fail_at(n);
        status = tg_layout(b, 2, &block, &peak, &step);
        tg_alloc_fail_at(0);
        teng_error_clear();
        if (status != TENG_OK) assert_int_equal(status, TENG_MEMORY);
    }
    assert_int_equal(peak, 256);
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sets),
        cmocka_unit_test(known_answers),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
