/* Time and the memory of this process, as the system reports them. */
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* getrusage's figure would be no less than what the parent had before this program was started. */
uint64_t tg_peak_rss(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    if (!f) return 0;
    while (!kib && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu", &kib) != 1) kib = 0;
    fclose(f);
    return (uint64_t)kib * 1024;
}

bool tg_peak_rss_reset(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f) return false;
    const bool written = fputs("5", f) >= 0;
    return fclose(f) == 0 && written;
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

double tg_process_start(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    const char *field = strrchr(text, ')'); /* the second; the start is the 22nd, in ticks since boot */
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    struct timespec boot;
    const double ticks = field ? strtod(field, NULL) : 0, a_second = (double)sysconf(_SC_CLK_TCK);
    if (ticks <= 0 || a_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) return -1;
    const double age = (double)boot.tv_sec + 1e-9 * (double)boot.tv_nsec - ticks / a_second;
    return tg_clock_seconds() - age;
}
