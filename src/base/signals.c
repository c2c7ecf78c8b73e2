/* One thread for the signals of the process, begun before all others. Nothing here knows what a stop means.
 */
#include "base/signals.h"

#include "base/fail.h"
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static sigset_t watched;
static tg_signals_taken *on_taken;

static void wait_for_signals(void *unused)
{
    (void)unused;
    for (int number; sigwait(&watched, &number) == 0;)
        on_taken(number);
}

teng_status tg_signals_watch(tg_signals_taken *taken)
{
    static tg_thread *waiting; /* to the end of the process */
    if (waiting) return tg_fail(TENG_STATE, "the signals of this process are watched already");
    on_taken = taken;
    sigemptyset(&watched);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGUSR1); /* launchers of ranks pass it on, schedulers send it before the end */
    pthread_sigmask(SIG_BLOCK, &watched, NULL);
    /* What the parent ignores, as a shell does for its background jobs, would never be waited for. */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    return tg_thread_start("signals", wait_for_signals, NULL, &waiting);
}

void tg_signals_default(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
    _exit(128 + number); /* not reached: the default of these signals ends the process */
}
