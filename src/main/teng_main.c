/* The program's entry. All of it is in the cli room; this file only lets that room be a library for tests,
 * and says how the process keeps its heap. */
#include "cli/cli.h"

#include <malloc.h>

enum { MAP_FROM_BYTES = 1 << 20, KEEP_TOP_BYTES = 64 << 20 };

/* oneDNN's kernels allocate some MB for the time of a product. By default the C library raises the size from
 * which it maps memory to that of the largest block freed, takes these from the heap then, and small blocks
 * between them keep the holes: five times what is ever used at once, which no plan knows. */
static void settle_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, MAP_FROM_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEEP_TOP_BYTES);
}

int main(int argc, char **argv)
{
    settle_heap();
    return tg_cli_main(argc, argv);
}
