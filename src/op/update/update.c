/*
 * The operators of an optimizer step: gradient accumulation, the global norm and its clip factor, AdamW, SGD.
 * What changes from step to step (learning rate, bias corrections, loss scale) is an input, so one plan
 * serves all steps. Their contracts stand in op_list.h. None has a gradient.
 *
 * A norm that is not finite makes clip_coef's factor NaN, and adamw and sgd leave everything as it was when
 * the factor is NaN: a step that overflowed is dropped without a word from the host.
 */
#include "op/cpu_kernel.h"
#include "op/op_list.h"
#include "op/want.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char no_grad[] = "an optimizer step is not differentiated";

static teng_status want_scalar(const teng_op_call *call, int i, const char *name)
{
    if (call->in[i].dtype == TENG_F32 && call->in[i].ndim == 0) return TENG_OK;
    char text[TG_DESC_TEXT];
    return tg_fail(TENG_INVALID, "%s is %s; it must be f32[]", name, tg_desc_text(text, &call->in[i]));
}

/* Input i is f32 with the dimensions of input 0. */
static teng_status want_f32_like(const teng_op_call *call, int i, const char *name, const char *first)
{
    TG_TRY(tg_want_dtype(call, i, name, TENG_F32));
    return tg_want_dims(call, i, name, &call->in[0], first);
}

/* scalars f32[4] at input i and the optional factor behind it. */
static teng_status want_scalars(const teng_op_call *call, int i)
{
    char text[TG_DESC_TEXT];
    const teng_desc *s = &call->in[i];
    if (s->dtype != TENG_F32 || s->ndim != 1 || s->dims[0] != 4)
        return tg_fail(TENG_INVALID,
                       "scalars is %s; it must be f32[4], {lr, 1 - beta1^t, 1 - beta2^t, reserved}",
                       tg_desc_text(text, s));
    return call->n_in > i + 1 ? want_scalar(call, i + 1, "coef") : TENG_OK;
}

/* The first `tensors` inputs split alike, the rest replicated. */
static void place_tensors(const teng_op_call *call, teng_place_rules *rules, int tensors)
{
    for (int d = 0; d < call->in[0].ndim; d++) {
        teng_place in[8], out[TENG_MAX_OUT];
        if (call->in[0].dims[d] < 2) continue;
        memset(in, TENG_REPLICATED, sizeof in);
        memset(in, d, (size_t)tensors);
        memset(out, d, sizeof out);
        teng_place_add(rules, in, out);
    }
}

/* ---- accumulate ---- */
static teng_status infer_accumulate(teng_op_call *call)
{
    TG_TRY(tg_want_dtype(call, 0, "acc", TENG_F32));
    TG_TRY(tg_want_float(call, 1, "grad"));
    TG_TRY(tg_want_dims(call, 1, "grad", &call->in[0], "acc"));
    TG_TRY(want_scalar(call, 2, "beta"));
    call->out[0] = call->in[0];
    return TENG_OK;
}

static void place_accumulate(const teng_op_call *call, teng_place_rules *rules)
{
    place_tensors(call, rules, 2);
    teng_place_add(rules, (teng_place[]){TENG_PARTIAL, TENG_PARTIAL, TENG_REPLICATED},
                   &(teng_place){TENG_PARTIAL});
}

static void cost_accumulate(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(2 * tg_desc_numel(&call->out[0]));
}

TG_CPU_TABLES(tg_accumulate_kernels);
const teng_op_spec tg_op_accumulate = {
    .name = "accumulate",
    .doc = "acc <- beta * acc + grad. Inputs acc f32, grad in any floating dtype, beta f32[]; with beta 0 "
           "the old value is "
           "not read, so NaN does not survive.",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .traits = TENG_OP_ELEMENTWISE,
    .updates = {1},
    .infer = infer_accumulate,
    .no_grad = no_grad,
    .place = place_accumulate,
    .cost = cost_accumulate,
    .kernels = tg_accumulate_kernels_tables,
};

/* ---- sum_squares ---- */
static teng_status infer_sum_squares(teng_op_call *call)
{
    for (int i = 0; i < call->n_in; i++) {
        char name[24] = "x";
        if (call->n_in > 1) snprintf(name, sizeof name, "x[%d]", i);
        TG_TRY(tg_want_float(call, i, name));
    }
    call->out[0] = tg_desc_make(TENG_F32, 0, NULL);
    return TENG_OK;
}

/* Every tensor split along the same dimension. */
static void place_sum_squares(const teng_op_call *call, teng_place_rules *rules)
{
    enum { MAX = 1024 };
    teng_place in[MAX];
    int ndim = TENG_MAX_DIMS;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].ndim < ndim) ndim = call->in[i].ndim;
    for (int d = 0; d < ndim && call->n_in <= MAX; d++) {
        bool splits = true;
        for (int i = 0; i < call->n_in; i++)
            splits = splits && call->in[i].dims[d] > 1;
        if (!splits) continue;
        memset(in, d, (size_t)call->n_in);
        teng_place_add(rules, in, &(teng_place){TENG_PARTIAL});
    }
}

static void cost_sum_squares(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = 0;
    for (int i = 0; i < call->n_in; i++)
        cost->flops += (double)(2 * tg_desc_numel(&call->in[i]));
}

TG_CPU_TABLES(tg_sum_squares_kernels);
const teng_op_spec tg_op_sum_squares = {
    .name = "sum_squares",
    .doc = "s f32[] = the sum of x * x over all elements of all inputs, in double by fixed blocks.",
    .min_in = 1,
    .max_in = -1,
    .n_out = 1,
    .infer = infer_sum_squares,
    .no_grad = no_grad,
    .place = place_sum_squares,
    .cost = cost_sum_squares,
    .kernels = tg_sum_squares_kernels_tables,
};

/* ---- clip_coef ---- */
static teng_status infer_clip_coef(teng_op_call *call)
{
    const tg_clip_attr *attr = call->attr;
    TG_TRY(want_scalar(call, 0, "sum of squares"));
    TG_TRY(want_scalar(call, 1, "inv_scale"));
    if (!(attr->max_norm >= 0))
        return tg_fail(TENG_INVALID, "max_norm is %g; it must be 0 (never clip) or above", attr->max_norm);
    call->out[0] = call->out[1] = call->in[0];
    return TENG_OK;
}

static void cost_clip_coef(const teng_op_call *call, teng_cost *cost)
{
    (void)call;
    cost->flops = 5;
}

static const teng_attr_field clip_fields[] = {
    {"max_norm", TENG_ATTR_REAL, offsetof(tg_clip_attr, max_norm), NULL}, {0}};

TG_CPU_TABLES(tg_clip_coef_kernels);
const teng_op_spec tg_op_clip_coef = {
    .name = "clip_coef",
    .doc = "norm = sqrt(s) * inv_scale; coef = inv_scale * min(1, max_norm / (norm + 1e-6)) (max_norm 0: "
           "inv_scale), NaN when "
           "the norm is not finite. Inputs s f32[] (a sum of squares), inv_scale f32[]; outputs coef f32[], "
           "norm f32[]. As "
           "torch.nn.utils.clip_grad_norm_ (Pascanu et al. 2013).",
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .attr_size = sizeof(tg_clip_attr),
    .attrs = clip_fields,
    .inplace = {3, 3},
    .infer = infer_clip_coef,
    .no_grad = no_grad,
    .no_place = "its operands are scalars, and not linear",
    .cost = cost_clip_coef,
    .kernels = tg_clip_coef_kernels_tables,
};

/* ---- adamw ---- */
static teng_status infer_adamw(teng_op_call *call)
{
    const tg_adamw_attr *attr = call->attr;
    TG_TRY(tg_want_dtype(call, 0, "param", TENG_F32));
    TG_TRY(tg_want_float(call, 1, "grad"));
    TG_TRY(tg_want_dims(call, 1, "grad", &call->in[0], "param"));
    TG_TRY(want_f32_like(call, 2, "m", "param"));
    TG_TRY(want_f32_like(call, 3, "v", "param"));
    TG_TRY(want_scalars(call, 4));
    if (!(attr->beta1 >= 0 && attr->beta1 < 1 && attr->beta2 >= 0 && attr->beta2 < 1))
        return tg_fail(TENG_INVALID, "beta1 is %g and beta2 is %g; both must be in [0, 1)", attr->beta1,
                       attr->beta2);
    if (!(attr->eps >= 0 && attr->weight_decay >= 0))
        return tg_fail(TENG_INVALID, "eps is %g and weight_decay is %g; neither may be negative", attr->eps,
                       attr->weight_decay);
    for (int o = 0; o < 3; o++)
        call->out[o] = call->in[0];
    return TENG_OK;
}

static void place_adamw(const teng_op_call *call, teng_place_rules *rules)
{
    place_tensors(call, rules, 4);
}

static void cost_adamw(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(14 * tg_desc_numel(&call->out[0]));
}

static const teng_attr_field adamw_fields[] = {
    {"beta1", TENG_ATTR_REAL, offsetof(tg_adamw_attr, beta1), NULL},
    {"beta2", TENG_ATTR_REAL, offsetof(tg_adamw_attr, beta2), NULL},
    {"eps", TENG_ATTR_REAL, offsetof(tg_adamw_attr, eps), NULL},
    {"weight_decay", TENG_ATTR_REAL, offsetof(tg_adamw_attr, weight_decay), NULL},
    {0},
};

TG_CPU_TABLES(tg_adamw_kernels);
const teng_op_spec tg_op_adamw = {
    .name = "adamw",
    .doc = "g = coef * grad; p <- p - lr * weight_decay * p; m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 "
           "- beta2) g^2; "
           "p <- p - lr * (m / bc1) / (sqrt(v / bc2) + eps). Inputs p f32, grad, m f32, v f32, scalars "
           "f32[4] = {lr, bc1 = "
           "1 - beta1^t, bc2 = 1 - beta2^t, reserved}, coef f32[] (optional; not finite: nothing changes). "
           "Loshchilov & Hutter "
           "2019, algorithm 2, as torch.optim.AdamW.",
    .min_in = 5,
    .max_in = 6,
    .n_out = 3,
    .attr_size = sizeof(tg_adamw_attr),
    .attrs = adamw_fields,
    .traits = TENG_OP_ELEMENTWISE,
    .updates = {1, 3, 4},
    .infer = infer_adamw,
    .no_grad = no_grad,
    .place = place_adamw,
    .cost = cost_adamw,
    .kernels = tg_adamw_kernels_tables,
};

/* ---- sgd ---- */
static teng_status infer_sgd(teng_op_call *call)
{
    const tg_sgd_attr *attr = call->attr;
    TG_TRY(tg_want_dtype(call, 0, "param", TENG_F32));
    TG_TRY(tg_want_float(call, 1, "grad"));
    TG_TRY(tg_want_dims(call, 1, "grad", &call->in[0], "param"));
    TG_TRY(want_f32_like(call, 2, "buf", "param"));
    TG_TRY(want_scalars(call, 3));
    if (!(attr->momentum >= 0 && attr->momentum < 1 && attr->weight_decay >= 0))
        return tg_fail(TENG_INVALID,
                       "momentum is %g and weight_decay is %g; momentum must be in [0, 1), weight_decay >= 0",
                       attr->momentum, attr->weight_decay);
    call->out[0] = call->out[1] = call->in[0];
    return TENG_OK;
}

static void place_sgd(const teng_op_call *call, teng_place_rules *rules)
{
    place_tensors(call, rules, 3);
}

static void cost_sgd(const teng_op_call *call, teng_cost *cost)
{
    cost->flops = (double)(8 * tg_desc_numel(&call->out[0]));
}

static const teng_attr_field sgd_fields[] = {
    {"momentum", TENG_ATTR_REAL, offsetof(tg_sgd_attr, momentum), NULL},
    {"weight_decay", TENG_ATTR_REAL, offsetof(tg_sgd_attr, weight_decay), NULL},
    {"nesterov", TENG_ATTR_INT, offsetof(tg_sgd_attr, nesterov), NULL},
    {0},
};

TG_CPU_TABLES(tg_sgd_kernels);
const teng_op_spec tg_op_sgd = {
    .name = "sgd",
    .doc = "g = coef * grad + weight_decay * p; buf <- momentum * buf + g; p <- p - lr * (nesterov ? g + "
           "momentum * buf : "
           "buf). Inputs p f32, grad, buf f32, scalars f32[4] = {lr, …}, coef f32[] (optional; NaN: nothing "
           "changes). As "
           "torch.optim.SGD with dampening 0.",
    .min_in = 4,
    .max_in = 5,
    .n_out = 2,
    .attr_size = sizeof(tg_sgd_attr),
    .attrs = sgd_fields,
    .traits = TENG_OP_ELEMENTWISE,
    .updates = {1, 3},
    .infer = infer_sgd,
    .no_grad = no_grad,
    .place = place_sgd,
    .cost = cost_sgd,
    .kernels = tg_sgd_kernels_tables,
};
