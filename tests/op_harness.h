/*
 * The table test of one operator, built-in or a plugin's, driven by its case list. It checks the spec,
 * attribute text, inference, every kernel that this machine can run against the float64 reference (each dtype
 * and instruction set, guards around buffers, bits that must not depend on threads or on what workspace and
 * outputs held before, in-place runs, no allocation), the gradient rule against finite differences in
 * float64, and each placement rule by running the reference on shards. Not here: operators' own tests of
 * error messages and special values.
 */
#ifndef TENG_TESTS_OP_HARNESS_H
#define TENG_TESTS_OP_HARNESS_H

#include "base/strbuf.h"
#include "op/builtin_cases.h"
#include "teng/operator.h"

/* Number of failures; each is a line in report. Built-in operators must be registered (their references
 * evaluate the gradient's nodes). */
int tg_harness_check(const teng_op_spec *op, const teng_op_cases *cases, tg_strbuf *report);

#endif
