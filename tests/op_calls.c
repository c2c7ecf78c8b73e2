/* See op_calls.h. */
#include "op_calls.h"

#include "base/mem.h"
#include "device/cpu_isa.h"
#include "graph/op_table.h"

#include "cmocka_all.h"

#include <string.h>

void check_text(const char *text)
{
    if (!strstr(teng_error(), text)) fail_msg("\"%s\" lacks \"%s\"", teng_error(), text);
    teng_error_clear();
}

void check_refusals(const refusal *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        teng_desc out[TENG_MAX_OUT];
        int n_out;
        if (tg_op_infer(list[i].op, list[i].attr, list[i].n_in, list[i].in, out, &n_out) == TENG_OK)
            fail_msg("%s accepts what should give \"%s\"", list[i].op->name, list[i].text);
        check_text(list[i].text);
    }
}

teng_status run_op(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                   const void *const *data, void *const *out, uint64_t fail_at)
{
    teng_desc out_desc[TENG_MAX_OUT];
    teng_op_call call = {.op = op, .attr = attr, .n_in = n_in, .in = in, .out = out_desc};
    assert_int_equal(tg_op_infer(op, attr, n_in, in, out_desc, &call.n_out), TENG_OK);
    const teng_kernel *kernel = tg_kernel_select(&call, "cpu", tg_cpu_isa_current(), NULL);
    assert_non_null(kernel);
    teng_prepared prepared = {0};
    tg_alloc_fail_at(fail_at);
    teng_status status = kernel->prepare ? kernel->prepare(&call, &prepared) : TENG_OK;
    tg_alloc_fail_at(0);
    if (!fail_at) assert_int_equal(status, TENG_OK);
    if (status != TENG_OK) return status;
    void *workspace = tg_alloc_aligned(prepared.workspace);
    status = kernel->run(&(teng_kernel_args){&call, prepared.state, data, out, workspace, NULL});
    tg_free_aligned(workspace);
    if (kernel->release) kernel->release(prepared.state);
    return status;
}
