/*
 * PYNATIVE on data ranks. Forward and backward run operator by operator on this rank's rows, as on one rank;
 * gradients are then summed over the ranks here, on the host. The update is a graph of its own, placed like
 * that of GRAPH mode (ZeRO splits its states) and run node by node. With parallel.zero=3 the parameters of
 * the store are this rank's rows, and a working copy of the wholes is gathered before each pass.
 */
#include "base/fail.h"
#include "comm/comm.h"
#include "mesh/box_copy.h"
#include "tensor/desc.h"
#include "train/step.h"

#include <stdio.h>
#include <string.h>

static tg_group *data_ranks(void)
{
    return tg_comm_along(tg_comm_current(), TG_DATA_AXES);
}

bool tg_step_is_split(const tg_step *s)
{
    return s->options.parallel && s->options.parallel->zero == 3;
}

/* ---- parameters ---- */
static teng_status gather_param(tg_step *s, const tg_param_info *param)
{
    const tg_parallel_entry *at = s->layout ? tg_parallel_entry_find(s->layout, param->name) : NULL;
    const tg_store_entry *from = tg_store_find(s->store, param->name);
    tg_store_entry *to;
    TG_TRY(tg_store_add(s->whole, TG_STORE_PARAM, param->name, &param->desc, &to));
    if (!from) return tg_fail(TENG_STATE, "%s has no value on this rank", param->name);
    if (!at || tg_desc_equal(&from->desc, &param->desc)) {
        memcpy(to->data, from->data, tg_desc_bytes(&param->desc));
        return TENG_OK;
    }
    tg_group *group = tg_comm_along(tg_comm_current(), at->placement.shard);
    if (!group) return teng_error_status();
    const int n = tg_group_size(group);
    const size_t size = (size_t)teng_dtype_size(param->desc.dtype);
    const bool runs = at->placement.shard_dim == 0; /* one behind the other */
    tg_box *boxes = tg_alloc(sizeof *boxes * (size_t)n), whole = tg_box_whole(&at->whole);
    int64_t *counts = tg_alloc(sizeof *counts * (size_t)n);
    char *shards = runs ? to->data : tg_alloc(tg_desc_bytes(&at->whole));
    teng_status status = boxes && counts && shards ? TENG_OK : TENG_MEMORY;
    for (int r = 0; r < n && status == TENG_OK; r++) { /* the first ranks differ along the data axis alone */
        tg_mesh_box(&s->split.mesh, r, &at->whole, &at->placement, &boxes[r]);
        counts[r] = tg_box_numel(&boxes[r]);
    }
    if (status == TENG_OK) status = tg_comm_all_gather(group, param->desc.dtype, from->data, shards, counts);
    const char *next = shards;
    for (int r = 0; r < n && !runs && status == TENG_OK; r++) {
        tg_box_copy(size, &boxes[r], next, &whole, to->data);
        next += (size_t)counts[r] * size;
    }
    if (!runs) tg_free(shards);
    tg_free(counts);
    tg_free(boxes);
    return status;
}

teng_status tg_step_gather_params(tg_step *s)
{
    if (!tg_step_is_split(s)) return TENG_OK;
    for (size_t i = 0; i < s->n_params; i++)
        TG_TRY(gather_param(s, &s->params[i]));
    return TENG_OK;
}

/* ---- gradients ---- */
teng_status tg_step_sum_gradients(tg_step *s, int n, double *loss)
{
    tg_group *group = data_ranks();
    if (!group) return teng_error_status();
    for (int i = 0; i < n; i++) {
        teng_tensor *g = s->work[i].grad;
        if (!g) continue;
        void *data = g->data; /* of its node, or the accumulator that this updated */
        if (!data) return tg_fail(TENG_STATE, "the gradient of %s has no value", s->work[i].param->name);
        TG_TRY(tg_comm_all_reduce(group, TG_REDUCE_SUM, g->desc.dtype, data, data, tg_desc_numel(&g->desc)));
    }
    return tg_comm_all_reduce(group, TG_REDUCE_SUM, TENG_F64, loss, loss, 1);
}

/* ---- update ---- */
static teng_tensor *gradient_input(tg_graph *u, const tg_optim_param *p)
{
    char name[TG_NAME_MAX];
    snprintf(name, sizeof name, "summed.%s", p->param->name);
    return tg_graph_input(u, name, &p->grad->desc);
}

/* The update of all ranks as a graph; gradients are inputs that every rank has whole. */
static teng_status build_update(tg_step *s, tg_graph *u, int n)
{
    const tg_optim_options optim = tg_step_optim(s);
    tg_optim_param *params = tg_calloc((size_t)n + 1, sizeof *params);
    teng_tensor *norm;
    teng_status status = params ? TENG_OK : TENG_MEMORY;
    for (int i = 0; i < n && status == TENG_OK; i++) {
        params[i] = s->work[i];
        params[i].param = tg_graph_param(u, s->work[i].param->name, &s->work[i].param->desc);
        if (s->work[i].grad) params[i].grad = gradient_input(u, &s->work[i]);
        if (!params[i].param || (s->work[i].grad && !params[i].grad)) status = teng_error_status();
    }
    if (status == TENG_OK) status = tg_optim_update(u, &optim, params, n, &norm);
    if (status == TENG_OK) status = tg_graph_output(u, "grad_norm", norm);
    tg_free(params);
    return status;
}

static teng_status feed_update(tg_step *s, tg_graph *u, int n, int64_t step, double lr, double loss)
{
    float scalars[4];
    const float unscale = tg_step_unscale(s, loss);
    tg_step_scalars(s, step, lr, scalars);
    for (int i = 0; i < n; i++) {
        char name[TG_NAME_MAX];
        snprintf(name, sizeof name, "summed.%s", s->work[i].param->name);
        teng_tensor *in = s->work[i].grad ? tg_graph_find(u, name) : NULL;
        if (in) TG_TRY(tg_eager_feed(s->updates, in, s->work[i].grad->data));
    }
    TG_TRY(tg_eager_feed(s->updates, tg_graph_find(u, TG_OPTIM_SCALARS), scalars));
    return tg_eager_feed(s->updates, tg_graph_find(u, TG_OPTIM_UNSCALE), &unscale);
}

teng_status tg_step_update_ranks(tg_step *s, int n, int64_t step, double lr, double loss, float *norm)
{
    static const char *const no_batch[] = {""};
    tg_parallel_options o = s->split;
    tg_parallel *unused = NULL;
    tg_graph *whole = tg_graph_create("update"), *u = NULL;
    if (!whole) return TENG_MEMORY;
    o.batch = no_batch;
    o.micro_batches = 1;
    teng_status status = build_update(s, whole, n);
    if (status == TENG_OK)
        status = tg_parallel_apply(whole, &o, &u, &unused);
    else
        tg_graph_destroy(&whole);
    if (status == TENG_OK) status = feed_update(s, u, n, step, lr, loss);
    if (status == TENG_OK) status = tg_eager_run(s->updates, u);
    if (status == TENG_OK)
        status = tg_eager_fetch(s->updates, tg_graph_output_find(u, "grad_norm"), norm, sizeof *norm);
    tg_graph_destroy(&u);
    tg_parallel_destroy(&unused);
    tg_eager_end(s->updates);
    return status;
}
