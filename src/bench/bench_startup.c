/*
 * How long a user waits for the first step: this program is started again and again, each time for one step
 * of the configuration, and tells when that step was done. Clocks of processes agree, so the figure begins
 * before the kernel loads the program.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/strbuf.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RUNS 100
#define MAX_WORDS 64

extern char **environ;

enum { WHOLE, LOAD, MODEL, PLAN, INIT, FIRST_STEP, PARTS };
static const char *const names[PARTS] = {"startup", "load", "model", "plan", "init", "first_step"};

static teng_status read_all(int fd, tg_strbuf *out)
{
    char block[4096];
    for (;;) {
        const ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tg_fail_errno(TENG_IO, errno, "reading from the started program");
        if (n == 0) break;
        tg_strbuf_add(out, block, (size_t)n);
    }
    return out->failed ? tg_fail(TENG_MEMORY, "the started program's answer: out of memory") : TENG_OK;
}

/* Runs this program; its standard output is *out, and it must end well. Its errors go where ours go. */
static teng_status run_self(const char *const *argv, tg_strbuf *out)
{
    int ends[2], code = 0;
    pid_t pid;
    if (pipe(ends) != 0) return tg_fail_errno(TENG_IO, errno, "a pipe for the program's answer");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    const int error =
        posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    teng_status status =
        error ? tg_fail_errno(TENG_IO, error, "starting this program again") : read_all(ends[0], out);
    close(ends[0]);
    if (error) return status;
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR)
        ;
    if (status == TENG_OK && (!WIFEXITED(code) || WEXITSTATUS(code) != 0))
        status = tg_fail(TENG_STATE, "the started program ended with %s %d; what it said is above",
                         WIFEXITED(code) ? "status" : "signal",
                         WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code));
    return status;
}

static teng_status one_run(const char *const *argv, double parts[PARTS])
{
    tg_strbuf text = {0};
    json_t *answer = NULL;
    const json_t *ms;
    double at;
    const double begin = tg_clock_seconds();
    teng_status status = run_self(argv, &text);
    if (status == TENG_OK)
        status = tg_json_parse("the started program's answer", tg_strbuf_str(&text), text.len, &answer);
    tg_strbuf_free(&text);
    if (status == TENG_OK) status = tg_json_get_real(answer, "its answer", "first_step_at", true, &at);
    if (status == TENG_OK) parts[WHOLE] = (at - begin) * 1e3;
    ms = json_object_get(answer, "startup_parts_ms");
    for (int i = MODEL; i < PARTS && status == TENG_OK; i++) {
        status = tg_json_get_real(ms, "its startup_parts_ms", names[i], true, &parts[i]);
        if (i == MODEL) parts[LOAD] = parts[WHOLE];
        parts[LOAD] -=
            parts[i]; /* what is left: the system loads the program, which reads its configuration */
    }
    json_decref(answer);
    return status;
}

teng_status tg_bench_startup(const tg_bench_startup_options *o, json_t **out)
{
    static double values[PARTS][MAX_RUNS];
    const char *argv[MAX_WORDS + 12];
    int n = 0;
    if (o->n_words > MAX_WORDS)
        return tg_fail(TENG_INVALID, "%d key=value words are too many, the limit is %d: put them into a file",
                       o->n_words, MAX_WORDS);
    const char *const fixed[] = {"teng", "bench", "step", o->config ? o->config : "default"};
    const char *const ends[] = {"--steps", "1", "--warmup", "0", "--no-peak", "--json"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        argv[n++] = fixed[i];
    for (int i = 0; i < o->n_words; i++)
        argv[n++] = o->words[i];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        argv[n++] = ends[i];
    argv[n] = NULL;
    const int64_t runs = o->runs < MAX_RUNS ? o->runs : MAX_RUNS;
    for (int64_t r = 0; r < runs; r++) {
        double parts[PARTS];
        TG_TRY(one_run(argv, parts));
        for (int i = 0; i < PARTS; i++)
            values[i][r] = parts[i];
    }
    json_t *parts = json_object(), *answer = json_object();
    int failed = 0;
    for (int i = 0; i < PARTS; i++) {
        json_t *stat = tg_bench_stat_json(tg_bench_stat_of(values[i], runs));
        failed |= i == WHOLE ? json_object_set_new(answer, "startup_ms", stat)
                             : json_object_set_new(parts, names[i], stat);
    }
    failed |= json_object_set_new(answer, "parts_ms", parts) |
              json_object_set_new(answer, "config", json_string(fixed[3]));
    if (!failed) return tg_bench_answer(answer, out);
    json_decref(answer);
    return tg_bench_answer(NULL, out);
}
