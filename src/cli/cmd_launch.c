/* teng launch: this program on several ranks, by the mpirun that is there. How ranks share cores is comm's
 * doing (comm_cores.c), so that a plain mpirun has it too. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    snprintf(count, sizeof count, "%lld", (long long)args->n);
    const char **argv = tg_calloc((size_t)args->base.n_words + 5, sizeof *argv);
    if (!argv) return tg_cli_failed(&args->base);
    int at = 0;
    argv[at++] = args->mpirun;
    argv[at++] = "-n";
    argv[at++] = count;
    argv[at++] = self;
    for (int i = 0; i < args->base.n_words; i++)
        argv[at++] = args->base.words[i];
    fflush(NULL);
    execvp(args->mpirun, (char *const *)(uintptr_t)argv);
    const int err = errno;
    tg_free(argv);
    tg_fail_errno(TENG_IO, err, "cannot start %s", args->mpirun);
    return tg_cli_failed(&args->base);
}
