/* What the files of the operator harness share: one case made concrete, and failure lines. */
#ifndef TENG_TESTS_OP_HARNESS_IMPL_H
#define TENG_TESTS_OP_HARNESS_IMPL_H

#include "op_harness.h"

#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "graph/graph.h"
#include "graph/op_table.h"
#include "tensor/desc.h"

/* One case in one floating dtype: shapes, inputs rounded to their dtypes, the reference's outputs. */
typedef struct hx_case {
    const teng_op_spec *op;
    const teng_op_cases *cases;
    const teng_op_case *c;
    teng_dtype dtype;
    teng_desc in[TENG_CASE_MAX_IN], out[TENG_MAX_OUT];
    teng_op_call call;
    double *in64[TENG_CASE_MAX_IN], *out64[TENG_MAX_OUT];
} hx_case;

typedef struct hx {
    const teng_op_spec *op;
    const teng_op_cases *cases;
    tg_strbuf *report;
    int failures;
    uint32_t used_in, used_out; /* values that the gradient's nodes read, over all cases */
    int rules_checked;          /* placement rules that some case could be cut for */
} hx;

/* Appends "operator, case, dtype: message" and counts it; a pending error's text is appended and cleared. */
void hx_fail(hx *h, const hx_case *x, const char *fmt, ...) TENG_PRINTF(3, 4);

/* False (after a failure line) when inference or the reference fails. Free also then. */
bool hx_case_open(hx *h, const teng_op_case *c, teng_dtype dtype, hx_case *x);
void hx_case_free(hx_case *x);
/* outs[n_out] of a call, computed by the reference from in; new arrays for tg_free. */
teng_status hx_reference(const teng_op_cases *cases, const teng_op_call *call, const double *const *in,
                         double **out);
/* n doubles for one purpose of one case, mean 0, deviation 1; always the same. */
double *hx_normal(const hx_case *x, const char *purpose, int64_t n);
/* ||a - b|| / ||b|| over finite elements (||a - b|| when b is 0); infinity when a NaN or infinity is not met
 * by the same. */
double hx_distance(const double *a, const double *b, int64_t n);

void hx_check_kernels(hx *h, const hx_case *x); /* op_harness_kernel.c */
void hx_check_grad(hx *h, const hx_case *x);    /* op_harness_grad.c */
void hx_check_place(hx *h, const hx_case *x);   /* op_harness_place.c */

#endif
