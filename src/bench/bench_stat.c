/* Median and spread, the machine, and the frame that all answers share. */
#include "bench/bench.h"

#include "base/fail.h"
#include "device/cpu_gemm.h"
#include "device/cpu_info.h"
#include "device/cpu_isa.h"

#include <omp.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

tg_bench_stat tg_bench_stat_of(double *values, int64_t n)
{
    if (n < 1) return (tg_bench_stat){0};
    qsort(values, (size_t)n, sizeof *values, by_value);
    const double low = values[(n - 1) / 2], high = values[n / 2];
    return (tg_bench_stat){low + (high - low) / 2, values[0], values[n - 1], n};
}

json_t *tg_bench_stat_json(tg_bench_stat s)
{
    if (s.n == 0) return json_null();
    return json_pack("{s:f, s:f, s:f, s:I}", "median", s.median, "min", s.min, "max", s.max, "n",
                     (json_int_t)s.n);
}

json_t *tg_bench_machine_json(void)
{
    char line[TG_CPU_LINE], version[32];
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    return json_pack("{s:s, s:s, s:i, s:i, s:s, s:s, s:I}", "line", tg_cpu_line(line), "cpu", info.model,
                     "cores", info.cores, "threads", omp_get_max_threads(), "isa",
                     tg_cpu_isa_name(tg_cpu_isa_current()), "gemm", tg_gemm_version(version), "memory_bytes",
                     (json_int_t)info.memory_bytes);
}

teng_status tg_bench_answer(json_t *answer, json_t **out)
{
    if (!answer || json_object_set_new(answer, "version", json_string(teng_version())) != 0 ||
        json_object_set_new(answer, "machine", tg_bench_machine_json()) != 0) {
        json_decref(answer);
        return tg_fail(TENG_MEMORY, "the figures as JSON: out of memory");
    }
    *out = answer;
    return TENG_OK;
}
