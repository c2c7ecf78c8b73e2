/* teng devices: what this machine computes with, and how fast it was measured to be. */
#include "cli/cli_console.h"

#include "base/fail.h"
#include "device/cpu_gemm.h"
#include "device/cpu_info.h"
#include "device/cpu_isa.h"
#include "device/device.h"

#include <stdio.h>

/* "48.0 KiB", or "unknown". */
static const char *size_text(char *buf, uint64_t bytes)
{
    return bytes ? tg_format_bytes(buf, (double)bytes) : "unknown";
}

static void print_cpu(const tg_cpu_info *info, const tg_cpu_peak *peak, const tg_device *dev)
{
    char a[32], b[32], c[32], list[64], gemm[32];
    printf("cpu: %s\n", info->model);
    printf("  cores              %d, %d thread%s used\n", info->cores, peak->threads,
           peak->threads == 1 ? "" : "s");
    printf("  caches             L1d %s, L2 %s, L3 %s\n", size_text(a, info->l1d_bytes),
           size_text(b, info->l2_bytes), size_text(c, info->l3_bytes));
    printf("  memory             %s\n", size_text(a, info->memory_bytes));
    printf("  instruction sets   %s; %s in use, %s is the best here\n", tg_cpu_isa_list(list),
           tg_cpu_isa_name(tg_cpu_isa_current()), tg_cpu_isa_name(tg_cpu_isa_best()));
    printf("  matrix products    %s\n", tg_gemm_version(gemm));
    printf("  peak fp32          %.1f GFLOP/s\n", peak->f32_gflops);
    if (dev->info.bf16 && peak->bf16_gflops > 0)
        printf("  peak bf16          %.1f GFLOP/s\n", peak->bf16_gflops);
    else
        printf("  peak bf16          no instructions for it: bf16 gives right results here, slowly\n");
    printf("  memory bandwidth   %.1f GB/s\n", peak->bandwidth_gb_s);
}

int tg_cmd_devices(const tg_args_devices *args)
{
    tg_device *dev = NULL;
    tg_cpu_info info;
    tg_cpu_peak peak;
    tg_cli_log_warnings(&args->base);
    if (tg_device_open("cpu", (int)args->threads, &dev) != TENG_OK) return tg_cli_failed(&args->base);
    int status = TG_EXIT_OK;
    tg_cpu_info_get(&info);
    if (tg_cpu_measure_peak(args->measure, &peak) != TENG_OK)
        status = tg_cli_failed(&args->base);
    else if (args->json)
        status = tg_cli_put_json(&args->base, tg_cpu_info_json(&info, &peak));
    else
        print_cpu(&info, &peak, dev);
    tg_device_close(&dev);
    return status;
}
