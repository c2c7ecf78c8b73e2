/* Which cores a rank computes on. Several ranks of a host that were started without binding would all compute
 * on all of its cores; here each takes its share. */
#include "comm/comm_impl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "0-3,8" */
static void cores_text(const cpu_set_t *set, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int c = 0; c < CPU_SETSIZE && at + 24 < size; c++) {
        if (!CPU_ISSET((size_t)c, set)) continue;
        int last = c;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET((size_t)last + 1, set))
            last++;
        const int n = last > c ? snprintf(text + at, size - at, "%s%d-%d", at ? "," : "", c, last)
                               : snprintf(text + at, size - at, "%s%d", at ? "," : "", c);
        if (n > 0) at += (size_t)n;
        c = last;
    }
}

void tg_comm_share_cores(tg_comm *comm, bool shared)
{
    cpu_set_t all, own;
    char host[128] = "", cores[256];
    const char *note = "";
    CPU_ZERO(&all);
    sched_getaffinity(0, sizeof all, &all);
    const int n = CPU_COUNT(&all);
    own = all;
    if (shared && comm->local_size > 1 && comm->local_size <= n) {
        int64_t begin, size;
        tg_mesh_cut(n, comm->local_size, comm->local_index, &begin, &size);
        CPU_ZERO(&own);
        for (int c = 0, k = 0; c < CPU_SETSIZE; c++) {
            if (!CPU_ISSET((size_t)c, &all)) continue;
            if (k >= begin && k < begin + size) CPU_SET((size_t)c, &own);
            k++;
        }
        if (sched_setaffinity(0, sizeof own, &own) != 0) own = all;
    } else if (shared && comm->local_size > n) {
        setenv("OMP_NUM_THREADS", "1", 0);
        note = ", shared by all ranks of the host: more ranks than cores";
    }
    gethostname(host, sizeof host - 1);
    cores_text(&own, cores, sizeof cores);
    snprintf(comm->binding, sizeof comm->binding, "rank %d of %d on %s (process %d): core%s %s%s", comm->rank,
             comm->size, host, (int)getpid(), CPU_COUNT(&own) == 1 ? "" : "s", cores, note);
}

int tg_comm_cores(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}
