/* Time and the memory of this process, as the system reports them. */
#include "base/clock.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

double tg_clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t tg_clock_unix(void)
{
    return (int64_t)time(NULL);
}

char *tg_clock_iso(char *buf, int64_t unix_seconds)
{
    time_t t = (time_t)unix_seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || !strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", &parts)) buf[0] = '\0';
    return buf;
}

uint64_t tg_peak_rss(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (uint64_t)usage.ru_maxrss * 1024; /* Linux counts in KiB */
}

uint64_t tg_current_rss(void)
{
    unsigned long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    int got = fscanf(f, "%lu %lu", &total, &resident);
    fclose(f);
    return got == 2 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
