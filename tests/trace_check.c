/* The trace as nested intervals: a stack for each thread. Times are thousandths of a microsecond, so they are
 * compared as whole nanoseconds. */
#include "trace_check.h"

#include "base/json.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

enum { THREADS = 4, DEPTH = 8 }; /* ids from 1: training, books, communication */

typedef struct open_event {
    long long end;
    int level; /* 0 step, 1 phase or host, 2 operator */
} open_event;

static const json_t *get(const json_t *event, const char *key)
{
    const json_t *v = json_object_get(event, key);
    if (!v) fail_msg("an event has no %s", key);
    return v;
}

static long long nanos(const json_t *event, const char *key)
{
    return llround(json_number_value(get(event, key)) * 1e3);
}

static int level_of(const char *category)
{
    if (strcmp(category, "step") == 0) return 0;
    if (strcmp(category, "phase") == 0 || strcmp(category, "host") == 0) return 1;
    if (strcmp(category, "forward") && strcmp(category, "backward") && strcmp(category, "update"))
        fail_msg("category %s", category);
    return 2;
}

static void check_operator(const json_t *event)
{
    static const char *const numbers[] = {"flops", "bytes"}, *const texts[] = {"layer", "kernel", "shape"};
    const json_t *args = get(event, "args");
    for (int i = 0; i < 2; i++)
        assert_true(json_is_number(get(args, numbers[i])) && json_number_value(get(args, numbers[i])) >= 0);
    for (int i = 0; i < 3; i++)
        assert_true(json_is_string(get(args, texts[i])));
    const char *bound = json_string_value(get(args, "bound"));
    assert_true(strcmp(bound, "compute") == 0 || strcmp(bound, "memory") == 0);
    assert_true(json_is_boolean(get(args, "recomputed")));
    const double us = json_number_value(get(event, "dur"));
    if (us <= 0) return;
    assert_true(json_number_value(get(args, "peak_share")) >= 0);
    const double gflops = json_number_value(get(args, "flops")) / us * 1e-3,
                 shown = json_number_value(get(args, "gflop_per_s"));
    assert_true(fabs(gflops - shown) <= 1e-3 + 1e-3 * gflops);
}

static void count(const json_t *event, int level, int thread, trace_sums *sums)
{
    const double us = json_number_value(get(event, "dur"));
    const char *category = json_string_value(get(event, "cat"));
    if (level == 0) sums->steps++, sums->step_us += us;
    if (strcmp(category, "phase") == 0) sums->phases++;
    if (strcmp(category, "host") == 0) {
        sums->host++;
        if (thread == 1) sums->host_us += us;
    }
    if (level == 2) sums->operators++, sums->operator_us += us;
}

static void check_event(const json_t *event, open_event stack[][DEPTH], int *depth, trace_sums *sums)
{
    const int thread = (int)json_integer_value(get(event, "tid"));
    const long long begin = nanos(event, "ts"), length = nanos(event, "dur");
    const int level = level_of(json_string_value(get(event, "cat")));
    assert_true(json_is_string(get(event, "name")));
    assert_in_range(thread, 1, THREADS - 1);
    assert_true(begin >= 0 && length >= 0);
    open_event *open = stack[thread];
    while (depth[thread] && open[depth[thread] - 1].end <= begin && open[depth[thread] - 1].level >= level)
        depth[thread]--;
    if (depth[thread]) {
        const open_event *outer = &open[depth[thread] - 1];
        if (begin + length > outer->end || level <= outer->level)
            fail_msg("event \"%s\" at %lld ns, %lld ns long, crosses one that ends at %lld",
                     json_string_value(get(event, "name")), begin, length, outer->end);
    }
    if (thread == 1 && level > 0 && !depth[thread]) fail_msg("an event lies outside of all steps");
    assert_true(depth[thread] < DEPTH);
    open[depth[thread]++] = (open_event){begin + length, level};
    if (thread > sums->threads) sums->threads = thread;
    if (level == 2) check_operator(event);
    count(event, level, thread, sums);
}

trace_sums check_trace(const char *path)
{
    trace_sums sums = {0};
    open_event stack[THREADS][DEPTH];
    int depth[THREADS] = {0};
    json_t *root = NULL;
    if (tg_json_load_file(path, &root) != TENG_OK) fail_msg("%s", teng_error());
    const json_t *events = get(root, "traceEvents");
    assert_true(json_is_array(events));
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *kind = json_string_value(get(event, "ph"));
        assert_int_equal(json_integer_value(get(event, "pid")), 1);
        if (strcmp(kind, "X") == 0)
            check_event(event, stack, depth, &sums);
        else if (strcmp(kind, "C") == 0)
            sums.counters++;
        else
            assert_string_equal(kind, "M");
    }
    json_decref(root);
    return sums;
}
