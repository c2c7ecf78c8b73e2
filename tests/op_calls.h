/* Calls of operators in tests, without a graph: what infer refuses in words, and one run on the best kernel.
 */
#ifndef TENG_TESTS_OP_CALLS_H
#define TENG_TESTS_OP_CALLS_H

#include "teng/operator.h"

/* A description in an initializer: D(F32, 2, 3, 4) is f32[3,4]. */
#define D(t, n, ...)                                                                                         \
    {                                                                                                        \
        TENG_##t, n,                                                                                         \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

typedef struct refusal {
    const teng_op_spec *op;
    const void *attr;
    int n_in;
    teng_desc in[6];
    const char *text; /* the message holds it */
} refusal;

/* The pending message holds the text; clears it. */
void check_text(const char *text);
void check_refusals(const refusal *list, size_t n);
/* out[] are the caller's buffers. Allocation number fail_at of prepare fails (0: none). */
teng_status run_op(const teng_op_spec *op, const void *attr, int n_in, const teng_desc *in,
                   const void *const *data, void *const *out, uint64_t fail_at);

#endif
