/*
 * Which way each product of this process goes (tg_gemm_way): a list of products with the way chosen for each
 * by measuring, from which every plan of a product that names no way takes its own. What is not on the list
 * goes by sizes. One list a process; used between steps, by one thread.
 */
#ifndef TG_DEVICE_CPU_PRODUCTS_H
#define TG_DEVICE_CPU_PRODUCTS_H

#include "base/json.h"
#include "device/cpu_gemm.h"

typedef struct tg_product {
    tg_gemm_spec spec; /* strides written out; way: what was chosen, TG_GEMM_BY_SIZES: nothing was */
    int64_t times;     /* plans of it, and runs again of such a plan, since noting began */
    double gflops;     /* of that way, when it was chosen; 0: not measured */
} tg_product;

/* Empties the list: products go by sizes again. */
void tg_products_clear(void);
/* From here on plans are noted, each `times` times; 0: no longer. The list's times begin at 0 with the first.
 */
void tg_products_note(int64_t times);
size_t tg_products_count(void);
const tg_product *tg_products_at(size_t i);
/* Way and rate as the list has them, or by sizes: never TG_GEMM_BY_SIZES. */
tg_gemm_way tg_products_way(const tg_product *product);

/* Measures the ways of every product of the list without one, on drawn numbers with the current threads, by
 * turns, and chooses: the least median, where it is 3 % below that of the way by sizes. A run takes about
 * 25 ms at most; larger products are measured on a part. Products that memory has no room for go by sizes.
 * *measured: how many. */
teng_status tg_products_measure(int *measured);

/* {"gemm": "oneDNN 2.6.3", "products": [{"m": …, …, "way": …, "gflops": …}]}, new reference; NULL: no memory.
 * chosen: those with a way only. */
json_t *tg_products_json(bool chosen);
/* Takes ways from such an object, for the products of the list without one; all: its other products, too.
 * TENG_INVALID (then nothing is taken) names `where` for one that tg_products_json did not write. */
teng_status tg_products_take(const json_t *json, const char *where, bool all);
/* The object of one product, for listings; new reference. */
json_t *tg_product_json(const tg_product *product);

/* $XDG_CACHE_HOME/teng or ~/.cache/teng, products-<model>-<isa>-<threads>.json; heap; NULL: no home. */
char *tg_products_cache_path(void);
/* The same from a file. None is no error; one that is broken, or of another oneDNN, is. */
teng_status tg_products_load(const char *path, bool all);
teng_status tg_products_save(const char *path); /* makes the folder */

/* For tg_gemm_plan_create: the list's way, after noting. For tg_gemm_again: noting. Strides are written out.
 */
tg_gemm_way tg_products_find(const tg_gemm_spec *spec);

#endif
