/* Ranks one of which fails as the argument says; the others print what they are told. For test_comm_fault.sh.
 */
#include "base/fail.h"
#include "base/log.h"
#include "comm/comm.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static tg_comm *comm;

static int end(void)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", teng_error());
    printf("rank %d: %s\n", tg_comm_rank(comm), why);
    fflush(stdout);
    tg_comm_abandon(&comm, why);
    return 3;
}

static teng_status together(int n)
{
    float x[8] = {0};
    return tg_comm_all_reduce(tg_comm_world(comm), TG_REDUCE_SUM, TENG_F32, x, x, n);
}

/* Rank 0 waits for rank 3, that for rank 2, and that for rank 1. */
static teng_status wait_in_turn(void)
{
    char byte;
    return tg_comm_receive(tg_comm_world(comm), (tg_comm_rank(comm) + 3) % 4, 7, &byte, 1);
}

static void say(void *user, tg_log_level level, const char *line)
{
    (void)user, (void)level;
    printf("log: %s\n", line);
}

static teng_status hello(bool odd)
{
    const tg_comm_fact facts[] = {{"the mesh", "data 4"}, {"the configuration", odd ? "lr=2" : "lr=1"}};
    return tg_comm_hello(comm, facts, 2);
}

/* What the odd rank does instead of a fourth all_reduce. */
static teng_status fail_as(const char *how)
{
    const int64_t counts[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float x[8] = {0};
    if (strcmp(how, "die") == 0) raise(SIGKILL);
    if (strcmp(how, "hang") == 0) {
        sleep(20);
        return TENG_OK;
    }
    if (strcmp(how, "halt") == 0) raise(SIGSTOP); /* until the others have ended */
    if (strcmp(how, "leave") == 0) return tg_fail(TENG_NUMERIC, "loss is NaN");
    if (strcmp(how, "order") == 0) {
        tg_comm_at("model.layers.9 (all_gather, odd.c:9)");
        return tg_comm_all_gather(tg_comm_world(comm), TENG_F32, x, x, counts);
    }
    return together(2); /* size */
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (tg_comm_open("auto", &comm) != TENG_OK) {
        printf("%s\n", teng_error());
        return 1;
    }
    const bool odd = tg_comm_rank(comm) == 1;
    tg_log_set_sink(say, NULL);
    tg_comm_check(comm, strcmp(how, "order") == 0);
    tg_comm_timeout(comm, strcmp(how, "hang") == 0 ? 1.5 : strcmp(how, "halt") == 0 ? 2.5 : 15);
    if (strcmp(how, "hello") == 0) return hello(odd) == TENG_OK ? 0 : end();
    for (int step = 0; step < 3; step++) {
        tg_comm_step(comm, step);
        if (tg_comm_doing(comm, "forward, model.layers.3 (matmul, fault.c:7)") != TENG_OK) return end();
        tg_comm_at("model.layers.3 (all_reduce, fault.c:8)");
        if (together(4) != TENG_OK) return end();
    }
    const bool in_turn = strcmp(how, "halt") == 0;
    if ((odd ? fail_as(how) : in_turn ? wait_in_turn() : together(4)) != TENG_OK) return end();
    if (odd) together(4);
    tg_comm_close(&comm);
    return 0;
}
