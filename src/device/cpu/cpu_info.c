/* Reads what Linux says about the CPU. It measures nothing (cpu_peak.c does). */
#include "device/cpu_info.h"

#include "device/cpu_gemm.h"
#include "device/cpu_isa.h"

#include <ctype.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* First line of a small system file, without its newline; false when it cannot be read. */
static bool read_line(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(buf, (int)size, f) != NULL;
    fclose(f);
    if (ok) buf[strcspn(buf, "\n")] = 0;
    return ok;
}

static void find_model(char *out, size_t size)
{
    snprintf(out, size, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    char line[512];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        char *name = colon + 1;
        name[strcspn(name, "\n")] = 0;
        while (isspace((unsigned char)*name))
            name++;
        for (size_t n = strlen(name); n && isspace((unsigned char)name[n - 1]);)
            name[--n] = 0;
        if (*name) snprintf(out, size, "%s", name);
        break;
    }
    fclose(f);
}

/* "48K", "32M" */
static uint64_t cache_bytes(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

static void find_caches(tg_cpu_info *out)
{
    for (int i = 0; i < 8; i++) {
        char path[128], level[32], type[32], size[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!read_line(path, level, sizeof level)) return;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!read_line(path, type, sizeof type)) return;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!read_line(path, size, sizeof size)) return;
        if (!strcmp(type, "Instruction")) continue;
        if (!strcmp(level, "1")) out->l1d_bytes = cache_bytes(size);
        if (!strcmp(level, "2")) out->l2_bytes = cache_bytes(size);
        if (!strcmp(level, "3")) out->l3_bytes = cache_bytes(size);
    }
}

static int find_cores(void)
{
    cpu_set_t set;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (!sched_getaffinity(0, sizeof set, &set)) n = CPU_COUNT(&set);
    /* A container's quota: "200000 100000" is two cores. */
    char line[64];
    long long quota, period;
    if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof line) &&
        sscanf(line, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
        long allowed = (long)((quota + period - 1) / period);
        if (allowed < n) n = allowed;
    }
    return n < 1 ? 1 : (int)n;
}

static uint64_t find_memory(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char line[64];
        if (!read_line(limits[i], line, sizeof line) || !isdigit((unsigned char)line[0])) continue;
        uint64_t limit = strtoull(line, NULL, 10);
        if (limit && limit < bytes) bytes = limit;
    }
    return bytes;
}

void tg_cpu_info_get(tg_cpu_info *out)
{
    memset(out, 0, sizeof *out);
    find_model(out->model, sizeof out->model);
    find_caches(out);
    out->cores = find_cores();
    out->memory_bytes = find_memory();
}

char *tg_cpu_line(char *buf)
{
    char version[32];
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    const int threads = omp_get_max_threads();
    snprintf(buf, TG_CPU_LINE, "%s, %d core%s, %d thread%s, %s, %s", info.model, info.cores,
             info.cores == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
             tg_cpu_isa_name(tg_cpu_isa_current()), tg_gemm_version(version));
    return buf;
}

json_t *tg_cpu_info_json(const tg_cpu_info *info, const tg_cpu_peak *peak)
{
    char list[64], version[32];
    json_t *root =
        json_pack("{s:s, s:i, s:{s:I, s:I, s:I}, s:I, s:{s:s, s:s, s:s}, s:s}", "model", info->model, "cores",
                  info->cores, "caches", "l1d_bytes", (json_int_t)info->l1d_bytes, "l2_bytes",
                  (json_int_t)info->l2_bytes, "l3_bytes", (json_int_t)info->l3_bytes, "memory_bytes",
                  (json_int_t)info->memory_bytes, "isa", "best", tg_cpu_isa_name(tg_cpu_isa_best()), "used",
                  tg_cpu_isa_name(tg_cpu_isa_current()), "available", tg_cpu_isa_list(list), "gemm",
                  tg_gemm_version(version));
    if (root && peak &&
        json_object_set_new(root, "peak",
                            json_pack("{s:f, s:f, s:f, s:i}", "f32_gflops", peak->f32_gflops, "bf16_gflops",
                                      peak->bf16_gflops, "bandwidth_gb_s", peak->bandwidth_gb_s, "threads",
                                      peak->threads))) {
        json_decref(root);
        root = NULL;
    }
    return root;
}
