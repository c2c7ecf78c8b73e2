/*
 * Measures what this machine reaches, by oneDNN products and a triad, and keeps the figures in the user's
 * cache folder so that the next run starts at once. The best of several short runs counts: a peak is what
 * interference does not lower.
 */
#include "device/cpu_info.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/mem.h"
#include "device/cpu/cpu_cache.h"
#include "device/cpu_gemm.h"
#include "device/cpu_isa.h"
#include "tensor/desc.h"

#include <ctype.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRODUCT_SECONDS 0.06
#define TRIAD_SECONDS 0.04
#define MIN_TRIAD ((int64_t)8 << 20) /* elements of one array */

/* Small numbers of both signs: the same row again and again. */
static void fill(teng_dtype dtype, char *data, int64_t size)
{
    size_t row = (size_t)(size * teng_dtype_size(dtype));
    for (int64_t i = 0; i < size; i++)
        tg_store_double(dtype, data, i, (double)(i % 13) / 8 - 0.75);
    for (int64_t i = 1; i < size; i++)
        memcpy(data + (size_t)i * row, data, row);
}

teng_status tg_cpu_time_product(teng_dtype dtype, int64_t size, double seconds, tg_cpu_rates *out)
{
    out->n = 0;
    tg_gemm_spec spec = {.a = dtype, .b = dtype, .c = dtype, .m = size, .n = size, .k = size};
    tg_gemm_plan *plan;
    TG_TRY(tg_gemm_plan_create(&spec, &plan));
    size_t bytes = (size_t)(size * size * teng_dtype_size(dtype));
    void *a = tg_alloc_aligned(bytes), *b = tg_alloc_aligned(bytes), *c = tg_alloc_aligned(bytes);
    void *scratch = tg_alloc_aligned(tg_gemm_scratch(plan));
    teng_status status = a && b && c && scratch ? TENG_OK : TENG_MEMORY;
    if (status == TENG_OK) {
        fill(dtype, a, size);
        fill(dtype, b, size);
        const double flops = 2 * (double)size * (double)size * (double)size;
        double start = tg_clock_seconds(), now = start;
        for (int run = 0; status == TENG_OK && (run < 2 || now - start < seconds); run++) {
            double before = now;
            status = tg_gemm_run(plan, a, b, NULL, c, scratch);
            now = tg_clock_seconds();
            if (run && out->n < TG_CPU_RATES) /* the first run warms up */
                out->rate[out->n++] = 1e-9 * flops / (now - before);
        }
    }
    tg_free_aligned(a);
    tg_free_aligned(b);
    tg_free_aligned(c);
    tg_free_aligned(scratch);
    tg_gemm_plan_destroy(&plan);
    return status;
}

static void triad(float *restrict a, const float *restrict b, const float *restrict c, int64_t n)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i] + 0.5f * c[i];
}

static void copy(float *restrict a, const float *restrict b, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i];
}

/* Whole numbers, so that the compiler may use many sums. */
static uint64_t add_up(const uint64_t *a, int64_t n)
{
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i];
    return sum;
}

/* Bytes that one pass of that kind moves. */
static double run_stream(tg_cpu_stream kind, void *const x[3], int64_t n)
{
    const double bytes = (double)n * sizeof(float);
    /* The array is all zeros, which the compiler does not know: it must read them. */
    if (kind == TG_CPU_READ) return add_up(x[0], n / 2) == 0 ? bytes : 0;
    if (kind == TG_CPU_COPY) {
        copy(x[0], x[1], n);
        return 2 * bytes;
    }
    triad(x[0], x[1], x[2], n);
    return 3 * bytes;
}

/* Pages are placed by the thread that will use them. */
static void touch(tg_cpu_stream kind, void *const x[3], int arrays, int64_t n)
{
    if (kind == TG_CPU_READ) {
        uint64_t *whole = x[0];
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n / 2; i++)
            whole[i] = 0;
        return;
    }
    for (int k = 0; k < arrays; k++) {
        float *parts = x[k];
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i++)
            parts[i] = (float)k;
    }
}

/* Elements of an array: three of them are three times the last cache, where memory allows. */
static int64_t stream_elements(void)
{
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    int64_t n = (int64_t)(info.l3_bytes / sizeof(float));
    if (n < MIN_TRIAD) n = MIN_TRIAD;
    if ((uint64_t)n * 3 * sizeof(float) > info.memory_bytes / 8) n = (int64_t)(info.memory_bytes / 8 / 12);
    return n;
}

teng_status tg_cpu_time_stream(tg_cpu_stream kind, double seconds, tg_cpu_rates *out)
{
    out->n = 0;
    const int64_t n =
        stream_elements() * (kind == TG_CPU_READ ? 3 : 1); /* all of them are far larger than a cache */
    void *x[3] = {0};
    const int arrays = kind == TG_CPU_READ ? 1 : kind == TG_CPU_COPY ? 2 : 3;
    teng_status status = TENG_OK;
    for (int i = 0; i < arrays && status == TENG_OK; i++) {
        x[i] = tg_alloc_aligned((size_t)n * sizeof(float));
        if (!x[i]) status = TENG_MEMORY;
    }
    if (status == TENG_OK) {
        touch(kind, x, arrays, n);
        double start = tg_clock_seconds(), now = start;
        for (int run = 0; run < 3 || now - start < seconds; run++) {
            double before = now;
            const double bytes = run_stream(kind, x, n);
            now = tg_clock_seconds();
            if (out->n < TG_CPU_RATES) out->rate[out->n++] = 1e-9 * bytes / (now - before);
        }
    }
    for (int i = 0; i < arrays; i++)
        tg_free_aligned(x[i]);
    return status;
}

static double best(const tg_cpu_rates *r)
{
    double most = 0;
    for (int i = 0; i < r->n; i++)
        if (r->rate[i] > most) most = r->rate[i];
    return most;
}

static teng_status best_product(teng_dtype dtype, double *gflops)
{
    tg_cpu_rates r;
    TG_TRY(tg_cpu_time_product(dtype, 1024, PRODUCT_SECONDS, &r));
    *gflops = best(&r);
    if (*gflops < 200) return TENG_OK; /* it fills few cores, and a larger cube would take long */
    TG_TRY(tg_cpu_time_product(dtype, 2048, PRODUCT_SECONDS, &r));
    if (best(&r) > *gflops) *gflops = best(&r);
    return TENG_OK;
}

static teng_status measure(tg_cpu_peak *out)
{
    tg_cpu_rates r;
    TG_TRY(best_product(TENG_F32, &out->f32_gflops));
    out->bf16_gflops = 0;
    if (tg_gemm_native(TENG_BF16)) TG_TRY(best_product(TENG_BF16, &out->bf16_gflops));
    TG_TRY(tg_cpu_time_stream(TG_CPU_TRIAD, TRIAD_SECONDS, &r));
    out->bandwidth_gb_s = best(&r);
    return TENG_OK;
}

/* ---- cache ---- */

char *tg_cpu_cache_path(const char *what, int threads)
{
    tg_cpu_info info;
    tg_cpu_info_get(&info);
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *dir = base && base[0] == '/' ? tg_asprintf("%s/teng", base)
                : home && home[0]      ? tg_asprintf("%s/.cache/teng", home)
                                       : NULL;
    if (!dir) return NULL;
    char name[128];
    size_t n = 0;
    for (const char *p = info.model; *p && n + 1 < sizeof name; p++)
        if (isalnum((unsigned char)*p))
            name[n++] = *p;
        else if (n && name[n - 1] != '-')
            name[n++] = '-';
    while (n && name[n - 1] == '-')
        n--;
    name[n] = 0;
    char *path =
        tg_asprintf("%s/%s-%s-%s-%d.json", dir, what, name, tg_cpu_isa_name(tg_cpu_isa_current()), threads);
    tg_free(dir);
    return path;
}

static bool load(const char *path, tg_cpu_peak *out)
{
    char version[32];
    const char *wrote = "";
    json_t *root = NULL;
    if (!tg_path_exists(path)) return false;
    bool ok = tg_json_load_file(path, &root) == TENG_OK &&
              tg_json_get_string(root, path, "gemm", true, &wrote) == TENG_OK &&
              !strcmp(wrote, tg_gemm_version(version)) &&
              tg_json_get_real(root, path, "f32_gflops", true, &out->f32_gflops) == TENG_OK &&
              tg_json_get_real(root, path, "bf16_gflops", true, &out->bf16_gflops) == TENG_OK &&
              tg_json_get_real(root, path, "bandwidth_gb_s", true, &out->bandwidth_gb_s) == TENG_OK &&
              out->f32_gflops > 0 && out->bandwidth_gb_s > 0;
    json_decref(root);
    return ok;
}

teng_status tg_cpu_cache_save(const char *path, const json_t *json)
{
    char *dir = tg_strndup(path, (size_t)(strrchr(path, '/') - path));
    teng_status status = dir ? tg_mkdirs(dir) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_json_save_file(path, json);
    tg_free(dir);
    return status;
}

static void save(const char *path, const tg_cpu_peak *peak)
{
    char version[32];
    json_t *root =
        json_pack("{s:s, s:f, s:f, s:f}", "gemm", tg_gemm_version(version), "f32_gflops", peak->f32_gflops,
                  "bf16_gflops", peak->bf16_gflops, "bandwidth_gb_s", peak->bandwidth_gb_s);
    if (root) tg_cpu_cache_save(path, root);
    json_decref(root);
}

teng_status tg_cpu_measure_peak(bool fresh, tg_cpu_peak *out)
{
    memset(out, 0, sizeof *out);
    out->threads = omp_get_max_threads();
    /* Trouble with the cache must neither show as an error nor hide one that the caller holds. */
    tg_error held;
    tg_error_take(&held);
    char *path = tg_cpu_cache_path("peak", out->threads);
    bool known = path && !fresh && load(path, out);
    teng_error_clear();
    teng_status status = known ? TENG_OK : measure(out);
    if (status == TENG_OK) {
        if (path && !known) save(path, out);
        teng_error_clear();
    }
    tg_free(path);
    if (held.status != TENG_OK) {
        teng_error_clear();
        tg_error_give(&held);
    }
    return status;
}
