/* What the machine itself reaches: products of square matrices by oneDNN, and streams through memory. */
#include "bench/bench.h"

#include "base/fail.h"
#include "device/cpu_gemm.h"
#include "device/cpu_info.h"

#include <omp.h>

/* Of the faster of two sizes: large ones fill many cores, and take long on few. */
teng_status tg_bench_matmul_peak(teng_dtype dtype, double seconds, tg_bench_stat *out)
{
    *out = (tg_bench_stat){0};
    for (int64_t size = 1024; size <= 2048; size *= 2) {
        tg_cpu_rates r;
        TG_TRY(tg_cpu_time_product(dtype, size, seconds / 2, &r));
        const tg_bench_stat s = tg_bench_stat_of(r.rate, r.n);
        if (s.median > out->median) *out = s;
        if (s.max < 100) break;
    }
    return TENG_OK;
}

static teng_status put_product(teng_dtype dtype, double seconds, const char *key, json_t *row)
{
    tg_bench_stat s = {0};
    if (dtype == TENG_F32 || tg_gemm_native(dtype)) TG_TRY(tg_bench_matmul_peak(dtype, seconds, &s));
    return json_object_set_new(row, key, tg_bench_stat_json(s)) == 0 ? TENG_OK : TENG_MEMORY;
}

static teng_status put_stream(tg_cpu_stream kind, double seconds, const char *key, json_t *row)
{
    tg_cpu_rates r;
    TG_TRY(tg_cpu_time_stream(kind, seconds, &r));
    return json_object_set_new(row, key, tg_bench_stat_json(tg_bench_stat_of(r.rate, r.n))) == 0
               ? TENG_OK
               : TENG_MEMORY;
}

static teng_status put_row(double seconds, json_t *row)
{
    if (!row || json_object_set_new(row, "threads", json_integer(omp_get_max_threads())) != 0)
        return TENG_MEMORY;
    TG_TRY(put_product(TENG_F32, seconds, "f32_gflops", row));
    TG_TRY(put_product(TENG_BF16, seconds, "bf16_gflops", row));
    TG_TRY(put_product(TENG_F16, seconds, "f16_gflops", row));
    TG_TRY(put_stream(TG_CPU_READ, seconds, "read_gb_s", row));
    TG_TRY(put_stream(TG_CPU_COPY, seconds, "copy_gb_s", row));
    return put_stream(TG_CPU_TRIAD, seconds, "triad_gb_s", row);
}

teng_status tg_bench_peak(const tg_bench_peak_options *options, json_t **out)
{
    tg_device *dev = NULL; /* sets the threads and the instruction set as a training does */
    TG_TRY(tg_device_open("cpu", (int)options->threads, &dev));
    const int all = dev->info.threads;
    json_t *rows = json_array();
    teng_status status = rows ? TENG_OK : TENG_MEMORY;
    for (int threads = 1; status == TENG_OK; threads = all) {
        omp_set_num_threads(threads);
        json_t *row = json_object();
        status = put_row(options->seconds, row);
        if (json_array_append_new(rows, row) != 0 && status == TENG_OK) status = TENG_MEMORY;
        if (threads == all) break;
    }
    omp_set_num_threads(all);
    if (status == TENG_OK)
        status = tg_bench_answer(json_pack("{s:O}", "peaks", rows), out);
    else if (teng_error_status() == TENG_OK)
        tg_fail(status, "the figures as JSON: out of memory");
    json_decref(rows);
    tg_device_close(&dev);
    return status;
}
