/*
 * What a layer keeps under one rule, and the list of moves that AUTO takes from: for each layer the cuts that
 * come of allowing ever dearer operators, thinned to those worth their time, as steps of bytes freed and
 * seconds paid; the steps of all layers in the order of seconds a byte.
 */
#include "base/fail.h"
#include "pass/recompute_impl.h"

#include <stdlib.h>
#include <string.h>

typedef struct rung { /* one way to cut a layer */
    double limit, seconds;
    int64_t kept;
} rung;
typedef struct move {
    size_t layer;
    double limit; /* of the rung that it leads to */
    double price; /* seconds a byte */
    int level;    /* of its layer, from 1 */
} move;

/* Which operators run again, and how long they take. */
static double seconds_again(const tg_layer *layer, const bool *keep, bool *run)
{
    const size_t n = layer->values.len;
    double seconds = 0;
    bool *wanted = run + layer->ops.len;
    memset(run, 0, layer->ops.len * sizeof *run);
    for (size_t i = 0; i < n; i++)
        wanted[i] = layer->cut.data[i].needed;
    for (size_t i = n; i-- > 0;) {
        const int op = layer->op_of.data[i];
        if (!wanted[i] || keep[i]) continue;
        if (!run[op]) seconds += layer->ops.data[op].seconds;
        run[op] = true;
        for (int k = 0; k < layer->cut.data[i].n_from; k++)
            wanted[layer->cut.data[i].from[k]] = true;
    }
    return seconds;
}

teng_status tg_layer_cut(tg_layer *layer, tg_recompute_kind kind, double limit, bool *keep, int64_t *kept,
                         double *seconds)
{
    const size_t n = layer->values.len;
    for (size_t i = 0; i < n; i++) {
        const tg_layer_op *op = &layer->ops.data[layer->op_of.data[i]];
        layer->cut.data[i].producible =
            op->pure && (kind == TG_RECOMPUTE_FULL || (kind == TG_RECOMPUTE_SELECTIVE && op->cheap) ||
                         (kind == TG_RECOMPUTE_AUTO && op->per_byte <= limit));
    }
    TG_TRY(tg_pass_min_cut(layer->cut.data, (int)n, keep));
    bool *run = tg_alloc(layer->ops.len + n + 1);
    if (!run) return TENG_MEMORY;
    *kept = 0;
    for (size_t i = 0; i < n; i++)
        if (keep[i]) *kept += layer->cut.data[i].bytes;
    *seconds = seconds_again(layer, keep, run);
    tg_free(run);
    return TENG_OK;
}

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The operators' prices, rising, those within a twentieth taken together. Returns how many. */
static size_t list_limits(const tg_layer *layer, double *limits)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < layer->ops.len; i++)
        if (layer->ops.data[i].pure) limits[n++] = layer->ops.data[i].per_byte;
    qsort(limits, n, sizeof *limits, by_number);
    for (size_t i = 0; i < n; i++)
        if (kept && limits[i] <= limits[kept - 1] * 1.05)
            limits[kept - 1] = limits[i];
        else
            limits[kept++] = limits[i];
    return kept;
}

/* From the rung `at`, the one that frees most bytes a second; n when none frees any. */
static size_t best_next(const rung *rungs, size_t n, size_t at, double *price)
{
    size_t best = n;
    for (size_t i = at + 1; i < n; i++) {
        if (rungs[i].kept >= rungs[at].kept) continue;
        const double paid = rungs[i].seconds > rungs[at].seconds ? rungs[i].seconds - rungs[at].seconds : 0;
        const double p = paid / (double)(rungs[at].kept - rungs[i].kept);
        if (best == n || p <= *price) {
            best = i;
            *price = p;
        }
    }
    return best;
}

typedef TG_VEC(move) move_list;

static teng_status climb(tg_layer *layer, size_t index, move_list *moves)
{
    double *limits = tg_alloc((layer->ops.len + 1) * sizeof *limits);
    rung *rungs = tg_alloc((layer->ops.len + 2) * sizeof *rungs);
    bool *keep = tg_alloc(layer->values.len + 1);
    teng_status status = limits && rungs && keep ? TENG_OK : TENG_MEMORY;
    const size_t n = status == TENG_OK ? list_limits(layer, limits) + 1 : 0;
    for (size_t i = 0; i < n && status == TENG_OK; i++) {
        rungs[i].limit = i ? limits[i - 1] : -1;
        status =
            tg_layer_cut(layer, TG_RECOMPUTE_AUTO, rungs[i].limit, keep, &rungs[i].kept, &rungs[i].seconds);
    }
    double price = 0;
    int level = 0;
    for (size_t at = 0, next; status == TENG_OK && (next = best_next(rungs, n, at, &price)) < n; at = next) {
        const move m = {index, rungs[next].limit, price, ++level};
        if (!tg_vec_push(moves, m)) status = TENG_MEMORY;
    }
    tg_free(limits);
    tg_free(rungs);
    tg_free(keep);
    return status;
}

/* Equal layers: the earliest first, whose clones run when most has been freed again. A layer's own moves keep
 * their order, because their prices rise. */
static int by_price(const void *a, const void *b)
{
    const move *x = a, *y = b;
    if (x->price != y->price) return x->price < y->price ? -1 : 1;
    if (x->level != y->level) return x->level < y->level ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

teng_status tg_layers_auto(tg_layer *layers, size_t n, int moves, int *all)
{
    move_list list = {0};
    teng_status status = TENG_OK;
    for (size_t i = 0; i < n && status == TENG_OK; i++)
        status = climb(&layers[i], i, &list);
    if (status == TENG_OK && list.len) qsort(list.data, list.len, sizeof *list.data, by_price);
    *all = (int)list.len;
    for (size_t i = 0; i < list.len && (int)i < moves && status == TENG_OK; i++) {
        int64_t kept;
        double seconds;
        tg_layer *layer = &layers[list.data[i].layer];
        status =
            tg_layer_cut(layer, TG_RECOMPUTE_AUTO, list.data[i].limit, layer->keep.data, &kept, &seconds);
    }
    tg_vec_free(&list);
    return status;
}
