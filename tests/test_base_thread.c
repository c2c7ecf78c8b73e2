/* The queue between threads: nothing lost, nothing doubled, order kept, close wakes everybody; counters and
 * the log under many threads. Run under the thread sanitizer too. */
#include "base/fail.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include "cmocka_all.h"

#include <stdbool.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { PRODUCERS = 3, CONSUMERS = 3, ITEMS = 4000 };

typedef struct worker {
    tg_queue *queue;
    uintptr_t first;
    unsigned char *seen; /* PRODUCERS * ITEMS flags of this consumer */
    bool in_order, put_ok;
} worker;

static void produce(void *arg)
{
    worker *w = arg;
    w->put_ok = true;
    for (uintptr_t i = 0; i < ITEMS; i++)
        w->put_ok &= tg_queue_put(w->queue, (void *)(w->first + i + 1));
}

static void consume(void *arg)
{
    worker *w = arg;
    uintptr_t last[PRODUCERS] = {0};
    void *item;
    w->in_order = true;
    while (tg_queue_get(w->queue, &item)) {
        uintptr_t id = (uintptr_t)item - 1;
        w->in_order &= id >= last[id / ITEMS];
        last[id / ITEMS] = id;
        w->seen[id]++;
    }
}

static void nothing_is_lost_or_doubled(void **state)
{
    (void)state;
    static unsigned char seen[CONSUMERS][PRODUCERS * ITEMS];
    tg_thread *producers[PRODUCERS], *consumers[CONSUMERS];
    worker p[PRODUCERS], c[CONSUMERS];
    tg_queue *queue = tg_queue_create(5);
    assert_non_null(queue);
    for (unsigned i = 0; i < CONSUMERS; i++) {
        c[i] = (worker){.queue = queue, .seen = seen[i]};
        assert_int_equal(tg_thread_start("consumer", consume, &c[i], &consumers[i]), TENG_OK);
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        p[i] = (worker){.queue = queue, .first = (uintptr_t)i * ITEMS};
        assert_int_equal(tg_thread_start("producer", produce, &p[i], &producers[i]), TENG_OK);
    }
    for (int i = 0; i < PRODUCERS; i++)
        tg_thread_join(&producers[i]);
    tg_queue_close(queue);
    for (int i = 0; i < CONSUMERS; i++)
        tg_thread_join(&consumers[i]);
    for (int i = 0; i < PRODUCERS; i++)
        assert_true(p[i].put_ok);
    for (int i = 0; i < CONSUMERS; i++)
        assert_true(c[i].in_order);
    for (int k = 0; k < PRODUCERS * ITEMS; k++)
        assert_int_equal(seen[0][k] + seen[1][k] + seen[2][k], 1);
    tg_queue_destroy(&queue);
    assert_null(queue);
}

static void a_closed_queue_runs_dry(void **state)
{
    (void)state;
    int a, b;
    void *item = NULL;
    tg_queue *q = tg_queue_create(2);
    assert_false(tg_queue_try_get(q, &item));
    assert_true(tg_queue_put(q, &a));
    assert_true(tg_queue_put(q, &b));
    tg_queue_close(q);
    assert_false(tg_queue_put(q, &a));
    assert_true(tg_queue_get(q, &item) && item == &a);
    assert_true(tg_queue_try_get(q, &item) && item == &b);
    assert_false(tg_queue_get(q, &item));
    assert_false(tg_queue_try_get(q, &item));
    tg_queue_destroy(&q);
    assert_null(tg_queue_create(0));
    assert_string_equal(teng_error(), "a queue of 0 items cannot be made: at least 1 is needed");
    teng_error_clear();
}

/* Fills the queue, then waits inside put until close. */
static void put_until_closed(void *arg)
{
    worker *w = arg;
    while (tg_queue_put(w->queue, w))
        w->first++;
}

static void close_wakes_a_waiting_put(void **state)
{
    (void)state;
    tg_queue *q = tg_queue_create(3);
    worker w = {.queue = q};
    tg_thread *thread;
    assert_int_equal(tg_thread_start("filler", put_until_closed, &w, &thread), TENG_OK);
    usleep(20000);
    tg_queue_close(q);
    tg_thread_join(&thread);
    assert_true(w.first <= 3);
    tg_queue_destroy(&q);
}

static void allocate_and_log(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        tg_free(tg_alloc(8));
        tg_info("%d", i);
    }
}

static void count_line(void *user, tg_log_level level, const char *line)
{
    (void)level;
    (void)line;
    ++*(int *)user; /* the log's own lock is what makes this safe */
}

static void counters_and_log_are_exact(void **state)
{
    (void)state;
    int lines = 0;
    tg_thread *threads[4];
    tg_log_set_sink(count_line, &lines);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tg_thread_start("worker", allocate_and_log, NULL, &threads[i]), TENG_OK);
    uint64_t before = tg_alloc_count();
    for (int i = 0; i < 4; i++)
        tg_thread_join(&threads[i]);
    tg_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 4000);
    assert_true(tg_alloc_count() >= before);
}

static void block_state(void *arg)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    *(int *)arg = sigismember(&now, SIGINT);
}

static void signals_stay_with_the_main_thread(void **state)
{
    (void)state;
    int blocked = -1, mine = -1;
    tg_thread *thread;
    assert_int_equal(tg_thread_start("a name longer than the kernel keeps", block_state, &blocked, &thread),
                     TENG_OK);
    tg_thread_join(&thread);
    assert_int_equal(blocked, 1);
    block_state(&mine);
    assert_int_equal(mine, 0);
    tg_alloc_fail_at(1);
    assert_int_equal(tg_thread_start("x", block_state, &mine, &thread), TENG_MEMORY);
    assert_null(thread);
    teng_error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_or_doubled),        cmocka_unit_test(a_closed_queue_runs_dry),
        cmocka_unit_test(close_wakes_a_waiting_put),         cmocka_unit_test(counters_and_log_are_exact),
        cmocka_unit_test(signals_stay_with_the_main_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
