/* Plugins that must be refused, one for each BAD: another interface, an operator without cases, a name that
 * is taken. */
#include "teng/operator.h"

static teng_status infer(teng_op_call *call)
{
    call->out[0] = call->in[0];
    return TENG_OK;
}

static void cost(const teng_op_call *call, teng_cost *out)
{
    (void)call;
    out->flops = 0;
}

static const teng_op_spec spec = {
    .name = BAD == 3 ? "matmul" : "unheard_of",
    .doc = "y = x",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer,
    .no_grad = "a test",
    .no_place = "a test",
    .cost = cost,
    .no_kernels = "a test",
};
static const teng_op_cases list = {.op = BAD == 2 ? "another" : BAD == 3 ? "matmul" : "unheard_of"};

TENG_API const teng_plugin *teng_plugin_entry(void);
const teng_plugin *teng_plugin_entry(void)
{
    static const teng_op_spec *const ops[] = {&spec, NULL};
    static const teng_op_cases *const cases[] = {&list, NULL};
    static const teng_plugin plugin = {BAD == 1 ? 99 : TENG_PLUGIN_ABI, "bad", ops, cases};
    return &plugin;
}
