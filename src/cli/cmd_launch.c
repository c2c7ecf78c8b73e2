/*
 * teng launch: this program on several ranks, by the mpirun that is there. How ranks share cores is comm's
 * doing (comm_cores.c), so that a plain mpirun has it too. It stays beside mpirun for the signals: Open MPI's
 * kills the ranks a second after it has been told to end, which is too soon to save; SIGUSR1 it passes on.
 */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t child, stopped_by;

/* The first asks for a stop that is saved, the second ends. */
static void on_signal(int number)
{
    if (child > 0) kill(child, stopped_by ? SIGTERM : SIGUSR1);
    stopped_by = number;
}

/* In the process that becomes mpirun: out of reach of the terminal's Ctrl-C, and not left behind. */
static void become(const char *const *programs, const char *const *argv, int told)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int nothing = isatty(STDIN_FILENO) ? open("/dev/null", O_RDONLY) : -1;
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    for (int i = 0; i < 2 && programs[i]; i++)
        execvp(programs[i], (char *const *)(uintptr_t)argv);
    const int err = errno;
    if (write(told, &err, sizeof err) < 0) _exit(TG_EXIT_FAILURE);
    _exit(TG_EXIT_FAILURE);
}

/* Runs it to its end; *err: why it could not be started. Its exit status. */
static int start(const char *const *programs, const char *const *argv, int *err)
{
    struct sigaction stop = {.sa_handler = on_signal};
    int pipes[2], status = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        *err = errno;
        return TG_EXIT_FAILURE;
    }
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    const pid_t pid = fork();
    if (pid == 0) become(programs, argv, pipes[1]);
    *err = pid < 0 ? errno : 0;
    child = pid;
    close(pipes[1]);
    if (pid > 0 && read(pipes[0], err, sizeof *err) < 0) *err = errno;
    close(pipes[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (stopped_by) return TG_EXIT_SIGNAL + stopped_by;
    return WIFEXITED(status) ? WEXITSTATUS(status) : TG_EXIT_SIGNAL + WTERMSIG(status);
}

int tg_cmd_launch(const tg_args_launch *args)
{
    static char self[4096], count[24];
    const char *text;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!tg_comm_has_mpi(&text)) {
        tg_fail(TENG_UNSUPPORTED,
                "this teng was %s; install an MPI (Debian: openmpi-bin libopenmpi-dev) and build again",
                text);
        return tg_cli_failed(&args->base);
    }
    if (n <= 0) {
        tg_fail_errno(TENG_IO, errno, "/proc/self/exe");
        return tg_cli_failed(&args->base);
    }
    /* Open MPI refuses root and more ranks than cores unless it is told; MPICH does not know these. */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    /* Debian has both side by side, under names of their own. */
    const char *own = strncmp(text, "MPICH", 5) == 0 ? "mpirun.mpich" : "mpirun.openmpi";
    const char *const programs[2] = {args->mpirun ? args->mpirun : own, args->mpirun ? NULL : "mpirun"};
    snprintf(count, sizeof count, "%lld", (long long)args->n);
    const char **argv = tg_calloc((size_t)args->base.n_words + 5, sizeof *argv);
    if (!argv) return tg_cli_failed(&args->base);
    int at = 0;
    argv[at++] = programs[0];
    argv[at++] = "-n";
    argv[at++] = count;
    argv[at++] = self;
    for (int i = 0; i < args->base.n_words; i++)
        argv[at++] = args->base.words[i];
    fflush(NULL);
    int err = 0;
    const int status = start(programs, argv, &err);
    tg_free(argv);
    if (err == 0) return status;
    tg_fail_errno(TENG_IO, err, "cannot start %s", programs[args->mpirun ? 0 : 1]);
    return tg_cli_failed(&args->base);
}
