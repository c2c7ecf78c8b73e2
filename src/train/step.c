/*
 * One training step behind one door. GRAPH: a plan for each kind of step and set of input shapes (sequence
 * lengths), made once and cached, all running in one block. PYNATIVE: step_eager.c. What both share is how
 * the graph of a step is built, tg_step_build.
 */
#include "train/step_pipeline.h"

#include "autograd/autograd.h"
#include "base/fail.h"
#include "base/rng.h"
#include "device/cpu_isa.h"
#include "op/op_list.h"
#include "pass/pass.h"
#include "tensor/desc.h"

#include <limits.h>
#include <math.h>
#include <string.h>

teng_status tg_step_create(teng_cell *root, tg_store *store, const tg_step_options *options, tg_step **out)
{
    TG_TRY(tg_op_register_builtin());
    TG_TRY(tg_step_check_recompute(options));
    tg_step *s = tg_calloc(1, sizeof *s);
    if (!s) return TENG_MEMORY;
    *s = (tg_step){.root = root,
                   .store = store,
                   .options = *options,
                   .isa = tg_cpu_isa_current(),
                   .dropout_key = tg_rng_key(options->seed, "dropout"),
                   .loss_scale = 1};
    if (options->parallel) {
        s->split = *options->parallel;
        s->options.parallel = &s->split;
    }
    teng_status status = tg_nn_params(root, &s->params, &s->n_params);
    s->work = tg_calloc(s->n_params + 1, sizeof *s->work);
    s->wrt = tg_calloc(s->n_params + 1, sizeof(teng_tensor *));
    s->grads = tg_calloc(s->n_params + 1, sizeof(teng_tensor *));
    s->block = tg_exec_block_create(tg_store_device(store));
    s->whole = tg_step_is_split(s) && options->pynative ? tg_store_create(tg_store_device(store)) : store;
    if (options->pynative && s->whole) s->eager = tg_eager_create(s->whole, s->isa);
    if (options->pynative && options->parallel) s->updates = tg_eager_create(store, s->isa);
    const bool eager = !options->pynative || (s->eager && (s->updates || !options->parallel));
    if (status == TENG_OK && (!s->work || !s->wrt || !s->grads || !s->block || !eager)) status = TENG_MEMORY;
    if (status == TENG_OK) status = tg_step_pipe_create(s);
    if (status != TENG_OK) {
        tg_step_destroy(&s);
        return status;
    }
    *out = s;
    return TENG_OK;
}

void tg_step_destroy(tg_step **step)
{
    tg_step *s = *step;
    if (!s) return;
    tg_step_pipe_destroy(s);
    for (size_t i = 0; i < s->compiled.len; i++) {
        tg_exec_destroy(&s->compiled.data[i].exec);
        tg_plan_destroy(&s->compiled.data[i].plan);
        tg_parallel_destroy(&s->compiled.data[i].parallel);
        tg_free(s->compiled.data[i].in);
    }
    tg_parallel_destroy(&s->parallel);
    tg_parallel_destroy(&s->layout);
    tg_vec_free(&s->compiled);
    tg_exec_block_destroy(&s->block);
    tg_eager_destroy(&s->eager);
    tg_eager_destroy(&s->updates);
    if (s->whole != s->store) tg_store_destroy(&s->whole);
    tg_free(s->work);
    tg_free(s->wrt);
    tg_free(s->grads);
    tg_strbuf_free(&s->report);
    tg_free(s);
    *step = NULL;
}

tg_optim_options tg_step_optim(const tg_step *s)
{
    const tg_step_options *o = &s->options;
    return (tg_optim_options){.kind = o->optimizer == TG_CFG_OPTIMIZER_SGD ? TG_OPTIM_SGD : TG_OPTIM_ADAMW,
                              .beta1 = o->beta1,
                              .beta2 = o->beta2,
                              .eps = o->eps,
                              .weight_decay = o->weight_decay,
                              .momentum = o->momentum,
                              .clip_norm = o->clip_norm,
                              .nesterov = o->nesterov};
}

static bool decays(const tg_step_options *o, teng_role role)
{
    return role == TENG_ROLE_WEIGHT || (role == TENG_ROLE_NORM && o->decay_norms) ||
           (role == TENG_ROLE_BIAS && o->decay_biases) ||
           (role == TENG_ROLE_EMBEDDING && o->decay_embeddings);
}

static teng_status append_backward(tg_step *s, tg_graph *g, teng_tensor *loss, teng_tensor *weight,
                                   bool accumulate, int *n)
{
    *n = 0;
    for (size_t i = 0; i < s->n_params; i++) {
        teng_tensor *p = tg_graph_find(g, s->params[i].name);
        if (!p) continue; /* a part of the tree that this forward does not use */
        s->wrt[*n] = p;
        s->work[(*n)++] = (tg_optim_param){.param = p, .decay = decays(&s->options, s->params[i].init.role)};
    }
    TG_TRY(tg_autograd_backward(g, loss, weight, s->wrt, *n, s->grads));
    for (int i = 0; i < *n; i++)
        s->work[i].grad = s->grads[i];
    if (!accumulate) return TENG_OK;
    tg_trace trace;
    tg_trace_begin(&trace, g);
    trace.phase = TG_BACKWARD;
    trace.scope = "optimizer";
    const teng_status status = tg_optim_accumulate(g, s->work, *n);
    tg_trace_end(&trace);
    return status;
}

teng_status tg_step_build(tg_step *s, tg_graph *g, const tg_step_feed *shapes, tg_step_kind kind,
                          teng_status (*feed)(void *user, teng_tensor *input, int index), void *user,
                          teng_tensor **value, int *n)
{
    teng_tensor *in[16];
    const int n_in = kind == TG_STEP_FORWARD ? shapes->n_in - 1 : shapes->n_in;
    if (n_in > 16 || n_in < 1) return tg_fail(TENG_INVALID, "a model takes 1 to 16 inputs, not %d", n_in);
    for (int i = 0; i < n_in; i++) {
        in[i] = tg_graph_input(g, shapes->in_name[i], &shapes->in_desc[i]);
        if (!in[i]) return teng_error_status();
        if (feed) TG_TRY(feed(user, in[i], i));
    }
    *value =
        tg_nn_trace_with(s->root, g, in, n_in,
                         &(tg_nn_options){.training = kind == TG_STEP_TRAIN && !s->options.no_dropout,
                                          .differentiate = kind == TG_STEP_TRAIN || kind == TG_STEP_GRADS,
                                          .precision = &s->options.precision});
    if (!*value) return teng_error_status();
    if (kind == TG_STEP_FORWARD) return TENG_OK;
    if ((*value)->desc.ndim != 0 || (*value)->desc.dtype != TENG_F32) {
        char text[TG_DESC_TEXT];
        return tg_fail(TENG_INVALID,
                       "the model must return its loss as an f32 scalar, not %s (see teng_cross_entropy, "
                       "teng_mean)",
                       tg_desc_text(text, &(*value)->desc));
    }
    if (kind == TG_STEP_EVAL) return TENG_OK;
    const teng_desc scalar = tg_desc_make(TENG_F32, 0, NULL);
    teng_tensor *weight = tg_graph_input(g, TG_STEP_WEIGHT, &scalar);
    if (!weight) return teng_error_status();
    if (feed) TG_TRY(feed(user, weight, -1));
    const bool accumulate = s->options.micro_batches > 1 || s->pipe;
    return append_backward(s, g, *value, weight, kind == TG_STEP_TRAIN && accumulate, n);
}

/* ---- compiled ---- */
static teng_status output_grads(tg_step *s, tg_graph *g, int n)
{
    for (int i = 0; i < n; i++) {
        if (!s->work[i].grad) continue;
        char *name = tg_asprintf("grad.%s", s->work[i].param->name);
        const teng_status status = name ? tg_graph_output(g, name, s->work[i].grad) : TENG_MEMORY;
        tg_free(name);
        TG_TRY(status);
    }
    return TENG_OK;
}

teng_status tg_step_build_whole(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, tg_graph *g)
{
    teng_tensor *value, *norm;
    int n = 0;
    TG_TRY(tg_step_build(s, g, shapes, kind, NULL, NULL, &value, &n));
    TG_TRY(tg_graph_output(g, kind == TG_STEP_FORWARD ? "value" : "loss", value));
    if (kind == TG_STEP_TRAIN) {
        const tg_optim_options optim = tg_step_optim(s);
        TG_TRY(tg_optim_update(g, &optim, s->work, n, &norm));
        TG_TRY(tg_graph_output(g, "grad_norm", norm));
    }
    return kind == TG_STEP_GRADS ? output_grads(s, g, n) : TENG_OK;
}

static teng_status run_passes(tg_step *s, bool late, bool told, tg_graph *g)
{
    return tg_pass_run_part(g, late, s->options.passes, s->options.n_passes, told ? &s->report : NULL, NULL,
                            NULL);
}

static bool trains(tg_step_kind kind)
{
    return kind == TG_STEP_TRAIN || kind == TG_STEP_GRADS;
}

static teng_status rewrite_graph(tg_step *s, tg_step_kind kind, tg_recompute_try *again, tg_graph *g)
{
    const bool told = trains(kind) || !s->report.len; /* an evaluation does not hide what the step's did */
    if (told) s->report.len = 0;
    TG_TRY(run_passes(s, false, told, g));
    return trains(kind) ? tg_step_recompute(s, g, again) : TENG_OK;
}

teng_status tg_step_make_graph(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind,
                               tg_recompute_try *again, tg_graph **out)
{
    static const char *const names[] = {"train", "eval", "forward", "grads"};
    tg_graph *g = tg_graph_create(names[kind]);
    if (!g) return TENG_MEMORY;
    teng_status status = tg_step_build_whole(s, shapes, kind, g);
    tg_parallel_destroy(&s->parallel);
    if (status == TENG_OK) status = tg_step_split(s, shapes, kind, &g, &s->parallel);
    if (status == TENG_OK) status = rewrite_graph(s, kind, again, g);
    if (status != TENG_OK) tg_graph_destroy(&g);
    *out = g;
    return status;
}

tg_plan_options tg_step_plan_options(const tg_step *s)
{
    return (tg_plan_options){.device = tg_store_device(s->store)->info.kind,
                             .isa = s->isa,
                             .offload = s->options.offload,
                             .flops_per_s = s->options.flops_per_s,
                             .bytes_per_s = s->options.bytes_per_s};
}

teng_status tg_step_make_plan(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind,
                              tg_recompute_try *again, tg_plan **out)
{
    tg_graph *g;
    TG_TRY(tg_step_make_graph(s, shapes, kind, again, &g));
    const teng_status status = run_passes(s, true, trains(kind), g);
    if (status != TENG_OK) {
        tg_graph_destroy(&g);
        return status;
    }
    tg_plan_options options = tg_step_plan_options(s);
    if (kind == TG_STEP_TRAIN && !again->any_size) options.budget = s->options.memory_budget;
    return tg_plan_create(g, &options, out);
}

static teng_status compile(tg_step *s, const tg_step_feed *shapes, tg_step_kind kind, tg_compiled *out)
{
    *out = (tg_compiled){
        .kind = kind, .n_in = shapes->n_in, .in = tg_alloc(sizeof(teng_desc) * (size_t)shapes->n_in)};
    if (!out->in) return TENG_MEMORY;
    memcpy(out->in, shapes->in_desc, sizeof(teng_desc) * (size_t)shapes->n_in);
    tg_recompute_try all = {.moves = INT_MAX};
    const teng_status status = kind == TG_STEP_TRAIN && s->options.recompute == TG_CFG_RECOMPUTE_AUTO
                                   ? tg_step_fit(s, shapes, &out->plan)
                                   : tg_step_make_plan(s, shapes, kind, &all, &out->plan);
    out->parallel = s->parallel;
    s->parallel = NULL;
    return status;
}

bool tg_step_same_shapes(const teng_desc *in, int n, const tg_step_feed *feed)
{
    bool same = n == feed->n_in;
    for (int i = 0; i < n && same; i++)
        same = tg_desc_equal(&in[i], &feed->in_desc[i]);
    return same;
}

static teng_status find_compiled(tg_step *s, const tg_step_feed *feed, tg_step_kind kind, bool bind,
                                 tg_compiled **out)
{
    tg_compiled *found = NULL;
    for (size_t i = 0; i < s->compiled.len && !found; i++) {
        tg_compiled *c = &s->compiled.data[i];
        if (c->kind == kind && tg_step_same_shapes(c->in, c->n_in, feed)) found = c;
    }
    if (!found) {
        tg_compiled fresh;
        const teng_status status = compile(s, feed, kind, &fresh);
        if (status != TENG_OK || !tg_vec_push(&s->compiled, fresh)) {
            tg_plan_destroy(&fresh.plan);
            tg_parallel_destroy(&fresh.parallel);
            tg_free(fresh.in);
            return status != TENG_OK ? status : TENG_MEMORY;
        }
        found = &s->compiled.data[s->compiled.len - 1];
    }
    if (bind && !found->exec) TG_TRY(tg_exec_create(found->plan, s->store, s->block, &found->exec));
    *out = found;
    return TENG_OK;
}

void tg_step_scalars(const tg_step *s, int64_t step, double lr, float out[4])
{
    out[0] = (float)lr;
    out[1] = (float)(1.0 - pow(s->options.beta1, (double)step));
    out[2] = (float)(1.0 - pow(s->options.beta2, (double)step));
    out[3] = 0.0F;
}

float tg_step_seed(const tg_step *s, double weight)
{
    return (float)(weight * s->loss_scale);
}

float tg_step_unscale(const tg_step *s, double loss)
{
    return isfinite(loss) ? (float)(1 / s->loss_scale) : NAN;
}

tg_step_result tg_step_result_of(double loss, float norm)
{
    return (tg_step_result){(double)(float)loss, (double)norm, isfinite(loss) && isfinite(norm),
                            isfinite(loss)};
}

void tg_step_rng(const tg_step *s, int64_t step, int64_t m, uint64_t out[2])
{
    out[0] = s->dropout_key;
    out[1] = (uint64_t)(step * s->options.micro_batches + m);
}

static teng_status feed_inputs(tg_exec *e, const tg_step_feed *feed, int n_in)
{
    for (int i = 0; i < n_in; i++)
        TG_TRY(tg_exec_feed(e, feed->in_name[i], feed->in[i]));
    return TENG_OK;
}

static teng_status feed_micro_batch(tg_step *s, tg_exec *e, int64_t step, int64_t m, const tg_step_feed *feed)
{
    const float weight = tg_step_seed(s, feed->weight), keep = m ? 1.0F : 0.0F;
    uint64_t rng[2];
    tg_step_rng(s, step, m, rng);
    TG_TRY(feed_inputs(e, feed, feed->n_in));
    TG_TRY(tg_exec_feed(e, TG_STEP_WEIGHT, &weight));
    if (tg_exec_has_input(e, TG_OPTIM_KEEP)) TG_TRY(tg_exec_feed(e, TG_OPTIM_KEEP, &keep));
    return tg_exec_has_input(e, TG_STEP_RNG) ? tg_exec_feed(e, TG_STEP_RNG, rng) : TENG_OK;
}

teng_status tg_step_ready_micro_batch(tg_step *s, int64_t step, int64_t m, const tg_step_feed *feed,
                                      tg_exec **exec)
{
    tg_compiled *c;
    TG_TRY(find_compiled(s, feed, TG_STEP_TRAIN, true, &c));
    *exec = c->exec;
    return feed_micro_batch(s, c->exec, step, m, feed);
}

teng_status tg_step_train(tg_step *s, int64_t step, double lr, double loss_scale, const tg_step_feed *feeds,
                          tg_step_result *out)
{
    s->loss_scale = loss_scale;
    if (s->options.pynative) return tg_step_eager_train(s, step, lr, feeds, out);
    if (s->pipe) return tg_step_pipe_train(s, step, lr, feeds, out);
    double total = 0;
    tg_exec *e = NULL;
    for (int64_t m = 0; m < s->options.micro_batches; m++) {
        float loss;
        TG_TRY(tg_step_ready_micro_batch(s, step, m, &feeds[m], &e));
        TG_TRY(tg_exec_run(e, TG_FORWARD, TG_BACKWARD));
        TG_TRY(tg_exec_fetch(e, "loss", &loss, sizeof loss));
        total += feeds[m].weight * (double)loss;
    }
    if (!e) return tg_fail(TENG_INVALID, "a step needs at least one micro-batch");
    float scalars[4], norm;
    const float unscale = tg_step_unscale(s, total);
    tg_step_scalars(s, step, lr, scalars);
    TG_TRY(tg_exec_feed(e, TG_OPTIM_SCALARS, scalars));
    TG_TRY(tg_exec_feed(e, TG_OPTIM_UNSCALE, &unscale));
    TG_TRY(tg_exec_run(e, TG_UPDATE, TG_UPDATE));
    TG_TRY(tg_exec_fetch(e, "grad_norm", &norm, sizeof norm));
    *out = tg_step_result_of(total, norm);
    return TENG_OK;
}

teng_status tg_step_eval(tg_step *s, const tg_step_feed *feed, double *loss)
{
    float value;
    if (s->options.pynative) {
        TG_TRY(tg_step_eager_run(s, feed, TG_STEP_EVAL, &value, sizeof value));
    } else if (s->pipe) {
        TG_TRY(tg_step_pipe_forward(s, feed, TG_STEP_EVAL, &value, sizeof value));
    } else {
        tg_compiled *c;
        TG_TRY(find_compiled(s, feed, TG_STEP_EVAL, true, &c));
        TG_TRY(feed_inputs(c->exec, feed, feed->n_in));
        TG_TRY(tg_exec_run(c->exec, TG_FORWARD, TG_FORWARD));
        TG_TRY(tg_exec_fetch(c->exec, "loss", &value, sizeof value));
    }
    *loss = (double)value;
    return TENG_OK;
}

teng_status tg_step_forward(tg_step *s, const tg_step_feed *feed, float *out, size_t out_bytes)
{
    if (s->options.pynative) return tg_step_eager_run(s, feed, TG_STEP_FORWARD, out, out_bytes);
    if (s->pipe) return tg_step_pipe_forward(s, feed, TG_STEP_FORWARD, out, out_bytes);
    tg_compiled *c;
    TG_TRY(find_compiled(s, feed, TG_STEP_FORWARD, true, &c));
    TG_TRY(feed_inputs(c->exec, feed, feed->n_in - 1));
    TG_TRY(tg_exec_run(c->exec, TG_FORWARD, TG_FORWARD));
    return tg_exec_fetch(c->exec, "value", out, out_bytes);
}

teng_status tg_step_grads(tg_step *s, const tg_step_feed *feed, double loss_scale, double *loss,
                          float *const *grads)
{
    s->loss_scale = loss_scale;
    if (s->options.pynative) return tg_step_eager_grads(s, feed, loss, grads);
    if (s->pipe)
        return tg_fail(TENG_UNSUPPORTED,
                       "the gradients of a pipeline lie on its stages: ask for them on one rank");
    float value;
    const float weight = tg_step_seed(s, 1);
    tg_compiled *c;
    TG_TRY(find_compiled(s, feed, TG_STEP_GRADS, true, &c));
    TG_TRY(feed_inputs(c->exec, feed, feed->n_in));
    TG_TRY(tg_exec_feed(c->exec, TG_STEP_WEIGHT, &weight));
    TG_TRY(tg_exec_run(c->exec, TG_FORWARD, TG_BACKWARD));
    TG_TRY(tg_exec_fetch(c->exec, "loss", &value, sizeof value));
    *loss = (double)value;
    for (size_t i = 0; i < s->n_params; i++) {
        const size_t bytes = tg_desc_bytes(&s->params[i].desc);
        char *name = tg_asprintf("grad.%s", s->params[i].name);
        if (!name) return TENG_MEMORY;
        teng_status status = TENG_OK;
        if (tg_graph_output_find(c->plan->graph, name))
            status = tg_exec_fetch(c->exec, name, grads[i], bytes);
        else
            memset(grads[i], 0, bytes);
        tg_free(name);
        TG_TRY(status);
    }
    return TENG_OK;
}

teng_status tg_step_plan(tg_step *s, const tg_step_feed *shapes, bool training, const tg_plan **out)
{
    *out = NULL;
    if (s->options.pynative) return TENG_OK;
    tg_compiled *c;
    if (s->pipe) {
        tg_pipe_program *program;
        TG_TRY(tg_step_pipe_program(s, shapes, training ? TG_STEP_TRAIN : TG_STEP_EVAL, false, &program));
        *out = program->pieces[0].plan;
        return TENG_OK;
    }
    TG_TRY(find_compiled(s, shapes, training ? TG_STEP_TRAIN : TG_STEP_EVAL, false, &c));
    *out = c->plan;
    return TENG_OK;
}

const tg_parallel *tg_step_parallel(const tg_step *s, const tg_plan *plan)
{
    for (size_t i = 0; i < s->compiled.len; i++)
        if (s->compiled.data[i].plan == plan) return s->compiled.data[i].parallel;
    for (size_t i = 0; s->pipe && i < s->pipe->programs.len; i++)
        if (s->pipe->programs.data[i]->pieces[0].plan == plan) return s->pipe->programs.data[i]->parallel;
    return NULL;
}

void tg_step_probe(tg_step *s, const tg_probe *probe)
{
    tg_exec_block_probe(s->block, probe);
    if (s->eager) tg_eager_probe(s->eager, probe);
}

const char *tg_step_pass_report(const tg_step *s)
{
    return tg_strbuf_str(&s->report);
}
