/*
 * Appends the update. Formulas are the operators' (op_list.h); here is only how they are joined: sum of
 * squares over all gradients in parameter order, one clip coefficient, one optimizer node for each parameter.
 */
#include "optim/optim.h"

#include "base/fail.h"
#include "op/op_list.h"
#include "tensor/desc.h"

#include <stdio.h>

#define NAME_BYTES 768

/* A value of the graph by name, made when absent. */
static teng_tensor *named(tg_graph *g, tg_value_kind kind, const char *prefix, const char *name,
                          const teng_desc *desc)
{
    char full[NAME_BYTES];
    if (snprintf(full, sizeof full, "%s%s", prefix, name) >= (int)sizeof full) {
        tg_fail(TENG_INVALID, "the name of parameter %.64s… is longer than %d bytes", name, NAME_BYTES - 16);
        return NULL;
    }
    teng_tensor *v = tg_graph_find(g, full);
    if (v) return v;
    return kind == TG_VALUE_INPUT ? tg_graph_input(g, full, desc) : tg_graph_state(g, full, desc);
}

static teng_tensor *scalar_input(tg_graph *g, const char *name, int64_t n)
{
    const teng_desc desc = n ? tg_desc_make(TENG_F32, 1, &n) : tg_desc_make(TENG_F32, 0, NULL);
    return named(g, TG_VALUE_INPUT, "", name, &desc);
}

static teng_desc as_f32(const teng_desc *d)
{
    return tg_desc_make(TENG_F32, d->ndim, d->dims);
}

teng_status tg_optim_accumulate(tg_graph *g, tg_optim_param *params, int n)
{
    const size_t first = g->nodes.len;
    teng_tensor *keep = scalar_input(g, TG_OPTIM_KEEP, 0);
    if (!keep) return teng_error_status();
    for (int i = 0; i < n; i++) {
        if (!params[i].grad) continue;
        const teng_desc desc = as_f32(&params[i].param->desc);
        teng_tensor *acc = named(g, TG_VALUE_STATE, "grad.", params[i].param->name, &desc);
        teng_tensor *in[] = {acc, params[i].grad, keep};
        params[i].grad = acc ? teng_apply((teng_src){0}, &tg_op_accumulate, NULL, 3, in, NULL) : NULL;
        if (!params[i].grad) return tg_fail_context("accumulating the gradient of %s", params[i].param->name);
    }
    return tg_graph_hoist(g, first); /* no gradient waits for the last one */
}

static teng_status append_adamw(tg_graph *g, const tg_optim_options *o, const tg_optim_param *p,
                                teng_tensor *scalars, teng_tensor *coef)
{
    const teng_desc desc = as_f32(&p->param->desc);
    const tg_adamw_attr attr = {o->beta1, o->beta2, o->eps, p->decay ? o->weight_decay : 0.0};
    teng_tensor *m = named(g, TG_VALUE_STATE, "adamw.m.", p->param->name, &desc);
    teng_tensor *v = named(g, TG_VALUE_STATE, "adamw.v.", p->param->name, &desc);
    teng_tensor *in[] = {p->param, p->grad, m, v, scalars, coef};
    return m && v && teng_apply((teng_src){0}, &tg_op_adamw, &attr, 6, in, NULL) ? TENG_OK
                                                                                 : teng_error_status();
}

static teng_status append_sgd(tg_graph *g, const tg_optim_options *o, const tg_optim_param *p,
                              teng_tensor *scalars, teng_tensor *coef)
{
    const teng_desc desc = as_f32(&p->param->desc);
    const tg_sgd_attr attr = {o->momentum, p->decay ? o->weight_decay : 0.0, o->nesterov};
    teng_tensor *buf = named(g, TG_VALUE_STATE, "sgd.buf.", p->param->name, &desc);
    teng_tensor *in[] = {p->param, p->grad, buf, scalars, coef};
    return buf && teng_apply((teng_src){0}, &tg_op_sgd, &attr, 5, in, NULL) ? TENG_OK : teng_error_status();
}

teng_status tg_optim_update(tg_graph *g, const tg_optim_options *options, const tg_optim_param *params, int n,
                            teng_tensor **grad_norm)
{
    tg_trace trace;
    tg_trace_begin(&trace, g);
    trace.phase = TG_UPDATE;
    trace.scope = "optimizer";
    teng_status status = TENG_OK;
    teng_tensor **grads = tg_alloc(sizeof(teng_tensor *) * (size_t)(n + 1));
    int n_grads = 0;
    for (int i = 0; grads && i < n; i++)
        if (params[i].grad) grads[n_grads++] = params[i].grad;
    teng_tensor *scalars = scalar_input(g, TG_OPTIM_SCALARS, 4),
                *unscale = scalar_input(g, TG_OPTIM_UNSCALE, 0);
    if (!grads || !scalars || !unscale)
        status = teng_error_status();
    else if (n_grads == 0)
        status = tg_fail(TENG_INVALID, "the loss depends on no parameter: there is nothing to train");
    teng_tensor *clip[2] = {NULL, NULL};
    if (status == TENG_OK) {
        const tg_clip_attr attr = {options->clip_norm};
        teng_tensor *sum = teng_apply((teng_src){0}, &tg_op_sum_squares, NULL, n_grads, grads, NULL);
        if (!sum ||
            !teng_apply((teng_src){0}, &tg_op_clip_coef, &attr, 2, (teng_tensor *[]){sum, unscale}, clip))
            status = teng_error_status();
    }
    for (int i = 0; i < n && status == TENG_OK; i++) {
        if (!params[i].grad) continue;
        status = options->kind == TG_OPTIM_ADAMW ? append_adamw(g, options, &params[i], scalars, clip[0])
                                                 : append_sgd(g, options, &params[i], scalars, clip[0]);
        if (status != TENG_OK) tg_fail_context("updating %s", params[i].param->name);
    }
    *grad_norm = clip[1];
    tg_free(grads);
    tg_trace_end(&trace);
    return status;
}
