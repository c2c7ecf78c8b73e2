/* See par_case.h. */
#include "par_case.h"

#include "autograd/autograd.h"
#include "base/fail.h"
#include "base/rng.h"
#include "op/op_list.h"
#include "optim/optim.h"
#include "tensor/desc.h"

#include "cmocka_all.h"

#include <math.h>
#include <string.h>

enum { ROWS = 8, SEQ = 16, STEPS = 3, VOCAB = 61 };

static int64_t rows_of(const par_case *c)
{
    return c->rows ? c->rows : ROWS;
}
static int64_t seq_of(const par_case *c)
{
    return c->seq ? c->seq : SEQ;
}
static teng_desc batch_desc(const par_case *c)
{
    return tg_desc_make(TENG_I32, 2, (int64_t[]){rows_of(c), seq_of(c)});
}

static void check(bool ok)
{
    if (!ok) fail_msg("%s", teng_error());
}

static teng_cell *make(const par_case *c)
{
    return c->make ? c->make(c->config) : teng_lm_create(c->config);
}

tg_graph *par_case_graph(const par_case *c, teng_cell *lm)
{
    const tg_param_info *infos;
    size_t n = 0;
    check(tg_op_register_builtin() == TENG_OK && tg_nn_params(lm, &infos, &n) == TENG_OK);
    tg_graph *g = tg_graph_create("train");
    const teng_desc batch = batch_desc(c), scalar = tg_desc_make(TENG_F32, 0, NULL);
    teng_tensor *in[] = {tg_graph_input(g, "tokens", &batch), tg_graph_input(g, "labels", &batch)};
    const tg_nn_options options = {.training = c->dropout, .differentiate = true, .precision = c->precision};
    teng_tensor *loss = tg_nn_trace_with(lm, g, in, 2, &options), *norm;
    check(loss != NULL);
    teng_tensor **wrt = tg_calloc(n, sizeof(teng_tensor *)), **grads = tg_calloc(n, sizeof(teng_tensor *));
    tg_optim_param *params = tg_calloc(n, sizeof *params);
    int k = 0;
    for (size_t i = 0; i < n; i++)
        if ((wrt[k] = tg_graph_find(g, infos[i].name))) k++;
    check(tg_autograd_backward(g, loss, tg_graph_input(g, "loss.weight", &scalar), wrt, k, grads) == TENG_OK);
    for (int i = 0; i < k; i++)
        params[i] = (tg_optim_param){wrt[i], grads[i], wrt[i]->desc.ndim > 1};
    tg_trace trace;
    tg_trace_begin(&trace, g);
    trace.phase = TG_BACKWARD;
    trace.scope = "optimizer";
    if (c->micro_batches > 1) check(tg_optim_accumulate(g, params, k) == TENG_OK);
    tg_trace_end(&trace);
    const tg_optim_options adamw = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
    check(tg_graph_output(g, "loss", loss) == TENG_OK);
    check(tg_optim_update(g, &adamw, params, k, &norm) == TENG_OK);
    check(tg_graph_output(g, "grad_norm", norm) == TENG_OK);
    check(tg_graph_check(g) == TENG_OK);
    tg_free(wrt);
    tg_free(grads);
    tg_free(params);
    return g;
}

teng_status par_case_try(const par_case *c, teng_cell *lm, int rank, tg_graph **local, tg_parallel **made)
{
    static const char *const batch[] = {"tokens", "labels"};
    tg_parallel_options o = {.rank = rank,
                             .batch = batch,
                             .n_batch = 2,
                             .sequence = c->sequence,
                             .zero = c->zero,
                             .reduce_dtype = c->reduce_dtype,
                             .fusion = c->fusion,
                             .micro_batches = c->micro_batches ? c->micro_batches : 1};
    int size[TG_AXES];
    for (int a = 0; a < TG_AXES; a++)
        size[a] = c->size[a] ? c->size[a] : 1;
    TG_TRY(tg_mesh_make(size, 0, &o.mesh));
    return tg_parallel_apply(par_case_graph(c, lm), &o, local, made);
}

tg_graph *par_case_local(const par_case *c, teng_cell *lm, int rank, tg_parallel **made)
{
    tg_graph *g = NULL;
    check(par_case_try(c, lm, rank, &g, made) == TENG_OK);
    check(tg_graph_check(g) == TENG_OK);
    return g;
}

static void feed_batch(par_sim *sim, const par_case *c, int64_t number)
{
    const teng_desc d = batch_desc(c);
    const int64_t n = tg_desc_numel(&d), seq = seq_of(c);
    const uint64_t key = tg_rng_key((uint64_t)number, "par");
    int32_t *tokens = tg_calloc((size_t)n + 1, sizeof *tokens),
            *labels = tg_calloc((size_t)n, sizeof *labels);
    for (int64_t i = 0; i <= n; i++)
        tokens[i] = (int32_t)tg_rng_below(key, (uint64_t)i, VOCAB);
    for (int64_t i = 0; i < n; i++) /* more are ignored the later the row: ranks have different numbers */
        labels[i] = i % seq <= seq - 1 - 2 * (i / seq) ? tokens[i + 1] : TENG_IGNORE_INDEX;
    par_sim_set(sim, "tokens", &d, tokens);
    par_sim_set(sim, "labels", &d, labels);
    tg_free(tokens);
    tg_free(labels);
}

static void feed_scalars(par_sim *sim, int step)
{
    const teng_desc four = tg_desc_make(TENG_F32, 1, (int64_t[]){4}),
                    scalar = tg_desc_make(TENG_F32, 0, NULL);
    const float s[4] = {1e-2F, 1 - powf(0.9F, (float)step), 1 - powf(0.95F, (float)step), 0}, one = 1;
    par_sim_set(sim, "optim.scalars", &four, s);
    par_sim_set(sim, "optim.unscale", &scalar, &one);
}

static void step(par_sim *sim, const par_case *c, int number, par_result *out)
{
    const int64_t micro = c->micro_batches ? c->micro_batches : 1;
    const teng_desc scalar = tg_desc_make(TENG_F32, 0, NULL);
    for (int64_t m = 0; m < micro; m++) {
        const float weight = 1.0F / (float)micro, keep = m ? 1 : 0;
        const teng_desc two = tg_desc_make(TENG_U64, 1, (int64_t[]){2});
        const uint64_t rng[2] = {77, (uint64_t)(number * 100 + m)};
        feed_batch(sim, c, number * 10 + m);
        par_sim_set(sim, "loss.weight", &scalar, &weight);
        par_sim_set(sim, "optim.keep", &scalar, &keep);
        par_sim_set(sim, "rng", &two, rng);
        par_sim_run(sim, TG_FORWARD);
        out->loss[number] += (double)weight * (double)*par_sim_output(sim, 0, "loss", NULL);
        par_sim_run(sim, TG_BACKWARD);
    }
    feed_scalars(sim, number + 1);
    par_sim_run(sim, TG_UPDATE);
    out->norm[number] = (double)*par_sim_output(sim, 0, "grad_norm", NULL);
}

void par_case_run(const par_case *c, par_result *out)
{
    teng_cell *lm = make(c);
    check(lm != NULL);
    int ranks = 1;
    for (int a = 0; a < TG_AXES; a++)
        ranks *= c->size[a] ? c->size[a] : 1;
    tg_graph **g = tg_calloc((size_t)ranks, sizeof(tg_graph *));
    tg_parallel **made = tg_calloc((size_t)ranks, sizeof(tg_parallel *));
    for (int r = 0; r < ranks; r++)
        g[r] = par_case_local(c, lm, r, &made[r]);
    par_sim *sim = par_sim_create(&made[0]->options.mesh, g, made);
    const tg_param_info *infos;
    check(tg_nn_params(lm, &infos, &out->n) == TENG_OK);
    for (size_t i = 0; i < out->n; i++) {
        float *x = tg_alloc(sizeof *x * (size_t)tg_desc_numel(&infos[i].desc));
        tg_nn_init_param(&infos[i], 3, x);
        par_sim_set(sim, infos[i].name, &infos[i].desc, x);
        tg_free(x);
    }
    for (int k = 0; k < STEPS; k++)
        step(sim, c, k, out);
    for (int r = 1; r < ranks; r++) { /* every rank has the same figures, to the bit */
        const float *mine = par_sim_output(sim, r, "loss", NULL),
                    *first = par_sim_output(sim, 0, "loss", NULL);
        if (memcmp(mine, first, sizeof *mine) != 0)
            fail_msg("rank %d has loss %.9g, rank 0 %.9g", r, (double)*mine, (double)*first);
    }
    out->params = tg_calloc(out->n, sizeof(float *));
    for (size_t i = 0; i < out->n; i++)
        out->params[i] = par_sim_whole(sim, infos[i].name);
    par_sim_destroy(&sim);
    for (int r = 0; r < ranks; r++) {
        tg_graph_destroy(&g[r]);
        tg_parallel_destroy(&made[r]);
    }
    tg_free(g);
    tg_free(made);
    teng_cell_destroy(&lm);
}

void par_result_free(par_result *r)
{
    for (size_t i = 0; i < r->n; i++)
        tg_free(r->params[i]);
    tg_free(r->params);
}

static double far(double a, double b)
{
    return fabs(a - b) / (fabs(b) > 1e-30 ? fabs(b) : 1e-30);
}

void par_case_compare(const char *what, const par_case *c, double tol)
{
    par_case alone = *c;
    par_result many = {0}, one = {0};
    memset(alone.size, 0, sizeof alone.size);
    alone.sequence = false;
    alone.zero = 0;
    par_case_run(c, &many);
    par_case_run(&alone, &one);
    for (int k = 0; k < STEPS; k++)
        if (!(far(many.loss[k], one.loss[k]) <= tol) || !(far(many.norm[k], one.norm[k]) <= tol))
            fail_msg("%s, step %d: loss %.9g, one rank %.9g; norm %.9g, one rank %.9g", what, k + 1,
                     many.loss[k], one.loss[k], many.norm[k], one.norm[k]);
    teng_cell *lm = make(c);
    const tg_param_info *infos;
    size_t n;
    check(tg_nn_params(lm, &infos, &n) == TENG_OK);
    for (size_t i = 0; i < n; i++) {
        double diff = 0, size = 0;
        for (int64_t j = 0; j < tg_desc_numel(&infos[i].desc); j++) {
            const double d = (double)many.params[i][j] - (double)one.params[i][j];
            diff += d * d;
            size += (double)one.params[i][j] * (double)one.params[i][j];
        }
        if (!(sqrt(diff) <= 100 * tol * (sqrt(size) + 1e-2)))
            fail_msg("%s: %s is %.3g away, its size is %.3g", what, infos[i].name, sqrt(diff), sqrt(size));
    }
    teng_cell_destroy(&lm);
    par_result_free(&many);
    par_result_free(&one);
}
