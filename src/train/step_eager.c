/*
 * The step in PYNATIVE: the same graph is built anew each step, and every node runs as it is appended. With
 * several micro-batches each has a graph of its own, whose gradients live on in the store, and the update has
 * one more.
 */
#include "train/step.h"

#include "base/fail.h"
#include "tensor/desc.h"

#include <stdio.h>
#include <string.h>

typedef struct eager_feed {
    tg_step *s;
    const tg_step_feed *feed;
} eager_feed;

static teng_status give_input(void *user, teng_tensor *input, int index)
{
    const eager_feed *f = user;
    const float weight = tg_step_seed(f->s, f->feed->weight);
    return tg_eager_feed(f->s->eager, input, index < 0 ? (const void *)&weight : f->feed->in[index]);
}

/* Inputs that appear while nodes are appended must have their value before the node that reads them runs. */
static teng_status give_named(tg_step *s, tg_graph *g, const char *name, const teng_desc *desc,
                              const void *data)
{
    teng_tensor *v = tg_graph_input(g, name, desc);
    return v ? tg_eager_feed(s->eager, v, data) : teng_error_status();
}

static teng_status give_update_inputs(tg_step *s, tg_graph *g, int64_t step, double lr, double loss)
{
    float scalars[4];
    const float unscale = tg_step_unscale(s, loss);
    const int64_t four = 4;
    const teng_desc vector = tg_desc_make(TENG_F32, 1, &four), scalar = tg_desc_make(TENG_F32, 0, NULL);
    tg_step_scalars(s, step, lr, scalars);
    TG_TRY(give_named(s, g, TG_OPTIM_SCALARS, &vector, scalars));
    return give_named(s, g, TG_OPTIM_UNSCALE, &scalar, &unscale);
}

static teng_status update(tg_step *s, tg_graph *g, int n, float *norm)
{
    teng_tensor *value;
    const tg_optim_options optim = tg_step_optim(s);
    TG_TRY(tg_optim_update(g, &optim, s->work, n, &value));
    return tg_eager_fetch(s->eager, value, norm, sizeof *norm);
}

static teng_status train_micro_batch(tg_step *s, tg_graph *g, int64_t step, int64_t m,
                                     const tg_step_feed *feed, float *loss, int *n)
{
    eager_feed f = {s, feed};
    teng_tensor *value;
    uint64_t rng[2];
    const int64_t two = 2;
    const float keep = m ? 1.0F : 0.0F;
    const teng_desc pair = tg_desc_make(TENG_U64, 1, &two), scalar = tg_desc_make(TENG_F32, 0, NULL);
    tg_step_rng(s, step, m, rng);
    TG_TRY(give_named(s, g, TG_STEP_RNG, &pair, rng));
    if (s->options.micro_batches > 1) TG_TRY(give_named(s, g, TG_OPTIM_KEEP, &scalar, &keep));
    TG_TRY(tg_step_build(s, g, feed, TG_STEP_TRAIN, give_input, &f, &value, n));
    return tg_eager_fetch(s->eager, value, loss, sizeof *loss);
}

/* Parameters and their accumulated gradients as values of a fresh graph. */
static teng_status bind_accumulated(tg_step *s, tg_graph *g, int n)
{
    for (int i = 0; i < n; i++) {
        char name[768];
        const teng_desc desc = s->work[i].param->desc;
        const char *param = s->work[i].param->name; /* of the graph of the last micro-batch, still alive */
        snprintf(name, sizeof name, "grad.%s", param);
        const bool has_grad = s->work[i].grad != NULL;
        s->work[i].param = tg_graph_param(g, param, &desc);
        s->work[i].grad = has_grad ? tg_graph_state(g, name, &desc) : NULL;
        if (!s->work[i].param || (has_grad && !s->work[i].grad)) return teng_error_status();
    }
    return TENG_OK;
}

/* A graph whose nodes run at once. */
static tg_graph *eager_graph(tg_step *s, const char *name)
{
    tg_graph *g = tg_graph_create(name);
    if (!g) return NULL;
    if (s->options.parallel)
        g->parts = tg_mesh_group(&s->split.mesh, s->split.rank, TG_DATA_AXES, NULL, &g->part);
    tg_eager_begin(s->eager, g);
    return g;
}

static teng_status train_accumulated(tg_step *s, int64_t step, double lr, const tg_step_feed *feeds,
                                     double *total, float *norm)
{
    tg_graph *g = NULL;
    teng_status status = TENG_OK;
    int n = 0;
    for (int64_t m = 0; m < s->options.micro_batches && status == TENG_OK; m++) {
        tg_graph_destroy(&g);
        tg_eager_end(s->eager);
        float loss = 0;
        g = eager_graph(s, "train");
        status = g ? train_micro_batch(s, g, step, m, &feeds[m], &loss, &n) : TENG_MEMORY;
        *total += feeds[m].weight * (double)loss;
    }
    const bool many = s->options.parallel != NULL;
    if (status == TENG_OK && many) status = tg_step_sum_gradients(s, n, total);
    if (status == TENG_OK && many) status = tg_step_update_ranks(s, n, step, lr, *total, norm);
    if (status != TENG_OK || many) {
        tg_graph_destroy(&g);
        tg_eager_end(s->eager);
        return status;
    }
    tg_graph *u = status == TENG_OK ? eager_graph(s, "update") : NULL;
    if (status == TENG_OK) status = u ? bind_accumulated(s, u, n) : TENG_MEMORY;
    if (status == TENG_OK) status = give_update_inputs(s, u, step, lr, *total);
    if (status == TENG_OK) status = update(s, u, n, norm);
    tg_graph_destroy(&u);
    tg_graph_destroy(&g);
    tg_eager_end(s->eager);
    return status;
}

static teng_status train_whole(tg_step *s, int64_t step, double lr, const tg_step_feed *feed, double *total,
                               float *norm)
{
    float loss = 0;
    int n = 0;
    tg_graph *g = eager_graph(s, "train");
    teng_status status = g ? train_micro_batch(s, g, step, 0, feed, &loss, &n) : TENG_MEMORY;
    *total = feed->weight * (double)loss;
    if (status == TENG_OK && s->options.parallel) {
        status = tg_step_sum_gradients(s, n, total);
        if (status == TENG_OK) status = tg_step_update_ranks(s, n, step, lr, *total, norm);
    } else {
        if (status == TENG_OK) status = give_update_inputs(s, g, step, lr, *total);
        if (status == TENG_OK) status = update(s, g, n, norm);
    }
    tg_graph_destroy(&g);
    tg_eager_end(s->eager);
    return status;
}

teng_status tg_step_eager_train(tg_step *s, int64_t step, double lr, const tg_step_feed *feeds,
                                tg_step_result *out)
{
    double total = 0;
    float norm = 0;
    TG_TRY(tg_step_gather_params(s));
    if (s->options.micro_batches > 1)
        TG_TRY(train_accumulated(s, step, lr, feeds, &total, &norm));
    else
        TG_TRY(train_whole(s, step, lr, feeds, &total, &norm));
    *out = tg_step_result_of(total, norm);
    return TENG_OK;
}

teng_status tg_step_eager_passes(tg_step *s, int64_t step, const tg_step_feed *feed, int64_t m)
{
    float loss;
    int n;
    TG_TRY(tg_step_gather_params(s));
    tg_graph *g = eager_graph(s, "train");
    const teng_status status = g ? train_micro_batch(s, g, step, m, feed, &loss, &n) : TENG_MEMORY;
    tg_graph_destroy(&g);
    tg_eager_end(s->eager);
    return status;
}

teng_status tg_step_eager_run(tg_step *s, const tg_step_feed *feed, tg_step_kind kind, void *out,
                              size_t bytes)
{
    eager_feed f = {s, feed};
    teng_tensor *value;
    int n = 0;
    TG_TRY(tg_step_gather_params(s));
    tg_graph *g = eager_graph(s, "eval");
    teng_status status = g ? tg_step_build(s, g, feed, kind, give_input, &f, &value, &n) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_eager_fetch(s->eager, value, out, bytes);
    tg_graph_destroy(&g);
    tg_eager_end(s->eager);
    return status;
}

static teng_status fetch_grads(tg_step *s, int n, float *const *grads)
{
    int next = 0; /* of work, which follows the order of params and leaves unused ones out */
    for (size_t i = 0; i < s->n_params; i++) {
        const size_t bytes = tg_desc_bytes(&s->params[i].desc);
        const bool used = next < n && strcmp(s->work[next].param->name, s->params[i].name) == 0;
        teng_tensor *grad = used ? s->work[next++].grad : NULL;
        if (grad)
            TG_TRY(tg_eager_fetch(s->eager, grad, grads[i], bytes));
        else
            memset(grads[i], 0, bytes);
    }
    return TENG_OK;
}

teng_status tg_step_eager_grads(tg_step *s, const tg_step_feed *feed, double *loss, float *const *grads)
{
    tg_step_feed whole = *feed;
    whole.weight = 1;
    eager_feed f = {s, &whole};
    teng_tensor *value;
    float first = 0;
    int n = 0;
    tg_graph *g = eager_graph(s, "grads");
    teng_status status =
        g ? tg_step_build(s, g, &whole, TG_STEP_GRADS, give_input, &f, &value, &n) : TENG_MEMORY;
    if (status == TENG_OK) status = tg_eager_fetch(s->eager, value, &first, sizeof first);
    if (status == TENG_OK) status = fetch_grads(s, n, grads);
    *loss = (double)first;
    tg_graph_destroy(&g);
    tg_eager_end(s->eager);
    return status;
}
