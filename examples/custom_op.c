/*
 * An operator of one's own, as a plugin: y = max(x, 0)², the squared ReLU of So et al. 2021, "Primer". One C
 * file, built into a shared object that needs no library: it finds teng's functions in the program that loads
 * it.
 *
 *   teng train CONFIG.yaml context.plugins=[build/release/examples/custom_op.so]
 *
 * Here is all that an operator is: what it does to shapes, its gradient (made of other operators), how it may
 * be split over ranks, what it costs, a kernel, and sample calls with a reference in double precision, by
 * which the same table test that checks the built-in operators checks this one.
 */
#include <teng/ops.h>

static int64_t count(const teng_desc *desc)
{
    int64_t n = 1;
    for (int i = 0; i < desc->ndim; i++)
        n *= desc->dims[i];
    return n;
}

static teng_status infer(teng_op_call *call)
{
    char text[TENG_DESC_TEXT];
    if (call->in[0].dtype != TENG_F32)
        return teng_fail(TENG_INVALID, "x is %s; squared_relu computes in f32 (see teng_cast)",
                         teng_desc_text(text, &call->in[0]));
    call->out[0] = call->in[0];
    return TENG_OK;
}

/* dx = 2 max(x, 0) · dy */
static teng_status grad(teng_grad_ctx *ctx)
{
    ctx->in_grad[0] = teng_mul(teng_scale(teng_relu(ctx->in[0]), 2.0), ctx->out_grad[0]);
    return ctx->in_grad[0] ? TENG_OK : teng_error_status();
}

/* Element by element: a shard along any dimension gives the shard of the result. */
static void place(const teng_op_call *call, teng_place_rules *rules)
{
    for (teng_place dim = 0; dim < call->in[0].ndim; dim++)
        teng_place_add(rules, &dim, &dim);
}

static void cost(const teng_op_call *call, teng_cost *out)
{
    out->flops = 2.0 * (double)count(&call->in[0]);
}

static teng_status run(const teng_kernel_args *args)
{
    const float *x = args->in[0];
    float *y = args->out[0];
    const int64_t n = count(&args->call->in[0]);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] * x[i] : 0;
    return TENG_OK;
}

static const teng_kernel cpu_kernels[] = {{.name = "plain f32", .run = run}, {0}};
static const teng_kernel_table kernels[] = {{"cpu", 0, cpu_kernels}, {0}};

static const teng_op_spec squared_relu = {
    .name = "squared_relu",
    .doc = "y = max(x, 0)^2, element by element; x is f32 (So et al. 2021, \"Primer\").",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .traits = TENG_OP_ELEMENTWISE,
    .inplace = {1}, /* y may lie where x lay */
    .infer = infer,
    .grad = grad,
    .grad_in = 1, /* the gradient reads the value of x */
    .place = place,
    .cost = cost,
    .kernels = kernels,
};

static teng_status reference(const teng_op_call *call, const double *const *in, double *const *out)
{
    for (int64_t i = 0; i < count(&call->in[0]); i++)
        out[0][i] = in[0][i] > 0 ? in[0][i] * in[0][i] : 0;
    return TENG_OK;
}

static const teng_op_case cases[] = {
    {.label = "vector", .n_in = 1, .in = {{.desc = {TENG_F32, 1, {37}}}}},
    {.label = "batch",
     .n_in = 1,
     .in = {{.desc = {TENG_F32, 3, {4, 6, 8}}, .fill = TENG_FILL_UNIFORM, .lo = -3, .hi = 3}}},
};
static const teng_op_cases squared_relu_cases = {.op = "squared_relu",
                                                 .list = cases,
                                                 .n = sizeof cases / sizeof *cases,
                                                 .reference = reference,
                                                 .dtypes = 1u << TENG_F32};

TENG_API const teng_plugin *teng_plugin_entry(void);
const teng_plugin *teng_plugin_entry(void)
{
    static const teng_op_spec *const ops[] = {&squared_relu, NULL};
    static const teng_op_cases *const lists[] = {&squared_relu_cases, NULL};
    static const teng_plugin plugin = {TENG_PLUGIN_ABI, "squared_relu", ops, lists};
    return &plugin;
}
